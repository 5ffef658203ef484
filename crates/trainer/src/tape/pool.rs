//! [`Pool`]: buffers between uses.

use std::collections::HashMap;

use girih_compute::{Backend, ComputeError, Dtype, Shape};

/// Buffers that are free, by shape and storage.
///
/// A training step takes the same shapes every time, so that from the second step on nothing is allocated and every
/// buffer stays where it is.
pub struct Pool<B: Backend> {
    free: HashMap<(Shape, Dtype), Vec<B::Matrix>>,
}

impl<B: Backend> Default for Pool<B> {
    fn default() -> Self {
        Self { free: HashMap::new() }
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
}
