//! [`BatchPlan`]: symbolic form of the largest possible batch. [`LayerPlan`]: symbolic layer-wise inference.

use std::sync::Arc;

use girih_compute::{Backend, Dtype, Shape, Symbolic, SymbolicMatrix, SymbolicSparse};
use girih_sampling::Neighbors;
use girih_tiers::HostReads;

use super::layerwise::NODES_AT_ONCE;
use super::session::{reads_in_place, sampled_by_device, summed};
use crate::TrainError;
use crate::batching::{BatchConfig, BatchKind, DEFAULT_BATCH_SIZE};
use crate::config::TrainConfig;
use crate::distributed::GraphPlacement;
use crate::graph::{BlockGraph, Graph};
use crate::inputs::{FeatureInput, InputSpec, Inputs, LayerGraphs};
use crate::links::LinkSizes;
use crate::models::Layers as NetworkLayers;
use crate::params::Params;
use crate::plan::DataSizes;
use crate::tape::{Mode, Pool, Tape};

/// Largest cluster, in percent of the mean. METIS allows 103; small clusters are rounded to whole nodes.
const CLUSTER_SLACK_PERCENT: usize = 110;
/// Number of batches whose host rows arrive on a device at the same time.
const ARRIVING: usize = 2;
/// 32-bit words for each row of a batch that locate its source: an id, a position, and an address.
const LISTED: usize = 4;

/// Upper bounds on the sizes of a batch, in which every draw finds another node until all are there. Only batches of
/// very uneven clusters can exceed them.
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
    /// 32-bit words for the graph to sample from: neighbours, offsets, and the index of cached rows.
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
    AtMost,
    /// These numbers of rows.
    These(RowsOnDevice),
    /// No rows and no index of them.
    Elsewhere,
}

/// Rows on a device, of those that a [`CacheConfig`](super::CacheConfig) places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsOnDevice {
    /// Number of rows of features.
    pub features: usize,
    /// Number of neighbours, in rows of the adjacency.
    pub neighbors: usize,
}

enum Layers {
    /// Shape and number of entries of each block, from the inputs on.
    Blocks(Vec<(Shape, usize)>),
    /// Numbers of nodes and edges of a subgraph that all layers share.
    Subgraph(usize, usize),
}

impl Layers {
    /// Number of feature rows that a batch reads.
    fn n_inputs(&self) -> usize {
        match self {
            Self::Blocks(layers) => layers[0].0.cols,
            &Self::Subgraph(n_nodes, _) => n_nodes,
        }
    }

