//! Products with a [`TileMatrix`]: bitmaps become indices a strip of 32 rows at a time, next to the strip's rest.
//!
//! A tile's entries name 32 consecutive rows of the operand, so that a strip gathers few distinct rows, and most from
//! L1 or L2; its bitmaps take less memory traffic than indices would. Against that stands the unpacking, once for each
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

/// Entries, and a few for each row, that one task handles.
const TASK_WORK: usize = 1 << 14;

/// `L·A·R` with `A` in tiles, in main memory.
#[derive(Clone, Debug)]
pub struct CpuTiles {
    tiles: TileMatrix,
    scales: Scales,
    /// Strips of 32 rows that each task handles.
    tasks: Vec<Range<usize>>,
}

impl CpuTiles {
    /// Prepares products with a matrix in tiles.
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

    /// Rows and columns.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape::new(self.tiles.n_rows(), self.tiles.n_cols())
    }

    /// The rows of consecutive strips.
    fn rows(&self, strips: &Range<usize>) -> Range<usize> {
        strips.start * TileMatrix::TILE..(strips.end * TileMatrix::TILE).min(self.tiles.n_rows())
    }
}

/// Entries of a strip, those in tiles and those in the rest.
fn strip_nnz(tiles: &TileMatrix, strip: usize) -> usize {
    let dense = tiles.tiles_of_row(strip);
    let rest = tiles.rest().indptr();
    let rows = strip * TileMatrix::TILE..((strip + 1) * TileMatrix::TILE).min(tiles.n_rows());
    (tiles.ranks()[dense.end] - tiles.ranks()[dense.start] + rest[rows.end] - rest[rows.start]) as usize
}

impl Cpu {
    /// A matrix in tiles, with the diagonals `L` and `R` beside it, prepared for [`spmm_tiles`](Self::spmm_tiles).
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

    /// `out = epilogue(L·A·R·X)` for `A` in tiles; the transposed product needs the tiles of the transpose.
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

/// `out = epilogue(L·A·R·X)` for shapes that fit.
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
    // As if neighbours were anywhere: nothing is known of the order.
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

/// Strips of a [`TileMatrix`] as compressed rows: in each, the entries of tiles, then those of the rest.
#[derive(Default)]
struct Unpacked {
    indptr: Vec<u64>,
    indices: Vec<u32>,
    /// As many as indices if the matrix is weighted, none otherwise.
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

    /// Appends the entries of one row of a tile, of which the first has the given rank; moves the rank past them.
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
