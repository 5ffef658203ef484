//! `kernels/tiling.cu` and `kernels/tiles.cu`: dense blocks of a pattern, found on the device and multiplied by tensor
//! cores.
//!
//! ```text
//!            64 columns
//!          ┌──┬──┬──┬──┐
//! 256 rows │▓▓│  │▓▓│  │  a window: its blocks with enough entries become bitmaps;
//!          ├──┼──┼──┼──┤  all other entries stay compressed rows, the rest
//!          │  │▓▓│▓▓│  │
//!          └──┴──┴──┴──┘
//! ```
//! A span is a run of blocks of one window, short enough that no window keeps an SM busy long after the others are
//! done. Each span writes its partial sums to a slot of its own. The product of the rest starts from the slots of its
//! rows.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle, cuTensorMapEncodeTiled,
};
use cudarc::driver::{CudaFunction, CudaSlice, DeviceRepr, DriverError, LaunchConfig, PushKernelArg};
use girih_compute::{ComputeError, Dtype, Shape};
use girih_graph_format::{BlockLayout, BlockMatrix, Csr, FormatError};

use super::costs::{Class, Parts};
use super::operand::{Halves, Operand};
use super::tiles_paper::{Share, shares};
use crate::backend::{Cuda, element};
use crate::compile::{Defines, Source};
use crate::device::has_wgmma;
use crate::matrix::{CudaCsr, CudaMatrix, CudaSparse, pitch};

/// Rows of a window; must match `kernels/common.cuh`.
pub(super) const WINDOW: usize = BlockLayout::Fragments.rows();
/// Columns of a block for tensor cores.
pub(super) const PANEL: usize = BlockLayout::Fragments.cols();
/// Words of the bitmap of a block.
pub(super) const WORDS: usize = BlockLayout::Fragments.n_words();
/// Most columns of the dense operand that a thread block computes.
pub(super) const COLS_MAX: usize = 128;
/// Blocks in flight to a thread block; must match `kernels/tiles.cu`.
const STAGES: usize = 8;
/// Threads of a block: two warpgroups that multiply, one that fetches.
const THREADS: u32 = 384;
/// Most bytes of counters of all thread blocks of [`Cuda::build_tiles`].
const COUNTS_BYTES_MAX: usize = 1 << 30;
/// Spans per SM: enough to balance the load at the end.
pub(super) const SPANS_PER_PROCESSOR: usize = 4;

/// Kernel that multiplies blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKernel {
    /// `wgmma` of compute capability 9.0: `kernels/tiles.cu`.
    Wgmma,
    /// `mma.sync` of all supported GPUs: `kernels/tiles_mma.cu`.
    Mma,
    /// Without tensor cores, in tiles of 32 × 32, one warp for each: paper A's algorithm 3, `kernels/tiles_paper.cu`.
    Paper,
}

impl BlockKernel {
    /// Fastest kernel of a GPU.
    pub(crate) fn of(capability: (i32, i32)) -> Self {
        if Self::Wgmma.runs_on(capability) { Self::Wgmma } else { Self::Mma }
    }

    /// Whether supported GPUs of a capability have its instructions.
    pub(crate) fn runs_on(self, capability: (i32, i32)) -> bool {
        match self {
            Self::Wgmma => has_wgmma(capability),
            Self::Mma | Self::Paper => true,
        }
    }

    /// Layout of the blocks that it multiplies.
    #[must_use]
    pub fn layout(self) -> BlockLayout {
        match self {
            Self::Wgmma | Self::Mma => BlockLayout::Fragments,
            Self::Paper => BlockLayout::Tiles,
        }
    }
}

impl fmt::Display for BlockKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wgmma => "wgmma",
            Self::Mma => "mma",
            Self::Paper => "paper",
        })
    }
}

impl FromStr for BlockKernel {
    type Err = String;

    /// Parses `wgmma`, `mma` or `paper`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wgmma" => Ok(Self::Wgmma),
            "mma" => Ok(Self::Mma),
            "paper" => Ok(Self::Paper),
            _ => Err("neither wgmma, mma, nor paper".to_owned()),
        }
    }
}

/// Choice of the adjacency blocks that tensor cores multiply.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Tiling {
    /// Blocks that are faster on tensor cores, of adjacencies that are large enough.
    #[default]
    Auto,
    /// No blocks.
    Never,
    /// Blocks with at least this share of their places filled, from 0 to 1.
    From(f64),
}

