//! `segment_max` and `segment_lstm`: aggregations over neighbours that are no sums.

use std::cell::Cell;

use girih_compute::{Backend, ComputeError, Shape};
use girih_random::Key;

use super::{BackwardPass, Operation, Tape, Var};

struct SegmentMax<'a, B: Backend> {
    matrix: &'a B::Sparse,
    x: Var,
    /// Taken by the backward pass, which gives them back to the pool.
    winners: Cell<Option<B::Ids>>,
}

struct SegmentLstm<'a, B: Backend> {
    matrix: &'a B::Sparse,
    order: Option<Key>,
    inputs: Var,
    weight: Var,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// The element-wise maximum of the rows of `x` (`n × f`) that each row of an `m × n` pattern names; zeros where it
    /// names none. Of equals, the gradient goes to the first.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn segment_max(&mut self, matrix: &'a B::Sparse, x: Var) -> Result<Var, ComputeError> {
        let shape = Shape::new(self.backend().sparse_shape(matrix).rows, self.shape(x).cols);
        let mut out = self.activations(shape)?;
        let mut winners = match self.needs_grad(x) {
            true => Some(self.pool.take_ids(self.backend, shape.len())?),
            false => None,
        };
        self.backend().segment_max(matrix, self.value(x), &mut out, winners.as_mut())?;
        Ok(self.record(out, &[x], SegmentMax::<B> { matrix, x, winners: Cell::new(winners) }))
    }

    /// The last state of an LSTM over the rows of `inputs` (`n × 4h`, what the inputs add to the gates) that each row
    /// of an `m × n` pattern names, with a recurrent `weight` of shape `h × 4h` ([`Backend::segment_lstm`]). In
    /// training every row is read in an order drawn anew; in evaluation, as it is stored.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn segment_lstm(&mut self, matrix: &'a B::Sparse, inputs: Var, weight: Var) -> Result<Var, ComputeError> {
        let order = self.next_key();
        let shape = Shape::new(self.backend().sparse_shape(matrix).rows, self.shape(weight).rows);
        let mut out = self.activations(shape)?;
        self.backend().segment_lstm((matrix, order), self.value(inputs), self.value(weight), &mut out)?;
        Ok(self.record(out, &[inputs, weight], SegmentLstm::<B> { matrix, order, inputs, weight }))
    }
}

impl<B: Backend> Operation<B> for SegmentMax<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let winners = self.winners.take().expect("winners are kept where a gradient is taken, until it is");
        let out_shape = pass.backend().shape(&grad);
        let mut x_grad = pass.grad_buffer(self.x)?;
        pass.backend().segment_max_backward(self.matrix, &winners, &grad, &mut x_grad)?;
        pass.pool.give_ids(out_shape.len(), winners);
        pass.recycle(grad);
        pass.give(self.x, x_grad)
    }
}

impl<B: Backend> Operation<B> for SegmentLstm<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let (mut inputs_grad, mut weight_grad) = (pass.grad_buffer(self.inputs)?, pass.grad_buffer(self.weight)?);
        let operands = (pass.value(self.inputs), pass.value(self.weight));
        let grads = (&mut inputs_grad, &mut weight_grad);
        pass.backend().segment_lstm_backward((self.matrix, self.order), operands, &grad, grads)?;
        pass.recycle(grad);
        pass.give(self.inputs, inputs_grad)?;
        pass.give(self.weight, weight_grad)
    }
}
