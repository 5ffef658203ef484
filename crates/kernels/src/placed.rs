//! [`PlacedRows`]: rows on this GPU, on others, or in host memory, as a placement says. The layout is that of DSP
//! (Cai et al., PPoPP 2023, section 4), but with reads of single rows instead of exchanges.
//!
//! ```text
//! host    all rows: a range from each rank of the process ─────────┐
//! GPUs    copies of the rows that the placement gives them ────────┴─▶ a list on each GPU: an address for each row
//! ```
//! Kernels read a row at the address in the list, whether it lies on this GPU, on another one or, pinned, on the host.
//! One launch reads all of them. There is no list if no row is on a GPU and the host has one range. Rows that the host
//! sends ([`staged_rows`](crate::staged_rows)) have no address: their entry is zero, and kernels skip them.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::CudaSlice;
use girih_compute::ComputeError;
use girih_graph_format::NodeId;
use girih_tiers::{Holder, Placement};
use rayon::prelude::*;

use crate::Cuda;
use crate::device::Ending;
use crate::nccl::Peers;
use crate::pinned::Pinned;
use crate::row_launch::RowsArgument;

/// Rows that a host thread copies at a time.
const ROWS_AT_ONCE: usize = 1 << 10;
/// Bytes of rows that the host copies before it sends them to a GPU. The limit avoids a second copy of all rows on
/// the host.
const PIECE_BYTES: usize = 256 << 20;

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
    fn n_bytes(&self, row: usize) -> usize {
        ((self.offset)(row + 1) - (self.offset)(row)) as usize
    }

    /// Number of leading nodes whose rows fit in `n_bytes` together; at least one.
    fn n_within(&self, nodes: &[NodeId], n_bytes: usize) -> usize {
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
type AddressOf<'a> = &'a (dyn Fn(usize) -> u64 + Sync);
/// Writes a range of consecutive rows.
pub(crate) type WriteRows<'a> = &'a (dyn Fn(Range<usize>, &mut [u8]) + Sync);

/// Rows in pinned host memory and on GPUs; see the module.
pub(crate) struct PlacedRows {
    on_host: Arc<HostPieces>,
    /// Rows on GPUs and the list of addresses; `None` where all rows are in one range of host memory.
    on_cards: Option<OnCards>,
    uses: Ending,
}

/// All rows in host memory, in consecutive ranges of rows, one per rank of the process.
pub(crate) struct HostPieces {
    pieces: Vec<Arc<HostMemory>>,
    /// First row of each range, and its byte offset among all rows.
    firsts: Vec<(usize, u64)>,
}

/// Host memory; devices can read it if it is pinned.
enum HostMemory {
    Pinned(Pinned),
    Plain(Vec<u8>),
}

/// Rows that GPUs hold, and the list of row addresses on this GPU.
pub(crate) struct OnCards {
    _slabs: Vec<Arc<Slab>>,
    addresses: CudaSlice<u64>,
    /// Whether GPUs hold all rows; `are_none`: whether they hold no row.
    are_all: bool,
    are_none: bool,
    uses: Ending,
}

/// Rows that one GPU holds.
struct Slab {
    _bytes: Option<CudaSlice<u8>>,
    address: u64,
}

/// Pinned memory that the ranks of a process share.
pub(crate) struct SharedPinned {
    of_first: Arc<Option<Pinned>>,
    uses: Ending,
}

/// Ranks whose GPUs read each other's rows, or that share host memory.
pub(crate) struct Group<'c> {
    rank: usize,
    size: usize,
    /// Connections to the other ranks; `None` for a single GPU.
    peers: Option<&'c Peers>,
}

