//! [`TimedSampler`]: some earlier neighbors of each node, hop by hop.

use std::hash::{BuildHasherDefault, Hash, Hasher};

use girih_graph_format::{TimeWindow, TimedRows};
use girih_machine::prefetch;
use hashbrown::HashMap;

use super::batch::{TimedBatch, TimedSeed};
use super::rule::{Bound, Strategy, TimeRule};
use crate::draw::{DrawScratch, Drawn, DrawnRows, Sink, lane_count};
use crate::key::{HopDraws, Scheme};
use crate::pool::Pool;
use crate::relabel::{NodeHasher, Rank, Relabeller};
use crate::{Block, DrawKey, Expand, FanOut, Neighbors, NodeId, SampleError};

/// Options of [`TimedSampler`], besides its fan-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimedOptions {
    /// Edges that a node may draw from.
    pub rule: TimeRule,
    /// Draw neighbors with replacement: an edge may come several times.
    pub replace: bool,
    /// Nodes for which a hop draws.
    pub expand: Expand,
    /// Keep the position of each edge in the graph's rows.
    pub edge_ids: bool,
}

/// Sampler that draws, in each hop, up to a number of the edges that a node may see at its time.
///
/// A batch is the same whether the graph has later edges or not. The admitted edges of a row are found by binary search,
/// and a draw costs O(fan-out). `docs/draws.md` defines the draws.
///
/// ```
/// use girih_graph_format::{TimedRows, Times};
/// use girih_sampling::{DrawKey, TimedOptions, TimedSampler, TimedSeed};
///
/// // 1 → 0 at time 5, 2 → 0 at time 8.
/// let times = Times { values: vec![5, 8], ..Times::default() };
/// let graph = TimedRows::new(3, &[1, 2], &[0, 0], &times, false)?;
/// let sampler = TimedSampler::new("-1".parse()?, TimedOptions::default())?;
/// let batch = sampler.sample(&graph, &[TimedSeed { node: 0, time: 7 }], DrawKey::new(7, 0, 0))?;
/// assert_eq!(batch.blocks.inputs(), [0, 1]); // node 2 comes later
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TimedSampler {
    fan_out: FanOut,
    options: TimedOptions,
    scratch: Pool<Scratch>,
}

/// Node of a batch: a node of the graph, in a tree, with the bound of its edges.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    tree: u32,
    node: NodeId,
    bound: i64,
}

impl Hash for Place {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.tree);
        state.write_u32(self.node);
        state.write_u32(self.bound as u32);
        state.write_u32((self.bound >> 32) as u32);
    }
}

/// Nodes found so far, each with its tree and its bound.
#[derive(Default)]
struct Found {
    nodes: Vec<NodeId>,
    trees: Vec<u32>,
    bounds: Vec<i64>,
}

impl Found {
    fn clear(&mut self) {
        self.nodes.clear();
        self.trees.clear();
        self.bounds.clear();
    }

    fn place(&self, at: usize) -> Place {
        Place { tree: self.trees[at], node: self.nodes[at], bound: self.bounds[at] }
    }

    /// Number of a node in a tree, which is the next one if it is new.
    #[inline(always)]
    fn number(&mut self, numbers: &mut Numbers, place: Place) -> NodeId {
        *numbers.entry(place).or_insert_with(|| {
            self.push(place);
            (self.nodes.len() - 1) as NodeId
        })
    }

    fn push(&mut self, Place { tree, node, bound }: Place) {
        self.nodes.push(node);
        self.trees.push(tree);
        self.bounds.push(bound);
    }
}

/// Numbers of nodes in trees.
type Numbers = HashMap<Place, NodeId, BuildHasherDefault<NodeHasher>>;

/// Memory of one batch that is being sampled.
#[derive(Default)]
struct Scratch {
    found: Found,
    numbers: Numbers,
    /// Numbers of nodes that all seeds share.
    shared: Rank,
    draw: DrawScratch,
    sources: Vec<NodeId>,
}

impl Scratch {
    /// Ends a hop of seeds that share their nodes: numbers the new ones, ascending, and gives columns local ids.
    fn settle(&mut self, columns: &mut [NodeId]) {
        let Found { nodes, trees, bounds } = &mut self.found;
        self.shared.settle(nodes);
        trees.resize(nodes.len(), 0);
        bounds.resize(nodes.len(), bounds.first().copied().unwrap_or(0));
        self.shared.apply(columns);
    }
}

