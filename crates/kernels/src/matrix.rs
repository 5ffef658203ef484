//! Types of device data: [`CudaMatrix`], [`CudaSparse`], [`CudaIds`], and the blocks of a sparse matrix, [`Tiles`].

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use girih_compute::checks::IdRange;
use girih_compute::scratch::pitch;
use girih_compute::{Dtype, GlobalIds, Shape};
use girih_graph_format::{BlockLayout, Csr};

use crate::abi::{WindowShare, WorkItem};
use crate::buffer::Buffer;
use crate::tiling::BlockKernel;

/// Dense row-major matrix. Rows begin [`pitch`] elements apart; the padding between them has any values.
pub struct CudaMatrix {
    pub(crate) shape: Shape,
    pub(crate) dtype: Dtype,
    /// [`len`](Self::len) elements, or more after a resize; at least one byte, because a device allocates no empty
    /// memory.
    pub(crate) data: Buffer<u8>,
}

impl CudaMatrix {
    /// Elements from row to row.
    #[must_use]
    pub fn pitch(&self) -> usize {
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
    pub(crate) ids: Buffer<u32>,
    pub(crate) derived: Derived,
}

/// Results that operations derive from a list and cache. Most lists are the same in every step; with these results a
/// step needs neither waits nor uploads.
#[derive(Default)]
pub(crate) struct Derived {
    /// Positions of equal ids, grouped.
    pub(crate) groups: OnceLock<Groups>,
    /// Positions of each id as rows of a matrix, made by the device.
    pub(crate) positions: OnceLock<CudaCsr>,
    /// Number of times that each row of a matrix is named; for the number of rows that was asked for first.
    pub(crate) counts: OnceLock<Arc<Buffer<u32>>>,
    /// Classes that passed the check for the rows in this list, and the number of columns of the check.
    pub(crate) checked: OnceLock<(Arc<[u32]>, usize)>,
}

/// Positions in a list of ids, grouped by equal ids and in order.
pub(crate) struct Groups {
    pub(crate) n: usize,
    /// First position of each group, and the end of the last.
    pub(crate) starts: Buffer<u64>,
    pub(crate) positions: Buffer<u64>,
}

impl CudaIds {
    /// Whether the host has all ids.
    pub(crate) fn is_on_host(&self) -> bool {
        self.host.len() == self.range.len
    }

    /// Returns the list for an operation that overwrites it with ids below `end`; drops cached results.
    pub(crate) fn overwrite(&mut self, end: u64) -> &mut Buffer<u32> {
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
    pub(crate) column_names: Option<Buffer<u32>>,
    /// Matrix as it is.
    pub(crate) forward: CudaCsr,
    /// Scales of rows; `None` for ones.
    pub(crate) left: Option<Buffer<f32>>,
    /// Scales of columns; `None` for ones.
    pub(crate) right: Option<Buffer<f32>>,
    /// Largest absolute values of the row scales and of the column scales; one if there are none.
    pub(crate) most: [f32; 2],
    /// Transpose, built on first use.
    pub(crate) transpose: OnceLock<CudaCsr>,
}

impl CudaSparse {
    /// Whether a product with the transpose has made it.
    #[must_use]
    pub fn has_transpose(&self) -> bool {
        self.transpose.get().is_some()
    }

