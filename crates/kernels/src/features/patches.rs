//! Feature rows of which each rank's GPU holds a patch (Cai et al., DSP, PPoPP 2023, section 4, loader): [`AllToAll`]
//! exchanges them between GPUs, [`reading_others`] has kernels read the memory of all GPUs of the process.
//!
//! ```text
//! asked     ids by their owners                        GPU; the host reads their numbers, and tells the others
//!           ids, then the rows gathered for them       GPU to GPU
//!           rows to their place in the batch           GPU; own rows from where they are
//! in place  rows to their place in the batch           GPU, which reads the memory of all GPUs of the process
//! ```
//! Codes of a code book (paper B) are stored and sent as codes, and decoded as they are written to the batch. All
//! work is beside the previous step.

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaFunction, CudaStream, PushKernelArg};
use girih_comm::CommError;
use girih_compute::{ComputeError, Dtype};
use girih_features::{FeatureStore, PatchRowsOperand};
use girih_graph_format::NodeId;

use super::code_book::CodeBook;
use super::in_place::{IN_DEVICE, InPlace};
use super::request::{Request, StoredRows, Wanted};
use super::row_launch::RowLaunch;
use super::shared::Shared;
use super::store::Store;
use crate::Cuda;
use crate::abi::{BLOCK, GatherIndex, RowSource};
use crate::buffer::Buffer;
use crate::compile::{Defines, Source};
use crate::device::blocks;
use crate::nccl::{ListExchange, Peers, ReceivedList};
use crate::sampling::{OwnerMap, Pieces, failed};

const OPERATION: &str = "rows of patches";
const WORD: u64 = size_of::<NodeId>() as u64;

/// Contiguous rows of a rank's patch, on its GPU.
pub(super) struct LocalRows {
    /// Node of the first row.
    first: NodeId,
    rows: RowSource,
    /// Columns of results, and their element type.
    result: (usize, Dtype),
    /// Table of the codes; `None` for rows that are stored as results.
    book: Option<Arc<CodeBook>>,
    memory: Arc<dyn Any + Send + Sync>,
}

impl LocalRows {
    /// Rows of rank `rank`, between these bounds of patches; `None` for codes that devices do not decode.
    pub(super) fn new(
        cuda: &Cuda,
        own: PatchRowsOperand<'_, Cuda>,
        (bounds, rank): (&[NodeId], usize),
    ) -> Result<Option<Self>, ComputeError> {
        Ok(Some(match own {
            PatchRowsOperand::Dense(rows) => Self {
                first: first_node(bounds, rank, rows.shape.rows)?,
                rows: RowSource::at(cuda.pointer(Some(&rows.data)), (rows.pitch() * rows.dtype.n_bytes()) as u64),
                result: (rows.shape.cols, rows.dtype),
                book: None,
                memory: rows,
            },
            PatchRowsOperand::Codes(codes, dtype) => {
                let Some(book) = CodeBook::upload(cuda, OPERATION, codes, dtype)? else { return Ok(None) };
                let bytes = cuda.upload_list(OPERATION, codes.codes())?;
                Self {
                    first: first_node(bounds, rank, codes.n_rows())?,
                    rows: RowSource::at(cuda.pointer(Some(&bytes)), codes.codec().row_bytes() as u64),
                    result: (book.width, dtype),
                    book: Some(Arc::new(book)),
                    memory: Arc::new(bytes),
                }
            }
        }))
    }

    /// Rows as they are sent, from an address.
    fn rows_at(&self, first: u64) -> RowSource {
        RowSource { first, ..self.rows }
    }

    /// Own rows, indexed by global node id.
    fn own_rows(&self) -> RowSource {
        self.rows_at(self.rows.first.wrapping_sub(u64::from(self.first) * self.rows.row_bytes))
    }

    /// Store of the rows of all ranks, which `rows` reads.
    fn store<S: StoredRows + 'static>(
        &self,
        cuda: &Cuda,
        bounds: &[NodeId],
        rows: S,
    ) -> Result<Box<dyn FeatureStore<Cuda>>, ComputeError> {
        let write = match &self.book {
            None => RowLaunch::copying(cuda, OPERATION, self.result.1)?,
            Some(book) => RowLaunch::decoding(cuda, OPERATION, book)?,
        };
        let n_rows = bounds.last().map_or(0, |&end| end as usize);
        Ok(Box::new(Store::new(cuda, n_rows, self.result, write, rows)?))
    }
}

