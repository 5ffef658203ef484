//! Deferred gradients: products of the backward pass that are computed while rows of other ranks travel.
//!
//! Example: two layers over 4 ranks with 8 nodes, 2 on each rank. Rank 1 holds rows 2 and 3 of each matrix.
//! ```text
//! forward     X₁ = relu(Â·(X₀·W₀))      X₂ = Â·(X₁·W₁)              Â: 8 × 8, of which rank 1 has rows 2 and 3
//!
//! backward of X₂ = Â·(X₁·W₁), given ∂X₂ (rows 2 and 3)
//!   1  ∂Z₁ = Âᵀ·∂X₂                      communicates: needs ∂X₂ of rows 0, 1, 4 … 7
//!   2  ∂W₁ = X₁ᵀ·∂Z₁                     deferred: only the optimiser reads it
//!   3  ∂X₁ = (∂Z₁·W₁ᵀ) ⊙ relu′(X₁)       deferred: only step 4 reads it
//! backward of X₁ = relu(Â·(X₀·W₀))
//!   4  ∂Z₀ = Âᵀ·∂X₁                      communicates: needs ∂X₁ of rows 0, 1, 4 … 7
//!
//! time ──▶    GEMM    ∂X₁[:, 0..128]   ∂X₁[:, 128..256]   ∂W₁ (2)    Âᵀ·∂X₁, as rows arrive
//!             links                    ∂X₁[:, 0..128]     ∂X₁[:, 128..256]
//! ```
//! Step 4 computes `∂X₁` one feature chunk at a time and sends each chunk while it computes the next
//! ([`DeferredInputGrad`]). It computes `∂W₁` while the last chunks travel ([`DeferredGrads`]). Without an operation that
//! communicates, all are computed at once ([`BackwardPass::flush_deferred`]).
//!
//! Slices of columns (2D, 3D) exchange `∂X₁` as a whole before the product, so that step 3 is computed before anything
//! is sent, and only `∂W₁` overlaps.

use girih_compute::{Backend, ComputeError, Dropout, Epilogue, Transpose};

use super::params::Gradients;
use super::ranks::OverlappedWork;
use super::{BackwardPass, Node, Pool, Value, Var};

/// Deferred gradients of weights, `∂W = dropout(X)ᵀ·∂Z` for each operand `X` and its weight `W`. They are computed
/// while the rank waits for rows of other ranks.
pub(super) struct DeferredGrads<B: Backend> {
    pub(super) terms: Vec<(Var, Var)>,
    pub(super) dropout: Option<Dropout>,
    /// `∂Z`, returned to the pool once the gradients are computed.
    pub(super) grad: B::Matrix,
    /// If true, `∂X = ∂Z·Wᵀ` is not computed here: the next distributed aggregate computes it one feature chunk at a
    /// time, so that sending overlaps the product. There is one term, and `X` has a single consumer.
    pub(super) defers_input_grad: bool,
}

impl<B: Backend> DeferredGrads<B> {
    /// Computes the gradients from the values of `nodes`.
    fn compute(
        &self,
        (backend, nodes): (&B, &[Node<'_, B>]),
        gradients: &mut Gradients<B>,
    ) -> Result<(), ComputeError> {
        for &(x, weight) in self.terms.iter().rev() {
            let Node { param: Some(param), needs_grad: true, .. } = nodes[weight.0] else { continue };
            let (mut weight_grad, accumulate) = gradients.take(param);
            weight_gradient(backend, (nodes[x.0].matrix(), self.dropout), &self.grad, &mut weight_grad, accumulate)?;
            gradients.put(param, weight_grad);
        }
        Ok(())
    }
}

/// Deferred gradient `∂Z·Wᵀ` of `y`. The operation that produced `y` computes it.
pub(super) struct DeferredInputGrad<'p, B: Backend> {
    pub(super) dz: &'p B::Matrix,
    pub(super) weight: &'p B::Matrix,
    pub(super) y: &'p B::Matrix,
}

impl<'a, B: Backend> BackwardPass<'_, 'a, B> {
    /// Whether `x` needs a gradient, and the backward of the operation that produced it communicates. Gradients of
    /// weights may then be [deferred](Self::defer) until that.
    pub(super) fn producer_communicates(&self, x: Var) -> bool {
        self.needs_grad(x) && self.communicates(x)
    }

