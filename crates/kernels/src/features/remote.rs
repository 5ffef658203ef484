//! [`RemoteFeatures`]: feature rows of which each rank's GPU holds a patch, exchanged between GPUs (Cai et al., DSP, PPoPP
//! 2023, section 4, loader).
//!
//! ```text
//! asked     ids by their owners                        GPU; the host reads their numbers, and tells the others
//!           ids, then the rows gathered for them       GPU to GPU
//!           rows to their place in the batch           GPU; own rows from where they are
//! in place  rows to their place in the batch           GPU, which reads the memory of all GPUs of the process
//! ```
//! Codes of a code book (paper B) are stored and sent as codes, and decoded as they are written to the batch. All
//! work is on a stream of its own, beside the previous step.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaEvent, CudaFunction, CudaSlice, PushKernelArg};
use girih_comm::CommError;
use girih_compute::{ComputeError, Dtype, Shape, checks};
use girih_features::{FeatureStore, PatchRowsOperand};
use girih_graph_format::NodeId;

use super::code_book::CodeBook;
use super::row_checks::check_dtypes;
use super::row_launch::RowLaunch;
use super::shared::Shared;
use crate::Cuda;
use crate::abi::{BLOCK, GatherIndex, RowSource};
use crate::compile::{Defines, Source};
use crate::device::blocks;
use crate::matrix::{CudaIds, CudaMatrix};
use crate::nccl::{ListExchange, Peers, ReceivedList};
use crate::sampling::{OwnerMap, Pieces, failed};

const OPERATION: &str = "rows of patches";
/// Blocks, and threads of each, of copies of rows within a GPU.
const IN_DEVICE: (u32, u32) = (132 * 8, BLOCK);
const WORD: u64 = size_of::<NodeId>() as u64;

/// Reader of the rows of all patches; see the module.
pub(crate) struct RemoteFeatures {
    own: Arc<LocalRows>,
    n_rows: usize,
    way: RemoteAccess,
    /// Device with the stream of the exchange.
    side: Cuda,
    /// Writes rows to the result, decoded if they are codes.
    put: RowLaunch,
    /// Events behind the pending requests, the oldest first.
    begun: Mutex<VecDeque<CudaEvent>>,
}

/// Contiguous rows of a rank's patch.
pub(crate) struct LocalRows {
    /// Node of the first row.
    first: NodeId,
    stored: Stored,
}

enum Stored {
    Dense(Arc<CudaMatrix>),
    Codes { bytes: CudaSlice<u8>, row_bytes: u64, book: CodeBook },
}

/// Access to the rows of other ranks.
enum RemoteAccess {
    Asked(RemoteRequest),
    /// Reads of all rows by their addresses.
    InPlace {
        addresses: CudaSlice<u64>,
        _patches: Vec<Arc<Shared>>,
    },
}

/// Request to owners, and its answer.
struct RemoteRequest {
    owners: OwnerMap,
    ask: CudaFunction,
    /// Gathers rows, as they are stored, into the send buffer.
    pick: RowLaunch,
}

impl LocalRows {
    /// Rows of rank `rank`, between these bounds of patches; `None` for codes that devices do not decode.
    pub(crate) fn new(
        cuda: &Cuda,
        own: PatchRowsOperand<'_, Cuda>,
        (bounds, rank): (&[NodeId], usize),
    ) -> Result<Option<Self>, ComputeError> {
        let (found, stored) = match own {
            PatchRowsOperand::Dense(rows) => (rows.shape.rows, Stored::Dense(rows)),
            PatchRowsOperand::Codes(codes, dtype) => {
                let Some(book) = CodeBook::upload(cuda, OPERATION, codes, dtype)? else { return Ok(None) };
                let bytes = cuda.upload_list(OPERATION, codes.codes())?;
                (codes.n_rows(), Stored::Codes { bytes, row_bytes: codes.codec().row_bytes() as u64, book })
            }
        };
        Ok(Some(Self { first: first_node(bounds, rank, found)?, stored }))
    }