impl Tiling {
    /// Fewest entries that are worth the search for blocks.
    const ENTRIES_MIN: usize = 1 << 20;
}

/// Number of entries for a share of a block's places; at least one.
pub(super) fn entries_of(share: f64, layout: BlockLayout) -> u32 {
    ((share * (layout.rows() * layout.cols()) as f64).ceil() as u32).max(1)
}

impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => write!(f, "auto"),
            Self::Never => write!(f, "never"),
            Self::From(share) => write!(f, "{share}"),
        }
    }
}

impl FromStr for Tiling {
    type Err = String;

    /// Parses `auto`, `never`, or a share between zero and one.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            share => match share.parse() {
                Ok(share) if (0.0..=1.0).contains(&share) => Ok(Self::From(share)),
                _ => Err("neither auto, never, nor a share between 0 and 1".to_owned()),
            },
        }
    }
}

/// Run of blocks of one window: `BlockSpan` of `kernels/common.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    slot: u32,
    first: u32,
    last: u32,
    padding: u32,
}

// SAFETY: plain 32-bit words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Span {}

/// Arguments of the search for blocks: `Tiling` of `kernels/tiling.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Search {
    indptr: u64,
    indices: u64,
    n_rows: u64,
    n_panels: u64,
    least: u32,
    padding: u32,
    counts: u64,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Search {}

/// `TensorMap` of `kernels/tiles.cu`.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct TensorMap(CUtensorMap);

// SAFETY: the driver's own layout, which kernels only pass to the copy engine.
unsafe impl DeviceRepr for TensorMap {}

/// Initial sums of a product, from its blocks: `Start` of `kernels/common.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Start {
    slots: u64,
    sums: u64,
    pitch: u64,
    indptr: u64,
    indices: u64,
}

// SAFETY: plain 64-bit words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Start {}

impl Start {
    /// Whether sums start from those of blocks instead of zero.
    pub(crate) fn is_some(self) -> bool {
        self.slots != 0
    }
}

/// Dense blocks of a pattern, and its other entries.
pub(crate) struct Tiles {
    /// Entries outside of blocks.
    pub(super) rest: CudaCsr,
    pub(super) blocks: Blocks,
    pub(super) split: Split,
}

/// Cache of the blocks of a pattern, and of the product classes that multiply by them.
#[derive(Default)]
pub(crate) struct Found {
    tiles: OnceLock<Box<Tiles>>,
    /// Decision for each class of products; `None` stands for all classes if a share was set.
    uses: Mutex<Vec<(Option<Class>, bool)>>,
    /// Whether the search is switched off.
    is_final: bool,
}

impl Found {
    /// Cache without blocks that starts no search. Matrices that live for one step are not worth a search.
    pub(crate) fn none() -> Self {
        Self { is_final: true, ..Self::default() }
    }

