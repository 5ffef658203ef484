//! [`Product`]: a distributed product in progress: its exchanges, block products and reduction.
//!
//! ```text
//! for each feature chunk: begin exchange ──▶ overlapped work ──▶ own block, by bands ──▶ each stage as it arrives:
//!                                                                                       its blocks, by row chunks
//! after the last stage of a row chunk: reduce sums over ranks ──▶ join slices to whole rows ──▶ own rows of result
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use girih_comm::Pending;
use girih_compute::{Activation, Backend, ComputeError, Dtype, Epilogue, Shape, Transpose};
use girih_partition::{Reduce, Slicing, Stages};

use super::blocks::{Blocks, PanelExchange, Panels, StepGroup};
use super::context::{Ranks, failed};
use super::halo::Arriving;
use super::operand::{LocalColumns, LocalOperand, Operand};
use crate::tape::Pool;

/// Number of stages that are received or multiplied at the same time, if collectives `overlap` with computation. Of
/// panels with all columns, one is multiplied while the next arrives. Feature chunks are all in flight at once, since
/// together they take no more memory than all columns.
fn stages_ahead(stages: Stages, overlap: bool) -> usize {
    match stages {
        _ if !overlap => 1,
        Stages::Steps | Stages::Turns => 2,
        Stages::Parts(n) => n,
    }
}

/// Position of a product among those that are accumulated.
#[derive(Clone, Copy)]
struct Accumulation {
    n_before: usize,
    n_products: usize,
}

/// Stage of a product.
struct Stage<'b, B: Backend> {
    /// Index of the feature chunk that arrives in it.
    part: usize,
    together: &'b StepGroup<B>,
    accumulation: Accumulation,
}

impl<B: Backend> Blocks<B> {
    /// Stages of a product whose operand arrives in `n_parts` feature chunks.
    fn stages(&self, n_parts: usize) -> Vec<Stage<'_, B>> {
        let n_products = self.n_products();
        let of_part = |part| {
            let mut n_before = usize::from(self.own.is_some());
            self.together.iter().map(move |together| {
                let accumulation = Accumulation { n_before, n_products };
                n_before += usize::from(together.matrix.is_some());
                Stage { part, together, accumulation }
            })
        };
        (0..n_parts).flat_map(of_part).collect()
    }
}

/// Destination of a product.
pub(super) enum Sums<'o, B: Backend> {
    /// Result itself, with its epilogue, where no reduction follows the steps.
    Out(&'o mut B::Matrix, &'o Epilogue<'o, B::Matrix>),
    /// Buffer for each row chunk.
    Chunks(&'o mut ReducePipeline<B>),
}

/// Reduction after the steps of a product, pipelined over row chunks. While one chunk is multiplied, the partial sums
/// of the previous one are reduced over ranks. The reduced rows of the one before that are joined to whole rows.
pub(super) struct ReducePipeline<B: Backend> {
    /// Partial sums of the chunks that are still multiplied.
    chunks: Vec<Option<B::Matrix>>,
    summing: Option<PendingReduce<B>>,
    joining: Option<PendingReduce<B>>,
    /// The rank's own rows; `None` where the reduced sums of the only chunk are the result.
    out: Option<B::Matrix>,
    /// Number of columns of the operand.
    cols: usize,
}

/// Pending reduction of a chunk's partial sums.
struct PendingReduce<B: Backend> {
    chunk: usize,
    pending: Pending,
    rows: B::Matrix,
    /// Buffer that is being sent, kept until the reduction is done.
    sent: Option<B::Matrix>,
}

impl<B: Backend> Sums<'_, B> {
    /// Matrix in which the products of a chunk are added up.
    fn of_chunk(&mut self, chunk: usize) -> &mut B::Matrix {
        match self {
            Self::Out(out, _) => out,
            Self::Chunks(reduce) => reduce.chunks[chunk].as_mut().expect("a chunk that is multiplied"),
        }
    }
}

/// Work of a rank that runs while the first rows of a product are sent.
pub(crate) type OverlappedWork<'b> = dyn FnMut() -> Result<(), ComputeError> + 'b;

