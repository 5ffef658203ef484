//! [`PartitionedGraph`]: the blocks of the adjacency that a rank holds, and how it multiplies with them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use girih_compute::{Activation, Backend, ComputeError, Dtype, Epilogue, Transpose};

use super::blocks::{BlockSource, Blocks, Pattern, travelling};
use super::operand::{LocalOperand, Operand};
use super::product::{OverlappedWork, Product, Sums};
use super::ranks::Ranks;
use crate::tape::Pool;

/// Products of blocks that are added up where a sum is rounded each time. More of them are added up as `f32`, and
/// rounded once.
const ROUNDED_MAX: usize = 2;

/// The adjacency as one rank sees it.
pub struct PartitionedGraph<B: Backend> {
    ranks: Arc<Ranks<B>>,
    adjacency: Arc<dyn BlockSource<B>>,
    /// For each direction, built when it is first needed.
    blocks: [OnceLock<Blocks<B>>; 2],
    pattern: OnceLock<Pattern<B>>,
    /// Set while operands travel as they are stored.
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

    /// Whether operands of `f32` are rounded before they travel.
    pub(crate) fn rounds(&self) -> bool {
        self.adjacency.wire() != Dtype::F32
    }

    /// Does some work for which operands travel as they are stored; all ranks call it together.
    pub(crate) fn unrounded<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.is_exact.swap(true, Ordering::Relaxed);
        let done = work();
        self.is_exact.store(before, Ordering::Relaxed);
        done
    }

    /// How operands of `f32` travel.
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

    /// `out = epilogue(op(Â)·X)` for the rank's own `rows` of `X` and those of `out`; all ranks call it together.
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

    /// As [`multiply`](Self::multiply), with work of this rank that overlaps it: `overlap` runs while the first rows of
    /// other ranks travel.
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
        // Own rows are multiplied as they travel, times factors and rounded: how many ranks there are changes no
        // operand.
        let travelling = travelling(rows.dtype(backend), self.wire());
        let operand = Operand { rows, factors: blocks.factors.as_ref(), dtype: travelling };
        let mut product = Product { ranks: &self.ranks, backend, pool, overlap };
        let is_sum = self.ranks.slices.is_none() && self.ranks.sums.is_none();
        if is_sum && (backend.dtype(out) == Dtype::F32 || blocks.n_products() <= ROUNDED_MAX) {
            // Nothing follows the steps: they add up where the result belongs.
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

    /// The rank's own rows of `Â`, and where the rows come from that their columns stand for.
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
