//! [`Normalization`]: layer or batch normalisation with a trained gain and bias.

use girih_compute::{Backend, ComputeError, Shape};

use crate::tape::{ParamId, ParamInit, Tape, Var};

/// Axis of a normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormAxis {
    /// Each row: layer normalisation (Ba et al., 2016).
    Rows,
    /// Each column: batch normalisation (Ioffe and Szegedy, ICML 2015).
    Columns,
}

/// Normalisation `(x - mean) / deviation · gain + bias` along rows (layer normalisation) or columns (batch
/// normalisation).
///
/// Batch normalisation uses the moments over all nodes, in training and in evaluation, over all ranks. A step on a
/// mini-batch uses the moments over the nodes that it computes.
pub struct Normalization {
    axis: NormAxis,
    gain: ParamId,
    bias: ParamId,
}

impl Normalization {
    /// A layer over `width` columns, with unit gain and zero bias.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        layer: usize,
        axis: NormAxis,
        width: usize,
    ) -> Result<Self, ComputeError> {
        let row = Shape::new(1, width);
        Ok(Self { axis, gain: init.ones(layer, "norm_gain", row)?, bias: init.zeros(layer, "norm_bias", row)? })
    }

    /// Applies the layer to `x`.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub fn forward<B: Backend>(&self, tape: &mut Tape<'_, B>, x: Var) -> Result<Var, ComputeError> {
        let (gain, bias) = (tape.param(self.gain), tape.param(self.bias));
        match self.axis {
            NormAxis::Rows => tape.normalize_rows(x, gain, bias),
            NormAxis::Columns => tape.normalize_columns(x, gain, bias),
        }
    }
}
