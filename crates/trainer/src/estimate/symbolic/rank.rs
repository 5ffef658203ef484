//! [`SymbolicRank`]: one rank of a dry run, whose exchanges take time and are counted.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use girih_comm::{Collective, CommError, Counters, Parcel, Pending, Traffic};
use girih_compute::{Symbolic, SymbolicClock, SymbolicMatrix};
use girih_partition::{BlockPlan, Stages, place_in};

use crate::estimate::network::{CollectiveKind, Network};
use crate::tape::ranks::Ranks;

/// One rank of a dry run. The other ranks do not exist, and its exchanges only take time and are counted.
///
/// The other ranks are taken to arrive at each exchange at the same time, so that nobody waits. Ranks are planned one
/// by one, and an epoch takes as long as the slowest of them.
pub struct SymbolicRank {
    /// Ranks of the group.
    members: Vec<usize>,
    /// Position of this rank in the group.
    place: usize,
    shared: Arc<Shared>,
}

/// State that all groups of a rank share.
struct Shared {
    network: Network,
    /// Whether a rank sends to one other rank at a time.
    is_in_turns: bool,
    clock: SymbolicClock,
    /// Time at which the links are free again.
    free_at: Mutex<f64>,
    /// Set while calls belong to an exchange that is being started.
    is_beginning: AtomicBool,
    counters: Counters,
}

