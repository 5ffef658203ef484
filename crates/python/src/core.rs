//! [`Core`]: what makes the batches of a graph, on any thread.

use std::sync::Arc;

use girih_datasets::Features;
use girih_graph_format::{Csr, NodeId, TimedRows};
use girih_sampling::{
    Block, Bound, DrawKey, EdgeList, ExcludedEdges, Expand, LayerSampler, NeighborSampler, SampleError, Sampler as _,
    Subgraph, SubgraphSampler, TimedBatch, TimedSampler, TimedSeed,
};

use crate::graph::EdgeNames;
use crate::spares::Spares;

/// Graph, sampler and memory of batches that Python has released. Any number of threads may sample at once.
pub struct Core {
    drawing: Drawing,
    /// Name of the edge at each position, if edges have names.
    names: EdgeNames,
    form: Form,
    spares: Spares<Arrays>,
}

/// Edges, and the sampler that draws from them.
#[allow(clippy::large_enum_variant)] // one for each sampler
pub enum Drawing {
    Plain(Csr, Method),
    Timed(Arc<TimedRows>, TimedSampler),
}

/// Sampler of a graph without times.
pub enum Method {
    Neighbors(NeighborSampler),
    Layers(LayerSampler),
    Subgraphs(Box<dyn SubgraphSampler>),
}

/// Seeds of a batch; their times where sampling follows time, and none else.
#[derive(Clone, Copy)]
pub struct Seeds<'a> {
    pub nodes: &'a [NodeId],
    pub times: &'a [i64],
}

/// Form of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Ids are `int64`, else `int32`.
    pub wide: bool,
    /// Names of edges are kept.
    pub edge_ids: bool,
    /// A batch is one list of edges, and not blocks alone.
    pub is_list: bool,
    /// Whether an edge may be drawn repeatedly.
    pub has_repeats: bool,
}

/// Memory of one batch.
#[derive(Default)]
pub struct Arrays {
    /// Blocks, with trees and bounds where sampling follows time.
    pub batch: TimedBatch,
    /// Seeds with their times.
    timed_seeds: Vec<TimedSeed>,
    /// Tree of each listed node; empty where seeds share their nodes.
    pub trees: Vec<i64>,
    pub subgraph: Subgraph,
    pub wide: EdgeList<i64>,
    pub narrow: EdgeList<i32>,
    pub edge_ids: Vec<i64>,
    /// Arrays of the blocks, of batches that are no list.
    pub blocks: Vec<BlockArrays>,
    /// Weight of each listed edge; empty where all count alike.
    pub weights: Vec<f32>,
    /// Feature rows of the nodes.
    pub x: Vec<f32>,
    pub n_seeds: usize,
    pub number: usize,
}

/// Arrays of a block that are not as the block has them, of the type that the sampler was made for.
#[derive(Default)]
pub struct BlockArrays {
    /// Offsets, of narrow ids.
    pub indptr: Vec<i32>,
    /// Sources of edges by local id, of wide ids.
    pub indices: Vec<i64>,
    /// Names of edges, where the sampler keeps them.
    pub edge_ids: Vec<i64>,
}

impl Core {
    pub fn new(drawing: Drawing, names: EdgeNames, form: Form) -> Self {
        Self { drawing, names, form, spares: Spares::default() }
    }

    pub fn n_nodes(&self) -> usize {
        match &self.drawing {
            Drawing::Plain(csr, _) => csr.n_rows(),
            Drawing::Timed(rows, _) => rows.n_nodes(),
        }
    }

    /// Graph without times, if it is one.
    pub fn csr(&self) -> Option<&Csr> {
        match &self.drawing {
            Drawing::Plain(csr, _) => Some(csr),
            Drawing::Timed(..) => None,
        }
    }

    /// Whether seeds have times.
    pub fn has_times(&self) -> bool {
        matches!(self.drawing, Drawing::Timed(..))
    }

    /// Whether edges of batches can be left out by name.
    pub fn can_exclude(&self) -> bool {
        matches!(self.drawing, Drawing::Plain(_, Method::Neighbors(_)))
    }

