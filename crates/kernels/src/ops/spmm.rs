//! `kernels/spmm.cu`: sparse products.

use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig, PushKernelArg};
use girih_compute::{Activation, ComputeError, Dtype, Epilogue, Shape, Transpose, checks};

use super::super::backend::{Cuda, element};
use super::super::compile::{Defines, Source};
use super::super::device::{threads_for, warps_for};
use super::sparse::Direction;
use crate::{CudaMatrix, CudaSparse};

/// How a warp reads rows: see `kernels/spmm.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Elements that a lane reads at once.
    vec: usize,
    /// Lanes that read a row.
    group: usize,
    /// Vectors that a lane holds of a row.
    tiles: usize,
}

impl Layout {
    /// Loads of 16 bytes where the width allows them, because rows then start where such loads may.
    fn of(width: usize, dtype: Dtype) -> Self {
        let widest = 16 / dtype.n_bytes();
        let vec = 1 << width.trailing_zeros().min(widest.trailing_zeros());
        let vectors = width / vec;
        let group = vectors.next_power_of_two().min(32);
        // A lane holds few elements, so that registers suffice for enough warps.
        let tiles = vectors.div_ceil(32).min(8 / vec).min(4);
        Self { vec, group, tiles }
    }

    /// Parts of a row that different warps compute.
    fn n_panels(self, width: usize) -> usize {
        width.div_ceil(self.vec * self.group * self.tiles)
    }
}

/// What entries are multiplied by.
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

/// `Out` of `kernels/spmm.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Out {
    left: u64,
    bias: u64,
    out: u64,
    width: u64,
    accumulate: i32,
    activation: i32,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Out {}

impl Cuda {
    /// [`Backend::spmm`](girih_compute::Backend::spmm).
    #[expect(clippy::needless_pass_by_value, reason = "the trait's signature")]
    pub(crate) fn spmm(
        &self,
        (a, ta): (&CudaSparse, Transpose),
        weights: Option<&CudaMatrix>,
        x: &CudaMatrix,
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (weights_shape, bias_shape) = (weights.map(|weights| weights.shape), epilogue.bias.map(|bias| bias.shape));
        checks::spmm((self.sparse_shape(a), ta), self.nnz(a), weights_shape, x.shape, bias_shape, out.shape)?;
        let direction = self.direction("spmm", a, ta, weights.is_some())?;
        self.product("spmm", direction, weights, x, &epilogue, out)
    }

    /// The product of one direction, whose operands fit. Weights are in the order of the untransposed entries.
    pub(crate) fn product(
        &self,
        operation: &'static str,
        direction: Direction<'_>,
        weights: Option<&CudaMatrix>,
        x: &CudaMatrix,
        epilogue: &Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let width = out.shape.cols;
        if out.shape.is_empty() {
            return Ok(());
        }
        let (csr, layout) = (direction.csr, Layout::of(width, x.dtype));
        let defines = defines(layout, Weighing::of(direction, weights), [Some(x), Some(&*out), weights, epilogue.bias]);
        let n_segments = csr.n_segments();
        let partial = match n_segments {
            0 => None,
            n => Some(self.uninitialized(Shape::new(n, width), Dtype::F32)?),
        };
        let sums = self.pointer(partial.as_ref().map(|partial| &partial.data));
        let (pattern, to) = (self.pattern(csr), self.out(direction, epilogue, out));
        let values = self.pointer(csr.values.as_ref());
        let heads = weights.map_or(1, |weights| weights.shape.cols) as u64;
        let weights = self.pointer(weights.map(|weights| &weights.data));
        let right = self.pointer(direction.right);
        let kernel = self.spmm_kernel(operation, "spmm", &defines)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&pattern).arg(&values).arg(&weights).arg(&heads).arg(&right).arg(&x.data).arg(&to).arg(&sums);
        let grid_y = layout.n_panels(width) as u32;
        let rows = warps_for(csr.n_pieces());
        let config = LaunchConfig { grid_dim: (rows.grid_dim.0, grid_y, 1), ..rows };
        // SAFETY: operands have the types that the kernel was compiled for and the shapes that were checked; the indices of
        // a `Csr` are rows of `x`, whose width the layout was made for; each element of `out` and of the partial sums is
        // written by one warp.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        if n_segments == 0 {
            return Ok(());
        }
        let hubs = self.spmm_kernel(operation, "spmm_hubs", &defines)?;
        let mut launch = self.device.stream.launch_builder(&hubs);
        launch.arg(&pattern).arg(&to).arg(&sums);
        // SAFETY: as above; the partial sums of all segments are written before, on the same stream.
        unsafe { launch.launch(threads_for(csr.n_hubs() * width)) }.map_err(Self::failed(operation))?;
        Ok(())
    }

    fn out(&self, direction: Direction<'_>, epilogue: &Epilogue<'_, CudaMatrix>, out: &mut CudaMatrix) -> Out {
        Out {
            left: self.pointer(direction.left),
            bias: self.pointer(epilogue.bias.map(|bias| &bias.data)),
            out: self.pointer(Some(&out.data)),
            width: out.shape.cols as u64,
            accumulate: i32::from(epilogue.accumulate),
            activation: match epilogue.activation {
                Activation::Identity => 0,
                Activation::Relu => 1,
                Activation::Elu => 2,
            },
        }
    }

    fn spmm_kernel(
        &self,
        operation: &'static str,
        name: &str,
        defines: &Defines,
    ) -> Result<CudaFunction, ComputeError> {
        let kernel = self.device.kernel(Source::SPMM, name, defines);
        kernel.map_err(|error| ComputeError::device(operation, error.to_string()))
    }
}

/// What the source is compiled with; `operands` are the operand, the result, the weights and the bias.
fn defines(layout: Layout, weighing: Weighing, operands: [Option<&CudaMatrix>; 4]) -> Defines {
    let types = ["X", "Y", "W", "B"].into_iter().zip(operands);
    let types =
        types.map(|(name, matrix)| (name, element(matrix.map_or(Dtype::F32, |matrix| matrix.dtype)).to_owned()));
    let Layout { vec, group, tiles } = layout;
    let constants = [("VEC", vec), ("GROUP", group), ("TILES", tiles), ("WEIGHTS", weighing as usize)];
    types.chain(constants.map(|(name, value)| (name, value.to_string()))).collect()
}