    /// Matrix from rows that the device made, with their scales.
    pub(crate) fn of_device(forward: CudaCsr, left: Option<Buffer<f32>>) -> Self {
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
    pub(crate) indptr: Buffer<u64>,
    pub(crate) indices: Buffer<u32>,
    /// Values; `None` for unweighted matrices.
    pub(crate) values: Option<Buffer<f32>>,
    /// Position of each entry in the original matrix; only for a transpose.
    pub(crate) positions: Option<Buffer<u64>>,
    /// Rows that are split into segments; `None` if there are none, or if the device made the rows.
    pub(crate) hubs: Option<Hubs>,
    /// Dense blocks, found when a product first looks for them.
    pub(crate) tiles: TileCache,
}

/// Rows of more than [`SEGMENT`](crate::abi::SEGMENT) entries, split into segments of that length, so that no warp
/// works long after the others.
pub(crate) struct Hubs {
    pub(crate) n_rows: usize,
    pub(crate) n_segments: usize,
    /// Row ids of the hubs, ascending.
    pub(crate) rows: Buffer<u32>,
    /// Index of the first segment of each hub, and one more.
    pub(crate) first: Buffer<u64>,
    /// Hub of each segment, by its index in `rows`.
    pub(crate) owner: Buffer<u32>,
}

/// Class of products with equal costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProductClass {
    pub(crate) kernel: BlockKernel,
    pub(crate) dtype: Dtype,
    pub(crate) width: usize,
}

impl ProductClass {
    /// Class of a product. Widths are rounded up to powers of two; wider operands are multiplied in chunks of the
    /// widest.
    pub(crate) fn of(kernel: BlockKernel, Shape { cols, .. }: Shape, dtype: Dtype) -> Self {
        Self { kernel, dtype, width: cols.next_power_of_two().clamp(8, 128) }
    }
}

/// Dense blocks of a pattern, and its other entries.
pub(crate) struct Tiles {
    /// Entries outside of blocks.
    pub(crate) rest: CudaCsr,
    pub(crate) blocks: Blocks,
    pub(crate) split: Split,
}

/// Cache of the blocks of a pattern, and of the product classes that multiply by them.
#[derive(Default)]
pub(crate) struct TileCache {
    pub(crate) tiles: OnceLock<Box<Tiles>>,
    /// Decision for each class of products; `None` stands for all classes if a share was set.
    pub(crate) uses: Mutex<Vec<(Option<ProductClass>, bool)>>,
    /// Whether the search is switched off.
    pub(crate) is_final: bool,
}

impl TileCache {
    /// Cache without blocks that starts no search. Matrices that live for one step are not worth a search.
    pub(crate) fn none() -> Self {
        Self { is_final: true, ..Self::default() }
    }

    /// Whether products of a class multiply by blocks; decided by `decide` on first use.
    pub(crate) fn uses<E>(
        &self,
        class: Option<ProductClass>,
        decide: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&(_, uses)) = uses.iter().find(|(of, _)| *of == class) {
            return Ok(uses);
        }
        let decided = decide()?;
        uses.push((class, decided));
        Ok(decided)
    }
}

/// Dense blocks and their assignment to thread blocks.
pub(crate) struct Blocks {
    pub(crate) layout: BlockLayout,
    pub(crate) n: usize,
    /// Rows of blocks: windows, or rows of the smaller tiles.
    pub(crate) n_rows: usize,
    /// Number of windows that have blocks.
    pub(crate) n_windows: usize,
    /// Index of the first block of each row of blocks; one more entry ends the last.
    pub(crate) first: Buffer<u32>,
    /// First column of each block.
    pub(crate) columns: Buffer<u32>,
    /// Bitmaps of the blocks, as many words each as their layout has.
    pub(crate) bits: Buffer<u32>,
    pub(crate) work: Work,
    /// First slot of each window; one more entry ends the last.
    pub(crate) slots: Buffer<u32>,
    pub(crate) n_slots: usize,
}

/// Work items, the longest first, each with a slot.
pub(crate) enum Work {
    /// Runs of blocks for tensor cores.
    Spans(Buffer<WorkItem>),
    /// Parts of windows of tiles.
    Shares(Buffer<WindowShare>),
}

/// Split of the entries of an adjacency between blocks and rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Fewest entries of a block.
    pub entries_min: u32,
    /// Fewest entries of a block, as a share of its places.
    pub threshold: f64,
    /// Number of blocks.
    pub n_blocks: usize,
    /// Coverage: share of the entries that are in blocks.
    pub coverage: f64,
}
