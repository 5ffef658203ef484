//! `cuda/dense.cu` and `cuda/dense_wgmma.cu`: dense products with one long side, rows of nodes times weights
//! and sums over nodes.
//!
//! Libraries multiply `f32` without tensor cores, and write a result that the activation reads again. Here both are
//! one pass, which is bound by memory alone where weights are narrow.

use std::ops::RangeInclusive;

use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use girih_compute::{Activation, ComputeError, Dtype, Epilogue, EpilogueGrad, Shape, Transpose};

use super::gemm::{Dense, LONG, has_long_rows};
use super::passes::number;
use crate::abi::{
    BLOCK, GEMM_DEPTH_BYTES, GEMM_STAGES, GEMM_WARPGROUP_STAGES, GemmEpilogue, Mask, ProductTerm, WARPGROUP, WIDE,
};
use crate::compile::{Defines, Source};
use crate::cuda::{Cuda, element};
use crate::device::{Device, has_wgmma};
use crate::matrix::CudaMatrix;

const OPERATION: &str = "gemm";
/// Rows of a tile. Sums over nodes may have few rows, and then also use half of them.
const TILE: usize = 128;
/// Most bytes of shared memory for resident weights, such that two blocks share an SM.
const HELD_BYTES_MAX: usize = 112 << 10;
/// Most columns of a tile.
const COLS_MAX: usize = 128;
/// Columns of the result. Fewer leave tensor cores idle, and wider products are left to libraries.
const COLS: RangeInclusive<usize> = WIDE..=256;
/// Most rows of sums over nodes.
const SUMMED_ROWS_MAX: usize = 2048;
/// Blocks that share a product, by `mma` and by `wgmma`. The numbers do not depend on the GPU, so that all GPUs with
/// one kernel sum in one order.
const BLOCKS: usize = 264;
const BLOCKS_OF_WARPGROUPS: usize = 132;
/// Fewest stages of a part of the summed dimension.
const PART_STAGES_MIN: usize = 8;
/// Bytes of a stage of shared memory of warpgroups: two column-major tiles (the upper and lower parts of
/// the right operand) and one row-major tile (the left one). A stage begins at a multiple of [`SWIZZLED`].
const WARPGROUP_STAGE_BYTES: usize =
    (2 * TILE * GEMM_DEPTH_BYTES + TILE * (GEMM_DEPTH_BYTES + 16)).next_multiple_of(SWIZZLED);
const SWIZZLED: usize = 1024;
/// Threads of a block of warpgroups: two that multiply, two that fetch.
const WARPGROUP_THREADS: u32 = 4 * WARPGROUP;

/// Operands of a product and, where two products are added, those of the second.
#[derive(Clone, Copy)]
struct Factors<'a> {
    first: (&'a CudaMatrix, &'a CudaMatrix),
    second: Option<(&'a CudaMatrix, &'a CudaMatrix)>,
}

impl<'a> From<(&'a CudaMatrix, &'a CudaMatrix)> for Factors<'a> {
    fn from(first: (&'a CudaMatrix, &'a CudaMatrix)) -> Self {
        Self { first, second: None }
    }
}

/// Compile-time options besides operands: types of the result, the bias and the activated output, and the epilogue.
#[derive(Clone, Copy)]
struct Variant {
    out: Dtype,
    bias: Dtype,
    through: Dtype,
    activation: Activation,
    accumulate: bool,
    masks: bool,
}

/// Kernel of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProductKernel {
    /// Warpgroups by `wgmma`: `cuda/dense_wgmma.cu`.
    Wgmma,
    /// Warps by `mma`: `cuda/dense.cu`.
    Mma,
}

impl ProductKernel {
    /// Faster kernel for a result of `shape`. Warpgroups would waste half of each tile on narrow results, and on sums
    /// for few features.
    fn of(device: &Device, shape: Shape, splits: bool, dtype: Dtype) -> Self {
        let fills_tiles = shape.cols > COLS_MAX / 2 && !(splits && shape.rows <= TILE / 2);
        let suits = dtype == Dtype::F32 && fills_tiles && has_wgmma(device.capability());
        if suits { Self::Wgmma } else { Self::Mma }
    }

