//! Dropout masks, as `cuda/common.cuh` takes them.

use girih_compute::{ComputeError, Dropout};

use crate::abi::{Draws, Mask};
use crate::cuda::Cuda;

impl Cuda {
    /// Draws of `dropout`. A stored key lives as long as the graph that work is captured for.
    pub(super) fn draws(&self, dropout: Dropout) -> Result<Draws, ComputeError> {
        let (threshold, scale) = (dropout.threshold(), dropout.scale());
        Ok(Draws { stored_key: self.recorder.key(dropout.key())?, key: dropout.key().words(), threshold, scale })
    }

    /// As [`draws`](Self::draws), but without dropout [`Draws::NONE`].
    pub(super) fn draws_or_none(&self, dropout: Option<Dropout>) -> Result<Draws, ComputeError> {
        dropout.map_or(Ok(Draws::NONE), |dropout| self.draws(dropout))
    }

    /// Mask of a matrix of `cols` columns.
    pub(super) fn mask(&self, dropout: Dropout, cols: usize) -> Result<Mask, ComputeError> {
        Ok(Mask { draws: self.draws(dropout)?, first: dropout.first_element(cols) as u64 })
    }

    /// As [`mask`](Self::mask), but without dropout [`Mask::NONE`].
    pub(super) fn mask_or_none(&self, dropout: Option<Dropout>, cols: usize) -> Result<Mask, ComputeError> {
        dropout.map_or(Ok(Mask::NONE), |dropout| self.mask(dropout, cols))
    }
}
