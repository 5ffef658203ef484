//! [`PlacedRows`]: rows that a placement puts on this card, on others, or in memory of the host (DSP's layout: Cai et
//! al., PPoPP 2023, section 4, with reads of single rows instead of exchanges).
//!
//! ```text
//! host    all rows: a piece from each rank of the process ─────────┐
//! cards   copies of the rows that the placement gives them ────────┴─▶ a list of addresses on each card: a word for each row
//! ```
//! Kernels read a row where the list says, whether it lies here, on another card or, pinned, on the host: one launch
//! reads all of them. Where nothing is on cards and the host has one piece there is no list. Rows that the host brings
//! ([`staged_rows`](crate::staged_rows)) have no address there: the list says zero, and kernels leave them out.

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

/// Rows that a thread of the host copies at a time.
const ROWS_AT_ONCE: usize = 1 << 10;
/// Bytes of rows that are copied on the host before they go to a card, so that the host need not hold all of them a
/// second time.
const PIECE_BYTES: usize = 256 << 20;

/// Rows that are to be placed.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// What errors call the operation.
    pub(crate) operation: &'static str,
    pub(crate) n_rows: usize,
    /// Where a row begins if all follow each other, in bytes; that of `n_rows` is where the last one ends.
    pub(crate) offset: &'a (dyn Fn(usize) -> u64 + Sync),
    /// What marks addresses on the host in the list of them; zero: nothing does.
    pub(crate) mark: u64,
}

impl Rows<'_> {
    fn n_bytes(&self, row: usize) -> usize {
        ((self.offset)(row + 1) - (self.offset)(row)) as usize
    }

    /// How many of the first rows have so many bytes together; one at least.
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

    /// Those of some nodes as `copy` has them, side by side: pieces, which follow each other.
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
/// Reads the rows of some nodes: pieces, which follow each other.
pub(crate) type ReadRows<'a> = &'a mut dyn FnMut(&[NodeId]) -> Result<Vec<Vec<u8>>, ComputeError>;
/// Where the host has a row, for devices.
type AddressOf<'a> = &'a (dyn Fn(usize) -> u64 + Sync);
/// Writes consecutive rows.
pub(crate) type WriteRows<'a> = &'a (dyn Fn(Range<usize>, &mut [u8]) + Sync);

/// See the module.
pub(crate) struct PlacedRows {
    on_host: Arc<HostPieces>,
    /// `None` where all are in one piece on the host.
    on_cards: Option<OnCards>,
    uses: Ending,
}

/// All rows in memory of the host, in pieces that follow each other.
pub(crate) struct HostPieces {
    pieces: Vec<Arc<HostMemory>>,
    /// The first row of each piece, and where it begins among all.
    firsts: Vec<(usize, u64)>,
}

/// Memory of the host, which devices read if it is pinned.
enum HostMemory {
    Pinned(Pinned),
    Plain(Vec<u8>),
}

/// Rows that cards have, and on this one a list of where each row is.
pub(crate) struct OnCards {
    _slabs: Vec<Arc<Slab>>,
    addresses: CudaSlice<u64>,
    /// Whether they are all rows, or none.
    are_all: bool,
    are_none: bool,
    uses: Ending,
}

/// What a card has.
struct Slab {
    _bytes: Option<CudaSlice<u8>>,
    address: u64,
}

/// Pinned memory that ranks of a process share.
pub(crate) struct SharedPinned {
    of_first: Arc<Option<Pinned>>,
    uses: Ending,
}

/// The ranks whose cards read each other's rows, or share what the host has.
pub(crate) struct Group<'c> {
    rank: usize,
    size: usize,
    /// `None` for a card alone.
    peers: Option<&'c Peers>,
}

impl PlacedRows {
    /// Puts rows where a placement says, in pinned memory where that is the host; all ranks of the process do so
    /// together.
    ///
    /// # Errors
    /// When the host pins no memory for the rows, that of a card does not suffice, the placement is for other cards
    /// than there are, cards cannot read each other's memory, or a rank fails.
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

    /// All rows, as the host reads them.
    pub(crate) fn on_host(&self) -> &Arc<HostPieces> {
        &self.on_host
    }

    /// Whether cards have all of them.
    pub(crate) fn are_on_cards(&self) -> bool {
        self.on_cards.as_ref().is_some_and(OnCards::are_all)
    }

    /// Where cards have some of them.
    pub(crate) fn on_cards(&self) -> Option<&OnCards> {
        self.on_cards.as_ref().filter(|on_cards| !on_cards.are_none)
    }

    /// Rows of so many bytes, as a launch reads them.
    pub(crate) fn argument(&self, cuda: &Cuda, row_bytes: u64) -> RowsArgument {
        match &self.on_cards {
            None => RowsArgument::at(self.on_host.pieces[0].address(), row_bytes),
            Some(listed) => RowsArgument::listed(listed.list(cuda), row_bytes),
        }
    }

