//! [`TileMatrix`]: dense 32 × 32 tiles as bitmaps, the rest as a CSR (Algorithm 3 of paper A).
//!
//! ```text
//! ┌────┬────┬────┐   tile row 0: tile_indptr 0..1    tile_cols [0]     a tile is 32 words, word r its row r,
//! │████│ ·  │  · │   tile row 1: tile_indptr 1..3    tile_cols [1, 2]  bit c of word r the entry (r, c)
//! ├────┼────┼────┤
//! │  · │████│▓▓▓▓│   · an entry of a sparse tile: stays in `rest`, which has the shape of the whole matrix
//! └────┴────┴────┘
//! ```
//! An entry of a tile takes 1024 bits over the tile's entries instead of 32, and a tile's operand is 32 consecutive
//! rows. Weights of tile entries are in rank order: tile after tile, row after row, columns ascending.

use std::ops::Range;

use rayon::prelude::*;

use crate::ops::union;
use crate::strips::{StripCounter, Strips};
use crate::{Csr, FormatError, NodeId, rows};

/// Number of rows and columns of a tile: the bits of a word, the lanes of a warp.
const TILE: usize = u32::BITS as usize;
/// Number of entries of a full tile.
const TILE_AREA: usize = TILE * TILE;
const _: () = assert!(TILE == 32 && TILE_AREA == 1024, "bitmaps of the kernels have tiles of 32 × 32");

/// Matrix split into dense tiles and a sparse rest; every entry is in exactly one of them.
///
/// # Invariants
/// Tiles ascend by tile row, then by tile column. Each holds more than `density_threshold × 1024` entries, and `rest`
/// holds none in a tile. Bits outside the matrix are zero.
#[derive(Clone, Debug, PartialEq)]
pub struct TileMatrix {
    tile_indptr: Vec<u64>,
    tile_cols: Vec<u32>,
    bitmaps: Vec<u32>,
    /// Rank of each tile's first entry among all tile entries; the last element is their number.
    ranks: Vec<u64>,
    values: Option<Vec<f32>>,
    rest: Csr,
}

/// Histogram of the numbers of entries of tiles: bucket `b` counts tiles with `2^b` to `2^(b + 1) - 1` entries; empty
/// tiles are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TileHistogram {
    /// Number of tiles in each bucket.
    pub n_tiles: [u64; TileHistogram::N_BUCKETS],
    /// Number of entries in the tiles of each bucket.
    pub n_entries: [u64; TileHistogram::N_BUCKETS],
}

impl TileHistogram {
    /// Number of buckets: one for each power of two from 1 to the 1024 entries of a full tile.
    pub const N_BUCKETS: usize = TILE_AREA.ilog2() as usize + 1;

    /// Counts the tiles of a matrix.
    #[must_use]
    pub fn of(csr: &Csr) -> Self {
        let tile_rows = (0..strips(csr).n()).into_par_iter();
        let count = |mut histogram: Self, counts: Vec<(u32, u32)>| {
            for (_, n) in counts {
                let bucket = n.ilog2() as usize;
                histogram.n_tiles[bucket] += 1;
                histogram.n_entries[bucket] += u64::from(n);
            }
            histogram
        };
        let counts = tile_rows.map_init(|| StripCounter::new(strips(csr)), |counter, strip| counter.count(strip));
        counts.fold(Self::default, count).reduce(Self::default, |a, b| a.plus(&b))
    }

    fn plus(mut self, other: &Self) -> Self {
        for b in 0..Self::N_BUCKETS {
            self.n_tiles[b] += other.n_tiles[b];
            self.n_entries[b] += other.n_entries[b];
        }
        self
    }
}

impl TileMatrix {
    /// Fraction of a tile's 1024 entries above which paper A makes it dense.
    pub const DEFAULT_THRESHOLD: f64 = 0.05;
    /// Number of rows and columns of a tile.
    pub const TILE: usize = TILE;

    /// Splits a matrix: tiles with more than `density_threshold × 1024` entries become dense. Takes O(entries × log
    /// of the dense tiles in a tile row), in parallel, with an equal result on any number of threads.
    ///
    /// # Errors
    /// When the threshold is not between 0 and 1.
    pub fn from_csr(csr: &Csr, density_threshold: f64) -> Result<Self, FormatError> {
        if !(0.0..=1.0).contains(&density_threshold) {
            let message = format!("a density threshold of {density_threshold}; expected a share between 0 and 1");
            return Err(FormatError::invalid(message));
        }
        let is_dense = |n: u32| f64::from(n) > density_threshold * TILE_AREA as f64;
        let tile_rows: Vec<Strip> = (0..strips(csr).n())
            .into_par_iter()
            .map_init(
                || StripCounter::new(strips(csr)),
                |counter, strip| {
                    let dense = counter.count(strip).into_iter().filter(|&(_, n)| is_dense(n));
                    Strip::fill(csr, strip, dense.map(|(col, _)| col).collect())
                },
            )
            .collect();
        Ok(Self::assemble(csr, &tile_rows))
    }

    fn assemble(csr: &Csr, strips: &[Strip]) -> Self {
        let tile_indptr = rows::prefix_sum(strips.iter().map(|s| s.cols.len() as u64));
        let tile_cols: Vec<u32> = strips.iter().flat_map(|s| &s.cols).copied().collect();
        let bitmaps: Vec<u32> = strips.iter().flat_map(|s| &s.bitmaps).copied().collect();
        let ranks = rows::prefix_sum(bitmaps.chunks_exact(TILE).map(|tile| u64::from(n_bits(tile))));
        let values = csr.values().map(|_| strips.iter().flat_map(|s| &s.values).copied().collect());
        let rest = csr.filtered(|r, c| strips[r / TILE].position(c).is_none());
        Self { tile_indptr, tile_cols, bitmaps, ranks, values, rest }
    }

