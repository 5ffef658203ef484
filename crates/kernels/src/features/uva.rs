//! [`UvaTable`]: rows on this GPU, on others, or in host memory, as a placement says. The layout is that of DSP
//! (Cai et al., PPoPP 2023, section 4), but with reads of single rows instead of exchanges.
//!
//! ```text
//! host    all rows: a range from each rank of the process ─────────┐
//! GPUs    copies of the rows that the placement gives them ────────┴─▶ a list on each GPU: an address for each row
//! ```
//! Kernels read a row at the address in the list, whether it lies on this GPU, on another one or, pinned, on the host.
//! One launch reads all of them. There is no list if no row is on a GPU and the host has one range. Rows that the host
//! sends ([`staged`](super::staged)) have no address: their entry is zero, and kernels skip them.

use std::ops::Range;
use std::sync::Arc;

use girih_compute::ComputeError;
use girih_features::Placement;
use girih_graph_format::NodeId;
use rayon::prelude::*;

use super::cache::{CachedNodes, DeviceCache};
use super::group::Group;
use super::pinned::Pinned;
use crate::Cuda;
use crate::abi::RowSource;
use crate::nccl::OwnedStream;

/// Rows that a host thread copies at a time.
const ROWS_AT_ONCE: usize = 1 << 10;

/// Rows to be placed.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// Name of the operation in errors.
    pub(crate) operation: &'static str,
    pub(crate) n_rows: usize,
    /// Byte offset of a row if all rows are contiguous; that of `n_rows` is the total size.
    pub(crate) offset: &'a (dyn Fn(usize) -> u64 + Sync),
    /// Bit mask that marks host addresses in the list; zero marks none.
    pub(crate) mark: u64,
}

impl Rows<'_> {
    /// Bytes of a row.
    pub(super) fn n_bytes(&self, row: usize) -> usize {
        ((self.offset)(row + 1) - (self.offset)(row)) as usize
    }

    /// Number of leading nodes whose rows fit in `n_bytes` together; at least one.
    pub(super) fn n_within(&self, nodes: &[NodeId], n_bytes: usize) -> usize {
        let mut left = n_bytes;
        let fits = |&&node: &&NodeId| {
            let row_bytes = self.n_bytes(node as usize);
            let fits = row_bytes <= left;
            left = left.saturating_sub(row_bytes);
            fits
        };
        nodes.iter().take_while(fits).count().max(1)
    }

    /// Rows of `nodes` as `copy` writes them, as consecutive buffers.
    pub(crate) fn copied(&self, copy: CopyRow<'_>, nodes: &[NodeId]) -> Vec<Vec<u8>> {
        let piece = |nodes: &[NodeId]| {
            let mut piece = vec![0; nodes.iter().map(|&node| self.n_bytes(node as usize)).sum()];
            let mut left = &mut piece[..];
            for row in nodes.iter().map(|&node| node as usize) {
                let (to, behind) = left.split_at_mut(self.n_bytes(row));
                copy(row, to);
                left = behind;
            }
            piece
        };
        nodes.par_chunks(ROWS_AT_ONCE).map(piece).collect()
    }
}

/// Copies a row.
type CopyRow<'a> = &'a (dyn Fn(usize, &mut [u8]) + Sync);
/// Reads the rows of some nodes, as consecutive buffers.
pub(crate) type ReadRows<'a> = &'a mut dyn FnMut(&[NodeId]) -> Result<Vec<Vec<u8>>, ComputeError>;
/// Device address of a row in host memory.
pub(super) type AddressOf<'a> = &'a (dyn Fn(usize) -> u64 + Sync);
/// Writes a range of consecutive rows.
pub(crate) type WriteRows<'a> = &'a (dyn Fn(Range<usize>, &mut [u8]) + Sync);

/// Rows in pinned host memory and on GPUs; see the module.
pub(crate) struct UvaTable {
    /// All rows in host memory.
    pub(super) on_host: Arc<HostTable>,
    /// Rows on GPUs and the list of addresses; `None` where all rows are in one range of host memory.
    on_gpus: Option<Arc<DeviceCache>>,
    uses: OwnedStream,
}

/// All rows in host memory, in consecutive ranges of rows, one per rank of the process.
pub(crate) struct HostTable {
    pieces: Vec<Arc<HostMemory>>,
    /// First row of each range, and its byte offset among all rows.
    firsts: Vec<(usize, u64)>,
}

/// Host memory; devices can read it if it is pinned.
enum HostMemory {
    Pinned(Pinned),
    Plain(Vec<u8>),
}