    fn address(&self, cuda: &Cuda) -> u64 {
        match &self.stored {
            Stored::Dense(rows) => cuda.pointer(Some(&rows.data)),
            Stored::Codes { bytes, .. } => cuda.pointer(Some(bytes)),
        }
    }

    /// Bytes from row to row, as they are sent.
    fn row_bytes(&self) -> u64 {
        match &self.stored {
            Stored::Dense(rows) => (rows.pitch() * rows.dtype.n_bytes()) as u64,
            Stored::Codes { row_bytes, .. } => *row_bytes,
        }
    }

    /// Columns of results, and their element type.
    fn result(&self) -> (usize, Dtype) {
        match &self.stored {
            Stored::Dense(rows) => (rows.shape.cols, rows.dtype),
            Stored::Codes { book, .. } => (book.width, book.dtype),
        }
    }

    /// Launch that writes rows to the result.
    fn launch(&self, cuda: &Cuda) -> Result<RowLaunch, ComputeError> {
        match &self.stored {
            Stored::Dense(rows) => RowLaunch::copying(cuda, OPERATION, rows.dtype),
            Stored::Codes { book, .. } => RowLaunch::decoding(cuda, OPERATION, book),
        }
    }

    /// Contiguous rows from an address.
    fn rows_at(&self, first: u64) -> RowSource {
        RowSource::at(first, self.row_bytes())
    }

    /// Own rows, indexed by global node id.
    fn own_rows(&self, cuda: &Cuda) -> RowSource {
        self.rows_at(self.address(cuda).wrapping_sub(u64::from(self.first) * self.row_bytes()))
    }
}

impl RemoteFeatures {
    /// [`Collective::remote_features`](girih_comm::Collective::remote_features) for ranks that ask each other.
    pub(crate) fn asking_others(
        cuda: &Cuda,
        own: &Arc<LocalRows>,
        bounds: &[NodeId],
        lists: ListExchange,
    ) -> Result<Self, ComputeError> {
        let asking = RemoteRequest {
            owners: OwnerMap::new(cuda, lists, bounds)?,
            ask: cuda.variant(OPERATION, Source::SAMPLING_PATCHES, "ask_of_list", &Defines::new())?,
            pick: RowLaunch::copying(cuda, OPERATION, own.result().1)?,
        };
        Self::new(cuda, own, bounds, RemoteAccess::Asked(asking))
    }

    /// As [`asking_others`](Self::asking_others), but for ranks whose GPUs read each other's memory. These have to be
    /// [allowed](Peers::lets_read) to do so before; all ranks call this together.
    pub(crate) fn reading_others(
        cuda: &Cuda,
        own: &Arc<LocalRows>,
        bounds: &[NodeId],
        peers: &Peers,
    ) -> Result<Self, ComputeError> {
        let patches = Shared::of_all(cuda, OPERATION, peers, (own.address(cuda), Arc::clone(own) as _))?;
        let row_bytes = own.row_bytes();
        let of_patch = |(shared, bounds): (&Arc<Shared>, &[NodeId])| {
            let first = shared.address;
            (0..u64::from(bounds[1] - bounds[0])).map(move |row| first + row * row_bytes)
        };
        let addresses: Vec<u64> = patches.iter().zip(bounds.windows(2)).flat_map(of_patch).collect();
        let addresses = cuda.upload_list(OPERATION, &addresses)?;
        Self::new(cuda, own, bounds, RemoteAccess::InPlace { addresses, _patches: patches })
    }

    fn new(cuda: &Cuda, own: &Arc<LocalRows>, bounds: &[NodeId], way: RemoteAccess) -> Result<Self, ComputeError> {
        Ok(Self {
            put: own.launch(cuda)?,
            own: Arc::clone(own),
            n_rows: bounds.last().map_or(0, |&end| end as usize),
            way,
            side: cuda.beside(OPERATION)?,
            begun: Mutex::default(),
        })
    }