    /// Whether each seed has a tree of its own.
    fn has_trees(&self) -> bool {
        matches!(&self.drawing, Drawing::Timed(_, sampler) if sampler.options().rule.bound != Bound::Batch)
    }

    pub fn has_names(&self) -> bool {
        self.names.is_some()
    }

    pub fn form(&self) -> Form {
        self.form
    }

    /// Sampler of neighbors.
    #[cfg(feature = "cuda")]
    pub fn neighbors(&self) -> Result<&NeighborSampler, girih_compute::ComputeError> {
        match &self.drawing {
            Drawing::Plain(_, Method::Neighbors(sampler)) => Ok(sampler),
            _ => Err(girih_compute::ComputeError::argument(
                "sampling on the device",
                "GPUs sample neighbors alone; take layer-wise samplers and subgraphs on the CPU",
            )),
        }
    }

    pub fn has_seeds(&self) -> bool {
        !matches!(self.drawing, Drawing::Plain(_, Method::Subgraphs(_)))
    }

    pub fn give_back(&self, arrays: Arrays) {
        self.spares.give_back(arrays);
    }

    /// Samples the batch of these seeds, of which samplers of subgraphs have none.
    pub fn sample(&self, seeds: Seeds<'_>, key: DrawKey, excluded: &ExcludedEdges) -> Result<Arrays, SampleError> {
        self.spares.filled(|arrays| self.sample_into(seeds, key, excluded, arrays))
    }

    fn sample_into(
        &self,
        seeds: Seeds<'_>,
        key: DrawKey,
        excluded: &ExcludedEdges,
        arrays: &mut Arrays,
    ) -> Result<(), SampleError> {
        let mut rows = None;
        let Arrays { batch: TimedBatch { blocks: batch, .. }, subgraph, .. } = arrays;
        match &self.drawing {
            Drawing::Plain(csr, Method::Neighbors(sampler)) => {
                let mut sampled = sampler.sample_excluding(csr, seeds.nodes, key, excluded, batch);
                if self.form.is_list && sampled.as_ref().is_err_and(SampleError::is_repeated_seed) {
                    let (distinct, row_of) = distinct(seeds.nodes);
                    sampled = sampler.sample_excluding(csr, &distinct, key, excluded, batch);
                    rows = Some(row_of);
                }
                sampled?;
            }
            Drawing::Plain(csr, Method::Layers(sampler)) => sampler.sample_into(csr, seeds.nodes, key, batch)?,
            Drawing::Plain(csr, Method::Subgraphs(sampler)) => sampler.sample_into(csr, key, subgraph)?,
            Drawing::Timed(edges, sampler) => rows = sample_timed(sampler, edges, seeds, key, arrays)?,
        }
        arrays.n_seeds = seeds.nodes.len();
        self.list(rows.as_deref(), arrays)
    }

    /// Makes what Python reads of a sampled batch.
    fn list(&self, rows: Option<&[u32]>, arrays: &mut Arrays) -> Result<(), SampleError> {
        let Arrays { batch: timed, trees, subgraph, wide, narrow, edge_ids, blocks, weights, n_seeds, .. } = arrays;
        let batch = &timed.blocks;
        edge_ids.clear();
        weights.clear();
        trees.clear();
        if self.has_trees() {
            trees.extend(timed.trees.iter().map(|&tree| i64::from(tree)));
        }
        if !self.form.is_list {
            blocks.resize_with(batch.blocks.len(), BlockArrays::default);
            blocks.iter_mut().zip(&batch.blocks).for_each(|(arrays, block)| self.fill(arrays, block));
            return Ok(());
        }
        let block = match &self.drawing {
            Drawing::Plain(_, Method::Subgraphs(_)) => {
                *n_seeds = subgraph.nodes().len();
                if self.form.wide {
                    wide.fill_subgraph(subgraph);
                } else {
                    narrow.fill_subgraph(subgraph);
                }
                &subgraph.block
            }
            _ => {
                if self.form.wide {
                    wide.fill(batch, Expand::Once, rows)?;
                } else {
                    narrow.fill(batch, Expand::Once, rows)?;
                }
                &batch.blocks[0]
            }
        };
        let edge_of = if self.form.wide { &wide.edge_of } else { &narrow.edge_of };
        let name = |position: u64| self.names.as_ref().map_or(position.cast_signed(), |names| names[position as usize]);
        if rows.is_none() {
            weights.extend_from_slice(&block.weights);
            // Positions without names are read where they are.
            edge_ids.extend(self.names.iter().flat_map(|_| &block.edge_ids).map(|&position| name(position)));
        } else {
            weights.extend(edge_of.iter().filter_map(|&edge| block.weights.get(edge as usize)));
            edge_ids.extend(edge_of.iter().filter_map(|&edge| block.edge_ids.get(edge as usize)).map(|&at| name(at)));
        }
        Ok(())
    }