impl PlacedRows {
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
        let on_host = Arc::new(HostPieces::pinned(cuda, rows, write, &group)?);
        let near = Near::of(placement, group.size);
        let copy = |row: usize, to: &mut [u8]| to.copy_from_slice(on_host.row(row, (rows.offset)(row), to.len()));
        let address = |row: usize| on_host.address(row, (rows.offset)(row)) | rows.mark;
        let mut read = |nodes: &[NodeId]| Ok(rows.copied(&copy, nodes));
        let is_listed = !near.is_none() || group.size > 1;
        let on_cards = is_listed.then(|| OnCards::new(cuda, rows, (&mut read, &address), &near, &group)).transpose()?;
        Ok(Self { on_host, on_cards, uses: cuda.device.ending(&cuda.device.stream) })
    }

    /// All rows in host memory.
    pub(crate) fn on_host(&self) -> &Arc<HostPieces> {
        &self.on_host
    }

    /// Whether GPUs hold all rows.
    pub(crate) fn are_on_cards(&self) -> bool {
        self.on_cards.as_ref().is_some_and(OnCards::are_all)
    }

    /// Rows on GPUs, if GPUs hold any.
    pub(crate) fn on_cards(&self) -> Option<&OnCards> {
        self.on_cards.as_ref().filter(|on_cards| !on_cards.are_none)
    }

    /// Launch argument for rows of `row_bytes` bytes.
    pub(crate) fn argument(&self, cuda: &Cuda, row_bytes: u64) -> RowsArgument {
        match &self.on_cards {
            None => RowsArgument::at(self.on_host.pieces[0].address(), row_bytes),
            Some(listed) => RowsArgument::listed(listed.list(cuda), row_bytes),
        }
    }

    /// Address of the first row, and address of the list of addresses. Exactly one of them is zero.
    pub(crate) fn addresses(&self, cuda: &Cuda) -> (u64, u64) {
        match &self.on_cards {
            None => (self.on_host.pieces[0].address(), 0),
            Some(listed) => (0, listed.list(cuda)),
        }
    }
}

impl Drop for PlacedRows {
    /// Waits until the device no longer reads the memory.
    fn drop(&mut self) {
        self.uses.wait();
    }
}

impl OnCards {
    /// Copies the rows that a placement gives to GPUs; host rows get no address. `None` if it gives them no row. All
    /// ranks of the process call this together.
    ///
    /// # Errors
    /// As [`PlacedRows::new`], but for memory of the host.
    pub(crate) fn beside_host(
        cuda: &Cuda,
        rows: &Rows<'_>,
        read: ReadRows<'_>,
        (placement, group): (&Placement, &Group<'_>),
    ) -> Result<Option<Self>, ComputeError> {
        let near = Near::of(placement, group.size);
        let nowhere = |_| 0;
        (!near.is_none()).then(|| Self::new(cuda, rows, (read, &nowhere), &near, group)).transpose()
    }

    /// Copies rows to the GPU by `read`, and lists all addresses; `on_host` gives those on the host, or zero.
    fn new(
        cuda: &Cuda,
        rows: &Rows<'_>,
        (read, on_host): (ReadRows<'_>, AddressOf<'_>),
        near: &Near,
        group: &Group<'_>,
    ) -> Result<Self, ComputeError> {
        let slab = Slab::new(cuda, rows, read, &near.of_card(group.rank).collect::<Vec<_>>())?;
        if group.size > 1 && near.is_read_by_others() {
            group.open_memory(cuda, rows.operation)?;
        }
        let slabs = group.hand_out(rows.operation, slab)?;
        let addresses = cuda.upload_list(rows.operation, &near.addresses(rows, on_host, &slabs, group.rank))?;
        Ok(Self {
            _slabs: slabs,
            addresses,
            are_all: near.len() == rows.n_rows,
            are_none: near.is_none(),
            uses: cuda.device.ending(&cuda.device.stream),
        })
    }

    /// Address of the list of addresses, on the device.
    pub(crate) fn list(&self, cuda: &Cuda) -> u64 {
        cuda.pointer(Some(&self.addresses))
    }

    /// Whether GPUs hold all rows.
    pub(crate) fn are_all(&self) -> bool {
        self.are_all
    }
}

impl Drop for OnCards {
    /// Waits until the device no longer reads the memory.
    fn drop(&mut self) {
        self.uses.wait();
    }
}

impl HostMemory {
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

impl HostPieces {
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

