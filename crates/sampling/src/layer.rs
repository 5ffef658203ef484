//! [`LayerSampler`]: nodes drawn for a whole layer, and the edges from them.

use girih_graph_format::Csr;

use crate::chances::{Chances, mean_weights};
use crate::key::{HopDraws, Scheme};
use crate::pool::Pool;
use crate::relabel::{NodeSet, RankTable};
use crate::sampler::{check_graph, check_nodes, check_seeds};
use crate::subgraph::list_edges;
use crate::{Block, DrawKey, FanOut, MiniBatch, Neighbors, NodeId, SampleError, Sampler};

/// Sampler that draws the sources of a hop once for all destinations together, so that hops do not grow. It keeps all
/// edges from the drawn nodes to the destinations. The fan-out is the number of nodes of a whole hop.
///
/// The chance of a node grows with its contribution to the layer. [`Block::weights`] correct for that: the weight of
/// an edge from `u` is the number of draws of `u` over its expectation. Destinations whose neighbors are all left
/// out have empty rows. Edge ids are always kept.
///
/// Draws are made *with replacement*, as in the papers, or *without*. Without, each node is drawn for itself, with
/// chances that make the fan-out the expected number of nodes (Poisson sampling, as Balın and Çatalyürek have it for
/// LADIES: LABOR, NeurIPS 2023, section 3.1). Then no node is drawn twice, and the most important nodes are certain.
///
/// ```
/// use girih_graph_format::{Coo, Duplicates};
/// use girih_sampling::{DrawKey, LayerSampler, Sampler};
///
/// let (i, next): (Vec<u32>, Vec<u32>) = (0..9).map(|i| (i, (i + 1) % 9)).unzip();
/// let ring = Coo::new(9, 9, [i.clone(), next.clone()].concat(), [next, i].concat(), None)?.to_csr(Duplicates::Refuse)?;
///
/// let batch = LayerSampler::ladies("2,-1".parse()?, true).sample(&ring, &[3, 5], DrawKey::new(7, 0, 0))?;
/// let last = &batch.blocks[1];
/// assert!(last.nodes.len() <= 2 + 2); // the seeds and at most two nodes more
/// assert_eq!(last.weights.len(), last.n_edges());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LayerSampler {
    sizes: FanOut,
    replace: bool,
    importance: Importance,
    scratch: Pool<Scratch>,
}

/// Measure in proportion to which nodes are drawn.
enum Importance {
    /// Squared norm of a node's column in the whole graph.
    InGraph { chances: Chances, rates: Vec<f64> },
    /// Squared norm of a node's column in the rows of the destinations.
    ToDestinations,
}

impl LayerSampler {
    /// Draws nodes of the whole graph, for any destinations, in proportion to the squared norms of their columns in
    /// the mean over neighbors (Chen et al., FastGCN, ICLR 2018, section 3.1). Draws of nodes that are no
    /// destination's neighbor are lost.
    ///
    /// # Errors
    /// When the graph is not an adjacency.
    pub fn fast_gcn(graph: &Csr, sizes: FanOut, replace: bool) -> Result<Self, SampleError> {
        check_graph(graph)?;
        let chances = Chances::of_columns(graph);
        let rate = |size: &Neighbors| match size {
            Neighbors::Count(count) => chances.poisson_rate(*count),
            Neighbors::All => f64::INFINITY,
        };
        let rates = sizes.hops().iter().map(rate).collect();
        Ok(Self { sizes, replace, importance: Importance::InGraph { chances, rates }, scratch: Pool::default() })
    }

    /// Draws neighbors of the destinations, in proportion to the squared norms of their columns in the destinations'
    /// rows of the mean over neighbors (Zou et al., LADIES, NeurIPS 2019, algorithm 1).
    #[must_use]
    pub fn ladies(sizes: FanOut, replace: bool) -> Self {
        Self { sizes, replace, importance: Importance::ToDestinations, scratch: Pool::default() }
    }

    /// Number of nodes of each hop.
    #[must_use]
    pub fn sizes(&self) -> &FanOut {
        &self.sizes
    }

    /// Makes the block of a hop; the block lists its destinations already.
    fn hop(&self, graph: &Csr, hop: usize, draws: HopDraws, scratch: &mut Scratch, block: &mut Block) {
        scratch.find_candidates(graph, &block.nodes);
        match (self.sizes.hops()[hop], &self.importance) {
            (Neighbors::All, _) => scratch.weights.fill(1.0),
            (Neighbors::Count(count), Importance::InGraph { chances, rates }) => {
                let importance = Drawable { chances, is_of_graph: true, rate: rates[hop] };
                scratch.draw(importance, count, self.replace, draws);
            }
            (Neighbors::Count(count), Importance::ToDestinations) => {
                let chances = scratch.chances(graph, &block.nodes);
                let importance = Drawable { chances: &chances, is_of_graph: false, rate: chances.poisson_rate(count) };
                scratch.draw(importance, count, self.replace, draws);
            }
        }
        scratch.list(graph, block);
    }
}

