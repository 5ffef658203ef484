//! [`Pool`]: buffers between uses.

use std::collections::HashMap;

use girih_compute::{Backend, ComputeError, Dtype, Shape};

/// Buffers that are free: matrices by shape and storage, lists of ids by length.
///
/// A training step takes the same shapes every time, so that from the second step on nothing is allocated and every
/// buffer stays where it is.
pub struct Pool<B: Backend> {
    free: HashMap<(Shape, Dtype), Vec<B::Matrix>>,
    free_ids: HashMap<usize, Vec<B::Ids>>,
}

impl<B: Backend> Default for Pool<B> {
    fn default() -> Self {
        Self { free: HashMap::new(), free_ids: HashMap::new() }
    }
}

impl<B: Backend> Pool<B> {
    /// A buffer with unspecified contents.
    ///
    /// # Errors
    /// When none is free and the device's memory does not suffice.
    pub fn take(&mut self, backend: &B, shape: Shape, dtype: Dtype) -> Result<B::Matrix, ComputeError> {
        match self.free.get_mut(&(shape, dtype)).and_then(Vec::pop) {
            Some(matrix) => Ok(matrix),
            None => backend.zeros(shape, dtype),
        }
    }

    /// Gives a buffer back.
    pub fn give(&mut self, backend: &B, matrix: B::Matrix) {
        self.free.entry((backend.shape(&matrix), backend.dtype(&matrix))).or_default().push(matrix);
    }

    /// A list of `len` ids with unspecified contents.
    ///
    /// # Errors
    /// When none is free and the device's memory does not suffice.
    pub fn take_ids(&mut self, backend: &B, len: usize) -> Result<B::Ids, ComputeError> {
        match self.free_ids.get_mut(&len).and_then(Vec::pop) {
            Some(ids) => Ok(ids),
            None => backend.zero_ids(len),
        }
    }

    /// Gives a list of `len` ids back.
    pub fn give_ids(&mut self, len: usize, ids: B::Ids) {
        self.free_ids.entry(len).or_default().push(ids);
    }
}
