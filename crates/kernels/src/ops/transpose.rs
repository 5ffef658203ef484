//! `cuda/transpose.cu`: transpose of a pattern that exists only on the device.

use cudarc::driver::{LaunchConfig, PushKernelArg};
use girih_compute::{ComputeError, Shape};

use crate::abi::{BLOCK, Ordered, TRANSPOSE_LANES, TRANSPOSE_SHORT};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::threads_for;
use crate::matrix::{CudaCsr, TileCache};

/// Rows on the device that are to be transposed.
pub(super) struct RowsOnDevice<'a> {
    pub(super) shape: Shape,
    pub(super) nnz: usize,
    /// Offsets of rows; `None` if each row has one entry.
    pub(super) indptr: Option<&'a Buffer<u64>>,
    pub(super) indices: &'a Buffer<u32>,
    pub(super) values: Option<&'a Buffer<f32>>,
}

impl<'a> From<&'a CudaCsr> for RowsOnDevice<'a> {
    fn from(csr: &'a CudaCsr) -> Self {
        let CudaCsr { shape, nnz, indptr, indices, values, .. } = csr;
        Self { shape: *shape, nnz: *nnz, indptr: Some(indptr), indices, values: values.as_ref() }
    }
}

impl Cuda {
    /// Transposes compressed rows without synchronising with the host. Entries of a column keep their order.
    pub(super) fn transposed_on_device(
        &self,
        operation: &'static str,
        csr: &RowsOnDevice<'_>,
    ) -> Result<CudaCsr, ComputeError> {
        let (n_columns, nnz) = (csr.shape.cols, csr.nnz);
        check_size(operation, nnz)?;
        let n_tiles = n_columns.div_ceil(BLOCK as usize).max(1);
        // Words of tiles, the number of pieces, then counts: cleared at once.
        let mut cleared: Buffer<u64> = self.scratch(operation, n_tiles + 1 + n_columns.div_ceil(2))?;
        self.device.stream.memset_zeros(&mut cleared).map_err(Self::failed(operation))?;
        let tiles = self.pointer(Some(&cleared));
        let n_pieces = tiles + (n_tiles * size_of::<u64>()) as u64;
        let counts = n_pieces + size_of::<u64>() as u64;
        // A piece has more entries than a short column, or belongs to a column with several pieces.
        let pieces: Buffer<u64> = self.scratch(operation, nnz / TRANSPOSE_SHORT + 1)?;
        let [entries, rows] = [(); 2].map(|()| self.scratch::<u32>(operation, nnz));
        let (entries, rows) = (entries?, rows?);
        let transpose = CudaCsr {
            shape: csr.shape.transposed(),
            nnz,
            indptr: self.scratch(operation, n_columns + 1)?,
            indices: self.scratch(operation, nnz)?,
            values: csr.values.map(|_| self.scratch(operation, nnz)).transpose()?,
            positions: Some(self.scratch(operation, nnz)?),
            hubs: None,
            tiles: TileCache::none(),
        };
        let kernel = |name| self.kernel(operation, Source::TRANSPOSE, name, &[]);
        let (n, n_rows, n_cols) = (nnz as u64, csr.shape.rows as u64, n_columns as u64);
        let failed = Self::failed(operation);
        let (values, out_values) = (self.pointer(csr.values), self.pointer(transpose.values.as_ref()));
        let (columns, positions) = (&transpose.indptr, self.pointer(transpose.positions.as_ref()));

        let count = kernel("count_columns")?;
        let mut launch = self.device.stream.launch_builder(&count);
        launch.arg(csr.indices).arg(&n).arg(&counts);
        // SAFETY: there are `n` indices, all of them columns, and there is a count for each column.
        unsafe { launch.launch(threads_for(nnz)) }.map_err(&failed)?;

        let offsets = kernel("offsets_of_columns")?;
        let mut launch = self.device.stream.launch_builder(&offsets);
        launch.arg(&counts).arg(&n_cols).arg(columns).arg(&tiles).arg(&n_pieces).arg(&pieces);
        let config = LaunchConfig { grid_dim: (n_tiles as u32, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: blocks are tiles of all columns, each with a cleared word; there is an offset for each column and
        // one more, and space for all pieces of long ones.
        unsafe { launch.launch(config) }.map_err(&failed)?;

        let list = kernel("list_entries")?;
        let mut launch = self.device.stream.launch_builder(&list);
        let offsets_of_rows = self.pointer(csr.indptr);
        launch.arg(&offsets_of_rows).arg(csr.indices).arg(&n_rows).arg(columns).arg(&counts).arg(&entries).arg(&rows);
        // SAFETY: columns have as many places as entries, counts are zero again, and there are `n` entries and rows.
        unsafe { launch.launch(threads_for(csr.shape.rows.saturating_mul(TRANSPOSE_LANES))) }.map_err(&failed)?;

        let order = kernel("order_entries")?;
        let mut launch = self.device.stream.launch_builder(&order);
        let indices = self.pointer(Some(&transpose.indices));
        let ordered = Ordered { rows: self.pointer(Some(&rows)), values, indices, positions, out_values };
        launch.arg(columns).arg(&n_cols).arg(&n_pieces).arg(&pieces).arg(&entries).arg(&ordered);
        // SAFETY: entries are those of the pattern, each once; both sides have as many values, or neither has any.
        // Pieces are of columns, and there is a thread for each of their entries, or threads loop.
        unsafe { launch.launch(threads_for(nnz.max(n_columns.saturating_mul(TRANSPOSE_LANES)))) }.map_err(&failed)?;
        Ok(transpose)
    }
}

/// Fails if there are more entries than 32 bits can number.
fn check_size(operation: &'static str, nnz: usize) -> Result<(), ComputeError> {
    if u32::try_from(nnz).is_ok() {
        return Ok(());
    }
    let what = format!(
        "a sampled block of {nnz} entries is too large to transpose (2^32): give a smaller --fanout or --batch-size"
    );
    Err(ComputeError::argument(operation, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_with_more_entries_than_a_word_numbers_is_refused() {
        assert!(check_size("a product", u32::MAX as usize).is_ok());
        assert_eq!(
            check_size("a product", 1 << 32).unwrap_err().to_string(),
            "a product: a sampled block of 4294967296 entries is too large to transpose (2^32): give a smaller --fanout or \
             --batch-size"
        );
    }
}
