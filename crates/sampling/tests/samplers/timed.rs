//! Laws of samples in time: they equal the definition, see no future, and do not change when the future is deleted.

use girih_graph_format::{Coo, Duplicates, NodeId, TimedRows, Times};
use girih_random::{Key, purpose};
use girih_sampling::testing::fan_outs;
use girih_sampling::{
    Admits, Bound, DrawKey, Expand, FanOut, NeighborOptions, NeighborSampler, Neighbors, Sampler, Strategy as Choice,
    TimeRule, TimedBatch, TimedOptions, TimedSampler, TimedSeed,
};
use proptest::prelude::*;

/// Edge of a list: source, destination, time.
type Edge = (NodeId, NodeId, i64);

/// A list of timed edges over some nodes, and seeds.
#[derive(Clone, Debug)]
struct Input {
    n_nodes: usize,
    edges: Vec<Edge>,
    both_ways: bool,
    seeds: Vec<TimedSeed>,
}

impl Input {
    fn rows(&self) -> TimedRows {
        rows_of(self.n_nodes, &self.edges, self.both_ways)
    }

    /// The input without the edges that a rule refuses.
    fn keeping(&self, keep: impl Fn(&Edge) -> bool) -> Self {
        Self { edges: self.edges.iter().copied().filter(|edge| keep(edge)).collect(), ..self.clone() }
    }
}

fn rows_of(n_nodes: usize, edges: &[Edge], both_ways: bool) -> TimedRows {
    let column = |at: fn(&Edge) -> NodeId| edges.iter().map(at).collect::<Vec<_>>();
    let times = Times { values: edges.iter().map(|edge| edge.2).collect(), ..Times::default() };
    TimedRows::new(n_nodes, &column(|edge| edge.0), &column(|edge| edge.1), &times, both_ways).unwrap()
}

fn inputs() -> impl Strategy<Value = Input> {
    (1..12usize, any::<bool>()).prop_flat_map(|(n_nodes, both_ways)| {
        let node = || 0..n_nodes as NodeId;
        let edges = prop::collection::vec((node(), node(), 0..20i64), 0..80);
        let seeds = prop::collection::vec((node(), -1..22i64), 0..7);
        (edges, seeds).prop_map(move |(edges, seeds)| {
            let seeds = seeds.into_iter().map(|(node, time)| TimedSeed { node, time }).collect();
            Input { n_nodes, edges, both_ways, seeds }
        })
    })
}

fn options() -> impl Strategy<Value = TimedOptions> {
    let bounds = prop::sample::select(Bound::ALL.to_vec());
    let window = prop::option::of(0..12u64);
    (bounds, any::<[bool; 4]>(), window).prop_map(|(bound, [before, last, once, replace], window)| TimedOptions {
        rule: TimeRule {
            bound,
            admits: if before { Admits::Before } else { Admits::Until },
            window,
            strategy: if last { Choice::Last } else { Choice::Uniform },
        },
        replace: replace && !last,
        expand: if once { Expand::Once } else { Expand::PerLayer },
        edge_ids: true,
    })
}

fn keys() -> impl Strategy<Value = DrawKey> {
    any::<(u64, u32, u32)>().prop_map(|(seed, epoch, batch)| DrawKey::new(seed, epoch, batch))
}

/// Whether a node with this bound may see an edge of this time.
fn is_admitted(rule: &TimeRule, bound: i64, time: i64) -> bool {
    let is_early_enough = match rule.admits {
        Admits::Until => time <= bound,
        Admits::Before => time < bound,
    };
    is_early_enough && rule.window.is_none_or(|window| i128::from(time) >= i128::from(bound) - i128::from(window))
}

/// Node of a batch by the definition: tree, id, bound.
type Place = (u32, NodeId, i64);

/// Layers of a batch by the definition: its nodes, and the columns and entries of each row.
#[derive(Debug, PartialEq)]
struct PlainBlock {
    nodes: Vec<NodeId>,
    rows: Vec<Vec<(NodeId, u64)>>,
}

