//! [`Collective`]: what ranks do together.

use girih_compute::Backend;

use crate::CommError;

/// Bytes of matrices that a rank has exchanged with others, over a communicator and all that were split from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that left the rank.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

/// One rank among [`size`](Self::size) of them, moving matrices of backend `B`.
///
/// Every rank of the communicator calls every operation, in the same order and with operands that fit. Rows are cut into
/// consecutive pieces, one for each rank, of which some may be empty. A rank that breaks the rules gets an error, and so do
/// all others; none hangs.
///
/// # Bytes
/// [`traffic`](Self::traffic) counts what leaves a rank for others, by these rules, which plans rely on. A broadcast of `b`
/// bytes to `g` ranks: the root sends `(g − 1)·b`, each other rank receives `b`. An all-reduce cuts the elements into `g`
/// nearly equal slices; a rank sends each other's slice of its own elements to the slice's rank, and its own slice, summed,
/// to all others. The other operations send each piece to the rank that it is for. What a rank keeps is not counted, nor
/// are control messages.
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

    /// Makes `matrix` the sum over all ranks, on every rank with the same bits. Sums are `f32`, in the order of ranks.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn all_reduce(&self, matrix: &mut B::Matrix) -> Result<(), CommError>;

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

    /// What is known now, without waiting, of a rank that has failed; for whoever waits for something else, a device for
    /// instance. `None` under MPI, where the rank that fails ends the process of everybody.
    fn failure(&self) -> Option<CommError>;

    /// Bytes of matrices exchanged so far.
    fn traffic(&self) -> Traffic;
}
