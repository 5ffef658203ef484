//! `kernels/attention.cu`: attention, composed of scores, a softmax over entries and products weighted by shares.
//!
//! Shares live in scratch memory of one number for each entry and head while an operation runs, and are computed again
//! by the backward pass.

use cudarc::driver::{DeviceRepr, LaunchConfig, PushKernelArg};
use girih_compute::checks::AttentionShapes;
use girih_compute::{
    Attention, AttentionGrads, Backend, ComputeError, Dropout, Dtype, Epilogue, Shape, Transpose, checks,
};

use super::super::backend::Cuda;
use super::super::compile::Source;
use super::super::device::{threads_for, warps_for};
use super::super::matrix::CudaCsr;
use super::mask::Draws;
use super::sparse::Direction;
use crate::{CudaMatrix, CudaSparse};

const OPERATION: &str = "attention";
const BACKWARD: &str = "attention_backward";

/// Blocks of the kernel that sums up the gradient of the vector: enough to fill a device, few enough that their sums
/// are small.
const VECTOR_BLOCKS_MAX: u32 = 1024;
/// Columns that a warp of the gradients of GATv2 has.
const DYNAMIC_COLUMNS: usize = 128;

/// `EntryMask` of `kernels/attention.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct EntryMask {
    draws: Draws,
    column_names: u64,
    first_row: u32,
    padding: u32,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for EntryMask {}

/// What the scores of an attention are made of.
struct Operands<'a> {
    graph: &'a CudaSparse,
    heads: usize,
    slope: f32,
    destination: &'a CudaMatrix,
    source: &'a CudaMatrix,
    vector: Option<&'a CudaMatrix>,
}