/// Store for ranks that ask each other. All of them gather together.
pub(super) fn asking_others(
    cuda: &Cuda,
    own: &Arc<LocalRows>,
    bounds: &[NodeId],
    lists: ListExchange,
) -> Result<Box<dyn FeatureStore<Cuda>>, ComputeError> {
    let rows = AllToAll {
        own: Arc::clone(own),
        owners: OwnerMap::new(cuda, lists, bounds)?,
        ask: cuda.variant(OPERATION, Source::SAMPLING_PATCHES, "ask_of_list", &Defines::new())?,
        pick: RowLaunch::copying(cuda, OPERATION, own.result.1)?,
        side: cuda.beside(OPERATION)?,
    };
    own.store(cuda, bounds, rows)
}

/// Store for ranks whose GPUs read each other's memory. These have to be [allowed](Peers::lets_read) to do so before;
/// all ranks call this together.
pub(super) fn reading_others(
    cuda: &Cuda,
    own: &Arc<LocalRows>,
    bounds: &[NodeId],
    peers: &Peers,
) -> Result<Box<dyn FeatureStore<Cuda>>, ComputeError> {
    let patches = Shared::of_all(cuda, OPERATION, peers, (own.rows.first, Arc::clone(&own.memory)))?;
    let row_bytes = own.rows.row_bytes;
    let of_patch = |(shared, bounds): (&Arc<Shared>, &[NodeId])| {
        let first = shared.address;
        (0..u64::from(bounds[1] - bounds[0])).map(move |row| first + row * row_bytes)
    };
    let addresses: Vec<u64> = patches.iter().zip(bounds.windows(2)).flat_map(of_patch).collect();
    let addresses = cuda.upload_list(OPERATION, &addresses)?;
    let source = RowSource::listed(cuda.pointer(Some(&addresses)), row_bytes);
    own.store(cuda, bounds, InPlace::resident(source, (addresses, patches)))
}

/// Rows that ranks ask each other for; see the module.
struct AllToAll {
    own: Arc<LocalRows>,
    owners: OwnerMap,
    ask: CudaFunction,
    /// Gathers rows, as they are stored, into the send buffer.
    pick: RowLaunch,
    /// Device with the stream of the exchange.
    side: Cuda,
}

impl AllToAll {
    /// Puts work on the side stream that brings `n` rows by ids at an address; all ranks call this together.
    fn bring(&self, (ids, n): (u64, u64), to: u64, write: &RowLaunch) -> Result<(), ComputeError> {
        let (side, lists) = (&self.side, &self.owners.lists);
        let (stream, rank) = (&side.device.stream, lists.rank);
        let questions = self.owners.questions(side, n)?;
        let places: Buffer<u32> = side.scratch(OPERATION, questions.len())?;
        let argument = self.owners.asking(side, &questions, (0, side.pointer(Some(&places))));
        let mut launch = stream.launch_builder(&self.ask);
        launch.arg(&ids).arg(&n).arg(&argument);
        // SAFETY: ids are nodes, and there is a thread, a question and a position for each.
        unsafe { launch.launch(blocks(n.div_ceil(u64::from(BLOCK)), BLOCK)) }.map_err(Cuda::failed(OPERATION))?;
        let mine: Vec<[u64; 1]> = questions.counts(side)?.into_iter().map(|[nodes, _]| [nodes]).collect();
        let theirs = lists.tell(OPERATION, &mine).map_err(|error| failed(&error))?;
        let row_bytes = self.own.rows.row_bytes;
        // Own rows are not sent.
        let asked: Pieces<NodeId> = Pieces::of_others(side, theirs.iter().map(|&[n]| n), rank)?;
        let picked: Pieces<u8> = Pieces::of_others(side, theirs.iter().map(|[n]| n * row_bytes), rank)?;
        let arrived: Pieces<u8> = Pieces::of_others(side, mine.iter().map(|[n]| n * row_bytes), rank)?;
        let listed = |at: &dyn Fn(usize) -> u64, counts: &[[u64; 1]], bytes: u64| -> Vec<ReceivedList> {
            let list = |other| ReceivedList { rank: other, address: at(other), n_bytes: counts[other][0] * bytes };
            lists.of_others(list).collect()
        };
        let swap = |sent: Vec<ReceivedList>, received: Vec<ReceivedList>| {
            // SAFETY: both sides were told the lengths; lists are freed in the order of the stream.
            unsafe { lists.swap(OPERATION, stream, &sent, &received) }.map_err(|error: CommError| failed(&error))
        };
        let question = |other: usize| questions.at(side, other);
        let place_of = |other: usize| side.pointer(Some(&places)) + other as u64 * questions.stride * WORD;
        swap(listed(&question, &mine, WORD), listed(&|other| asked.at(side, other), &theirs, WORD))?;
        let own_rows = self.own.own_rows();
        self.put(&self.pick, own_rows, GatherIndex::of(asked.at(side, 0)), (picked.at(side, 0), asked.len()))?;
        let own_names = GatherIndex::of_at(question(rank), place_of(rank));
        self.put(write, own_rows, own_names, (to, mine[rank][0]))?;
        swap(
            listed(&|other| picked.at(side, other), &theirs, row_bytes),
            listed(&|other| arrived.at(side, other), &mine, row_bytes),
        )?;
        for other in lists.of_others(|other| other) {
            let rows = self.own.rows_at(arrived.at(side, other));
            self.put(write, rows, GatherIndex::at(place_of(other)), (to, mine[other][0]))?;
        }
        Ok(())
    }

