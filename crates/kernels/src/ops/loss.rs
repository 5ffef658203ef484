//! `cuda/loss.cu`: losses with their gradients.

use std::sync::Arc;

use cudarc::driver::{LaunchConfig, PushKernelArg};
use girih_compute::scratch::{RANKED, pitch};
use girih_compute::{ComputeError, DenseOps, Dtype, Fits, LossOps, Shape, checks};
use girih_graph_format::Csr;

use super::passes::NULL;
use crate::abi::{Losses, WIDE};
use crate::buffer::Buffer;
use crate::compile::{Defines, Source};
use crate::cuda::{Cuda, element};
use crate::device::{threads_for, warps_for};
use crate::matrix::{CudaIds, CudaMatrix};

const SOFTMAX: &str = "softmax_cross_entropy";
/// Most blocks that sum losses. The grid depends on the shape alone, and so does the order of sums.
const BLOCKS: u32 = 1 << 12;
/// Elements of a row per lane; short rows share a warp.
const ELEMENTS_OF_LANE: usize = 8;
/// Fewest bytes that the lanes of a row write at once: a sector, which memory writes without reading it first.
const SECTOR: usize = 32;
/// Threads of the block that adds up the partial sums.
const FINISH: u32 = 1 << 10;

/// Assignment of lanes to a row: see `cuda/loss.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lanes {
    n: usize,
    /// Elements that a lane reads at once.
    vec: usize,
    /// Number of vectors that a lane keeps in registers; zero if there are too many.
    kept: usize,
}

impl Lanes {
    /// Vectors that a lane keeps, where there are enough lanes.
    const KEPT: usize = 3;
    /// Most vectors that a lane keeps.
    const KEPT_MAX: usize = 4;

    fn of(operation: &str, cols: usize, grad: Dtype) -> Self {
        if operation != SOFTMAX {
            let whole_sectors = SECTOR / grad.n_bytes();
            let n = cols.div_ceil(ELEMENTS_OF_LANE).next_power_of_two().clamp(whole_sectors, 32);
            return Self { n, vec: 1, kept: 0 };
        }
        let vec = if cols < WIDE { 1 } else { WIDE };
        let vectors = pitch(cols) / vec;
        // Few lanes suffice, because most work of a warp for a row does not depend on their number; two of them fill
        // a sector.
        let n = vectors.div_ceil(Self::KEPT).next_power_of_two().clamp(vectors.min(2), 32);
        let kept = vectors.div_ceil(n);
        Self { n, vec, kept: if kept <= Self::KEPT_MAX { kept } else { 0 } }
    }
}

/// Loss over rows, or over triples of them; the kernel has the name of the operation.
struct Rows<'a> {
    operation: &'static str,
    n: usize,
    logits: &'a CudaMatrix,
    /// Address of classes or targets, and element type of targets; zero if there are none.
    wanted: u64,
    wanted_dtype: Dtype,
    counts: Option<Arc<Buffer<u32>>>,
    /// Factor of losses and gradients.
    weight: f64,
}

impl LossOps for Cuda {
    fn check_classes(&self, classes: &CudaIds, rows: &CudaIds, n_columns: usize) -> Result<(), ComputeError> {
        const OPERATION: &str = SOFTMAX;
        // Without a look-up if all classes are columns, or if the check of these rows passed before.
        let is_known = |(known, n): &(Arc<[u32]>, usize)| Arc::ptr_eq(known, &classes.host) && *n == n_columns;
        let checked = &rows.derived.checked;
        if classes.range.end <= n_columns as u64 || classes.is_on_host() && checked.get().is_some_and(is_known) {
            return Ok(());
        }
        let mut found = self.scratch::<u32>(OPERATION, 1)?;
        self.device.stream.memset_zeros(&mut found).map_err(Self::failed(OPERATION))?;
        let kernel = self.kernel(OPERATION, Source::LOSS, "find_bad_class", &[])?;
        let (n, cols) = (rows.range.len as u64, n_columns as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&rows.ids).arg(&n).arg(&classes.ids).arg(&cols).arg(&mut found);
        // SAFETY: there are `n` rows, each with a class; the kernel writes one number.
        unsafe { launch.launch(threads_for(rows.range.len)) }.map_err(Self::failed(OPERATION))?;
        if self.read(OPERATION, &found.as_view())? == [0] {
            if classes.is_on_host() {
                let _ = checked.set((Arc::clone(&classes.host), n_columns));
            }
            return Ok(());
        }
        checks::classes(&self.ids_on_host(OPERATION, classes)?, &self.ids_on_host(OPERATION, rows)?, n_columns)
    }