/// Distributed product in progress.
pub(super) struct Product<'p, 'b, B: Backend> {
    pub(super) ranks: &'p Ranks<B>,
    pub(super) backend: &'p B,
    pub(super) pool: &'p mut Pool<B>,
    pub(super) overlap: &'p mut OverlappedWork<'b>,
}

impl<B: Backend> Product<'_, '_, B> {
    /// Computes the rank's own rows of the product, in a buffer of the pool.
    pub(super) fn summed(&mut self, blocks: &Blocks<B>, operand: Operand<'_, B>) -> Result<B::Matrix, ComputeError> {
        let (shape, ranks) = (operand.rows.shape(self.backend), self.ranks);
        let Some(slicing) = &ranks.mine().slice else {
            let mut reduce = self.reduce_pipeline(shape, shape.cols)?;
            self.steps(blocks, operand, &mut Sums::Chunks(&mut reduce))?;
            return self.end(reduce);
        };
        let dtype = operand.dtype;
        let mut own = LocalColumns::new(operand, self.backend);
        own.make_all((self.backend, self.pool))?;
        let slice = self.cut_columns(slicing, own.part(0))?;
        own.give_back(self.backend, self.pool);
        let mut reduce = self.reduce_pipeline(shape, self.backend.shape(&slice).cols)?;
        let sliced = Operand { rows: LocalOperand::Matrix(&slice), factors: None, dtype };
        self.steps(blocks, sliced, &mut Sums::Chunks(&mut reduce))?;
        self.give(Some(slice));
        self.end(reduce)
    }

    /// Buffers for a product with an operand of this shape, in slices of `width` columns.
    fn reduce_pipeline(
        &mut self,
        Shape { rows, cols }: Shape,
        width: usize,
    ) -> Result<ReducePipeline<B>, ComputeError> {
        let (plan, rank, backend) = (self.ranks.plan(), self.ranks.rank(), self.backend);
        let n_chunks = plan.n_chunks;
        let mut taken = |rows, cols| self.pool.take(backend, Shape::new(rows, cols), Dtype::F32);
        let chunks = (0..n_chunks).map(|chunk| taken(plan.n_chunk_rows(rank, chunk), width).map(Some));
        let chunks = chunks.collect::<Result<_, ComputeError>>()?;
        let is_whole = n_chunks == 1 && self.ranks.slices.is_none();
        let out = if is_whole { None } else { Some(taken(rows, cols)?) };
        Ok(ReducePipeline { chunks, summing: None, joining: None, out, cols })
    }

