//! `cuda/normalize.cu`: layer and batch normalisation.

use cudarc::driver::PushKernelArg;
use girih_compute::{ColumnMoments, ComputeError, DenseOps, Dtype, Fits, NormOps};

use super::memory::InF32;
use super::passes::columns_of;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::warps_for;
use crate::matrix::CudaMatrix;

/// [`ColumnMoments`] in `f32`.
struct MomentsInF32<'a> {
    means: InF32<'a>,
    variances: InF32<'a>,
    eps: f32,
}

impl NormOps for Cuda {
    fn run_normalize_rows(
        &self,
        _: Fits,
        eps: f32,
        x: &CudaMatrix,
        (gain, bias): (&CudaMatrix, &CudaMatrix),
        out: &mut CudaMatrix,
        moments: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if x.shape.rows == 0 {
            return Ok(());
        }
        let (gain, bias) = (self.as_f32(gain)?, self.as_f32(bias)?);
        if moments.dtype == Dtype::F32 {
            return self.rows_forward(eps, x, (&gain, &bias), out, moments);
        }
        let mut exact = self.uninitialized(moments.shape, Dtype::F32)?;
        self.rows_forward(eps, x, (&gain, &bias), out, &mut exact)?;
        self.convert(&exact, moments)
    }

    fn run_normalize_rows_backward(
        &self,
        _: Fits,
        x: &CudaMatrix,
        gain: &CudaMatrix,
        moments: &CudaMatrix,
        grad: &mut CudaMatrix,
        (gain_grad, bias_grad): (&mut CudaMatrix, &mut CudaMatrix),
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "normalize_rows_backward";
        let (gain, moments) = (self.as_f32(gain)?, self.as_f32(moments)?);
        // The sums come first: the second kernel overwrites the gradient that they read.
        self.rows_backward_sums(x, &moments, grad, [gain_grad, bias_grad])?;
        if x.shape.is_empty() {
            return Ok(());
        }
        let types = [("X", x.dtype), ("Y", grad.dtype)];
        let kernel = self.kernel(OPERATION, Source::NORMALIZE, "normalize_rows_backward", &types)?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&gain.data).arg(&moments.data).arg(&rows).arg(&cols).arg(&mut grad.data);
        // SAFETY: `x` and `grad` are rows × cols of the types that the kernel was compiled for, gain one row of floats,
        // and moments two floats for each row.
        unsafe { launch.launch(warps_for(x.shape.rows)) }.map(drop).map_err(Self::failed(OPERATION))
    }

    fn run_column_squares(
        &self,
        _: Fits,
        x: &CudaMatrix,
        means: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "column_squares";
        let means = self.as_f32(means)?;
        let types = [("X", x.dtype), ("Y", x.dtype)];
        let kernel = self.kernel(OPERATION, Source::NORMALIZE, "column_squares", &types)?;
        self.column_reduction(OPERATION, x.shape, [out], |rows, cols, partials, config| {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&x.data).arg(&means.data).arg(rows).arg(cols).arg(partials);
            // SAFETY: `x` is rows × cols of the type that the kernel was compiled for, means are one row of floats;
            // `partials` has space for one sum of each column and block.
            unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(OPERATION))
        })
    }

    fn run_normalize_columns(
        &self,
        _: Fits,
        moments: ColumnMoments<'_, CudaMatrix>,
        x: &CudaMatrix,
        (gain, bias): (&CudaMatrix, &CudaMatrix),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "normalize_columns";
        if x.shape.is_empty() {
            return Ok(());
        }
        let moments = self.moments_in_f32(&moments)?;
        let (gain, bias) = (self.as_f32(gain)?, self.as_f32(bias)?);
        let types = [("X", x.dtype), ("Y", out.dtype)];
        let kernel = self.kernel(OPERATION, Source::NORMALIZE, "normalize_columns", &types)?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&moments.means.data).arg(&moments.variances.data).arg(&moments.eps);
        launch.arg(&gain.data).arg(&bias.data).arg(&rows).arg(&cols).arg(&mut out.data);
        // SAFETY: `x` and `out` are rows × cols of the types that the kernel was compiled for; the others are one row
        // of floats each.
        unsafe { launch.launch(columns_of(x.shape)) }.map(drop).map_err(Self::failed(OPERATION))
    }

    fn run_normalized_products(
        &self,
        _: Fits,
        moments: ColumnMoments<'_, CudaMatrix>,
        x: &CudaMatrix,
        grad: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "normalized_products";
        let moments = self.moments_in_f32(&moments)?;
        let types = [("X", x.dtype), ("Y", grad.dtype)];
        let kernel = self.kernel(OPERATION, Source::NORMALIZE, "normalized_products", &types)?;
        self.column_reduction(OPERATION, x.shape, [out], |rows, cols, partials, config| {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&x.data).arg(&moments.means.data).arg(&moments.variances.data).arg(&moments.eps);
            launch.arg(&grad.data).arg(rows).arg(cols).arg(partials);
            // SAFETY: `x` and `grad` are rows × cols of the types that the kernel was compiled for, moments one row of
            // floats each; `partials` has space for one sum of each column and block.
            unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(OPERATION))
        })
    }

    fn run_normalize_columns_backward(
        &self,
        _: Fits,
        moments: ColumnMoments<'_, CudaMatrix>,
        x: &CudaMatrix,
        gain: &CudaMatrix,
        (shift, slope): (&CudaMatrix, &CudaMatrix),
        grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "normalize_columns_backward";
        if x.shape.is_empty() {
            return Ok(());
        }
        let moments = self.moments_in_f32(&moments)?;
        let (gain, shift, slope) = (self.as_f32(gain)?, self.as_f32(shift)?, self.as_f32(slope)?);
        let types = [("X", x.dtype), ("Y", grad.dtype)];
        let kernel = self.kernel(OPERATION, Source::NORMALIZE, "normalize_columns_backward", &types)?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&moments.means.data).arg(&moments.variances.data).arg(&moments.eps);
        launch.arg(&gain.data).arg(&shift.data).arg(&slope.data).arg(&rows).arg(&cols).arg(&mut grad.data);
        // SAFETY: `x` and `grad` are rows × cols of the types that the kernel was compiled for; the others are one row
        // of floats each.
        unsafe { launch.launch(columns_of(x.shape)) }.map(drop).map_err(Self::failed(OPERATION))
    }
}

