//! [`PartitionedGraph`]: the blocks of the adjacency that a rank holds, and products with them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use girih_compute::{Activation, Backend, ComputeError, Dtype, Epilogue, Transpose};

use super::blocks::{BlockSource, Blocks, Pattern, travelling};
use super::context::Ranks;
use super::operand::{LocalOperand, Operand};
use super::spmm::{OverlappedWork, Product, Sums};
use crate::tape::Pool;

/// Maximal number of block products that are added up in the type of the result, with a rounding each time. More
/// products are added up in `f32` and rounded once.
const ROUNDED_MAX: usize = 2;

/// Adjacency as one rank sees it.
pub struct PartitionedGraph<B: Backend> {
    ranks: Arc<Ranks<B>>,
    adjacency: Arc<dyn BlockSource<B>>,
    /// Blocks of `Â` and of its transpose, created at first use.
    blocks: [OnceLock<Blocks<B>>; 2],
    pattern: OnceLock<Pattern<B>>,
    /// Set while operands are sent in the type that they are stored in.
    is_exact: AtomicBool,
}

impl<B: Backend> PartitionedGraph<B> {
    pub(crate) fn new(ranks: Arc<Ranks<B>>, adjacency: Arc<dyn BlockSource<B>>) -> Self {
        Self {
            ranks,
            adjacency,
            blocks: Default::default(),
            pattern: OnceLock::new(),
            is_exact: AtomicBool::new(false),
        }
    }

    /// Whether `f32` operands are rounded before they are sent.
    pub(crate) fn rounds(&self) -> bool {
        self.adjacency.wire() != Dtype::F32
    }

    /// Runs `work` with operands sent in the type that they are stored in; all ranks call it together.
    pub(crate) fn unrounded<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.is_exact.swap(true, Ordering::Relaxed);
        let done = work();
        self.is_exact.store(before, Ordering::Relaxed);
        done
    }

    /// Type in which `f32` operands are sent.
    pub(crate) fn wire(&self) -> Dtype {
        if self.is_exact.load(Ordering::Relaxed) { Dtype::F32 } else { self.adjacency.wire() }
    }

    fn blocks(&self, backend: &B, transpose: Transpose) -> Result<&Blocks<B>, ComputeError> {
        let slot = &self.blocks[usize::from(transpose == Transpose::Yes)];
        if slot.get().is_none() {
            let _ = slot.set(self.adjacency.blocks(backend, &self.ranks, transpose)?);
        }
        Ok(slot.get().expect("just set"))
    }

    /// `out = epilogue(op(Â)·X)`, for the rank's own `rows` of `X` and its own rows of `out`; all ranks call it
    /// together.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn multiply(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        transpose: Transpose,
        rows: LocalOperand<'_, B>,
        epilogue: &Epilogue<'_, B::Matrix>,
        out: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        self.spmm_overlapped(backend, (pool, &mut || Ok(())), transpose, rows, epilogue, out)
    }

    /// As [`multiply`](Self::multiply), but `overlap` runs while the first rows of other ranks are sent.
    ///
    /// # Errors
    /// When the backend, another rank or the overlapped work fails.
    pub(crate) fn spmm_overlapped(
        &self,
        backend: &B,
        (pool, overlap): (&mut Pool<B>, &mut OverlappedWork<'_>),
        transpose: Transpose,
        rows: LocalOperand<'_, B>,
        epilogue: &Epilogue<'_, B::Matrix>,
        out: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        let blocks = self.blocks(backend, transpose)?;
        // Own rows are multiplied as they are sent: scaled and rounded. The number of ranks thus changes no operand.
        let travelling = travelling(rows.dtype(backend), self.wire());
        let operand = Operand { rows, factors: blocks.factors.as_ref(), dtype: travelling };
        let mut product = Product { ranks: &self.ranks, backend, pool, overlap };
        let is_sum = self.ranks.slices.is_none() && self.ranks.sums.is_none();
        if is_sum && (backend.dtype(out) == Dtype::F32 || blocks.n_products() <= ROUNDED_MAX) {
            // No reduction follows the steps, so that they add up in the result itself.
            return product.steps(blocks, operand, &mut Sums::Out(out, epilogue));
        }
        let sums = product.summed(blocks, operand)?;
        if epilogue.accumulate {
            backend.add_scaled(1.0, &sums, out)?;
        } else {
            backend.convert(&sums, out)?;
        }
        pool.give(backend, sums);
        if epilogue.bias.is_some() || epilogue.activation != Activation::Identity {
            backend.activate(epilogue.activation, epilogue.bias, out)?;
        }
        epilogue.dropout.map_or(Ok(()), |dropout| backend.dropout_in_place(dropout, out))
    }

    /// Own rows of `Â`, and the exchange that brings the rows of their columns.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn pattern(&self, backend: &B) -> Result<&Pattern<B>, ComputeError> {
        if self.pattern.get().is_none() {
            let _ = self.pattern.set(self.adjacency.pattern(backend, &self.ranks)?);
        }
        Ok(self.pattern.get().expect("just set"))
    }
}
