//! [`BatchPlan`]: symbolic form of the largest possible batch. [`LayerPlan`]: symbolic layer-wise inference.

mod layerwise;
mod memory;
mod relations;

use std::sync::Arc;

use girih_compute::{Dtype, Shape, Symbolic, SymbolicMatrix, SymbolicSparse};
use girih_sampling::Neighbors;

use self::memory::{
    has_places, words_of_arriving, words_of_features, words_of_kept, words_of_lists, words_of_offsets,
    words_of_topology,
};
use self::relations::{TypedLayers, rows_of};
use super::links::LinkSizes;
use super::sizes::DataSizes;
use crate::config::{BatchConfig, BatchKind, DEFAULT_BATCH_SIZE, GraphPlacement, TrainConfig, sampled_by_device};
use crate::layers::{FeatureInput, Inputs, LayerGraphs, RelationSpec};
use crate::minibatch::{reads_in_place, summed};
use crate::models::InputSpec;
use crate::tape::{BlockGraph, Graph};

pub(crate) use self::layerwise::{LayerCosts, LayerPlan};

/// Largest cluster, in percent of the mean. METIS allows 103; small clusters are rounded to whole nodes.
const CLUSTER_SLACK_PERCENT: usize = 110;

/// Upper bounds on the sizes of a batch, in which every draw finds another node until all are there. Only batches of
/// very uneven clusters can exceed them, and of typed graphs with very uneven degrees.
pub(crate) struct BatchPlan {
    layers: Layers,
    /// Number of steps of an epoch.
    pub(crate) n_steps: usize,
    self_loops: bool,
    in_place: bool,
    /// Whether a device with its own memory samples by itself.
    by_device: bool,
    /// Set if such a device computes sums of the first layer from codes. `Some(true)` if it also reads rows of
    /// destinations.
    sums: Option<bool>,
    /// 32-bit words on a device for features that are not a matrix: codes, or a cache of rows.
    features: usize,
    /// 32-bit words for the graph to sample from: neighbors, offsets, and the index of cached rows.
    topology: usize,
    /// 32-bit words for the batch that arrives while a step uses the previous one.
    arriving: usize,
    /// Whether scores are computed layer by layer, for which devices need the graph in any case.
    by_layers: bool,
}

/// Rows on the device, of those that a cache places.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlannedRows {
    /// Upper bound for the shares of the configuration: all rows of the adjacency.
    UpperBound,
    /// These numbers of rows.
    These(RowsOnDevice),
    /// No rows and no index of them.
    Elsewhere,
}

/// Rows on a device, of those that a [`CacheConfig`](crate::config::CacheConfig) places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsOnDevice {
    /// Number of rows of features.
    pub features: usize,
    /// Number of neighbors, in rows of the adjacency.
    pub neighbors: usize,
}

/// Sizes of the adjacencies of a batch.
enum Layers {
    /// Shape and number of entries of each block, from the inputs on.
    Blocks(Vec<(Shape, usize)>),
    /// Numbers of nodes and edges of a subgraph that all layers share.
    Subgraph(usize, usize),
    /// Relations of a typed graph.
    Relations(TypedLayers),
}

impl Layers {
    /// Number of feature rows that a batch reads.
    fn n_inputs(&self) -> usize {
        match self {
            Self::Blocks(layers) => layers[0].0.cols,
            &Self::Subgraph(n_nodes, _) => n_nodes,
            Self::Relations(layers) => layers.n_inputs(),
        }
    }

    /// 32-bit words of the rows of a batch, with `row_bytes` each, and of its blocks. Buffers that are reused for
    /// batches of different sizes take a sixteenth more.
    fn words_of_batch(&self, row_bytes: usize) -> usize {
        let rows = (self.n_inputs() * row_bytes).div_ceil(size_of::<f32>());
        let blocks = match self {
            Self::Blocks(layers) => layers.iter().map(|&(shape, n_entries)| 2 * (n_entries + shape.rows)).sum(),
            &Self::Subgraph(n_nodes, n_edges) => 2 * (n_edges + 2 * n_nodes),
            Self::Relations(_) => unreachable!("no device samples them"),
        };
        rows + rows / 16 + blocks
    }
}