impl<'a> Operands<'a> {
    fn of<B>(attention: &Attention<'a, B>) -> Self
    where
        B: Backend<Matrix = CudaMatrix, Sparse = CudaSparse> + ?Sized,
    {
        let Attention { graph, heads, slope, destination, source, vector, .. } = *attention;
        Self { graph, heads, slope, destination, source, vector }
    }
}

fn shapes<B>(attention: &Attention<'_, B>) -> AttentionShapes
where
    B: Backend<Matrix = CudaMatrix, Sparse = CudaSparse> + ?Sized,
{
    AttentionShapes {
        graph: attention.graph.forward.shape,
        heads: attention.heads,
        destination: attention.destination.shape,
        source: attention.source.shape,
        vector: attention.vector.map(|vector| vector.shape),
        values: attention.values.shape,
    }
}

impl Cuda {
    /// [`Backend::attention`].
    pub(crate) fn attention<B>(
        &self,
        attention: &Attention<'_, B>,
        out: &mut CudaMatrix,
        log_sums: &mut CudaMatrix,
    ) -> Result<(), ComputeError>
    where
        B: Backend<Matrix = CudaMatrix, Sparse = CudaSparse> + ?Sized,
    {
        checks::attention(&shapes(attention), out.shape, log_sums.shape)?;
        let graph = attention.graph;
        let mut shares = self.scores(OPERATION, &Operands::of(attention))?;
        self.softmax_entries(OPERATION, &graph.forward, &mut shares, Some(log_sums))?;
        if let Some(dropout) = attention.dropout {
            self.mask_entries(OPERATION, graph, dropout, &mut shares, None)?;
        }
        let direction = Direction::of_pattern(&graph.forward);
        self.product(OPERATION, direction, Some(&shares), attention.values, &Epilogue::default(), out)
    }

    /// [`Backend::attention_backward`].
    pub(crate) fn attention_backward<B>(
        &self,
        attention: &Attention<'_, B>,
        (out, log_sums): (&CudaMatrix, &CudaMatrix),
        grad: &CudaMatrix,
        grads: AttentionGrads<'_, CudaMatrix>,
    ) -> Result<(), ComputeError>
    where
        B: Backend<Matrix = CudaMatrix, Sparse = CudaSparse> + ?Sized,
    {
        let AttentionGrads { destination, source, vector, values } = grads;
        let vector_shape = vector.as_ref().map(|vector| vector.shape);
        let grad_shapes = (destination.shape, source.shape, vector_shape, values.shape);
        checks::attention_backward(&shapes(attention), (out.shape, log_sums.shape), grad.shape, grad_shapes)?;
        let (graph, operands) = (attention.graph, Operands::of(attention));
        let mut shares = self.scores(BACKWARD, &operands)?;
        self.softmax_entries(BACKWARD, &graph.forward, &mut shares, None)?;
        let mut score_grads = self.uninitialized(shares.shape, Dtype::F32)?;
        let pattern = Direction::of_pattern(&graph.forward);
        self.sampled(BACKWARD, pattern, grad, attention.values, &mut score_grads)?;
        let masked = match attention.dropout {
            None => None,
            Some(dropout) => {
                let mut masked = self.uninitialized(shares.shape, Dtype::F32)?;
                self.mask_entries(BACKWARD, graph, dropout, &mut score_grads, Some((&shares, &mut masked)))?;
                Some(masked)
            }
        };
        self.softmax_entries_backward(BACKWARD, &graph.forward, &shares, &mut score_grads)?;
        let transpose = self.direction(BACKWARD, graph, Transpose::Yes, true)?.csr;
        let weights = Some(masked.as_ref().unwrap_or(&shares));
        self.product(BACKWARD, Direction::of_pattern(transpose), weights, grad, &Epilogue::default(), values)?;
        match vector {
            None => {
                self.static_slopes(&operands, &mut score_grads)?;
                self.sum_entries(BACKWARD, &graph.forward, &score_grads, destination)?;
                self.sum_entries(BACKWARD, transpose, &score_grads, source)
            }
            Some(vector) => {
                let ends = (operands.destination, operands.source);
                self.dynamic_grads(&operands, &graph.forward, &score_grads, ends, destination, Some(vector))?;
                self.dynamic_grads(&operands, transpose, &score_grads, (ends.1, ends.0), source, None)
            }
        }
    }

    /// The score of every entry and head.
    fn scores(&self, operation: &'static str, operands: &Operands<'_>) -> Result<CudaMatrix, ComputeError> {
        let Operands { graph, heads, slope, destination, source, vector } = *operands;
        let csr = &graph.forward;
        let mut scores = self.uninitialized(Shape::new(csr.nnz, heads), Dtype::F32)?;
        if scores.shape.is_empty() {
            return Ok(scores);
        }
        let (pattern, n_heads) = (self.pattern(csr), heads as u64);
        let depth = (destination.shape.cols / heads) as u64;
        let types = [("X", destination.dtype), ("Y", source.dtype), ("V", vector.map_or(Dtype::F32, |v| v.dtype))];
        let (file, name) = match vector {
            None => (Source::ATTENTION, "static_scores"),
            Some(_) => (Source::EDGES, "dynamic_scores"),
        };
        let kernel = self.kernel(operation, file, name, &types)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&pattern).arg(&n_heads);
        if vector.is_some() {
            launch.arg(&depth);
        }
        launch.arg(&slope).arg(&destination.data).arg(&source.data);
        if let Some(vector) = vector {
            launch.arg(&vector.data);
        }
        launch.arg(&mut scores.data);
        // SAFETY: destinations have a row for each row of the pattern, sources one for each column, both `heads ·
        // depth` wide, and so is the vector; there is a row of `heads` scores for each entry, which one warp writes.
        unsafe { launch.launch(warps_for(csr.n_pieces())) }.map_err(Self::failed(operation))?;
        Ok(scores)
    }

    /// Masks the numbers of entries in place, and shares into another matrix if wanted; all of them are `f32`.
    fn mask_entries(
        &self,
        operation: &'static str,
        graph: &CudaSparse,
        dropout: Dropout,
        entries: &mut CudaMatrix,
        shares: Option<(&CudaMatrix, &mut CudaMatrix)>,
    ) -> Result<(), ComputeError> {
        if entries.shape.is_empty() {
            return Ok(());
        }
        let mask = EntryMask {
            draws: self.draws(dropout)?,
            column_names: self.pointer(graph.column_names.as_ref()),
            first_row: graph.names.as_ref().map_or(0, |names| names.first_row),
            padding: 0,
        };
        let (pattern, heads) = (self.pattern(&graph.forward), entries.shape.cols as u64);
        let (shares, masked) = match shares {
            Some((shares, masked)) => (self.pointer(Some(&shares.data)), self.pointer(Some(&masked.data))),
            None => (0, 0),
        };
        let kernel = self.kernel(operation, Source::ATTENTION, "mask_entries", &[])?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&pattern).arg(&heads).arg(&mask).arg(&mut entries.data).arg(&shares).arg(&masked);
        // SAFETY: all matrices have a row of `heads` floats for each entry, which one warp writes; there is a name for
        // each column, or none are given; a key that is stored lives as long as the graph that this is captured for.
        unsafe { launch.launch(warps_for(graph.forward.n_pieces())) }.map_err(Self::failed(operation))?;
        Ok(())
    }

