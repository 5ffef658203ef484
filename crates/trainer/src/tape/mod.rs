//! [`Tape`]: the record of one forward pass, walked back for gradients.
//!
//! ```text
//! forward    x ──linear──▶ z ──spmm──▶ h ──linear──▶ …  ──▶ loss      each step appends a node
//! backward   x ◀─────────  z ◀───────  h ◀─────────  …  ◀── loss      each node hands gradients to its operands
//! ```
//! It is no general automatic differentiation: operations are few, coarse and fused (a product with its bias and
//! activation is one node), and each carries its own backward. Buffers come from a [`Pool`] and go back to it, so that
//! from the second step on nothing is allocated.
//!
//! A node's buffers are free as soon as its own backward has run: everything that read its value came later on the
//! tape and so ran earlier on the way back.

mod aggregate;
mod attention;
mod backward;
mod dense;
mod dropout;
mod encoded;
mod epilogue;
mod gather;
mod hop_mean;
mod linear;
mod loss;
mod normalize;
mod pool;
mod segment;
mod spmm;

use girih_compute::{Backend, ComputeError, Dropout, Dtype, Shape};
use girih_random::Key;

pub use aggregate::AggregateOptions;
pub use attention::{AttentionOperands, AttentionOptions};
pub use backward::BackwardPass;
pub use dropout::Masks;
pub use epilogue::Recorded;
pub use linear::LinearOptions;
pub use loss::Loss;
pub(crate) use loss::LossRows;
pub use pool::Pool;
pub use spmm::SpmmOptions;

use crate::distributed::Ranks;
use crate::params::{Gradients, ParamId, Params};

/// A value on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Var(usize);

/// Whether a pass trains or evaluates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Dropouts and orders of sequences draw below this key (one per step); values are kept for the backward pass.
    Train(Key),
    /// Nothing is dropped out, and sequences are read as they are stored.
    Evaluate,
}

/// An operation that was recorded: what takes its gradient back to its operands.
pub trait Operation<B: Backend> {
    /// Hands `grad`, the gradient of this operation's result, on to the operands.
    ///
    /// `grad` may be overwritten and kept: give it to an operand ([`BackwardPass::give`]) or back to the pool
    /// ([`BackwardPass::recycle`]).
    ///
    /// # Errors
    /// When the backend fails.
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, grad: B::Matrix) -> Result<(), ComputeError>;

    /// What the operation ends with, if its way back begins with that.
    fn epilogue(&self) -> Option<Recorded> {
        None
    }

    /// Whether its backward pass waits for rows of other ranks, and computes [deferred](BackwardPass::defer) gradients
    /// meanwhile.
    fn communicates_in_backward(&self) -> bool {
        false
    }

    /// As [`backward`](Self::backward), for a deferred gradient: [`BackwardPass::overlap_with_comm`] passes the product
    /// that it is, to which the gradient of the [epilogue](Self::epilogue) is not applied yet. Called only if the operation
    /// [communicates](Self::communicates_in_backward).
    ///
    /// # Errors
    /// When the backend fails.
    ///
    /// # Panics
    /// When the operation does not communicate.
    fn backward_deferred(&self, _pass: &mut BackwardPass<'_, '_, B>, _out: Var) -> Result<(), ComputeError> {
        panic!("input gradients are deferred only to operations that communicate");
    }
}

enum Value<'a, B: Backend> {
    Owned(B::Matrix),
    Borrowed(&'a B::Matrix),
    /// The buffer was taken over by the operation that added to it.
    Moved(Shape),
}

struct Node<'a, B: Backend> {
    value: Value<'a, B>,
    /// `None` for inputs and parameters.
    operation: Option<Box<dyn Operation<B> + 'a>>,
    param: Option<ParamId>,
    needs_grad: bool,
    /// Operations that read the value, each of which has a share in its gradient.
    n_uses: usize,
    /// Whether the gradient has been taken back through the operation's epilogue.
    is_before_epilogue: bool,
}

