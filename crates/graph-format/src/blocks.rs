//! [`BlockMatrix`]: dense blocks of a pattern as bitmaps, in the order in which GPU kernels read them, and the rest
//! as a CSR.

use rayon::prelude::*;

use crate::strips::{StripCounter, Strips};
use crate::{Csr, FormatError, rows};

/// Layout of the blocks of a [`BlockMatrix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockLayout {
    /// 256 × 64, for tensor cores: 32 words for each 16 rows, one word per lane of a warp. The bits of a word are the
    /// left operands of four products of 16 × 16 (`mma.m16n8k16`, and a quarter of `wgmma.m64nNk16`).
    Fragments,
    /// 32 × 32, as the tiles of a [`TileMatrix`](crate::TileMatrix): a word per row, a bit per column.
    Tiles,
}

impl BlockLayout {
    /// Number of rows of a block.
    #[must_use]
    pub const fn rows(self) -> usize {
        match self {
            Self::Fragments => 256,
            Self::Tiles => 32,
        }
    }

    /// Number of columns of a block.
    #[must_use]
    pub const fn cols(self) -> usize {
        match self {
            Self::Fragments => 64,
            Self::Tiles => 32,
        }
    }

    /// Number of 32-bit words of a block's bits.
    #[must_use]
    pub const fn n_words(self) -> usize {
        self.rows() * self.cols() / u32::BITS as usize
    }

    /// Word and bit that stand for the entry (`row`, `col`) of a block.
    ///
    /// # Panics
    /// When `row` or `col` is outside the block.
    #[must_use]
    pub fn place(self, row: usize, col: usize) -> (usize, u32) {
        assert!(row < self.rows() && col < self.cols(), "no place ({row}, {col}) in a block");
        match self {
            Self::Tiles => (row, col as u32),
            Self::Fragments => {
                let bit = col / 16 * 4 + row % 16 / 8 + col % 16 / 8 * 2 + col % 2 * 16;
                (row / 16 * 32 + row % 8 * 4 + col % 8 / 2, bit as u32)
            }
        }
    }
}

/// Pattern split into dense blocks and a sparse rest; every entry is in exactly one of them.
///
/// # Invariants
/// Blocks ascend by block row, then by column; `rest` has no entry in a block. Bits outside the matrix are zero.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockMatrix {
    layout: BlockLayout,
    indptr: Vec<u32>,
    first_cols: Vec<u32>,
    bits: Vec<u32>,
    rest: Csr,
}

impl BlockMatrix {
    /// Splits a pattern: blocks with at least `entries_min` entries, and at least one, become bitmaps. Takes
    /// O(entries × log of the blocks in a block row), in parallel, with an equal result on any number of threads.
    ///
    /// # Errors
    /// When the matrix has weights, which bits cannot hold.
    pub fn from_csr(csr: &Csr, layout: BlockLayout, entries_min: u32) -> Result<Self, FormatError> {
        if csr.values().is_some() {
            return Err(FormatError::invalid("blocks of bits hold no weights; multiply by rows and columns instead"));
        }
        let strips = Strips { csr, height: layout.rows(), width: layout.cols() };
        let rows: Vec<BlockRow> = (0..strips.n())
            .into_par_iter()
            .map_init(
                || StripCounter::new(strips),
                |counter, strip| {
                    let dense = counter.count(strip).into_iter().filter(|&(_, n)| n >= entries_min);
                    BlockRow::fill(strips, layout, strip, dense.map(|(col, _)| col).collect())
                },
            )
            .collect();
        let rest = csr.filtered(|r, c| rows[r / layout.rows()].position(c / layout.cols() as u32).is_none());
        let width = layout.cols() as u32;
        let ends = rows::prefix_sum(rows.iter().map(|row| row.cols.len() as u64));
        Ok(Self {
            layout,
            indptr: ends.into_iter().map(u32::try_from).collect::<Result<_, _>>().map_err(|_| too_many())?,
            first_cols: rows.iter().flat_map(|row| row.cols.iter().map(|col| col * width)).collect(),
            bits: rows.iter().flat_map(|row| &row.bits).copied().collect(),
            rest,
        })
    }

    /// Makes a matrix from the parts that the methods of these names return.
    ///
    /// # Errors
    /// When the lengths of the parts do not agree.
    pub fn from_parts(
        layout: BlockLayout,
        indptr: Vec<u32>,
        first_cols: Vec<u32>,
        bits: Vec<u32>,
        rest: Csr,
    ) -> Result<Self, FormatError> {
        let n_blocks = first_cols.len();
        let fits = indptr.len() == rest.n_rows().div_ceil(layout.rows()) + 1
            && indptr.first() == Some(&0)
            && indptr.is_sorted()
            && indptr.last().is_some_and(|&end| end as usize == n_blocks)
            && bits.len() == n_blocks * layout.n_words();
        if !fits {
            let message = format!(
                "{} block rows of {n_blocks} blocks with {} words for a matrix of {} rows; expected an offset for each \
                 {} rows and {} words for each block",
                indptr.len().saturating_sub(1),
                bits.len(),
                rest.n_rows(),
                layout.rows(),
                layout.n_words()
            );
            return Err(FormatError::invalid(message));
        }
        Ok(Self { layout, indptr, first_cols, bits, rest })
    }

    /// Layout of the blocks.
    #[must_use]
    pub fn layout(&self) -> BlockLayout {
        self.layout
    }

    /// Offsets of block rows: block row `i` holds the blocks `indptr[i]..indptr[i + 1]`.
    #[must_use]
    pub fn indptr(&self) -> &[u32] {
        &self.indptr
    }

    /// First column of every block.
    #[must_use]
    pub fn first_cols(&self) -> &[u32] {
        &self.first_cols
    }

    /// Words of every block, block after block.
    #[must_use]
    pub fn bits(&self) -> &[u32] {
        &self.bits
    }

    /// Entries outside blocks, in a matrix of the whole shape.
    #[must_use]
    pub fn rest(&self) -> &Csr {
        &self.rest
    }
}

fn too_many() -> FormatError {
    FormatError::invalid("a pattern has 2³² blocks or more; ask for more entries of a block")
}

/// Dense blocks of one block row.
struct BlockRow {
    /// Block columns.
    cols: Vec<u32>,
    bits: Vec<u32>,
}

impl BlockRow {
    /// Sets the bits of all entries in the block columns `cols` (ascending).
    fn fill(strips: Strips<'_>, layout: BlockLayout, strip: usize, cols: Vec<u32>) -> Self {
        let n_words = layout.n_words();
        let mut row = Self { bits: vec![0; cols.len() * n_words], cols };
        for r in strips.rows(strip) {
            for &c in strips.csr.row(r) {
                let Some(block) = row.position(c / layout.cols() as u32) else { continue };
                let (word, bit) = layout.place(r % layout.rows(), c as usize % layout.cols());
                row.bits[block * n_words + word] |= 1 << bit;
            }
        }
        row
    }

    /// Position of the block with block column `col` among the blocks of this row.
    fn position(&self, col: u32) -> Option<usize> {
        self.cols.binary_search(&col).ok()
    }
}
