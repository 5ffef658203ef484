//! Arguments of kernels that sample, field by field as in `cuda/`. Addresses are those of device memory, zero for
//! absent arrays.

use cudarc::driver::DeviceRepr;

/// Graph: `Topology`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topology {
    pub(crate) indptr: u64,
    pub(crate) indices: u64,
    pub(crate) rows: u64,
}

/// Weights of edges: `Bias`; all zero if edges have no weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weights {
    pub(crate) running: u64,
    pub(crate) n_positive: u64,
}

/// Hash table: `Table` of `cuda/sampling_hashed.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) keys: u64,
    pub(crate) firsts: u64,
    pub(crate) places: u64,
    pub(crate) mask: u64,
}

/// Control words of a batch: `Control`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub(crate) words: u64,
    pub(crate) n_hops: u64,
}

/// Hop of a batch: `Hop`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) control: Control,
    pub(crate) nodes: u64,
    pub(crate) indptr: u64,
    pub(crate) sources: u64,
    pub(crate) edge_ids: u64,
    pub(crate) marked: u64,
    pub(crate) tiles: u64,
    pub(crate) shares: u64,
    pub(crate) max_edges: u64,
    pub(crate) hop: u32,
    pub(crate) fan_out: u32,
    pub(crate) replace: u32,
    pub(crate) once: u32,
}

/// Fan-out of a hop that takes all neighbors: `Hop::ALL`.
pub(crate) const ALL: u32 = u32::MAX;

/// Random walks: `Walks`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walks {
    pub(crate) key: [u32; 2],
    pub(crate) batch: u32,
    pub(crate) hop: u32,
    pub(crate) starts: u64,
    pub(crate) ends: u64,
    pub(crate) nodes: u64,
    pub(crate) n_nodes: u64,
    pub(crate) stop: f64,
    pub(crate) restart: f64,
    pub(crate) second_order: [f64; 3],
    pub(crate) n_walks: u64,
    pub(crate) length: u32,
    pub(crate) is_second_order: u32,
}

/// Sampled rows of a hop: `Drawn` of `cuda/neighborhoods.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    pub(crate) nodes: u64,
    pub(crate) indptr: u64,
    pub(crate) columns: u64,
    pub(crate) edge_ids: u64,
    pub(crate) n_rows: u64,
    pub(crate) are_global: u32,
    pub(crate) has_loops: u32,
    pub(crate) out_indptr: u64,
    pub(crate) out_indices: u64,
    pub(crate) factors: u64,
    pub(crate) values: u64,
}

/// Factors of entries: `Weighing`; all zero if there are none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighing {
    pub(crate) graph: u64,
    pub(crate) left: u64,
    pub(crate) right: u64,
    pub(crate) stored: u64,
    pub(crate) loops: u64,
}

// SAFETY: plain words in the order and layout of the kernels' structs, without padding.
unsafe impl DeviceRepr for Topology {}
// SAFETY: as above.
unsafe impl DeviceRepr for Weights {}
// SAFETY: as above.
unsafe impl DeviceRepr for Table {}
// SAFETY: as above.
unsafe impl DeviceRepr for Control {}
// SAFETY: as above.
unsafe impl DeviceRepr for Hop {}
// SAFETY: as above.
unsafe impl DeviceRepr for Walks {}
// SAFETY: as above.
unsafe impl DeviceRepr for Drawn {}
// SAFETY: as above.
unsafe impl DeviceRepr for Weighing {}

/// Arguments of kernels that write requests: `RequestArguments` of `cuda/sampling_patches.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RequestArguments {
    pub(crate) bounds: u64,
    pub(crate) n_ranks: u64,
    pub(crate) stride: u64,
    pub(crate) counts: u64,
    pub(crate) nodes: u64,
    pub(crate) slots: u64,
    pub(crate) places: u64,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for RequestArguments {}

/// Batch as one list of edges: `EdgeList` of `cuda/sampling_lists.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeList {
    pub(crate) nodes: u64,
    pub(crate) columns: u64,
    pub(crate) indptr: u64,
    pub(crate) edge_ids: u64,
    pub(crate) names: u64,
    pub(crate) n_rows: u64,
    pub(crate) n_nodes: u64,
    pub(crate) sources: u64,
    pub(crate) destinations: u64,
    pub(crate) ids: u64,
    pub(crate) edges: u64,
}

/// Matrix of a block: `BlockOperand` of `cuda/sampling_lists.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockOperand {
    pub(crate) nodes: u64,
    pub(crate) columns: u64,
    pub(crate) indptr: u64,
    pub(crate) graph: u64,
    pub(crate) n_rows: u64,
    pub(crate) n_columns: u64,
    pub(crate) has_loops: u32,
    pub(crate) is_symmetric: u32,
    pub(crate) out_indptr: u64,
    pub(crate) out_indices: u64,
    pub(crate) values: u64,
    pub(crate) left: u64,
    pub(crate) right: u64,
}

// SAFETY: plain words in the order and layout of the kernels' structs, without padding.
unsafe impl DeviceRepr for EdgeList {}
// SAFETY: as above.
unsafe impl DeviceRepr for BlockOperand {}
