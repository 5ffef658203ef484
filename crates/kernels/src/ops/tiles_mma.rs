//! `cuda/tiles_mma.cu`: dense blocks of a pattern, multiplied by `mma.sync`, which every GPU has.

use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use girih_compute::scratch::pitch;
use girih_compute::{ComputeError, Dtype};

use super::operand::{Halves, Operand};
use super::tiles::{Chunks, SlotSums, WORDS, defines};
use crate::abi::{BLOCK, MMA_NARROW, MMA_STAGES, PANEL, Planes, WorkItem};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::matrix::Blocks;

impl Cuda {
    /// Writes the sums of all blocks to their slots.
    pub(super) fn mma_sums(
        &self,
        operation: &'static str,
        (blocks, spans): (&Blocks, &Buffer<WorkItem>),
        x: &Operand<'_>,
        halves: Option<&Halves>,
        sums: &mut SlotSums,
    ) -> Result<(), ComputeError> {
        let chunks = Chunks::of(sums.pitch);
        let (kernel, shared_bytes) = self.mma_kernel(operation, halves.is_some(), chunks.cols, sums.dtype)?;
        let planes = self.planes(x, halves);
        let unscale = self.pointer(halves.map(|halves| &halves.unscale));
        let (n_spans, sums_pitch) = (blocks.n_slots as u32, sums.pitch as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&planes).arg(spans).arg(&n_spans).arg(&blocks.columns).arg(&blocks.bits).arg(&unscale);
        launch.arg(&mut sums.data).arg(&sums_pitch);
        let at_once = self.device.n_sms() * if chunks.cols <= MMA_NARROW { 2 } else { 1 };
        let grid_dim = (n_spans.min(at_once as u32), chunks.n as u32, 1);
        let config = LaunchConfig { grid_dim, block_dim: (BLOCK, 1, 1), shared_mem_bytes: shared_bytes };
        // SAFETY: the planes say where the operand ends, and it is stored as the kernel was compiled for, rows from 16
        // bytes to 16 bytes; spans name blocks with bits and a column, and each has a slot of `WINDOW` rows of its own.
        unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(operation))
    }

    /// Larger and smaller halves of the operand; an operand in bf16 is passed twice.
    fn planes(&self, x: &Operand<'_>, halves: Option<&Halves>) -> Planes {
        // Copies of eight elements end at the next row or before it.
        let (rows, cols) = (x.shape.rows as u64, pitch(x.shape.cols) as u64);
        let Some(halves) = halves else {
            assert_eq!(x.dtype, Dtype::Bf16, "operands in f32 come as halves");
            return Planes { of: [x.address(self); 2], pitch: x.pitch as u64, rows, cols };
        };
        let larger = self.pointer(Some(&halves.data));
        Planes { of: [larger, larger + cols * size_of::<u16>() as u64], pitch: 2 * cols, rows, cols }
    }

    /// Kernel for `cols` columns at once, and its bytes of shared memory.
    fn mma_kernel(
        &self,
        operation: &'static str,
        halves: bool,
        cols: usize,
        sums: Dtype,
    ) -> Result<(CudaFunction, u32), ComputeError> {
        let kernel = self.variant(operation, Source::TILES_MMA, "tiles_mma", &defines(halves, cols, sums))?;
        let shared_bytes = shared_bytes(cols) as u32;
        Self::allow_shared(operation, &kernel, shared_bytes)?;
        Ok((kernel, shared_bytes))
    }
}

/// Bytes of shared memory of a thread block: panels and the bits of a block for each. Rows of panels are 16 bytes
/// longer than their elements.
fn shared_bytes(cols: usize) -> usize {
    MMA_STAGES * (PANEL * (size_of::<u16>() * cols + 16) + WORDS * size_of::<u32>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tiles::COLS_MAX;

    /// Compute capabilities 8.6 and 12.0 give a thread block at most 99 KiB. An SM has 100 KiB, and the system takes
    /// 1 KiB for each thread block.
    #[test]
    fn panels_fit_the_smallest_shared_memory() {
        assert!(shared_bytes(COLS_MAX) <= 99 << 10);
        assert!(2 * (shared_bytes(MMA_NARROW) + (1 << 10)) <= 100 << 10);
    }
}