    fn source(self) -> Source {
        match self {
            Self::Wgmma => Source::DENSE_WGMMA,
            Self::Mma => Source::DENSE,
        }
    }

    fn blocks(self) -> usize {
        match self {
            Self::Wgmma => BLOCKS_OF_WARPGROUPS,
            Self::Mma => BLOCKS,
        }
    }

    fn threads(self) -> u32 {
        match self {
            Self::Wgmma => WARPGROUP_THREADS,
            Self::Mma => BLOCK,
        }
    }
}

/// Division of a product into tiles and parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    kernel: ProductKernel,
    /// Rows and columns of a tile, and number of tiles across the columns.
    rows: usize,
    cols: usize,
    abreast: usize,
    /// Blocks that share the rows.
    blocks: usize,
    /// Number of parts of the summed dimension, and length of one.
    parts: usize,
    part: usize,
}

impl Cut {
    /// Division for a result of `shape`; with `splits`, the summed dimension is the long side and is divided.
    fn of(kernel: ProductKernel, shape: Shape, depth: usize, splits: bool, dtype: Dtype) -> Self {
        let abreast = shape.cols.div_ceil(COLS_MAX);
        let (rows, cols) = match kernel {
            ProductKernel::Wgmma => (TILE, COLS_MAX),
            // In lower tiles, two warps side by side compute half of the columns each.
            ProductKernel::Mma if splits && shape.rows <= TILE / 2 => {
                (TILE / 2, shape.cols.div_ceil(abreast).next_multiple_of(32))
            }
            ProductKernel::Mma => (TILE, shape.cols.div_ceil(abreast).next_multiple_of(16)),
        };
        let n_tiles = shape.rows.div_ceil(rows);
        let stage = GEMM_DEPTH_BYTES / dtype.n_bytes();
        let parts = match splits {
            true => (kernel.blocks() / (n_tiles * abreast)).clamp(1, depth.div_ceil(PART_STAGES_MIN * stage).max(1)),
            false => 1,
        };
        let part = depth.div_ceil(parts).next_multiple_of(stage);
        let blocks = n_tiles.min(kernel.blocks().div_ceil(abreast));
        Self { kernel, rows, cols, abreast, blocks, parts: depth.div_ceil(part), part }
    }

    fn config(self, shared_mem_bytes: u32) -> LaunchConfig {
        let grid_dim = (self.abreast as u32, self.blocks as u32, self.parts as u32);
        LaunchConfig { grid_dim, block_dim: (self.kernel.threads(), 1, 1), shared_mem_bytes }
    }

    /// Number of resident tiles of the right operand, and bytes of shared memory in all.
    fn held(self, dense: Dense, dtype: Dtype) -> (usize, u32) {
        if self.kernel == ProductKernel::Wgmma {
            return (0, (GEMM_WARPGROUP_STAGES * WARPGROUP_STAGE_BYTES + SWIZZLED) as u32);
        }
        let (vector, depth) = (16 / dtype.n_bytes(), GEMM_DEPTH_BYTES / dtype.n_bytes());
        // Rows along the summed dimension are padded by a vector, others by eight elements.
        let tile = |side: usize, along: bool| {
            dtype.n_bytes() * if along { side * (depth + vector) } else { depth * (side + 8) }
        };
        let (ta, tb) = dense.transposes;
        let (of_a, of_b) = (tile(self.rows, ta == Transpose::No), tile(self.cols, tb == Transpose::Yes));
        let n = dense.depth.div_ceil(depth);
        let bytes = GEMM_STAGES * of_a + n * of_b;
        let fits = ta == Transpose::No && bytes <= HELD_BYTES_MAX;
        if fits { (n, bytes as u32) } else { (0, (GEMM_STAGES * (of_a + of_b)) as u32) }
    }
}

impl Cuda {
    /// Division of a product of operands of one type, on this GPU.
    fn cut(&self, dense: Dense, splits: bool, dtype: Dtype) -> Cut {
        let kernel = ProductKernel::of(&self.device, dense.shape, splits, dtype);
        Cut::of(kernel, dense.shape, dense.depth, splits, dtype)
    }