/// Batch by the definition in `docs/draws.md`: blocks from the inputs on, and the places of their nodes.
fn plain_sample(
    rows: &TimedRows,
    seeds: &[TimedSeed],
    key: DrawKey,
    fan_out: &FanOut,
    options: TimedOptions,
) -> (Vec<PlainBlock>, Vec<Place>) {
    let rule = options.rule;
    let sampling = |scheme: u64| Key::new(key.seed, purpose::SAMPLING).child(scheme).child(u64::from(key.epoch));
    let earliest = seeds.iter().map(|seed| seed.time).min().unwrap_or(0);
    let mut places: Vec<Place> = Vec::new();
    for (seed, tree) in seeds.iter().zip(0..) {
        let place = if rule.bound == Bound::Batch { (0, seed.node, earliest) } else { (tree, seed.node, seed.time) };
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let draw = |(tree, node, bound): Place, hop: usize, neighbors: Neighbors| -> Vec<(Place, u64)> {
        let row = rows.row(node as usize);
        let start = rows.row_range(node as usize).start;
        let admitted: Vec<usize> =
            (0..row.times.len()).filter(|&at| is_admitted(&rule, bound, row.times[at])).collect();
        let key_of = if rule.bound == Bound::Batch { sampling(1) } else { sampling(7).child(u64::from(tree)) };
        let high = ((hop as u64) << 32) + u64::from(node);
        let mut stream = key_of.stream(high, u64::from(key.batch) << 32);
        let mut below = |bound: usize| {
            // Bounds are small here, so that one word decides nearly always; those that it does not are left to the
            // unit test of positions.
            ((u64::from(stream.next_u32()) * bound as u64) >> 32) as usize
        };
        let d = admitted.len();
        let taken: Vec<usize> = match (neighbors, rule.strategy) {
            (Neighbors::All, _) => (0..d).collect(),
            (Neighbors::Count(k), Choice::Last) => (d.saturating_sub(k as usize)..d).collect(),
            (Neighbors::Count(k), Choice::Uniform) if options.replace => {
                (0..if d == 0 { 0 } else { k }).map(|_| below(d)).collect()
            }
            (Neighbors::Count(k), Choice::Uniform) if d <= k as usize => (0..d).collect(),
            (Neighbors::Count(k), Choice::Uniform) => {
                let mut taken = Vec::new();
                for j in d - k as usize..d {
                    let p = below(j + 1);
                    taken.push(if taken.contains(&p) { j } else { p });
                }
                taken
            }
        };
        let entry = |at: usize| {
            let at = admitted[at];
            let bound = if rule.bound == Bound::Path { row.times[at] } else { bound };
            ((tree, row.sources[at], bound), (start + at) as u64)
        };
        taken.into_iter().map(entry).collect()
    };
    let mut drawn: Vec<Vec<(Place, u64)>> = Vec::new();
    let mut blocks = Vec::new();
    for (hop, &neighbors) in fan_out.hops().iter().enumerate() {
        if options.expand == Expand::PerLayer {
            drawn.clear();
        }
        let from = drawn.len();
        drawn.extend(places[from..].iter().map(|&place| draw(place, hop, neighbors)));
        let mut found: Vec<Place> = drawn[from..].iter().flatten().map(|&(place, _)| place).collect();
        if rule.bound == Bound::Batch {
            found.sort_unstable();
        }
        for place in found {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let column = |place: Place| places.iter().position(|&other| other == place).unwrap() as NodeId;
        let rows = drawn.iter().map(|row| row.iter().map(|&(place, entry)| (column(place), entry)).collect());
        blocks.push(PlainBlock { rows: rows.collect(), nodes: places.iter().map(|place| place.1).collect() });
    }
    blocks.reverse();
    (blocks, places)
}

fn plain(batch: &TimedBatch) -> (Vec<PlainBlock>, Vec<Place>) {
    let of_block = |block: &girih_sampling::Block| {
        let edges = |v: usize| block.indptr[v] as usize..block.indptr[v + 1] as usize;
        let row = |v: usize| edges(v).map(|e| (block.indices[e], block.edge_ids[e])).collect();
        PlainBlock { nodes: block.nodes.clone(), rows: (0..block.n_destinations).map(row).collect() }
    };
    let nodes = batch.blocks.inputs().iter();
    let places = batch.trees.iter().zip(nodes).zip(&batch.bounds).map(|((&tree, &node), &bound)| (tree, node, bound));
    (batch.blocks.blocks.iter().map(of_block).collect(), places.collect())
}

/// The batch without the positions of its entries, which change with the graph.
fn without_positions(batch: &TimedBatch) -> TimedBatch {
    let mut batch = batch.clone();
    batch.blocks.blocks.iter_mut().for_each(|block| block.edge_ids.clear());
    batch
}

proptest! {
    #[test]
    fn batches_are_those_of_the_definition(input in inputs(), fan_out in fan_outs(), options in options(), key in keys()) {
        let rows = input.rows();
        let sampler = TimedSampler::new(fan_out.clone(), options).unwrap();
        let batch = sampler.sample(&rows, &input.seeds, key).unwrap();
        prop_assert_eq!(plain(&batch), plain_sample(&rows, &input.seeds, key, &fan_out, options));
        // Memory of another batch changes nothing.
        let mut again = sampler.sample(&rows, &[], key).unwrap();
        sampler.sample_into(&rows, &input.seeds, key, &mut again).unwrap();
        prop_assert_eq!(again.digest(), batch.digest());
        prop_assert_eq!(again, batch);
    }

    #[test]
    fn nothing_of_the_future_is_drawn(input in inputs(), fan_out in fan_outs(), options in options(), key in keys()) {
        let rows = input.rows();
        let batch = TimedSampler::new(fan_out, options).unwrap().sample(&rows, &input.seeds, key).unwrap();
        for block in &batch.blocks.blocks {
            for v in 0..block.n_destinations {
                for e in block.indptr[v] as usize..block.indptr[v + 1] as usize {
                    let (source, entry) = (block.indices[e] as usize, block.edge_ids[e] as usize);
                    let time = rows.times()[entry];
                    prop_assert!(is_admitted(&options.rule, batch.bounds[v], time));
                    prop_assert_eq!(batch.trees[v], batch.trees[source]);
                    prop_assert_eq!(rows.sources()[entry], block.nodes[source]);
                    let bound = if options.rule.bound == Bound::Path { time } else { batch.bounds[v] };
                    prop_assert_eq!(batch.bounds[source], bound);
                }
            }
        }
        let earliest = input.seeds.iter().map(|seed| seed.time).min();
        for (seed, &row) in input.seeds.iter().zip(&batch.seed_rows) {
            let bound = if options.rule.bound == Bound::Batch { earliest.unwrap() } else { seed.time };
            prop_assert_eq!((batch.blocks.inputs()[row as usize], batch.bounds[row as usize]), (seed.node, bound));
        }
    }

    #[test]
    fn deleting_the_future_changes_no_batch(input in inputs(), fan_out in fan_outs(), options in options(), key in keys()) {
        let sampler = TimedSampler::new(fan_out, options).unwrap();
        let whole = sampler.sample(&input.rows(), &input.seeds, key).unwrap();
        let latest = input.seeds.iter().map(|seed| seed.time);
        let latest = if options.rule.bound == Bound::Batch { latest.min() } else { latest.max() };
        let past = input.keeping(|edge| latest.is_some_and(|latest| is_admitted(
            &TimeRule { window: None, ..options.rule }, latest, edge.2,
        )));
        let of_past = sampler.sample(&past.rows(), &input.seeds, key).unwrap();
        prop_assert_eq!(without_positions(&of_past), without_positions(&whole));
    }

    #[test]
    fn a_tree_depends_on_its_own_seed_alone(
        input in inputs(), other in -1..22i64, fan_out in fan_outs(), options in options(), key in keys(),
    ) {
        prop_assume!(options.rule.bound != Bound::Batch && input.seeds.len() > 1);
        let (rows, sampler) = (input.rows(), TimedSampler::new(fan_out, options).unwrap());
        let mut seeds = input.seeds.clone();
        seeds[0].time = other;
        let [a, b] = [&input.seeds, &seeds].map(|seeds| sampler.sample(&rows, seeds, key).unwrap());
        let tree = |batch: &TimedBatch| {
            let (_, places) = plain(batch);
            places.into_iter().filter(|place| place.0 > 0).collect::<Vec<_>>()
        };
        prop_assert_eq!(tree(&a), tree(&b));
        let edges = |batch: &TimedBatch| {
            let block = &batch.blocks.blocks[0];
            let ends = (0..block.n_destinations).filter(|&v| batch.trees[v] > 0).map(|v| {
                block.edge_ids[block.indptr[v] as usize..block.indptr[v + 1] as usize].to_vec()
            });
            ends.collect::<Vec<_>>()
        };
        prop_assert_eq!(edges(&a), edges(&b));
    }

    #[test]
    fn without_a_future_a_shared_batch_is_one_without_times(
        input in inputs(), fan_out in fan_outs(), once: bool, replace: bool, key in keys(),
    ) {
        // One time for all: rows are ordered by their sources, as those of a matrix are.
        let mut edges: Vec<Edge> = input.edges.iter().map(|edge| (edge.0, edge.1, 0)).collect();
        edges.sort_unstable();
        edges.dedup();
        let (sources, destinations) = edges.iter().map(|edge| (edge.0, edge.1)).unzip();
        let list = Coo::new(input.n_nodes, input.n_nodes, destinations, sources, None).unwrap();
        let graph = list.to_csr(Duplicates::Refuse).unwrap();
        let mut seeds: Vec<NodeId> = input.seeds.iter().map(|seed| seed.node).collect();
        seeds.sort_unstable();
        seeds.dedup();
        let expand = if once { Expand::Once } else { Expand::PerLayer };
        let rule = TimeRule { bound: Bound::Batch, ..TimeRule::default() };
        let in_time = TimedOptions { rule, replace, expand, edge_ids: true };
        let of_seeds: Vec<TimedSeed> = seeds.iter().map(|&node| TimedSeed { node, time: 0 }).collect();
        let rows = rows_of(input.n_nodes, &edges, false);
        let timed = TimedSampler::new(fan_out.clone(), in_time).unwrap().sample(&rows, &of_seeds, key).unwrap();
        let options = NeighborOptions { replace, expand, edge_ids: true, ..NeighborOptions::default() };
        let plain = NeighborSampler::new(fan_out, options).unwrap().sample(&graph, &seeds, key).unwrap();
        prop_assert_eq!(timed.blocks, plain);
    }
}

#[test]
fn the_latest_edges_are_not_drawn_twice() {
    let rule = TimeRule { strategy: Choice::Last, ..TimeRule::default() };
    let options = TimedOptions { rule, replace: true, ..TimedOptions::default() };
    let error = TimedSampler::new("2".parse().unwrap(), options).err().expect("an error").to_string();
    assert!(error.contains("without replacement"), "{error}");
}

#[test]
fn a_seed_outside_the_graph_is_named() {
    let sampler = TimedSampler::new("2".parse().unwrap(), TimedOptions::default()).unwrap();
    let seeds = [TimedSeed { node: 0, time: 0 }, TimedSeed { node: 3, time: 0 }];
    let error = sampler.sample(&rows_of(3, &[], false), &seeds, DrawKey::default()).unwrap_err();
    assert!(error.is_no_such_node());
    assert!(error.to_string().contains("seed 1 is node 3"), "{error}");
}
