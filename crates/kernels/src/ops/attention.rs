//! Attention (`cuda/attention.cu`, `cuda/edges.cu`), composed of scores, a softmax over entries and products
//! weighted by attention coefficients.
//!
//! Coefficients (`shares`) take scratch memory of one number for each entry and head during an operation. The
//! backward pass recomputes them from the logarithms of their sums. Dropout is applied where they are computed,
//! without a pass of its own.

use cudarc::driver::{LaunchConfig, PushKernelArg};
use girih_compute::{
    Attention, AttentionGrads, AttentionOps, ComputeError, Dropout, Dtype, Epilogue, Fits, Shape, Transpose, runs_of,
};

use super::edges::Wide;
use super::sparse::Direction;
use crate::abi::{EntryMask, ScoreSums, WARP_COLUMNS};
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::{threads_for, warps_for};
use crate::matrix::CudaCsr;
use crate::{CudaMatrix, CudaSparse};

const OPERATION: &str = "attention";
const BACKWARD: &str = "attention_backward";

/// Most blocks of the kernel that sums the gradient of the vector: enough to fill a device, and few enough that their
/// partial sums are small.
const VECTOR_BLOCKS_MAX: u32 = 1024;

/// Operands of the attention scores.
struct Operands<'a> {
    graph: &'a CudaSparse,
    heads: usize,
    slope: f32,
    destination: &'a CudaMatrix,
    source: &'a CudaMatrix,
    vector: Option<&'a CudaMatrix>,
}

impl<'a> Operands<'a> {
    /// Operands of an attention.
    fn of(attention: &Attention<'a, Cuda>) -> Self {
        let Attention { graph, heads, slope, destination, source, vector, .. } = *attention;
        Self { graph, heads, slope, destination, source, vector }
    }
}

