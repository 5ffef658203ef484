//! [`NpyRows`]: the rows of a `.npy` file that may be larger than memory.
//!
//! Rows are read, not mapped. Touched pages of a map count as this process's memory until the system reclaims them,
//! and a truncated file would kill the process instead of giving an error.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use half::f16;

use super::npy::{Header, MAX_HEADER, unsupported};
use crate::FormatError;

/// Matrix of floats in a file, whose rows any thread can read.
#[derive(Debug)]
pub struct NpyRows {
    path: PathBuf,
    file: File,
    n_rows: usize,
    width: usize,
    kind: Kind,
    data_start: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F16,
    F32,
    F64,
}

impl Kind {
    fn size(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Number of values that are converted at a time.
const CONVERTED: usize = 1 << 13;

impl NpyRows {
    /// Opens a file of two dimensions in C order, of `float16`, `float32` or `float64`.
    ///
    /// # Errors
    /// When the file cannot be read, holds another kind of array, or does not end where its values end.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let file = File::open(path).map_err(|e| FormatError::io(e).at(path))?;
        Self::new(path, file).map_err(|e| e.at(path))
    }

    fn new(path: &Path, file: File) -> Result<Self, FormatError> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(FormatError::invalid("not a regular file"));
        }
        let mut head = Vec::new();
        (&file).take(MAX_HEADER as u64 + 12).read_to_end(&mut head)?;
        let header = Header::parse(&head)?;
        let kind = match header.descr.as_str() {
            "<f2" => Kind::F16,
            "<f4" => Kind::F32,
            "<f8" => Kind::F64,
            descr if descr.ends_with(['1', '2', '4', '8']) && !descr.starts_with('>') => {
                return Err(FormatError::invalid(format!("values are {descr}; expected float16, float32 or float64")));
            }
            descr => return Err(unsupported(descr)),
        };
        let [n_rows, width] = header.shape[..] else {
            return Err(FormatError::invalid(format!("shape {:?}; expected rows and columns", header.shape)));
        };
        if header.fortran_order && n_rows > 1 && width > 1 {
            let message = "a matrix in Fortran order, whose rows are scattered; write it with numpy.ascontiguousarray";
            return Err(FormatError::invalid(message));
        }
        let data_start = header.data_start as u64;
        header.check_size(kind.size(), metadata.len().saturating_sub(data_start))?;
        Ok(Self { path: path.to_owned(), file, n_rows, width, kind, data_start })
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fingerprint of the file, from its size and the time of its last change; it very likely changes when the file
    /// does.
    ///
    /// # Errors
    /// When the system does not report them.
    pub fn fingerprint(&self) -> Result<u64, FormatError> {
        let told = || {
            let metadata = self.file.metadata()?;
            let changed = metadata.modified()?.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
            Ok::<_, io::Error>((metadata.len(), changed.as_nanos()))
        };
        let (len, changed) = told().map_err(|e| FormatError::io(e).at(&self.path))?;
        let checksum = |n: u128| u64::from(crc32fast::hash(&n.to_le_bytes()));
        Ok(checksum(u128::from(len)) << 32 | checksum(changed))
    }

    /// Reads whole rows from `first_row` on as `f32`, until `rows` is full.
    ///
    /// # Errors
    /// When the file cannot be read, or a finite `float64` is too large for `f32`.
    ///
    /// # Panics
    /// When the file has fewer rows, or `rows` ends within a row.
    pub fn read(&self, first_row: usize, rows: &mut [f32]) -> Result<(), FormatError> {
        let start = first_row * self.width;
        assert!(self.width == 0 || rows.len().is_multiple_of(self.width), "whole rows of {} values", self.width);
        assert!(start + rows.len() <= self.n_rows * self.width, "rows from {first_row} on of {}", self.n_rows);
        let offset = |value: usize| self.data_start + ((start + value) * self.kind.size()) as u64;
        let at = |e| FormatError::io(e).at(&self.path);
        if self.kind == Kind::F32 {
            return read_at(&self.file, bytemuck::cast_slice_mut(rows), offset(0)).map_err(at);
        }
        let mut bytes = vec![0; CONVERTED.min(rows.len()) * self.kind.size()];
        for (chunk, values) in rows.chunks_mut(CONVERTED).enumerate() {
            let bytes = &mut bytes[..values.len() * self.kind.size()];
            read_at(&self.file, bytes, offset(chunk * CONVERTED)).map_err(at)?;
            self.convert(bytes, values, start + chunk * CONVERTED)?;
        }
        Ok(())
    }

    /// Converts bytes to values; `first` is the position of the first value in the whole array.
    fn convert(&self, bytes: &[u8], values: &mut [f32], first: usize) -> Result<(), FormatError> {
        let numbers = bytes.chunks_exact(self.kind.size());
        if self.kind == Kind::F16 {
            let half = |b: &[u8]| f16::from_le_bytes([b[0], b[1]]).to_f32();
            values.iter_mut().zip(numbers).for_each(|(value, bytes)| *value = half(bytes));
            return Ok(());
        }
        for (i, (value, bytes)) in values.iter_mut().zip(numbers).enumerate() {
            let double: f64 = bytemuck::pod_read_unaligned(bytes);
            *value = double as f32;
            if double.is_finite() && !value.is_finite() {
                let (row, column) = ((first + i) / self.width, (first + i) % self.width);
                let message = format!("row {row}, column {column}: the value is {double}, which is beyond float32");
                return Err(FormatError::invalid(message).at(&self.path));
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                bytes = &mut bytes[n..];
                offset += n as u64;
            }
        }
    }
    Ok(())
}
