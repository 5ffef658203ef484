//! Host rows in the format of devices: [`Dense`] is the format on the device; sources give access to the rows.

use std::cell::Cell;
use std::sync::Arc;

use girih_compress::CompressedFeatures;
use girih_compute::scratch::pitch;
use girih_compute::{Dtype, Shape};
use girih_features::HostRows;
use girih_graph_format::Matrix;
use half::bf16;
use rayon::prelude::*;

use super::code_book::CodeBook;
use super::staged::{RowBytes, StagedSource, prefetch_bytes};
use super::uva::HostTable;

/// Rows that a host thread writes at a time.
const ROWS_AT_ONCE: usize = 1024;

/// Format of dense rows, as in device matrices.
#[derive(Clone, Copy)]
pub(crate) struct Dense {
    pub(crate) cols: usize,
    pub(crate) dtype: Dtype,
}

impl Dense {
    /// Bytes from row to row.
    pub(crate) fn row_bytes(self) -> usize {
        pitch(self.cols) * self.dtype.n_bytes()
    }

    /// Writes the rows from `first` on, as many as `memory` holds, in the format of device matrices.
    pub(crate) fn write_all(self, memory: &mut [u8], rows: &Matrix, first: usize) {
        let row_bytes = self.row_bytes();
        if row_bytes == 0 {
            return;
        }
        memory.par_chunks_mut(row_bytes * ROWS_AT_ONCE).enumerate().for_each(|(piece, memory)| {
            for (at, bytes) in memory.chunks_exact_mut(row_bytes).enumerate() {
                self.write(bytes, rows.row(first + piece * ROWS_AT_ONCE + at));
            }
        });
    }

    /// Writes a row; its padding is zero.
    fn write(self, bytes: &mut [u8], row: &[f32]) {
        let (values, padding) = bytes.split_at_mut(self.cols * self.dtype.n_bytes());
        padding.fill(0);
        match self.dtype {
            Dtype::F32 => values.copy_from_slice(bytemuck::cast_slice(row)),
            Dtype::Bf16 => values
                .chunks_exact_mut(2)
                .zip(row)
                .for_each(|(bytes, &value)| bytes.copy_from_slice(&bf16::from_f32(value).to_ne_bytes())),
        }
    }

    /// Reads a row written by [`write`](Self::write).
    fn read(self, bytes: &[u8], row: &mut [f32]) {
        match self.dtype {
            Dtype::F32 => bytemuck::cast_slice_mut(row).copy_from_slice(&bytes[..self.cols * 4]),
            Dtype::Bf16 => bytes
                .chunks_exact(2)
                .zip(row)
                .for_each(|(bytes, value)| *value = bf16::from_ne_bytes([bytes[0], bytes[1]]).to_f32()),
        }
    }
}

/// Format of the rows.
pub(super) enum Form {
    /// Rows in the format of device matrices.
    Dense(Dense),
    /// Codes of a code book.
    Codes(CodeBook),
}

/// Dense host rows, rounded to the element type of the device.
pub(crate) struct RowsOnHost {
    pub(crate) source: Arc<dyn StagedSource>,
    pub(crate) n_rows: usize,
    pub(crate) form: Dense,
}

impl HostRows for RowsOnHost {
    fn shape(&self) -> Shape {
        Shape::new(self.n_rows, self.form.cols)
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        let mut bytes = vec![0; self.form.row_bytes()];
        for (at, row) in out.chunks_exact_mut(self.form.cols.max(1)).enumerate() {
            self.source.copy(first + at, &mut bytes);
            self.form.read(&bytes, row);
        }
    }
}

/// Rows of a matrix, rounded on reading if necessary. The matrix may be mapped: its rows are then on disk or in the
/// page cache.
pub(crate) struct RowsOfMatrix {
    pub(crate) rows: Matrix,
    pub(crate) form: Dense,
}

impl StagedSource for RowsOfMatrix {
    fn copy(&self, row: usize, to: &mut [u8]) {
        self.form.write(to, self.rows.row(row));
    }

    fn prefetch(&self, row: usize) {
        prefetch_bytes(bytemuck::cast_slice(self.rows.row(row)));
    }
}

/// Rows that the host decodes as they are read.
pub(crate) struct RowsDecoded {
    pub(crate) rows: Arc<dyn HostRows>,
    pub(crate) form: Dense,
}

thread_local! {
    /// Memory of the row that a thread decodes. It is taken while in use: a reader may run other work of its pool.
    static DECODED: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

impl StagedSource for RowsDecoded {
    fn copy(&self, row: usize, to: &mut [u8]) {
        let mut values = DECODED.take();
        values.resize(self.form.cols, 0.0);
        self.rows.read(row, &mut values);
        self.form.write(to, &values);
        DECODED.set(values);
    }
}

/// Rows in the format of devices, in memory of all ranks of the process.
pub(crate) struct RowsOfPieces {
    pub(crate) pieces: Arc<HostTable>,
    pub(crate) row_bytes: usize,
}

impl RowBytes for RowsOfPieces {
    fn row(&self, row: usize) -> &[u8] {
        self.pieces.row(row, (row * self.row_bytes) as u64, self.row_bytes)
    }
}

/// Codes, in memory or mapped.
pub(crate) struct RowsOfCodes {
    pub(crate) codes: CompressedFeatures,
    pub(crate) row_bytes: usize,
}

impl RowBytes for RowsOfCodes {
    fn row(&self, row: usize) -> &[u8] {
        &self.codes.codes()[row * self.row_bytes..(row + 1) * self.row_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_rows_are_those_of_their_reader() {
        for cols in [3, 21, 8] {
            let rows = Matrix::new(4, cols, (0..4 * cols).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let form = Dense { cols, dtype };
                let mut expected = vec![0xff; 4 * form.row_bytes()];
                form.write_all(&mut expected, &rows, 0);
                let decoded = RowsDecoded { rows: Arc::new(rows.clone()), form };
                let mut bytes = vec![0xff; form.row_bytes()];
                for (row, expected) in expected.chunks(form.row_bytes()).enumerate().rev() {
                    decoded.copy(row, &mut bytes);
                    assert_eq!(bytes, expected, "row {row} of {cols} columns");
                }
            }
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        for (cols, dtype) in [(3, Dtype::F32), (8, Dtype::Bf16), (21, Dtype::F32), (21, Dtype::Bf16)] {
            let values: Vec<f32> = (0..5 * cols).map(|i| i as f32 / 4.0).collect();
            let rows = Matrix::new(5, cols, values.clone()).unwrap();
            let form = Dense { cols, dtype };
            let mut memory = vec![0xff; 3 * form.row_bytes()];
            form.write_all(&mut memory, &rows, 2);
            let mut out = vec![0.0; cols];
            for (bytes, expected) in memory.chunks(form.row_bytes()).zip(values[2 * cols..].chunks(cols)) {
                form.read(bytes, &mut out);
                assert_eq!(out, expected);
            }
        }
    }
}