impl Sampler for LayerSampler {
    fn sample_into(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        check_graph(graph)?;
        if let Importance::InGraph { chances, .. } = &self.importance {
            check_nodes(graph, chances.len())?;
        }
        let n_hops = self.sizes.hops().len();
        self.scratch.with(Scratch::default, |scratch| {
            check_seeds(graph.n_rows(), seeds, &mut scratch.seeds)?;
            batch.reset(n_hops);
            for hop in 0..n_hops {
                // Blocks lie in the order of layers, the seeds' block last.
                let (blocks, after) = batch.blocks.split_at_mut(n_hops - hop);
                let block = &mut blocks[n_hops - hop - 1];
                block.nodes.extend_from_slice(after.first().map_or(seeds, |nearer| &nearer.nodes));
                self.hop(graph, hop, key.hop(Scheme::Layer, hop as u32), scratch, block);
            }
            Ok(())
        })
    }
}

/// Chances of the nodes of a graph, or of candidates.
struct Drawable<'a> {
    chances: &'a Chances,
    is_of_graph: bool,
    /// Rate of [`Chances::poisson`].
    rate: f64,
}

/// Memory of one batch that is being sampled.
#[derive(Default)]
struct Scratch {
    seeds: NodeSet,
    /// Neighbors of destinations, ascending, and their numbers.
    candidates: Vec<NodeId>,
    numbers: RankTable,
    /// Weight of the edges from each candidate; zero for a candidate that is left out.
    weights: Vec<f64>,
    /// Local id of each candidate that is drawn.
    locals: Vec<NodeId>,
    /// Weight of the edges from each node of the block.
    local_weights: Vec<f32>,
}

impl Scratch {
    /// Finds all neighbors of destinations; none of them is drawn yet.
    fn find_candidates(&mut self, graph: &Csr, destinations: &[NodeId]) {
        self.numbers.begin(graph.n_rows());
        destinations.iter().for_each(|&node| self.numbers.mark(graph.row(node as usize)));
        self.numbers.enumerate(&mut self.candidates);
        self.weights.clear();
        self.weights.resize(self.candidates.len(), 0.0);
    }

    /// Chances of candidates, by their contribution to the destinations.
    fn chances(&self, graph: &Csr, destinations: &[NodeId]) -> Chances {
        let mut norms = vec![0.0; self.candidates.len()];
        for &node in destinations {
            for (source, weight) in mean_weights(graph, node as usize) {
                norms[self.numbers.get(source) as usize] += weight * weight;
            }
        }
        Chances::new(&norms)
    }

    /// Draws candidates, and sets the weights of the drawn ones.
    fn draw(&mut self, importance: Drawable<'_>, count: u32, replace: bool, draws: HopDraws) {
        if replace {
            self.draw_with_replacement(importance, count, draws);
        } else {
            self.draw_each(importance, draws);
        }
    }

    fn draw_with_replacement(
        &mut self,
        Drawable { chances, is_of_graph, .. }: Drawable<'_>,
        count: u32,
        draws: HopDraws,
    ) {
        let (sums, mut stream) = (chances.sums(), draws.shared());
        if sums.total() == 0 {
            return;
        }
        for _ in 0..count {
            let drawn = sums.find(stream.below(sums.total()));
            let candidate = if is_of_graph { self.numbers.find(drawn) } else { Some(drawn) };
            if let Some(candidate) = candidate {
                self.weights[candidate as usize] += 1.0 / (f64::from(count) * chances.of(drawn as usize));
            }
        }
    }

    fn draw_each(&mut self, Drawable { chances, is_of_graph, rate }: Drawable<'_>, draws: HopDraws) {
        for (candidate, &node) in self.candidates.iter().enumerate() {
            let chance = chances.poisson(if is_of_graph { node as usize } else { candidate }, rate);
            if draws.stream(node).unit_f64() < chance {
                self.weights[candidate] = 1.0 / chance;
            }
        }
    }

    /// Completes a block that lists its destinations: appends new nodes, edges and weights.
    fn list(&mut self, graph: &Csr, block: &mut Block) {
        /// Local id of candidates that are left out.
        const NOWHERE: NodeId = NodeId::MAX;
        let n_destinations = block.nodes.len();
        self.locals.clear();
        self.locals.resize(self.candidates.len(), NOWHERE);
        self.local_weights.clear();
        self.local_weights.resize(n_destinations, 0.0);
        for (&node, local) in block.nodes.iter().zip(0..) {
            if let Some(candidate) = self.numbers.find(node).filter(|&candidate| self.weights[candidate as usize] > 0.0)
            {
                self.locals[candidate as usize] = local;
                self.local_weights[local as usize] = self.weights[candidate as usize] as f32;
            }
        }
        for (candidate, &node) in self.candidates.iter().enumerate() {
            if self.weights[candidate] > 0.0 && self.locals[candidate] == NOWHERE {
                self.locals[candidate] = block.nodes.len() as NodeId;
                self.local_weights.push(self.weights[candidate] as f32);
                block.nodes.push(node);
            }
        }
        (block.n_destinations, block.n_columns) = (n_destinations, block.nodes.len());
        let destinations = block.nodes[..n_destinations].to_vec();
        let local = |source| Some(self.locals[self.numbers.get(source) as usize]).filter(|&local| local != NOWHERE);
        list_edges(graph, &destinations, local, block);
        block.weights.extend(block.indices.iter().map(|&column| self.local_weights[column as usize]));
    }
}
