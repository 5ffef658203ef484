//! [`Normalization`]: layer or batch normalisation with a trained gain and bias.

use girih_compute::{Backend, ComputeError, NormAxis, Shape};

use crate::params::{ParamId, ParamInit};
use crate::tape::{Tape, Var};

/// `(x - mean) / deviation · gain + bias` along rows (layer normalisation) or columns (batch normalisation).
///
/// Batch normalisation takes its moments over all rows at hand, in training and in evaluation alike: a full-batch pass
/// sees all nodes in both.
pub struct Normalization {
    axis: NormAxis,
    gain: ParamId,
    bias: ParamId,
}

impl Normalization {
    /// A layer over `width` columns that starts without effect on what is normalised already.
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

    /// The layer applied to `x`.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn forward<B: Backend>(&self, tape: &mut Tape<'_, B>, x: Var) -> Result<Var, ComputeError> {
        let (gain, bias) = (tape.param(self.gain), tape.param(self.bias));
        tape.normalize(self.axis, x, gain, bias)
    }
}
