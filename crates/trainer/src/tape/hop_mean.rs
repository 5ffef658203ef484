//! `hop_mean`: mean of `X, Â·X, …, Âᵏ·X`.
//!
//! Horner's rule, `X + Â·(X + Â·(X + …))`, needs two more matrices for any `k`. The backward pass uses it with `Âᵀ`.

use girih_compute::{Backend, ComputeError, Epilogue, Transpose};

use super::graph::Graph;
use super::{BackwardPass, Operation, Pool, Tape, Var};

struct HopMean<'a, B: Backend> {
    graph: &'a Graph<B>,
    x: Var,
    hops: usize,
}

/// Weight of each of the `hops + 1` terms.
fn weight(hops: usize) -> f32 {
    1.0 / (hops + 1) as f32
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Mean of `x` and its first `hops` products with the adjacency.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn hop_mean(&mut self, graph: &'a Graph<B>, x: Var, hops: usize) -> Result<Var, ComputeError> {
        let mut out = self.activations(self.shape(x))?;
        self.backend.scale(weight(hops), self.value(x), &mut out)?;
        add_powers(self.backend, self.pool, (graph, Transpose::No), hops, &mut out)?;
        Ok(self.record(out, &[x], HopMean::<B> { graph, x, hops }))
    }
}

impl<B: Backend> Operation<B> for HopMean<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let mut x_grad = pass.grad_buffer(self.x)?;
        pass.backend.scale(weight(self.hops), &grad, &mut x_grad)?;
        pass.recycle(grad);
        add_powers(pass.backend, pass.pool, (self.graph, Transpose::Yes), self.hops, &mut x_grad)?;
        pass.give(self.x, x_grad)
    }
}

/// Adds `op(A)·Y + op(A)²·Y + …`, up to the power `hops`, to `Y`.
fn add_powers<B: Backend>(
    backend: &B,
    pool: &mut Pool<B>,
    (graph, transpose): (&Graph<B>, Transpose),
    hops: usize,
    y: &mut B::Matrix,
) -> Result<(), ComputeError> {
    if hops == 0 {
        return Ok(());
    }
    let copy_of_y = |pool: &mut Pool<B>, y: &B::Matrix| pool.converted(backend, y, backend.dtype(y));
    // The innermost sum is Y itself. A copy is needed only where a product would read and write the same buffer.
    let mut inner: Option<B::Matrix> = None;
    for _ in 1..hops {
        let mut outer = copy_of_y(pool, y)?;
        let operand = inner.as_ref().unwrap_or(y);
        graph.multiply(backend, pool, transpose, operand, Epilogue::accumulate(), &mut outer)?;
        if let Some(done) = inner.replace(outer) {
            pool.give(backend, done);
        }
    }
    let inner = inner.map_or_else(|| copy_of_y(pool, y), Ok)?;
    graph.multiply(backend, pool, transpose, &inner, Epilogue::accumulate(), y)?;
    pool.give(backend, inner);
    Ok(())
}
