//! [`FeatureStore`], [`RowSums`], [`HostFeatures`], [`SplitRows`] and [`WritableStore`]: feature rows that a device reads by id,
//! independent of their place and encoding.

use std::sync::Arc;

use girih_compress::CompressedFeatures;
use girih_graph_format::{Matrix, NodeId};

use crate::{ComputeError, Dtype, Memory, Shape};

/// Reader of feature rows: gathers rows by id into a matrix on the device.
pub trait FeatureStore<B: Memory>: Send + Sync {
    /// Gathers rows: row `i` of `out` (`ids.len() × width`) becomes row `ids[i]`.
    ///
    /// # Errors
    /// On shapes or storage that do not fit, an id out of range, or when the device fails.
    fn gather(&self, backend: &B, ids: &B::Ids, out: &mut B::Matrix) -> Result<(), ComputeError>;

    /// Whether [`begin`](Self::begin) reuses rows of the previous request. If not, callers need not keep its ids and
    /// rows.
    fn reuses_previous_batch(&self) -> bool {
        false
    }

    /// Starts an asynchronous [`gather`](Self::gather). It runs after all earlier work of the device, and overlaps
    /// later work until [`finish`](Self::finish). Until then `ids` must stay, and `out` must be neither used nor
    /// freed. The next request may start before this one finishes.
    ///
    /// `before` holds the ids and rows of the previous request, if they still exist. They must stay until this
    /// request finishes. Rows that both requests contain may be copied from there instead of the feature store.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), also for `before`.
    fn begin(
        &self,
        backend: &B,
        ids: &B::Ids,
        _before: Option<(&B::Ids, &B::Matrix)>,
        out: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        self.gather(backend, ids, out)
    }

    /// Completes the oldest pending request, if there is one. Later work of the device runs after it.
    ///
    /// # Errors
    /// When the device fails.
    fn finish(&self, _backend: &B) -> Result<(), ComputeError> {
        Ok(())
    }

    /// Reader that sums rows without decoding them first. `Some` if that is cheaper, because the stored rows are
    /// compressed.
    fn sums(&self) -> Option<&dyn RowSums<B>> {
        None
    }
}

/// Reader that sums rows from their stored codes (Ma et al., 2024). The first layer then reads codes instead of rows.
pub trait RowSums<B: Memory>: Send + Sync {
    /// Starts an asynchronous read of the codes of the rows of `ids`, as [`FeatureStore::begin`] does. `ids` must stay
    /// until [`finish`](Self::finish). The next request may start before this one finishes.
    ///
    /// # Errors
    /// On an id out of range, or when the device fails.
    fn begin(&self, backend: &B, ids: &B::Ids) -> Result<(), ComputeError>;

    /// Completes the oldest pending request: `sums = block · features[ids]`, for `rows = (block, ids)`. `block` is
    /// `n × ids.len()` and `sums` is `n × width`. Row `i` of `own`, if given, becomes row `ids[i]`, for as many rows
    /// as `own` has.
    ///
    /// # Errors
    /// On shapes or storage that do not fit, or when the device fails.
    fn finish(
        &self,
        backend: &B,
        rows: (&B::Sparse, &B::Ids),
        own: Option<&mut B::Matrix>,
        sums: &mut B::Matrix,
    ) -> Result<(), ComputeError>;
}

/// Feature rows in memory of the host that a device can read. Some of them also lie on devices.
pub struct HostFeatures<B: Memory> {
    /// Reader for the device.
    pub reader: Box<dyn FeatureStore<B>>,
    /// Reader of the same rows for the host.
    pub on_host: Arc<dyn HostRows>,
}

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

/// Row store in memory of the host. A device writes it block by block and reads it by id.
///
/// Devices of several ranks may share a store. One of them then writes each row, and the others read it after the
/// ranks synchronise.
pub trait WritableStore<B: Memory>: FeatureStore<B> {
    /// Whether the devices of all ranks share the store.
    fn is_shared(&self) -> bool;

    /// Overwrites consecutive rows with `rows`, from row `first` on.
    ///
    /// # Errors
    /// When the store has too few rows, width or storage differs, or the device fails.
    fn write(&mut self, backend: &B, first: usize, rows: &B::Matrix) -> Result<(), ComputeError>;
}

/// Feature rows in memory of the host, plain or encoded. Any thread may read any row.
pub trait HostRows: Send + Sync {
    /// Shape: number of rows and width of a row.
    fn shape(&self) -> Shape;

    /// Reads consecutive rows into `out`, from row `first` on. The length of `out` determines their number.
    ///
    /// # Panics
    /// When there are too few rows.
    fn read(&self, first: usize, out: &mut [f32]);

    /// Reads the rows of `nodes` into `out`, one after the other.
    ///
    /// # Panics
    /// When a node has no row.
    fn gather(&self, nodes: &[NodeId], out: &mut [f32]) {
        let cols = self.shape().cols.max(1);
        nodes.iter().zip(out.chunks_exact_mut(cols)).for_each(|(&node, row)| self.read(node as usize, row));
    }
}

impl HostRows for CompressedFeatures {
    fn shape(&self) -> Shape {
        Shape::new(self.n_rows(), self.width())
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        self.decode(first, out);
    }

    fn gather(&self, nodes: &[NodeId], out: &mut [f32]) {
        self.gather(nodes, out).expect("nodes of the graph that these are the features of");
    }
}

impl HostRows for Matrix {
    fn shape(&self) -> Shape {
        Shape::new(self.n_rows(), self.n_cols())
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        out.copy_from_slice(&self.data()[first * self.n_cols()..][..out.len()]);
    }
}