impl TimedSampler {
    /// Makes a sampler.
    ///
    /// # Errors
    /// When the latest edges are to be taken with replacement.
    pub fn new(fan_out: FanOut, options: TimedOptions) -> Result<Self, SampleError> {
        if options.rule.strategy == Strategy::Last && options.replace {
            return Err(SampleError::invalid(
                "the latest edges of a node are taken once each; draw without replacement, or uniformly",
            ));
        }
        Ok(Self { fan_out, options, scratch: Pool::default() })
    }

    /// Number of neighbors in each hop.
    #[must_use]
    pub fn fan_out(&self) -> &FanOut {
        &self.fan_out
    }

    /// Options of the sampler.
    #[must_use]
    pub fn options(&self) -> TimedOptions {
        self.options
    }

    /// Samples blocks for seeds with times. A node may be a seed several times.
    ///
    /// # Errors
    /// When a seed is not a node of the graph, or there are more than 2³² seeds.
    pub fn sample(&self, graph: &TimedRows, seeds: &[TimedSeed], key: DrawKey) -> Result<TimedBatch, SampleError> {
        let mut batch = TimedBatch::default();
        self.sample_into(graph, seeds, key, &mut batch)?;
        Ok(batch)
    }

    /// As [`sample`](Self::sample), but into the memory of an earlier batch, whose content is lost.
    ///
    /// # Errors
    /// As [`sample`](Self::sample); the content of `batch` is then unspecified, and its memory can be reused.
    pub fn sample_into(
        &self,
        graph: &TimedRows,
        seeds: &[TimedSeed],
        key: DrawKey,
        batch: &mut TimedBatch,
    ) -> Result<(), SampleError> {
        let n_nodes = graph.n_nodes();
        if let Some(at) = seeds.iter().position(|seed| seed.node as usize >= n_nodes) {
            let node = seeds[at].node;
            return Err(SampleError::no_such_node(format!(
                "seed {at} is node {node}, but the graph has {n_nodes} nodes, counted from 0"
            )));
        }
        if u32::try_from(seeds.len()).is_err() {
            return Err(SampleError::invalid(format!("{} seeds are too many for one batch", seeds.len())));
        }
        self.scratch.with(Scratch::default, |scratch| {
            batch.clear(self.fan_out.hops().len());
            scratch.found.clear();
            if self.options.rule.bound == Bound::Batch {
                share_seeds(seeds, scratch, &mut batch.seed_rows);
                scratch.shared.begin(n_nodes, &scratch.found.nodes);
            } else {
                scratch.numbers.clear();
                let Scratch { found, numbers, .. } = scratch;
                let tree = |(seed, tree): (&TimedSeed, u32)| Place { tree, node: seed.node, bound: seed.time };
                batch.seed_rows.extend(seeds.iter().zip(0..).map(tree).map(|place| found.number(numbers, place)));
            }
            self.hops(graph, key, scratch, batch);
            Ok(())
        })
    }

    /// Samples hop after hop, from the seeds outward.
    fn hops(&self, graph: &TimedRows, key: DrawKey, scratch: &mut Scratch, batch: &mut TimedBatch) {
        let n_hops = self.fan_out.hops().len();
        let mut n_expanded = 0;
        for (hop, &neighbors) in self.fan_out.hops().iter().enumerate() {
            // Blocks lie in the order of layers, the seeds' block last.
            let (blocks, after) = batch.blocks.blocks.split_at_mut(n_hops - hop);
            let (block, nearer) = (&mut blocks[n_hops - hop - 1], after.first());
            block.n_destinations = scratch.found.nodes.len();
            match nearer.filter(|_| self.options.expand == Expand::Once) {
                Some(nearer) => {
                    block.indptr.clone_from(&nearer.indptr);
                    block.indices.clone_from(&nearer.indices);
                    block.edge_ids.clone_from(&nearer.edge_ids);
                }
                None => n_expanded = 0,
            }
            let n_kept = block.indices.len();
            self.draw(graph, (key, hop as u32), (neighbors, n_expanded), scratch, block);
            if self.options.rule.bound == Bound::Batch {
                scratch.settle(&mut block.indices[n_kept..]);
            }
            n_expanded = block.n_destinations;
            block.n_columns = scratch.found.nodes.len();
            block.nodes.clone_from(&scratch.found.nodes);
        }
        batch.trees.clone_from(&scratch.found.trees);
        batch.bounds.clone_from(&scratch.found.bounds);
    }