impl AttentionOps for Cuda {
    fn run_segment_softmax(&self, _: Fits, a: &CudaSparse, scores: &mut CudaMatrix) -> Result<(), ComputeError> {
        const OPERATION: &str = "segment_softmax";
        if scores.shape.is_empty() {
            return Ok(());
        }
        let (pattern, heads) = (self.pattern(&a.forward), scores.shape.cols as u64);
        let kernels = (Source::EDGES, OPERATION, "segment_softmax_hubs");
        for (kernel, config) in self.row_kernels(OPERATION, kernels, &a.forward, &[("Z", scores.dtype)])? {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&pattern).arg(&heads).arg(&mut scores.data);
            // SAFETY: scores have a row of `heads` for each entry, of the type that the kernel was compiled for; each
            // row of the pattern is one team's.
            unsafe { launch.launch(config) }.map_err(Self::failed(OPERATION))?;
        }
        Ok(())
    }

    fn run_segment_softmax_backward(
        &self,
        _: Fits,
        a: &CudaSparse,
        shares: &CudaMatrix,
        grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "segment_softmax_backward";
        if grad.shape.is_empty() {
            return Ok(());
        }
        let (pattern, heads) = (self.pattern(&a.forward), grad.shape.cols as u64);
        let types = [("X", shares.dtype), ("Z", grad.dtype)];
        let kernels = (Source::EDGES, OPERATION, "segment_softmax_backward_hubs");
        for (kernel, config) in self.row_kernels(OPERATION, kernels, &a.forward, &types)? {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&pattern).arg(&heads).arg(&shares.data).arg(&mut grad.data);
            // SAFETY: both matrices have a row of `heads` for each entry, of the types that the kernel was compiled
            // for; each row of the pattern is one team's.
            unsafe { launch.launch(config) }.map_err(Self::failed(OPERATION))?;
        }
        Ok(())
    }

    fn run_head_dots(
        &self,
        _: Fits,
        runs: &[usize],
        x: &CudaMatrix,
        vectors: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if out.shape.is_empty() {
            return Ok(());
        }
        let heads = out.shape.cols as u64;
        let depth = x.shape.cols as u64 / heads;
        let types = [("X", x.dtype), ("V", vectors.dtype), ("Z", out.dtype)];
        let kernel = self.heads_kernel(("head_dots", "head_dots"), (out.shape.cols, x.shape.cols), &types)?;
        let [of_x, of_vectors, of_out] = [self.address(x), self.address(vectors), self.address(out)];
        for (run, n, first) in runs_of(runs) {
            let (n_rows, vector) = (n as u64, of_vectors.at_row(run).at);
            let (rows, to) = (of_x.at_row(first).at, of_out.at_row(first).at);
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&rows).arg(&n_rows).arg(&heads).arg(&depth).arg(&vector).arg(&to);
            // SAFETY: runs are rows of `x` (`heads · depth` wide) and of `out` (`heads` wide), and `vectors` has a row of
            // the width of `x` for each, of the types that the kernel was compiled for.
            unsafe { launch.launch(warps_for(n)) }.map_err(Self::failed("head_dots"))?;
        }
        Ok(())
    }

    fn run_head_dots_backward(
        &self,
        _: Fits,
        runs: &[usize],
        (x, vectors): (&CudaMatrix, &CudaMatrix),
        grad: &CudaMatrix,
        x_grad: Option<&mut CudaMatrix>,
        vector_grads: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if vector_grads.shape.is_empty() {
            return Ok(());
        }
        for run in 0..runs.len() - 1 {
            self.head_dots_vector((x, grad), (run, runs[run]..runs[run + 1]), vector_grads)?;
        }
        x_grad.map_or(Ok(()), |x_grad| self.head_dots_rows(runs, vectors, grad, x_grad))
    }

    fn run_attention(
        &self,
        _: Fits,
        attention: &Attention<'_, Self>,
        out: &mut CudaMatrix,
        log_sums: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let operands = Operands::of(attention);
        if out.shape.is_empty() {
            return Ok(());
        }
        let mut shares = self.scores(OPERATION, &operands)?;
        let (scores, mask) = (self.score_sums(&operands), self.entry_mask(operands.graph, attention.dropout)?);
        let (csr, heads) = (&operands.graph.forward, operands.heads as u64);
        let pattern = self.pattern(csr);
        let types = [("X", operands.destination.dtype), ("Y", operands.source.dtype), ("L", log_sums.dtype)];
        let kernels = (Source::ATTENTION, "attention_shares", "attention_shares_hubs");
        for (kernel, config) in self.row_kernels(OPERATION, kernels, csr, &types)? {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&pattern).arg(&heads).arg(&scores).arg(&mask).arg(&mut shares.data).arg(&mut log_sums.data);
            // SAFETY: destinations and log sums have a row of `heads` for each row of the pattern, sources one for each
            // column, or there are scores; shares are `f32`, a row for each entry; each row of the pattern is one
            // team's; `entry_mask` vouches for the mask.
            unsafe { launch.launch(config) }.map_err(Self::failed(OPERATION))?;
        }
        self.product(OPERATION, Direction::of_pattern(csr), Some(&shares), attention.values, &Epilogue::default(), out)
    }

    fn run_attention_backward(
        &self,
        _: Fits,
        attention: &Attention<'_, Self>,
        (_, log_sums): (&CudaMatrix, &CudaMatrix),
        grad: &CudaMatrix,
        grads: AttentionGrads<'_, CudaMatrix>,
    ) -> Result<(), ComputeError> {
        let AttentionGrads { destination, source, vector, values } = grads;
        let (graph, operands) = (attention.graph, Operands::of(attention));
        let pattern = Direction::of_pattern(&graph.forward);
        let mut shares = self.scores(BACKWARD, &operands)?;
        let mut score_grads = self.uninitialized(shares.shape, Dtype::F32)?;
        self.sampled(BACKWARD, pattern, grad, attention.values, &mut score_grads)?;
        let mask = self.entry_mask(graph, attention.dropout)?;
        let of_sums = vector.is_none().then_some(&mut *destination);
        self.score_grads(&operands, mask, log_sums, (&mut shares, &mut score_grads), of_sums)?;
        let transpose = self.direction(BACKWARD, graph, Transpose::Yes, true)?.csr;
        let of_transpose = Direction::of_pattern(transpose);
        self.product(BACKWARD, of_transpose, Some(&shares), grad, &Epilogue::default(), values)?;
        match vector {
            None => self.sum_entries(BACKWARD, transpose, &score_grads, source),
            Some(vector) => {
                let ends = (operands.destination, operands.source);
                self.dynamic_grads(&operands, &graph.forward, &score_grads, ends, destination, Some(vector))?;
                self.dynamic_grads(&operands, transpose, &score_grads, (ends.1, ends.0), source, None)
            }
        }
    }
}

