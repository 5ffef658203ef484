//! [`RowLaunch`]: `cuda/rows.cu` on rows in any memory that a device reads. Copies the selected rows, as they are
//! or decoded.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use girih_compute::{ComputeError, Dtype};

use super::code_book::{CodeBook, Decoding};
use crate::Cuda;
use crate::abi::{GatherIndex, RowSource};
use crate::compile::Source;

/// Launch that copies or decodes rows into a result.
pub(crate) struct RowLaunch {
    kernel: CudaFunction,
    /// Arguments for decoding, and their book; `None` for plain copies.
    decoding: Option<(Decoding, Arc<CodeBook>)>,
}

impl RowLaunch {
    /// Creates the launch that copies rows as they are.
    pub(crate) fn copying(cuda: &Cuda, operation: &'static str, dtype: Dtype) -> Result<Self, ComputeError> {
        let kernel = cuda.kernel(operation, Source::ROWS, "copy_named", &[("X", dtype), ("Y", dtype)])?;
        Ok(Self { kernel, decoding: None })
    }

    /// Creates the launch that decodes rows of codes.
    pub(crate) fn decoding(cuda: &Cuda, operation: &'static str, book: &Arc<CodeBook>) -> Result<Self, ComputeError> {
        let types = [("X", book.dtype), ("Y", book.dtype)];
        let kernel = cuda.kernel(operation, Source::ROWS, "decode_rows", &types)?;
        Ok(Self { kernel, decoding: Some((book.decoding(cuda), Arc::clone(book))) })
    }

    /// Whether the launch decodes, so that results differ from the stored rows.
    pub(crate) fn decodes(&self) -> bool {
        self.decoding.is_some()
    }

    /// Writes the selected rows to a result: `n` rows, or as many as were counted. Uses `blocks` blocks, each of
    /// `threads` threads if nothing is decoded.
    ///
    /// # Safety
    /// Ids have to be rows, each of which lies where the argument says, and places rows of the result; of codes,
    /// positions have to be columns of their group.
    pub(crate) unsafe fn put(
        &self,
        stream: &CudaStream,
        (blocks, threads): (u32, u32),
        rows: RowSource,
        names: GatherIndex,
        (out, n): (u64, u64),
    ) -> Result<(), DriverError> {
        let mut launch = stream.launch_builder(&self.kernel);
        launch.arg(&rows);
        if let Some((Decoding { book, .. }, _)) = &self.decoding {
            launch.arg(book);
        }
        launch.arg(&names).arg(&out).arg(&n);
        let (threads, shared_mem_bytes) = self
            .decoding
            .as_ref()
            .map_or((threads, 0), |(decoding, _)| (decoding.warps.threads, decoding.warps.shared_bytes));
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes };
        // SAFETY: see above; each warp has shared memory for a row, and there is a value for each byte of a code.
        unsafe { launch.launch(config) }.map(drop)
    }
}
