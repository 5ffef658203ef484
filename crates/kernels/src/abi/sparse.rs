//! Arguments of kernels on patterns, blocks and their operands, field by field as in `cuda/`.

use cudarc::driver::DeviceRepr;
use cudarc::driver::sys::CUtensorMap;

use super::constants::N_CANDIDATES;
use super::dense::Mask;

/// `Pattern` of `cuda/common.cuh`: device pointers and counts. It is valid as long as the
/// [`CudaCsr`](crate::matrix::CudaCsr) that it was made from.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Pattern {
    pub(crate) indptr: u64,
    pub(crate) indices: u64,
    pub(crate) positions: u64,
    pub(crate) hub_rows: u64,
    pub(crate) hub_first: u64,
    pub(crate) hub_owner: u64,
    pub(crate) n_rows: u64,
    pub(crate) n_hubs: u64,
    pub(crate) n_segments: u64,
}

// SAFETY: plain 64-bit words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Pattern {}

/// `Operand` of `cuda/spmm.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OperandArgument {
    pub(crate) data: u64,
    pub(crate) row_bytes: u64,
}

// SAFETY: plain 64-bit words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for OperandArgument {}

/// Initial sums of a product, from its blocks: `TilePartials` of `cuda/common.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct TilePartials {
    pub(crate) slots: u64,
    pub(crate) sums: u64,
    pub(crate) pitch: u64,
    pub(crate) indptr: u64,
    pub(crate) indices: u64,
}

// SAFETY: plain 64-bit words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for TilePartials {}

impl TilePartials {
    /// Whether sums start from those of blocks instead of zero.
    pub(crate) fn is_some(self) -> bool {
        self.slots != 0
    }
}

/// Run of blocks of one window: `BlockSpan` of `cuda/common.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkItem {
    pub(crate) slot: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) padding: u32,
}

// SAFETY: plain 32-bit words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for WorkItem {}

/// Part of a window: `Share` of `cuda/tiles_paper.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowShare {
    pub(crate) slot: u32,
    pub(crate) window: u32,
    pub(crate) part: u32,
    pub(crate) n_parts: u32,
}

// SAFETY: plain 32-bit words in the order and layout of the kernel's struct.
unsafe impl DeviceRepr for WindowShare {}

/// `Matrix` of `cuda/tiles_paper.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TileOperand {
    pub(crate) data: u64,
    pub(crate) pitch: u64,
    pub(crate) rows: u64,
    pub(crate) cols: u64,
}

// SAFETY: plain 64-bit words in the order and layout of the kernel's struct.
unsafe impl DeviceRepr for TileOperand {}

/// `Planes` of `cuda/tiles_mma.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Planes {
    pub(crate) of: [u64; 2],
    pub(crate) pitch: u64,
    pub(crate) rows: u64,
    pub(crate) cols: u64,
}

// SAFETY: plain 64-bit words in the order and layout of the kernel's struct.
unsafe impl DeviceRepr for Planes {}

/// `TensorMap` of `cuda/tiles.cu`.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct TensorMap(pub(crate) CUtensorMap);

// SAFETY: the driver's own layout, which kernels only pass to the copy engine.
unsafe impl DeviceRepr for TensorMap {}

/// Arguments of the search for blocks: `Tiling` of `cuda/tiling.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BlockSearch {
    pub(crate) indptr: u64,
    pub(crate) indices: u64,
    pub(crate) n_rows: u64,
    pub(crate) n_panels: u64,
    pub(crate) least: u32,
    pub(crate) padding: u32,
    pub(crate) counts: u64,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for BlockSearch {}

/// `Candidates` of `cuda/tiling.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Candidates(pub(crate) [u32; N_CANDIDATES]);

// SAFETY: plain 32-bit words in the order and layout of the kernel's struct.
unsafe impl DeviceRepr for Candidates {}

/// Epilogue arguments: `EpilogueArgs` of `cuda/spmm.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SpmmEpilogue {
    pub(crate) left: u64,
    pub(crate) bias: u64,
    pub(crate) out: u64,
    pub(crate) width: u64,
    pub(crate) of: u64,
    pub(crate) pitch: u64,
    pub(crate) accumulate: i32,
    pub(crate) activation: u32,
    pub(crate) mask: Mask,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for SpmmEpilogue {}

/// `Ordered` of `cuda/transpose.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Ordered {
    pub(crate) rows: u64,
    pub(crate) values: u64,
    pub(crate) indices: u64,
    pub(crate) positions: u64,
    pub(crate) out_values: u64,
}

// SAFETY: plain words in the order and layout of the kernel's struct.
unsafe impl DeviceRepr for Ordered {}

/// Order of a sequence: `Order` of `cuda/segments.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SequenceOrder {
    pub(crate) key: [u32; 2],
    pub(crate) first_name: u32,
    pub(crate) drawn: u32,
}

// SAFETY: plain 32-bit words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for SequenceOrder {}
