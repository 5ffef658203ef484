//! `aggregate`, `neighbors` and `destinations`: operations of any [`Graph`] on rows of its nodes. `fetch`: the halo
//! exchange.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Dtype, Epilogue, Shape, Transpose};

use super::deferred::DeferredInputGrad;
use super::graph::{BlockGraph, Graph};
use super::linear::Linear;
use super::ranks::{EpilogueBackward, HaloExchange, LazyGemm, LocalOperand, PartitionedGraph, Pattern};
use super::{BackwardPass, LinearOptions, Operation, Recorded, SpmmOptions, Tape, Var};

/// Options of a [`Tape::aggregate`] besides its operands.
#[derive(Clone, Copy, Debug, Default)]
pub struct AggregateOptions {
    /// Bias, one row, added to every row of the result.
    pub bias: Option<Var>,
    /// Activation applied to the sum.
    pub activation: Activation,
    /// Dropout of the result of ReLU. The stored result determines the gradient, so that its consumer needs no
    /// dropout.
    pub mask: Option<Dropout>,
    /// A result of the same shape without other consumers. The sum is written to its buffer, in place.
    pub add: Option<Var>,
}

struct Aggregated<'a, B: Backend> {
    graph: &'a PartitionedGraph<B>,
    operand: AggregateInput,
    epilogue: Recorded,
}

/// Operand of an aggregation.
#[derive(Clone, Copy)]
enum AggregateInput {
    Rows(Var),
    /// Product of rows and a weight, which is not stored.
    Product(Var, Var),
}

struct Fetched<'a, B: Backend> {
    rows: &'a HaloExchange<B>,
    x: Var,
    wire: Dtype,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Computes `mask ⊙ activation(Â·X + add + bias)` with one row of `x` per local node. For a mini-batch, `x` has
    /// one row per source, and the result one per destination.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend or another rank fails.
    pub fn aggregate(&mut self, graph: &'a Graph<B>, x: Var, options: AggregateOptions) -> Result<Var, ComputeError> {
        let AggregateOptions { bias, activation, mask, add } = options;
        match graph {
            Graph::Whole(matrix) | Graph::Block(BlockGraph { matrix, .. }) => {
                self.spmm(matrix, x, SpmmOptions { weights: None, bias, activation, mask, add })
            }
            Graph::Partitioned(graph) => {
                self.aggregate_cut(graph, AggregateInput::Rows(x), Recorded { bias, activation, mask, add })
            }
        }
    }

    /// Computes `mask ⊙ activation(Â·(X·W) + add + bias)`. On a partitioned graph, sending chunks of columns of `X·W`
    /// overlaps computing further chunks.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend or another rank fails.
    pub fn aggregate_product(
        &mut self,
        graph: &'a Graph<B>,
        (x, weight): (Var, Var),
        options: AggregateOptions,
    ) -> Result<Var, ComputeError> {
        let AggregateOptions { bias, activation, mask, add } = options;
        match graph {
            Graph::Whole(_) | Graph::Block(_) => {
                let product = self.linear(x, weight, LinearOptions::default())?;
                self.aggregate(graph, product, options)
            }
            Graph::Partitioned(graph) => {
                self.aggregate_cut(graph, AggregateInput::Product(x, weight), Recorded { bias, activation, mask, add })
            }
        }
    }

    fn aggregate_cut(
        &mut self,
        graph: &'a PartitionedGraph<B>,
        operand: AggregateInput,
        epilogue: Recorded,
    ) -> Result<Var, ComputeError> {
        let (shape, operands) = match operand {
            AggregateInput::Rows(x) => (self.shape(x), vec![x]),
            AggregateInput::Product(x, weight) => {
                (Shape::new(self.shape(x).rows, self.shape(weight).cols), vec![x, weight])
            }
        };
        let (mut out, accumulate) = epilogue.target(self, shape)?;
        let value = |var: Var| self.nodes[var.0].matrix();
        let rows = match operand {
            AggregateInput::Rows(x) => LocalOperand::Matrix(value(x)),
            AggregateInput::Product(x, weight) => {
                let weight = (value(weight), Transpose::No);
                LocalOperand::LazyGemm(LazyGemm { x: value(x), weight, through: None })
            }
        };
        let Recorded { bias, activation, mask, .. } = epilogue;
        let applied = Epilogue { accumulate, bias: bias.map(value), activation, dropout: mask };
        graph.multiply(self.backend, self.pool, Transpose::No, rows, &applied, &mut out)?;
        let operands: Vec<Var> = operands.into_iter().chain(epilogue.operands()).collect();
        Ok(self.record(out, &operands, Aggregated::<B> { graph, operand, epilogue }))
    }

    /// Pattern of the local rows, and the rows of `x` for its columns. For a whole graph these are all rows. For a
    /// partitioned graph they are the local rows' neighbors, fetched from their ranks.
    ///
    /// Operations on patterns (attention, maxima, sequences) use the two like a whole graph.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub fn neighbors(&mut self, graph: &'a Graph<B>, x: Var) -> Result<(&'a B::Sparse, Var), ComputeError> {
        match graph {
            Graph::Whole(matrix) | Graph::Block(BlockGraph { matrix, .. }) => Ok((matrix, x)),
            Graph::Partitioned(graph) => {
                let Pattern { matrix, rows } = graph.pattern(self.backend)?;
                Ok((matrix, self.fetch(rows, x, graph.wire())?))
            }
        }
    }

    /// Rows of the destinations, of an `x` with a row per source. `x` itself if sources and destinations are equal.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn destinations(&mut self, graph: &'a Graph<B>, x: Var) -> Result<Var, ComputeError> {
        match graph {
            Graph::Whole(_) | Graph::Partitioned(_) => Ok(x),
            Graph::Block(block) => match &block.in_place {
                Some(ids) => self.gather_rows(x, ids, block.n_destinations),
                None => self.first_rows(x, block.n_destinations),
            },
        }
    }

    /// Halo exchange: rows of nodes that other ranks may hold, of an `x` with a row per local node. Rows and
    /// gradients of `f32` are sent as `wire`.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn fetch(&mut self, rows: &'a HaloExchange<B>, x: Var, wire: Dtype) -> Result<Var, ComputeError> {
        let fetched = rows.fetch(self.backend, self.pool, self.nodes[x.0].matrix(), wire)?;
        Ok(self.record(fetched, &[x], Fetched { rows, x, wire }))
    }
}

