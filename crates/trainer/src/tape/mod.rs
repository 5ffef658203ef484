//! [`Tape`]: record of one forward pass, replayed in reverse for gradients.
//!
//! ```text
//! forward    x ──linear──▶ z ──spmm──▶ h ──linear──▶ …  ──▶ loss      each step appends a node
//! backward   x ◀─────────  z ◀───────  h ◀─────────  …  ◀── loss      each node hands gradients to its operands
//! ```
//! This is no general automatic differentiation. Operations are few, coarse and fused: a product with its bias and
//! activation is one node. Each operation has its own backward. Buffers come from a [`Pool`] and return to it, so
//! that nothing is allocated from the second step on.
//!
//! Buffers of a node are free as soon as its backward has run. All readers of its value come later on the tape, so
//! their backward ran earlier.

mod aggregate;
mod attention;
mod backward;
mod deferred;
mod dense;
mod dropout;
mod encoded;
mod encoded_input;
mod epilogue;
mod function;
mod gather;
mod graph;
mod hop_mean;
mod linear;
mod loss;
mod normalize;
mod params;
mod pool;
pub(crate) mod ranks;
mod relations;
mod rows;
mod segment;
mod spmm;
mod targets;

use girih_compute::{Activation, Backend, ComputeError, Dropout, Dtype, Shape};
use girih_random::Key;

use self::ranks::Ranks;

pub use aggregate::AggregateOptions;
pub use attention::{AttentionOperands, AttentionOptions};
pub use backward::BackwardPass;
pub use dropout::Masks;
pub use encoded_input::EncodedInput;
pub use graph::{BlockEdges, BlockGraph, Graph};
pub use linear::LinearOptions;
pub use loss::Loss;
pub(crate) use loss::LossRows;
pub use params::{Gradients, ParamId, ParamInit, Params, RowIds};
pub(crate) use params::{Param, RowGradient};
pub use pool::Pool;
pub use rows::Diagonal;
pub use spmm::SpmmOptions;
pub use targets::{Part, Targets};

/// Index of a value on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Var(usize);

/// Mode of a pass: training or evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Training. Dropout masks and sequence orders draw below this key, one key per step. Values are kept for the
    /// backward pass.
    Train(Key),
    /// Evaluation, without dropout and with sequences in stored order.
    Evaluate,
}

/// Epilogue of a recorded operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded {
    /// Bias, one row, added to every row.
    pub bias: Option<Var>,
    /// Activation applied to the sum.
    pub activation: Activation,
    /// Dropout of the result of ReLU.
    pub mask: Option<Dropout>,
    /// Earlier result that the sum was added to, in place.
    pub add: Option<Var>,
}

/// Recorded operation, which propagates its gradient to its operands.
pub trait Operation<B: Backend> {
    /// Propagates `grad`, the gradient of this operation's result, to the operands.
    ///
    /// The operation owns `grad` and may overwrite it. It gives it to an operand ([`BackwardPass::give`]) or back to
    /// the pool ([`BackwardPass::recycle`]).
    ///
    /// # Errors
    /// When the backend fails.
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, grad: B::Matrix) -> Result<(), ComputeError>;

    /// Epilogue of the operation, if its backward starts with the epilogue's gradient.
    fn epilogue(&self) -> Option<Recorded> {
        None
    }

    /// Whether the backward waits for rows of other ranks, and meanwhile computes [deferred](BackwardPass::defer)
    /// gradients.
    fn communicates_in_backward(&self) -> bool {
        false
    }

    /// As [`backward`](Self::backward), but for a deferred gradient. [`BackwardPass::overlap_with_comm`] passes the
    /// gradient as an unevaluated product, before the gradient of the [epilogue](Self::epilogue). Called only if the
    /// operation [communicates](Self::communicates_in_backward).
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
    /// The operation that added to the value took over its buffer.
    Moved(Shape),
}

struct Node<'a, B: Backend> {
    value: Value<'a, B>,
    /// Operation that computed the value; `None` for inputs and parameters.
    operation: Option<Box<dyn Operation<B> + 'a>>,
    param: Option<ParamId>,
    needs_grad: bool,
    /// Number of operations that read the value. Each contributes to its gradient.
    n_uses: usize,
    /// Whether the stored gradient has the epilogue's gradient applied.
    is_before_epilogue: bool,
}