impl BatchPlan {
    /// Plan of valid settings; `None` for full batches.
    pub(crate) fn new(
        config: &TrainConfig,
        (data, rows): (&DataSizes, PlannedRows),
        input_spec: &InputSpec,
        (links, by_layers): (Option<&LinkSizes>, bool),
    ) -> Option<Self> {
        if let (Some(spec), BatchKind::Neighbor) = (&input_spec.relations, config.batch.kind) {
            return Self::of_relations(config, data, spec);
        }
        let self_loops = input_spec.graph.is_some_and(|adjacency| adjacency.self_loops);
        let batch_size = config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
        let (layers, n_steps) = match config.batch.kind {
            BatchKind::Full => return None,
            BatchKind::Neighbor | BatchKind::Layer => {
                let (n_seeds, n_items) = match links {
                    // Both ends of each pair.
                    Some(links) => ((2 * links.step_pairs).min(data.n_nodes), links.train),
                    None => (batch_size.min(data.n_train), data.n_train),
                };
                (Layers::Blocks(blocks(config, data, n_seeds)?), n_items.div_ceil(batch_size))
            }
            BatchKind::Cluster => {
                let (n_clusters, per_batch) = config.batch.n_clusters(data.n_nodes);
                let n_nodes = data.n_nodes.div_ceil(n_clusters) * per_batch * CLUSTER_SLACK_PERCENT / 100;
                subgraphs(config, (n_nodes, n_clusters.div_ceil(per_batch)), data)
            }
            BatchKind::Saint => {
                let n_nodes = config.batch.saint_nodes(batch_size);
                subgraphs(config, (n_nodes, data.n_nodes.div_ceil(n_nodes)), data)
            }
        };
        let is_learned = config.learns_features();
        let is_dense = data.feature_nnz.is_none() && data.code_bytes.is_none() && !is_learned;
        let in_place = is_dense && reads_in_place(config, input_spec);
        let by_device = data.feature_nnz.is_none() && !is_learned && sampled_by_device(config);
        let features = if by_device { words_of_features(config, data, rows) } else { 0 };
        let sums = summed(config, input_spec).filter(|_| by_device && data.has_code_book);
        let words_of_row =
            words_of_arriving(config, data, sums.is_some()) + words_of_kept(config, data).max(words_of_lists(config));
        let places = if has_places(config, data) { data.n_nodes } else { 0 };
        let features = features + places + layers.n_inputs() * words_of_row;
        let topology = words_of_topology(config, data, rows);
        let loads = by_device && data.code_bytes.is_some() && sums.is_none() && config.batch.prefetch > 0;
        let arriving = if loads { layers.words_of_batch(data.n_features * config.precision.n_bytes()) } else { 0 };
        Some(Self { layers, n_steps, self_loops, in_place, by_device, sums, features, topology, arriving, by_layers })
    }

    /// Plan of batches of a typed graph, which the host samples; `None` where the fan-out is invalid.
    fn of_relations(config: &TrainConfig, data: &DataSizes, spec: &RelationSpec) -> Option<Self> {
        let batch_size = config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
        let layers = Layers::Relations(TypedLayers::new(config, data, spec, batch_size.min(data.n_train))?);
        Some(Self {
            layers,
            n_steps: data.n_train.div_ceil(batch_size),
            self_loops: false,
            in_place: false,
            by_device: false,
            sums: None,
            features: words_of_codes(data, &spec.layers[0].sources),
            topology: 0,
            arriving: 0,
            by_layers: false,
        })
    }