    fn run_softmax_cross_entropy(
        &self,
        _: Fits,
        logits: &CudaMatrix,
        classes: &CudaIds,
        rows: &CudaIds,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = SOFTMAX;
        let rows = Rows {
            operation: OPERATION,
            n: logits.shape.rows,
            logits,
            wanted: self.pointer(Some(&classes.ids)),
            wanted_dtype: Dtype::F32,
            counts: Some(self.count_rows(OPERATION, rows, logits.shape.rows)?),
            weight: 1.0 / rows.range.len as f64,
        };
        // SAFETY: there is a count and a class for each row, and classes of rows that count are columns.
        unsafe { self.loss(&rows, grad, loss) }
    }

    fn run_sigmoid_cross_entropy(
        &self,
        _: Fits,
        logits: &CudaMatrix,
        targets: &CudaMatrix,
        rows: &CudaIds,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "sigmoid_cross_entropy";
        let rows = Rows {
            operation: OPERATION,
            n: logits.shape.rows,
            logits,
            wanted: self.pointer(Some(&targets.data)),
            wanted_dtype: targets.dtype,
            counts: Some(self.count_rows(OPERATION, rows, logits.shape.rows)?),
            weight: 1.0 / (rows.range.len as f64 * logits.shape.cols as f64),
        };
        // SAFETY: there is a count for each row, and targets are of the shape of logits.
        unsafe { self.loss(&rows, grad, loss) }
    }

    fn run_argmax_rows(&self, _: Fits, x: &CudaMatrix) -> Result<Vec<u32>, ComputeError> {
        const OPERATION: &str = "argmax_rows";
        let mut found = self.scratch::<u32>(OPERATION, x.shape.rows)?;
        let kernel = self.kernel(OPERATION, Source::RANKING, OPERATION, &[("X", x.dtype)])?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&rows).arg(&cols).arg(&mut found);
        // SAFETY: `x` is rows × cols of the type that the kernel was compiled for, with at least one column, and
        // `found` has a number for each row.
        unsafe { launch.launch(warps_for(x.shape.rows)) }.map_err(Self::failed(OPERATION))?;
        self.read(OPERATION, &found.slice(..x.shape.rows))
    }

    fn run_count_correct(
        &self,
        _: Fits,
        x: &CudaMatrix,
        classes: &CudaIds,
        rows: &CudaIds,
    ) -> Result<u64, ComputeError> {
        const OPERATION: &str = "count_correct";
        let mut n_correct = self.scratch::<u64>(OPERATION, 1)?;
        self.device.stream.memset_zeros(&mut n_correct).map_err(Self::failed(OPERATION))?;
        let kernel = self.kernel(OPERATION, Source::RANKING, OPERATION, &[("X", x.dtype)])?;
        let (cols, n) = (x.shape.cols as u64, rows.range.len as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&cols).arg(&classes.ids).arg(&rows.ids).arg(&n).arg(&mut n_correct);
        // SAFETY: there are `n` rows, each one of `x`, which has at least one column and is of the type that the
        // kernel was compiled for; there is a class for each row of `x`; the kernel writes one number.
        unsafe { launch.launch(warps_for(rows.range.len)) }.map_err(Self::failed(OPERATION))?;
        Ok(self.read(OPERATION, &n_correct.as_view())?[0])
    }

    fn run_bpr_loss(
        &self,
        _: Fits,
        triples: &CudaMatrix,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "bpr_loss";
        let n = triples.shape.rows / 3;
        let rows = Rows {
            operation: OPERATION,
            n,
            logits: triples,
            wanted: NULL,
            wanted_dtype: Dtype::F32,
            counts: None,
            weight: 1.0 / n as f64,
        };
        // SAFETY: there are three rows for each triple, and nothing else is read.
        unsafe { self.loss(&rows, grad, loss) }
    }

    fn run_l2_penalty(
        &self,
        _: Fits,
        weight: f32,
        x: &CudaMatrix,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        self.add_squares(f64::from(weight) / 2.0, x, loss)?;
        grad.map_or(Ok(()), |grad| self.scale(weight, x, grad))
    }

    fn run_top_k_rows(&self, _: Fits, x: &CudaMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        const OPERATION: &str = "top_k_rows";
        let Shape { rows, cols } = x.shape;
        checks::allocation(Shape::new(rows, k), size_of::<u64>())?;
        if rows * k == 0 || cols == 0 {
            return Ok(vec![girih_compute::NO_COLUMN; rows * k]);
        }
        // Kernels index by columns without checks.
        let excluded = excluded.in_memory().map_err(|error| ComputeError::device(OPERATION, error.to_string()))?;
        let indptr = self.upload_list(OPERATION, excluded.indptr())?;
        let indices = match excluded.indices() {
            [] => None,
            indices => Some(self.upload_list(OPERATION, indices)?),
        };
        let chunk = (RANKED / cols.max(k)).clamp(1, rows);
        let mut keys = self.scratch::<u32>(OPERATION, chunk * x.pitch())?;
        let mut best = self.scratch::<u64>(OPERATION, chunk * k)?;
        let mut found = self.scratch::<u32>(OPERATION, rows * k)?;
        for first in (0..rows).step_by(chunk) {
            let n = chunk.min(rows - first);
            self.rank_keys(x, first, n, &mut keys)?;
            if let Some(indices) = &indices {
                self.exclude_keys((&indptr, indices), first, (n, cols), &mut keys)?;
            }
            self.top_k((&keys, cols), (first, n), k, &mut best, &mut found)?;
        }
        self.read(OPERATION, &found.as_view())
    }
}