    /// Whether products of a class multiply by blocks; decided by `decide` on first use.
    fn uses<E>(&self, class: Option<Class>, decide: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
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
pub(super) struct Blocks {
    layout: BlockLayout,
    n: usize,
    /// Rows of blocks: windows, or rows of the smaller tiles.
    pub(super) n_rows: usize,
    /// Number of windows that have blocks.
    n_windows: usize,
    /// Index of the first block of each row of blocks; one more entry ends the last.
    pub(super) first: CudaSlice<u32>,
    /// First column of each block.
    pub(super) columns: CudaSlice<u32>,
    /// Bitmaps of the blocks, as many words each as their layout has.
    pub(super) bits: CudaSlice<u32>,
    work: Work,
    /// First slot of each window; one more entry ends the last.
    slots: CudaSlice<u32>,
    pub(super) n_slots: usize,
}

/// Work items, the longest first, each with a slot.
enum Work {
    /// Runs of blocks for tensor cores.
    Spans(CudaSlice<Span>),
    /// Parts of windows of tiles.
    Shares(CudaSlice<Share>),
}

/// Division of the entries of an adjacency between blocks and rows.
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

/// Partial sums of blocks: a slot of `WINDOW` rows for each work item.
pub(crate) struct SlotSums {
    /// Elements from row to row.
    pub(super) pitch: usize,
    /// Element type of the sums. It is that of the result, so that they are rounded no more than the result itself.
    pub(super) dtype: Dtype,
    pub(super) data: CudaSlice<u8>,
}

impl Tiles {
    /// Initial sums for the product of the entries outside of blocks.
    pub(crate) fn start(&self, cuda: &Cuda, whole: &CudaCsr, sums: &SlotSums) -> Start {
        Start {
            slots: cuda.pointer(Some(&self.blocks.slots)),
            sums: cuda.pointer(Some(&sums.data)),
            pitch: sums.pitch as u64,
            indptr: cuda.pointer(Some(&whole.indptr)),
            indices: cuda.pointer(Some(&whole.indices)),
        }
    }

    pub(super) fn parts(&self) -> Parts {
        let Blocks { n, n_windows, .. } = self.blocks;
        let operand_rows = self.rest.shape.cols as u64;
        Parts { blocks: n as u64, windows: n_windows as u64, entries: self.rest.nnz as u64, operand_rows }
    }

    /// Whether `f32` operands are multiplied as halves.
    pub(crate) fn takes_halves(&self) -> bool {
        matches!(self.blocks.work, Work::Spans(_))
    }
}

impl Cuda {
    /// Blocks of a pattern for products with an operand like `x`, found on first use; `None` if no blocks pay.
    pub(crate) fn tiles_of<'a>(
        &self,
        operation: &'static str,
        csr: &'a CudaCsr,
        x: &CudaMatrix,
    ) -> Result<Option<&'a Tiles>, ComputeError> {
        let class = match self.tiling {
            _ if csr.nnz == 0 || csr.tiles.is_final => return Ok(None),
            Tiling::Never => return Ok(None),
            Tiling::Auto if csr.nnz < Tiling::ENTRIES_MIN => return Ok(None),
            Tiling::Auto => Some(Class::of(self.block_kernel, x.shape, x.dtype)),
            Tiling::From(_) => None,
        };
        let uses = csr.tiles.uses(class, || self.decide(operation, csr, class, x))?;
        Ok(csr.tiles.tiles.get().map(|tiles| &**tiles).filter(|_| uses))
    }

    /// Decides whether products of a class, like that of `x`, multiply by blocks. Blocks are those of an earlier
    /// class, or found now. Costs propose blocks; a trial decides whether they pay.
    fn decide(
        &self,
        operation: &'static str,
        csr: &CudaCsr,
        class: Option<Class>,
        x: &CudaMatrix,
    ) -> Result<bool, ComputeError> {
        let pay = |tiles: &Tiles| class.is_none_or(|class| self.pay(class, csr, tiles, x));
        if let Some(tiles) = csr.tiles.tiles.get() {
            return Ok(pay(tiles));
        }
        let least = match (class, self.tiling) {
            (Some(class), _) => self.worthwhile_entries(operation, csr, class)?,
            (None, Tiling::From(share)) => Some(entries_of(share, self.block_kernel.layout())),
            (None, Tiling::Auto | Tiling::Never) => None,
        };
        let tiles = least.map(|least| self.build_tiles(operation, csr, least)).transpose()?.flatten();
        Ok(tiles.filter(pay).is_some_and(|tiles| csr.tiles.tiles.set(Box::new(tiles)).is_ok()))
    }

    /// Division of an adjacency, once a product has searched for blocks; `None` if it has no blocks.
    #[must_use]
    pub fn split(&self, a: &CudaSparse) -> Option<Split> {
        a.forward.tiles.tiles.get().map(|tiles| tiles.split)
    }

    /// Downloads the blocks of an adjacency and its other entries; `None` if it has no blocks.
    ///
    /// # Errors
    /// When the device fails.
    pub fn download_blocks(&self, a: &CudaSparse) -> Result<Option<BlockMatrix>, ComputeError> {
        const OPERATION: &str = "download_blocks";
        let Some(Tiles { rest, blocks, .. }) = a.forward.tiles.tiles.get().map(|tiles| &**tiles) else {
            return Ok(None);
        };
        let invalid = |error: FormatError| ComputeError::argument(OPERATION, error.to_string());
        let list = |list: &CudaSlice<u32>, n: usize| self.read(OPERATION, &list.slice(..n));
        let indptr = self.read(OPERATION, &rest.indptr.slice(..=rest.shape.rows))?;
        let indices = list(&rest.indices, rest.nnz)?;
        let rest = Csr::new(rest.shape.rows, rest.shape.cols, indptr, indices, None);
        let (first, columns) = (list(&blocks.first, blocks.n_rows + 1)?, list(&blocks.columns, blocks.n)?);
        let bits = list(&blocks.bits, blocks.n * blocks.layout.n_words())?;
        BlockMatrix::from_parts(blocks.layout, first, columns, bits, rest.map_err(invalid)?).map(Some).map_err(invalid)
    }

