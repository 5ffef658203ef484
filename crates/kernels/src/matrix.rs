//! What lives on a device: [`CudaMatrix`], [`CudaSparse`], [`CudaIds`].

use std::sync::{Arc, OnceLock};

use cudarc::driver::CudaSlice;
use girih_compute::checks::IdRange;
use girih_compute::{Dtype, EntryNames, Shape};
use girih_graph_format::Csr;

use crate::ops::Found;

/// A dense matrix, row after row. Rows begin [`pitch`] elements apart, and what lies between them is anything.
pub struct CudaMatrix {
    pub(crate) shape: Shape,
    pub(crate) dtype: Dtype,
    /// [`len`](Self::len) elements or, once it was resized, more; at least one byte, because a device allocates no
    /// nothing.
    pub(crate) data: CudaSlice<u8>,
}

/// Elements from row to row of a matrix of so many columns: rows begin where the widest loads may and where tensor
/// cores want them, but for the narrowest. `kernels/common.cuh` says the same.
pub(crate) fn pitch(cols: usize) -> usize {
    if cols < WIDE { cols } else { cols.next_multiple_of(WIDE) }
}

/// Elements that start where every load may, whatever their type.
pub(crate) const WIDE: usize = 8;

impl CudaMatrix {
    /// Elements from row to row.
    pub(crate) fn pitch(&self) -> usize {
        pitch(self.shape.cols)
    }

    /// Rows and columns with what lies between rows.
    pub(crate) fn padded(&self) -> Shape {
        Shape::new(self.shape.rows, self.pitch())
    }

    /// Elements, and what lies between rows.
    pub(crate) fn len(&self) -> usize {
        self.padded().len()
    }
}

/// Node ids or classes.
pub struct CudaIds {
    pub(crate) range: IdRange,
    /// The ids on the host, all of them; empty where an operation has written the list or is to.
    pub(crate) host: Arc<[u32]>,
    /// At least one, as with matrices.
    pub(crate) ids: CudaSlice<u32>,
    pub(crate) derived: Derived,
}

/// What operations have worked out from a list. Most lists are the same in every step, which neither waits for the host
/// nor uploads anything once this is known.
#[derive(Default)]
pub(crate) struct Derived {
    /// Positions of equal ids, together.
    pub(crate) groups: OnceLock<Groups>,
    /// How often each row of a matrix is named, of as many rows as were asked for first.
    pub(crate) counts: OnceLock<Arc<CudaSlice<u32>>>,
    /// Classes of which those of the rows named here are columns, of as many columns.
    pub(crate) checked: OnceLock<(Arc<[u32]>, usize)>,
}

/// Positions in a list of ids, those of equal ids together and in order.
pub(crate) struct Groups {
    pub(crate) n: usize,
    /// Where each of the groups starts among the positions, and where the last one ends.
    pub(crate) starts: CudaSlice<u64>,
    pub(crate) positions: CudaSlice<u64>,
}

impl CudaIds {
    /// Whether the host has all ids.
    pub(crate) fn is_on_host(&self) -> bool {
        self.host.len() == self.range.len
    }

    /// Takes note that an operation overwrites the list with ids below `end`, and hands it out for that.
    pub(crate) fn overwrite(&mut self, end: u64) -> &mut CudaSlice<u32> {
        self.range.end = end;
        self.host = Arc::default();
        self.derived = Derived::default();
        &mut self.ids
    }
}

/// `L·A·R`, with its transpose where products or gradients need it.
pub struct CudaSparse {
    /// The pattern and values on the host: what the transpose and schedules are made from; `None` where the device has
    /// made the matrix. Columns of a row then have any order.
    pub(crate) host: Option<Csr>,
    pub(crate) symmetric: bool,
    pub(crate) names: Option<EntryNames>,
    /// The names of columns, on the device.
    pub(crate) column_names: Option<CudaSlice<u32>>,
    /// As it is.
    pub(crate) forward: CudaCsr,
    /// Factors of rows.
    pub(crate) left: Option<CudaSlice<f32>>,
    /// Factors of columns.
    pub(crate) right: Option<CudaSlice<f32>>,
    /// The largest size of factors of rows, and of columns; one where there are none.
    pub(crate) most: [f32; 2],
    /// The transpose, made when it is first needed.
    pub(crate) transpose: OnceLock<CudaCsr>,
}

impl CudaSparse {
    /// Rows that the device has made, and their factors.
    pub(crate) fn of_device(forward: CudaCsr, left: Option<CudaSlice<f32>>) -> Self {
        Self {
            host: None,
            symmetric: false,
            names: None,
            column_names: None,
            forward,
            left,
            right: None,
            // Nobody looks for blocks of such rows, which alone want to know.
            most: [1.0; 2],
            transpose: OnceLock::new(),
        }
    }
}

/// Compressed rows.
pub(crate) struct CudaCsr {
    pub(crate) shape: Shape,
    pub(crate) nnz: usize,
    /// `rows + 1` offsets.
    pub(crate) indptr: CudaSlice<u64>,
    pub(crate) indices: CudaSlice<u32>,
    /// Of weighted matrices.
    pub(crate) values: Option<CudaSlice<f32>>,
    /// Of a transpose: the place of each entry in the matrix that it is the transpose of.
    pub(crate) positions: Option<CudaSlice<u64>>,
    /// Rows that are cut into segments, if there are any; none where the device has made the rows.
    pub(crate) hubs: Option<Hubs>,
    /// Dense blocks, found when a product first looks for them.
    pub(crate) tiles: Found,
}

/// Rows of more than [`SEGMENT`](Self::SEGMENT) entries, cut into segments of as many, so that no warp works long after
/// the others.
pub(crate) struct Hubs {
    pub(crate) n_rows: usize,
    pub(crate) n_segments: usize,
    /// The hubs, in ascending order.
    pub(crate) rows: CudaSlice<u32>,
    /// The number of the first segment of each, and one more.
    pub(crate) first: CudaSlice<u64>,
    /// The hub of each segment, by its number.
    pub(crate) owner: CudaSlice<u32>,
}

impl Hubs {
    /// Entries of a segment; `kernels/common.cuh` says the same.
    pub(crate) const SEGMENT: u64 = 1024;
}
