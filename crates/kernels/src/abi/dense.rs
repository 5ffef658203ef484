//! Arguments of kernels on dense matrices, dropout, losses and optimisers, field by field as in `cuda/`.

use cudarc::driver::DeviceRepr;
use girih_compute::AdamStep;

use super::constants::UPDATES_MAX;

/// Random draws of dropout: `Draws` of `cuda/common.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Draws {
    /// Device address of the key; zero if `key` is passed by value.
    pub(crate) stored_key: u64,
    pub(crate) key: [u32; 2],
    pub(crate) threshold: u32,
    pub(crate) scale: f32,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Draws {}

/// Dropout mask of a matrix: `Mask` of `cuda/common.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Mask {
    pub(crate) draws: Draws,
    pub(crate) first: u64,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Mask {}

impl Draws {
    /// Draws that drop nothing.
    pub(crate) const NONE: Self = Self { stored_key: 0, key: [0; 2], threshold: 0, scale: 1.0 };
}

impl Mask {
    /// Mask for kernels that are compiled without masking.
    pub(crate) const NONE: Self = Self { draws: Draws::NONE, first: 0 };

    /// Mask of the columns from `first` on; elements are counted in whole rows.
    pub(crate) fn of_columns_from(self, first: usize) -> Self {
        Self { first: self.first + first as u64, ..self }
    }

    /// Mask with factor one for kept elements, so that nothing is rounded.
    pub(crate) fn unscaled(self) -> Self {
        Self { draws: Draws { scale: 1.0, ..self.draws }, ..self }
    }
}

/// `EntryMask` of `cuda/attention.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EntryMask {
    pub(crate) draws: Draws,
    pub(crate) column_names: u64,
    pub(crate) first_row: u32,
    pub(crate) padding: u32,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for EntryMask {}

/// `Scores` of `cuda/attention.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ScoreSums {
    pub(crate) destination: u64,
    pub(crate) source: u64,
    pub(crate) slope: f32,
    pub(crate) padding: u32,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for ScoreSums {}

/// Result and epilogue: `EpilogueArgs` of `cuda/dense.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GemmEpilogue {
    pub(crate) out: u64,
    pub(crate) bias: u64,
    pub(crate) through: u64,
    pub(crate) through_pitch: u64,
    pub(crate) factors: u64,
    pub(crate) partials: u64,
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    pub(crate) alpha: f32,
    pub(crate) kept: f32,
    pub(crate) mask: Mask,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for GemmEpilogue {}

/// Operands of a product: `Term` of `cuda/dense.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProductTerm {
    pub(crate) a: u64,
    pub(crate) a_pitch: u64,
    pub(crate) b: u64,
    pub(crate) b_pitch: u64,
    pub(crate) depth: u64,
}

// SAFETY: as above.
unsafe impl DeviceRepr for ProductTerm {}

/// Arguments of a loss: `Losses` of `cuda/loss.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Losses {
    pub(crate) logits: u64,
    pub(crate) wanted: u64,
    pub(crate) counts: u64,
    pub(crate) grad: u64,
    pub(crate) partials: u64,
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    pub(crate) factor: f32,
    pub(crate) padding: u32,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Losses {}

/// Addresses and sizes of a parameter: `Update` of `cuda/optim.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Update {
    pub(crate) param: u64,
    pub(crate) grad: u64,
    pub(crate) first: u64,
    pub(crate) second: u64,
    pub(crate) n: u64,
    pub(crate) end: u32,
    pub(crate) coupled: f32,
    pub(crate) decoupled: f32,
    pub(crate) padding: u32,
}

/// `Updates` of `cuda/optim.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Updates {
    pub(crate) of: [Update; UPDATES_MAX],
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Updates {}

/// Rates that change from step to step: `Rates` of `cuda/optim.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepRates {
    pub(crate) lr: f32,
    pub(crate) rate: f32,
    pub(crate) root_correction: f32,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for StepRates {}

impl StepRates {
    /// Rates of a step.
    pub(crate) fn of(step: &AdamStep) -> Self {
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(step.step as f64);
        Self {
            lr: step.lr,
            rate: (f64::from(step.lr) / correction(step.beta1)) as f32,
            root_correction: correction(step.beta2).sqrt().recip() as f32,
        }
    }

    /// Rates as words, in the order of the struct.
    pub(crate) fn words(self) -> [u32; 3] {
        [self.lr, self.rate, self.root_correction].map(f32::to_bits)
    }
}
