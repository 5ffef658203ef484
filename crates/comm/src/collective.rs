//! [`Collective`]: what ranks do together.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

use girih_compute::{Backend, NeighborGraph, PatchOperand, PatchRowsOperand, RowReader};

use crate::transport::Parcel;
use crate::{CardTransport, CommError};

/// Bytes of matrices that a rank has exchanged with others, over a communicator and all that were split from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that left the rank.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

/// What a rank moves in one call, by the rules of [`Collective`]; `n_ranks` are those of the communicator.
impl Traffic {
    /// A broadcast of so many bytes.
    #[must_use]
    pub fn of_broadcast(bytes: u64, n_ranks: usize, is_root: bool) -> Self {
        match is_root {
            true => Self { sent: (n_ranks as u64 - 1) * bytes, received: 0 },
            false => Self { sent: 0, received: bytes },
        }
    }

    /// An all-reduce of `n` elements of so many bytes each, at the rank in this place.
    #[must_use]
    pub fn of_all_reduce(n: usize, element_bytes: usize, place: usize, n_ranks: usize) -> Self {
        let slice = n * (place + 1) / n_ranks - n * place / n_ranks;
        let moved = ((n - slice + (n_ranks - 1) * slice) * element_bytes) as u64;
        Self { sent: moved, received: moved }
    }

    /// A reduce-scatter of `all` bytes, of which this rank gets `own`.
    #[must_use]
    pub fn of_reduce_scatter(own: u64, all: u64, n_ranks: usize) -> Self {
        Self { sent: all - own, received: (n_ranks as u64 - 1) * own }
    }

    /// An all-gather of `all` bytes, of which this rank has `own`.
    #[must_use]
    pub fn of_all_gather(own: u64, all: u64, n_ranks: usize) -> Self {
        Self { sent: (n_ranks as u64 - 1) * own, received: all - own }
    }
}

/// Graphs of patches, and what carries draws.
pub type PatchGraphs<B> = Vec<(CardTransport, Box<dyn NeighborGraph<B>>)>;
/// Rows of patches, and what carries them.
pub type PatchReaders<B> = Vec<(CardTransport, Box<dyn RowReader<B>>)>;

/// Calls that were [begun](Collective::begin) and may go on.
#[must_use = "what was begun has to be finished before its operands are used"]
pub struct Pending(Option<Box<dyn Any + Send>>);

impl Pending {
    /// Calls that are done.
    pub fn done() -> Self {
        Self(None)
    }

    /// Calls that are done when `mark` is reached, whatever that is to the communicator.
    pub fn until(mark: impl Any + Send) -> Self {
        Self(Some(Box::new(mark)))
    }

    /// The mark, if there is one of this type.
    #[must_use]
    pub fn mark<M: Any>(self) -> Option<M> {
        self.0.and_then(|mark| mark.downcast().ok()).map(|mark| *mark)
    }
}

/// Counts [`Traffic`] for a communicator and all that are split from it.
#[derive(Default)]
pub struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counters {
    /// Counts bytes that leave the rank and bytes that come in.
    pub fn add(&self, Traffic { sent, received }: Traffic) {
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.received.fetch_add(received, Ordering::Relaxed);
    }

    /// All that was counted.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic { sent: load(&self.sent), received: load(&self.received) }
    }
}