    fn build_tiles(&self, operation: &'static str, csr: &CudaCsr, least: u32) -> Result<Option<Tiles>, ComputeError> {
        let (layout, rows) = (self.block_kernel.layout(), csr.shape.rows);
        let (search, config, _counts) = self.search(operation, csr, layout, least)?;
        let n_rows = rows.div_ceil(layout.rows());
        let (blocks, outside) = self.count_blocks(operation, layout, search, config, (n_rows, rows))?;
        let (first, rest_indptr) = (ends::<u32>(&blocks), ends::<u64>(&outside));
        let (n_blocks, n_rest) = (first[n_rows] as usize, rest_indptr[rows] as usize);
        let coverage = 1.0 - n_rest as f64 / csr.nnz as f64;
        let threshold = f64::from(least) / (layout.rows() * layout.cols()) as f64;
        tracing::debug!("{n_blocks} blocks of {least} entries or more hold {:.1} % of {}", 100.0 * coverage, csr.nnz);
        if n_blocks == 0 {
            return Ok(None);
        }
        let mut columns = self.scratch::<u32>(operation, n_blocks)?;
        let mut bits = self.scratch::<u32>(operation, n_blocks * layout.n_words())?;
        self.device.stream.memset_zeros(&mut bits).map_err(Self::failed(operation))?;
        let mut rest_indices = self.scratch::<u32>(operation, n_rest)?;
        let (first_on_device, indptr) =
            (self.upload_list(operation, &first)?, self.upload_list(operation, &rest_indptr)?);
        let kernel = self.tiling_kernel(operation, "fill_blocks", layout)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&search).arg(&first_on_device).arg(&mut columns).arg(&mut bits).arg(&indptr).arg(&mut rest_indices);
        // SAFETY: as in `count_blocks`, whose counts give the number of blocks and of other entries of each row.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        let hubs = self.upload_hubs(operation, &rest_indptr)?;
        let rest = CudaCsr {
            shape: csr.shape,
            nnz: n_rest,
            indptr,
            indices: rest_indices,
            values: None,
            positions: None,
            hubs,
            tiles: Found::default(),
        };
        let blocks = self.blocks(operation, layout, (&first, first_on_device), columns, bits)?;
        Ok(Some(Tiles { rest, blocks, split: Split { entries_min: least, threshold, n_blocks, coverage } }))
    }

    /// Builds blocks from their columns and bitmaps, and divides them into work items. `first` holds the first block
    /// of each row of blocks.
    pub(super) fn blocks(
        &self,
        operation: &'static str,
        layout: BlockLayout,
        (first, first_on_device): (&[u32], CudaSlice<u32>),
        columns: CudaSlice<u32>,
        bits: CudaSlice<u32>,
    ) -> Result<Blocks, ComputeError> {
        let processors = self.device.processors();
        let (work, n_slots, slots) = match layout {
            BlockLayout::Fragments => {
                let (spans, slots) = spans(first, processors);
                (Work::Spans(self.upload_list(operation, &spans)?), spans.len(), slots)
            }
            BlockLayout::Tiles => {
                let (shares, slots) = shares(first, processors);
                (Work::Shares(self.upload_list(operation, &shares)?), shares.len(), slots)
            }
        };
        let (n, n_rows) = (first.last().map_or(0, |&end| end as usize), first.len() - 1);
        let n_windows = first.windows(2).filter(|ends| ends[0] < ends[1]).count();
        let slots = self.upload_list(operation, &slots)?;
        Ok(Blocks { layout, n, n_rows, n_windows, first: first_on_device, columns, bits, work, slots, n_slots })
    }

    /// Arguments, launch and counters of kernels that search for blocks of `least` entries.
    pub(super) fn search(
        &self,
        operation: &'static str,
        csr: &CudaCsr,
        layout: BlockLayout,
        least: u32,
    ) -> Result<(Search, LaunchConfig, CudaSlice<u32>), ComputeError> {
        let Shape { rows, cols } = csr.shape;
        let (n_rows, n_panels) = (rows.div_ceil(layout.rows()), cols.div_ceil(layout.cols()));
        let at_once = n_rows.min(8 * self.device.processors()).min(COUNTS_BYTES_MAX / (4 * n_panels)).max(1);
        let counts = self.scratch::<u32>(operation, at_once * n_panels)?;
        let search = Search {
            indptr: self.pointer(Some(&csr.indptr)),
            indices: self.pointer(Some(&csr.indices)),
            n_rows: rows as u64,
            n_panels: n_panels as u64,
            least,
            padding: 0,
            counts: self.pointer(Some(&counts)),
        };
        let config = LaunchConfig { grid_dim: (at_once as u32, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        Ok((search, config, counts))
    }

    pub(super) fn tiling_kernel(
        &self,
        operation: &'static str,
        name: &str,
        layout: BlockLayout,
    ) -> Result<CudaFunction, ComputeError> {
        let defines = vec![("ROWS", layout.rows().to_string()), ("PANEL", layout.cols().to_string())];
        self.variant(operation, Source::TILING, name, &defines)
    }

    /// Number of blocks of each window, and number of entries of each row outside of blocks.
    fn count_blocks(
        &self,
        operation: &'static str,
        layout: BlockLayout,
        search: Search,
        config: LaunchConfig,
        (n_windows, n_rows): (usize, usize),
    ) -> Result<(Vec<u32>, Vec<u32>), ComputeError> {
        let mut blocks = self.scratch::<u32>(operation, n_windows)?;
        let mut rest = self.scratch::<u32>(operation, n_rows)?;
        let kernel = self.tiling_kernel(operation, "count_blocks", layout)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&search).arg(&mut blocks).arg(&mut rest);
        // SAFETY: the search holds a pattern, and a number for each panel and each thread block; results have a number
        // for each window and each row.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        let read = |list: &CudaSlice<u32>, n: usize| self.read(operation, &list.slice(..n));
        Ok((read(&blocks, n_windows)?, read(&rest, n_rows)?))
    }

    /// Computes the sums of all blocks, slot by slot. A row has as many elements as the operand has columns, padding
    /// included. For tensor cores, `f32` operands come as halves.
    pub(super) fn tile_sums(
        &self,
        operation: &'static str,
        blocks: &Blocks,
        x: &Operand<'_>,
        halves: Option<&Halves>,
        dtype: Dtype,
    ) -> Result<SlotSums, ComputeError> {
        let pitch = pitch(x.shape.cols);
        let data = self.scratch::<u8>(operation, blocks.n_slots * WINDOW * pitch * dtype.n_bytes())?;
        let mut sums = SlotSums { pitch, dtype, data };
        match &blocks.work {
            Work::Shares(shares) => self.paper_sums(operation, (blocks, shares), x, &mut sums)?,
            Work::Spans(spans) if self.block_kernel == BlockKernel::Wgmma => {
                self.wgmma_sums(operation, (blocks, spans), x, halves, &mut sums)?;
            }
            Work::Spans(spans) => self.mma_sums(operation, (blocks, spans), x, halves, &mut sums)?,
        }
        Ok(sums)
    }

    /// Writes the sums of all blocks to their slots by `wgmma`.
    fn wgmma_sums(
        &self,
        operation: &'static str,
        (blocks, spans): (&Blocks, &CudaSlice<Span>),
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
        let grid_dim = (n_spans.min(self.device.processors() as u32), chunks.n as u32, 1);
        let config = LaunchConfig { grid_dim, block_dim: (THREADS, 1, 1), shared_mem_bytes: shared_bytes };
        // SAFETY: the maps tell the copy engine where the operand ends; spans name blocks with bits and a column, and
        // each has a slot of `WINDOW` rows of its own; the operand is stored as the kernel was compiled for.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        Ok(())
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
        let shared_bytes = (STAGES * stage_bytes + 1024) as u32;
        Self::allow_shared(operation, &kernel, shared_bytes)?;
        Ok((kernel, shared_bytes))
    }
}

