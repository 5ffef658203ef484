//! [`NeighborSampler`]: some neighbors of each node, hop by hop (Hamilton et al., GraphSAGE, NeurIPS 2017).

use girih_graph_format::Csr;

use crate::draw::{self, DrawScratch, Rule};
use crate::key::Scheme;
use crate::pool::Pool;
use crate::relabel::{Classic, Fast, Fused, HopPlan, NewNodes, NodeSet, Rank, Relabel, Relabeller};
use crate::sampler::{check_bias, check_graph, check_seeds};
use crate::topology::{Here, labor_with_weights};
use crate::{
    Bias, Block, Columns, DrawKey, Draws, ExcludedEdges, FanOut, Hop, HopSource, MiniBatch, NodeId, SampleError,
    Sampler, Topology,
};

/// Nodes for which a hop draws neighbors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Expand {
    /// All nodes found so far draw anew in every hop, as in DGL.
    #[default]
    PerLayer,
    /// Only the nodes found by the previous hop draw; the others keep their neighbors, as in `PyG`.
    Once,
}

/// Options of [`NeighborSampler`], besides its fan-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighborOptions {
    /// Draw neighbors with replacement: an edge may come several times.
    pub replace: bool,
    /// Scope of the draws of a hop.
    pub draws: Draws,
    /// Nodes for which a hop draws.
    pub expand: Expand,
    /// Keep the position of each edge in the graph.
    pub edge_ids: bool,
    /// Index space of the columns of the input block. Global columns save relabelling the largest hop, for features
    /// that are read in place.
    pub inputs: Columns,
    /// Operator that turns global ids into local ones.
    pub relabel: Relabel,
    /// Order of new nodes.
    pub new_nodes: NewNodes,
}

/// Sampler that draws up to a number of in-neighbors of each node in each hop, uniformly or by weights of edges.
///
/// A draw costs O(fan-out) for any degree, and neighbors are prefetched into the cache. The draws of a node depend
/// on the [`DrawKey`], its hop and its id alone; `docs/draws.md` defines them.
///
/// ```
/// use girih_graph_format::{Coo, Duplicates};
/// use girih_sampling::{DrawKey, NeighborOptions, NeighborSampler, Sampler};
///
/// // A ring of six nodes: i → i + 1 and i + 1 → i.
/// let (i, next): (Vec<u32>, Vec<u32>) = (0..6).map(|i| (i, (i + 1) % 6)).unzip();
/// let ring = Coo::new(6, 6, [i.clone(), next.clone()].concat(), [next, i].concat(), None)?.to_csr(Duplicates::Refuse)?;
///
/// let sampler = NeighborSampler::new("-1,1".parse()?, NeighborOptions::default())?;
/// let batch = sampler.sample(&ring, &[3], DrawKey::new(7, 0, 0))?;
/// let last = &batch.blocks[1];
/// assert_eq!(last.nodes, [3, 2, 4]); // the seed, then its neighbors
/// assert_eq!(last.row(0), [1, 2]); // local ids: nodes 2 and 4
/// assert_eq!(batch.blocks[0].n_edges(), 3); // one neighbor for each of them
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct NeighborSampler {
    fan_out: FanOut,
    options: NeighborOptions,
    bias: Option<Bias>,
    scratch: Pool<Scratch>,
}

impl NeighborSampler {
    /// Makes a sampler that draws all neighbors with equal chances.
    ///
    /// # Errors
    /// When `options` ask for ranks with new nodes as first seen, or for LABOR with replacement.
    pub fn new(fan_out: FanOut, options: NeighborOptions) -> Result<Self, SampleError> {
        if options.relabel == Relabel::Rank && options.new_nodes == NewNodes::FirstSeen {
            return Err(SampleError::invalid(
                "relabelling by rank sorts new nodes by id; choose another way to relabel for the order in which they are seen",
            ));
        }
        if options.draws == Draws::Labor && options.replace {
            return Err(SampleError::invalid(
                "LABOR takes an edge or does not, and never twice; draw without replacement, or per node or layer",
            ));
        }
        Ok(Self { fan_out, options, bias: None, scratch: Pool::default() })
    }

    /// Sets the weights of edges: a neighbor is drawn in proportion to its weight. Neighbors with weight zero are
    /// never drawn, not even by a fan-out of −1. Without replacement, each draw is made among the remaining
    /// neighbors.
    #[must_use]
    pub fn weighted(mut self, bias: Bias) -> Self {
        self.bias = Some(bias);
        self
    }

    /// Number of neighbors in each hop.
    #[must_use]
    pub fn fan_out(&self) -> &FanOut {
        &self.fan_out
    }

    /// Options of the sampler.
    #[must_use]
    pub fn options(&self) -> NeighborOptions {
        self.options
    }

    /// Weights of edges, if any.
    #[must_use]
    pub fn bias(&self) -> Option<&Bias> {
        self.bias.as_ref()
    }

    /// As [`Sampler::sample_into`], but without the edges in `excluded`.
    ///
    /// # Errors
    /// As [`Sampler::sample_into`].
    pub fn sample_excluding(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        excluded: &ExcludedEdges,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        check_graph(graph)?;
        check_bias(self.bias.as_ref(), graph)?;
        if self.options.draws == Draws::Labor && self.bias.is_some() {
            return Err(labor_with_weights());
        }
        self.sample_checked(&mut Here(graph), seeds, key, excluded, batch)
    }

