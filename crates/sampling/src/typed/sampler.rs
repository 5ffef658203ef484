//! [`TypedSampler`]: some neighbors of each node by each edge type, hop by hop.

use girih_graph_format::TypedGraph;

use super::block::{RelationRows, TypedBatch, TypedBlock};
use super::{TypedExcluded, TypedFanOut};
use crate::draw::{self, DrawScratch, Drawn, Rule};
use crate::key::Scheme;
use crate::pool::Pool;
use crate::relabel::{NodeSet, Rank, Relabeller};
use crate::sampler::check_seeds;
use crate::{DrawKey, Draws, ExcludedEdges, Expand, Neighbors, NodeId, Patch, SampleError};

/// Options of [`TypedSampler`], besides its fan-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypedOptions {
    /// Draw neighbors with replacement: an edge may come several times.
    pub replace: bool,
    /// Nodes for which a hop draws.
    pub expand: Expand,
    /// Keep the position of each edge in its relation.
    pub edge_ids: bool,
}

/// Sampler that draws, in each hop, up to a number of in-neighbors of each node by each edge type.
///
/// The draws of a node depend on the [`DrawKey`], its hop, its edge type and its id inside its type alone: they stay the
/// same when other types are added. `docs/draws.md` defines them.
///
/// ```
/// use girih_graph_format::{Csr, TypedGraph};
/// use girih_sampling::{DrawKey, TypedFanOut, TypedOptions, TypedSampler};
///
/// // One type of nodes and edges: 1 → 0 and 2 → 0.
/// let graph = TypedGraph::of_plain(Csr::new(3, 3, vec![0, 2, 2, 2], vec![1, 2], None)?)?;
/// let fan_out = TypedFanOut::uniform(&"-1".parse()?, 1);
/// let sampler = TypedSampler::new(fan_out, TypedOptions::default());
/// let batch = sampler.sample(&graph, &[(0, &[0])], DrawKey::new(7, 0, 0))?;
/// assert_eq!(batch.nodes[0], [0, 1, 2]);
/// assert_eq!(batch.blocks[0].relations[0].row(0), [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TypedSampler {
    fan_out: TypedFanOut,
    options: TypedOptions,
    scratch: Pool<Scratch>,
}

/// Memory of one batch that is being sampled.
#[derive(Default)]
struct Scratch {
    seeds: NodeSet,
    /// Numbering of the nodes of each type.
    types: Vec<Rank>,
    draw: DrawScratch,
}

/// Seeds by type: the number of a node type, and ids inside the type. Both ends of links may be of two types.
pub type TypedSeeds<'a> = [(usize, &'a [NodeId])];

/// Inputs of a batch.
#[derive(Clone, Copy)]
struct Request<'a> {
    graph: &'a TypedGraph,
    seeds: &'a TypedSeeds<'a>,
    key: DrawKey,
    excluded: &'a TypedExcluded,
}

impl TypedSampler {
    /// Makes a sampler that draws all neighbors of an edge type with equal chances.
    #[must_use]
    pub fn new(fan_out: TypedFanOut, options: TypedOptions) -> Self {
        Self { fan_out, options, scratch: Pool::default() }
    }

    /// Number of neighbors in each hop.
    #[must_use]
    pub fn fan_out(&self) -> &TypedFanOut {
        &self.fan_out
    }

    /// Options of the sampler.
    #[must_use]
    pub fn options(&self) -> TypedOptions {
        self.options
    }

    /// Samples blocks for seeds of one or several types. A seed without neighbors keeps its rows, which are empty.
    ///
    /// # Errors
    /// When the graph has other edge types than the fan-out, there is no such node type or it is listed twice, or a seed is
    /// not one of its nodes or listed twice.
    pub fn sample(&self, graph: &TypedGraph, seeds: &TypedSeeds<'_>, key: DrawKey) -> Result<TypedBatch, SampleError> {
        let mut batch = TypedBatch::default();
        self.sample_into(graph, seeds, key, &mut batch)?;
        Ok(batch)
    }

    /// As [`sample`](Self::sample), but into the memory of an earlier batch, whose content is lost.
    ///
    /// # Errors
    /// As [`sample`](Self::sample); the content of `batch` is then unspecified, and its memory can be reused.
    pub fn sample_into(
        &self,
        graph: &TypedGraph,
        seeds: &TypedSeeds<'_>,
        key: DrawKey,
        batch: &mut TypedBatch,
    ) -> Result<(), SampleError> {
        self.sample_excluding(graph, seeds, key, &TypedExcluded::default(), batch)
    }

