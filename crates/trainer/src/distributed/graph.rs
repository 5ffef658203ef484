//! [`CutGraph`]: the blocks of the adjacency that a rank holds, and how it multiplies with them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use girih_compute::{Activation, Backend, ComputeError, Dtype, Epilogue, Shape, Transpose};
use girih_partition::{Reduce, Slicing};

use super::blocks::{BlockSource, Blocks, Pattern, Stage, StageExchange};
use super::ranks::{Ranks, failed};
use super::rows::Arriving;
use crate::tape::Pool;

/// Stages whose rows travel or are here at a time: one is multiplied while the other comes.
const AHEAD: usize = 2;

/// The adjacency as one rank sees it.
pub struct CutGraph<B: Backend> {
    ranks: Arc<Ranks<B>>,
    adjacency: Arc<dyn BlockSource<B>>,
    /// For each direction, built when it is first needed.
    blocks: [OnceLock<Blocks<B>>; 2],
    pattern: OnceLock<Pattern<B>>,
}

impl<B: Backend> CutGraph<B> {
    pub(crate) fn new(ranks: Arc<Ranks<B>>, adjacency: Arc<dyn BlockSource<B>>) -> Self {
        Self { ranks, adjacency, blocks: Default::default(), pattern: OnceLock::new() }
    }

    fn blocks(&self, backend: &B, transpose: Transpose) -> Result<&Blocks<B>, ComputeError> {
        let slot = &self.blocks[usize::from(transpose == Transpose::Yes)];
        if slot.get().is_none() {
            let _ = slot.set(self.adjacency.blocks(backend, &self.ranks, transpose)?);
        }
        Ok(slot.get().expect("just set"))
    }

    /// `out = epilogue(op(Â)·X)` for the rank's own rows of `X` and `out`; all ranks call it together.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn multiply(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        transpose: Transpose,
        x: &B::Matrix,
        epilogue: &Epilogue<'_, B::Matrix>,
        out: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        let blocks = self.blocks(backend, transpose)?;
        let dtype = backend.dtype(x);
        let travelling = self.adjacency.travelling(dtype);
        if travelling == dtype {
            return self.multiply_travelling(backend, pool, blocks, x, epilogue, out);
        }
        let mut operand = pool.take(backend, backend.shape(x), travelling)?;
        backend.convert(x, &mut operand)?;
        self.multiply_travelling(backend, pool, blocks, &operand, epilogue, out)?;
        pool.give(backend, operand);
        Ok(())
    }

    /// `out = epilogue(blocks·X)` for `X` as it travels, own rows among them: how many ranks there are changes no operand.
    fn multiply_travelling(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        blocks: &Blocks<B>,
        x: &B::Matrix,
        epilogue: &Epilogue<'_, B::Matrix>,
        out: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        let mut product = Product { ranks: &self.ranks, backend, pool };
        let is_sum = self.ranks.slices.is_none() && self.ranks.sums.is_none();
        if is_sum && backend.dtype(out) == Dtype::F32 {
            // Nothing follows the steps: they add up where the result belongs.
            return product.steps(blocks, x, epilogue, out);
        }
        let sums = product.summed(blocks, x)?;
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

/// A product under way.
struct Product<'p, B: Backend> {
    ranks: &'p Ranks<B>,
    backend: &'p B,
    pool: &'p mut Pool<B>,
}

