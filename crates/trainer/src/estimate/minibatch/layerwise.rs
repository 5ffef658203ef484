//! [`LayerPlan`]: symbolic layer-wise inference.

use std::sync::Arc;

use girih_compute::prelude::*;
use girih_compute::{Dtype, Shape, Symbolic, SymbolicMatrix};

use super::memory::{ARRIVING, LISTED};
use crate::TrainError;
use crate::estimate::sizes::DataSizes;
use crate::layers::{FeatureInput, Inputs, LayerGraphs};
use crate::minibatch::NODES_AT_ONCE;
use crate::models::{InputSpec, Layers};
use crate::tape::{BlockGraph, Graph, Mode, Params, Pool, Tape};

/// Symbolic layer-wise inference. Each layer computes a chunk of nodes at a time, whose neighbors are all distinct.
/// The memory is that of the nodes with most neighbors, which an order by degree puts in one chunk. The time is that
/// of nodes with an average number of neighbors.
pub(crate) struct LayerPlan<'m> {
    /// Layers of the network.
    pub(crate) layers: &'m dyn Layers<Symbolic>,
    /// Inputs that the network reads.
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
    /// Seconds of all layers.
    pub(crate) seconds: f64,
    /// Peak bytes of host memory: the inputs and outputs of one layer.
    pub(crate) host_bytes: u64,
}

/// Rows of the previous layer, or features, that a layer reads.
#[derive(Clone, Copy)]
struct SourceRows<'r> {
    /// Rows of all nodes, if the device has them.
    all: Option<&'r Arc<SymbolicMatrix>>,
    /// Number of columns of gathered rows, and their type.
    stored: (usize, Dtype),
    /// Stored values of all nodes, if the rows are sparse.
    nnz: Option<usize>,
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
                let sources = SourceRows { all: read.as_ref(), stored, nnz };
                let inputs = self.inputs(symbolic, data, (n_at_once, n_entries), sources);
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

    /// Inputs of a layer for `n` nodes with `n_entries` entries. The layer reads rows of all nodes that the device
    /// has, or gathered rows.
    fn inputs(
        &self,
        symbolic: &Symbolic,
        data: &DataSizes,
        (n, n_entries): (usize, usize),
        SourceRows { all, stored: (n_columns, dtype), nnz }: SourceRows<'_>,
    ) -> Inputs<Symbolic> {
        let n_sources = (n + n_entries).min(data.n_nodes);
        let all = all.filter(|_| self.input_spec.hops > 0);
        let matrix = symbolic.sparse(
            Shape::new(n, if all.is_some() { data.n_nodes } else { n_sources }),
            n_entries,
            true,
            false,
        );
        let in_place = all.map(|_| symbolic.ids(n));
        let features = match (all, nnz) {
            (Some(all), _) => FeatureInput::Dense(Arc::clone(all)),
            (None, Some(nnz)) => {
                let nnz = (nnz as u128 * n_sources as u128).div_ceil(data.n_nodes.max(1) as u128) as usize;
                FeatureInput::Sparse {
                    matrix: symbolic.sparse(Shape::new(n_sources, n_columns), nnz, false, false),
                    values: Some(symbolic.matrix(Shape::new(nnz, 1), Dtype::F32)),
                    first_value: 0,
                }
            }
            (None, None) => FeatureInput::dense(symbolic.matrix(Shape::new(n_sources, n_columns), dtype)),
        };
        let graphs = LayerGraphs::Shared(Graph::Block(BlockGraph { matrix, n_destinations: n, in_place, edges: None }));
        Inputs { graphs, features: Some(features), propagated: None, n_nodes: n_sources, relations: None, ranks: None }
    }
}
