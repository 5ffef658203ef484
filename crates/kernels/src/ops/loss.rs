//! `kernels/loss.cu`: losses with their gradients.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, LaunchConfig, PushKernelArg};
use girih_compute::{ComputeError, Dtype, checks};

use super::passes::NULL;
use crate::backend::Cuda;
use crate::compile::Source;
use crate::device::{threads_for, warps_for};
use crate::matrix::{CudaIds, CudaMatrix};

/// Blocks that add up losses, at most. The grid depends on the shape alone, and so does the order of sums.
const BLOCKS: u32 = 1 << 12;
/// Threads of the block that adds up what they leave.
const FINISH: u32 = 1 << 10;

impl Cuda {
    /// [`Backend::softmax_cross_entropy`](girih_compute::Backend::softmax_cross_entropy).
    pub(crate) fn softmax_cross_entropy(
        &self,
        logits: &CudaMatrix,
        classes: &CudaIds,
        rows: &CudaIds,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "softmax_cross_entropy";
        let grad_shape = grad.as_deref().map(|grad| grad.shape);
        checks::softmax_cross_entropy(logits.shape, classes.range.len, rows.range, grad_shape, loss.shape)?;
        self.check_classes(classes, rows, logits.shape.cols)?;
        let counts = self.count_rows(OPERATION, rows, logits.shape.rows)?;
        let types = [("X", logits.dtype), ("Y", dtype_of(grad.as_deref()))];
        let kernel = self.kernel(OPERATION, Source::LOSS, OPERATION, &types)?;
        let config = rows_grid(logits.shape.rows);
        let mut partials = self.scratch::<f64>(OPERATION, config.grid_dim.0 as usize)?;
        let (n_rows, cols, weight) = (logits.shape.rows as u64, logits.shape.cols as u64, 1.0 / rows.range.len as f64);
        let factor = weight as f32;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&logits.data).arg(&classes.ids).arg(&*counts).arg(&n_rows).arg(&cols).arg(&factor);
        match grad {
            Some(grad) => launch.arg(&mut grad.data),
            None => launch.arg(&NULL),
        };
        launch.arg(&mut partials);
        // SAFETY: logits and gradient are rows × cols of the types that the kernel was compiled for, there is a count and a
        // class for each row, classes of rows that count are columns, and there is a sum for each block.
        unsafe { launch.launch(config) }.map_err(Self::failed(OPERATION))?;
        self.finish_loss(OPERATION, &partials, weight, loss)
    }

    /// [`Backend::sigmoid_cross_entropy`](girih_compute::Backend::sigmoid_cross_entropy).
    pub(crate) fn sigmoid_cross_entropy(
        &self,
        logits: &CudaMatrix,
        targets: &CudaMatrix,
        rows: &CudaIds,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "sigmoid_cross_entropy";
        let grad_shape = grad.as_deref().map(|grad| grad.shape);
        checks::sigmoid_cross_entropy(logits.shape, targets.shape, rows.range, grad_shape, loss.shape)?;
        let counts = self.count_rows(OPERATION, rows, logits.shape.rows)?;
        let types = [("X", logits.dtype), ("Y", dtype_of(grad.as_deref())), ("Z", targets.dtype)];
        let kernel = self.kernel(OPERATION, Source::LOSS, OPERATION, &types)?;
        let config = rows_grid(logits.shape.rows);
        let mut partials = self.scratch::<f64>(OPERATION, config.grid_dim.0 as usize)?;
        let (n_rows, cols) = (logits.shape.rows as u64, logits.shape.cols as u64);
        let weight = 1.0 / (rows.range.len as f64 * logits.shape.cols as f64);
        let factor = weight as f32;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&logits.data).arg(&targets.data).arg(&*counts).arg(&n_rows).arg(&cols).arg(&factor);
        match grad {
            Some(grad) => launch.arg(&mut grad.data),
            None => launch.arg(&NULL),
        };
        launch.arg(&mut partials);
        // SAFETY: logits, targets and gradient are rows × cols of the types that the kernel was compiled for, there is a
        // count for each row, and a sum for each block.
        unsafe { launch.launch(config) }.map_err(Self::failed(OPERATION))?;
        self.finish_loss(OPERATION, &partials, weight, loss)
    }

    /// [`Backend::bpr_loss`](girih_compute::Backend::bpr_loss).
    pub(crate) fn bpr_loss(
        &self,
        triples: &CudaMatrix,
        grad: Option<&mut CudaMatrix>,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "bpr_loss";
        checks::bpr_loss(triples.shape, grad.as_deref().map(|grad| grad.shape), loss.shape)?;
        let n_triples = triples.shape.rows / 3;
        let types = [("X", triples.dtype), ("Y", dtype_of(grad.as_deref()))];
        let kernel = self.kernel(OPERATION, Source::LOSS, OPERATION, &types)?;
        let config = rows_grid(n_triples);
        let mut partials = self.scratch::<f64>(OPERATION, config.grid_dim.0 as usize)?;
        let (n, cols, weight) = (n_triples as u64, triples.shape.cols as u64, 1.0 / n_triples as f64);
        let factor = weight as f32;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&triples.data).arg(&n).arg(&cols).arg(&factor);
        match grad {
            Some(grad) => launch.arg(&mut grad.data),
            None => launch.arg(&NULL),
        };
        launch.arg(&mut partials);
        // SAFETY: triples and gradient are 3n × cols of the types that the kernel was compiled for, and there is a sum for
        // each block.
        unsafe { launch.launch(config) }.map_err(Self::failed(OPERATION))?;
        self.finish_loss(OPERATION, &partials, weight, loss)
    }

    /// The class of each of `rows` is one of `n_columns`. Nothing is looked up where all classes are, or where the same rows
    /// were found to have such classes before.
    fn check_classes(&self, classes: &CudaIds, rows: &CudaIds, n_columns: usize) -> Result<(), ComputeError> {
        const OPERATION: &str = "softmax_cross_entropy";
        let is_known = |(known, n): &(Arc<[u32]>, usize)| Arc::ptr_eq(known, &classes.host) && *n == n_columns;
        let checked = &rows.derived.checked;
        if classes.range.end <= n_columns as u64 || classes.is_on_host() && checked.get().is_some_and(is_known) {
            return Ok(());
        }
        let mut found = self.device.stream.alloc_zeros::<u32>(1).map_err(Self::failed(OPERATION))?;
        let kernel = self.kernel(OPERATION, Source::LOSS, "find_bad_class", &[])?;
        let (n, cols) = (rows.range.len as u64, n_columns as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&rows.ids).arg(&n).arg(&classes.ids).arg(&cols).arg(&mut found);
        // SAFETY: there are `n` rows, each with a class; all that is written is one number.
        unsafe { launch.launch(threads_for(rows.range.len)) }.map_err(Self::failed(OPERATION))?;
        if self.read(OPERATION, &found.as_view())? == [0] {
            if classes.is_on_host() {
                let _ = checked.set((Arc::clone(&classes.host), n_columns));
            }
            return Ok(());
        }
        checks::classes(&self.ids_on_host(OPERATION, classes)?, &self.ids_on_host(OPERATION, rows)?, n_columns)
    }

    /// How often each of `n_rows` rows is named by `rows`, counted when that is first asked for.
    fn count_rows(
        &self,
        operation: &'static str,
        rows: &CudaIds,
        n_rows: usize,
    ) -> Result<Arc<CudaSlice<u32>>, ComputeError> {
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
        partials: &CudaSlice<f64>,
        weight: f64,
        loss: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let kernel = self.kernel(operation, Source::LOSS, "finish_loss", &[("Y", loss.dtype)])?;
        let n = partials.len() as u64;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(partials).arg(&n).arg(&weight).arg(&mut loss.data);
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (FINISH, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: there are `n` partial sums, and the loss is one element of type Y.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        Ok(())
    }
}

/// How a gradient is stored; of none, any type will do.
fn dtype_of(grad: Option<&CudaMatrix>) -> Dtype {
    grad.map_or(Dtype::F32, |grad| grad.dtype)
}

/// A warp for each of `n` rows, in as many blocks as leave sums.
fn rows_grid(n: usize) -> LaunchConfig {
    let config = warps_for(n);
    LaunchConfig { grid_dim: (config.grid_dim.0.min(BLOCKS), 1, 1), ..config }
}