    /// Writes the arrays of a block.
    pub fn fill(&self, arrays: &mut BlockArrays, block: &Block) {
        let BlockArrays { indptr, indices, edge_ids } = arrays;
        indptr.clear();
        indices.clear();
        edge_ids.clear();
        if self.form.wide {
            indices.extend(block.indices.iter().map(|&id| i64::from(id)));
        } else {
            indptr.extend(block.indptr.iter().map(|&offset| offset as i32));
        }
        match &self.names {
            Some(names) => edge_ids.extend(block.edge_ids.iter().map(|&position| names[position as usize])),
            None => edge_ids.extend(block.edge_ids.iter().map(|&position| position.cast_signed())),
        }
    }

    /// Brings the feature rows of the nodes of a batch, in the order of `n_id`.
    pub fn gather(&self, features: &Features, arrays: &mut Arrays) -> Result<(), SampleError> {
        let Arrays { batch: TimedBatch { blocks: batch, .. }, subgraph, wide, narrow, x, .. } = arrays;
        let sampled = if batch.blocks.is_empty() { subgraph.nodes() } else { batch.inputs() };
        let n_listed = if self.form.wide { wide.nodes.len() } else { narrow.nodes.len() };
        let listed: Vec<NodeId>;
        let nodes = if self.form.is_list && n_listed != sampled.len() {
            // Seeds are listed repeatedly.
            listed = match self.form.wide {
                true => wide.nodes.iter().map(|&id| id as NodeId).collect(),
                false => narrow.nodes.iter().map(|&id| id.cast_unsigned()).collect(),
            };
            &listed
        } else {
            sampled
        };
        x.resize(nodes.len() * features.width(), 0.0);
        features.gather(nodes, x).map_err(|error| SampleError::invalid(error.to_string()))
    }
}

/// Samples the neighbors of seeds in time. Returns the destination of each seed, unless they are the first ones in order.
fn sample_timed(
    sampler: &TimedSampler,
    edges: &TimedRows,
    Seeds { nodes, times }: Seeds<'_>,
    key: DrawKey,
    Arrays { batch, timed_seeds, .. }: &mut Arrays,
) -> Result<Option<Vec<u32>>, SampleError> {
    timed_seeds.clear();
    timed_seeds.extend(nodes.iter().zip(times).map(|(&node, &time)| TimedSeed { node, time }));
    sampler.sample_into(edges, timed_seeds, key, batch)?;
    let is_in_order = (0..).zip(&batch.seed_rows).all(|(at, &row)| at == row);
    Ok((!is_in_order).then(|| batch.seed_rows.clone()))
}

/// Seeds without repeats, in the order of first sight, and the place among them of each listed one.
fn distinct(seeds: &[NodeId]) -> (Vec<NodeId>, Vec<u32>) {
    let (mut distinct, mut place_of) = (Vec::new(), std::collections::HashMap::new());
    let place = |&seed: &NodeId| {
        *place_of.entry(seed).or_insert_with(|| {
            distinct.push(seed);
            distinct.len() as u32 - 1
        })
    };
    let rows = seeds.iter().map(place).collect();
    (distinct, rows)
}