    /// Plan of a rank that holds a patch of features, and of the graph unless it is whole. `own` are the sizes of its
    /// patch of the `whole`. `None` where the fan-out is invalid. The rank is planned as if it owned all seeds of a
    /// batch.
    ///
    /// If its device reads the memory of others, it holds addresses of all rows of graph and features. Otherwise it
    /// has buffers for requests, and for the draws and rows that it sends; all ranks together request at most one
    /// batch. The plan counts both, since the trial at the start tries both.
    pub(crate) fn of_patch(
        config: &TrainConfig,
        (whole, own): (&DataSizes, &DataSizes),
        (n_ranks, layout): (usize, GraphPlacement),
        input_spec: &InputSpec,
    ) -> Option<Self> {
        if config.tiers.features.is_some() {
            // The device caches the hottest rows, and gets others as a single device gets rows of the host.
            return Self::new(config, (whole, PlannedRows::UpperBound), input_spec, (None, false));
        }
        let batch_size = config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
        let blocks = blocks(config, whole, batch_size.min(whole.n_train))?;
        let words = |bytes: usize| bytes.div_ceil(size_of::<f32>());
        let dense = words(whole.n_features * config.precision.n_bytes());
        let (stored, n_inputs) = (whole.code_bytes.map_or(dense, words), blocks[0].0.cols);
        let codes = whole.code_bytes.map_or(0, |bytes| words(own.n_nodes * bytes));
        // Received rows and rows gathered for others, their requests and positions, and the rows of the batch ahead
        // of the step.
        let rows = n_inputs * (2 * stored + 2 * n_ranks + dense);
        let addresses = words(whole.n_nodes * size_of::<u64>());
        let topology = if layout == GraphPlacement::SplitFeatures {
            words_of_topology(config, whole, PlannedRows::UpperBound)
        } else {
            // Slots, requests and offsets of a hop, and its edges here and for others.
            let of_hop = |&(shape, n_edges): &(Shape, usize)| shape.rows * (4 + 3 * n_ranks) + 2 * n_edges;
            let of_hops = blocks.iter().map(of_hop).max().unwrap_or(0);
            words_of_offsets(whole) + own.n_edges + addresses + of_hops
        };
        Some(Self {
            layers: Layers::Blocks(blocks),
            n_steps: whole.n_train.div_ceil(batch_size),
            self_loops: input_spec.graph.is_some_and(|adjacency| adjacency.self_loops),
            in_place: false,
            by_device: whole.feature_nnz.is_none() && sampled_by_device(config),
            sums: None,
            features: codes + rows + addresses,
            topology,
            arriving: 0,
            by_layers: false,
        })
    }

    /// Memory of samplers on the device. In main memory it is a copy of the graph without self loops, if the model
    /// adds them. A device that samples has its own graph, a position and two bits for each node, the largest batch,
    /// and possibly a feature cache.
    pub(crate) fn sampler(
        &self,
        symbolic: &Symbolic,
        data: &DataSizes,
        is_main_memory: bool,
    ) -> Option<SymbolicMatrix> {
        let words = |n: usize| symbolic.matrix(Shape::new(n, 1), Dtype::F32);
        let weights = if data.weighted { data.n_edges } else { 0 };
        if is_main_memory {
            return self.self_loops.then(|| words(data.n_edges + weights + words_of_offsets(data)));
        }
        let (Layers::Blocks(layers), true) = (&self.layers, self.by_device) else {
            let factors = 2 * data.n_nodes;
            let drawn_from = if self.by_layers { self.topology + weights + factors } else { 0 };
            return Some(words(self.features + drawn_from));
        };
        let edges: usize = layers.iter().map(|&(_, n_entries)| n_entries).sum();
        let rows: usize = layers.iter().map(|(shape, _)| shape.rows).sum();
        let batch = edges * if data.weighted { 3 } else { 1 } + layers[0].0.cols + 2 * rows;
        let of_nodes = 3 * data.n_nodes + data.n_nodes.div_ceil(16);
        Some(words(self.topology + weights + of_nodes + batch + self.features + self.arriving))
    }

    /// Batches that are prefetched, and one that is being made.
    pub(crate) fn ahead(&self, symbolic: &Symbolic, n_batches: usize) -> Vec<SymbolicSparse> {
        (0..=n_batches).flat_map(|_| self.matrices(symbolic)).collect()
    }

    /// Matrices of a batch.
    fn matrices(&self, symbolic: &Symbolic) -> Vec<SymbolicSparse> {
        match &self.layers {
            Layers::Blocks(layers) => {
                layers.iter().map(|&(shape, n_entries)| symbolic.sparse(shape, n_entries, true, false)).collect()
            }
            &Layers::Subgraph(n_nodes, n_edges) => {
                vec![symbolic.sparse(Shape::new(n_nodes, n_nodes), n_edges + n_nodes, true, false)]
            }
            Layers::Relations(layers) => layers.matrices(symbolic),
        }
    }