    /// Computes `Σ block · panel` over the steps: feature chunk after feature chunk, and within a stage row chunk
    /// after row chunk.
    pub(super) fn steps(
        &mut self,
        blocks: &Blocks<B>,
        operand: Operand<'_, B>,
        sums: &mut Sums<'_, B>,
    ) -> Result<(), ComputeError> {
        let plan = self.ranks.plan();
        let (n_chunks, n_products) = (plan.n_chunks, blocks.n_products());
        if n_products == 0 {
            (0..n_chunks).try_for_each(|chunk| self.backend.set_zero(sums.of_chunk(chunk)))?;
        }
        let columns = plan.stages.columns(operand.rows.shape(self.backend).cols, operand.dtype.n_bytes());
        let stages = blocks.stages(columns.len());
        let ahead = stages_ahead(plan.stages, self.ranks.steps.overlaps());
        let (own_columns, mut arriving) = self.begin_first(operand, &columns, &stages[..ahead.min(stages.len())])?;
        (self.overlap)()?;
        // The rank's own block is multiplied while rows of others arrive. If it is the only product, all row chunks
        // but the first wait, so that their products overlap with the reduction of the first.
        let n_before = if n_products == 1 { 1 } else { n_chunks };
        let first = Accumulation { n_before: 0, n_products };
        let multiply_own = |product: &Self, sums: &mut Sums<'_, B>, chunk: usize| -> Result<(), ComputeError> {
            let Some(own) = &blocks.own else { return Ok(()) };
            let mut bands = own_columns.bands();
            bands.try_for_each(|(columns, rows)| product.multiply((&own[chunk], rows), first, (sums, chunk), columns))
        };
        for chunk in 0..n_before {
            multiply_own(self, sums, chunk)?;
        }
        for (i, stage) in stages.iter().enumerate() {
            let begun = arriving.pop_front().expect("each stage is begun before it is taken");
            let received = begun.finish(self.backend, self.pool, &*self.ranks.steps)?;
            // All ranks begin the reduction after their last stage. Otherwise a rank could wait for a rank that waits
            // for its rows.
            let is_last = i + 1 == stages.len();
            for chunk in 0..n_chunks {
                if is_last && chunk >= n_before {
                    multiply_own(self, sums, chunk)?;
                }
                if let Some(blocks) = &stage.together.matrix {
                    self.multiply(
                        (&blocks[chunk], &received),
                        stage.accumulation,
                        (sums, chunk),
                        &columns[stage.part],
                    )?;
                }
                if let (true, Sums::Chunks(reduce)) = (is_last, &mut *sums) {
                    self.follow(reduce, chunk)?;
                }
            }
            self.give(Some(received));
            // An exchange that begins now waits for the products launched so far; the next exchange continues
            // meanwhile.
            if let Some(next) = stages.get(i + ahead) {
                arriving.push_back(self.begin(next.together, own_columns.part(next.part))?);
            }
        }
        own_columns.give_back(self.backend, self.pool);
        Ok(())
    }

    /// Computes all columns of the operand. Begins the exchanges of the first stages, each as soon as its feature
    /// chunk is there.
    fn begin_first<'x>(
        &mut self,
        operand: Operand<'x, B>,
        columns: &[Range<usize>],
        stages: &[Stage<'_, B>],
    ) -> Result<(LocalColumns<'x, B>, VecDeque<Arriving<B>>), ComputeError> {
        let mut arriving = VecDeque::with_capacity(stages.len());
        let mut own = LocalColumns::new(operand, self.backend);
        while own.n_parts() < columns.len() {
            for part in own.make_band((self.backend, self.pool), columns)? {
                let rows = own.cut((self.backend, self.pool), &columns[part])?;
                for stage in stages.iter().filter(|stage| stage.part == part) {
                    arriving.push_back(self.begin(stage.together, rows)?);
                }
            }
        }
        Ok((own, arriving))
    }

    /// Adds the product of a block to some columns of a chunk's sums. The last product of an accumulation applies the
    /// epilogue.
    fn multiply(
        &self,
        (block, panel): (&B::Sparse, &B::Matrix),
        accumulation: Accumulation,
        (sums, chunk): (&mut Sums<'_, B>, usize),
        columns: &Range<usize>,
    ) -> Result<(), ComputeError> {
        let usual = Epilogue::default();
        let applied = if let Sums::Out(_, epilogue) = sums { *epilogue } else { &usual };
        let (is_first, is_last) = (accumulation.n_before == 0, accumulation.n_before + 1 == accumulation.n_products);
        let epilogue = Epilogue {
            accumulate: !is_first || applied.accumulate,
            bias: applied.bias.filter(|_| is_last),
            activation: if is_last { applied.activation } else { Activation::Identity },
            dropout: applied.dropout.filter(|_| is_last),
        };
        let (backend, out) = (self.backend, sums.of_chunk(chunk));
        match columns.len() == backend.shape(out).cols {
            true => backend.spmm((block, Transpose::No), None, panel, epilogue, out),
            false => backend.spmm_columns((block, Transpose::No), panel, epilogue, (out, columns.start)),
        }
    }

    /// Begins to receive the panels of a step group.
    fn begin(&mut self, together: &StepGroup<B>, own: &B::Matrix) -> Result<Arriving<B>, ComputeError> {
        match &together.exchange {
            PanelExchange::Rows(rows) => rows.begin(self.backend, self.pool, &*self.ranks.steps, own),
            PanelExchange::Panels(Panels::ToAll(counts)) => self.begin_for_all(counts, own),
            PanelExchange::Panels(Panels::ToOne { sent, received }) => self.begin_for_one(sent, received, own),
        }
    }

    /// Begins to receive all panels, and to send the own one to all.
    fn begin_for_all(&mut self, counts: &[usize], own: &B::Matrix) -> Result<Arriving<B>, ComputeError> {
        let (backend, group) = (self.backend, &*self.ranks.steps);
        let (cols, dtype) = (backend.shape(own).cols, backend.dtype(own));
        let mut roots = (0..counts.len()).filter(|&place| counts[place] > 0);
        if let (Some(root), None) = (roots.next(), roots.next()) {
            let mut panels = self.pool.take(backend, Shape::new(counts[root], cols), dtype)?;
            if root == group.rank() {
                backend.copy_block(backend.shape(&panels), own, (0, 0), &mut panels, (0, 0))?;
            }
            let pending = group.begin(&mut || group.broadcast(root, &mut panels)).map_err(|error| failed(&error))?;
            return Ok(Arriving { pending, rows: panels, sent: None });
        }
        let nothing = self.nothing_of(counts[group.rank()], own)?;
        let sent = nothing.as_ref().unwrap_or(own);
        let n_rows = counts.iter().sum::<usize>() - counts[group.rank()];
        let mut panels = self.pool.take(backend, Shape::new(n_rows, cols), dtype)?;
        let pending =
            group.begin(&mut || group.gather_others(counts, sent, &mut panels)).map_err(|error| failed(&error))?;
        Ok(Arriving { pending, rows: panels, sent: nothing })
    }

    /// Begins to receive a panel, and to send the own one to another member.
    fn begin_for_one(
        &mut self,
        send_rows: &[usize],
        receive_rows: &[usize],
        own: &B::Matrix,
    ) -> Result<Arriving<B>, ComputeError> {
        let (backend, group) = (self.backend, &*self.ranks.steps);
        let nothing = self.nothing_of(send_rows.iter().sum(), own)?;
        let sent = nothing.as_ref().unwrap_or(own);
        let shape = Shape::new(receive_rows.iter().sum(), backend.shape(own).cols);
        let mut panel = self.pool.take(backend, shape, backend.dtype(own))?;
        let pending = group
            .begin(&mut || group.all_to_all(send_rows, sent, receive_rows, &mut panel))
            .map_err(|error| failed(&error))?;
        Ok(Arriving { pending, rows: panel, sent: nothing })
    }

    /// Empty matrix for a rank that is no root of the steps and sends no rows.
    fn nothing_of(&mut self, n_sent: usize, own: &B::Matrix) -> Result<Option<B::Matrix>, ComputeError> {
        let (cols, dtype) = (self.backend.shape(own).cols, self.backend.dtype(own));
        (n_sent == 0).then(|| self.pool.take(self.backend, Shape::new(0, cols), dtype)).transpose()
    }

    /// Begins the reduction of a chunk, and advances those of earlier chunks.
    fn follow(&mut self, reduce: &mut ReducePipeline<B>, chunk: usize) -> Result<(), ComputeError> {
        let sums = reduce.chunks[chunk].take().expect("a chunk is followed once");
        let begun = self.begin_sum(chunk, sums)?;
        let before = reduce.summing.replace(begun);
        self.go_on(reduce, before)
    }

    /// Finishes all reductions, and returns the rank's own rows.
    fn end(&mut self, mut reduce: ReducePipeline<B>) -> Result<B::Matrix, ComputeError> {
        let last = reduce.summing.take();
        self.go_on(&mut reduce, last)?;
        self.go_on(&mut reduce, None)?;
        Ok(reduce.out.expect("rows of all chunks"))
    }

    /// Advances the pipeline: begins to join the rows of `summing`, and stores the rows that are joined.
    fn go_on(&mut self, reduce: &mut ReducePipeline<B>, summing: Option<PendingReduce<B>>) -> Result<(), ComputeError> {
        let joining = summing.map(|summed| self.begin_join(summed)).transpose()?;
        match std::mem::replace(&mut reduce.joining, joining) {
            Some(joined) => self.land(reduce, joined),
            None => Ok(()),
        }
    }

    /// Begins to reduce partial sums over ranks. After a reduce-scatter, each rank keeps the rows that it holds.
    fn begin_sum(&mut self, chunk: usize, mut sums: B::Matrix) -> Result<PendingReduce<B>, ComputeError> {
        let (plan, mine) = (self.ranks.plan(), self.ranks.mine());
        let Some(group) = self.ranks.sums.as_deref() else {
            return Ok(PendingReduce { chunk, pending: Pending::done(), rows: sums, sent: None });
        };
        if let Reduce::Scatter { .. } = mine.reduce {
            let of_panel = |&panel: &usize| plan.chunk_of(panel, chunk).map(|rows| rows.len()).sum();
            let counts: Vec<usize> = mine.rows.iter().map(of_panel).collect();
            let shape = Shape::new(counts[group.rank()], self.backend.shape(&sums).cols);
            let mut rows = self.pool.take(self.backend, shape, Dtype::F32)?;
            let pending = group.begin(&mut || group.reduce_scatter(&counts, &sums, &mut rows));
            let pending = pending.map_err(|error| failed(&error))?;
            return Ok(PendingReduce { chunk, pending, rows, sent: Some(sums) });
        }
        let pending = group.begin(&mut || group.all_reduce(&mut sums)).map_err(|error| failed(&error))?;
        Ok(PendingReduce { chunk, pending, rows: sums, sent: None })
    }

    /// Waits for reduced sums, and begins the inverse of [`cut_columns`](Self::cut_columns). Without slices of
    /// columns, the sums are whole rows already.
    fn begin_join(&mut self, summed: PendingReduce<B>) -> Result<PendingReduce<B>, ComputeError> {
        let PendingReduce { chunk, pending, rows, sent } = summed;
        if let Some(group) = &self.ranks.sums {
            group.finish(pending).map_err(|error| failed(&error))?;
        }
        self.give(sent);
        let Some(slicing) = &self.ranks.mine().slice else {
            return Ok(PendingReduce { chunk, pending: Pending::done(), rows, sent: None });
        };
        let (n, n_rows) = (slicing.group.len(), self.ranks.plan().own_of(&self.ranks.own(), chunk).len());
        let width = self.backend.shape(&rows).cols;
        let mut incoming = self.pool.take(self.backend, Shape::new(n * n_rows, width), Dtype::F32)?;
        let pieces: Vec<usize> = self.pieces(slicing).map(|own| self.ranks.plan().own_of(&own, chunk).len()).collect();
        let group = self.slices();
        let pending = group.begin(&mut || group.all_to_all(&pieces, &rows, &vec![n_rows; n], &mut incoming));
        let pending = pending.map_err(|error| failed(&error))?;
        Ok(PendingReduce { chunk, pending, rows: incoming, sent: Some(rows) })
    }

    /// Waits for the whole rows of a chunk, and stores them.
    fn land(&mut self, reduce: &mut ReducePipeline<B>, joined: PendingReduce<B>) -> Result<(), ComputeError> {
        let PendingReduce { chunk, pending, rows, sent } = joined;
        let (own, slicing) = (self.ranks.own(), self.ranks.mine().slice.as_ref());
        if slicing.is_some() {
            self.slices().finish(pending).map_err(|error| failed(&error))?;
        }
        self.give(sent);
        let Some(out) = &mut reduce.out else {
            reduce.out = Some(rows);
            return Ok(());
        };
        let nodes = self.ranks.plan().own_of(&own, chunk);
        let (n_rows, first) = (nodes.len(), nodes.start - own.start);
        let mut copy = |i: usize, columns: Range<usize>| {
            let block = Shape::new(n_rows, columns.len());
            self.backend.copy_block(block, &rows, (i * n_rows, 0), out, (first, columns.start))
        };
        match slicing {
            Some(slicing) => {
                let mut slices = slicing.columns(reduce.cols).enumerate();
                slices.try_for_each(|(i, columns)| copy(i, columns))?;
            }
            None => copy(0, 0..reduce.cols)?,
        }
        self.give(Some(rows));
        Ok(())
    }

    /// All-to-all from own rows with all columns to all rows of the panel with a slice of columns. Slices have equal
    /// widths; the last ones are padded with zeros.
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
        let pieces: Vec<usize> = self.pieces(slicing).map(|own| own.len()).collect();
        let mut panel = self.pool.take(backend, Shape::new(pieces.iter().sum(), width), dtype)?;
        self.slices().all_to_all(&vec![rows; n], &outgoing, &pieces, &mut panel).map_err(|error| failed(&error))?;
        self.give(Some(outgoing));
        Ok(panel)
    }

    /// Node ids that each member of the slicing group holds.
    fn pieces<'s>(&'s self, slicing: &'s Slicing) -> impl Iterator<Item = Range<usize>> + 's {
        slicing.group.iter().map(|&member| self.ranks.plan().ranks[member].own.clone())
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