/// One rank among [`size`](Self::size) of them, moving matrices of backend `B`.
///
/// Every rank of the communicator calls every operation, in the same order and with operands that fit. Rows are cut
/// into consecutive pieces, one for each rank, of which some may be empty. A rank that breaks the rules gets an error,
/// and so do all others; none hangs.
///
/// # Bytes
/// [`traffic`](Self::traffic) counts what leaves a rank for others, by these rules, which plans rely on. A broadcast of
/// `b` bytes to `g` ranks: the root sends `(g − 1)·b`, each other rank receives `b`. An all-reduce cuts the elements
/// into `g` nearly equal slices; a rank sends each other's slice of its own elements to the slice's rank, and its own
/// slice, summed, to all others. The other operations send each piece to the rank that it is for. What a rank keeps is
/// not counted, nor are control messages.
pub trait Collective<B: Backend>: Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Makes `matrix` that of rank `root`, on every rank.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn broadcast(&self, root: usize, matrix: &mut B::Matrix) -> Result<(), CommError>;

    /// Makes `matrix` the sum over all ranks, on every rank with the same bits. Sums are `f32`, in the order of ranks,
    /// or on devices in one that their links suggest, the same each time.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn all_reduce(&self, matrix: &mut B::Matrix) -> Result<(), CommError>;

    /// As [`all_reduce`](Self::all_reduce) of each matrix, in one exchange where that is quicker.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn all_reduce_each(&self, matrices: &mut [&mut B::Matrix]) -> Result<(), CommError> {
        matrices.iter_mut().try_for_each(|matrix| self.all_reduce(matrix))
    }

    /// Whether calls that are [begun](Self::begin) go on beside what the backend is asked for next.
    fn overlaps(&self) -> bool {
        false
    }

    /// Makes calls that may go on beside what the backend is asked for next, until they are [finished](Self::finish):
    /// before that, nobody reads what they write, or writes what they read. Where nothing goes on by itself they are
    /// done when this returns.
    ///
    /// # Errors
    /// Those of the calls.
    fn begin(&self, calls: &mut dyn FnMut() -> Result<(), CommError>) -> Result<Pending, CommError> {
        calls()?;
        Ok(Pending::done())
    }

    /// Lets what the backend is asked for next come after calls that were begun.
    ///
    /// # Errors
    /// When the device fails.
    fn finish(&self, _pending: Pending) -> Result<(), CommError> {
        Ok(())
    }

    /// Sums `input` over all ranks, of which rank `i` gets the `i`-th piece, `rows[i]` rows long.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; on pieces that do not fit.
    fn reduce_scatter(&self, rows: &[usize], input: &B::Matrix, out: &mut B::Matrix) -> Result<(), CommError>;

    /// Stacks the pieces of all ranks, `rows[i]` rows from rank `i`, on every rank.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; on pieces that do not fit.
    fn all_gather(&self, rows: &[usize], input: &B::Matrix, out: &mut B::Matrix) -> Result<(), CommError>;

    /// Stacks the pieces of all other ranks, `rows[i]` rows from rank `i`, on every rank; `rows` has this rank's own,
    /// too, which it sends.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; on pieces that do not fit.
    fn gather_others(&self, rows: &[usize], input: &B::Matrix, out: &mut B::Matrix) -> Result<(), CommError>;

    /// Sends the `i`-th piece of `input`, `send_rows[i]` rows, to rank `i`, and stacks what comes from each rank,
    /// `receive_rows[i]` rows from rank `i`.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; on pieces that do not fit.
    fn all_to_all(
        &self,
        send_rows: &[usize],
        input: &B::Matrix,
        receive_rows: &[usize],
        out: &mut B::Matrix,
    ) -> Result<(), CommError>;

    /// Every rank's message, in the order of ranks: for decisions and checks, of any length.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn all_gather_bytes(&self, message: &[u8]) -> Result<Vec<Vec<u8>>, CommError>;

    /// Sends the `i`-th message to rank `i`, and returns what each rank sent here, in the order of ranks: for lists, of
    /// any lengths.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; when there is not a message for each rank.
    fn all_to_all_bytes(&self, messages: Vec<Parcel>) -> Result<Vec<Parcel>, CommError>;

    /// The patches of all ranks as one graph that their devices draw from, if they sample by themselves: for each of
    /// the transports by which these can, which all ranks name alike. A batch is
    /// [taken](girih_compute::NeighborSource::take) by all ranks together, with one key; a rank that has no seeds for
    /// it draws for the others.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; when a device's memory does not suffice.
    fn patch_graphs(
        &self,
        _backend: &B,
        _patch: &PatchOperand<'_>,
        _by: &[CardTransport],
    ) -> Result<PatchGraphs<B>, CommError> {
        Ok(Vec::new())
    }

    /// Rows of which every rank has those of its patch, as all ranks' devices read them by id, if they come to such
    /// rows of each other: for each of the transports by which they can, which all ranks name alike. `own` are those of
    /// this one, and `bounds` where patches begin, and how many rows there are. Codes travel as codes; positions in
    /// them have to be columns. Rows are [begun](RowReader::begin) and [gathered](RowReader::gather) by all ranks
    /// together.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; when a device's memory does not suffice.
    fn patch_rows(
        &self,
        _backend: &B,
        _own: PatchRowsOperand<'_, B>,
        _bounds: &[u32],
        _by: &[CardTransport],
    ) -> Result<PatchReaders<B>, CommError> {
        Ok(Vec::new())
    }

    /// A communicator of the ranks that give the same `colour`, in the order of their keys (then of their ranks).
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn split(&self, colour: usize, key: usize) -> Result<Box<dyn Collective<B>>, CommError>;

    /// Waits for all ranks.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn barrier(&self) -> Result<(), CommError>;

    /// What is known now, without waiting, of a rank that has failed; for whoever waits for something else, a device
    /// for instance. `None` under MPI, where the rank that fails ends the process of everybody.
    fn failure(&self) -> Option<CommError>;

    /// Bytes of matrices exchanged so far.
    fn traffic(&self) -> Traffic;
}
