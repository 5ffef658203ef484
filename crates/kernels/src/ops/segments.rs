//! `cuda/segments.cu`: aggregations other than sums. This module has maxima; `lstm` has LSTMs.

mod lstm;

use cudarc::driver::{LaunchConfig, PushKernelArg};
use girih_compute::{ComputeError, Fits, SegmentOps, Shape, Transpose};
use girih_random::Key;

use self::lstm::Lstm;
use super::passes::NULL;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::warps_for;
use crate::matrix::{CudaIds, CudaMatrix, CudaSparse};

impl SegmentOps for Cuda {
    fn run_segment_max(
        &self,
        _: Fits,
        a: &CudaSparse,
        x: &CudaMatrix,
        out: &mut CudaMatrix,
        winners: Option<&mut CudaIds>,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "segment_max";
        if out.shape.is_empty() {
            return Ok(());
        }
        let kernel = self.kernel(OPERATION, Source::SEGMENTS, OPERATION, &[("X", x.dtype), ("Y", out.dtype)])?;
        let (rows, cols) = (out.shape.rows as u64, out.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&a.forward.indptr).arg(&a.forward.indices).arg(&rows).arg(&x.data).arg(&cols).arg(&mut out.data);
        match winners {
            Some(winners) => launch.arg(winners.overwrite(x.shape.rows as u64)),
            None => launch.arg(&NULL),
        };
        // SAFETY: indices of a `Csr` are rows of `x`; `x` and `out` have `cols` columns and the types that the kernel
        // was compiled for, and there is a winner for each element of `out`.
        unsafe { launch.launch(row_blocks(out.shape, 32)) }.map(drop).map_err(Self::failed(OPERATION))
    }

    fn run_segment_max_backward(
        &self,
        _: Fits,
        a: &CudaSparse,
        winners: &CudaIds,
        grad: &CudaMatrix,
        x_grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "segment_max_backward";
        if x_grad.shape.is_empty() {
            return Ok(());
        }
        let csr = self.direction(OPERATION, a, Transpose::Yes, false)?.csr;
        let types = [("X", grad.dtype), ("Y", x_grad.dtype)];
        let kernel = self.kernel(OPERATION, Source::SEGMENTS, OPERATION, &types)?;
        let (rows, cols) = (x_grad.shape.rows as u64, x_grad.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&csr.indptr).arg(&csr.indices).arg(&rows).arg(&winners.ids).arg(&grad.data).arg(&cols);
        launch.arg(&mut x_grad.data);
        // SAFETY: indices of the transpose are rows of `grad`; `grad` and `x_grad` have `cols` columns and the types
        // that the kernel was compiled for, and there is a winner for each element of `grad`.
        unsafe { launch.launch(row_blocks(x_grad.shape, 32)) }.map(drop).map_err(Self::failed(OPERATION))
    }

    fn run_segment_lstm(
        &self,
        _: Fits,
        sequences: (&CudaSparse, Option<Key>),
        inputs: &CudaMatrix,
        weight: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let weight = self.as_f32(weight)?;
        Lstm::new(self, "segment_lstm", inputs, &weight).forward(sequences, out)
    }

    fn run_segment_lstm_backward(
        &self,
        _: Fits,
        sequences: (&CudaSparse, Option<Key>),
        (inputs, weight): (&CudaMatrix, &CudaMatrix),
        grad: &CudaMatrix,
        grads: (&mut CudaMatrix, &mut CudaMatrix),
    ) -> Result<(), ComputeError> {
        let weight = self.as_f32(weight)?;
        Lstm::new(self, "segment_lstm_backward", inputs, &weight).backward(sequences, weight.shape, grad, grads)
    }
}

/// Launch with a warp for each row and each `at_once` of its columns.
fn row_blocks(shape: Shape, at_once: usize) -> LaunchConfig {
    warps_for(shape.rows * shape.cols.div_ceil(at_once))
}
