//! [`Blas`]: cuBLAS on a stream, and the workspace of dense products.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublas::{result, sys};
use cudarc::driver::{CudaStream, DevicePtr};

use crate::buffer::Buffer;
use crate::error::{KernelError, Kind};

/// cuBLAS handle whose work goes to one stream. cudarc's own handle panics when it is dropped after a device failure,
/// which would hide the cause.
pub(crate) struct Blas {
    handle: sys::cublasHandle_t,
    stream: Arc<CudaStream>,
    workspace: Workspace,
}

/// Scratch memory of dense products. One suffices, because all products run on one stream in order. Products that
/// allocated their own could not be captured.
pub(crate) type Workspace = Arc<Buffer<u8>>;

/// Bytes of the workspace, as NVIDIA suggests for its latest GPUs.
pub(crate) const WORKSPACE: usize = 32 << 20;

// SAFETY: cuBLAS allows a handle to be used by any thread, one at a time or not; all work goes to one stream.
unsafe impl Send for Blas {}
// SAFETY: as above; nothing is changed about the handle after it is made.
unsafe impl Sync for Blas {}

impl Blas {
    /// Creates a handle on a stream. Products of bf16 are summed in f32 throughout, also where several blocks share a
    /// sum. f32 is not rounded to fewer bits; this is cuBLAS's default unless a process asks otherwise.
    pub(crate) fn new(stream: Arc<CudaStream>, workspace: Workspace) -> Result<Self, KernelError> {
        let failed = |error: result::CublasError| Kind::Blas(describe(error));
        stream.context().bind_to_thread().map_err(KernelError::driver("cannot use the CUDA device"))?;
        let blas = Self { handle: result::create_handle().map_err(failed)?, stream, workspace };
        let mode = sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        let workspace = blas.workspace.device_ptr(&blas.stream).0;
        // SAFETY: the handle is live, and it holds on to the stream and the workspace. It takes the workspace for its
        // current stream.
        unsafe {
            result::set_stream(blas.handle, blas.stream.cu_stream().cast()).map_err(failed)?;
            sys::cublasSetWorkspace_v2(blas.handle, workspace as *mut c_void, WORKSPACE).result().map_err(failed)?;
            sys::cublasSetMathMode(blas.handle, mode).result().map_err(failed)?;
        }
        Ok(blas)
    }

    /// Handle of cuBLAS, for as long as this lives.
    pub(crate) fn handle(&self) -> &sys::cublasHandle_t {
        &self.handle
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // After a failure of the device neither call can succeed, and nothing is lost.
        let _ = self.stream.context().bind_to_thread();
        // SAFETY: the handle is live, and nobody uses it after this.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// Message for an error of cuBLAS.
pub(crate) fn describe(error: result::CublasError) -> String {
    use sys::cublasStatus_t as S;
    match error.0 {
        S::CUBLAS_STATUS_ALLOC_FAILED => {
            format!("the GPU has too little free memory for its workspace ({:?})", error.0)
        }
        S::CUBLAS_STATUS_EXECUTION_FAILED => {
            format!("a product, or an operation shortly before it, failed on the GPU ({:?})", error.0)
        }
        status => format!("{status:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_products_say_what_they_mean() {
        use sys::cublasStatus_t as S;
        let told = |status| describe(result::CublasError(status));
        assert_eq!(
            told(S::CUBLAS_STATUS_ALLOC_FAILED),
            "the GPU has too little free memory for its workspace (CUBLAS_STATUS_ALLOC_FAILED)"
        );
        assert_eq!(
            told(S::CUBLAS_STATUS_EXECUTION_FAILED),
            "a product, or an operation shortly before it, failed on the GPU (CUBLAS_STATUS_EXECUTION_FAILED)"
        );
        assert_eq!(told(S::CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
    }
}