impl<B: Backend> Aggregated<'_, B> {
    /// Passes `∂X = Âᵀ·∂Z` to the operand, or runs the backward of the operand's product on it. Every rank takes part
    /// in computing `∂X`, even if it does not need it. `∂X` has the type of `∂Z`, so that further products in bf16
    /// use bf16.
    fn hand_on(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, x_grad: B::Matrix) -> Result<(), ComputeError> {
        match self.operand {
            AggregateInput::Rows(x) => pass.give(x, x_grad),
            AggregateInput::Product(x, weight) => Linear::plain(x, weight).backward(pass, out, x_grad),
        }
    }
}

impl<B: Backend> Operation<B> for Aggregated<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        self.epilogue.backward(pass, out, &mut grad)?;
        let mut x_grad = pass.pool.take_like(pass.backend, &grad)?;
        pass.overlap_with_comm(|backend, pool, _, overlap| {
            let rows = LocalOperand::Matrix(&grad);
            self.graph.spmm_overlapped(
                backend,
                (pool, overlap),
                Transpose::Yes,
                rows,
                &Epilogue::default(),
                &mut x_grad,
            )
        })?;
        self.epilogue.finish(pass, grad)?;
        self.hand_on(pass, out, x_grad)
    }

    fn backward_deferred(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var) -> Result<(), ComputeError> {
        let mut bias_grad = self.epilogue.bias_buffer(pass)?;
        let mut x_grad = pass.grad_buffer(out)?;
        pass.overlap_with_comm(|backend, pool, input_grad, overlap| {
            let DeferredInputGrad { dz, weight, y } = input_grad.expect("the gradient is deferred");
            let through = EpilogueBackward { slope: self.epilogue.slope(), y, bias_grad: bias_grad.as_mut() };
            let product = LazyGemm { x: dz, weight: (weight, Transpose::Yes), through: Some(through) };
            let (rows, plain) = (LocalOperand::LazyGemm(product), Epilogue::default());
            self.graph.spmm_overlapped(backend, (pool, overlap), Transpose::Yes, rows, &plain, &mut x_grad)
        })?;
        self.epilogue.give_bias(pass, bias_grad)?;
        self.hand_on(pass, out, x_grad)
    }

    fn epilogue(&self) -> Option<Recorded> {
        Some(self.epilogue)
    }

    fn communicates_in_backward(&self) -> bool {
        true
    }
}

impl<B: Backend> Operation<B> for Fetched<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let x_grad = self.rows.give_back(pass.backend, pass.pool, &grad, self.wire)?;
        pass.recycle(grad);
        pass.give(self.x, x_grad)
    }
}