impl<B: Backend> Product<'_, B> {
    /// The rank's own rows of the product, in a buffer of the pool.
    fn summed(&mut self, blocks: &Blocks<B>, x: &B::Matrix) -> Result<B::Matrix, ComputeError> {
        let (ranks, backend, cols) = (self.ranks, self.backend, self.backend.shape(x).cols);
        let mine = ranks.mine();
        let sliced = mine.slice.as_ref().map(|slicing| self.cut_columns(slicing, x)).transpose()?;
        let operand = sliced.as_ref().unwrap_or(x);
        let width = backend.shape(operand).cols;
        let n_rows = mine.rows.iter().map(|&panel| ranks.plan().panels[panel].len()).sum();
        let mut sums = self.pool.take(backend, Shape::new(n_rows, width), Dtype::F32)?;
        self.steps(blocks, operand, &Epilogue::default(), &mut sums)?;
        self.give(sliced);
        let mut sums = self.reduced(sums)?;
        if let Some(slicing) = &mine.slice {
            let rows = self.join_columns(slicing, &sums, cols)?;
            self.give(Some(std::mem::replace(&mut sums, rows)));
        }
        Ok(sums)
    }

    /// `out = epilogue(Σ block · panel)` over the steps.
    fn steps(
        &mut self,
        blocks: &Blocks<B>,
        operand: &B::Matrix,
        epilogue: &Epilogue<'_, B::Matrix>,
        out: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        let backend = self.backend;
        let n_products =
            blocks.own.iter().chain(blocks.stages.iter().filter_map(|stage| stage.matrix.as_ref())).count();
        if n_products == 0 && !epilogue.accumulate {
            backend.set_zero(out)?;
        }
        let mut n_left = n_products;
        let mut multiply = |block: &B::Sparse, panel: &B::Matrix| {
            let (first, last) = (n_left == n_products, n_left == 1);
            n_left -= 1;
            let epilogue = Epilogue {
                accumulate: !first || epilogue.accumulate,
                bias: epilogue.bias.filter(|_| last),
                activation: if last { epilogue.activation } else { Activation::Identity },
                dropout: epilogue.dropout.filter(|_| last),
            };
            backend.spmm((block, Transpose::No), None, panel, epilogue, out)
        };
        let mut arriving = VecDeque::with_capacity(AHEAD);
        for stage in blocks.stages.iter().take(AHEAD) {
            arriving.push_back(self.begin(stage, operand)?);
        }
        // The rank's own rows are here already: its block is multiplied while those of others travel.
        if let Some(block) = &blocks.own {
            multiply(block, operand)?;
        }
        for (i, stage) in blocks.stages.iter().enumerate() {
            let begun = arriving.pop_front().expect("each stage is begun before it is taken");
            let received = begun.finish(backend, self.pool, &*self.ranks.steps)?;
            if let Some(block) = &stage.matrix {
                multiply(block, &received)?;
            }
            self.give(Some(received));
            // What begins now waits for the products that were asked for: the next one goes on meanwhile.
            if let Some(next) = blocks.stages.get(i + AHEAD) {
                arriving.push_back(self.begin(next, operand)?);
            }
        }
        Ok(())
    }

    /// Begins to bring what the blocks of a stage multiply.
    fn begin(&mut self, stage: &Stage<B>, own: &B::Matrix) -> Result<Arriving<B>, ComputeError> {
        let (backend, group) = (self.backend, &*self.ranks.steps);
        let counts = match &stage.exchange {
            StageExchange::Rows(rows) => return rows.begin(backend, self.pool, group, own),
            StageExchange::Panels(counts) => counts,
        };
        let (cols, dtype) = (backend.shape(own).cols, backend.dtype(own));
        let mut panels = self.pool.take(backend, Shape::new(counts.iter().sum(), cols), dtype)?;
        let mut roots = (0..counts.len()).filter(|&place| counts[place] > 0);
        if let (Some(root), None) = (roots.next(), roots.next()) {
            if root == group.rank() {
                backend.convert(own, &mut panels)?;
            }
            let pending = group.begin(&mut || group.broadcast(root, &mut panels)).map_err(|error| failed(&error))?;
            return Ok(Arriving { pending, rows: panels, sent: None });
        }
        // Who is no root of the stage sends nothing.
        let nothing = counts[group.rank()] == 0;
        let nothing = nothing.then(|| self.pool.take(backend, Shape::new(0, cols), dtype)).transpose()?;
        let sent = nothing.as_ref().unwrap_or(own);
        let pending =
            group.begin(&mut || group.all_gather(counts, sent, &mut panels)).map_err(|error| failed(&error))?;
        Ok(Arriving { pending, rows: panels, sent: nothing })
    }

    /// Adds up what several ranks have of the same rows, and leaves each the rows that it holds.
    fn reduced(&mut self, mut sums: B::Matrix) -> Result<B::Matrix, ComputeError> {
        let Some(group) = &self.ranks.sums else { return Ok(sums) };
        match &self.ranks.mine().reduce {
            Reduce::None => Ok(sums),
            Reduce::AllReduce { .. } => {
                group.all_reduce(&mut sums).map_err(|error| failed(&error))?;
                Ok(sums)
            }
            Reduce::Scatter { .. } => {
                let panels = &self.ranks.plan().panels;
                let counts: Vec<usize> = self.ranks.mine().rows.iter().map(|&panel| panels[panel].len()).collect();
                let shape = Shape::new(counts[group.rank()], self.backend.shape(&sums).cols);
                let mut rows = self.pool.take(self.backend, shape, Dtype::F32)?;
                group.reduce_scatter(&counts, &sums, &mut rows).map_err(|error| failed(&error))?;
                self.give(Some(sums));
                Ok(rows)
            }
        }
    }

    /// Own rows of all columns → all rows of the panel of a slice of columns. Slices are equally wide, the last ones
    /// filled up with zeros.
    fn cut_columns(&mut self, slicing: &Slicing, x: &B::Matrix) -> Result<B::Matrix, ComputeError> {
        let (backend, Shape { rows, cols }) = (self.backend, self.backend.shape(x));
        let (width, n) = (slicing.width(cols), slicing.group.len());
        let dtype = backend.dtype(x);
        let mut outgoing = self.pool.take(backend, Shape::new(n * rows, width), dtype)?;
        backend.set_zero(&mut outgoing)?;
        for (i, columns) in slicing.columns(cols).enumerate() {
            let block = Shape::new(rows, columns.len());
            backend.copy_block(block, x, (0, columns.start), &mut outgoing, (i * rows, 0))?;
        }
        let pieces = self.pieces(slicing);
        let mut panel = self.pool.take(backend, Shape::new(pieces.iter().sum(), width), dtype)?;
        self.slices().all_to_all(&vec![rows; n], &outgoing, &pieces, &mut panel).map_err(|error| failed(&error))?;
        self.give(Some(outgoing));
        Ok(panel)
    }

    /// The way back of [`cut_columns`](Self::cut_columns).
    fn join_columns(&mut self, slicing: &Slicing, panel: &B::Matrix, cols: usize) -> Result<B::Matrix, ComputeError> {
        let (backend, rows) = (self.backend, self.ranks.own().len());
        let (width, n) = (slicing.width(cols), slicing.group.len());
        let mut incoming = self.pool.take(backend, Shape::new(n * rows, width), Dtype::F32)?;
        let pieces = self.pieces(slicing);
        self.slices().all_to_all(&pieces, panel, &vec![rows; n], &mut incoming).map_err(|error| failed(&error))?;
        let mut out = self.pool.take(backend, Shape::new(rows, cols), Dtype::F32)?;
        for (i, columns) in slicing.columns(cols).enumerate() {
            let block = Shape::new(rows, columns.len());
            backend.copy_block(block, &incoming, (i * rows, 0), &mut out, (0, columns.start))?;
        }
        self.give(Some(incoming));
        Ok(out)
    }

    /// The rows that each member of the slicing group holds.
    fn pieces(&self, slicing: &Slicing) -> Vec<usize> {
        slicing.group.iter().map(|&member| self.ranks.plan().ranks[member].own.len()).collect()
    }

    fn slices(&self) -> &dyn girih_comm::Collective<B> {
        self.ranks.slices.as_deref().expect("a plan with slices has a group for them")
    }

    fn give(&mut self, matrix: Option<B::Matrix>) {
        if let Some(matrix) = matrix {
            self.pool.give(self.backend, matrix);
        }
    }
}