/// Macros of kernels for tensor cores.
pub(super) fn defines(halves: bool, cols: usize, sums: Dtype) -> Defines {
    let halves = u32::from(halves).to_string();
    vec![("COLS", cols.to_string()), ("HALVES", halves), ("Y", element(sums).to_owned())]
}

/// Division of the columns of a dense operand among thread blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    pub(super) n: usize,
    /// Columns that a thread block computes, a multiple of sixteen; those beyond the operand's are not stored.
    pub(super) cols: usize,
}

impl Chunks {
    pub(super) fn of(width: usize) -> Self {
        let n = width.div_ceil(COLS_MAX);
        Self { n, cols: width.div_ceil(n).next_multiple_of(16) }
    }
}

/// Offsets of consecutive lists of the given lengths, with the end of the last.
fn ends<T: Copy + Default + std::ops::Add<Output = T> + From<u32>>(lengths: &[u32]) -> Vec<T> {
    let mut end = T::default();
    let ends = lengths.iter().map(|&length| {
        end = end + T::from(length);
        end
    });
    std::iter::once(T::default()).chain(ends).collect()
}

/// Cuts the blocks of each window into spans, one for each slot, and sorts them by falling length. `first` holds the
/// first block of each window. Also returns the first slot of each window, and one more.
fn spans(first: &[u32], n_processors: usize) -> (Vec<Span>, Vec<u32>) {
    let n_blocks = first.last().copied().unwrap_or(0) as usize;
    let most = n_blocks.div_ceil(n_processors * SPANS_PER_PROCESSOR).max(16) as u32;
    let (mut spans, mut slots) = (Vec::new(), vec![0]);
    for ends in first.windows(2) {
        let n_spans = (ends[1] - ends[0]).div_ceil(most);
        for i in 0..n_spans {
            // Spans of even length: the last one is not a remnant.
            let cut = |i: u32| ends[0] + (u64::from(ends[1] - ends[0]) * u64::from(i) / u64::from(n_spans)) as u32;
            spans.push(Span { slot: spans.len() as u32, first: cut(i), last: cut(i + 1), padding: 0 });
        }
        slots.push(spans.len() as u32);
    }
    spans.sort_by_key(|span| Reverse(span.last - span.first));
    (spans, slots)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_read() {
        assert_eq!("auto".parse(), Ok(Tiling::Auto));
        assert_eq!("never".parse(), Ok(Tiling::Never));
        assert_eq!("0.05".parse(), Ok(Tiling::From(0.05)));
        assert_eq!(Tiling::From(0.05).to_string().parse(), Ok(Tiling::From(0.05)));
        for wrong in ["", "5 %", "-0.1", "1.5", "NaN"] {
            assert!(wrong.parse::<Tiling>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn cards_multiply_by_what_they_have() {
        for (capability, kernel) in [
            ((8, 0), BlockKernel::Mma),
            ((8, 9), BlockKernel::Mma),
            ((9, 0), BlockKernel::Wgmma),
            ((12, 0), BlockKernel::Mma),
        ] {
            assert_eq!(BlockKernel::of(capability), kernel, "{capability:?}");
        }
        for kernel in [BlockKernel::Wgmma, BlockKernel::Mma, BlockKernel::Paper] {
            assert_eq!(kernel.to_string().parse(), Ok(kernel));
        }
        assert!("cuda".parse::<BlockKernel>().is_err());
    }

    proptest! {
        /// Thread blocks compute every column, and each computes at least one.
        #[test]
        fn chunks_cover_all_columns(width in 1_usize..3000) {
            let Chunks { n, cols } = Chunks::of(width);
            prop_assert!(cols.is_multiple_of(16) && cols <= COLS_MAX && n * cols >= width && (n - 1) * cols < width);
        }

        /// Every block is in one span, spans are no longer than their fair share, and slots are those of the window.
        #[test]
        fn spans_share_out_all_blocks(lengths in prop::collection::vec(0_u32..400, 1..40), n_processors in 1_usize..8) {
            let first = ends::<u32>(&lengths);
            let (mut spans, slots) = spans(&first, n_processors);
            prop_assert!(spans.is_sorted_by_key(|span| Reverse(span.last - span.first)));
            spans.sort_by_key(|span| span.slot);
            let n_blocks = first[lengths.len()];
            let most = (n_blocks as usize).div_ceil(n_processors * SPANS_PER_PROCESSOR).max(16) as u32;
            for (window, slots) in slots.windows(2).enumerate() {
                let of_window = &spans[slots[0] as usize..slots[1] as usize];
                let mut next = first[window];
                for span in of_window {
                    prop_assert!(span.first == next && span.last > next && span.last - span.first <= most);
                    next = span.last;
                }
                prop_assert_eq!(next, first[window + 1]);
            }
            prop_assert_eq!(spans.len(), slots[lengths.len()] as usize);
        }
    }
}