    /// Batch on the device, next to the whole graph.
    pub(crate) fn inputs(
        &self,
        (symbolic, is_main_memory): (&Symbolic, bool),
        data: &DataSizes,
        whole: &Inputs<Symbolic>,
        precision: Dtype,
    ) -> Inputs<Symbolic> {
        if let Layers::Relations(layers) = &self.layers {
            return layers.inputs(symbolic, data, whole, precision);
        }
        let mut matrices = self.matrices(symbolic);
        let (graphs, n_nodes) = match &self.layers {
            Layers::Blocks(layers) => {
                let block = |(at, matrix): (usize, SymbolicSparse)| {
                    let n_destinations = layers[at].0.rows;
                    let in_place = (self.in_place && at == 0).then(|| symbolic.ids(n_destinations));
                    let matrix = if in_place.is_some() { matrix.with_columns(data.n_nodes) } else { matrix };
                    Graph::Block(BlockGraph { matrix, n_destinations, in_place, edges: None })
                };
                (LayerGraphs::Blocks(matrices.into_iter().enumerate().map(block).collect()), layers[0].0.cols)
            }
            &Layers::Subgraph(n_nodes, _) => (LayerGraphs::Shared(Graph::Whole(matrices.remove(0))), n_nodes),
            Layers::Relations(_) => unreachable!("returned above"),
        };
        if let (Some(reads_destinations), Layers::Blocks(layers)) =
            (self.sums.filter(|_| !is_main_memory), &self.layers)
        {
            let rows = || symbolic.matrix(Shape::new(layers[0].0.rows, data.n_features), precision);
            let features = reads_destinations.then(|| FeatureInput::dense(rows()));
            return Inputs { graphs, features, propagated: Some(rows()), n_nodes, relations: None, ranks: None };
        }
        let shape = Shape::new(n_nodes, data.n_features);
        let features = match &whole.features {
            Some(FeatureInput::Dense(all)) if self.in_place => FeatureInput::Dense(Arc::clone(all)),
            Some(features) => rows_of(symbolic, features, (shape, data.feature_nnz), precision),
            None => FeatureInput::dense(symbolic.matrix(shape, precision)),
        };
        Inputs { graphs, features: Some(features), propagated: None, n_nodes, relations: None, ranks: None }
    }
}

/// 32-bit words of the codes of some node types, which devices hold and decode if a code book makes them.
fn words_of_codes(data: &DataSizes, node_types: &[usize]) -> usize {
    if !data.has_code_book {
        return 0;
    }
    let bytes_of = |&of: &usize| data.relations.node_types[of] * data.features_of_type(of).code_bytes.unwrap_or(0);
    node_types.iter().map(bytes_of).sum::<usize>().div_ceil(size_of::<f32>())
}

/// Blocks of a batch, from the inputs on; `None` where the fan-out is invalid.
fn blocks(config: &TrainConfig, data: &DataSizes, n_seeds: usize) -> Option<Vec<(Shape, usize)>> {
    let BatchConfig { kind, .. } = config.batch;
    let fan_out = config.batch.fan_out(config.model.layers).ok()?;
    let mut n_rows = n_seeds;
    let mut blocks = Vec::new();
    for &hop in fan_out.hops() {
        let (found, n_edges) = match hop {
            Neighbors::All => (data.n_nodes, data.n_edges),
            Neighbors::Count(count) if kind == BatchKind::Layer => {
                let found = count as usize;
                (found, n_rows.saturating_mul(n_rows + found))
            }
            Neighbors::Count(count) => {
                let n_draws = n_rows.saturating_mul(count as usize);
                (n_draws, n_draws)
            }
        };
        let n_columns = (n_rows + found).min(data.n_nodes);
        blocks.push((Shape::new(n_rows, n_columns), n_edges.min(data.n_edges) + n_rows));
        n_rows = n_columns;
    }
    blocks.reverse();
    Some(blocks)
}

/// Subgraphs of a step, with at most `n_nodes` nodes each and as many edges as are possible among them. Also returns
/// the number of steps of an epoch of `n_subgraphs` subgraphs.
fn subgraphs(config: &TrainConfig, (n_nodes, n_subgraphs): (usize, usize), data: &DataSizes) -> (Layers, usize) {
    let BatchConfig { kind, subgraphs_per_step: per_step, .. } = config.batch;
    let n_nodes = n_nodes.min(data.n_nodes);
    let n_edges = n_nodes.saturating_mul(n_nodes).min(data.n_edges);
    let of_step = |each: usize, of_graph: usize| {
        let all = each.saturating_mul(per_step.min(n_subgraphs));
        // Clusters have no node in common.
        if kind == BatchKind::Cluster { all.min(of_graph) } else { all }
    };
    let layers = Layers::Subgraph(of_step(n_nodes, data.n_nodes), of_step(n_edges, data.n_edges));
    (layers, n_subgraphs.div_ceil(per_step))
}