    /// Whether the backward of the operation that produced `var` communicates.
    fn communicates(&self, var: Var) -> bool {
        self.nodes[var.0].operation.as_ref().is_some_and(|operation| operation.communicates_in_backward())
    }

    /// Defers gradients of weights until the rank waits for other ranks.
    ///
    /// # Errors
    /// When the backend fails.
    pub(super) fn defer(&mut self, gradients: DeferredGrads<B>) -> Result<(), ComputeError> {
        if gradients.defers_input_grad && self.deferred_input().is_some() {
            self.flush_deferred()?;
        }
        self.deferred.push(gradients);
        Ok(())
    }

    /// Value whose gradient is deferred, if any.
    pub(super) fn deferred_input(&self) -> Option<Var> {
        self.deferred.iter().find(|deferred| deferred.defers_input_grad).map(|deferred| deferred.terms[0].0)
    }

    /// Runs `communicate`, which computes the deferred gradients while rows of other ranks arrive. Its argument is
    /// the deferred gradient of an input, if there is one.
    pub(super) fn overlap_with_comm<T>(
        &mut self,
        communicate: impl FnOnce(&'a B, &mut Pool<B>, Option<DeferredInputGrad<'_, B>>, &mut OverlappedWork<'_>) -> T,
    ) -> T {
        let Self { backend, pool, nodes, gradients, deferred, .. } = self;
        let (backend, nodes, deferred) = (*backend, &nodes[..], std::mem::take(deferred));
        let input_grad = deferred.iter().find(|deferred| deferred.defers_input_grad).map(|deferred| {
            let (y, weight) = deferred.terms[0];
            DeferredInputGrad { dz: &deferred.grad, weight: nodes[weight.0].matrix(), y: nodes[y.0].matrix() }
        });
        let done = communicate(backend, pool, input_grad, &mut || {
            deferred.iter().try_for_each(|deferred| deferred.compute((backend, nodes), gradients))
        });
        deferred.into_iter().for_each(|deferred| pool.give(backend, deferred.grad));
        done
    }

    /// Preparation of the backward of `var`, which is the next one: deferred gradients are computed now, unless it
    /// overlaps them with its communication, or they can still wait for another that does.
    ///
    /// # Errors
    /// When the backend fails.
    pub(super) fn flush_unless_overlapped(&mut self, var: Var) -> Result<(), ComputeError> {
        let (communicates, deferred) = (self.communicates(var), self.deferred_input());
        let has_grad = deferred == Some(var) || (deferred.is_none() && self.grads[var.0].is_some());
        let overlaps = communicates && has_grad;
        // Deferred gradients read values of earlier nodes, so they are computed before one of these is freed.
        if !overlaps && (communicates || matches!(self.nodes[var.0].value, Value::Owned(_))) {
            self.flush_deferred()?;
        }
        Ok(())
    }

    /// Computes all deferred gradients now, without overlapping communication.
    pub(super) fn flush_deferred(&mut self) -> Result<(), ComputeError> {
        for deferred in std::mem::take(&mut self.deferred) {
            deferred.compute((self.backend, &self.nodes), self.gradients)?;
            if deferred.defers_input_grad {
                let (x, weight) = deferred.terms[0];
                let epilogue = self.next_epilogue(x).expect("an input gradient is deferred because of its epilogue");
                epilogue.backward_of_product(self, x, &deferred.grad, (weight, Transpose::Yes))?;
            }
            self.recycle(deferred.grad);
        }
        Ok(())
    }
}

/// Computes `∂W = dropout(X)ᵀ·∂Z`, or adds it to `weight_grad` if `accumulate`.
pub(super) fn weight_gradient<B: Backend>(
    backend: &B,
    (x, dropout): (&B::Matrix, Option<Dropout>),
    dz: &B::Matrix,
    weight_grad: &mut B::Matrix,
    accumulate: bool,
) -> Result<(), ComputeError> {
    let epilogue = Epilogue { accumulate, ..Epilogue::default() };
    backend.gemm((x, Transpose::Yes), dropout, (dz, Transpose::No), epilogue, weight_grad)
}
