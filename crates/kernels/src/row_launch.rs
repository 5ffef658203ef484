//! [`RowLaunch`]: `kernels/rows.cu` on rows in any memory that a device reads. Copies the selected rows, as they are
//! or decoded.

use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr, DriverError, LaunchConfig, PushKernelArg};
use girih_compute::{ComputeError, Dtype};

use crate::Cuda;
use crate::code_book::{CodeBook, Decoding};
use crate::compile::Source;

/// Bit that marks host addresses in lists of addresses, as in `kernels/rows.cu`.
pub(crate) const ON_HOST: u64 = 1 << 63;

/// Source of rows: `RowSource` of `kernels/rows.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RowSource {
    first: u64,
    rows: u64,
    row_bytes: u64,
    only_on_cards: u64,
}

impl RowSource {
    /// Contiguous rows of `row_bytes` bytes from an address.
    pub(crate) fn at(first: u64, row_bytes: u64) -> Self {
        Self { first, rows: 0, row_bytes, only_on_cards: 0 }
    }

    /// Rows of `row_bytes` bytes whose addresses are listed at address `rows`.
    pub(crate) fn listed(rows: u64, row_bytes: u64) -> Self {
        Self { first: 0, rows, row_bytes, only_on_cards: 0 }
    }

    /// Restricts the source to rows that the list does not mark as [on the host](ON_HOST).
    pub(crate) fn only_on_cards(self) -> Self {
        Self { only_on_cards: 1, ..self }
    }
}

/// Selection of source and output rows: `GatherIndex` of `kernels/rows.cu`. All fields are device addresses; zero for none.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GatherIndex {
    ids: u64,
    places: u64,
    counted: u64,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for RowSource {}
// SAFETY: as above.
unsafe impl DeviceRepr for GatherIndex {}

impl GatherIndex {
    /// Selects the rows with the given ids; output rows are consecutive. Zero selects all rows.
    pub(crate) fn of(ids: u64) -> Self {
        Self { ids, places: 0, counted: 0 }
    }

    /// Selects all rows, with the given output positions; zero makes output rows consecutive.
    pub(crate) fn at(places: u64) -> Self {
        Self { ids: 0, places, counted: 0 }
    }

    /// Selects the rows with the given ids, with the given output positions.
    pub(crate) fn of_at(ids: u64, places: u64) -> Self {
        Self { ids, places, counted: 0 }
    }

    /// Limits the selection to the count in the word at an address.
    pub(crate) fn counted_at(self, counted: u64) -> Self {
        Self { counted, ..self }
    }

    /// Selects all rows, with consecutive output rows.
    pub(crate) fn all() -> Self {
        Self::of(0)
    }
}

/// Launch that copies or decodes rows into a result.
pub(crate) struct RowLaunch {
    kernel: CudaFunction,
    /// Arguments for decoding; `None` for plain copies.
    decoding: Option<Decoding>,
}

impl RowLaunch {
    /// Creates the launch that copies rows as they are.
    pub(crate) fn copying(cuda: &Cuda, operation: &'static str, dtype: Dtype) -> Result<Self, ComputeError> {
        let kernel = cuda.kernel(operation, Source::ROWS, "copy_named", &[("X", dtype), ("Y", dtype)])?;
        Ok(Self { kernel, decoding: None })
    }

    /// Creates the launch that decodes rows of codes; the book has to live as long.
    pub(crate) fn decoding(cuda: &Cuda, operation: &'static str, book: &CodeBook) -> Result<Self, ComputeError> {
        let types = [("X", book.dtype), ("Y", book.dtype)];
        let kernel = cuda.kernel(operation, Source::ROWS, "decode_rows", &types)?;
        Ok(Self { kernel, decoding: Some(book.decoding(cuda)) })
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
        if let Some(Decoding { book, .. }) = &self.decoding {
            launch.arg(book);
        }
        launch.arg(&names).arg(&out).arg(&n);
        let (threads, shared_mem_bytes) = self
            .decoding
            .as_ref()
            .map_or((threads, 0), |decoding| (decoding.warps.threads, decoding.warps.shared_bytes));
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes };
        // SAFETY: see above; each warp has shared memory for a row, and there is a value for each byte of a code.
        unsafe { launch.launch(config) }.map(|_| ())
    }
}