    fn begun(&self) -> MutexGuard<'_, VecDeque<CudaEvent>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, ids: &CudaIds, out: &CudaMatrix) -> Result<(), ComputeError> {
        let (cols, dtype) = self.own.result();
        checks::gather_rows(Shape::new(self.n_rows, cols), ids.range, out.shape)?;
        check_dtypes(OPERATION, dtype, out.dtype)
    }

    /// Puts work on the side stream that brings the rows of `ids` to `out`.
    fn bring(&self, ids: &CudaIds, out: u64) -> Result<(), ComputeError> {
        match &self.way {
            RemoteAccess::Asked(asking) => self.bring_asked(asking, ids, out),
            RemoteAccess::InPlace { addresses, .. } => {
                let rows = RowSource::listed(self.side.pointer(Some(addresses)), self.own.row_bytes());
                let names = GatherIndex::of(self.side.pointer(Some(&ids.ids)));
                self.put(&self.put, rows, names, (out, ids.range.len as u64))
            }
        }
    }

    /// As [`bring`](Self::bring), but asks the owners; all ranks call this together.
    fn bring_asked(&self, asking: &RemoteRequest, ids: &CudaIds, out: u64) -> Result<(), ComputeError> {
        let (side, n, lists) = (&self.side, ids.range.len as u64, &asking.owners.lists);
        let (stream, rank) = (&side.device.stream, lists.rank());
        let questions = asking.owners.questions(side, n)?;
        let places: CudaSlice<u32> = side.scratch(OPERATION, questions.len())?;
        let argument = asking.owners.asking(side, &questions, (0, side.pointer(Some(&places))));
        let mut launch = stream.launch_builder(&asking.ask);
        launch.arg(&ids.ids).arg(&n).arg(&argument);
        // SAFETY: ids are nodes, and there is a thread, a question and a position for each.
        unsafe { launch.launch(blocks(n.div_ceil(u64::from(BLOCK)), BLOCK)) }.map_err(Cuda::failed(OPERATION))?;
        let mine: Vec<[u64; 1]> = questions.counts(side)?.into_iter().map(|[nodes, _]| [nodes]).collect();
        let theirs = lists.tell(OPERATION, &mine).map_err(|error| failed(&error))?;
        let row_bytes = self.own.row_bytes();
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
        let own_rows = self.own.own_rows(side);
        self.put(&asking.pick, own_rows, GatherIndex::of(asked.at(side, 0)), (picked.at(side, 0), asked.len()))?;
        let own_names = GatherIndex::of_at(question(rank), place_of(rank));
        self.put(&self.put, own_rows, own_names, (out, mine[rank][0]))?;
        swap(
            listed(&|other| picked.at(side, other), &theirs, row_bytes),
            listed(&|other| arrived.at(side, other), &mine, row_bytes),
        )?;
        for other in lists.of_others(|other| other) {
            let rows = self.own.rows_at(arrived.at(side, other));
            self.put(&self.put, rows, GatherIndex::at(place_of(other)), (out, mine[other][0]))?;
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
        // space for a row of each; positions in codes are columns, as the caller of `remote_features` vouches.
        unsafe { launch.put(&self.side.device.stream, IN_DEVICE, rows, names, (to, n)) }
            .map_err(Cuda::failed(OPERATION))
    }
}

impl FeatureStore<Cuda> for RemoteFeatures {
    fn gather(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.begin(cuda, ids, None, out)?;
        while !self.begun().is_empty() {
            self.finish(cuda)?;
        }
        Ok(())
    }

    fn begin(
        &self,
        cuda: &Cuda,
        ids: &CudaIds,
        _before: Option<(&CudaIds, &CudaMatrix)>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        self.check(ids, out)?;
        let stream = &self.side.device.stream;
        stream.join(&cuda.device.stream).map_err(Cuda::failed(OPERATION))?;
        self.bring(ids, cuda.pointer(Some(&out.data)))?;
        let event = stream.record_event(None).map_err(Cuda::failed(OPERATION))?;
        self.begun().push_back(event);
        Ok(())
    }

    fn finish(&self, cuda: &Cuda) -> Result<(), ComputeError> {
        let Some(brought) = self.begun().pop_front() else { return Ok(()) };
        cuda.device.stream.wait(&brought).map_err(Cuda::failed(OPERATION))
    }
}

impl Drop for RemoteFeatures {
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
