//! [`DeviceCache`]: copies of rows on GPUs, and the list of the addresses of all rows.

use std::sync::Arc;

use girih_compute::ComputeError;
use girih_features::{Holder, Placement};
use girih_graph_format::NodeId;
use rayon::prelude::*;

use super::group::Group;
use super::request::address;
use super::uva::{AddressOf, ReadRows, Rows};
use crate::Cuda;
use crate::buffer::Buffer;
use crate::nccl::OwnedStream;

/// Bytes of rows that the host copies before it sends them to a GPU. The limit avoids a second copy of all rows on
/// the host.
const PIECE_BYTES: usize = 256 << 20;

/// Rows that GPUs hold, and the list of row addresses on this GPU.
pub(crate) struct DeviceCache {
    _slabs: Vec<Arc<CacheShard>>,
    addresses: Buffer<u64>,
    /// Whether GPUs hold all rows.
    are_all: bool,
    /// Whether GPUs hold no row.
    pub(super) are_none: bool,
    uses: OwnedStream,
}

/// Rows that one GPU holds.
pub(super) struct CacheShard {
    _bytes: Option<Buffer<u8>>,
    /// Address of the first row; the rows are contiguous.
    pub(super) address: u64,
}

impl DeviceCache {
    /// Copies the rows that a placement gives to GPUs; host rows get no address. `None` if it gives them no row. All
    /// ranks of the process call this together.
    ///
    /// # Errors
    /// As [`UvaTable::new`](super::uva::UvaTable::new), but for memory of the host.
    pub(crate) fn beside_host(
        cuda: &Cuda,
        rows: &Rows<'_>,
        read: ReadRows<'_>,
        (placement, group): (&Placement, &Group<'_>),
    ) -> Result<Option<Arc<Self>>, ComputeError> {
        let near = CachedNodes::of(placement, group.size);
        let nowhere = |_| 0;
        (!near.is_none()).then(|| Self::new(cuda, rows, (read, &nowhere), &near, group).map(Arc::new)).transpose()
    }

    /// Copies rows to the GPU by `read`, and lists all addresses; `on_host` gives those on the host, or zero.
    pub(super) fn new(
        cuda: &Cuda,
        rows: &Rows<'_>,
        (read, on_host): (ReadRows<'_>, AddressOf<'_>),
        near: &CachedNodes,
        group: &Group<'_>,
    ) -> Result<Self, ComputeError> {
        let slab = CacheShard::new(cuda, rows, read, &near.of_gpu(group.rank).collect::<Vec<_>>())?;
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
            uses: cuda.ending(&cuda.device.stream),
        })
    }

    /// Address of the list of addresses, on the device.
    pub(crate) fn list(&self) -> u64 {
        address(&self.addresses)
    }

    /// Whether GPUs hold all rows.
    pub(crate) fn are_all(&self) -> bool {
        self.are_all
    }
}

impl Drop for DeviceCache {
    /// Waits until the device no longer reads the memory.
    fn drop(&mut self) {
        self.uses.wait();
    }
}

impl CacheShard {
    /// Copies the rows of `nodes` to the device, piece by piece.
    pub(super) fn new(
        cuda: &Cuda,
        rows: &Rows<'_>,
        read: ReadRows<'_>,
        nodes: &[NodeId],
    ) -> Result<Self, ComputeError> {
        let n_bytes = nodes.iter().map(|&node| rows.n_bytes(node as usize)).sum();
        if n_bytes == 0 {
            return Ok(Self { _bytes: None, address: 0 });
        }
        let mut bytes: Buffer<u8> = cuda.scratch(rows.operation, n_bytes)?;
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
        cuda.wait(rows.operation)?;
        Ok(Self { address: cuda.pointer(Some(&bytes)), _bytes: Some(bytes) })
    }
}

/// Nodes whose rows are on GPUs, in the order in which they lie there.
pub(super) struct CachedNodes {
    on_every_gpu: Vec<NodeId>,
    /// Nodes on one GPU only, by GPU; their rows follow those of every GPU.
    on_one_gpu: Vec<Vec<NodeId>>,
}

impl CachedNodes {
    /// Nodes that a placement gives to each of `n_gpus` GPUs.
    pub(super) fn of(placement: &Placement, n_gpus: usize) -> Self {
        let mut near = Self { on_every_gpu: Vec::new(), on_one_gpu: vec![Vec::new(); n_gpus] };
        for span in placement.spans() {
            let nodes = span.positions.clone().map(|position| placement.node(position));
            match span.holder {
                Holder::EveryGpu => near.on_every_gpu.extend(nodes),
                Holder::Gpu(gpu) => near.on_one_gpu[gpu as usize].extend(nodes),
                Holder::Gpus => nodes.enumerate().for_each(|(at, node)| near.on_one_gpu[at % n_gpus].push(node)),
                Holder::Host | Holder::Disk => {}
            }
        }
        near
    }

    /// Whether no row is on a GPU.
    pub(super) fn is_none(&self) -> bool {
        self.on_every_gpu.is_empty() && !self.is_read_by_others()
    }

    /// Number of nodes; spans of a placement are disjoint.
    fn len(&self) -> usize {
        self.on_every_gpu.len() + self.on_one_gpu.iter().map(Vec::len).sum::<usize>()
    }

    /// Whether some rows are on one GPU only, where the others read them.
    fn is_read_by_others(&self) -> bool {
        self.on_one_gpu.iter().any(|nodes| !nodes.is_empty())
    }

    /// Nodes whose rows a GPU holds, in order.
    fn of_gpu(&self, gpu: usize) -> impl Iterator<Item = NodeId> + '_ {
        self.on_every_gpu.iter().chain(&self.on_one_gpu[gpu]).copied()
    }

    /// Address at which `rank` reads each row.
    fn addresses(&self, rows: &Rows<'_>, on_host: AddressOf<'_>, slabs: &[Arc<CacheShard>], rank: usize) -> Vec<u64> {
        let mut addresses: Vec<u64> = (0..rows.n_rows).into_par_iter().map(on_host).collect();
        let mut place = |nodes: &[NodeId], mut address: u64| {
            for row in nodes.iter().map(|&node| node as usize) {
                addresses[row] = address;
                address += rows.n_bytes(row) as u64;
            }
        };
        let before: u64 = self.on_every_gpu.iter().map(|&node| rows.n_bytes(node as usize) as u64).sum();
        place(&self.on_every_gpu, slabs[rank].address);
        for (nodes, slab) in self.on_one_gpu.iter().zip(slabs) {
            place(nodes, slab.address + before);
        }
        addresses
    }
}