    /// Reassembles exactly the matrix that was split.
    #[must_use]
    pub fn to_csr(&self) -> Csr {
        let entries = |r: usize| union(self.tile_row_entries(r), self.rest.row_entries(r));
        let fill = |r: usize, columns: &mut [NodeId], weights: &mut [f32]| {
            for (i, (c, w)) in entries(r).enumerate() {
                columns[i] = c;
                if let Some(slot) = weights.get_mut(i) {
                    *slot = w;
                }
            }
        };
        // SAFETY: tiles of a row ascend and so do the bits of a word; `rest` has no entry in a tile, so their union
        // ascends strictly; ids and weights are those of the matrix that was split.
        unsafe { rows::build(self.n_rows(), self.n_cols(), self.values.is_some(), |r| entries(r).count(), fill) }
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.rest.n_rows()
    }

    /// Number of columns.
    #[must_use]
    pub fn n_cols(&self) -> usize {
        self.rest.n_cols()
    }

    /// Number of dense tiles.
    #[must_use]
    pub fn n_tiles(&self) -> usize {
        self.tile_cols.len()
    }

    /// Number of entries in dense tiles.
    #[must_use]
    pub fn tile_nnz(&self) -> usize {
        self.ranks[self.n_tiles()] as usize
    }

    /// Number of entries.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.tile_nnz() + self.rest.nnz()
    }

    /// Fraction of the entries that are in dense tiles; 0 for an empty matrix.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        self.tile_nnz() as f64 / self.nnz().max(1) as f64
    }

    /// Bytes of all arrays.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        let tiles = size_of_val(&self.tile_indptr[..])
            + size_of_val(&self.tile_cols[..])
            + size_of_val(&self.bitmaps[..])
            + size_of_val(&self.ranks[..])
            + self.values().map_or(0, size_of_val);
        tiles as u64 + self.rest.n_bytes()
    }

    /// Offsets of tile rows: tile row `i` holds the tiles `tile_indptr[i]..tile_indptr[i + 1]`.
    #[must_use]
    pub fn tile_indptr(&self) -> &[u64] {
        &self.tile_indptr
    }

    /// Tile column of every tile; its first column is 32 times that.
    #[must_use]
    pub fn tile_cols(&self) -> &[u32] {
        &self.tile_cols
    }

    /// Bitmaps of the tiles, 32 words per tile.
    #[must_use]
    pub fn bitmaps(&self) -> &[u32] {
        &self.bitmaps
    }

    /// Ranks of the entries, `n_tiles + 1` offsets: the entries of tile `t` have the ranks `ranks[t]..ranks[t + 1]`.
    #[must_use]
    pub fn ranks(&self) -> &[u64] {
        &self.ranks
    }

    /// Weights of the tile entries in rank order; `None` when every entry is one.
    #[must_use]
    pub fn values(&self) -> Option<&[f32]> {
        self.values.as_deref()
    }

    /// Entries outside dense tiles, in a matrix of the whole shape.
    #[must_use]
    pub fn rest(&self) -> &Csr {
        &self.rest
    }

    /// Range of the tiles of tile row `i`.
    ///
    /// # Panics
    /// When tile row `i` does not exist.
    #[must_use]
    pub fn tiles_of_row(&self, i: usize) -> Range<usize> {
        self.tile_indptr[i] as usize..self.tile_indptr[i + 1] as usize
    }

    /// Entries of row `r` that are in dense tiles.
    fn tile_row_entries(&self, r: usize) -> impl Iterator<Item = (NodeId, f32)> + '_ {
        self.tiles_of_row(r / TILE).flat_map(move |t| {
            let words = &self.bitmaps[t * TILE..(t + 1) * TILE];
            let first_rank = self.ranks[t] as usize + n_bits(&words[..r % TILE]) as usize;
            let first_col = self.tile_cols[t] * TILE as u32;
            bits(words[r % TILE]).enumerate().map(move |(i, bit)| {
                (first_col + bit, self.values.as_ref().map_or(1.0, |values| values[first_rank + i]))
            })
        })
    }
}

fn strips(csr: &Csr) -> Strips<'_> {
    Strips { csr, height: TILE, width: TILE }
}

fn n_bits(words: &[u32]) -> u32 {
    words.iter().map(|w| w.count_ones()).sum()
}

/// Positions of the set bits, ascending.
fn bits(mut word: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < u32::BITS).then_some(bit)
    })
}

/// Dense tiles of one tile row.
struct Strip {
    cols: Vec<u32>,
    bitmaps: Vec<u32>,
    values: Vec<f32>,
}

impl Strip {
    /// Copies the entries in the tile columns `cols` (ascending).
    fn fill(csr: &Csr, strip: usize, cols: Vec<u32>) -> Self {
        let mut bitmaps = vec![0; cols.len() * TILE];
        let mut values = Vec::new();
        for (t, &col) in cols.iter().enumerate() {
            for r in strips(csr).rows(strip) {
                let row = csr.row(r);
                let first = row.partition_point(|&c| c / (TILE as u32) < col);
                let len = row[first..].partition_point(|&c| c / TILE as u32 == col);
                let range = first..first + len;
                bitmaps[t * TILE + r % TILE] =
                    row[range.clone()].iter().fold(0, |word, &c| word | 1 << (c % TILE as u32));
                if let Some(weights) = csr.values() {
                    values.extend_from_slice(&weights[csr.row_range(r)][range]);
                }
            }
        }
        Self { cols, bitmaps, values }
    }

    /// Position of the tile that contains column `c`.
    fn position(&self, c: NodeId) -> Option<usize> {
        self.cols.binary_search(&(c / TILE as u32)).ok()
    }
}