impl Shared {
    /// Time at which the links are free again.
    fn free_at(&self) -> f64 {
        *self.free_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SymbolicRank {
    /// Ranks of `plan`, as seen by `rank`.
    pub fn ranks(plan: &Arc<BlockPlan>, rank: usize, network: Network, symbolic: &Symbolic) -> Arc<Ranks<Symbolic>> {
        let shared = Arc::new(Shared {
            network,
            is_in_turns: plan.stages == Stages::Turns,
            clock: symbolic.clock(),
            free_at: Mutex::new(0.0),
            is_beginning: AtomicBool::new(false),
            counters: Counters::default(),
        });
        let group = |members: &[usize]| -> Box<dyn Collective<Symbolic>> {
            let (members, place) = (members.to_vec(), place_in(members, rank));
            Box::new(Self { members, place, shared: Arc::clone(&shared) })
        };
        let world = group(&(0..plan.ranks.len()).collect::<Vec<_>>());
        let ranks = Ranks::of(Arc::clone(plan), world, |_, members| Ok(group(members)));
        Arc::new(ranks.expect("nothing fails in a dry run"))
    }

    /// Advances the clock by an exchange. An exchange that was started asynchronously overlaps with computation.
    fn exchange(&self, operation: CollectiveKind, bytes: f64, traffic: Traffic) {
        if self.members.len() == 1 {
            return;
        }
        let Shared { network, clock, free_at, is_beginning, counters, .. } = &*self.shared;
        let seconds = network.seconds(operation, &self.members, bytes);
        counters.add(traffic);
        clock.count_exchange(seconds);
        let mut free_at = free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = free_at.max(clock.now()) + seconds;
        if !(network.overlaps && is_beginning.load(Ordering::Relaxed)) {
            clock.wait_until(*free_at);
        }
    }

    /// Number of other ranks in the group.
    fn n_others(&self) -> f64 {
        (self.members.len() - 1) as f64
    }

    /// Fraction of all rows that other ranks have.
    fn share_of_others(&self) -> f64 {
        self.n_others() / self.members.len() as f64
    }
}

impl Collective<Symbolic> for SymbolicRank {
    fn rank(&self) -> usize {
        self.place
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn broadcast(&self, root: usize, matrix: &mut SymbolicMatrix) -> Result<(), CommError> {
        let bytes = bytes_of(matrix, matrix.shape().rows);
        let traffic = Traffic::of_broadcast(bytes, self.members.len(), root == self.place);
        self.exchange(CollectiveKind::Broadcast, bytes as f64, traffic);
        Ok(())
    }

    fn all_reduce(&self, matrix: &mut SymbolicMatrix) -> Result<(), CommError> {
        self.all_reduce_each(&mut [matrix])
    }

    fn all_reduce_each(&self, matrices: &mut [&mut SymbolicMatrix]) -> Result<(), CommError> {
        let (mut bytes, mut traffic) = (0, Traffic::default());
        for matrix in matrices {
            let (n, n_ranks) = (matrix.shape().len(), self.members.len());
            let Traffic { sent, received } = Traffic::of_all_reduce(n, matrix.element_bytes(), self.place, n_ranks);
            traffic = Traffic { sent: traffic.sent + sent, received: traffic.received + received };
            bytes += bytes_of(matrix, matrix.shape().rows);
        }
        self.exchange(CollectiveKind::AllReduce, 2.0 * bytes as f64 * self.share_of_others(), traffic);
        Ok(())
    }

    fn overlaps(&self) -> bool {
        self.shared.network.overlaps
    }

    fn begin(&self, calls: &mut dyn FnMut() -> Result<(), CommError>) -> Result<Pending, CommError> {
        let begun = self.shared.free_at().max(self.shared.clock.now());
        self.shared.is_beginning.store(true, Ordering::Relaxed);
        let called = calls();
        self.shared.is_beginning.store(false, Ordering::Relaxed);
        called?;
        Ok(Pending::until(begun..self.shared.free_at()))
    }

    fn finish(&self, pending: Pending) -> Result<(), CommError> {
        if let Some(Range { start, end }) = pending.mark::<Range<f64>>() {
            let Shared { network, clock, .. } = &*self.shared;
            clock.delay(network.seconds_lost((clock.now() - start).max(0.0), (end - start).max(0.0)));
            clock.wait_until(end);
        }
        Ok(())
    }

    fn reduce_scatter(
        &self,
        rows: &[usize],
        input: &SymbolicMatrix,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), CommError> {
        let (all, own) = (bytes_of(input, input.shape().rows), bytes_of(input, rows[self.place]));
        let traffic = Traffic::of_reduce_scatter(own, all, self.members.len());
        self.exchange(CollectiveKind::ReduceScatter, all as f64 * self.share_of_others(), traffic);
        Ok(())
    }

    fn all_gather(&self, rows: &[usize], input: &SymbolicMatrix, out: &mut SymbolicMatrix) -> Result<(), CommError> {
        self.gather_others(rows, input, out)
    }

    /// Each rank sends its rows to every other, and all wait for the rank with most rows.
    fn gather_others(
        &self,
        rows: &[usize],
        _input: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), CommError> {
        let most = bytes_of(out, rows.iter().copied().max().unwrap_or(0));
        let (all, own) = (bytes_of(out, rows.iter().sum()), bytes_of(out, rows[self.place]));
        let traffic = Traffic::of_all_gather(own, all, self.members.len());
        self.exchange(CollectiveKind::AllGather, most as f64 * self.n_others(), traffic);
        Ok(())
    }

    /// A rank that only receives, and from one rank alone, waits until that one has sent to all its receivers. Each
    /// of them gets about as many rows.
    fn all_to_all(
        &self,
        send_rows: &[usize],
        input: &SymbolicMatrix,
        receive_rows: &[usize],
        out: &mut SymbolicMatrix,
    ) -> Result<(), CommError> {
        let others = |rows: &[usize]| -> Vec<usize> {
            rows.iter().enumerate().filter(|(i, n)| *i != self.place && **n > 0).map(|(_, n)| *n).collect()
        };
        let (sent, received) = (others(send_rows), others(receive_rows));
        let traffic =
            Traffic { sent: bytes_of(input, sent.iter().sum()), received: bytes_of(out, received.iter().sum()) };
        let most = traffic.sent.max(traffic.received);
        // Two ranks have all channels between them.
        let has_others = self.members.len() > 2;
        let (operation, bytes) = match (&sent[..], &received[..]) {
            ([_], [_]) if has_others => (CollectiveKind::OneToOne, most),
            ([_], []) | ([], [_]) if has_others && self.shared.is_in_turns => (CollectiveKind::OneToOne, most),
            ([], [_]) => (CollectiveKind::AllToAll, traffic.received * (self.members.len() as u64 - 1)),
            _ => (CollectiveKind::AllToAll, most),
        };
        self.exchange(operation, bytes as f64, traffic);
        Ok(())
    }

    /// This rank's own message, once for each rank.
    fn all_gather_bytes(&self, message: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        Ok(vec![message.to_vec(); self.members.len()])
    }

    /// This rank's own messages, as if the others had sent them.
    fn all_to_all_bytes(&self, messages: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        Ok(messages)
    }

    fn split(&self, _colour: usize, _key: usize) -> Result<Box<dyn Collective<Symbolic>>, CommError> {
        let message = "a dry run does not know the ranks of a group; take the groups of the plan".to_owned();
        Err(CommError::Library { operation: "split", message })
    }

    fn barrier(&self) -> Result<(), CommError> {
        Ok(())
    }

    fn failure(&self) -> Option<CommError> {
        None
    }

    fn traffic(&self) -> Traffic {
        self.shared.counters.traffic()
    }
}

/// Bytes of `rows` rows of a matrix.
fn bytes_of(matrix: &SymbolicMatrix, rows: usize) -> u64 {
    (rows * matrix.shape().cols * matrix.element_bytes()) as u64
}
