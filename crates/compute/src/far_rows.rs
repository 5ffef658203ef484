//! [`RowReader`], [`RowSums`], [`FarRows`], [`SplitRows`] and [`RowStore`]: rows that a device reads by id, wherever
//! they lie and however they are stored.

use std::sync::Arc;

use girih_compress::CompressedFeatures;
use girih_graph_format::{Matrix, NodeId};

use crate::{Backend, ComputeError, Dtype, Shape};

/// Rows that a device makes matrices of.
pub trait RowReader<B: Backend>: Send + Sync {
    /// Row `i` of `out` becomes the row that `ids[i]` names.
    ///
    /// # Errors
    /// On shapes or storage that do not fit, an id out of range, or when the device fails.
    fn gather(&self, backend: &B, ids: &B::Ids, out: &mut B::Matrix) -> Result<(), ComputeError>;

    /// Whether [`begin`](Self::begin) takes rows from what was begun before. Where it does not, nobody need keep that.
    fn takes_from_before(&self) -> bool {
        false
    }

    /// Begins to [`gather`](Self::gather): after all that was asked of the device before, and beside what is asked of
    /// it until [`finish`](Self::finish). Until then `ids` stay, and nobody touches `out` or frees it. The next may be
    /// begun before.
    ///
    /// `before` is what was begun last, if it still exists: its ids and rows, which then stay until this is finished,
    /// too. Rows that both name may come from there rather than from afar.
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

    /// What is asked of the device from now on comes after what was begun first and not finished, if anything was.
    ///
    /// # Errors
    /// When the device fails.
    fn finish(&self, _backend: &B) -> Result<(), ComputeError> {
        Ok(())
    }

    /// What sums rows up without making them, where that is less work: they are stored as something shorter.
    fn sums(&self) -> Option<&dyn RowSums<B>> {
        None
    }
}

/// Sums of rows that a device makes from how they are stored (Ma et al., 2024, whose codes the first layer then reads
/// instead of rows).
pub trait RowSums<B: Backend>: Send + Sync {
    /// Begins to bring what is stored for the rows of `ids`, as [`RowReader::begin`] does; `ids` stay until
    /// [`finish`](Self::finish). The next may be begun before.
    ///
    /// # Errors
    /// On an id out of range, or when the device fails.
    fn begin(&self, backend: &B, ids: &B::Ids) -> Result<(), ComputeError>;

    /// Of what was begun first and not finished, makes `sums` the product of a block with the rows of `ids`, one for
    /// each column, and `own` the rows of the first of them, as many as it has.
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

/// Rows in memory of the host that a device can read, some of which are on devices, too.
pub struct FarRows<B: Backend> {
    /// As the device reads them.
    pub reader: Box<dyn RowReader<B>>,
    /// The same rows as the host reads them.
    pub on_host: Arc<dyn HostRows>,
}

/// What a rank's device has of rows of which every rank has those of its patch.
pub enum PatchRowsOperand<'a, B: Backend> {
    /// Rows, as they are stored.
    Dense(Arc<B::Matrix>),
    /// Codes, of a codec that all ranks share, and what the device makes of them.
    Codes(&'a CompressedFeatures, Dtype),
}

/// Rows in memory of hosts, each of which has those of its rank's patch.
pub struct SplitRows<'a> {
    /// How many there are on all hosts.
    pub n_rows: usize,
    /// How they are stored, and travel.
    pub stored: StoredAs<'a>,
    /// What brings them.
    pub fetch: Box<dyn FetchRows>,
}

/// How rows are stored, one behind the other.
#[derive(Clone, Copy)]
pub enum StoredAs<'a> {
    /// As so many values of a type.
    Dense(usize, Dtype),
    /// As codes of the codec of these, which all ranks share; and what the device makes of them.
    Codes(&'a CompressedFeatures, Dtype),
}

/// Brings rows from where ranks have them.
pub trait FetchRows: Send {
    /// The rows of some nodes. All ranks call it together, some perhaps for no nodes.
    ///
    /// # Errors
    /// When a node does not exist, or a rank fails.
    fn fetch(&mut self, nodes: &[NodeId]) -> Result<Box<dyn FetchedRows + '_>, ComputeError>;
}

/// Rows that were fetched, as they are stored.
pub trait FetchedRows: Sync {
    /// That of the node that was named in this place.
    ///
    /// # Panics
    /// When there were not so many.
    fn row(&self, at: usize) -> &[u8];
}

/// Rows in memory of the host that a device writes, one block of them after the other, and reads by id.
///
/// Devices of several ranks may share it: each row is then written by one of them, and read by the others when they
/// have met after that.
pub trait RowStore<B: Backend>: RowReader<B> {
    /// Whether the devices of all ranks share it.
    fn is_shared(&self) -> bool;

    /// Overwrites the rows from `first` on with those of `rows`.
    ///
    /// # Errors
    /// When there are not so many, on another width or storage, or when the device fails.
    fn write(&mut self, backend: &B, first: usize, rows: &B::Matrix) -> Result<(), ComputeError>;
}

/// Rows in memory of the host, stored or encoded in some way; any thread may read any of them.
pub trait HostRows: Send + Sync {
    /// Rows and columns.
    fn shape(&self) -> Shape;

    /// Reads consecutive rows from `first` on, as many as `out` holds.
    ///
    /// # Panics
    /// When there are not so many.
    fn read(&self, first: usize, out: &mut [f32]);

    /// Reads the rows of some nodes, one after the other.
    ///
    /// # Panics
    /// When one is no row.
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
