//! [`TimedSampler`]: some earlier neighbors of each node, hop by hop.

use std::hash::{BuildHasherDefault, Hash, Hasher};

use girih_graph_format::TimedRows;
use hashbrown::HashMap;

use super::batch::{TimedBatch, TimedSeed};
use super::rule::{Bound, Strategy, TimeRule};
use crate::draw::DrawScratch;
use crate::key::{HopDraws, Scheme};
use crate::pool::Pool;
use crate::relabel::NodeHasher;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// Memory of one batch that is being sampled.
#[derive(Default)]
struct Scratch {
    /// Nodes found so far.
    places: Vec<Place>,
    numbers: HashMap<Place, NodeId, BuildHasherDefault<NodeHasher>>,
    /// Source of each edge of a hop.
    drawn: Vec<Place>,
    new: Vec<Place>,
    draw: DrawScratch,
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
            self.place_seeds(seeds, scratch, &mut batch.seed_rows);
            self.hops(graph, key, scratch, batch);
            Ok(())
        })
    }

    /// Gives each seed its node of the batch: one for each seed, or one for each node where seeds share them.
    fn place_seeds(&self, seeds: &[TimedSeed], scratch: &mut Scratch, rows: &mut Vec<NodeId>) {
        scratch.places.clear();
        scratch.numbers.clear();
        let earliest = seeds.iter().map(|seed| seed.time).min().unwrap_or(0);
        for (seed, tree) in seeds.iter().zip(0..) {
            let place = match self.options.rule.bound {
                Bound::Batch => Place { tree: 0, node: seed.node, bound: earliest },
                Bound::Seed | Bound::Path => Place { tree, node: seed.node, bound: seed.time },
            };
            let next = scratch.places.len() as NodeId;
            let number = *scratch.numbers.entry(place).or_insert(next);
            if number == next {
                scratch.places.push(place);
            }
            rows.push(number);
        }
    }

    /// Samples hop after hop, from the seeds outward.
    fn hops(&self, graph: &TimedRows, key: DrawKey, scratch: &mut Scratch, batch: &mut TimedBatch) {
        let n_hops = self.fan_out.hops().len();
        let mut n_expanded = 0;
        for (hop, &neighbors) in self.fan_out.hops().iter().enumerate() {
            // Blocks lie in the order of layers, the seeds' block last.
            let (blocks, after) = batch.blocks.blocks.split_at_mut(n_hops - hop);
            let (block, nearer) = (&mut blocks[n_hops - hop - 1], after.first());
            block.n_destinations = scratch.places.len();
            match nearer.filter(|_| self.options.expand == Expand::Once) {
                Some(nearer) => {
                    block.indptr.clone_from(&nearer.indptr);
                    block.indices.clone_from(&nearer.indices);
                    block.edge_ids.clone_from(&nearer.edge_ids);
                }
                None => n_expanded = 0,
            }
            self.draw(graph, (key, hop as u32), (neighbors, n_expanded), scratch, block);
            n_expanded = block.n_destinations;
            scratch.settle(&mut block.indices);
            block.n_columns = scratch.places.len();
            block.nodes.extend(scratch.places.iter().map(|place| place.node));
        }
        batch.trees.extend(scratch.places.iter().map(|place| place.tree));
        batch.bounds.extend(scratch.places.iter().map(|place| place.bound));
    }

    /// Draws the edges of a hop for the nodes from `n_expanded` on.
    fn draw(
        &self,
        graph: &TimedRows,
        (key, hop): (DrawKey, u32),
        (neighbors, n_expanded): (Neighbors, usize),
        Scratch { places, drawn, draw, .. }: &mut Scratch,
        block: &mut Block,
    ) {
        let TimedOptions { rule, replace, edge_ids, .. } = self.options;
        let shared = key.hop(Scheme::Neighbors, hop);
        let mut of_tree: Option<(u32, HopDraws)> = None;
        drawn.clear();
        for &Place { tree, node, bound } in &places[n_expanded..] {
            let admitted = graph.within(node as usize, &rule.window_of(bound));
            let draws = match (rule.bound, of_tree) {
                (Bound::Batch, _) => shared,
                (_, Some((of, draws))) if of == tree => draws,
                _ => key.of_tree(tree, hop),
            };
            of_tree = Some((tree, draws));
            let taken = match (rule.strategy, neighbors) {
                (Strategy::Last, Neighbors::Count(count)) => draw.last(admitted.len() as u32, count),
                _ => draw.positions(admitted.len() as u32, (neighbors, replace), draws.positions(node)),
            };
            let row = graph.entries(admitted.clone());
            drawn.extend(taken.iter().map(|&at| {
                let bound = if rule.bound == Bound::Path { row.times[at as usize] } else { bound };
                Place { tree, node: row.sources[at as usize], bound }
            }));
            if edge_ids {
                block.edge_ids.extend(taken.iter().map(|&at| admitted.start as u64 + u64::from(at)));
            }
            let end = block.indptr.last().copied().unwrap_or(0) + taken.len() as u64;
            block.indptr.push(end);
        }
    }
}

impl Scratch {
    /// Numbers the new nodes of a hop, ascending by tree, id and bound, and appends the columns of its edges.
    fn settle(&mut self, indices: &mut Vec<NodeId>) {
        let Self { places, numbers, drawn, new, .. } = self;
        new.clear();
        new.extend(drawn.iter().filter(|place| !numbers.contains_key(*place)));
        new.sort_unstable();
        new.dedup();
        for &place in &*new {
            numbers.insert(place, places.len() as NodeId);
            places.push(place);
        }
        indices.extend(drawn.iter().map(|place| numbers[place]));
    }
}