    fn address(&self, row: usize, offset: u64) -> u64 {
        let (piece, at) = self.place(row, offset);
        piece.address() + at as u64
    }
}

impl Slab {
    /// Copies the rows of `nodes` to the device.
    fn new(cuda: &Cuda, rows: &Rows<'_>, read: ReadRows<'_>, nodes: &[NodeId]) -> Result<Self, ComputeError> {
        let n_bytes = nodes.iter().map(|&node| rows.n_bytes(node as usize)).sum();
        if n_bytes == 0 {
            return Ok(Self { _bytes: None, address: 0 });
        }
        let mut bytes: CudaSlice<u8> = cuda.scratch(rows.operation, n_bytes)?;
        let (mut first, mut left) = (0, nodes);
        while !left.is_empty() {
            let (nodes, behind) = left.split_at(rows.n_within(left, PIECE_BYTES));
            left = behind;
            for piece in read(nodes)?.iter().filter(|piece| !piece.is_empty()) {
                let mut to = bytes.slice_mut(first..first + piece.len());
                cuda.device.stream.memcpy_htod(piece, &mut to).map_err(Cuda::failed(rows.operation))?;
                first += piece.len();
            }
        }
        // Others may read the memory as soon as they know of it.
        cuda.device.wait(rows.operation)?;
        Ok(Self { address: cuda.pointer(Some(&bytes)), _bytes: Some(bytes) })
    }
}

/// Nodes whose rows are on GPUs, in the order in which they lie there.
struct Near {
    on_every_card: Vec<NodeId>,
    /// Nodes on one GPU only, by GPU; their rows follow those of every GPU.
    on_one_card: Vec<Vec<NodeId>>,
}

impl Near {
    fn of(placement: &Placement, n_cards: usize) -> Self {
        let mut near = Self { on_every_card: Vec::new(), on_one_card: vec![Vec::new(); n_cards] };
        for span in placement.spans() {
            let nodes = span.positions.clone().map(|position| placement.node(position));
            match span.holder {
                Holder::EveryCard => near.on_every_card.extend(nodes),
                Holder::Card(card) => near.on_one_card[card as usize].extend(nodes),
                Holder::Cards => nodes.enumerate().for_each(|(at, node)| near.on_one_card[at % n_cards].push(node)),
                Holder::Host | Holder::Disk => {}
            }
        }
        near
    }

    fn is_none(&self) -> bool {
        self.on_every_card.is_empty() && !self.is_read_by_others()
    }

    /// Number of nodes; spans of a placement are disjoint.
    fn len(&self) -> usize {
        self.on_every_card.len() + self.on_one_card.iter().map(Vec::len).sum::<usize>()
    }

    fn is_read_by_others(&self) -> bool {
        self.on_one_card.iter().any(|nodes| !nodes.is_empty())
    }

    fn of_card(&self, card: usize) -> impl Iterator<Item = NodeId> + '_ {
        self.on_every_card.iter().chain(&self.on_one_card[card]).copied()
    }

