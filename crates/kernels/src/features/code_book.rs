//! [`CodeBook`]: feature codes that a device decodes, or sums without decoding (Ma et al., 2024).
//!
//! A row stores a few positions for each group of columns; each byte of a row stands for one value in all rows. Sums
//! of rows need only their codes: for 768 columns, [`CodeSums`] reads 48 bytes per neighbor instead of 3072. Decoded
//! rows are never stored.

use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use girih_compress::CompressedFeatures;
use girih_compute::scratch::pitch;
use girih_compute::{ComputeError, Dtype, Transpose};

use crate::Cuda;
use crate::abi::{BLOCK, BookArgument, CODE_GROUP, RowSource};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::matrix::{CudaMatrix, CudaSparse};

/// Bytes of shared memory per block that every GPU has.
const SHARED_BYTES: usize = 48 << 10;
/// Most blocks of a launch that sums codes: enough to fill a GPU.
const SUMMING_BLOCKS_MAX: u32 = 132 * 8;

/// Table that decodes feature codes, on the device: `FeatureCodec::parameters`.
pub(crate) struct CodeBook {
    pub(crate) width: usize,
    values: Buffer<f32>,
    background: Option<Buffer<f32>>,
    /// Bytes of a code for a whole group.
    of_group: u32,
    /// Element type of decoded rows.
    pub(crate) dtype: Dtype,
}

/// Warps of a block, each of which has shared memory for a row.
#[derive(Clone, Copy)]
pub(crate) struct Warps {
    pub(crate) threads: u32,
    pub(crate) shared_bytes: u32,
}

impl Warps {
    /// As many warps as shared memory has space for; `None` if it does not hold one row.
    fn of_rows(width: usize, element_bytes: usize) -> Option<Self> {
        let of_row = (pitch(width) * element_bytes).next_multiple_of(16).max(16);
        let warps = (SHARED_BYTES / of_row).min(BLOCK as usize / 32);
        (warps > 0).then_some(Self { threads: warps as u32 * 32, shared_bytes: (warps * of_row) as u32 })
    }
}

/// Arguments of a launch that decodes.
pub(crate) struct Decoding {
    pub(crate) book: BookArgument,
    pub(crate) warps: Warps,
}

impl CodeBook {
    /// Uploads the code book of a codec. `None` for codecs without a book, and where a row does not fit into shared
    /// memory.
    pub(crate) fn upload(
        cuda: &Cuda,
        operation: &'static str,
        codes: &CompressedFeatures,
        dtype: Dtype,
    ) -> Result<Option<Self>, ComputeError> {
        let codec = codes.codec();
        let spec = codec.spec();
        let Some(k) = spec.setting().filter(|_| spec.has_book()) else { return Ok(None) };
        let width = codec.width();
        if Warps::of_rows(width, dtype.n_bytes()).is_none() {
            return Ok(None);
        }
        let parameters = codec.parameters();
        let numbers: Vec<f32> = parameters
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        let (values, background) = numbers.split_at(codec.row_bytes());
        Ok(Some(Self {
            width,
            values: cuda.upload_list(operation, values)?,
            background: (!background.is_empty()).then(|| cuda.upload_list(operation, background)).transpose()?,
            of_group: (2 * k).min(CODE_GROUP as u32),
            dtype,
        }))
    }

    /// Kernel argument; valid as long as the book lives.
    fn argument(&self, cuda: &Cuda) -> BookArgument {
        BookArgument {
            values: cuda.pointer(Some(&self.values)),
            background: cuda.pointer(self.background.as_ref()),
            width: self.width as u64,
            of_group: self.of_group,
            padding: 0,
        }
    }

    /// Arguments of launches that decode; valid as long as the book lives.
    pub(crate) fn decoding(&self, cuda: &Cuda) -> Decoding {
        let warps = Warps::of_rows(self.width, self.dtype.n_bytes()).expect("books of rows that fit");
        Decoding { book: self.argument(cuda), warps }
    }
}

/// Launch that sums rows of codes.
pub(crate) struct CodeSums {
    kernel: CudaFunction,
    book: BookArgument,
    warps: Warps,
}

impl CodeSums {
    /// Compiles the kernel for a book, which has to live as long. `None` where the sum of a row does not fit into
    /// shared memory.
    pub(crate) fn new(cuda: &Cuda, operation: &'static str, book: &CodeBook) -> Result<Option<Self>, ComputeError> {
        let Some(warps) = Warps::of_rows(book.width, size_of::<f32>()) else { return Ok(None) };
        let kernel = cuda.kernel(operation, Source::ROWS, "sum_codes", &[("X", book.dtype), ("Y", book.dtype)])?;
        Ok(Some(Self { kernel, book: book.argument(cuda), warps }))
    }

    /// Computes `out = block·X` on the device's stream. Row `j` of `X` is row `ids[j]` of the codes, or row `j` if
    /// there are no ids.
    ///
    /// # Safety
    /// Columns of the block have to be ids, or rows. Ids have to be rows, each of which lies where the argument says.
    /// Positions have to be columns of their group. `out` has a row for each row of the block, stored as the book
    /// says.
    pub(crate) unsafe fn put(
        &self,
        cuda: &Cuda,
        operation: &'static str,
        block: &CudaSparse,
        (codes, ids): (RowSource, u64),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let direction = cuda.direction(operation, block, Transpose::No, false)?;
        let (pattern, values) = (cuda.pattern(direction.csr), cuda.pointer(direction.csr.values.as_ref()));
        let (left, right) = (cuda.pointer(direction.left), cuda.pointer(direction.right));
        let rows_of_block = self.warps.threads / 32;
        let blocks = (out.shape.rows as u64).div_ceil(u64::from(rows_of_block)).clamp(1, u64::from(SUMMING_BLOCKS_MAX));
        let config = LaunchConfig {
            grid_dim: (blocks as u32, 1, 1),
            block_dim: (self.warps.threads, 1, 1),
            shared_mem_bytes: self.warps.shared_bytes,
        };
        let mut launch = cuda.device.stream.launch_builder(&self.kernel);
        launch.arg(&codes).arg(&self.book).arg(&ids).arg(&pattern);
        launch.arg(&values).arg(&left).arg(&right).arg(&mut out.data);
        // SAFETY: see above; each warp has shared memory for the sums of a row.
        unsafe { launch.launch(config) }.map(drop).map_err(Cuda::failed(operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_have_room_for_their_rows() {
        for (width, bytes, threads) in [(768, 4, 256), (768, 2, 256), (3000, 4, 128), (12288, 4, 32), (1, 4, 256)] {
            let warps = Warps::of_rows(width, bytes).unwrap();
            assert_eq!(warps.threads, threads, "{width} columns of {bytes} bytes");
            assert!(warps.shared_bytes as usize <= SHARED_BYTES);
            assert!(warps.shared_bytes as usize >= threads as usize / 32 * pitch(width) * bytes);
        }
        assert!(Warps::of_rows(12289, 4).is_none());
    }
}
