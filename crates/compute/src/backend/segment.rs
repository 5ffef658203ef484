//! [`SegmentOps`]: aggregations of neighbors other than sums.

use girih_random::Key;

use crate::{ComputeError, Memory};

/// Maximum and LSTM over the neighbors of each row, with their backward passes.
pub trait SegmentOps: Memory {
    /// Maximum over neighbors: `out[i, c]` becomes the maximum of `x[j, c]` over the entries `(i, j)` of `a`. `a` is
    /// `n × m`, `x` is `m × d`, and `out` is `n × d`. If given, `winners` (`n · d` ids) receives in
    /// `winners[i·d + c]` the first row of `x` that holds the maximum. Rows of `a` without entries give zeros and
    /// unspecified winners. A NaN exceeds every number. The values and scales of `a` are ignored.
    ///
    /// # Errors
    /// On shapes that do not fit, or when there is not one winner for each element of `out`.
    fn segment_max(
        &self,
        a: &Self::Sparse,
        x: &Self::Matrix,
        out: &mut Self::Matrix,
        winners: Option<&mut Self::Ids>,
    ) -> Result<(), ComputeError>;

    /// Backward pass of [`segment_max`](Self::segment_max). `x_grad` (`m × d`) is overwritten: each element of `grad`
    /// (`n × d`) is added to the row of `x_grad` that `winners` (`n · d` ids) names.
    ///
    /// # Errors
    /// As [`segment_max`](Self::segment_max).
    fn segment_max_backward(
        &self,
        a: &Self::Sparse,
        winners: &Self::Ids,
        grad: &Self::Matrix,
        x_grad: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// LSTM over neighbors: row `i` of `out` becomes the last state of an LSTM that reads the rows `j` of `inputs`
    /// for the entries `(i, j)` of `a`. The order is that of storage or, with a key, a random order drawn from the
    /// key and the row. Rows of `a` without entries give zeros. The values and scales of `a` are ignored.
    ///
    /// `a` is `n × m`, `inputs` is `m × 4h`, `weight` is `h × 4h`, and `out` is `n × h`. `inputs` holds the
    /// contributions of the inputs to the gates, biases included. `weight` maps a state to its contribution to the
    /// next gates. The gates lie in the order input, forget, cell, output. State and memory start at zero (Hochreiter
    /// and Schmidhuber, Neural Computation 1997, with the forget gate of Gers et al., 2000).
    ///
    /// # Errors
    /// On shapes that do not fit, or states without columns.
    fn segment_lstm(
        &self,
        sequences: (&Self::Sparse, Option<Key>),
        inputs: &Self::Matrix,
        weight: &Self::Matrix,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Backward pass of [`segment_lstm`](Self::segment_lstm). `inputs_grad` (`m × 4h`) and `weight_grad` (`h × 4h`)
    /// are overwritten with the gradients of `inputs` and `weight`, given `grad` (`n × h`), the gradient of the
    /// result. The steps are recomputed, so that the forward pass stores none.
    ///
    /// # Errors
    /// As [`segment_lstm`](Self::segment_lstm).
    fn segment_lstm_backward(
        &self,
        sequences: (&Self::Sparse, Option<Key>),
        operands: (&Self::Matrix, &Self::Matrix),
        grad: &Self::Matrix,
        grads: (&mut Self::Matrix, &mut Self::Matrix),
    ) -> Result<(), ComputeError>;
}
