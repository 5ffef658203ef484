//! [`SegmentOps`]: aggregations of neighbors other than sums.

use girih_random::Key;

use crate::checks::{self, Checked};
use crate::{ComputeError, Memory, Shape};

/// Maximum and LSTM over the neighbors of each row, with their backward passes.
pub trait SegmentOps: Memory {
    checked! {
        /// Maximum over neighbors: `out[i, c]` becomes the maximum of `x[j, c]` over the entries `(i, j)` of `a`. `a`
        /// is `n × m`, `x` is `m × d`, and `out` is `n × d`. If given, `winners` (`n · d` ids) receives in `winners[i·d
        /// + c]` the first row of `x` that holds the maximum. Rows of `a` without entries give zeros and unspecified
        /// winners. A NaN exceeds every number. The values and scales of `a` are ignored.
        ///
        /// # Errors
        /// On shapes that do not fit, or when there is not one winner for each element of `out`.
        fn segment_max, run_segment_max(
            &self,
            a: &Self::Sparse,
            x: &Self::Matrix,
            out: &mut Self::Matrix,
            winners: Option<&mut Self::Ids>,
        ) -> Result<(), ComputeError> {
            let n_winners = winners.as_deref().map(|winners| self.id_range(winners).len);
            check_max(self, "segment_max", a, (x, out), n_winners)
        }

        /// Backward pass of [`segment_max`](Self::segment_max). `x_grad` (`m × d`) is overwritten: each element of
        /// `grad` (`n × d`) is added to the row of `x_grad` that `winners` (`n · d` ids) names.
        ///
        /// # Errors
        /// As [`segment_max`](Self::segment_max).
        fn segment_max_backward, run_segment_max_backward(
            &self,
            a: &Self::Sparse,
            winners: &Self::Ids,
            grad: &Self::Matrix,
            x_grad: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_max(self, "segment_max_backward", a, (x_grad, grad), Some(self.id_range(winners).len))
        }

        /// LSTM over neighbors: row `i` of `out` becomes the last state of an LSTM that reads the rows `j` of `inputs`
        /// for the entries `(i, j)` of `a`. The order is that of storage or, with a key, a random order drawn from the
        /// key and the row. Rows of `a` without entries give zeros. The values and scales of `a` are ignored.
        ///
        /// `a` is `n × m`, `inputs` is `m × 4h`, `weight` is `h × 4h`, and `out` is `n × h`. `inputs` holds the
        /// contributions of the inputs to the gates, biases included. `weight` maps a state to its contribution to the
        /// next gates. The gates lie in the order input, forget, cell, output. State and memory start at zero
        /// (Hochreiter and Schmidhuber, Neural Computation 1997, with the forget gate of Gers et al., 2000).
        ///
        /// # Errors
        /// On shapes that do not fit, or states without columns.
        fn segment_lstm, run_segment_lstm(
            &self,
            sequences: (&Self::Sparse, Option<Key>),
            inputs: &Self::Matrix,
            weight: &Self::Matrix,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_lstm(self, "segment_lstm", sequences.0, (inputs, weight), out)
        }

        /// Backward pass of [`segment_lstm`](Self::segment_lstm). `inputs_grad` (`m × 4h`) and `weight_grad` (`h × 4h`)
        /// are overwritten with the gradients of `inputs` and `weight`, given `grad` (`n × h`), the gradient of the
        /// result. The steps are recomputed, so that the forward pass stores none.
        ///
        /// # Errors
        /// As [`segment_lstm`](Self::segment_lstm).
        fn segment_lstm_backward, run_segment_lstm_backward(
            &self,
            sequences: (&Self::Sparse, Option<Key>),
            operands: (&Self::Matrix, &Self::Matrix),
            grad: &Self::Matrix,
            grads: (&mut Self::Matrix, &mut Self::Matrix),
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "segment_lstm_backward";
            check_lstm(self, OPERATION, sequences.0, operands, grad)?;
            checks::expect(OPERATION, "inputs_grad", self.shape(grads.0), self.shape(operands.0))?;
            checks::expect(OPERATION, "weight_grad", self.shape(grads.1), self.shape(operands.1))
        }
    }
}

/// Checks a maximum over neighbors from `x` to `out`, or the gradients of the two.
fn check_max<B: Memory + ?Sized>(
    device: &B,
    operation: &'static str,
    a: &B::Sparse,
    (x, out): (&B::Matrix, &B::Matrix),
    n_winners: Option<usize>,
) -> Checked {
    let (Shape { rows, cols }, width) = (device.sparse_shape(a), device.shape(x).cols);
    checks::expect(operation, "x", device.shape(x), Shape::new(cols, width))?;
    checks::expect(operation, "out", device.shape(out), Shape::new(rows, width))?;
    let n_winners = n_winners.map(|n| Shape::new(n, 1));
    checks::expect_given(operation, "winners", n_winners, Shape::new(device.shape(out).len(), 1))
}

/// Checks an LSTM over neighbors with the result `out`, or with its gradient.
fn check_lstm<B: Memory + ?Sized>(
    device: &B,
    operation: &'static str,
    a: &B::Sparse,
    (inputs, weight): (&B::Matrix, &B::Matrix),
    out: &B::Matrix,
) -> Checked {
    let (Shape { rows, cols }, width) = (device.sparse_shape(a), device.shape(weight).rows);
    if width == 0 {
        return Err(ComputeError::argument(operation, "states without columns; give the weight at least one row"));
    }
    checks::expect(operation, "weight", device.shape(weight), Shape::new(width, 4 * width))?;
    checks::expect(operation, "inputs", device.shape(inputs), Shape::new(cols, 4 * width))?;
    checks::expect(operation, "out", device.shape(out), Shape::new(rows, width))
}