    /// 32-bit words of the rows of a batch, with `row_bytes` each, and of its blocks. Buffers that are reused for
    /// batches of different sizes take a sixteenth more.
    fn words_of_batch(&self, row_bytes: usize) -> usize {
        let rows = (self.n_inputs() * row_bytes).div_ceil(size_of::<f32>());
        let blocks = match self {
            Self::Blocks(layers) => layers.iter().map(|&(shape, n_entries)| 2 * (n_entries + shape.rows)).sum(),
            &Self::Subgraph(n_nodes, n_edges) => 2 * (n_edges + 2 * n_nodes),
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
            return Self::new(config, (whole, PlannedRows::AtMost), input_spec, (None, false));
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
            words_of_topology(config, whole, PlannedRows::AtMost)
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
        let ids = |n: usize| symbolic.matrix(Shape::new(n, 1), Dtype::F32);
        let mut matrices = self.matrices(symbolic);
        let (graphs, n_nodes) = match &self.layers {
            Layers::Blocks(layers) => {
                let block = |(at, matrix): (usize, SymbolicSparse)| {
                    let n_destinations = layers[at].0.rows;
                    let in_place = (self.in_place && at == 0).then(|| ids(n_destinations));
                    Graph::Block(BlockGraph { matrix, n_destinations, in_place })
                };
                (LayerGraphs::Blocks(matrices.into_iter().enumerate().map(block).collect()), layers[0].0.cols)
            }
            &Layers::Subgraph(n_nodes, _) => (LayerGraphs::Shared(Graph::Whole(matrices.remove(0))), n_nodes),
        };
        if let (Some(reads_destinations), Layers::Blocks(layers)) =
            (self.sums.filter(|_| !is_main_memory), &self.layers)
        {
            let rows = || symbolic.matrix(Shape::new(layers[0].0.rows, data.n_features), precision);
            let features = reads_destinations.then(|| FeatureInput::dense(rows()));
            return Inputs { graphs, features, propagated: Some(rows()), n_nodes, ranks: None };
        }
        let features = match (&whole.features, data.feature_nnz) {
            (Some(FeatureInput::Dense(all)), _) if self.in_place => FeatureInput::Dense(Arc::clone(all)),
            (Some(FeatureInput::Sparse { .. }), Some(nnz)) => FeatureInput::Sparse {
                matrix: symbolic.sparse(Shape::new(n_nodes, data.n_features), nnz, false, false),
                values: symbolic.matrix(Shape::new(nnz, 1), Dtype::F32),
                first_value: 0,
            },
            (&Some(FeatureInput::Learned(param)), _) => {
                FeatureInput::LearnedRows { param, ids: ids(n_nodes), n_ids: n_nodes }
            }
            _ => FeatureInput::dense(symbolic.matrix(Shape::new(n_nodes, data.n_features), precision)),
        };
        Inputs { graphs, features: Some(features), propagated: None, n_nodes, ranks: None }
    }
}

/// Symbolic layer-wise inference. Each layer computes a chunk of nodes at a time, whose neighbours are all distinct.
/// The memory is that of the nodes with most neighbours, which an order by degree puts in one chunk. The time is that
/// of nodes with an average number of neighbours.
pub(crate) struct LayerPlan<'m> {
    pub(crate) layers: &'m dyn NetworkLayers<Symbolic>,
    pub(crate) input_spec: InputSpec,
    /// Whether rows of hidden layers are kept in host memory.
    pub(crate) keeps_on_host: bool,
    /// Whether the device computes in host memory.
    pub(crate) is_main_memory: bool,
    /// Whether rows of the next chunk arrive during the computation of one.
    pub(crate) is_ahead: bool,
}

/// Costs of layer-wise inference.
#[derive(Clone, Copy, Default)]
pub(crate) struct LayerCosts {
    pub(crate) seconds: f64,
    /// Peak bytes of host memory: the inputs and outputs of one layer.
    pub(crate) host_bytes: u64,
}

