//! [`SplitRows`], [`FetchRows`] and [`PatchRowsOperand`]: feature rows distributed over ranks, each with the rows of
//! its patch.

use std::sync::Arc;

use girih_compress::CompressedFeatures;
use girih_compute::{ComputeError, Dtype, Memory};
use girih_graph_format::NodeId;

/// Feature rows of a rank's own patch, for its device.
pub enum PatchRowsOperand<'a, B: Memory> {
    /// Dense rows, in their storage type.
    Dense(Arc<B::Matrix>),
    /// Codes of a codec that all ranks share, and the storage type of the decoded rows.
    Codes(&'a CompressedFeatures, Dtype),
}

/// Feature rows distributed over the memory of hosts. Each host holds the rows of its rank's patch.
pub struct SplitRows<'a> {
    /// Number of rows on all hosts.
    pub n_rows: usize,
    /// Format of the rows, in memory and in transfers.
    pub stored: StoredAs<'a>,
    /// Exchange that fetches rows of other ranks.
    pub fetch: Box<dyn FetchRows>,
}

/// Format of contiguous rows.
#[derive(Clone, Copy)]
pub enum StoredAs<'a> {
    /// Dense rows: values per row, and their type.
    Dense(usize, Dtype),
    /// Codes of the codec of these features, which all ranks share, and the storage type of the decoded rows.
    Codes(&'a CompressedFeatures, Dtype),
}

/// Exchange that fetches rows by global id from the ranks that hold them.
pub trait FetchRows: Send {
    /// Fetches the rows of `nodes`, in this order. All ranks call it together; `nodes` may be empty.
    ///
    /// # Errors
    /// When a node does not exist, or a rank fails.
    fn fetch(&mut self, nodes: &[NodeId]) -> Result<Box<dyn FetchedRows + '_>, ComputeError>;
}

/// Fetched rows, in their stored format.
pub trait FetchedRows: Sync {
    /// Bytes of the row of the node at position `at` of the request.
    ///
    /// # Panics
    /// When the request had no more than `at` nodes.
    fn row(&self, at: usize) -> &[u8];
}
