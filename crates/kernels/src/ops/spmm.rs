//! `cuda/spmm.cu`: products of a sparse matrix and a dense one (SpMM).

use cudarc::driver::{LaunchConfig, PushKernelArg};
use girih_compute::scratch::pitch;
use girih_compute::{ComputeError, Dtype, Epilogue, Fits, Shape, SparseOps, Transpose};

use super::operand::{Operand, OperandRequest};
use super::passes::number;
use super::sparse::Direction;
use crate::abi::{SPMM_BLOCK, SPMM_IDS, SpmmEpilogue, TilePartials};
use crate::compile::{Defines, Source};
use crate::cuda::{Cuda, element};
use crate::device::threads_for;
use crate::matrix::Tiles;
use crate::{CudaMatrix, CudaSparse};

/// Narrowest operand multiplied by tensor cores; narrower ones are gathered so fast that blocks gain nothing.
const TILED_WIDTH_MIN: usize = 8;
/// Narrowest operand that is worth a preparation pass.
const MADE_WIDTH_MIN: usize = 8;
/// Entries per operand row from which a preparation pass pays.
const OFTEN: usize = 4;

/// Most blocks of a grid.
const BLOCKS_MAX: usize = i32::MAX as usize;

/// Assignment of lanes to rows: see `cuda/spmm.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Elements that a lane reads at once.
    vec: usize,
    /// Number of lanes that read a row of the operand.
    group: usize,
    /// Number of lanes that share a row of the pattern.
    team: usize,
    /// Whether lanes compute all panels of a row, one after the other.
    panels: bool,
}

impl Layout {
    /// Fewest lanes of a team.
    const TEAM_MIN: usize = 8;
    /// Largest mean number of entries per row for which a team computes all panels of a row.
    const FEW: usize = 16;
    /// Mean number of entries per row from which teams of two groups pay.
    const SOME: usize = 8;

    /// Chooses the layout. Loads have 16 bytes if `width`, the padded width of a row, keeps rows aligned for them.
    /// The pattern has `nnz` entries in `n_rows` rows.
    fn of(width: usize, dtype: Dtype, weighing: Weighing, (nnz, n_rows): (usize, usize)) -> Self {
        let (vec, group) = lanes(width, dtype);
        let vectors = width / vec;
        // A row with fewer entries than a whole warp reads ids at once leaves lanes idle. From some entries on,
        // reading two rows of the operand at once still beats reading one. Measured.
        let ids_of_lane = if weighing == Weighing::Nothing { (SPMM_IDS / group).max(1) } else { 1 };
        let at_least = |entries: usize| nnz >= entries * n_rows;
        let team = match group {
            _ if at_least(32 * ids_of_lane) => 32,
            Self::TEAM_MIN.. if at_least(Self::SOME) => (2 * group).min(32),
            _ => group.max(Self::TEAM_MIN),
        };
        Self { vec, group, team, panels: vectors > group && nnz <= Self::FEW * n_rows }
    }

    /// Launch with a team for each row or segment of the pattern and each panel.
    fn config(self, n_pieces: usize, n_panels: u32) -> LaunchConfig {
        let blocks = n_pieces.saturating_mul(self.team).div_ceil(SPMM_BLOCK as usize).clamp(1, BLOCKS_MAX) as u32;
        LaunchConfig { grid_dim: (blocks, n_panels, 1), block_dim: (SPMM_BLOCK, 1, 1), shared_mem_bytes: 0 }
    }

    /// Number of panels of a row that different teams compute.
    fn n_panels(self, width: usize) -> usize {
        if self.panels { 1 } else { width.div_ceil(self.vec * self.group) }
    }
}

/// Kind of weights of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weighing {
    Nothing = 0,
    Entries = 1,
    Heads = 2,
}

impl Weighing {
    fn of(direction: Direction<'_>, weights: Option<&CudaMatrix>) -> Self {
        match weights {
            Some(weights) if weights.shape.cols > 1 => Self::Heads,
            None if direction.csr.values.is_none() && direction.right.is_none() => Self::Nothing,
            _ => Self::Entries,
        }
    }
}

/// Further compile-time options of a product.
#[derive(Clone, Copy)]
struct Flags {
    /// Whether sums start from those of blocks.
    starts: bool,
    /// Whether the result is masked.
    masks: bool,
}

/// Columns of a result that a product writes: from `first` on, as many as its operand has.
pub(crate) struct Columns<'o> {
    of: &'o mut CudaMatrix,
    first: usize,
}

impl<'o> From<&'o mut CudaMatrix> for Columns<'o> {
    fn from(of: &'o mut CudaMatrix) -> Self {
        Self { of, first: 0 }
    }
}

impl SparseOps for Cuda {
    fn run_spmm(
        &self,
        _: Fits,
        (a, ta): (&CudaSparse, Transpose),
        weights: Option<&CudaMatrix>,
        x: &CudaMatrix,
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let direction = self.direction("spmm", a, ta, weights.is_some())?;
        self.product("spmm", direction, weights, x, &epilogue, out)
    }

