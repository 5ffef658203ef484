//! Types of device data: [`CudaMatrix`], [`CudaSparse`], [`CudaIds`].

use std::sync::{Arc, OnceLock};

use cudarc::driver::CudaSlice;
use girih_compute::checks::IdRange;
use girih_compute::{Dtype, GlobalIds, Shape};
use girih_graph_format::Csr;

use crate::ops::TileCache;

/// Dense row-major matrix. Rows begin [`pitch`] elements apart; the padding between them has any values.
pub struct CudaMatrix {
    pub(crate) shape: Shape,
    pub(crate) dtype: Dtype,
    /// [`len`](Self::len) elements, or more after a resize; at least one byte, because a device allocates no empty
    /// memory.
    pub(crate) data: CudaSlice<u8>,
}

/// Elements from row to row of a matrix of `cols` columns. Rows are aligned for the widest loads and for tensor
/// cores, except in the narrowest matrices. Must match `kernels/common.cuh`.
pub(crate) fn pitch(cols: usize) -> usize {
    if cols < WIDE { cols } else { cols.next_multiple_of(WIDE) }
}

/// Alignment in elements that suits every load, whatever the element type.
pub(crate) const WIDE: usize = 8;

impl CudaMatrix {
    /// Elements from row to row.
    pub(crate) fn pitch(&self) -> usize {
        pitch(self.shape.cols)
    }

    /// Rows and columns, padding included.
    pub(crate) fn padded(&self) -> Shape {
        Shape::new(self.shape.rows, self.pitch())
    }

    /// Number of elements, padding included.
    pub(crate) fn len(&self) -> usize {
        self.padded().len()
    }
}

/// Node ids or classes.
pub struct CudaIds {
    pub(crate) range: IdRange,
    /// Copy of all ids on the host; empty if an operation has written the list or will.
    pub(crate) host: Arc<[u32]>,
    /// Ids on the device; at least one element, as with matrices.
    pub(crate) ids: CudaSlice<u32>,
    pub(crate) derived: Derived,
}

/// Results that operations derive from a list and cache. Most lists are the same in every step; with these results a
/// step needs neither waits nor uploads.
#[derive(Default)]
pub(crate) struct Derived {
    /// Positions of equal ids, grouped.
    pub(crate) groups: OnceLock<Groups>,
    /// Number of times that each row of a matrix is named; for the number of rows that was asked for first.
    pub(crate) counts: OnceLock<Arc<CudaSlice<u32>>>,
    /// Classes that passed the check for the rows in this list, and the number of columns of the check.
    pub(crate) checked: OnceLock<(Arc<[u32]>, usize)>,
}

/// Positions in a list of ids, grouped by equal ids and in order.
pub(crate) struct Groups {
    pub(crate) n: usize,
    /// First position of each group, and the end of the last.
    pub(crate) starts: CudaSlice<u64>,
    pub(crate) positions: CudaSlice<u64>,
}

impl CudaIds {
    /// Whether the host has all ids.
    pub(crate) fn is_on_host(&self) -> bool {
        self.host.len() == self.range.len
    }

    /// Returns the list for an operation that overwrites it with ids below `end`; drops cached results.
    pub(crate) fn overwrite(&mut self, end: u64) -> &mut CudaSlice<u32> {
        self.range.end = end;
        self.host = Arc::default();
        self.derived = Derived::default();
        &mut self.ids
    }
}

/// Sparse matrix `L·A·R`, with its transpose where products or gradients need it.
pub struct CudaSparse {
    /// Pattern and values on the host, from which the transpose and schedules are built. `None` if the device made
    /// the matrix; columns of a row are then in any order.
    pub(crate) host: Option<Csr>,
    pub(crate) symmetric: bool,
    pub(crate) names: Option<GlobalIds>,
    /// Names of columns, on the device.
    pub(crate) column_names: Option<CudaSlice<u32>>,
    /// Matrix as it is.
    pub(crate) forward: CudaCsr,
    /// Scales of rows; `None` for ones.
    pub(crate) left: Option<CudaSlice<f32>>,
    /// Scales of columns; `None` for ones.
    pub(crate) right: Option<CudaSlice<f32>>,
    /// Largest absolute values of the row scales and of the column scales; one if there are none.
    pub(crate) most: [f32; 2],
    /// Transpose, built on first use.
    pub(crate) transpose: OnceLock<CudaCsr>,
}

impl CudaSparse {
    /// Matrix from rows that the device made, with their scales.
    pub(crate) fn of_device(forward: CudaCsr, left: Option<CudaSlice<f32>>) -> Self {
        Self {
            host: None,
            symmetric: false,
            names: None,
            column_names: None,
            forward,
            left,
            right: None,
            // Only block products use these, and such rows have no blocks.
            most: [1.0; 2],
            transpose: OnceLock::new(),
        }
    }
}

/// Compressed sparse rows (CSR).
pub(crate) struct CudaCsr {
    pub(crate) shape: Shape,
    pub(crate) nnz: usize,
    /// Row offsets, `rows + 1`.
    pub(crate) indptr: CudaSlice<u64>,
    pub(crate) indices: CudaSlice<u32>,
    /// Values; `None` for unweighted matrices.
    pub(crate) values: Option<CudaSlice<f32>>,
    /// Position of each entry in the original matrix; only for a transpose.
    pub(crate) positions: Option<CudaSlice<u64>>,
    /// Rows that are split into segments; `None` if there are none, or if the device made the rows.
    pub(crate) hubs: Option<Hubs>,
    /// Dense blocks, found when a product first looks for them.
    pub(crate) tiles: TileCache,
}

/// Rows of more than [`SEGMENT`](Self::SEGMENT) entries, split into segments of that length, so that no warp works
/// long after the others.
pub(crate) struct Hubs {
    pub(crate) n_rows: usize,
    pub(crate) n_segments: usize,
    /// Row ids of the hubs, ascending.
    pub(crate) rows: CudaSlice<u32>,
    /// Index of the first segment of each hub, and one more.
    pub(crate) first: CudaSlice<u64>,
    /// Hub of each segment, by its index in `rows`.
    pub(crate) owner: CudaSlice<u32>,
}

impl Hubs {
    /// Entries of a segment; must match `kernels/common.cuh`.
    pub(crate) const SEGMENT: u64 = 1024;
}
