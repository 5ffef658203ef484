//! [`CompressedFeatures`]: the codes of all rows, in a mapped file or in memory.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use girih_graph_format::file::{Verify, map_bytes};
use girih_graph_format::{Buffer, NodeId};
use rayon::prelude::*;

use super::layout::{Layout, u32_at};
use crate::{CodecSpec, CompressError, FeatureCodec, RowSource, SampleOptions, draw_sample, fit};

/// Approximate number of features that a task encodes, or whose codes it copies.
const TASK_FEATURES: usize = 1 << 16;

/// Compressed features of all nodes: any row is decoded by its number. Cloning shares the codes.
///
/// # Invariants
/// `codes` has `n_rows` codes of the codec.
#[derive(Clone, Debug)]
pub struct CompressedFeatures {
    codec: Arc<dyn FeatureCodec>,
    n_rows: usize,
    bytes: Buffer<u8>,
    /// Range of the codes in `bytes`.
    codes: Range<usize>,
}

impl CompressedFeatures {
    /// Encodes rows in memory. Every thread holds only a few rows of the source at a time.
    ///
    /// # Errors
    /// When the width differs from the codec's, a row cannot be read, or the codec refuses a value.
    pub fn encode(codec: Box<dyn FeatureCodec>, rows: &dyn RowSource) -> Result<Self, CompressError> {
        Self::encoded(codec.into(), rows)
    }

    fn encoded(codec: Arc<dyn FeatureCodec>, rows: &dyn RowSource) -> Result<Self, CompressError> {
        let (width, row_bytes, n_rows) = (codec.width(), codec.row_bytes(), rows.n_rows());
        if rows.width() != width {
            return Err(CompressError::invalid(format!(
                "rows of {} features for a codec fitted to {width}; fit it to these rows",
                rows.width()
            )));
        }
        let task_rows = (TASK_FEATURES / width).max(1);
        let mut codes = vec![0; n_rows * row_bytes];
        codes.par_chunks_mut(task_rows * row_bytes).enumerate().try_for_each_init(
            Vec::new,
            |values, (task, codes)| {
                values.resize(codes.len() / row_bytes * width, 0.0);
                rows.read_rows(task * task_rows, values)?;
                codec.encode_rows(task * task_rows, values, codes)
            },
        )?;
        Ok(Self::new(codec, n_rows, codes))
    }

    /// Fits a codec to a default sample of the rows, drawn with `seed`, and encodes all rows in memory. The codes
    /// equal those of a store of this codec, sample and seed.
    ///
    /// # Errors
    /// As [`fit()`] and [`CompressedFeatures::encode`].
    pub fn fitted(spec: CodecSpec, rows: &dyn RowSource, seed: u64) -> Result<Self, CompressError> {
        let sample = draw_sample(rows, SampleOptions { seed, ..SampleOptions::default() })?;
        let codec = fit(spec, &sample, seed)?;
        drop(sample);
        Self::encode(codec, rows)
    }

    fn new(codec: Arc<dyn FeatureCodec>, n_rows: usize, codes: Vec<u8>) -> Self {
        Self { codec, n_rows, codes: 0..codes.len(), bytes: codes.into() }
    }

    /// Opens a store; rows are read from disk on request. The file must not change meanwhile.
    ///
    /// Header, table of checksums and the size of the file are always checked, and the checksums of rows depending on
    /// `verify`.
    ///
    /// # Errors
    /// When the file cannot be read, is not a complete store, or is damaged ([`CompressError::is_corrupt`]).
    pub fn open(path: &Path, verify: Verify) -> Result<Self, CompressError> {
        let bytes = map_bytes(path)?;
        Self::from_bytes(bytes, verify).map_err(|e| e.at(path))
    }

    /// Makes a store from its bytes.
    ///
    /// # Errors
    /// As [`CompressedFeatures::open`].
    pub fn from_bytes(bytes: Buffer<u8>, verify: Verify) -> Result<Self, CompressError> {
        let (layout, codec) = Layout::parse(&bytes)?;
        let codes = layout.code_offset(0) as usize..bytes.len();
        if verify == Verify::Full {
            check_chunks(&layout, &bytes)?;
        }
        Ok(Self { codec: codec.into(), n_rows: layout.n_rows, bytes, codes })
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of features of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.codec.width()
    }

    /// Codec of the rows.
    #[must_use]
    pub fn codec(&self) -> &dyn FeatureCodec {
        &*self.codec
    }

    /// Hash of a store except for its codes; it covers their checksums as stated in the store. For codes in memory,
    /// the hash of no bytes.
    #[must_use]
    pub fn stated_checksum(&self) -> u32 {
        crc32fast::hash(&self.bytes[..self.codes.start])
    }

    /// Codes of all rows, one after the other.
    #[must_use]
    pub fn codes(&self) -> &[u8] {
        &self.bytes[self.codes.clone()]
    }

    /// Refuses invalid codes, before they go to decoders that use them as unchecked indices.
    ///
    /// # Errors
    /// At an invalid code; the error names its row.
    pub fn check_codes(&self) -> Result<(), CompressError> {
        let row_bytes = self.codec.row_bytes();
        let unsound = self.codes().par_chunks(row_bytes).position_first(|code| !self.codec.is_sound(code));
        unsound.map_or(Ok(()), |row| {
            Err(CompressError::corrupt(format!("the code of row {row} names a column that a row does not have")))
        })
    }

