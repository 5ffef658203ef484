//! Products with a [`TileMatrix`]. Bitmaps are unpacked into indices for 32 rows (a strip) at a time, followed by the
//! strip's remaining entries.
//!
//! The entries of a tile reference 32 consecutive rows of the operand. A strip thus gathers few distinct rows, and
//! most of them from L1 or L2. Bitmaps take less memory traffic than indices, at the cost of the unpacking for each
//! panel of columns.

use std::ops::Range;

use girih_graph_format::{Scales, TileMatrix};
use half::bf16;
use rayon::prelude::*;

use super::gather::{Gather, Summed};
use super::output::RowsMut;
use super::product::PanelProduct;
use super::{for_each_panel, plan};
use crate::checks;
use crate::cpu::Cpu;
use crate::cpu::element::Element;
use crate::cpu::epilogue::RowEpilogue;
use crate::cpu::machine::Machine;
use crate::cpu::matrix::{CpuMatrix, Storage};
use crate::{ComputeError, Dtype, Epilogue, Shape, Transpose};

/// Work of one task, in entries, with a surcharge for each row.
const TASK_WORK: usize = 1 << 14;

/// Sparse matrix `L·A·R` with `A` in tiles, in main memory.
#[derive(Clone, Debug)]
pub struct CpuTiles {
    tiles: TileMatrix,
    scales: Scales,
    /// Strips of 32 rows of each task.
    tasks: Vec<Range<usize>>,
}

impl CpuTiles {
    /// Prepares a matrix in tiles for products.
    pub(crate) fn new(tiles: TileMatrix, scales: Scales) -> Self {
        let n_strips = tiles.n_rows().div_ceil(TileMatrix::TILE);
        let mut tasks = Vec::new();
        let (mut start, mut work) = (0, 0);
        for strip in 0..n_strips {
            work += strip_nnz(&tiles, strip) + TileMatrix::TILE;
            if work >= TASK_WORK || strip + 1 == n_strips {
                tasks.push(start..strip + 1);
                (start, work) = (strip + 1, 0);
            }
        }
        Self { tiles, scales, tasks }
    }

    /// Shape of the matrix.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape::new(self.tiles.n_rows(), self.tiles.n_cols())
    }

    /// Rows of consecutive strips.
    fn rows(&self, strips: &Range<usize>) -> Range<usize> {
        strips.start * TileMatrix::TILE..(strips.end * TileMatrix::TILE).min(self.tiles.n_rows())
    }
}

/// Number of entries of a strip, in tiles and in the rest.
fn strip_nnz(tiles: &TileMatrix, strip: usize) -> usize {
    let dense = tiles.tiles_of_row(strip);
    let rest = tiles.rest().indptr();
    let rows = strip * TileMatrix::TILE..((strip + 1) * TileMatrix::TILE).min(tiles.n_rows());
    (tiles.ranks()[dense.end] - tiles.ranks()[dense.start] + rest[rows.end] - rest[rows.start]) as usize
}

impl Cpu {
    /// Prepares a matrix in tiles, with the diagonals `L` and `R`, for [`spmm_tiles`](Self::spmm_tiles).
    ///
    /// # Errors
    /// When a scale vector does not have one factor for each row or column.
    pub fn upload_tiles(&self, tiles: TileMatrix, scales: Scales) -> Result<CpuTiles, ComputeError> {
        for (name, factors, n) in [("L", &scales.left, tiles.n_rows()), ("R", &scales.right, tiles.n_cols())] {
            if let Some(found) = factors.as_ref().map(Vec::len).filter(|&found| found != n) {
                let what = format!("{name} has {found} factors, but the matrix needs {n}");
                return Err(ComputeError::argument("upload_tiles", what));
            }
        }
        Ok(CpuTiles::new(tiles, scales))
    }

    /// Sparse product `out = epilogue(L·A·R·X)` with `A` (`n × m`) in tiles, `X` `m × d` and `out` `n × d`. The
    /// transposed product needs the tiles of the transpose.
    ///
    /// # Errors
    /// On shapes that do not fit.
    pub fn spmm_tiles(
        &self,
        a: &CpuTiles,
        x: &CpuMatrix,
        epilogue: &Epilogue<'_, CpuMatrix>,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let bias = epilogue.bias.map(CpuMatrix::shape);
        checks::spmm((a.shape(), Transpose::No), a.tiles.nnz(), None, x.shape(), bias, out.shape())?;
        checks::mask("spmm", epilogue)?;
        multiply_tiles(&self.machine, a, x, epilogue, out);
        Ok(())
    }
}

