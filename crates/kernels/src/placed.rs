//! [`PlacedRows`]: rows that a placement puts on this card, on others, or in memory of the host (DSP's layout: Cai et al., PPoPP 2023,
//! section 4, with reads of single rows instead of exchanges).
//!
//! ```text
//! host    all rows, pinned: a piece from each rank of the process ─┐
//! cards   copies of the rows that the placement gives them ────────┴─▶ a list of addresses on each card: a word for each row
//! ```
//! Kernels read a row where the list says, whether it lies here, on another card or on the host: one launch reads all of them. Where
//! nothing is on cards and the host has one piece there is no list.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use girih_compute::ComputeError;
use girih_graph_format::NodeId;
use girih_tiers::{Holder, Placement};
use rayon::prelude::*;

use crate::Cuda;
use crate::nccl::Peers;
use crate::pinned::Pinned;

/// Rows that are to be placed.
pub(crate) struct Rows<'a> {
    /// What errors call the operation.
    pub(crate) operation: &'static str,
    pub(crate) n_rows: usize,
    /// Where a row begins if all follow each other, in bytes; that of `n_rows` is where the last one ends.
    pub(crate) offset: &'a (dyn Fn(usize) -> u64 + Sync),
    /// Writes consecutive rows.
    pub(crate) write: &'a (dyn Fn(Range<usize>, &mut [u8]) + Sync),
}

impl Rows<'_> {
    fn n_bytes(&self, row: usize) -> usize {
        ((self.offset)(row + 1) - (self.offset)(row)) as usize
    }
}

/// See the module.
pub(crate) struct PlacedRows {
    on_host: Arc<HostPieces>,
    /// What cards have; empty where none has any.
    _slabs: Vec<Arc<Slab>>,
    addresses: Option<CudaSlice<u64>>,
    stream: Arc<CudaStream>,
}

/// All rows in memory of the host, in pieces that follow each other.
pub(crate) struct HostPieces {
    pieces: Vec<Arc<Pinned>>,
    /// The first row of each piece, and where it begins among all.
    firsts: Vec<(usize, u64)>,
}

/// What a card has.
struct Slab {
    _bytes: Option<CudaSlice<u8>>,
    address: u64,
}

/// The ranks whose cards read each other's rows.
struct Group<'c> {
    rank: usize,
    size: usize,
    /// `None` for a card alone.
    peers: Option<&'c Peers>,
}

impl PlacedRows {
    /// Puts rows where a placement says; all ranks of the process do so together.
    ///
    /// # Errors
    /// When the host pins no memory for the rows, that of a card does not suffice, the placement is for other cards than there are, cards
    /// cannot read each other's memory, or a rank fails.
    pub(crate) fn new(cuda: &Cuda, rows: &Rows<'_>, placement: &Placement) -> Result<Self, ComputeError> {
        let group = Group::of(cuda, rows.operation, placement)?;
        let on_host = Arc::new(HostPieces::new(cuda, rows, &group)?);
        let near = Near::of(placement, group.size);
        let stream = Arc::clone(&cuda.device.stream);
        if near.is_none() && group.size == 1 {
            return Ok(Self { on_host, _slabs: Vec::new(), addresses: None, stream });
        }
        let slab = Slab::new(cuda, rows, &on_host, near.of_card(group.rank))?;
        if group.size > 1 && near.is_read_by_others() {
            group.open_memory(cuda, rows.operation)?;
        }
        let slabs = group.hand_out(rows.operation, slab)?;
        let addresses = cuda.upload_list(rows.operation, &near.addresses(rows, &on_host, &slabs, group.rank))?;
        Ok(Self { on_host, _slabs: slabs, addresses: Some(addresses), stream })
    }

    /// All rows, as the host reads them.
    pub(crate) fn on_host(&self) -> &Arc<HostPieces> {
        &self.on_host
    }

    /// The address of the first row, and that of the list of addresses, one of which is zero.
    pub(crate) fn addresses(&self, cuda: &Cuda) -> (u64, u64) {
        match &self.addresses {
            None => (self.on_host.pieces[0].address(), 0),
            Some(list) => (0, cuda.pointer(Some(list))),
        }
    }
}

impl Drop for PlacedRows {
    /// What the device reads is not given back before it is done.
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

impl HostPieces {
    fn new(cuda: &Cuda, rows: &Rows<'_>, group: &Group<'_>) -> Result<Self, ComputeError> {
        let of_rank = |rank| rows.n_rows * rank / group.size..rows.n_rows * (rank + 1) / group.size;
        let own = of_rank(group.rank);
        let n_bytes = (rows.offset)(own.end) - (rows.offset)(own.start);
        let mut piece = Pinned::new(cuda, n_bytes as usize, rows.operation)?;
        (rows.write)(own, &mut piece.bytes_mut()?[..n_bytes as usize]);
        let firsts = (0..group.size).map(|rank| of_rank(rank).start).map(|first| (first, (rows.offset)(first)));
        Ok(Self { firsts: firsts.collect(), pieces: group.hand_out(rows.operation, piece)? })
    }

    /// The piece of a row, and where in it the row begins that begins at `offset` among all.
    fn place(&self, row: usize, offset: u64) -> (&Pinned, usize) {
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
    fn new(
        cuda: &Cuda,
        rows: &Rows<'_>,
        on_host: &HostPieces,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Result<Self, ComputeError> {
        let mut bytes: Vec<u8> = Vec::new();
        for row in nodes.map(|node| node as usize) {
            bytes.extend_from_slice(on_host.row(row, (rows.offset)(row), rows.n_bytes(row)));
        }
        if bytes.is_empty() {
            return Ok(Self { _bytes: None, address: 0 });
        }
        let bytes = cuda.upload_list(rows.operation, &bytes)?;
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

    fn is_read_by_others(&self) -> bool {
        self.on_one_card.iter().any(|nodes| !nodes.is_empty())
    }

    fn of_card(&self, card: usize) -> impl Iterator<Item = NodeId> + '_ {
        self.on_every_card.iter().chain(&self.on_one_card[card]).copied()
    }

    /// Where a rank reads each row.
    fn addresses(&self, rows: &Rows<'_>, on_host: &HostPieces, slabs: &[Arc<Slab>], rank: usize) -> Vec<u64> {
        let on_host = |row: usize| on_host.address(row, (rows.offset)(row));
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

impl<'c> Group<'c> {
    /// Those that share: the ranks of one process.
    fn of(cuda: &'c Cuda, operation: &'static str, placement: &Placement) -> Result<Self, ComputeError> {
        let peers = cuda.device.peers().filter(|peers| peers.is_one_process());
        let group = peers.map_or(Self { rank: 0, size: 1, peers: None }, |peers| Self {
            rank: peers.rank(),
            size: peers.size(),
            peers: Some(peers),
        });
        let is_spread = placement.spans().iter().any(|span| matches!(span.holder, Holder::Card(_) | Holder::Cards));
        if is_spread && placement.n_cards() != group.size {
            return Err(ComputeError::argument(
                operation,
                format!(
                    "rows are placed on {} cards, each of which reads those of the others, and this process has {} of them; take \
                     the ranks of `--gpus N`, or give every card all that is on cards",
                    placement.n_cards(),
                    group.size
                ),
            ));
        }
        Ok(group)
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