    /// Address at which `rank` reads each row.
    fn addresses(&self, rows: &Rows<'_>, on_host: AddressOf<'_>, slabs: &[Arc<Slab>], rank: usize) -> Vec<u64> {
        let mut addresses: Vec<u64> = (0..rows.n_rows).into_par_iter().map(on_host).collect();
        let mut place = |nodes: &[NodeId], mut address: u64| {
            for row in nodes.iter().map(|&node| node as usize) {
                addresses[row] = address;
                address += rows.n_bytes(row) as u64;
            }
        };
        let before: u64 = self.on_every_card.iter().map(|&node| rows.n_bytes(node as usize) as u64).sum();
        place(&self.on_every_card, slabs[rank].address);
        for (nodes, slab) in self.on_one_card.iter().zip(slabs) {
            place(nodes, slab.address + before);
        }
        addresses
    }
}

impl SharedPinned {
    pub(crate) fn memory(&self) -> &Pinned {
        self.of_first.as_ref().as_ref().expect("the first rank has it")
    }
}

impl Drop for SharedPinned {
    /// Waits until the device no longer reads the memory.
    fn drop(&mut self) {
        self.uses.wait();
    }
}

impl<'c> Group<'c> {
    /// The ranks of this process.
    pub(crate) fn of_process(cuda: &'c Cuda) -> Self {
        let peers = cuda.device.peers().filter(|peers| peers.is_one_process());
        peers.map_or(Self { rank: 0, size: 1, peers: None }, |peers| Self {
            rank: peers.rank(),
            size: peers.size(),
            peers: Some(peers),
        })
    }

    /// The ranks of this process; fails if the placement shards rows over another number of GPUs.
    pub(crate) fn of(cuda: &'c Cuda, operation: &'static str, placement: &Placement) -> Result<Self, ComputeError> {
        let group = Self::of_process(cuda);
        let is_spread = placement.spans().iter().any(|span| matches!(span.holder, Holder::Card(_) | Holder::Cards));
        if is_spread {
            check_cards(operation, placement.n_cards(), group.size)?;
        }
        Ok(group)
    }

    /// Pinned memory of the first rank, shared with all ranks; `None` for a single GPU.
    ///
    /// # Errors
    /// When the host pins no such memory, or a rank fails.
    pub(crate) fn pinned(
        &self,
        cuda: &Cuda,
        operation: &'static str,
        n_bytes: usize,
    ) -> Result<Option<SharedPinned>, ComputeError> {
        if self.size == 1 {
            return Ok(None);
        }
        let mine = (self.rank == 0).then(|| Pinned::new(cuda, n_bytes, operation)).transpose()?;
        let of_first = self.hand_out(operation, mine)?.swap_remove(0);
        Ok(Some(SharedPinned { of_first, uses: cuda.device.ending(&cuda.device.stream) }))
    }

    /// Exchanges a value with the other ranks; returns those of all ranks, by rank.
    fn hand_out<T: Send + Sync + 'static>(
        &self,
        operation: &'static str,
        mine: T,
    ) -> Result<Vec<Arc<T>>, ComputeError> {
        match self.peers {
            None => Ok(vec![Arc::new(mine)]),
            Some(peers) => peers
                .hand_out(operation, Arc::new(mine))
                .map_err(|error| ComputeError::device(operation, error.to_string())),
        }
    }

    /// Lets the other GPUs read the memory of this one.
    fn open_memory(&self, cuda: &Cuda, operation: &'static str) -> Result<(), ComputeError> {
        let Some(peers) = self.peers else { return Ok(()) };
        let opened = peers.open_memory(operation, cuda.device.stream.context());
        opened.map_err(|error| ComputeError::device(operation, error.to_string()))
    }
}

/// Fails if rows are sharded over other GPUs than those of this process.
fn check_cards(operation: &'static str, n_cards: usize, n_here: usize) -> Result<(), ComputeError> {
    if n_cards == n_here {
        return Ok(());
    }
    let what = format!(
        "rows are cached on {n_cards} GPUs that read each other's, and this process has {n_here} GPU(s): give `--gpus N`, or a \
         cache with one share (the same rows on every GPU)"
    );
    Err(ComputeError::argument(operation, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_on_cards_of_other_processes_are_refused() {
        assert!(check_cards("rows by id", 2, 2).is_ok());
        assert_eq!(
            check_cards("rows by id", 4, 1).unwrap_err().to_string(),
            "rows by id: rows are cached on 4 GPUs that read each other's, and this process has 1 GPU(s): give `--gpus N`, or \
             a cache with one share (the same rows on every GPU)"
        );
    }
}
