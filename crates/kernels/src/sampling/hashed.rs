//! [`Hashed`]: local ids by a hash table, `cuda/sampling_hashed.cu`.

use cudarc::driver::{CudaFunction, PushKernelArg, sys};
use girih_compute::ComputeError;

use super::batch::{EDGE_TILE, HopTiles};
use super::launch::Launches;
use super::{Capacities, OPERATION};
use crate::Cuda;
use crate::abi::sampling as arguments;
use crate::buffer::Buffer;
use crate::compile::{Defines, Source};
use crate::device::{blocks, threads_for};

/// Hash table with a slot for each node of a batch.
pub(super) struct Hashed {
    /// Keys, first edges and places of all slots.
    words: Buffer<u32>,
    n_slots: usize,
    begin: CudaFunction,
    insert: CudaFunction,
    list: CudaFunction,
    number: CudaFunction,
    empty: CudaFunction,
}

impl Hashed {
    /// Allocates a table for batches no larger than `largest`.
    ///
    /// # Errors
    /// When batches may have more edges than a word counts, or the memory of the device does not suffice.
    pub(super) fn new(cuda: &Cuda, largest: &Capacities) -> Result<Self, ComputeError> {
        let n_slots = n_slots(largest)?;
        let kernel = |name| cuda.variant(OPERATION, Source::SAMPLING_HASHED, name, &Defines::new());
        Ok(Self {
            words: cuda.scratch(OPERATION, 3 * n_slots)?,
            n_slots,
            begin: kernel("begin_hashed")?,
            insert: kernel("insert_sources")?,
            list: kernel("list_first")?,
            number: kernel("number_edges")?,
            empty: kernel("empty_table")?,
        })
    }

    pub(super) fn clear(&mut self, cuda: &Cuda) -> Result<(), ComputeError> {
        let stream = &cuda.device.stream;
        stream.context().bind_to_thread().map_err(Cuda::failed(OPERATION))?;
        let (at, n) = (cuda.pointer(Some(&self.words)), self.words.len());
        // SAFETY: so many words are there, and nobody else uses them.
        let result = unsafe { sys::cuMemsetD32Async(at, u32::MAX, n, stream.cu_stream()) };
        result.result().map_err(Cuda::failed(OPERATION))
    }

    fn table(&self, cuda: &Cuda) -> arguments::Table {
        let keys = cuda.pointer(Some(&self.words));
        let of_list = (self.n_slots * size_of::<u32>()) as u64;
        let (firsts, places) = (keys + of_list, keys + 2 * of_list);
        arguments::Table { keys, firsts, places, mask: self.n_slots as u64 - 1 }
    }

    pub(super) unsafe fn begin(&self, launches: &Launches<'_>, n_tiles: u64) -> Result<(), ComputeError> {
        let (cuda, batch, control) = (launches.cuda, launches.batch, launches.control());
        let (seeds, nodes, table) = (batch.seeds_at(cuda), cuda.pointer(Some(&batch.nodes)), self.table(cuda));
        let ((of_seeds, _), tiles) = (batch.slots_at(cuda), launches.tiles_at(0));
        let config = threads_for(batch.capacities.nodes[0].max(n_tiles) as usize);
        let mut launch = cuda.device.stream.launch_builder(&self.begin);
        launch.arg(&control).arg(&seeds).arg(&nodes).arg(&table).arg(&of_seeds).arg(&tiles).arg(&n_tiles);
        // SAFETY: there is space for each seed and its slot, and so many words for tiles; the caller vouches for the
        // rest.
        unsafe { launch.launch(config) }.map(drop).map_err(Cuda::failed(OPERATION))
    }

