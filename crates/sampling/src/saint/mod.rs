//! [`SaintSampler`]: subgraphs with weights that correct for the nodes and edges they leave out (Zeng et al.,
//! GraphSAINT, ICLR 2020).

mod normalisation;

use girih_graph_format::Csr;
use rayon::prelude::*;

use self::normalisation::{Counts, Drawn, Normalisation};
use crate::chances::Chances;
use crate::key::Scheme;
use crate::sampler::check_graph;
use crate::subgraph::{Inducer, InducerPool};
use crate::{DrawKey, NodeId, RandomWalks, SampleError, Subgraph, SubgraphSampler, WalkOptions};

/// Largest number of draws of a subgraph per node of the graph; half as many would reach nearly every node.
const DRAWS_OF_NODE: usize = 64;
/// Number of draws that is always allowed, for any graph.
const DRAWS_ALLOWED: usize = 1 << 24;
/// Epoch number that keys the presampled subgraphs, whose nodes and edges are only counted.
const COUNTED_EPOCH: u32 = u32::MAX;

/// Sampler of subgraphs whose nodes are drawn as a whole, not as neighbors of seeds, with all edges among them.
///
/// Nodes and edges differ in how often they are in a subgraph. Two kinds of weights correct for this (Zeng et al.,
/// section 3.2). With `p` the chance to be in a subgraph and `n` nodes in the graph:
/// - [`Block::weights`](crate::Block::weights): an edge `u → v` has the weight `p_v / p_uv`. Given that `v` is in the
///   subgraph, the weighted sum over its edges has the sum over all its edges in the graph as its expectation.
/// - [`Subgraph::loss_weights`]: node `v` has the weight `1 / (n · p_v)`, so that the weighted loss has the mean over
///   all nodes as its expectation.
///
/// For draws of nodes and edges, these chances are computed exactly. For walks, they are estimated from subgraphs
/// drawn beforehand, as the paper does for all methods.
///
/// ```
/// use girih_graph_format::{Coo, Duplicates};
/// use girih_sampling::{DrawKey, SaintSampler, SubgraphSampler};
///
/// let (i, next): (Vec<u32>, Vec<u32>) = (0..9).map(|i| (i, (i + 1) % 9)).unzip();
/// let ring = Coo::new(9, 9, [i.clone(), next.clone()].concat(), [next, i].concat(), None)?.to_csr(Duplicates::Refuse)?;
///
/// let sampler = SaintSampler::edges(&ring, 3)?;
/// let subgraph = sampler.sample(&ring, DrawKey::new(7, 0, 0))?;
/// assert!(subgraph.nodes().len() <= 6); // three edges have at most six ends
/// assert_eq!(subgraph.loss_weights.len(), subgraph.nodes().len());
/// assert_eq!(subgraph.block.weights.len(), subgraph.block.n_edges());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SaintSampler {
    method: Method,
    normalisation: Normalisation,
    n_nodes: usize,
    n_edges: usize,
    scratch: InducerPool,
}

impl SaintSampler {
    /// Node sampler: `n_draws` nodes, drawn with replacement, in proportion to the squared norms of the columns of
    /// the mean over neighbors.
    ///
    /// # Errors
    /// When the graph is not an adjacency or has no edges, or `n_draws` is zero or far above the number of nodes.
    pub fn nodes(graph: &Csr, n_draws: u32) -> Result<Self, SampleError> {
        check_drawable(graph, n_draws)?;
        let chances = Chances::of_columns(graph);
        if chances.sums().total() == 0 {
            return Err(SampleError::invalid(
                "all edges of the graph have weight zero, so that no node is likelier than none",
            ));
        }
        let drawn = Drawn::of_nodes(&chances, n_draws);
        Ok(Self::new(graph, Method::Nodes { chances, n_draws }, Normalisation::Exact(drawn)))
    }

    /// Edge sampler: both ends of `n_draws` edges, drawn with replacement. A draw takes a node that has neighbors
    /// and then one of its neighbors, each with equal chances. So an edge between `u` and `v` that is in both rows
    /// has a chance in proportion to `1 / deg(u) + 1 / deg(v)`. This is the paper's chance, without a table of edges.
    ///
    /// # Errors
    /// When the graph is not an adjacency or has no edges, or `n_draws` is zero or far above the number of nodes.
    pub fn edges(graph: &Csr, n_draws: u32) -> Result<Self, SampleError> {
        check_drawable(graph, n_draws)?;
        let rows: Vec<NodeId> = (0..graph.n_rows() as NodeId).filter(|&v| graph.degree(v as usize) > 0).collect();
        let drawn = Drawn::of_edges(graph, rows.len(), n_draws);
        Ok(Self::new(graph, Method::Edges { rows, n_draws }, Normalisation::Exact(drawn)))
    }

    /// Walk sampler: all nodes of walks of `length` steps from `n_roots` nodes, which are drawn uniformly with
    /// replacement. Weights are estimated as [`presampled`](Self::presampled) does.
    ///
    /// # Errors
    /// When the graph is not an adjacency or has no edges, when `n_roots` or `n_subgraphs` is zero, or when `n_roots`
    /// is far above the number of nodes.
    pub fn walks(graph: &Csr, n_roots: u32, length: u32, n_subgraphs: u32, seed: u64) -> Result<Self, SampleError> {
        check_drawable(graph, n_roots)?;
        let method = Method::Walks { n_roots, walks: RandomWalks::new(WalkOptions::new(length))? };
        let counts = method.count(graph, n_subgraphs, seed)?;
        Ok(Self::new(graph, method, Normalisation::Counted(counts)))
    }