    fn run_spmm_columns(
        &self,
        _: Fits,
        (a, ta): (&CudaSparse, Transpose),
        x: &CudaMatrix,
        epilogue: Epilogue<'_, CudaMatrix>,
        (out, first): (&mut CudaMatrix, usize),
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "spmm_columns";
        let direction = self.direction(OPERATION, a, ta, false)?;
        self.product(OPERATION, direction, None, x, &epilogue, Columns { of: out, first })
    }

    fn run_sddmm(
        &self,
        _: Fits,
        a: &CudaSparse,
        x: &CudaMatrix,
        y: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let direction = self.direction("sddmm", a, Transpose::No, true)?;
        self.sampled("sddmm", direction, x, y, out)
    }
}

impl Cuda {
    /// Multiplies one direction by operands of matching shapes. Weights are in the order of the untransposed entries.
    pub(crate) fn product<'o>(
        &self,
        operation: &'static str,
        direction: Direction<'_>,
        weights: Option<&CudaMatrix>,
        x: &CudaMatrix,
        epilogue: &Epilogue<'_, CudaMatrix>,
        out: impl Into<Columns<'o>>,
    ) -> Result<(), ComputeError> {
        let out = out.into();
        if out.of.shape.is_empty() || x.shape.cols == 0 {
            return Ok(());
        }
        let whole = direction.csr;
        let plain = weights.is_none() && whole.values.is_none();
        let tiles = if plain && x.shape.cols >= TILED_WIDTH_MIN { self.tiles_of(operation, whole, x)? } else { None };
        self.product_by(operation, direction, (weights, tiles), x, epilogue, out)
    }

    /// Multiplies by blocks, if `tiles` has any, and by rows for the other entries.
    pub(super) fn product_by<'o>(
        &self,
        operation: &'static str,
        direction: Direction<'_>,
        (weights, tiles): (Option<&CudaMatrix>, Option<&Tiles>),
        x: &CudaMatrix,
        epilogue: &Epilogue<'_, CudaMatrix>,
        out: impl Into<Columns<'o>>,
    ) -> Result<(), ComputeError> {
        let out = out.into();
        let whole = direction.csr;
        let plain = weights.is_none() && whole.values.is_none();
        let (operand, halves) = self.operand(operation, x, direction, wanted(direction, plain, tiles, x))?;
        let direction = Direction { right: direction.right.filter(|_| !operand.is_scaled), ..direction };
        let Some(tiles) = tiles else {
            return self.gather(operation, direction, weights, &operand, TilePartials::default(), epilogue, out);
        };
        let sums = self.tile_sums(operation, &tiles.blocks, &operand, halves.as_ref(), out.of.dtype)?;
        let start = tiles.start(self, whole, &sums);
        self.gather(operation, Direction { csr: &tiles.rest, ..direction }, None, &operand, start, epilogue, out)
    }

    /// Multiplies compressed rows by the operand; sums begin at `start`.
    #[expect(clippy::too_many_arguments, reason = "operands, and what happens to the result")]
    pub(super) fn gather<'o>(
        &self,
        operation: &'static str,
        direction: Direction<'_>,
        weights: Option<&CudaMatrix>,
        x: &Operand<'_>,
        start: TilePartials,
        epilogue: &Epilogue<'_, CudaMatrix>,
        out: impl Into<Columns<'o>>,
    ) -> Result<(), ComputeError> {
        let out = out.into();
        let (csr, width) = (direction.csr, pitch(x.shape.cols));
        let weighing = Weighing::of(direction, weights);
        let layout = Layout::of(width, x.dtype, weighing, (csr.nnz, csr.shape.rows));
        let flags = Flags { starts: start.is_some(), masks: epilogue.dropout.is_some() };
        let heads = weights.map_or(1, |weights| weights.shape.cols);
        let of_lanes = weighing == Weighing::Heads && knows_heads((layout.vec, layout.group), heads);
        let weighing = (weighing, if of_lanes { heads } else { 0 });
        let defines = defines(layout, weighing, x.dtype, [Some(&*out.of), weights, epilogue.bias], flags);
        let n_segments = csr.n_segments();
        let cols = x.shape.cols;
        let partial = match n_segments {
            0 => None,
            n => Some(self.uninitialized(Shape::new(n, width), Dtype::F32)?),
        };
        let sums = self.pointer(partial.as_ref().map(|partial| &partial.data));
        let (pattern, x, to) = (self.pattern(csr), x.argument(self), self.out(direction, epilogue, x.shape.cols, out)?);
        let values = self.pointer(csr.values.as_ref());
        let (heads, weights) = (heads as u64, self.pointer(weights.map(|weights| &weights.data)));
        let right = self.pointer(direction.right);
        let kernel = self.variant(operation, Source::SPMM, "spmm", &defines)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&pattern).arg(&values).arg(&weights).arg(&heads).arg(&right).arg(&x).arg(&start).arg(&to).arg(&sums);
        let grid_y = layout.n_panels(width) as u32;
        let config = layout.config(csr.n_pieces(), grid_y);
        // SAFETY: operands have the types that the kernel was compiled for and the shapes that were checked; the
        // indices of a `Csr` are rows of `x`, whose width the layout was made for; each element of `out` and of the
        // partial sums is written by one team.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        if n_segments == 0 {
            return Ok(());
        }
        let hubs = self.variant(operation, Source::SPMM, "spmm_hubs", &defines)?;
        let mut launch = self.device.stream.launch_builder(&hubs);
        launch.arg(&pattern).arg(&x).arg(&start).arg(&to).arg(&sums);
        // SAFETY: as above; the partial sums of all segments are written before, on the same stream.
        unsafe { launch.launch(threads_for(csr.n_hubs() * cols)) }.map(drop).map_err(Self::failed(operation))
    }

    fn out(
        &self,
        direction: Direction<'_>,
        epilogue: &Epilogue<'_, CudaMatrix>,
        width: usize,
        Columns { of, first }: Columns<'_>,
    ) -> Result<SpmmEpilogue, ComputeError> {
        let from_first =
            |matrix: &CudaMatrix| self.pointer(Some(&matrix.data)) + (first * matrix.dtype.n_bytes()) as u64;
        Ok(SpmmEpilogue {
            left: self.pointer(direction.left),
            bias: epilogue.bias.map_or(0, from_first),
            out: from_first(of),
            width: width as u64,
            of: of.shape.cols as u64,
            pitch: pitch(width) as u64,
            accumulate: i32::from(epilogue.accumulate),
            activation: number(epilogue.activation),
            mask: self.mask_or_none(epilogue.dropout, of.shape.cols)?.of_columns_from(first),
        })
    }
}