    /// Takes the gradients of scores of GAT back through the leaky rectifier, in place.
    fn static_slopes(&self, operands: &Operands<'_>, grads: &mut CudaMatrix) -> Result<(), ComputeError> {
        if grads.shape.is_empty() {
            return Ok(());
        }
        let Operands { graph, slope, destination, source, .. } = *operands;
        let (pattern, heads) = (self.pattern(&graph.forward), operands.heads as u64);
        let types = [("X", destination.dtype), ("Y", source.dtype)];
        let kernel = self.kernel(BACKWARD, Source::ATTENTION, "static_slopes", &types)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&pattern).arg(&heads).arg(&slope).arg(&destination.data).arg(&source.data).arg(&mut grads.data);
        // SAFETY: destinations have a row of `heads` for each row of the pattern, sources one for each column,
        // gradients one for each entry.
        unsafe { launch.launch(warps_for(graph.forward.n_pieces())) }.map_err(Self::failed(BACKWARD))?;
        Ok(())
    }

    /// The gradient of the rows (`ends.0`) or, over the transpose, of the columns of what the scores of GATv2 add up;
    /// and of the vector, if wanted.
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
        let (cols, config) = (vector.shape.cols, dynamic_config(csr, vector.shape.cols));
        let n_warps = (config.grid_dim.0 * config.block_dim.0 / 32) as usize;
        let partial = self.uninitialized(Shape::new(csr.n_segments(), cols), Dtype::F32)?;
        let vector_sums = match vector_grad {
            None => None,
            Some(_) => Some(self.uninitialized(Shape::new(n_warps, cols), Dtype::F32)?),
        };
        let sums = self.pointer(vector_sums.as_ref().map(|sums| &sums.data));
        let (pattern, heads, width) = (self.pattern(csr), operands.heads as u64, cols as u64);
        let types = [("X", ends.0.dtype), ("Y", ends.1.dtype), ("V", vector.dtype), ("Z", out.dtype)];
        let kernel = self.kernel(BACKWARD, Source::ATTENTION, "dynamic_grads", &types)?;
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
            (Some(sums), Some(grad)) => self.total_columns(BACKWARD, &sums, grad),
            _ => Ok(()),
        }
    }
}

/// Warps that walk over the pieces of a pattern; as many as the pattern asks for, whatever the device, so that sums are
/// made of the same parts everywhere.
fn dynamic_config(csr: &CudaCsr, width: usize) -> LaunchConfig {
    let rows = warps_for(csr.n_pieces());
    let panels = width.div_ceil(DYNAMIC_COLUMNS) as u32;
    LaunchConfig { grid_dim: (rows.grid_dim.0.min(VECTOR_BLOCKS_MAX), panels, 1), ..rows }
}