/// Computes `out = epilogue(L·A·R·X)`. The shapes have been checked.
pub(super) fn multiply_tiles(
    machine: &Machine,
    a: &CpuTiles,
    x: &CpuMatrix,
    epilogue: &Epilogue<'_, CpuMatrix>,
    out: &mut CpuMatrix,
) {
    let width = x.shape().cols;
    let epilogue = RowEpilogue::new(epilogue);
    match (x.storage(), machine.gathered) {
        (Storage::F32(x), Dtype::F32) => multiply_panels::<f32, f32>(machine, a, (x, width), &epilogue, out),
        (Storage::F32(x), Dtype::Bf16) => multiply_panels::<f32, bf16>(machine, a, (x, width), &epilogue, out),
        (Storage::Bf16(x), _) => multiply_panels::<bf16, bf16>(machine, a, (x, width), &epilogue, out),
    }
    epilogue.mask(machine, out);
}

fn multiply_panels<X: Element, P: Summed>(
    machine: &Machine,
    a: &CpuTiles,
    x: (&[X], usize),
    epilogue: &RowEpilogue<'_>,
    out: &mut CpuMatrix,
) {
    let n_cols = a.shape().cols;
    // The node order is unknown, so neighbors count as uniformly distributed.
    let hit_rate = |rows: usize| (rows as f64 / n_cols as f64).min(1.0);
    let panels = plan::<P>(machine, (a.shape(), a.tiles.nnz()), x.1, hit_rate);
    for_each_panel::<X, P>(machine, &panels, x, a.scales.right.as_deref(), |panel, packed| {
        let rows = RowsMut::split(out, a.tasks.iter().map(|strips| a.rows(strips).len()));
        a.tasks.par_iter().zip(rows).with_max_len(1).for_each_init(Unpacked::default, |unpacked, (strips, out)| {
            unpacked.fill(&a.tiles, strips.clone());
            let weights = a.tiles.rest().values().map(|_| &unpacked.weights[..]);
            // SAFETY: the columns of tiles and rest are below `n_cols`, as `TileMatrix` promises: bits outside the
            // matrix are zero.
            let gather = unsafe { Gather::new(&unpacked.indices, weights, n_cols, packed, panel.row_words) };
            let left = a.scales.left.as_deref();
            let product = PanelProduct { isa: machine.isa, left, panel, gather, epilogue };
            product.store_rows::<P>(a.rows(strips), &unpacked.indptr, out);
        });
    });
}

/// Strips of a [`TileMatrix`] as CSR rows. Each row lists the entries in tiles, then those of the rest.
#[derive(Default)]
struct Unpacked {
    indptr: Vec<u64>,
    indices: Vec<u32>,
    /// Weights of the entries; empty if the matrix is unweighted.
    weights: Vec<f32>,
}

impl Unpacked {
    fn fill(&mut self, tiles: &TileMatrix, strips: Range<usize>) {
        self.indptr.clear();
        self.indices.clear();
        self.weights.clear();
        self.indptr.push(0);
        for strip in strips {
            let dense = tiles.tiles_of_row(strip);
            let mut ranks: Vec<usize> = tiles.ranks()[dense.clone()].iter().map(|&rank| rank as usize).collect();
            let first = strip * TileMatrix::TILE;
            for row in first..(first + TileMatrix::TILE).min(tiles.n_rows()) {
                for (tile, rank) in dense.clone().zip(&mut ranks) {
                    self.push_word(tiles, tile, row - first, rank);
                }
                let rest = tiles.rest().row_range(row);
                self.indices.extend_from_slice(&tiles.rest().indices()[rest.clone()]);
                if let Some(values) = tiles.rest().values() {
                    self.weights.extend_from_slice(&values[rest]);
                }
                self.indptr.push(self.indices.len() as u64);
            }
        }
    }

    /// Appends the entries of one row of a tile. `rank` is the rank of the first one, and is advanced past them.
    fn push_word(&mut self, tiles: &TileMatrix, tile: usize, row: usize, rank: &mut usize) {
        let mut word = tiles.bitmaps()[tile * TileMatrix::TILE + row];
        let n_entries = word.count_ones() as usize;
        if let Some(values) = tiles.values() {
            self.weights.extend_from_slice(&values[*rank..*rank + n_entries]);
        }
        *rank += n_entries;
        let first_column = tiles.tile_cols()[tile] * TileMatrix::TILE as u32;
        while word != 0 {
            self.indices.push(first_column + word.trailing_zeros());
            word &= word - 1;
        }
    }
}