    /// Draws the edges of a hop for the nodes from `n_expanded` on. Columns are local ids; global ones where seeds share
    /// their nodes.
    fn draw(
        &self,
        graph: &TimedRows,
        (key, hop): (DrawKey, u32),
        (neighbors, n_expanded): (Neighbors, usize),
        scratch: &mut Scratch,
        block: &mut Block,
    ) {
        let TimedOptions { rule, replace, edge_ids, .. } = self.options;
        let Scratch { found, numbers, shared, draw, sources } = scratch;
        if rule.bound == Bound::Batch
            && rule.strategy == Strategy::Uniform
            && let Some(count) = lane_count(neighbors)
        {
            // All nodes have one bound and one key, as those of graphs without times.
            let frontier = &found.nodes[n_expanded..block.n_destinations];
            let window = rule.window_of(found.bounds.first().copied().unwrap_or(0));
            let drawn = Drawn { indptr: &mut block.indptr, edge_ids: edge_ids.then_some(&mut block.edge_ids) };
            let (rows, draws) = (Admitted { graph, window }, key.hop(Scheme::Neighbors, hop));
            draw.plain_hop(rows, frontier, (count, replace), draws, drawn, &mut shared.sink(&mut block.indices));
            return;
        }
        let mut of_tree: Option<(u32, HopDraws)> = None;
        for at in n_expanded..block.n_destinations {
            let Place { tree, node, bound } = found.place(at);
            let admitted = graph.within(node as usize, &rule.window_of(bound));
            let draws = match of_tree {
                Some((of, draws)) if of == tree => draws,
                _ if rule.bound == Bound::Batch => key.hop(Scheme::Neighbors, hop),
                _ => key.of_tree(tree, hop),
            };
            of_tree = Some((tree, draws));
            let degree = admitted.len() as u32;
            let taken = match (rule.strategy, neighbors) {
                (Strategy::Last, Neighbors::Count(count)) => draw.last(degree, count),
                _ => draw.positions(degree, (neighbors, replace), draws.positions(node)),
            };
            if edge_ids {
                block.edge_ids.extend(taken.iter().map(|&at| admitted.start as u64 + u64::from(at)));
            }
            block.indptr.push(block.indptr.last().copied().unwrap_or(0) + taken.len() as u64);
            let row = graph.entries(admitted);
            if rule.bound == Bound::Batch {
                sources.clear();
                sources.extend(taken.iter().map(|&at| row.sources[at as usize]));
                shared.sink(&mut block.indices).take(sources);
            } else {
                block.indices.extend(taken.iter().map(|&at| {
                    let bound = if rule.bound == Bound::Path { row.times[at as usize] } else { bound };
                    found.number(numbers, Place { tree, node: row.sources[at as usize], bound })
                }));
            }
        }
    }
}

/// Edges of a graph whose times lie in a window.
#[derive(Clone, Copy)]
struct Admitted<'g> {
    graph: &'g TimedRows,
    window: TimeWindow,
}

impl DrawnRows for Admitted<'_> {
    #[inline(always)]
    fn ask(self, node: NodeId) {
        prefetch(self.graph.indptr().as_ptr().wrapping_add(node as usize));
    }

    #[inline(always)]
    fn ranges(self, nodes: &[NodeId], starts: &mut [u64], degrees: &mut [u32]) {
        for ((&node, first), degree) in nodes.iter().zip(starts).zip(degrees) {
            let range = self.graph.within(node as usize, &self.window);
            *first = range.start as u64;
            *degree = range.len() as u32;
        }
    }

    #[inline(always)]
    fn sources(&self) -> &[NodeId] {
        self.graph.sources()
    }

    #[inline(always)]
    fn edge(self, place: usize) -> u64 {
        place as u64
    }
}

/// Gives the seeds of a batch one node for each id, with the earliest of their times.
fn share_seeds(seeds: &[TimedSeed], scratch: &mut Scratch, rows: &mut Vec<NodeId>) {
    let earliest = seeds.iter().map(|seed| seed.time).min().unwrap_or(0);
    let Scratch { found, numbers, .. } = scratch;
    numbers.clear();
    let place = |seed: &TimedSeed| Place { tree: 0, node: seed.node, bound: earliest };
    rows.extend(seeds.iter().map(place).map(|place| found.number(numbers, place)));
}
