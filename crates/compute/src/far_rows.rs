//! [`RowReader`] and [`FarRows`]: features that a device reads by id, wherever they lie and however they are stored.

use std::sync::Arc;

use crate::{Backend, ComputeError, Shape};

/// Rows that a device makes matrices of.
pub trait RowReader<B: Backend>: Send + Sync {
    /// Row `i` of `out` becomes the row that `ids[i]` names.
    ///
    /// # Errors
    /// On shapes or storage that do not fit, an id out of range, or when the device fails.
    fn gather(&self, backend: &B, ids: &B::Ids, out: &mut B::Matrix) -> Result<(), ComputeError>;
}

/// Rows in memory of the host that a device can read, some of which it keeps in its own memory, too.
pub struct FarRows<B: Backend> {
    /// As the device reads them.
    pub reader: Box<dyn RowReader<B>>,
    /// The same memory as the host reads it.
    pub on_host: Arc<dyn HostRows>,
}

/// Rows in memory of the host, stored in some way.
pub trait HostRows: Send + Sync {
    /// Rows and columns.
    fn shape(&self) -> Shape;

    /// Reads consecutive rows from `first` on, as many as `out` holds.
    ///
    /// # Panics
    /// When there are not so many.
    fn read(&self, first: usize, out: &mut [f32]);
}