impl LayerPlan<'_> {
    /// Allocates the device memory of the inference, and returns its other costs.
    ///
    /// # Errors
    /// When the symbolic backend refuses shapes.
    pub(crate) fn evaluate(
        &self,
        (symbolic, params, pool): (&Symbolic, &Params<Symbolic>, &mut Pool<Symbolic>),
        data: &DataSizes,
        whole: &Inputs<Symbolic>,
    ) -> Result<LayerCosts, TrainError> {
        let (n_layers, mut costs, mut read_bytes) = (self.layers.n_layers(), LayerCosts::default(), 0);
        let mut read = match &whole.features {
            Some(FeatureInput::Dense(all)) => Some(Arc::clone(all)),
            _ => None,
        };
        let mut stored = (data.n_features, symbolic.activations());
        for layer in 0..n_layers {
            let n_rows = if layer + 1 == n_layers { data.n_scored } else { data.n_nodes };
            let n_at_once = n_rows.min(NODES_AT_ONCE);
            let nnz = data.feature_nnz.filter(|_| layer == 0 && read.is_none());
            let mean = n_at_once * data.n_edges.div_ceil(data.n_nodes.max(1));
            let most = mean.max(data.n_edges_at_once.min(data.n_edges));
            let mut computed = (0, symbolic.activations());
            let (mut of_chunk, mut kept) = (0.0, None);
            for (n_edges, are_most) in [(mean, false), (most, true)] {
                let n_entries = self.n_entries(n_at_once, n_edges);
                let inputs = self.inputs(symbolic, data, (n_at_once, n_entries), (read.as_ref(), stored, nnz));
                let is_far = !self.is_main_memory && read.is_none() && nnz.is_none();
                let n_sources = (n_at_once + n_entries).min(data.n_nodes);
                let words = |n: usize| symbolic.matrix(Shape::new(n, 1), Dtype::F32);
                // Positions of the rows that the layer reads, and of those that it writes.
                let _places = is_far.then(|| words(2 * data.n_nodes));
                // Rows that arrive, and those of the previous chunk, some of which are reused.
                let rows = || symbolic.matrix(Shape::new(n_sources, stored.0), stored.1);
                let _arriving =
                    (self.is_ahead && is_far).then(|| ([rows(), rows()], words(ARRIVING * LISTED * n_sources)));
                let _sampler = self.sampler(symbolic, data, (n_at_once, n_entries));
                let begun = symbolic.cost().seconds;
                let mut tape = Tape::new(symbolic, params, pool, Mode::Evaluate);
                let rows = self.layers.layer(&mut tape, &inputs, layer)?;
                computed = (tape.shape(rows).cols, symbolic.dtype(tape.value(rows)));
                drop(tape);
                if !are_most {
                    of_chunk = symbolic.cost().seconds - begun;
                } else if !self.keeps_on_host {
                    // Allocated for the first chunk, while all its buffers are in use.
                    kept = Some(Arc::new(symbolic.matrix(Shape::new(n_rows, computed.0), computed.1)));
                }
                pool.drop_unused();
            }
            stored = computed;
            costs.seconds += of_chunk * n_rows as f64 / n_at_once.max(1) as f64;
            read = kept;
            let is_kept = self.keeps_on_host && layer + 1 < n_layers;
            let left_bytes = if is_kept { (n_rows * symbolic.stride(computed.0, computed.1)) as u64 } else { 0 };
            costs.host_bytes = costs.host_bytes.max(read_bytes + left_bytes);
            read_bytes = left_bytes;
        }
        Ok(costs)
    }

    /// Number of entries of the rows of `n` nodes with `n_edges` edges.
    fn n_entries(&self, n: usize, n_edges: usize) -> usize {
        n_edges + if self.input_spec.graph.is_some_and(|adjacency| adjacency.self_loops) { n } else { 0 }
    }

    /// Buffers that make rows for `n` nodes with `n_entries` entries. In main memory these are draws and rows, which
    /// are copied. A device that samples also has a position and two bits for each node.
    fn sampler(&self, symbolic: &Symbolic, data: &DataSizes, (n, n_entries): (usize, usize)) -> SymbolicMatrix {
        let tables = data.n_nodes + data.n_nodes.div_ceil(16);
        let words = if self.is_main_memory { 3 * n_entries } else { 2 * n_entries + n + tables };
        symbolic.matrix(Shape::new(words, 1), Dtype::F32)
    }

    /// Inputs of a layer for `n` nodes with `n_entries` entries. Either rows of all nodes that the device has, or
    /// gathered rows with `n_columns` columns; `nnz` are their stored values if they are sparse.
    fn inputs(
        &self,
        symbolic: &Symbolic,
        data: &DataSizes,
        (n, n_entries): (usize, usize),
        (read, (n_columns, dtype), nnz): (Option<&Arc<SymbolicMatrix>>, (usize, Dtype), Option<usize>),
    ) -> Inputs<Symbolic> {
        let n_sources = (n + n_entries).min(data.n_nodes);
        let all = read.filter(|_| self.input_spec.hops > 0);
        let matrix = symbolic.sparse(
            Shape::new(n, if all.is_some() { data.n_nodes } else { n_sources }),
            n_entries,
            true,
            false,
        );
        let in_place = all.map(|_| symbolic.matrix(Shape::new(n, 1), Dtype::F32));
        let features = match (all, nnz) {
            (Some(all), _) => FeatureInput::Dense(Arc::clone(all)),
            (None, Some(nnz)) => {
                let nnz = (nnz as u128 * n_sources as u128).div_ceil(data.n_nodes.max(1) as u128) as usize;
                FeatureInput::Sparse {
                    matrix: symbolic.sparse(Shape::new(n_sources, n_columns), nnz, false, false),
                    values: symbolic.matrix(Shape::new(nnz, 1), Dtype::F32),
                    first_value: 0,
                }
            }
            (None, None) => FeatureInput::dense(symbolic.matrix(Shape::new(n_sources, n_columns), dtype)),
        };
        let graphs = LayerGraphs::Shared(Graph::Block(BlockGraph { matrix, n_destinations: n, in_place }));
        Inputs { graphs, features: Some(features), propagated: None, n_nodes: n_sources, ranks: None }
    }
}