    /// Writes `n` rows to a result.
    fn put(
        &self,
        launch: &RowLaunch,
        rows: RowSource,
        names: GatherIndex,
        (to, n): (u64, u64),
    ) -> Result<(), ComputeError> {
        if n == 0 {
            return Ok(());
        }
        // SAFETY: ids were checked, and the requested ones are own rows; places are rows of the result, and there is
        // space for a row of each; positions in codes are columns, as the owner of the rows vouches.
        unsafe { launch.put(&self.side.device.stream, IN_DEVICE, rows, names, (to, n)) }
            .map_err(Cuda::failed(OPERATION))
    }
}

impl StoredRows for AllToAll {
    /// Event behind the exchange.
    type Pending = CudaEvent;

    unsafe fn gather_async(&self, _: &Cuda, request: &Request<'_>) -> Result<CudaEvent, ComputeError> {
        let Wanted::All(ids, n) = request.wanted else { unreachable!("no cache is around an exchange of GPUs") };
        let (stream, failed) = (&self.side.device.stream, Cuda::failed(OPERATION));
        stream.join(request.stream).map_err(&failed)?;
        self.bring((ids, n as u64), request.to, request.write)?;
        stream.record_event(None).map_err(failed)
    }

    fn wait(&self, stream: &Arc<CudaStream>, _: Option<&Request<'_>>, brought: CudaEvent) -> Result<(), ComputeError> {
        stream.wait(&brought).map_err(Cuda::failed(OPERATION))
    }
}

impl Drop for AllToAll {
    fn drop(&mut self) {
        // Own rows, which pending work reads, are freed after this; a rank that has failed is not waited for.
        let _ = self.side.wait(OPERATION);
    }
}

/// First node of a rank with `n_rows` rows, between bounds of patches.
///
/// # Errors
/// When the rank has no patch, or its patch another number of nodes.
fn first_node(bounds: &[NodeId], rank: usize, n_rows: usize) -> Result<NodeId, ComputeError> {
    let own = bounds.get(rank..rank + 2).map(|bounds| (bounds[0], bounds[1].saturating_sub(bounds[0]) as usize));
    let n_nodes = own.map_or(0, |(_, n)| n);
    own.filter(|_| n_nodes == n_rows).map(|(first, _)| first).ok_or_else(|| {
        let what = format!("rank {rank} has {n_rows} feature rows for its {n_nodes} nodes");
        ComputeError::argument(OPERATION, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_a_row_for_each_node_of_its_patch() {
        assert_eq!(first_node(&[0, 4, 9], 1, 5).unwrap(), 4);
        for (rank, n_nodes) in [(0, 4), (2, 0)] {
            let expected = format!("rows of patches: rank {rank} has 5 feature rows for its {n_nodes} nodes");
            assert_eq!(first_node(&[0, 4, 9], rank, 5).unwrap_err().to_string(), expected);
        }
    }
}
