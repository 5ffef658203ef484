//! Kernel arguments: the structs of `kernels/sampling.cuh`, `kernels/walks.cu` and `kernels/neighborhoods.cu`, field
//! by field. Addresses are those of device memory, zero for absent arrays.

use cudarc::driver::DeviceRepr;

/// Graph: `Topology`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Topology {
    pub(super) indptr: u64,
    pub(super) indices: u64,
    pub(super) rows: u64,
}

/// Weights of edges: `Bias`; all zero if edges have no weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weights {
    pub(super) running: u64,
    pub(super) n_positive: u64,
}

/// Hash table: `Table` of `kernels/sampling_hashed.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) keys: u64,
    pub(super) firsts: u64,
    pub(super) places: u64,
    pub(super) mask: u64,
}

/// Control words of a batch: `Control`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    pub(super) words: u64,
    pub(super) n_hops: u64,
}

/// Hop of a batch: `Hop`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub(super) control: Control,
    pub(super) nodes: u64,
    pub(super) indptr: u64,
    pub(super) sources: u64,
    pub(super) edge_ids: u64,
    pub(super) marked: u64,
    pub(super) tiles: u64,
    pub(super) shares: u64,
    pub(super) max_edges: u64,
    pub(super) hop: u32,
    pub(super) fan_out: u32,
    pub(super) replace: u32,
    pub(super) once: u32,
}

/// Fan-out of a hop that takes all neighbours: `Hop::ALL`.
pub(super) const ALL: u32 = u32::MAX;

/// Random walks: `Walks`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Walks {
    pub(super) key: [u32; 2],
    pub(super) batch: u32,
    pub(super) hop: u32,
    pub(super) starts: u64,
    pub(super) ends: u64,
    pub(super) nodes: u64,
    pub(super) n_nodes: u64,
    pub(super) stop: f64,
    pub(super) restart: f64,
    pub(super) second_order: [f64; 3],
    pub(super) n_walks: u64,
    pub(super) length: u32,
    pub(super) is_second_order: u32,
}

/// Sampled rows of a hop: `Drawn` of `kernels/neighborhoods.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) nodes: u64,
    pub(super) indptr: u64,
    pub(super) columns: u64,
    pub(super) edge_ids: u64,
    pub(super) n_rows: u64,
    pub(super) are_global: u32,
    pub(super) has_loops: u32,
    pub(super) out_indptr: u64,
    pub(super) out_indices: u64,
    pub(super) factors: u64,
    pub(super) values: u64,
}

/// Factors of entries: `Weighing`; all zero if there are none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Weighing {
    pub(super) graph: u64,
    pub(super) left: u64,
    pub(super) right: u64,
    pub(super) stored: u64,
    pub(super) loops: u64,
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
