//! [`Blocks`]: what of a sparse matrix tensor cores multiply.

use girih_compute::ComputeError;

use crate::CudaSparse;
use crate::backend::Cuda;

/// The dense blocks that products with a sparse matrix hand to tensor cores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Blocks {
    /// How many there are.
    pub n_blocks: usize,
    /// Share of all entries that lie in them.
    pub coverage: f64,
}

impl Cuda {
    /// The blocks of a matrix under the [`Tiling`](crate::Tiling) of this backend, found now if no product has asked for them;
    /// none where products gather everything.
    ///
    /// # Errors
    /// When the device fails or its memory does not suffice.
    pub fn blocks(&self, a: &CudaSparse) -> Result<Blocks, ComputeError> {
        let whole = &a.forward;
        Ok(self.tiles_of("blocks", whole)?.map_or_else(Blocks::default, |tiles| Blocks {
            n_blocks: tiles.n_blocks(),
            coverage: 1.0 - tiles.rest.nnz as f64 / whole.nnz as f64,
        }))
    }
}
