//! [`PatchRows`]: rows of features of which every rank's card has those of a patch, brought from card to card (Cai et al., DSP, PPoPP 2023,
//! section 4, loader).
//!
//! ```text
//! ask     ids by their owners                        card; the host reads how many, and tells the others
//! send    ids, then rows that were picked for them   card to card
//! put     rows where the batch wants them            card; own rows from where they are
//! ```
//! Codes of a code book (paper B) lie, are sent and arrive as codes, and are decoded as they are put.
//! All of it on a stream of its own, beside the step before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaEvent, CudaFunction, CudaSlice, PushKernelArg};
use girih_compute::{ComputeError, Dtype, PatchRowsOperand, RowReader, Shape, checks};
use girih_graph_format::NodeId;

use crate::Cuda;
use crate::code_book::CodeBook;
use crate::compile::{Defines, Source};
use crate::device::BLOCK;
use crate::matrix::{CudaIds, CudaMatrix};
use crate::nccl::{Lists, Swapped};
use crate::row_launch::{Names, RowLaunch, RowsArgument};
use crate::sampling::{Owners, Pieces, blocks, failed};

const OPERATION: &str = "rows of patches";
/// Blocks, and threads of each, of what copies rows on a card.
const IN_DEVICE: (u32, u32) = (132 * 8, BLOCK);

/// See the module.
pub(crate) struct PatchRows {
    own: Own,
    /// The node of the first of them.
    first: NodeId,
    n_rows: usize,
    owners: Owners,
    /// The device, where rows are brought.
    side: Cuda,
    ask: CudaFunction,
    /// Takes rows as they are stored to where they are sent from.
    pick: RowLaunch,
    /// Takes them to where they are wanted, decoded if they are codes.
    put: RowLaunch,
    /// Recorded behind what was begun and not finished, the oldest first.
    begun: Mutex<VecDeque<CudaEvent>>,
}

/// Rows of this rank's patch, one after the other.
enum Own {
    Dense(Arc<CudaMatrix>),
    Codes { bytes: CudaSlice<u8>, row_bytes: u64, book: CodeBook },
}

impl Own {
    fn address(&self, cuda: &Cuda) -> u64 {
        match self {
            Self::Dense(rows) => cuda.pointer(Some(&rows.data)),
            Self::Codes { bytes, .. } => cuda.pointer(Some(bytes)),
        }
    }

    /// Bytes from row to row, as they travel.
    fn row_bytes(&self) -> u64 {
        match self {
            Self::Dense(rows) => (rows.pitch() * rows.dtype.n_bytes()) as u64,
            Self::Codes { row_bytes, .. } => *row_bytes,
        }
    }

    /// Columns of results, and how they are stored.
    fn result(&self) -> (usize, Dtype) {
        match self {
            Self::Dense(rows) => (rows.shape.cols, rows.dtype),
            Self::Codes { book, .. } => (book.width, book.dtype),
        }
    }
}

impl PatchRows {
    /// [`Collective::patch_rows`](girih_comm::Collective::patch_rows): dense rows, and codes of a code book.
    pub(crate) fn new(
        cuda: &Cuda,
        own: PatchRowsOperand<'_, Cuda>,
        bounds: &[NodeId],
        lists: Lists,
    ) -> Result<Option<Self>, ComputeError> {
        let rank = lists.rank();
        let owners = Owners::new(cuda, lists, bounds)?;
        let (n_own, n_rows) = ((bounds[rank + 1] - bounds[rank]) as usize, bounds[bounds.len() - 1] as usize);
        let (found, own, put) = match own {
            PatchRowsOperand::Dense(rows) => {
                let put = RowLaunch::copying(cuda, OPERATION, rows.dtype)?;
                (rows.shape.rows, Own::Dense(rows), put)
            }
            PatchRowsOperand::Codes(codes, dtype) => {
                let Some(book) = CodeBook::upload(cuda, OPERATION, codes, dtype)? else { return Ok(None) };
                let (row_bytes, put) = (codes.codec().row_bytes() as u64, RowLaunch::decoding(cuda, OPERATION, &book)?);
                let bytes = cuda.upload_list(OPERATION, codes.codes())?;
                (codes.n_rows(), Own::Codes { bytes, row_bytes, book }, put)
            }
        };
        if found != n_own {
            let what = format!("rank {rank} has {found} rows for a patch of {n_own} nodes");
            return Err(ComputeError::argument(OPERATION, what));
        }
        Ok(Some(Self {
            pick: RowLaunch::copying(cuda, OPERATION, own.result().1)?,
            put,
            own,
            first: bounds[rank],
            n_rows,
            owners,
            ask: cuda.variant(OPERATION, Source::SAMPLING_PATCHES, "ask_of_list", &Defines::new())?,
            side: Cuda::new(cuda.device.beside().map_err(Cuda::failed(OPERATION))?),
            begun: Mutex::default(),
        }))
    }