    /// Code of a row.
    ///
    /// # Panics
    /// When `row >= n_rows`.
    #[must_use]
    pub fn code(&self, row: usize) -> &[u8] {
        let row_bytes = self.codec.row_bytes();
        &self.codes()[row * row_bytes..(row + 1) * row_bytes]
    }

    /// Slices consecutive rows, numbered from 0; their codes are shared.
    ///
    /// # Panics
    /// When `rows` ends beyond the rows.
    #[must_use]
    pub fn rows(&self, rows: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.n_rows, "rows {rows:?} of {}", self.n_rows);
        let (first, row_bytes) = (self.codes.start, self.codec.row_bytes());
        let codes = first + rows.start * row_bytes..first + rows.end * row_bytes;
        Self { codec: Arc::clone(&self.codec), n_rows: rows.len(), bytes: self.bytes.clone(), codes }
    }

    /// Selects the rows of `ids`, one after the other: their codes are copied, and nothing is decoded.
    ///
    /// # Errors
    /// When an id is not below the number of rows.
    pub fn select(&self, ids: &[NodeId]) -> Result<Self, CompressError> {
        let row_bytes = self.codec.row_bytes();
        let task_rows = (TASK_FEATURES / row_bytes).max(1);
        let mut codes = vec![0; ids.len() * row_bytes];
        ids.par_chunks(task_rows).zip(codes.par_chunks_mut(task_rows * row_bytes)).try_for_each(|(ids, codes)| {
            ids.iter().zip(codes.chunks_exact_mut(row_bytes)).try_for_each(|(&id, code)| {
                code.copy_from_slice(self.checked_code(id)?);
                Ok::<(), CompressError>(())
            })
        })?;
        Ok(Self::new(Arc::clone(&self.codec), ids.len(), codes))
    }

    /// Makes other rows of this codec from their codes, one after the other.
    ///
    /// # Errors
    /// When the length is not a multiple of the code size.
    pub fn of_codes(&self, codes: Vec<u8>) -> Result<Self, CompressError> {
        let row_bytes = self.codec.row_bytes();
        if !codes.len().is_multiple_of(row_bytes) {
            return Err(CompressError::invalid(format!(
                "{} bytes of codes, of which each takes {row_bytes}; give whole codes",
                codes.len()
            )));
        }
        Ok(Self::new(Arc::clone(&self.codec), codes.len() / row_bytes, codes))
    }

    /// Encodes other rows by this codec, in memory.
    ///
    /// # Errors
    /// When their width differs from the codec's, or the codec refuses a value.
    pub fn encode_alike(&self, rows: &dyn RowSource) -> Result<Self, CompressError> {
        Self::encoded(Arc::clone(&self.codec), rows)
    }

    /// Decodes consecutive rows from `first` on, until `out` is full, on the calling thread.
    ///
    /// # Panics
    /// When there are fewer rows, or `out` ends within a row.
    pub fn decode(&self, first: usize, out: &mut [f32]) {
        let width = self.width();
        assert!(out.len().is_multiple_of(width), "whole rows of {width} features");
        for (i, row) in out.chunks_exact_mut(width).enumerate() {
            self.codec.decode_row(self.code(first + i), row);
        }
    }

    /// Refuses features that do not belong to a graph of `n_nodes` nodes.
    ///
    /// # Errors
    /// When the number of rows is not `n_nodes`.
    pub fn check_nodes(&self, n_nodes: usize) -> Result<(), CompressError> {
        if self.n_rows == n_nodes {
            return Ok(());
        }
        Err(CompressError::invalid(format!(
            "compressed features of {} rows for a graph of {n_nodes} nodes; encode the features of this graph",
            self.n_rows
        )))
    }
}

/// Decoded rows.
impl RowSource for CompressedFeatures {
    fn n_rows(&self) -> usize {
        self.n_rows()
    }

    fn width(&self) -> usize {
        self.width()
    }

    fn read_rows(&self, first_row: usize, rows: &mut [f32]) -> Result<(), CompressError> {
        self.decode(first_row, rows);
        Ok(())
    }

    fn fingerprint(&self) -> Result<u64, CompressError> {
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(self.codec().spec().to_string().as_bytes());
        checksum.update(&self.codec().parameters());
        checksum.update(self.codes());
        Ok(u64::from(checksum.finalize()) << 32 | self.n_rows() as u64 & 0xffff_ffff)
    }
}

/// Compares codecs with their parameters, and codes.
impl PartialEq for CompressedFeatures {
    fn eq(&self, other: &Self) -> bool {
        let codec = |features: &Self| (features.codec.spec(), features.width(), features.codec.parameters());
        self.n_rows == other.n_rows && codec(self) == codec(other) && self.codes() == other.codes()
    }
}

/// Compares all codes with their checksums.
fn check_chunks(layout: &Layout, bytes: &[u8]) -> Result<(), CompressError> {
    (0..layout.n_chunks()).into_par_iter().try_for_each(|chunk| {
        let rows = layout.rows_of(chunk);
        let codes = layout.code_offset(rows.start) as usize..layout.code_offset(rows.end) as usize;
        if crc32fast::hash(&bytes[codes]) == u32_at(bytes, layout.table_offset(chunk) as usize) {
            return Ok(());
        }
        Err(CompressError::corrupt(format!("rows {} to {} do not have their checksum", rows.start, rows.end - 1)))
    })
}