/// Record of one forward pass on a backend.
pub struct Tape<'a, B: Backend> {
    backend: &'a B,
    params: &'a Params<B>,
    pool: &'a mut Pool<B>,
    mode: Mode,
    /// This rank and its world; `None` for a single rank.
    ranks: Option<&'a Ranks<B>>,
    /// Whether other ranks compute other nodes of the same mini-batch.
    is_batch_share: bool,
    n_draws: u64,
    nodes: Vec<Node<'a, B>>,
    layers: Vec<Var>,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// An empty tape over the parameters of a model.
    pub fn new(backend: &'a B, params: &'a Params<B>, pool: &'a mut Pool<B>, mode: Mode) -> Self {
        Self {
            backend,
            params,
            pool,
            mode,
            ranks: None,
            is_batch_share: false,
            n_draws: 0,
            nodes: Vec::new(),
            layers: Vec::new(),
        }
    }

    /// This tape on one of several ranks, each of which holds the rows of some nodes.
    #[must_use]
    pub fn among(mut self, ranks: Option<&'a Ranks<B>>) -> Self {
        self.ranks = ranks;
        self
    }

    /// This tape for a share of a mini-batch, if `is_share`: other ranks compute its other nodes.
    #[must_use]
    pub(crate) fn on_batch_share(mut self, is_share: bool) -> Self {
        self.is_batch_share = is_share;
        self
    }

    /// Whether ranks each compute a share of a batch.
    fn shares_batch(&self) -> bool {
        self.is_batch_share
    }

    /// Backend that the tape runs on.
    #[must_use]
    pub fn backend(&self) -> &'a B {
        self.backend
    }

    /// Whether this pass trains.
    #[must_use]
    pub fn is_training(&self) -> bool {
        matches!(self.mode, Mode::Train(_))
    }

    /// A constant, without gradient.
    pub fn constant(&mut self, matrix: &'a B::Matrix) -> Var {
        self.push(Value::Borrowed(matrix), None, None, false)
    }

    /// A parameter of the model.
    pub fn param(&mut self, id: ParamId) -> Var {
        let matrix = self.params.value(id);
        let needs_grad = self.is_training();
        self.push(Value::Borrowed(matrix), None, Some(id), needs_grad)
    }

    /// Value of `var`.
    ///
    /// # Panics
    /// When another operation consumed the value as its `add`.
    #[must_use]
    pub fn value(&self, var: Var) -> &B::Matrix {
        self.nodes[var.0].matrix()
    }

    /// Shape of `var`.
    #[must_use]
    pub fn shape(&self, var: Var) -> Shape {
        match &self.nodes[var.0].value {
            Value::Owned(matrix) => self.backend.shape(matrix),
            Value::Borrowed(matrix) => self.backend.shape(matrix),
            Value::Moved(shape) => *shape,
        }
    }

    /// Whether a gradient of `var` is computed.
    #[must_use]
    pub fn needs_grad(&self, var: Var) -> bool {
        self.nodes[var.0].needs_grad
    }

    /// A buffer for a result with a row per node, of the backend's activation type, with unspecified contents.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn activations(&mut self, shape: Shape) -> Result<B::Matrix, ComputeError> {
        self.pool.take(self.backend, shape, self.backend.activations())
    }

    /// A buffer of `f32` for a result, with unspecified contents.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn buffer(&mut self, shape: Shape) -> Result<B::Matrix, ComputeError> {
        self.pool.take(self.backend, shape, Dtype::F32)
    }

    /// Marks `var` as a layer's output, for analyses of layers. Nothing may be added to it in place.
    pub fn mark_layer(&mut self, var: Var) {
        self.layers.push(var);
    }

    /// Layer outputs that the model has marked.
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

    /// Constant matrix with the element `value(row, column)`.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn made(&mut self, shape: Shape, value: impl Fn(usize, usize) -> f32) -> Result<Var, ComputeError> {
        let row = |row: usize| (0..shape.cols).map(move |col| (row, col));
        let mut values = || (0..shape.rows).flat_map(row).map(|(row, col)| value(row, col)).collect();
        let mut out = self.buffer(shape)?;
        self.backend().write_made(&mut values, &mut out)?;
        Ok(self.keep(out))
    }

    /// Keeps a by-product of an operation until its backward has run; it has no gradient.
    pub fn keep(&mut self, matrix: B::Matrix) -> Var {
        self.push(Value::Owned(matrix), None, None, false)
    }

    /// Next dropout of this pass; `None` in evaluation or if `p` is zero. The mask depends on the key of the step and
    /// on the number of keys drawn before on this tape.
    pub fn next_dropout(&mut self, p: f64) -> Option<Dropout> {
        if p == 0.0 {
            return None;
        }
        let first_row = self.ranks.map_or(0, |ranks| ranks.own().start);
        self.next_key().map(|key| Dropout::new(p as f32, key).from_row(first_row))
    }

    /// Number of keys drawn on this tape.
    #[must_use]
    pub(crate) fn n_draws(&self) -> u64 {
        self.n_draws
    }

    /// First `n` keys of a pass with the key `step`.
    pub(crate) fn keys(step: Key, n: u64) -> Vec<Key> {
        (1..=n).map(|draw| step.child(draw)).collect()
    }

    /// Next random key of this pass; `None` in evaluation.
    fn next_key(&mut self) -> Option<Key> {
        let Mode::Train(key) = self.mode else { return None };
        self.n_draws += 1;
        Some(key.child(self.n_draws))
    }

    /// Takes `var`, with a row per local node, off the tape and gathers the rows of all nodes.
    ///
    /// # Errors
    /// When another rank fails.
    pub(crate) fn gathered(mut self, var: Var) -> Result<B::Matrix, ComputeError> {
        match self.ranks {
            None => Ok(self.consume(var)),
            Some(ranks) => ranks.gather(self.backend, self.pool, self.nodes[var.0].matrix()),
        }
    }

    /// Takes over the buffer of `var`. Nothing may read `var` afterwards.
    fn consume(&mut self, var: Var) -> B::Matrix {
        let shape = self.shape(var);
        match std::mem::replace(&mut self.nodes[var.0].value, Value::Moved(shape)) {
            Value::Owned(matrix) => matrix,
            Value::Borrowed(_) | Value::Moved(_) => {
                panic!("only a computed value can be added to in place, and only once")
            }
        }
    }

    /// Runs the backward pass from `loss` and overwrites `gradients` with the gradient of every used parameter,
    /// summed over ranks. Returns the loss, `1 × 1`, on the device: the host need not wait for it before it launches
    /// further work.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    ///
    /// # Panics
    /// When the tape is in evaluation mode.
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