    /// As [`Sampler::sample_into`], but with draws from a topology. Weights belong to the topology: this sampler must
    /// have none.
    ///
    /// # Errors
    /// As [`Sampler::sample_into`], and those of the topology; when this sampler has weights.
    pub fn sample_from<T: Topology>(
        &self,
        topology: &mut T,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), T::Error> {
        if self.bias.is_some() {
            let message =
                "the sampler has weights, but others make its draws; give each of them the weights of its edges";
            return Err(SampleError::invalid(message).into());
        }
        self.sample_checked(topology, seeds, key, &ExcludedEdges::default(), batch)
    }

    fn sample_checked<T: Topology>(
        &self,
        topology: &mut T,
        seeds: &[NodeId],
        key: DrawKey,
        excluded: &ExcludedEdges,
        batch: &mut MiniBatch,
    ) -> Result<(), T::Error> {
        self.scratch.with(
            || Scratch::new(self.options),
            |scratch| {
                check_seeds(topology.n_nodes(), seeds, &mut scratch.seeds)?;
                self.hops(topology, seeds, key, excluded, batch, scratch)
            },
        )
    }

    /// Samples from checked arguments: hop after hop, from the seeds outward.
    fn hops<T: Topology>(
        &self,
        topology: &mut T,
        seeds: &[NodeId],
        key: DrawKey,
        excluded: &ExcludedEdges,
        batch: &mut MiniBatch,
        scratch: &mut Scratch,
    ) -> Result<(), T::Error> {
        let (n_hops, n_nodes) = (self.fan_out.hops().len(), topology.n_nodes());
        let Scratch { nodes, relabeller, draw, .. } = scratch;
        batch.reset(n_hops);
        relabeller.begin(n_nodes, seeds);
        nodes.clear();
        nodes.extend_from_slice(seeds);
        let mut n_expanded = 0;
        for (hop, &neighbors) in self.fan_out.hops().iter().enumerate() {
            // Blocks lie in the order of layers, the seeds' block last.
            let (blocks, after) = batch.blocks.split_at_mut(n_hops - hop);
            let (block, nearer) = (&mut blocks[n_hops - hop - 1], after.first());
            let found = nearer.map_or(seeds, |nearer| &nearer.nodes);
            block.n_destinations = found.len();
            if let (Expand::Once, Some(nearer)) = (self.options.expand, nearer) {
                block.indptr.clone_from(&nearer.indptr);
                block.indices.clone_from(&nearer.indices);
                block.edge_ids.clone_from(&nearer.edge_ids);
            } else {
                n_expanded = 0;
            }
            let NeighborOptions { draws, replace, .. } = self.options;
            let rule = Rule { neighbors, draws, replace, bias: self.bias.as_ref(), excluded };
            let n_kept = n_expanded;
            let frontier = &found[n_kept..];
            let edge_ids = self.options.edge_ids;
            let source =
                topology.hop(&Hop { frontier, neighbors, draws, replace, edge_ids, key, number: hop as u32 })?;
            let plan = HopPlan {
                source,
                frontier,
                rule,
                draws: key.hop(Scheme::Neighbors, hop as u32),
                scratch: draw,
                keeps_edge_ids: edge_ids,
            };
            n_expanded = found.len();
            if hop + 1 == n_hops && self.options.inputs == Columns::Global {
                block.columns = Columns::Global;
                block.n_columns = n_nodes;
                block.indices.iter_mut().for_each(|column| *column = found[*column as usize]);
                plan.run(&mut block.indptr, &mut block.edge_ids, &mut block.indices);
            } else {
                relabeller.hop(plan, nodes, block);
                block.n_columns = nodes.len();
            }
            block.nodes.clone_from(nodes);
            block.weights.clear();
            if let (Expand::Once, Some(nearer)) = (self.options.expand, nearer) {
                block.weights.extend_from_slice(&nearer.weights);
            }
            weigh(source, frontier, rule, n_kept, block);
        }
        Ok(())
    }
}

impl Sampler for NeighborSampler {
    fn sample_into(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        self.sample_excluding(graph, seeds, key, &ExcludedEdges::default(), batch)
    }
}

/// Appends the weight of each edge of a hop, unless all count alike. The hop's nodes follow `n_kept` others in the
/// block.
fn weigh(source: HopSource<'_>, frontier: &[NodeId], rule: Rule<'_>, n_kept: usize, block: &mut Block) {
    let Block { indptr, weights, .. } = block;
    let counts = indptr[n_kept..].windows(2).map(|offsets| (offsets[1] - offsets[0]) as usize);
    let mut extend = |(weight, n)| weights.extend(std::iter::repeat_n(weight, n));
    match source {
        HopSource::Rows(patch) => draw::edge_weights(patch, frontier, rule).zip(counts).for_each(&mut extend),
        HopSource::Drawn(drawn) => drawn.node_weights.iter().copied().zip(counts).for_each(&mut extend),
    }
}

/// Memory of one batch that is being sampled.
struct Scratch {
    seeds: NodeSet,
    /// Nodes found so far.
    nodes: Vec<NodeId>,
    relabeller: Box<dyn Relabeller + Send>,
    draw: DrawScratch,
}

impl Scratch {
    fn new(options: NeighborOptions) -> Self {
        let relabeller: Box<dyn Relabeller + Send> = match options.relabel {
            Relabel::ToBlock => Box::new(Classic::new(options.new_nodes)),
            Relabel::ToBlockFast => Box::new(Fast::new(options.new_nodes)),
            Relabel::Fused => Box::new(Fused::new(options.new_nodes)),
            Relabel::Rank => Box::new(Rank::default()),
        };
        Self { seeds: NodeSet::default(), nodes: Vec::new(), relabeller, draw: DrawScratch::default() }
    }
}
