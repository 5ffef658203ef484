//! `cuda/tiles.cu`: dense blocks of a pattern, multiplied by `wgmma` of compute capability 9.0.

use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle, cuTensorMapEncodeTiled,
};
use cudarc::driver::{CudaFunction, DriverError, LaunchConfig, PushKernelArg};
use girih_compute::scratch::pitch;
use girih_compute::{ComputeError, Dtype, Shape};

use super::{Chunks, SlotSums, WORDS, defines};
use crate::abi::{PANEL, TensorMap, WARPGROUP, WGMMA_GROUPS, WGMMA_STAGES, WorkItem};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::matrix::Blocks;
use crate::ops::operand::{Halves, Operand};

/// Threads of a block: warpgroups that multiply, and one that fetches.
const THREADS: u32 = (WGMMA_GROUPS + 1) * WARPGROUP;

impl Cuda {
    /// Writes the sums of all blocks to their slots by `wgmma`.
    pub(super) fn wgmma_sums(
        &self,
        operation: &'static str,
        (blocks, spans): (&Blocks, &Buffer<WorkItem>),
        x: &Operand<'_>,
        halves: Option<&Halves>,
        sums: &mut SlotSums,
    ) -> Result<(), ComputeError> {
        let chunks = Chunks::of(sums.pitch);
        let (kernel, shared_bytes) = self.tiles_kernel(operation, halves.is_some(), chunks.cols, sums.dtype)?;
        let [high, low] = self.tensor_maps(operation, x, halves)?;
        let unscale = self.pointer(halves.map(|halves| &halves.unscale));
        let (n_spans, sums_pitch) = (blocks.n_slots as u32, sums.pitch as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&high).arg(&low).arg(spans).arg(&n_spans).arg(&blocks.columns).arg(&blocks.bits).arg(&unscale);
        launch.arg(&mut sums.data).arg(&sums_pitch);
        let grid_dim = (n_spans.min(self.device.n_sms() as u32), chunks.n as u32, 1);
        let config = LaunchConfig { grid_dim, block_dim: (THREADS, 1, 1), shared_mem_bytes: shared_bytes };
        // SAFETY: the maps tell the copy engine where the operand ends; spans name blocks with bits and a column, and
        // each has a slot of `WINDOW` rows of its own; the operand is stored as the kernel was compiled for.
        unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(operation))
    }

    /// Tensor maps of the larger and smaller halves; for an operand in bf16, its own map twice.
    fn tensor_maps(
        &self,
        operation: &'static str,
        x: &Operand<'_>,
        halves: Option<&Halves>,
    ) -> Result<[TensorMap; 2], ComputeError> {
        let row_bytes = |pitch: usize| (pitch * size_of::<u16>()) as u64;
        let Some(halves) = halves else {
            assert_eq!(x.dtype, Dtype::Bf16, "operands in f32 come as halves");
            let kind = CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
            let map =
                tensor_map(kind, x.shape, row_bytes(x.pitch), x.address(self)).map_err(Self::failed(operation))?;
            return Ok([map; 2]);
        };
        let kind = CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        let (larger, row_bytes) = (self.pointer(Some(&halves.data)), row_bytes(pitch(x.shape.cols)));
        let map = |address| tensor_map(kind, x.shape, 2 * row_bytes, address).map_err(Self::failed(operation));
        Ok([map(larger)?, map(larger + row_bytes)?])
    }

    /// Kernel for `cols` columns at once, and its bytes of shared memory.
    fn tiles_kernel(
        &self,
        operation: &'static str,
        halves: bool,
        cols: usize,
        sums: Dtype,
    ) -> Result<(CudaFunction, u32), ComputeError> {
        let kernel = self.variant(operation, Source::TILES, "tiles", &defines(halves, cols, sums))?;
        let stage_bytes = cols.div_ceil(PANEL) * PANEL * 128 + WORDS * size_of::<u32>();
        let shared_bytes = (WGMMA_STAGES * stage_bytes + 1024) as u32;
        Self::allow_shared(operation, &kernel, shared_bytes)?;
        Ok((kernel, shared_bytes))
    }
}

/// Tensor map for boxes of 64 × 64 elements of two bytes: swizzled over 128 bytes, zeros beyond the edges.
fn tensor_map(kind: CUtensorMapDataType, shape: Shape, row_bytes: u64, address: u64) -> Result<TensorMap, DriverError> {
    let (sizes, strides) = ([shape.cols as u64, shape.rows as u64], [row_bytes]);
    let (boxes, steps) = ([PANEL as u32; 2], [1u32; 2]);
    let mut map = std::mem::MaybeUninit::<CUtensorMap>::uninit();
    // SAFETY: lists have an element for each of two dimensions, one less for strides; the driver writes the map or
    // fails.
    let status = unsafe {
        cuTensorMapEncodeTiled(
            map.as_mut_ptr(),
            kind,
            2,
            address as *mut std::ffi::c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    status.result()?;
    // SAFETY: the driver has written it.
    Ok(TensorMap(unsafe { map.assume_init() }))
}
