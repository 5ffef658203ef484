//! Dropout masks, as `kernels/common.cuh` takes them.

use cudarc::driver::DeviceRepr;
use girih_compute::{ComputeError, Dropout};

use crate::backend::Cuda;

/// Random draws of dropout: `Draws` of `kernels/common.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Draws {
    /// Device address of the key; zero if `key` is passed by value.
    stored_key: u64,
    key: [u32; 2],
    threshold: u32,
    scale: f32,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Draws {}

/// Dropout mask of a matrix: `Mask` of `kernels/common.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Mask {
    draws: Draws,
    first: u64,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Mask {}

impl Draws {
    /// Draws that drop nothing.
    const NONE: Self = Self { stored_key: 0, key: [0; 2], threshold: 0, scale: 1.0 };
}

impl Mask {
    /// Mask for kernels that are compiled without masking.
    pub(super) const NONE: Self = Self { draws: Draws::NONE, first: 0 };

    /// Mask of the columns from `first` on; elements are counted in whole rows.
    pub(super) fn of_columns_from(self, first: usize) -> Self {
        Self { first: self.first + first as u64, ..self }
    }

    /// Mask with factor one for kept elements, so that nothing is rounded.
    pub(super) fn unscaled(self) -> Self {
        Self { draws: Draws { scale: 1.0, ..self.draws }, ..self }
    }
}

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