/// One forward pass on a backend, recorded.
pub struct Tape<'a, B: Backend> {
    backend: &'a B,
    params: &'a Params<B>,
    pool: &'a mut Pool<B>,
    mode: Mode,
    /// This rank among those that share the work.
    ranks: Option<&'a Ranks<B>>,
    n_draws: u64,
    nodes: Vec<Node<'a, B>>,
    layers: Vec<Var>,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// An empty tape over the parameters of a model.
    pub fn new(backend: &'a B, params: &'a Params<B>, pool: &'a mut Pool<B>, mode: Mode) -> Self {
        Self { backend, params, pool, mode, ranks: None, n_draws: 0, nodes: Vec::new(), layers: Vec::new() }
    }

    /// The same tape on one of several ranks, each of which holds the rows of some nodes.
    #[must_use]
    pub fn among(mut self, ranks: Option<&'a Ranks<B>>) -> Self {
        self.ranks = ranks;
        self
    }

    /// The device that the tape runs on.
    #[must_use]
    pub fn backend(&self) -> &'a B {
        self.backend
    }

    /// Whether this pass trains.
    #[must_use]
    pub fn is_training(&self) -> bool {
        matches!(self.mode, Mode::Train(_))
    }

    /// A constant: no gradient is taken to it.
    pub fn constant(&mut self, matrix: &'a B::Matrix) -> Var {
        self.push(Value::Borrowed(matrix), None, None, false)
    }

    /// A parameter of the model.
    pub fn param(&mut self, id: ParamId) -> Var {
        let matrix = self.params.value(id);
        let needs_grad = self.is_training();
        self.push(Value::Borrowed(matrix), None, Some(id), needs_grad)
    }

    /// The value of `var`.
    ///
    /// # Panics
    /// When the value was consumed as the `add` of another operation.
    #[must_use]
    pub fn value(&self, var: Var) -> &B::Matrix {
        self.nodes[var.0].matrix()
    }

    /// Rows and columns of `var`.
    #[must_use]
    pub fn shape(&self, var: Var) -> Shape {
        match &self.nodes[var.0].value {
            Value::Owned(matrix) => self.backend.shape(matrix),
            Value::Borrowed(matrix) => self.backend.shape(matrix),
            Value::Moved(shape) => *shape,
        }
    }

    /// Whether a gradient will be taken to `var`.
    #[must_use]
    pub fn needs_grad(&self, var: Var) -> bool {
        self.nodes[var.0].needs_grad
    }

    /// A buffer for a result with a row for each node, stored as the backend stores those; its contents are
    /// unspecified.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn activations(&mut self, shape: Shape) -> Result<B::Matrix, ComputeError> {
        self.pool.take(self.backend, shape, self.backend.activations())
    }

    /// A buffer of `f32` for a result; its contents are unspecified.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn buffer(&mut self, shape: Shape) -> Result<B::Matrix, ComputeError> {
        self.pool.take(self.backend, shape, Dtype::F32)
    }

    /// Names `var` as what a layer of the model leaves, for those who look at layers; that nothing may be added to in
    /// place.
    pub fn mark_layer(&mut self, var: Var) {
        self.layers.push(var);
    }

    /// What layers leave, as far as the model has named them.
    #[must_use]
    pub fn layers(&self) -> &[Var] {
        &self.layers
    }

    /// Records the result of an operation on `operands`.
    pub fn record(&mut self, result: B::Matrix, operands: &[Var], operation: impl Operation<B> + 'a) -> Var {
        let needs_grad = operands.iter().any(|&v| self.needs_grad(v));
        operands.iter().for_each(|v| self.nodes[v.0].n_uses += 1);
        let operation: Option<Box<dyn Operation<B> + 'a>> = if needs_grad { Some(Box::new(operation)) } else { None };
        self.push(Value::Owned(result), operation, None, needs_grad)
    }

    /// Keeps a by-product of an operation until its backward has run; no gradient is taken to it.
    pub fn keep(&mut self, matrix: B::Matrix) -> Var {
        self.push(Value::Owned(matrix), None, None, false)
    }

    /// The next dropout of this pass, or `None` when it evaluates or `p` is zero. The draws depend on the step's key
    /// and on how many keys were taken before on this tape.
    pub fn next_dropout(&mut self, p: f64) -> Option<Dropout> {
        if p == 0.0 {
            return None;
        }
        let first_row = self.ranks.map_or(0, |ranks| ranks.own().start);
        self.next_key().map(|key| Dropout::new(p as f32, key).from_row(first_row))
    }

    /// Keys that were taken on this tape.
    #[must_use]
    pub(crate) fn n_draws(&self) -> u64 {
        self.n_draws
    }

    /// The `n` keys that a pass below the key of a step takes.
    pub(crate) fn keys(step: Key, n: u64) -> Vec<Key> {
        (1..=n).map(|draw| step.child(draw)).collect()
    }

    /// The next key of this pass to draw below, or `None` when it evaluates.
    fn next_key(&mut self) -> Option<Key> {
        let Mode::Train(key) = self.mode else { return None };
        self.n_draws += 1;
        Some(key.child(self.n_draws))
    }

    /// Takes `var`, which has a row for each node at hand, off the tape, with the rows of all nodes.
    ///
    /// # Errors
    /// When another rank fails.
    pub(crate) fn gathered(mut self, var: Var) -> Result<B::Matrix, ComputeError> {
        match self.ranks {
            None => Ok(self.consume(var)),
            Some(ranks) => ranks.gather(self.backend, self.pool, self.nodes[var.0].matrix()),
        }
    }

    /// Takes over the buffer of `var`, which nothing may read any more.
    fn consume(&mut self, var: Var) -> B::Matrix {
        let shape = self.shape(var);
        match std::mem::replace(&mut self.nodes[var.0].value, Value::Moved(shape)) {
            Value::Owned(matrix) => matrix,
            Value::Borrowed(_) | Value::Moved(_) => {
                panic!("only a computed value can be added to in place, and only once")
            }
        }
    }

    /// Walks back from `loss` and overwrites `gradients` with the gradient of every parameter that was used: of several
    /// ranks, the sum of those of all. Returns the value of the loss, `1 × 1`, so that the host need not wait for it
    /// before all that follows is on its way.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    ///
    /// # Panics
    /// When the tape evaluates instead of training.
    pub fn backward(mut self, loss: Loss<B>, gradients: &mut Gradients<B>) -> Result<B::Matrix, ComputeError> {
        assert!(self.is_training(), "a tape that evaluates keeps nothing for a backward pass");
        gradients.begin(self.backend, self.params)?;
        let mut pass = BackwardPass {
            backend: self.backend,
            grads: self.nodes.iter().map(|_| None).collect(),
            nodes: std::mem::take(&mut self.nodes),
            pool: self.pool,
            gradients,
            deferred: Vec::new(),
        };
        for (var, grad) in loss.grads {
            pass.grads[var.0] = Some(grad);
        }
        pass.run()?;
        self.ranks.map_or(Ok(()), |ranks| ranks.sum_gradients(gradients))?;
        Ok(loss.value)
    }

    fn push(
        &mut self,
        value: Value<'a, B>,
        operation: Option<Box<dyn Operation<B> + 'a>>,
        param: Option<ParamId>,
        needs_grad: bool,
    ) -> Var {
        self.nodes.push(Node { value, operation, param, needs_grad, n_uses: 0, is_before_epilogue: false });
        Var(self.nodes.len() - 1)
    }
}

impl<B: Backend> Drop for Tape<'_, B> {
    fn drop(&mut self) {
        for node in self.nodes.drain(..) {
            if let Value::Owned(matrix) = node.value {
                self.pool.give(self.backend, matrix);
            }
        }
    }
}

impl<B: Backend> Node<'_, B> {
    fn matrix(&self) -> &B::Matrix {
        match &self.value {
            Value::Owned(matrix) => matrix,
            Value::Borrowed(matrix) => matrix,
            Value::Moved(_) => panic!("the value was consumed by the operation that added to it"),
        }
    }
}
