//! [`HostBatch`]: a mini-batch on the host.

use std::ops::Range;

use girih_graph_format::{Csr, FormatError, Matrix, NodeId};
use girih_sampling::{Block, Columns, DrawKey, LoaderOptions, MiniBatch as Sampled};

use super::neighborhoods::Neighborhoods;
use crate::TrainError;
use crate::layers::HostLayer;
use crate::models::Adjacency;
use crate::tape::EncodedInput;
use crate::tasks::links::PairList;

/// Mini-batch on the host: matrices, and global node ids.
pub struct HostBatch {
    /// Adjacency of each layer.
    pub graphs: HostGraphs,
    /// Nodes whose features the first layer reads; empty if it reads them in place.
    pub inputs: Vec<NodeId>,
    /// Features of the inputs, where ranks hold patches.
    pub rows: Option<BatchRows>,
    /// Nodes with logits. Where ranks hold patches, ids count from the rank's first node.
    pub outputs: Vec<NodeId>,
    /// Targets of the loss.
    pub loss: HostLoss,
    /// Number of nodes or pairs in the loss of the whole batch, on all ranks.
    pub n_loss: usize,
}

impl HostBatch {
    /// Number of links among the pairs of the loss, which come first; 0 for a batch of nodes.
    pub(crate) fn n_links(&self) -> usize {
        match &self.loss {
            HostLoss::Pairs(pairs) => pairs.n_links,
            HostLoss::Rows { .. } => 0,
        }
    }
}

/// Targets of the loss of a batch.
pub enum HostLoss {
    /// Some of the outputs.
    Rows {
        /// Positions in `outputs`.
        rows: Vec<u32>,
        /// Loss weight of each row, with a mean of one over many batches; `None` for equal weights.
        weights: Option<Vec<f32>>,
    },
    /// Pairs of positions in `outputs`.
    Pairs(PairList),
}

/// Adjacency of each layer, on the host.
pub enum HostGraphs {
    /// Rows of `Â`, for each layer.
    Blocks(Vec<HostBlock>),
    /// Rows of `Â` among the nodes of a subgraph.
    Weighted(Csr),
    /// Graph of its own, and the normalisation that it still needs.
    Plain(Csr, Adjacency),
    /// Relations of a typed graph.
    Relations {
        /// Relations of each layer, from the inputs on.
        layers: Vec<HostLayer>,
        /// Nodes of each type that the first layer reads, by ids inside the type.
        nodes: Vec<Vec<NodeId>>,
    },
}

/// Rows of `Â` for one layer.
pub struct HostBlock {
    /// Rows, with weights as values.
    pub rows: Csr,
    /// Nodes of the destinations, if columns are global ids. Otherwise `None`: the destinations are the first
    /// columns.
    pub in_place: Option<Vec<NodeId>>,
    /// Edges of the block one by one, if a layer makes a message of each.
    pub edges: Option<HostEdges>,
}

/// Edges of a block with their features, in the order of its rows.
pub struct HostEdges {
    /// Source of each edge, as a column of the block.
    pub sources: Vec<NodeId>,
    /// Features of the edges, `n_edges × width`.
    pub features: Matrix,
    /// Weights by which messages are summed, `n_destinations × n_edges`.
    pub sums: Csr,
}

impl HostBlock {
    /// Rows of `Â` for a block. `brought` are weights of its edges that came from other ranks.
    pub(crate) fn new(
        neighborhoods: &Neighborhoods,
        block: &Block,
        brought: Option<&[f32]>,
    ) -> Result<Self, FormatError> {
        let in_place = (block.columns == Columns::Global).then(|| block.destinations().to_vec());
        let rows = match brought {
            None => neighborhoods.rows(block)?,
            Some(weights) => neighborhoods.rows_weighted(block, |edge| weights[edge])?,
        };
        Ok(Self { rows, in_place, edges: None })
    }
}

/// Rows of a matrix, in the order of `rows`.
pub(crate) fn rows_of(csr: &Csr, rows: &[NodeId]) -> Result<Csr, FormatError> {
    let mut indptr = Vec::with_capacity(rows.len() + 1);
    indptr.push(0u64);
    let mut indices = Vec::new();
    let mut values = csr.values().map(|_| Vec::new());
    for &row in rows {
        let range = csr.row_range(row as usize);
        indices.extend_from_slice(&csr.indices()[range.clone()]);
        if let (Some(picked), Some(all)) = (&mut values, csr.values()) {
            picked.extend_from_slice(&all[range]);
        }
        indptr.push(indices.len() as u64);
    }
    Csr::new(rows.len(), csr.n_cols(), indptr, indices, values.map(Into::into))
}

/// Features of the inputs of a batch, row by row.
pub enum BatchRows {
    /// Dense rows.
    Dense(Matrix),
    /// Compressed rows.
    Encoded(EncodedInput),
}

/// Source of a rank's share of each batch, which all ranks make together.
pub(crate) trait PatchSource: Send + Sync {
    /// Ids of the nodes of the rank's patch.
    fn own(&self) -> Range<NodeId>;

    /// Options by which seeds are divided into batches.
    fn options(&self) -> LoaderOptions;

    /// Samples blocks for some seeds. If edges have weights on other ranks, also returns the weights of all edges,
    /// block after block. All ranks call it together, batch after batch.
    ///
    /// # Errors
    /// When a rank fails.
    fn sample(&self, seeds: &[NodeId], key: DrawKey) -> Result<(Sampled, Option<Vec<f32>>), TrainError>;

    /// Fetches the features of the inputs of a batch; all ranks call it together, batch after batch.
    ///
    /// # Errors
    /// When a rank fails.
    fn load(&self, batch: &Sampled) -> Result<BatchRows, TrainError>;
}
