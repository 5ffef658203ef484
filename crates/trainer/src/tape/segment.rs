//! `segment_max` and `segment_lstm`: aggregations over neighbors other than sums.

use std::cell::Cell;

use girih_compute::{Backend, ComputeError, Shape};
use girih_random::Key;

use super::{BackwardPass, Operation, Tape, Var};

struct SegmentMax<'a, B: Backend> {
    matrix: &'a B::Sparse,
    x: Var,
    /// Index of the maximum of each output element. The backward pass takes it and returns it to the pool.
    winners: Cell<Option<B::Ids>>,
}

struct SegmentLstm<'a, B: Backend> {
    matrix: &'a B::Sparse,
    order: Option<Key>,
    inputs: Var,
    weight: Var,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Element-wise maximum of the rows of `x` (`n × f`) that each row of an `m × n` pattern lists; zeros for an
    /// empty row. The gradient of a tie goes to the first maximum.
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

    /// Last state of an LSTM over the rows of `inputs` that each row of an `m × n` pattern lists
    /// ([`SegmentOps::segment_lstm`](girih_compute::SegmentOps::segment_lstm)). `inputs` (`n × 4h`) holds the inputs'
    /// contributions to the gates; `weight` (`h × 4h`) is the recurrent weight. Training reads the rows in a new random
    /// order, evaluation in stored order.
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