    /// Multiplies a product with a long side, with its epilogue. Returns `false` and does nothing for others. Both
    /// operands are of one type.
    pub(super) fn multiply_long(
        &self,
        dense: Dense,
        (a, b): (&CudaMatrix, &CudaMatrix),
        epilogue: &Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<bool, ComputeError> {
        if !is_suited(dense, (a, b)) {
            return Ok(false);
        }
        let plain = epilogue.bias.is_none() && epilogue.activation == Activation::Identity;
        let (variant, to) = self.forward_out(dense, epilogue, out)?;
        match dense.transposes {
            (Transpose::No, _) if has_long_rows(dense.shape) => {
                let cut = self.cut(dense, false, a.dtype);
                self.product_of(dense, (a, b).into(), cut, variant, to)?;
                Ok(true)
            }
            (Transpose::Yes, Transpose::No) if plain && dense.depth >= LONG && dense.shape.rows <= SUMMED_ROWS_MAX => {
                self.sum_of_parts(dense, (a, b), variant, to, out)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Computes the sum of two products of long rows, `dense` being the first, with its epilogue. Returns `false` and
    /// does nothing for others. All operands are of one type.
    pub(super) fn multiply_long_pair(
        &self,
        dense: Dense,
        [first, second]: [(&CudaMatrix, &CudaMatrix); 2],
        epilogue: &Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<bool, ComputeError> {
        if !is_of_long_rows(dense, first) || !is_suited(dense, second) {
            return Ok(false);
        }
        let (variant, to) = self.forward_out(dense, epilogue, out)?;
        // The second product begins with a stage of its own.
        let dtype = first.0.dtype;
        let depth = dense.depth.next_multiple_of(GEMM_DEPTH_BYTES / dtype.n_bytes()) + second.0.shape.cols;
        let both = Dense { depth, ..dense };
        let cut = self.cut(both, false, dtype);
        self.product_of(both, Factors { first, second: Some(second) }, cut, variant, to)?;
        Ok(true)
    }

    /// Multiplies a product of long rows and scales each row by its factor as it is stored. Returns `false` and does
    /// nothing for others.
    pub(super) fn multiply_long_scaled(
        &self,
        dense: Dense,
        (a, b): (&CudaMatrix, &CudaMatrix),
        factors: &CudaMatrix,
        out: &CudaMatrix,
    ) -> Result<bool, ComputeError> {
        if !is_of_long_rows(dense, (a, b)) {
            return Ok(false);
        }
        let (variant, to) = self.forward_out(dense, &Epilogue::default(), out)?;
        let to = GemmEpilogue { factors: self.pointer(Some(&factors.data)), ..to };
        self.product_of(dense, (a, b).into(), self.cut(dense, false, a.dtype), variant, to)?;
        Ok(true)
    }

    /// Multiplies a product of long rows and applies the gradient of the activation with result `y`; also sums its
    /// columns. Returns `false` and does nothing for others.
    pub(super) fn multiply_long_backward(
        &self,
        dense: Dense,
        (a, b): (&CudaMatrix, &CudaMatrix),
        EpilogueGrad { slope, y, first, factors }: EpilogueGrad<'_, CudaMatrix>,
        out: &mut CudaMatrix,
        sums: Option<&mut CudaMatrix>,
    ) -> Result<bool, ComputeError> {
        if !is_of_long_rows(dense, (a, b)) {
            return Ok(false);
        }
        let cut = self.cut(dense, false, a.dtype);
        let cols = dense.shape.cols;
        let partials = sums.as_deref().map(|_| self.scratch::<f32>(OPERATION, cut.blocks * cols)).transpose()?;
        let to = GemmEpilogue {
            through: self.pointer(Some(&y.data)) + (first * y.dtype.n_bytes()) as u64,
            through_pitch: y.pitch() as u64,
            factors: self.pointer(factors.map(|factors| &factors.data)),
            partials: self.pointer(partials.as_ref()),
            kept: slope.kept,
            ..self.plain_out(dense, out)
        };
        let (bias, through, activation) = (Dtype::F32, y.dtype, slope.activation);
        let variant = Variant { out: out.dtype, bias, through, activation, accumulate: false, masks: false };
        self.product_of(dense, (a, b).into(), cut, variant, to)?;
        if let Some((sums, partials)) = sums.zip(partials) {
            self.finish_columns(OPERATION, &partials.as_view(), (cut.blocks, cols, 1), sums)?;
        }
        Ok(true)
    }

    /// Result and forward epilogue, and the kernel variant for them.
    fn forward_out(
        &self,
        dense: Dense,
        epilogue: &Epilogue<'_, CudaMatrix>,
        out: &CudaMatrix,
    ) -> Result<(Variant, GemmEpilogue), ComputeError> {
        let to = GemmEpilogue {
            bias: self.pointer(epilogue.bias.map(|bias| &bias.data)),
            mask: self.mask_or_none(epilogue.dropout, dense.shape.cols)?,
            ..self.plain_out(dense, out)
        };
        let variant = Variant {
            out: out.dtype,
            bias: epilogue.bias.map_or(Dtype::F32, |bias| bias.dtype),
            through: Dtype::F32,
            activation: epilogue.activation,
            accumulate: epilogue.accumulate,
            masks: epilogue.dropout.is_some(),
        };
        Ok((variant, to))
    }

    /// Result without an epilogue.
    fn plain_out(&self, dense: Dense, out: &CudaMatrix) -> GemmEpilogue {
        GemmEpilogue {
            out: self.pointer(Some(&out.data)),
            bias: 0,
            through: 0,
            through_pitch: 0,
            factors: 0,
            partials: 0,
            rows: dense.shape.rows as u64,
            cols: dense.shape.cols as u64,
            alpha: dense.alpha,
            kept: 1.0,
            mask: Mask::NONE,
        }
    }

    /// Computes partial sums for parts of the summed dimension, and their total.
    fn sum_of_parts(
        &self,
        dense: Dense,
        (a, b): (&CudaMatrix, &CudaMatrix),
        variant: Variant,
        to: GemmEpilogue,
        out: &CudaMatrix,
    ) -> Result<(), ComputeError> {
        let cut = self.cut(dense, true, a.dtype);
        let partials = self.scratch::<f32>(OPERATION, cut.parts * out.len())?;
        let to = GemmEpilogue { partials: self.pointer(Some(&partials)), ..to };
        self.product_of(dense, (a, b).into(), cut, variant, to)?;
        let kernel = self.dense_kernel("add_parts", dense, (cut, false), a.dtype, variant, to)?;
        let n_parts = cut.parts as u64;
        let blocks = out.padded().len().div_ceil(32) as u32;
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (32, BLOCK / 32, 1), shared_mem_bytes: 0 };
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&n_parts).arg(&to);
        // SAFETY: each part has written the sums of all elements of `out`, padding included.
        unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(OPERATION))
    }

    /// Launches the product.
    fn product_of(
        &self,
        dense: Dense,
        factors: Factors<'_>,
        cut: Cut,
        variant: Variant,
        to: GemmEpilogue,
    ) -> Result<(), ComputeError> {
        let dtype = factors.first.0.dtype;
        let kernel = self.dense_kernel("product", dense, (cut, factors.second.is_some()), dtype, variant, to)?;
        let (_, shared_bytes) = cut.held(dense, dtype);
        Self::allow_shared(OPERATION, &kernel, shared_bytes)?;
        let pair = |(a, b): (&CudaMatrix, &CudaMatrix), depth: usize| ProductTerm {
            a: self.pointer(Some(&a.data)),
            a_pitch: a.pitch() as u64,
            b: self.pointer(Some(&b.data)),
            b_pitch: b.pitch() as u64,
            depth: depth as u64,
        };
        let (first, second) = match factors.second {
            None => (pair(factors.first, dense.depth), pair(factors.first, 0)),
            Some(second) => (pair(factors.first, factors.first.0.shape.cols), pair(second, second.0.shape.cols)),
        };
        let part = cut.part as u64;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&first).arg(&second).arg(&part).arg(&to);
        // SAFETY: the shapes were checked, and operands are of the type that the kernel was compiled for; their rows
        // are aligned for copies of 16 bytes; `to` has space for each row and part, of the type that the kernel was
        // compiled for.
        unsafe { launch.launch(cut.config(shared_bytes)) }.map(drop).map_err(Self::failed(OPERATION))
    }

    fn dense_kernel(
        &self,
        name: &str,
        dense: Dense,
        (cut, is_pair): (Cut, bool),
        operands: Dtype,
        variant: Variant,
        to: GemmEpilogue,
    ) -> Result<CudaFunction, ComputeError> {
        let Variant { out, bias, through, activation, accumulate, masks } = variant;
        let types = [("X", operands), ("Y", out), ("B", bias), ("V", through)];
        let types = types.map(|(name, dtype)| (name, element(dtype).to_owned()));
        let flag = |transpose| usize::from(transpose == Transpose::Yes);
        let (ta, tb) = dense.transposes;
        let constants = [
            ("ROWS", cut.rows),
            ("COLS", cut.cols),
            ("HELD", cut.held(dense, operands).0),
            ("TA", flag(ta)),
            ("TB", flag(tb)),
            ("SPLIT", flag(ta)),
            ("PAIR", usize::from(is_pair)),
            ("BACK", usize::from(to.through != 0)),
            ("ACTIVATION", number(activation) as usize),
            ("ACCUMULATE", usize::from(accumulate)),
            ("MASKS", usize::from(masks)),
            ("FACTORS", usize::from(to.factors != 0)),
        ];
        let constants = constants.map(|(name, value)| (name, value.to_string()));
        let defines: Defines = types.into_iter().chain(constants).collect();
        self.variant(OPERATION, cut.kernel.source(), name, &defines)
    }
}

/// Whether the columns of a product suit tiles. Rows of narrower operands are not aligned for copies of 16 bytes.
fn is_suited(dense: Dense, (a, b): (&CudaMatrix, &CudaMatrix)) -> bool {
    COLS.contains(&dense.shape.cols) && a.shape.cols.min(b.shape.cols) >= WIDE
}

/// Whether a product multiplies rows of nodes by a weight, both of suitable sizes.
fn is_of_long_rows(dense: Dense, operands: (&CudaMatrix, &CudaMatrix)) -> bool {
    is_suited(dense, operands) && dense.transposes.0 == Transpose::No && has_long_rows(dense.shape)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Tiles cover all columns, parts all of the summed dimension, and none is empty.
        #[test]
        fn cuts_leave_nothing_out(rows in 1_usize..5000, cols in 8_usize..=256, depth in 1_usize..1_000_000, splits: bool,
                                  is_f32: bool, is_wgmma: bool) {
            let dtype = if is_f32 || is_wgmma { Dtype::F32 } else { Dtype::Bf16 };
            let kernel = if is_wgmma { ProductKernel::Wgmma } else { ProductKernel::Mma };
            let cut = Cut::of(kernel, Shape::new(rows, cols), depth, splits, dtype);
            prop_assert!(cut.cols.is_multiple_of(16) && cut.cols <= COLS_MAX && cut.cols * cut.abreast >= cols);
            prop_assert!(cut.cols * (cut.abreast - 1) < cols);
            prop_assert!(cut.part.is_multiple_of(GEMM_DEPTH_BYTES / dtype.n_bytes()));
            prop_assert!(cut.part * cut.parts >= depth && cut.part * (cut.parts - 1) < depth);
            prop_assert!(splits || cut.parts == 1);
            prop_assert!(cut.blocks >= 1 && cut.blocks <= rows.div_ceil(TILE));
            let dense = Dense {
                shape: Shape::new(rows, cols),
                depth,
                transposes: (if splits { Transpose::Yes } else { Transpose::No }, Transpose::Yes),
                alpha: 1.0,
                beta: 0.0,
            };
            let (held, bytes) = cut.held(dense, dtype);
            prop_assert!(bytes <= 227 << 10);
            prop_assert!(held == 0 || !splits && held * GEMM_DEPTH_BYTES / dtype.n_bytes() >= depth);
        }
    }
}