impl UvaTable {
    /// Places rows on GPUs as `placement` says, and all rows in pinned host memory. All ranks of the process call
    /// this together.
    ///
    /// # Errors
    /// When the host pins no memory for the rows, that of a GPU does not suffice, the placement is for other GPUs
    /// than there are, GPUs cannot read each other's memory, or a rank fails.
    pub(crate) fn new(
        cuda: &Cuda,
        rows: &Rows<'_>,
        write: WriteRows<'_>,
        placement: &Placement,
    ) -> Result<Self, ComputeError> {
        let group = Group::of(cuda, rows.operation, placement)?;
        let on_host = Arc::new(HostTable::pinned(cuda, rows, write, &group)?);
        let near = CachedNodes::of(placement, group.size);
        let copy = |row: usize, to: &mut [u8]| to.copy_from_slice(on_host.row(row, (rows.offset)(row), to.len()));
        let address = |row: usize| on_host.address(row, (rows.offset)(row)) | rows.mark;
        let mut read = |nodes: &[NodeId]| Ok(rows.copied(&copy, nodes));
        let is_listed = !near.is_none() || group.size > 1;
        let on_gpus = is_listed
            .then(|| DeviceCache::new(cuda, rows, (&mut read, &address), &near, &group).map(Arc::new))
            .transpose()?;
        Ok(Self { on_host, on_gpus, uses: cuda.ending(&cuda.device.stream) })
    }

    /// Rows on GPUs, if GPUs hold any.
    pub(super) fn on_gpus(&self) -> Option<&Arc<DeviceCache>> {
        self.on_gpus.as_ref().filter(|on_gpus| !on_gpus.are_none)
    }

    /// Launch argument for rows of `row_bytes` bytes.
    pub(super) fn argument(&self, row_bytes: u64) -> RowSource {
        let (first, rows) = self.addresses();
        RowSource { first, rows, ..RowSource::at(0, row_bytes) }
    }

    /// Address of the first row, and address of the list of addresses. Exactly one of them is zero.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        self.on_gpus.as_ref().map_or_else(|| (self.on_host.pieces[0].address(), 0), |listed| (0, listed.list()))
    }
}

impl Drop for UvaTable {
    /// Waits until the device no longer reads the memory.
    fn drop(&mut self) {
        self.uses.wait();
    }
}

impl HostMemory {
    /// All bytes.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Pinned(pinned) => pinned.bytes(),
            Self::Plain(bytes) => bytes,
        }
    }

    /// Device address of the first byte; zero for memory that is not pinned.
    fn address(&self) -> u64 {
        match self {
            Self::Pinned(pinned) => pinned.address(),
            Self::Plain(_) => 0,
        }
    }
}

impl HostTable {
    /// Writes the rows to pinned memory, one range per rank of a process.
    fn pinned(cuda: &Cuda, rows: &Rows<'_>, write: WriteRows<'_>, group: &Group<'_>) -> Result<Self, ComputeError> {
        Self::new(rows, group, |own, n_bytes| {
            let mut memory = Pinned::new(cuda, n_bytes, rows.operation)?;
            write(own, &mut memory.bytes_mut()[..n_bytes]);
            Ok(HostMemory::Pinned(memory))
        })
    }

    /// Writes the rows to pageable memory, one range per rank of a process.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn plain(rows: &Rows<'_>, write: WriteRows<'_>, group: &Group<'_>) -> Result<Self, ComputeError> {
        Self::new(rows, group, |own, n_bytes| {
            let mut memory = vec![0; n_bytes];
            write(own, &mut memory);
            Ok(HostMemory::Plain(memory))
        })
    }

    /// Fills the range of this rank by `piece`, and shares it with the other ranks.
    fn new(
        rows: &Rows<'_>,
        group: &Group<'_>,
        piece: impl FnOnce(Range<usize>, usize) -> Result<HostMemory, ComputeError>,
    ) -> Result<Self, ComputeError> {
        let of_rank = |rank| rows.n_rows * rank / group.size..rows.n_rows * (rank + 1) / group.size;
        let own = of_rank(group.rank);
        let n_bytes = (rows.offset)(own.end) - (rows.offset)(own.start);
        let piece = piece(own, n_bytes as usize)?;
        let firsts = (0..group.size).map(|rank| of_rank(rank).start).map(|first| (first, (rows.offset)(first)));
        Ok(Self { firsts: firsts.collect(), pieces: group.hand_out(rows.operation, piece)? })
    }

    /// Memory of a row and the byte offset within it, for a row that begins at `offset` among all.
    fn place(&self, row: usize, offset: u64) -> (&HostMemory, usize) {
        let at = self.firsts.partition_point(|&(first, _)| first <= row) - 1;
        (&self.pieces[at], (offset - self.firsts[at].1) as usize)
    }

    /// Bytes of a row that begins at `offset` among all.
    pub(crate) fn row(&self, row: usize, offset: u64, n_bytes: usize) -> &[u8] {
        let (piece, at) = self.place(row, offset);
        &piece.bytes()[at..at + n_bytes]
    }

    /// Device address of a row that begins at `offset` among all.
    fn address(&self, row: usize, offset: u64) -> u64 {
        let (piece, at) = self.place(row, offset);
        piece.address() + at as u64
    }
}