    /// As [`sample_into`](Self::sample_into), but without the edges in `excluded`.
    ///
    /// # Errors
    /// As [`sample_into`](Self::sample_into).
    pub fn sample_excluding(
        &self,
        graph: &TypedGraph,
        seeds: &TypedSeeds<'_>,
        key: DrawKey,
        excluded: &TypedExcluded,
        batch: &mut TypedBatch,
    ) -> Result<(), SampleError> {
        let (n_expected, n_found) = (self.fan_out.hops()[0].len(), graph.relations().len());
        if n_found != n_expected {
            return Err(SampleError::invalid(format!(
                "the fan-out is for {n_expected} edge types, but the graph has {n_found}; make it from this graph's schema"
            )));
        }
        self.scratch.with(Scratch::default, |scratch| {
            for (at, &(of, nodes)) in seeds.iter().enumerate() {
                let Some(of_type) = graph.schema().node_types().get(of) else {
                    return Err(SampleError::invalid(format!(
                        "seeds of the node type {of}, but the graph has {} node types",
                        graph.schema().node_types().len()
                    )));
                };
                if seeds[..at].iter().any(|&(other, _)| other == of) {
                    return Err(SampleError::invalid(format!(
                        "seeds of the node type {} are listed twice; give all of them at once",
                        of_type.name
                    )));
                }
                let checked = check_seeds(of_type.n_nodes, nodes, &mut scratch.seeds);
                checked.map_err(|error| error.inside(&format!("node type {}", of_type.name)))?;
            }
            self.hops(Request { graph, seeds, key, excluded }, batch, scratch);
            Ok(())
        })
    }

    /// Samples from checked inputs: hop after hop, from the seeds outward.
    fn hops(&self, request: Request<'_>, batch: &mut TypedBatch, scratch: &mut Scratch) {
        let graph = request.graph;
        let sizes = &graph.sizes().node_types;
        let n_hops = self.fan_out.hops().len();
        batch.reset(n_hops, (sizes.len(), graph.relations().len()));
        request.seeds.iter().for_each(|&(of, seeds)| batch.nodes[of].extend_from_slice(seeds));
        scratch.types.resize_with(sizes.len(), Rank::default);
        for ((rank, &n_nodes), nodes) in scratch.types.iter_mut().zip(sizes).zip(&batch.nodes) {
            rank.begin(n_nodes, nodes);
        }
        // Nodes of each type that have drawn already.
        let mut n_expanded = vec![0; sizes.len()];
        for hop in 0..n_hops {
            // Blocks lie in the order of layers, the seeds' block last.
            let (blocks, after) = batch.blocks.split_at_mut(n_hops - hop);
            let (block, nearer) = (&mut blocks[n_hops - hop - 1], after.first());
            let counts = || batch.nodes.iter().map(Vec::len);
            block.n_destinations.clear();
            block.n_destinations.extend(counts());
            match nearer.filter(|_| self.options.expand == Expand::Once) {
                Some(nearer) => {
                    block.relations.iter_mut().zip(&nearer.relations).for_each(|(rows, of)| rows.copy_from(of));
                }
                None => n_expanded.fill(0),
            }
            let kept: Vec<usize> = block.relations.iter().map(|rows| rows.indices.len()).collect();
            self.draw(request, hop, (&batch.nodes, &n_expanded), block, scratch);
            n_expanded.clone_from(&block.n_destinations);
            for (rank, nodes) in scratch.types.iter_mut().zip(&mut batch.nodes) {
                rank.settle(nodes);
            }
            let edge_types = graph.schema().edge_types();
            for ((rows, edges), kept) in block.relations.iter_mut().zip(edge_types).zip(kept) {
                scratch.types[edges.source].apply(&mut rows.indices[kept..]);
            }
            block.n_sources.clear();
            block.n_sources.extend(batch.nodes.iter().map(Vec::len));
        }
    }

    /// Draws a hop of every edge type; sources are ids inside their type.
    fn draw(
        &self,
        Request { graph, key, excluded, .. }: Request<'_>,
        hop: usize,
        (nodes, n_expanded): (&[Vec<NodeId>], &[usize]),
        block: &mut TypedBlock,
        Scratch { types, draw, .. }: &mut Scratch,
    ) {
        let none = ExcludedEdges::default();
        let edge_types = graph.schema().edge_types().iter().zip(graph.relations()).zip(&self.fan_out.hops()[hop]);
        for (number, ((edges, relation), &neighbors)) in edge_types.enumerate() {
            let frontier = &nodes[edges.destination][n_expanded[edges.destination]..];
            let rows = &mut block.relations[number];
            let Some(neighbors) = neighbors.filter(|_| relation.nnz() > 0) else {
                rows.add_empty(frontier.len());
                continue;
            };
            let rule = self.rule(neighbors, excluded.of_type(number).unwrap_or(&none));
            // With one edge type, this is the key of a homogeneous graph.
            let draws = key.hop(Scheme::Neighbors, hop as u32 | (number as u32) << 8);
            let RelationRows { indptr, indices, edge_ids } = rows;
            let drawn = Drawn { indptr, edge_ids: self.options.edge_ids.then_some(edge_ids) };
            let mut sink = types[edges.source].sink(indices);
            draw::hop(Patch::whole(relation), frontier, rule, draws, draw, drawn, &mut sink);
        }
    }

    fn rule<'a>(&self, neighbors: Neighbors, excluded: &'a ExcludedEdges) -> Rule<'a> {
        Rule { neighbors, draws: Draws::PerNode, replace: self.options.replace, bias: None, excluded }
    }
}