impl Cuda {
    /// Scratch memory with a number for each entry and head. It holds the scores of GATv2; those of GAT are computed
    /// where they are needed.
    fn scores(&self, operation: &'static str, operands: &Operands<'_>) -> Result<CudaMatrix, ComputeError> {
        let Operands { graph, heads, slope, destination, source, vector } = *operands;
        let csr = &graph.forward;
        let mut scores = self.uninitialized(Shape::new(csr.nnz, heads), Dtype::F32)?;
        let Some(vector) = vector.filter(|_| !scores.shape.is_empty()) else { return Ok(scores) };
        let (pattern, n_heads, depth) = (self.pattern(csr), heads as u64, (destination.shape.cols / heads) as u64);
        let types = [("X", destination.dtype), ("Y", source.dtype), ("V", vector.dtype)];
        let named = (Source::EDGES, "dynamic_scores");
        let kernel = self.entry_kernel(operation, named, (heads, source), &types)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&pattern).arg(&n_heads).arg(&depth).arg(&slope).arg(&destination.data).arg(&source.data);
        launch.arg(&vector.data).arg(&mut scores.data);
        // SAFETY: destinations have a row for each row of the pattern, sources one for each column, both `heads ·
        // depth` wide, and so is the vector; there is a row of `heads` scores for each entry, which one warp writes.
        unsafe { launch.launch(warps_for(csr.n_pieces())) }.map_err(Self::failed(operation))?;
        Ok(scores)
    }

    /// Score terms of GAT; null pointers for GATv2.
    fn score_sums(&self, operands: &Operands<'_>) -> ScoreSums {
        let of_static = |matrix: &CudaMatrix| self.pointer(operands.vector.is_none().then_some(&matrix.data));
        let (destination, source) = (of_static(operands.destination), of_static(operands.source));
        ScoreSums { destination, source, slope: operands.slope, padding: 0 }
    }

    /// Dropout of attention coefficients. Names exist for each column, or not at all. A stored key lives as long as
    /// the graph that work is captured for.
    fn entry_mask(&self, graph: &CudaSparse, dropout: Option<Dropout>) -> Result<EntryMask, ComputeError> {
        Ok(EntryMask {
            draws: self.draws_or_none(dropout)?,
            column_names: self.pointer(graph.column_names.as_ref()),
            first_row: graph.names.as_ref().map_or(0, |names| names.first_row),
            padding: 0,
        })
    }

    /// Converts gradients of coefficients to those of scores, in place. `shares`, which hold the scores for GATv2,
    /// become the coefficients of the forward pass. `of_sums` gets the row sums of GAT.
    fn score_grads(
        &self,
        operands: &Operands<'_>,
        mask: EntryMask,
        log_sums: &CudaMatrix,
        (shares, grads): (&mut CudaMatrix, &mut CudaMatrix),
        of_sums: Option<&mut CudaMatrix>,
    ) -> Result<(), ComputeError> {
        let (csr, heads) = (&operands.graph.forward, operands.heads as u64);
        if csr.shape.rows == 0 || heads == 0 {
            return Ok(());
        }
        let (pattern, scores) = (self.pattern(csr), self.score_sums(operands));
        let of_sums_dtype = of_sums.as_ref().map_or(Dtype::F32, |of_sums| of_sums.dtype);
        let of_sums = self.pointer(of_sums.map(|of_sums| &of_sums.data));
        let ends = [("X", operands.destination.dtype), ("Y", operands.source.dtype)];
        let types = [ends[0], ends[1], ("L", log_sums.dtype), ("Z", of_sums_dtype)];
        let kernels = (Source::ATTENTION, "attention_grads", "attention_grads_hubs");
        for (kernel, config) in self.row_kernels(BACKWARD, kernels, csr, &types)? {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&pattern).arg(&heads).arg(&scores).arg(&mask).arg(&log_sums.data);
            launch.arg(&mut shares.data).arg(&mut grads.data).arg(&of_sums);
            // SAFETY: destinations, log sums and the sums of rows have a row of `heads` for each row of the pattern,
            // sources one for each column; shares and gradients are `f32`, a row for each entry; each row of the
            // pattern is one team's; `entry_mask` vouches for the mask.
            unsafe { launch.launch(config) }.map_err(Self::failed(BACKWARD))?;
        }
        Ok(())
    }

    /// Gradient of the rows (`ends.0`) that GATv2 scores add up or, over the transpose, of the columns; and of the
    /// vector, if wanted.
    fn dynamic_grads(
        &self,
        operands: &Operands<'_>,
        csr: &CudaCsr,
        grads: &CudaMatrix,
        ends: (&CudaMatrix, &CudaMatrix),
        out: &mut CudaMatrix,
        vector_grad: Option<&mut CudaMatrix>,
    ) -> Result<(), ComputeError> {
        let Some(vector) = operands.vector.filter(|vector| !vector.shape.is_empty()) else {
            return Ok(());
        };
        let cols = vector.shape.cols;
        let config = dynamic_config(csr, cols, Wide::of(operands.heads, ends.1).map_or(WARP_COLUMNS, Wide::columns));
        let n_warps = (config.grid_dim.0 * config.block_dim.0 / 32) as usize;
        let partial = self.uninitialized(Shape::new(csr.n_segments(), cols), Dtype::F32)?;
        let vector_sums = match vector_grad {
            None => None,
            Some(_) => Some(self.uninitialized(Shape::new(n_warps, cols), Dtype::F32)?),
        };
        let sums = self.pointer(vector_sums.as_ref().map(|sums| &sums.data));
        let (pattern, heads, width) = (self.pattern(csr), operands.heads as u64, cols as u64);
        let types = [("X", ends.0.dtype), ("Y", ends.1.dtype), ("V", vector.dtype), ("Z", out.dtype)];
        let named = (Source::ATTENTION, "dynamic_grads");
        let kernel = self.entry_kernel(BACKWARD, named, (operands.heads, ends.1), &types)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&pattern).arg(&heads).arg(&width).arg(&operands.slope).arg(&grads.data);
        launch.arg(&ends.0.data).arg(&ends.1.data).arg(&vector.data).arg(&mut out.data).arg(&partial.data).arg(&sums);
        // SAFETY: the ends have a row for each row and column of the pattern, all `width` wide; there is a row of
        // partial sums for each segment and one of the vector's for each warp.
        unsafe { launch.launch(config) }.map_err(Self::failed(BACKWARD))?;
        if csr.n_hubs() > 0 {
            let types = [("V", vector.dtype), ("Z", out.dtype)];
            let kernel = self.kernel(BACKWARD, Source::ATTENTION, "dynamic_grads_hubs", &types)?;
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&pattern).arg(&width).arg(&vector.data).arg(&partial.data).arg(&mut out.data);
            // SAFETY: the partial sums of all segments are written before, on the same stream.
            unsafe { launch.launch(threads_for(csr.n_hubs() * cols)) }.map_err(Self::failed(BACKWARD))?;
        }
        match (vector_sums, vector_grad) {
            (Some(sums), Some(grad)) => self.total_columns(BACKWARD, &sums, (grad, 0)),
            _ => Ok(()),
        }
    }
}

/// Launch of warps that loop over the rows and segments of a pattern. Their number depends on the pattern alone, so
/// that all devices sum in one order.
fn dynamic_config(csr: &CudaCsr, width: usize, at_once: usize) -> LaunchConfig {
    let rows = warps_for(csr.n_pieces());
    let panels = width.div_ceil(at_once) as u32;
    LaunchConfig { grid_dim: (rows.grid_dim.0.min(VECTOR_BLOCKS_MAX), panels, 1), ..rows }
}
