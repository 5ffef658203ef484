//! [`Pool`]: buffers between uses.

use std::collections::{HashMap, HashSet};

use girih_compute::{Backend, ComputeError, Dtype, Shape};

/// Buffers that are free: matrices by shape and storage, lists of ids by length.
///
/// A training step takes the same shapes every time, so that from the second step on nothing is allocated and every
/// buffer stays where it is.
pub struct Pool<B: Backend> {
    free: HashMap<(Shape, Dtype), Vec<B::Matrix>>,
    free_ids: HashMap<usize, Vec<B::Ids>>,
    /// Kinds of matrices that were taken since [`drop_unused`](Self::drop_unused).
    taken: HashSet<(Shape, Dtype)>,
}

impl<B: Backend> Default for Pool<B> {
    fn default() -> Self {
        Self { free: HashMap::new(), free_ids: HashMap::new(), taken: HashSet::new() }
    }
}

impl<B: Backend> Pool<B> {
    /// A buffer with unspecified contents.
    ///
    /// # Errors
    /// When none is free and the device's memory does not suffice.
    pub fn take(&mut self, backend: &B, shape: Shape, dtype: Dtype) -> Result<B::Matrix, ComputeError> {
        self.taken.insert((shape, dtype));
        match self.free.get_mut(&(shape, dtype)).and_then(Vec::pop) {
            Some(matrix) => Ok(matrix),
            None => backend.zeros(shape, dtype),
        }
    }

    /// A buffer of the shape and type of `matrix`, with unspecified contents.
    ///
    /// # Errors
    /// When none is free and the device's memory does not suffice.
    pub fn take_like(&mut self, backend: &B, matrix: &B::Matrix) -> Result<B::Matrix, ComputeError> {
        self.take(backend, backend.shape(matrix), backend.dtype(matrix))
    }

    /// Gives a buffer back.
    pub fn give(&mut self, backend: &B, matrix: B::Matrix) {
        self.free.entry((backend.shape(&matrix), backend.dtype(&matrix))).or_default().push(matrix);
    }

    /// Frees the matrices of shapes that nobody took since the last call. Where shapes change from step to step, those of the
    /// steps before would pile up.
    pub fn drop_unused(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        self.free.retain(|kind, _| taken.contains(kind));
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

    /// Buffers that are free, of each kind; lists of ids by their lengths.
    #[cfg(test)]
    pub(crate) fn n_free(&self) -> (HashMap<(Shape, Dtype), usize>, HashMap<usize, usize>) {
        let matrices = self.free.iter().map(|(kind, free)| (*kind, free.len()));
        let ids = self.free_ids.iter().map(|(len, free)| (*len, free.len()));
        (matrices.collect(), ids.collect())
    }

    /// Gives a list of `len` ids back.
    pub fn give_ids(&mut self, len: usize, ids: B::Ids) {
        self.free_ids.entry(len).or_default().push(ids);
    }
}

#[cfg(test)]
mod tests {
    use girih_compute::{Meter, Rates};

    use super::*;

    #[test]
    fn shapes_that_change_do_not_pile_up() {
        let meter = Meter::new(Rates { stream_bytes: 1e10, gather_bytes: 1e10, flops: 1e10 });
        let (constant, mut pool) = (Shape::new(100, 4), Pool::default());
        for step in 1..50 {
            for shape in [constant, Shape::new(step, 4)] {
                let matrix = pool.take(&meter, shape, Dtype::F32).unwrap();
                pool.give(&meter, matrix);
            }
            pool.drop_unused();
            assert_eq!(meter.cost().live_bytes, 16 * (100 + step as u64), "this step's alone");
        }
    }
}