    /// The address of the first row, and that of the list of addresses, one of which is zero.
    pub(crate) fn addresses(&self, cuda: &Cuda) -> (u64, u64) {
        match &self.on_cards {
            None => (self.on_host.pieces[0].address(), 0),
            Some(listed) => (0, listed.list(cuda)),
        }
    }
}

impl Drop for PlacedRows {
    /// What the device reads is not given back before it is done.
    fn drop(&mut self) {
        self.uses.wait();
    }
}

impl OnCards {
    /// Those that a placement gives to cards, as `read` has them; `None` where it gives them none. All ranks of the
    /// process do so together.
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

    /// Of rows as `read` has them, and with their addresses on the host, if they have any.
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

    /// The address of the list of addresses.
    pub(crate) fn list(&self, cuda: &Cuda) -> u64 {
        cuda.pointer(Some(&self.addresses))
    }

    /// Whether they are all rows.
    pub(crate) fn are_all(&self) -> bool {
        self.are_all
    }
}

impl Drop for OnCards {
    /// As for all rows.
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

    /// Where devices find the first byte; zero where they do not.
    fn address(&self) -> u64 {
        match self {
            Self::Pinned(pinned) => pinned.address(),
            Self::Plain(_) => 0,
        }
    }
}

impl HostPieces {
    /// In pinned memory, of which each rank of a process has a piece.
    fn pinned(cuda: &Cuda, rows: &Rows<'_>, write: WriteRows<'_>, group: &Group<'_>) -> Result<Self, ComputeError> {
        Self::new(rows, group, |own, n_bytes| {
            let mut memory = Pinned::new(cuda, n_bytes, rows.operation)?;
            write(own, &mut memory.bytes_mut()[..n_bytes]);
            Ok(HostMemory::Pinned(memory))
        })
    }

    /// In memory like any other, of which each rank of a process has a piece.
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

    /// The piece of a row, and where in it the row begins that begins at `offset` among all.
    fn place(&self, row: usize, offset: u64) -> (&HostMemory, usize) {
        let at = self.firsts.partition_point(|&(first, _)| first <= row) - 1;
        (&self.pieces[at], (offset - self.firsts[at].1) as usize)
    }

    /// A row of so many bytes.
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
    /// Copies of some rows on the device.
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
        // Others may read it as soon as they know of it.
        cuda.device.wait(rows.operation)?;
        Ok(Self { address: cuda.pointer(Some(&bytes)), _bytes: Some(bytes) })
    }
}

/// The nodes whose rows are on cards, in the order in which they lie there.
struct Near {
    on_every_card: Vec<NodeId>,
    /// Behind these, those of each card alone.
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

    /// How many there are; spans of a placement have no node in common.
    fn len(&self) -> usize {
        self.on_every_card.len() + self.on_one_card.iter().map(Vec::len).sum::<usize>()
    }

    fn is_read_by_others(&self) -> bool {
        self.on_one_card.iter().any(|nodes| !nodes.is_empty())
    }

    fn of_card(&self, card: usize) -> impl Iterator<Item = NodeId> + '_ {
        self.on_every_card.iter().chain(&self.on_one_card[card]).copied()
    }

    /// Where a rank reads each row.
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
    /// As for all rows.
    fn drop(&mut self) {
        self.uses.wait();
    }
}

impl<'c> Group<'c> {
    /// The ranks of one process.
    pub(crate) fn of_process(cuda: &'c Cuda) -> Self {
        let peers = cuda.device.peers().filter(|peers| peers.is_one_process());
        peers.map_or(Self { rank: 0, size: 1, peers: None }, |peers| Self {
            rank: peers.rank(),
            size: peers.size(),
            peers: Some(peers),
        })
    }

    /// Those that share: the ranks of one process.
    pub(crate) fn of(cuda: &'c Cuda, operation: &'static str, placement: &Placement) -> Result<Self, ComputeError> {
        let group = Self::of_process(cuda);
        let is_spread = placement.spans().iter().any(|span| matches!(span.holder, Holder::Card(_) | Holder::Cards));
        if is_spread {
            check_cards(operation, placement.n_cards(), group.size)?;
        }
        Ok(group)
    }

    /// Pinned memory of the first rank, which all of them get; `None` for a card alone.
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

    /// Gives the other ranks something of this one, and gets theirs, in the order of ranks.
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

    /// Lets the other cards read the memory of this one.
    fn open_memory(&self, cuda: &Cuda, operation: &'static str) -> Result<(), ComputeError> {
        let Some(peers) = self.peers else { return Ok(()) };
        let opened = peers.open_memory(operation, cuda.device.stream.context());
        opened.map_err(|error| ComputeError::device(operation, error.to_string()))
    }
}

/// Refuses rows that lie on other cards than those of this process.
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
