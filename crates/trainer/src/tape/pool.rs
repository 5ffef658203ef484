//! [`Pool`]: free buffers, kept for reuse.

use std::collections::{HashMap, HashSet};

use girih_compute::{Backend, ComputeError, Dtype, Shape};

/// Free buffers: matrices by shape and type, lists of ids by length.
///
/// All training steps use buffers of equal shapes. From the second step on, nothing is allocated and every buffer
/// keeps its address.
pub struct Pool<B: Backend> {
    free: HashMap<(Shape, Dtype), Vec<B::Matrix>>,
    free_ids: HashMap<usize, Vec<B::Ids>>,
    /// Shapes and types of matrices taken since [`drop_unused`](Self::drop_unused).
    taken: HashSet<(Shape, Dtype)>,
    /// Whether a buffer may be reused for another shape.
    resizes: bool,
}

/// Largest ratio of a buffer's elements to those of the shape it is reused for.
const WASTE_MAX: usize = 2;
/// Inverse of the share of extra rows that a new buffer gets for larger shapes to come.
const ROOM: usize = 16;

impl<B: Backend> Default for Pool<B> {
    fn default() -> Self {
        Self { free: HashMap::new(), free_ids: HashMap::new(), taken: HashSet::new(), resizes: false }
    }
}

impl<B: Backend> Pool<B> {
    /// A pool for steps with slightly varying shapes. It reuses buffers for other shapes of similar size, if the
    /// device can resize them.
    #[must_use]
    pub fn resizing() -> Self {
        Self { resizes: true, ..Self::default() }
    }

    /// A buffer with unspecified contents.
    ///
    /// # Errors
    /// When none is free and the device's memory does not suffice.
    pub fn take(&mut self, backend: &B, shape: Shape, dtype: Dtype) -> Result<B::Matrix, ComputeError> {
        self.taken.insert((shape, dtype));
        match self.free.get_mut(&(shape, dtype)).and_then(Vec::pop).or_else(|| self.resized(backend, shape, dtype)) {
            Some(matrix) => Ok(matrix),
            None if self.resizes => roomy(backend, shape, dtype),
            None => backend.zeros(shape, dtype),
        }
    }

    /// A copy of `x`, rounded to `dtype`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(crate) fn converted(&mut self, backend: &B, x: &B::Matrix, dtype: Dtype) -> Result<B::Matrix, ComputeError> {
        let mut copy = self.take(backend, backend.shape(x), dtype)?;
        backend.convert(x, &mut copy)?;
        Ok(copy)
    }

    /// A free buffer of another shape with enough memory, the most similar size first.
    fn resized(&mut self, backend: &B, shape: Shape, dtype: Dtype) -> Option<B::Matrix> {
        if !self.resizes {
            return None;
        }
        let (wanted, most) = (shape.len(), WASTE_MAX * shape.len());
        let alike = |(free, stored): &(Shape, Dtype)| {
            *stored == dtype && free.len() <= most && wanted <= WASTE_MAX * free.len()
        };
        let mut kinds: Vec<(Shape, Dtype)> = self.free.keys().filter(|kind| alike(kind)).copied().collect();
        kinds.sort_unstable_by_key(|(free, _)| (free.len().abs_diff(wanted), free.rows));
        kinds.iter().find_map(|kind| {
            let buffers = self.free.get_mut(kind)?;
            let fits = buffers.iter_mut().position(|buffer| backend.resize(buffer, shape))?;
            Some(buffers.swap_remove(fits))
        })
    }

    /// A buffer of the shape and type of `matrix`, with unspecified contents.
    ///
    /// # Errors
    /// When none is free and the device's memory does not suffice.
    pub fn take_like(&mut self, backend: &B, matrix: &B::Matrix) -> Result<B::Matrix, ComputeError> {
        self.take(backend, backend.shape(matrix), backend.dtype(matrix))
    }

    /// Returns a buffer to the pool.
    pub fn give(&mut self, backend: &B, matrix: B::Matrix) {
        self.free.entry((backend.shape(&matrix), backend.dtype(&matrix))).or_default().push(matrix);
    }

    /// Frees matrices of shapes that were not taken since the last call. Without it, buffers of varying shapes would
    /// accumulate.
    pub fn drop_unused(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        self.free.retain(|kind, _| taken.contains(kind));
    }

    /// Frees everything, before steps of other shapes.
    pub fn clear(&mut self) {
        *self = Self { resizes: self.resizes, ..Self::default() };
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

    /// Number of free buffers: matrices by shape and type, lists of ids by length.
    #[must_use]
    pub fn n_free(&self) -> (HashMap<(Shape, Dtype), usize>, HashMap<usize, usize>) {
        let matrices = self.free.iter().map(|(kind, free)| (*kind, free.len()));
        let ids = self.free_ids.iter().map(|(len, free)| (*len, free.len()));
        (matrices.collect(), ids.collect())
    }

    /// Returns a list of `len` ids to the pool.
    pub fn give_ids(&mut self, len: usize, ids: B::Ids) {
        self.free_ids.entry(len).or_default().push(ids);
    }
}

/// A buffer with some spare rows, if the device can use these.
fn roomy<B: Backend>(backend: &B, shape: Shape, dtype: Dtype) -> Result<B::Matrix, ComputeError> {
    let mut matrix = backend.zeros(Shape::new(shape.rows + shape.rows.div_ceil(ROOM), shape.cols), dtype)?;
    if backend.resize(&mut matrix, shape) { Ok(matrix) } else { backend.zeros(shape, dtype) }
}