    fn begun(&self) -> MutexGuard<'_, VecDeque<CudaEvent>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, ids: &CudaIds, out: &CudaMatrix) -> Result<(), ComputeError> {
        let (cols, dtype) = self.own.result();
        checks::gather_rows(Shape::new(self.n_rows, cols), ids.range, out.shape)?;
        if out.dtype == dtype {
            return Ok(());
        }
        let what = format!("rows are read as {}, and wanted as {}", dtype.name(), out.dtype.name());
        Err(ComputeError::argument(OPERATION, what))
    }

    /// Rows that follow each other, the first of them at this address.
    fn rows_at(&self, first: u64) -> RowsArgument {
        RowsArgument { first, rows: 0, row_bytes: self.own.row_bytes() }
    }

    /// Own rows, as their ids among all nodes name them.
    fn own_rows(&self) -> RowsArgument {
        self.rows_at(self.own.address(&self.side).wrapping_sub(u64::from(self.first) * self.own.row_bytes()))
    }

    /// Puts on the side stream what brings the rows of `ids`; all ranks call it together.
    fn bring(&self, ids: &CudaIds, out: u64) -> Result<(), ComputeError> {
        const WORD: u64 = size_of::<NodeId>() as u64;
        let (side, n, rank) = (&self.side, ids.range.len as u64, self.owners.lists.rank());
        let stream = &side.device.stream;
        let questions = self.owners.questions(side, n)?;
        let places: CudaSlice<u32> = side.scratch(OPERATION, questions.len())?;
        let asking = self.owners.asking(side, &questions, (0, side.pointer(Some(&places))));
        let mut launch = stream.launch_builder(&self.ask);
        launch.arg(&ids.ids).arg(&n).arg(&asking);
        // SAFETY: ids are nodes, and there is a thread, a question and a place for each.
        unsafe { launch.launch(blocks(n.div_ceil(u64::from(BLOCK)), BLOCK)) }.map_err(Cuda::failed(OPERATION))?;
        let mine: Vec<[u64; 1]> = questions.counts(side)?.into_iter().map(|[nodes, _]| [nodes]).collect();
        let theirs = self.owners.lists.tell(OPERATION, &mine).map_err(|error| failed(&error))?;
        let row_bytes = self.own.row_bytes();
        // Own rows travel nowhere.
        let of_others = |counts: &[[u64; 1]], bytes: u64| {
            let lens = counts.iter().enumerate().map(|(other, &[n])| if other == rank { 0 } else { n * bytes });
            lens.collect::<Vec<_>>().into_iter()
        };
        let asked: Pieces<NodeId> = Pieces::new(side, of_others(&theirs, 1))?;
        let picked: Pieces<u8> = Pieces::new(side, of_others(&theirs, row_bytes))?;
        let arrived: Pieces<u8> = Pieces::new(side, of_others(&mine, row_bytes))?;
        let lists = |at: &dyn Fn(usize) -> u64, counts: &[[u64; 1]], bytes: u64| -> Vec<Swapped> {
            let others = (0..counts.len()).filter(|&other| other != rank);
            others.map(|other| Swapped { rank: other, address: at(other), n_bytes: counts[other][0] * bytes }).collect()
        };
        let swap = |sent: Vec<Swapped>, received: Vec<Swapped>| {
            // SAFETY: both sides were told the lengths; lists are freed in the order of the stream.
            unsafe { self.owners.lists.swap(OPERATION, stream, &sent, &received) }.map_err(|error| failed(&error))
        };
        let put = |launch: &RowLaunch, rows, names, (to, n)| {
            if n == 0 {
                return Ok(());
            }
            // SAFETY: ids that were asked for are own rows, places are rows of the result, and there is room for a row of each; positions
            // in codes are columns, as the caller vouches.
            unsafe { launch.put(stream, IN_DEVICE, rows, names, (to, n)) }.map_err(Cuda::failed(OPERATION))
        };
        let question = |other: usize| questions.at(side, other);
        let place_of = |other: usize| side.pointer(Some(&places)) + other as u64 * questions.stride * WORD;
        swap(lists(&question, &mine, WORD), lists(&|other| asked.at(side, other), &theirs, WORD))?;
        put(&self.pick, self.own_rows(), Names::of(asked.at(side, 0)), (picked.at(side, 0), asked.len()))?;
        let own_names = Names::of_at(question(rank), place_of(rank));
        put(&self.put, self.own_rows(), own_names, (out, mine[rank][0]))?;
        swap(
            lists(&|other| picked.at(side, other), &theirs, row_bytes),
            lists(&|other| arrived.at(side, other), &mine, row_bytes),
        )?;
        for (other, &[n]) in mine.iter().enumerate().filter(|(other, _)| *other != rank) {
            put(&self.put, self.rows_at(arrived.at(side, other)), Names::at(place_of(other)), (out, n))?;
        }
        Ok(())
    }
}

impl RowReader<Cuda> for PatchRows {
    fn gather(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.begin(cuda, ids, out)?;
        while !self.begun().is_empty() {
            self.finish(cuda)?;
        }
        Ok(())
    }

    fn begin(&self, cuda: &Cuda, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
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

impl Drop for PatchRows {
    fn drop(&mut self) {
        // Own rows, which it reads, are freed after this; a rank that has failed is not waited for.
        let _ = self.side.device.wait(OPERATION);
    }
}