impl Cuda {
    /// As [`normalize_rows`](NormOps::normalize_rows), with gain, bias and moments in `f32`.
    fn rows_forward(
        &self,
        eps: f32,
        x: &CudaMatrix,
        (gain, bias): (&CudaMatrix, &CudaMatrix),
        out: &mut CudaMatrix,
        moments: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "normalize_rows";
        let types = [("X", x.dtype), ("Y", out.dtype)];
        let kernel = self.kernel(OPERATION, Source::NORMALIZE, "normalize_rows", &types)?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&gain.data).arg(&bias.data).arg(&rows).arg(&cols).arg(&eps);
        launch.arg(&mut out.data).arg(&mut moments.data);
        // SAFETY: `x` and `out` are rows × cols of the types that the kernel was compiled for, gain and bias one row of
        // floats each, and moments two floats for each row.
        unsafe { launch.launch(warps_for(x.shape.rows)) }.map(drop).map_err(Self::failed(OPERATION))
    }

    /// Computes the gradients of gain and bias from moments in `f32`.
    fn rows_backward_sums(
        &self,
        x: &CudaMatrix,
        moments: &CudaMatrix,
        grad: &CudaMatrix,
        sums: [&mut CudaMatrix; 2],
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "normalize_rows_backward";
        let types = [("X", x.dtype), ("Y", grad.dtype)];
        let kernel = self.kernel(OPERATION, Source::NORMALIZE, "normalize_rows_sums", &types)?;
        self.column_reduction(OPERATION, x.shape, sums, |rows, cols, partials, config| {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&x.data).arg(&grad.data).arg(&moments.data).arg(rows).arg(cols).arg(partials);
            // SAFETY: `x` and `grad` are rows × cols of the types that the kernel was compiled for, moments two floats
            // for each row; `partials` has space for two sums of each column and block.
            unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(OPERATION))
        })
    }

    fn moments_in_f32<'a>(&self, moments: &ColumnMoments<'a, CudaMatrix>) -> Result<MomentsInF32<'a>, ComputeError> {
        let (means, variances) = (self.as_f32(moments.means)?, self.as_f32(moments.variances)?);
        Ok(MomentsInF32 { means, variances, eps: moments.eps })
    }
}