    pub(super) unsafe fn settle(
        &self,
        launches: &Launches<'_>,
        hop: usize,
        tiles: HopTiles,
    ) -> Result<(), ComputeError> {
        let (cuda, batch, control, at) = (launches.cuda, launches.batch, launches.control(), hop as u64);
        let (sources, (_, of_edges)) = (cuda.pointer(Some(&batch.sources)), batch.slots_at(cuda));
        let (table, nodes, tiles) =
            (self.table(cuda), cuda.pointer(Some(&batch.nodes)), launches.tiles_at(tiles.settle));
        let (edges, most) = (batch.capacities.edges, batch.capacities.nodes[hop + 1]);
        let mut launch = cuda.device.stream.launch_builder(&self.insert);
        launch.arg(&control).arg(&at).arg(&sources).arg(&table).arg(&of_edges);
        // SAFETY: there is a slot for each edge, and the table has space for all nodes of the largest batch; the
        // caller vouches for the rest.
        unsafe { launch.launch(threads_for(edges as usize)) }.map_err(Cuda::failed(OPERATION))?;

        let mut launch = cuda.device.stream.launch_builder(&self.list);
        launch.arg(&control).arg(&at).arg(&sources).arg(&table).arg(&of_edges).arg(&nodes).arg(&tiles).arg(&most);
        // SAFETY: there is a block for each tile of edges, and a word of `tiles` for it; nodes beyond the capacity are
        // not written; the caller vouches for the rest.
        unsafe { launch.launch(blocks(edges.div_ceil(EDGE_TILE), EDGE_TILE as u32)) }
            .map(drop)
            .map_err(Cuda::failed(OPERATION))
    }

    pub(super) unsafe fn finish(&self, launches: &Launches<'_>, n_local: u64) -> Result<(), ComputeError> {
        let (cuda, batch, control, table) =
            (launches.cuda, launches.batch, launches.control(), self.table(launches.cuda));
        let ((of_seeds, of_edges), columns) = (batch.slots_at(cuda), batch.columns_at(cuda));
        let config = threads_for((batch.capacities.edges + batch.capacities.nodes[0]) as usize);
        let mut launch = cuda.device.stream.launch_builder(&self.number);
        launch.arg(&control).arg(&n_local).arg(&table).arg(&of_edges).arg(&columns);
        // SAFETY: each edge of these hops has a slot, and space for its local id; the caller vouches for the rest.
        unsafe { launch.launch(config) }.map_err(Cuda::failed(OPERATION))?;
        let mut launch = cuda.device.stream.launch_builder(&self.empty);
        launch.arg(&control).arg(&n_local).arg(&table).arg(&of_seeds).arg(&of_edges);
        // SAFETY: as above, and each seed has a slot.
        unsafe { launch.launch(config) }.map(drop).map_err(Cuda::failed(OPERATION))
    }
}

/// Number of slots of a table that is at most half full.
///
/// # Errors
/// When 32 bits do not count the edges.
fn n_slots(largest: &Capacities) -> Result<usize, ComputeError> {
    if largest.edges >= u64::from(u32::MAX) {
        let what = format!(
            "batches have up to {} edges, more than the table of new nodes can number (2^32): give a smaller --batch-size or \
             --fanout, or number new nodes by id",
            largest.edges
        );
        return Err(ComputeError::argument(OPERATION, what));
    }
    let nodes = largest.nodes.iter().max().copied().unwrap_or(0);
    Ok((2 * nodes as usize).max(1).next_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_at_most_half_full() {
        let slots = |nodes: &[u64], edges| n_slots(&Capacities { nodes: nodes.to_vec(), edges });
        assert_eq!(slots(&[0], 0).unwrap(), 1);
        assert_eq!(slots(&[10, 100, 1000], 5000).unwrap(), 2048);
        assert_eq!(slots(&[10, 1024, 10], 5000).unwrap(), 2048);
        assert_eq!(
            slots(&[10], 1 << 32).unwrap_err().to_string(),
            "sampling on the device: batches have up to 4294967296 edges, more than the table of new nodes can number (2^32): give a \
             smaller --batch-size or --fanout, or number new nodes by id"
        );
    }
}
