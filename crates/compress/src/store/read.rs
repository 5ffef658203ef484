//! [`CompressedFeatures`]: the codes of all rows, in a mapped file or in memory.

use std::ops::Range;
use std::path::Path;

use girih_graph_format::file::{Verify, map_bytes};
use girih_graph_format::{Buffer, Matrix};
use rayon::prelude::*;

use super::layout::{Layout, u32_at};
use crate::{CompressError, FeatureCodec};

/// Features of all nodes, compressed: any row is decoded by its number.
///
/// # Invariants
/// `codes` has `n_rows` codes of the codec.
#[derive(Debug)]
pub struct CompressedFeatures {
    codec: Box<dyn FeatureCodec>,
    n_rows: usize,
    bytes: Buffer<u8>,
    /// Where the codes lie in `bytes`.
    codes: Range<usize>,
}

impl CompressedFeatures {
    /// Encodes rows in memory.
    ///
    /// # Errors
    /// When the width is not the codec's, or the codec refuses a value.
    pub fn encode(codec: Box<dyn FeatureCodec>, rows: &Matrix) -> Result<Self, CompressError> {
        let (width, row_bytes) = (codec.width(), codec.row_bytes());
        if rows.n_cols() != width {
            return Err(CompressError::invalid(format!(
                "rows of {} features for a codec fitted to {width}; fit it to these rows",
                rows.n_cols()
            )));
        }
        const BLOCK_ROWS: usize = 256;
        let mut codes = vec![0; rows.n_rows() * row_bytes];
        let blocks = rows.data().par_chunks(BLOCK_ROWS * width).zip(codes.par_chunks_mut(BLOCK_ROWS * row_bytes));
        blocks.enumerate().try_for_each(|(block, (rows, codes))| codec.encode_rows(block * BLOCK_ROWS, rows, codes))?;
        Ok(Self { codec, n_rows: rows.n_rows(), codes: 0..codes.len(), bytes: codes.into() })
    }

    /// Opens a store; rows are read from disk when they are asked for. The file must not change meanwhile.
    ///
    /// Header, table of checksums and the size of the file are always checked, the checksums of rows as `verify` says.
    ///
    /// # Errors
    /// When the file cannot be read, is not a complete store, or is damaged ([`CompressError::is_corrupt`]).
    pub fn open(path: &Path, verify: Verify) -> Result<Self, CompressError> {
        let bytes = map_bytes(path)?;
        Self::from_bytes(bytes, verify).map_err(|e| e.at(path))
    }

    /// The store whose bytes these are.
    ///
    /// # Errors
    /// As [`CompressedFeatures::open`].
    pub fn from_bytes(bytes: Buffer<u8>, verify: Verify) -> Result<Self, CompressError> {
        let (layout, codec) = Layout::parse(&bytes)?;
        let codes = layout.code_offset(0) as usize..bytes.len();
        let verified = match verify {
            Verify::Full => true,
            Verify::UpTo(limit) => codes.len() as u64 <= limit,
            Verify::Structure => false,
        };
        if verified {
            check_chunks(&layout, &bytes)?;
        }
        Ok(Self { codec, n_rows: layout.n_rows, bytes, codes })
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Features of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.codec.width()
    }

    /// How rows are encoded.
    #[must_use]
    pub fn codec(&self) -> &dyn FeatureCodec {
        &*self.codec
    }

    /// The codes of all rows, one after the other.
    #[must_use]
    pub fn codes(&self) -> &[u8] {
        &self.bytes[self.codes.clone()]
    }

    /// The code of a row.
    ///
    /// # Panics
    /// When `row >= n_rows`.
    #[must_use]
    pub fn code(&self, row: usize) -> &[u8] {
        let row_bytes = self.codec.row_bytes();
        &self.codes()[row * row_bytes..(row + 1) * row_bytes]
    }

    /// Refuses features that are not those of a graph of `n_nodes` nodes.
    ///
    /// # Errors
    /// When there are more or fewer rows.
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