    /// Replaces the weights by estimates from `n_subgraphs` subgraphs, as in the paper. The frequency of a node or
    /// edge in them stands for its chance. A node or edge that is in none counts as met once. The paper takes about
    /// 50 times as many subgraphs as an epoch has.
    ///
    /// # Errors
    /// When the graph is not the sampler's, or `n_subgraphs` is zero.
    pub fn presampled(mut self, graph: &Csr, n_subgraphs: u32, seed: u64) -> Result<Self, SampleError> {
        self.check(graph)?;
        self.normalisation = Normalisation::Counted(self.method.count(graph, n_subgraphs, seed)?);
        Ok(self)
    }

    fn new(graph: &Csr, method: Method, normalisation: Normalisation) -> Self {
        let (n_nodes, n_edges) = (graph.n_rows(), graph.nnz());
        Self { method, normalisation, n_nodes, n_edges, scratch: InducerPool::default() }
    }

    fn check(&self, graph: &Csr) -> Result<(), SampleError> {
        if (graph.n_rows(), graph.n_cols(), graph.nnz()) == (self.n_nodes, self.n_nodes, self.n_edges) {
            return Ok(());
        }
        Err(SampleError::invalid(format!(
            "the sampler was made for {} nodes and {} edges, but the graph is {} × {} with {}; make it from this graph",
            self.n_nodes,
            self.n_edges,
            graph.n_rows(),
            graph.n_cols(),
            graph.nnz()
        )))
    }
}

impl SubgraphSampler for SaintSampler {
    fn batch_nodes(&self, graph: &Csr, key: DrawKey) -> Result<Vec<NodeId>, SampleError> {
        self.check(graph)?;
        self.method.nodes(graph, key)
    }

    fn sample_into(&self, graph: &Csr, key: DrawKey, subgraph: &mut Subgraph) -> Result<(), SampleError> {
        let nodes = self.batch_nodes(graph, key)?;
        self.scratch.with(Default::default, |inducer| inducer.induce(graph, &nodes, subgraph));
        self.normalisation.weigh(graph, subgraph);
        Ok(())
    }
}

/// Checks that the graph has edges, and that the number of draws is positive and fits memory.
fn check_drawable(graph: &Csr, n_draws: u32) -> Result<(), SampleError> {
    check_graph(graph)?;
    if graph.nnz() == 0 {
        return Err(SampleError::invalid("a graph without edges has no subgraphs to draw; each of its nodes is alone"));
    }
    if n_draws == 0 {
        return Err(SampleError::invalid("a subgraph of 0 draws is empty; draw at least 1"));
    }
    let most = (DRAWS_OF_NODE * graph.n_rows()).max(DRAWS_ALLOWED);
    if n_draws as usize > most {
        return Err(SampleError::invalid(format!(
            "{n_draws} draws meet each of {} nodes many times over, and are kept until the last; draw at most {most}",
            graph.n_rows()
        )));
    }
    Ok(())
}

/// Method by which nodes are drawn.
enum Method {
    Nodes {
        chances: Chances,
        n_draws: u32,
    },
    Edges {
        /// Nodes that have neighbors.
        rows: Vec<NodeId>,
        n_draws: u32,
    },
    Walks {
        n_roots: u32,
        walks: RandomWalks,
    },
}

impl Method {
    /// Nodes of a subgraph, ascending.
    fn nodes(&self, graph: &Csr, key: DrawKey) -> Result<Vec<NodeId>, SampleError> {
        let mut nodes: Vec<NodeId> = match self {
            Self::Nodes { chances, n_draws } => {
                let (mut stream, sums) = (key.hop(Scheme::SaintNodes, 0).stream(0), chances.sums());
                (0..*n_draws).map(|_| sums.find(stream.below(sums.total()))).collect()
            }
            Self::Edges { rows, n_draws } => {
                let mut stream = key.hop(Scheme::SaintEdges, 0).stream(0);
                let mut ends = |_| {
                    let row = rows[stream.below(rows.len() as u64) as usize];
                    let neighbors = graph.row(row as usize);
                    [row, neighbors[stream.below(neighbors.len() as u64) as usize]]
                };
                (0..*n_draws).flat_map(&mut ends).collect()
            }
            Self::Walks { n_roots, walks } => {
                let mut stream = key.hop(Scheme::SaintRoots, 0).stream(0);
                let roots: Vec<NodeId> = (0..*n_roots).map(|_| stream.below(graph.n_rows() as u64) as NodeId).collect();
                walks.walk(graph, &roots, key)?.nodes
            }
        };
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }

    /// Samples subgraphs by this method, and counts in how many of them each node and each edge is.
    fn count(&self, graph: &Csr, n_subgraphs: u32, seed: u64) -> Result<Counts, SampleError> {
        if n_subgraphs == 0 {
            return Err(SampleError::invalid("weights cannot be estimated from 0 subgraphs; draw some"));
        }
        let counts = Counts::new(graph, n_subgraphs);
        let memory = || (Inducer::default(), Subgraph::default());
        (0..n_subgraphs).into_par_iter().try_for_each_init(memory, |(inducer, subgraph), number| {
            let nodes = self.nodes(graph, DrawKey::new(seed, COUNTED_EPOCH, number))?;
            inducer.induce(graph, &nodes, subgraph);
            counts.add(subgraph);
            Ok(())
        })?;
        Ok(counts)
    }
}