/// 32-bit words on a device that samples, for features that are not a matrix.
fn words_of_features(config: &TrainConfig, data: &DataSizes, rows: PlannedRows) -> usize {
    let words = |n_rows: usize, bytes: usize| (n_rows * bytes).div_ceil(size_of::<f32>());
    match (config.tiers.features, data.code_bytes, rows) {
        (_, None, _) | (Some(_), _, PlannedRows::Elsewhere) => 0,
        (Some(_), Some(bytes), PlannedRows::These(rows)) => words_of_list(data) + words(rows.features, bytes),
        (Some(shares), Some(bytes), PlannedRows::AtMost) => {
            let (on_every_card, on_one_card) = shares.of_nodes(data.n_nodes);
            words_of_list(data) + words(on_every_card + on_one_card, bytes)
        }
        (None, Some(bytes), _) => words(data.n_nodes, bytes),
    }
}

/// Whether a device has a position for each node, to reuse cached rows of the previous batch. Not for code books,
/// whose rows are decoded by then.
fn has_places(config: &TrainConfig, data: &DataSizes) -> bool {
    config.tiers.features.is_some_and(|shares| !shares.are_all()) && !data.has_code_book
}

/// 32-bit words for each row of a batch, to reuse rows: the previous batch, which stays until the rows of this one
/// have arrived, and indices.
fn words_of_kept(config: &TrainConfig, data: &DataSizes) -> usize {
    if !has_places(config, data) || config.batch.prefetch == 0 {
        return 0;
    }
    let words = (data.n_features * config.precision.n_bytes()).div_ceil(size_of::<f32>());
    words + words.div_ceil(16) + ARRIVING * LISTED
}

/// 32-bit words for each row of a batch, for indices alone, which say whether a row is on the host or on a GPU. Codes
/// need them, too, for any shares.
fn words_of_lists(config: &TrainConfig) -> usize {
    if config.tiers.features.is_some_and(|shares| !shares.are_all()) { ARRIVING * LISTED } else { 0 }
}

/// 32-bit words for each row of a batch whose rows a cache places: buffers for codes that are summed, and for rows
/// that host threads stage. A staged row is copied to its place if other rows come from devices.
fn words_of_arriving(config: &TrainConfig, data: &DataSizes, makes_sums: bool) -> usize {
    let Some(shares) = config.tiers.features else { return 0 };
    let bytes = data.code_bytes.unwrap_or(data.n_features * config.precision.n_bytes());
    let words = bytes.div_ceil(size_of::<f32>());
    let stored = if makes_sums { ARRIVING * words } else { 0 };
    // The choice between the two depends on the host.
    if config.tiers.host_reads == HostReads::InPlace || shares.are_all() {
        return stored;
    }
    stored + ARRIVING * (words + 1)
}

/// 32-bit words for the graph to sample from, without weights.
fn words_of_topology(config: &TrainConfig, data: &DataSizes, rows: PlannedRows) -> usize {
    let list = if config.tiers.topology.is_some() { words_of_list(data) } else { 0 };
    match (config.tiers.topology, rows) {
        (Some(_), PlannedRows::Elsewhere) => 0,
        (Some(_), PlannedRows::These(rows)) => words_of_offsets(data) + list + rows.neighbors,
        (Some(_), PlannedRows::AtMost) | (None, _) => words_of_offsets(data) + list + data.n_edges,
    }
}

fn words_of_offsets(data: &DataSizes) -> usize {
    2 * (data.n_nodes + 1)
}

/// 32-bit words for the address of a row of each node.
fn words_of_list(data: &DataSizes) -> usize {
    2 * data.n_nodes
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