/// Preparation of the operand that pays.
fn wanted(direction: Direction<'_>, plain: bool, tiles: Option<&Tiles>, x: &CudaMatrix) -> OperandRequest {
    let width = x.shape.cols;
    // Preparation reads each element once; the product reads a row once for each entry of its column.
    let often = direction.csr.nnz >= OFTEN * x.shape.rows && width >= MADE_WIDTH_MIN;
    let halves = tiles.is_some_and(Tiles::takes_halves) && x.dtype == Dtype::F32;
    OperandRequest { rows: direction.right.is_some() && (tiles.is_some() || (plain && often)), halves }
}

/// Elements of a row that a lane reads at once, and number of lanes that read the row; `width` is the padded width.
pub(super) fn lanes(width: usize, dtype: Dtype) -> (usize, usize) {
    let vec = 1 << width.trailing_zeros().min(widest(dtype).trailing_zeros());
    (vec, (width / vec).next_power_of_two().min(32))
}

/// Whether one read of all lanes covers all heads, so that lanes derive their heads from their positions.
pub(super) fn knows_heads((vec, group): (usize, usize), heads: usize) -> bool {
    heads.is_power_of_two() && heads <= vec * group
}

/// Elements of the widest load (16 bytes).
fn widest(dtype: Dtype) -> usize {
    16 / dtype.n_bytes()
}

/// Macros of the source. `heads` is used where lanes read weights of several heads at once; `operands` are the
/// result, the weights and the bias.
fn defines(
    layout: Layout,
    (weighing, heads): (Weighing, usize),
    dtype: Dtype,
    operands: [Option<&CudaMatrix>; 3],
    flags: Flags,
) -> Defines {
    let types = ["Y", "W", "B"].into_iter().zip(operands);
    let types =
        types.map(|(name, matrix)| (name, element(matrix.map_or(Dtype::F32, |matrix| matrix.dtype)).to_owned()));
    let Layout { vec, group, team, panels } = layout;
    let constants = [("VEC", vec), ("GROUP", group), ("TEAM", team), ("WEIGHTS", weighing as usize), ("HEADS", heads)];
    let flags = [("STARTS", flags.starts), ("MASKS", flags.masks), ("PANELS", panels)];
    let flags = flags.map(|(name, flag)| (name, usize::from(flag)));
    let constants = constants.into_iter().chain(flags);
    let operand = [("X", element(dtype).to_owned())];
    operand.into_iter().chain(types).chain(constants.map(|(name, value)| (name, value.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Lanes of all panels hold every element of a row, and as many rows at once as the kernel's loops expect.
        #[test]
        fn layouts_cover_rows(width in 1_usize..2000, is_f32: bool) {
            let dtype = if is_f32 { Dtype::F32 } else { Dtype::Bf16 };
            let Layout { vec, group, .. } = Layout::of(width, dtype, Weighing::Nothing, (1 << 10, 1));
            prop_assert!(width.is_multiple_of(vec) && group.is_power_of_two() && group <= 32);
            let layout = Layout::of(width, dtype, Weighing::Nothing, (1, 1));
            prop_assert!(layout.team.is_multiple_of(layout.group) && layout.team <= 32);
            let n_panels = if layout.panels { width.div_ceil(vec * group) } else { layout.n_panels(width) };
            prop_assert!(n_panels * vec * group >= width);
            // With many entries, each panel has a team of its own.
            let long = Layout::of(width, dtype, Weighing::Nothing, (1 << 10, 1));
            prop_assert!(!long.panels && long.n_panels(width) * vec * group >= width);
        }
    }
}