impl Cuda {
    /// Computes the losses of rows, their gradients if wanted, and the total.
    ///
    /// # Safety
    /// All memory that the kernel reads besides logits exists for each row, of the type that `rows` names. The
    /// gradient is of the shape of the logits.
    unsafe fn loss(
        &self,
        rows: &Rows<'_>,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let Rows { operation, n, logits, wanted, wanted_dtype, ref counts, weight } = *rows;
        let types = [("X", logits.dtype), ("Y", dtype_of(grad.as_deref())), ("Z", wanted_dtype)];
        let Lanes { n: lanes, vec, kept } = Lanes::of(operation, logits.shape.cols, types[1].1);
        let defines = types.map(|(name, dtype)| (name, element(dtype).to_owned()));
        let constants = [("LANES", lanes), ("VEC", vec), ("KEPT", kept)].map(|(name, n)| (name, n.to_string()));
        let defines: Defines = defines.into_iter().chain(constants).collect();
        let kernel = self.variant(operation, Source::LOSS, operation, &defines)?;
        let config = threads_for(n.saturating_mul(lanes));
        let config = LaunchConfig { grid_dim: (config.grid_dim.0.min(BLOCKS), 1, 1), ..config };
        let partials = self.scratch::<f64>(operation, config.grid_dim.0 as usize)?;
        let losses = Losses {
            logits: self.pointer(Some(&logits.data)),
            wanted,
            counts: self.pointer(counts.as_deref()),
            grad: self.pointer(grad.map(|grad| &grad.data)),
            partials: self.pointer(Some(&partials)),
            rows: n as u64,
            cols: logits.shape.cols as u64,
            factor: weight as f32,
            padding: 0,
        };
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&losses);
        // SAFETY: logits and gradient are of the types that the kernel was compiled for and of one shape, there is a
        // sum for each block, and the caller vouches for the rest.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        self.finish_loss(operation, &partials, weight, loss)
    }

    /// Number of times that `rows` names each of `n_rows` rows, counted on first use.
    fn count_rows(
        &self,
        operation: &'static str,
        rows: &CudaIds,
        n_rows: usize,
    ) -> Result<Arc<Buffer<u32>>, ComputeError> {
        let known = &rows.derived.counts;
        if let Some(counts) = known.get().filter(|counts| counts.len() == n_rows) {
            return Ok(Arc::clone(counts));
        }
        let mut counts = self.scratch::<u32>(operation, n_rows)?;
        self.device.stream.memset_zeros(&mut counts).map_err(Self::failed(operation))?;
        let kernel = self.kernel(operation, Source::LOSS, "count_rows", &[])?;
        let n = rows.range.len as u64;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&rows.ids).arg(&n).arg(&mut counts);
        // SAFETY: there are `n` ids, each below `n_rows`.
        unsafe { launch.launch(threads_for(rows.range.len)) }.map_err(Self::failed(operation))?;
        let counts = Arc::new(counts);
        let _ = known.set(Arc::clone(&counts));
        Ok(counts)
    }

    /// `loss = weight · Σ partials`.
    fn finish_loss(
        &self,
        operation: &'static str,
        partials: &Buffer<f64>,
        weight: f64,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let kernel = self.kernel(operation, Source::LOSS, "finish_loss", &[("Y", loss.dtype)])?;
        let n = partials.len() as u64;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(partials).arg(&n).arg(&weight).arg(&mut loss.data);
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (FINISH, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: there are `n` partial sums, and the loss is one element of type Y.
        unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(operation))
    }
}

/// Element type of a gradient; `f32` without one.
fn dtype_of(grad: Option<&CudaMatrix>) -> Dtype {
    grad.map_or(Dtype::F32, |grad| grad.dtype)
}
