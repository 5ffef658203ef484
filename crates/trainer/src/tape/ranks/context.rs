//! [`Ranks`]: the rows that each rank holds, and the groups in which ranks communicate.

use std::ops::Range;
use std::sync::Arc;

use girih_comm::{Collective, CommError, Number, Parcel, Payload};
use girih_compute::{Backend, ComputeError, Shape};
use girih_graph_format::{Matrix, NodeId};
use girih_partition::{BlockPlan, Patches, RankPlan, part, place_in};

use crate::tape::Pool;
use crate::tape::params::Gradients;

/// Numbers sent to the first rank at once (64 MiB of `f32`).
pub(crate) const HANDED: usize = 1 << 24;

/// One rank of a world: its part of the plan, and the groups that it belongs to.
pub struct Ranks<B: Backend> {
    plan: Arc<BlockPlan>,
    rank: usize,
    world: Box<dyn Collective<B>>,
    /// Ranks with the same replica number. Together they hold every node once.
    pub(crate) peers: Box<dyn Collective<B>>,
    /// Ranks that share the steps of a product.
    pub(super) steps: Box<dyn Collective<B>>,
    /// Ranks that exchange rows for slices of columns.
    pub(super) slices: Option<Box<dyn Collective<B>>>,
    /// Ranks with partial sums of the same rows.
    pub(super) sums: Option<Box<dyn Collective<B>>>,
}

impl<B: Backend> Ranks<B> {
    /// Forms the groups; every rank of `world` calls this with the same plan.
    ///
    /// # Errors
    /// When a rank does not take part.
    ///
    /// # Panics
    /// When the plan is for another number of ranks.
    pub fn new(plan: Arc<BlockPlan>, world: Box<dyn Collective<B>>) -> Result<Self, CommError> {
        let rank = world.rank();
        // A group has the number of its first member, and its ranks are in the order of its members.
        Self::of(plan, world, |world, members| world.split(members[0], place_in(members, rank)))
    }

    /// As [`new`](Self::new), but `group` forms a group from the world and its members.
    pub(crate) fn of(
        plan: Arc<BlockPlan>,
        world: Box<dyn Collective<B>>,
        group: impl Fn(&dyn Collective<B>, &[usize]) -> Result<Box<dyn Collective<B>>, CommError>,
    ) -> Result<Self, CommError> {
        assert_eq!(plan.ranks.len(), world.size(), "a plan for these ranks");
        let rank = world.rank();
        let mine = &plan.ranks[rank];
        let group = |members: &[usize]| group(&*world, members);
        let steps = group(&mine.group)?;
        let slices = mine.slice.as_ref().map(|slicing| group(&slicing.group)).transpose()?;
        let sums = match mine.reduce.group() {
            [] => None,
            members => Some(group(members)?),
        };
        let peers = group(&plan.peers(mine.replica).collect::<Vec<_>>())?;
        Ok(Self { rank, world, peers, steps, slices, sums, plan })
    }

    /// Plan of this rank.
    pub(crate) fn mine(&self) -> &RankPlan {
        &self.plan.ranks[self.rank]
    }

    /// Plan of all ranks.
    #[must_use]
    pub fn plan(&self) -> &BlockPlan {
        &self.plan
    }

    /// Number of this rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Group of all ranks.
    #[must_use]
    pub fn world(&self) -> &dyn Collective<B> {
        &*self.world
    }

    /// Ids of the nodes whose rows this rank holds.
    #[must_use]
    pub fn own(&self) -> Range<usize> {
        self.mine().own.clone()
    }

    /// All-reduce of `matrix` over the peers, in which each node counts once.
    ///
    /// # Errors
    /// When a rank fails.
    pub fn sum(&self, matrix: &mut B::Matrix) -> Result<(), ComputeError> {
        self.peers.all_reduce(matrix).map_err(|error| failed(&error))
    }

    /// All-reduce of the gradients of parameters over the peers, in which each node counts once.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn sum_gradients(&self, gradients: &mut Gradients<B>) -> Result<(), ComputeError> {
        gradients.sum_over(&*self.peers).map_err(|error| failed(&error))
    }

    /// Node ids of each peer: ascending ranges, in the order of `peers`. Together they hold every node once.
    pub(crate) fn peer_nodes(&self) -> impl Iterator<Item = Range<usize>> {
        self.plan.peers(self.mine().replica).map(|peer| self.plan.ranks[peer].own.clone())
    }

    /// Row ranges of the products of a rank, in order.
    pub(crate) fn product_rows(&self, rank: usize) -> impl Iterator<Item = Range<usize>> {
        self.plan.ranks[rank].rows.iter().map(|&panel| self.plan.panels[panel].clone())
    }

    /// Row ranges of each chunk of this rank's products, in order.
    pub(super) fn chunks_of_product(&self) -> Vec<Vec<Range<usize>>> {
        let rows = |chunk| self.mine().rows.iter().flat_map(|&panel| self.plan.chunk_of(panel, chunk)).collect();
        (0..self.plan.n_chunks).map(rows).collect()
    }

    /// Nodes of each rank of the world as a patch; `None` where several ranks hold the same nodes.
    pub(crate) fn patches(&self) -> Option<Patches> {
        let ends = self.plan.ranks.iter().map(|rank| rank.own.end as NodeId);
        Patches::new(std::iter::once(0).chain(ends).collect())
            .ok()
            .filter(|patches| patches.n_nodes() == self.plan.n_nodes)
    }

    /// All-gather of numbers: one per node, from the numbers that each rank has of its own nodes.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn join_rows(&self, own: &[f32]) -> Result<Vec<f32>, CommError> {
        self.join_numbers("numbers of rows", bytemuck::cast_slice(own), |nodes| Some(nodes.len()))
    }

    /// Number of peers, and the place of this rank among them. Peers hold every node once together.
    pub(crate) fn peers(&self) -> (usize, usize) {
        (self.peers.size(), self.peers.rank())
    }

    /// All-gather of rows: the rows of all nodes, from those that each rank holds.
    ///
    /// # Errors
    /// When a rank fails, or the device's memory does not suffice.
    pub fn gather(&self, backend: &B, pool: &mut Pool<B>, rows: &B::Matrix) -> Result<B::Matrix, ComputeError> {
        let counts: Vec<usize> = self.peer_nodes().map(|nodes| nodes.len()).collect();
        let shape = Shape::new(self.plan.n_nodes, backend.shape(rows).cols);
        let mut all = pool.take(backend, shape, backend.dtype(rows))?;
        self.peers.all_gather(&counts, rows, &mut all).map_err(|error| failed(&error))?;
        Ok(all)
    }

    /// As [`gather`](Self::gather), but on the host of the first rank only: for checkpoints. `None` on the other
    /// ranks.
    ///
    /// # Errors
    /// When a rank fails.
    pub fn gather_on_first(&self, own: &Matrix) -> Result<Option<Matrix>, CommError> {
        let (n_nodes, cols) = (self.plan.n_nodes, own.n_cols());
        let mut all = Vec::with_capacity(if self.rank == 0 { n_nodes * cols } else { 0 });
        self.hand_rows(own, HANDED, &mut |rows| all.extend_from_slice(rows.data()))?;
        Ok((self.rank == 0).then(|| Matrix::new(n_nodes, cols, all).expect("the rows of every node once")))
    }

    /// Sends the rows of all nodes to the first rank, which passes them to `take` in the order of nodes. A call of
    /// `take` gets at most `at_once` numbers, or one row if that is wider. The rows of all nodes are never in memory
    /// together.
    ///
    /// # Errors
    /// When a rank fails.
    pub fn hand_rows(&self, own: &Matrix, at_once: usize, take: &mut dyn FnMut(&Matrix)) -> Result<(), CommError> {
        let ((n_peers, place), width) = (self.peers(), own.n_cols());
        let block = (at_once / width.max(1)).max(1);
        for (peer, nodes) in self.peer_nodes().enumerate() {
            for first in (0..nodes.len()).step_by(block) {
                let rows = || own.row_slice(first..nodes.len().min(first + block));
                if peer == 0 {
                    // The first rank has its own rows already.
                    (self.rank == 0).then(|| take(&rows()));
                    continue;
                }
                let mut messages = vec![Parcel::from([]); n_peers];
                if place == peer {
                    messages[0] = bytemuck::cast_slice(rows().data()).into();
                }
                let received = self.peers.all_to_all_bytes(messages)?;
                if self.rank == 0 {
                    let n_rows = block.min(nodes.len() - first);
                    let values = self.payload(peer, &received[peer], "rows").exactly(n_rows * width)?;
                    take(&Matrix::new(n_rows, width, values).expect("whole rows"));
                }
            }
        }
        Ok(())
    }

    /// Inverse of [`gather_on_first`](Self::gather_on_first): this rank's own rows of a matrix. `None` if the matrix
    /// does not have a row for each node.
    pub(crate) fn own_rows(&self, all: &Matrix) -> Option<Matrix> {
        // A copy, so that this rank does not keep the rows of others in memory.
        let copied =
            |rows: Matrix| Matrix::new(rows.n_rows(), rows.n_cols(), rows.data().to_vec()).expect("whole rows");
        (all.n_rows() == self.plan.n_nodes).then(|| copied(all.row_slice(self.own())))
    }

    /// This rank's share of `0..n`, for work that does not depend on the rows that a rank holds.
    pub(crate) fn share_of(&self, n: usize) -> Range<usize> {
        part(&(0..n), self.world.rank(), self.world.size())
    }

    /// Sums over ranks of counts over own nodes, in which each node counts once. Without ranks, the counts
    /// themselves.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn totals(ranks: Option<&Self>, counts: &[u64]) -> Result<Vec<u64>, CommError> {
        ranks.map_or_else(
            || Ok(counts.to_vec()),
            |ranks| totals(&*ranks.peers, &ranks.plan.peers(ranks.mine().replica).collect::<Vec<_>>(), counts),
        )
    }

    /// Relative error `‖found − expected‖ / ‖expected‖` over the rows of all nodes; each rank passes its own rows.
    /// Zero where both are equal.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn relative_error(&self, found: &Matrix, expected: &Matrix) -> Result<f64, CommError> {
        let pairs = || found.data().iter().zip(expected.data()).map(|(&a, &b)| (f64::from(a), f64::from(b)));
        let here = [pairs().map(|(a, b)| (a - b).powi(2)).sum::<f64>(), pairs().map(|(_, b)| b * b).sum()];
        let mut sums = [0.0; 2];
        for (peer, theirs) in self.join(bytemuck::cast_slice(&here))?.iter().enumerate() {
            let theirs: Vec<f64> = self.payload(peer, theirs, "errors of rows").exactly(2)?;
            sums.iter_mut().zip(theirs).for_each(|(sum, theirs)| *sum += theirs);
        }
        let [difference, norm] = sums;
        Ok(if difference == 0.0 { 0.0 } else { (difference / norm).sqrt() })
    }

    /// All-gather of messages about own nodes, in the order of nodes.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn join(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        self.peers.all_gather_bytes(own)
    }

    /// Message of the rank at `peer` among the peers.
    pub(crate) fn payload<'m>(&self, peer: usize, message: &'m [u8], what: &'static str) -> Payload<'m> {
        let rank = self.plan.peers(self.mine().replica).nth(peer).unwrap_or(peer);
        Payload::new(message, rank, what)
    }

    /// All-gather of numbers about own nodes, in the order of nodes. `count` returns how many numbers a range of
    /// nodes has, if that is known.
    ///
    /// # Errors
    /// When a rank fails, or sends a wrong number of them.
    pub(crate) fn join_numbers<T: Number>(
        &self,
        what: &'static str,
        own: &[u8],
        count: impl Fn(Range<usize>) -> Option<usize>,
    ) -> Result<Vec<T>, CommError> {
        let mut all = Vec::new();
        for (peer, (message, nodes)) in self.join(own)?.iter().zip(self.peer_nodes()).enumerate() {
            let payload = self.payload(peer, message, what);
            all.extend(match count(nodes) {
                Some(n) => payload.exactly::<T>(n)?,
                None => payload.rest::<T>()?,
            });
        }
        Ok(all)
    }

    /// All-gather of ids: `each` of them for every item of a rank's [share](Self::share_of) of `n`, concatenated.
    ///
    /// # Errors
    /// When a rank fails, or sends a wrong number of them.
    pub(crate) fn join_shares(&self, ids: &[NodeId], (n, each): (usize, usize)) -> Result<Vec<NodeId>, CommError> {
        let pieces = self.world.all_gather_bytes(bytemuck::cast_slice(ids))?;
        let read = |(rank, piece): (usize, &Vec<u8>)| {
            let n_ids = each * part(&(0..n), rank, pieces.len()).len();
            Payload::new(piece, rank, "ids of shares").exactly::<NodeId>(n_ids)
        };
        Ok(pieces.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?.concat())
    }
}

/// Sums of the counts of all `members` of a group.
pub(super) fn totals<B: Backend>(
    group: &dyn Collective<B>,
    members: &[usize],
    counts: &[u64],
) -> Result<Vec<u64>, CommError> {
    let all = group.all_gather_bytes(bytemuck::cast_slice(counts))?;
    let mut sums = vec![0; counts.len()];
    for (place, theirs) in all.iter().enumerate() {
        let payload = Payload::new(theirs, members.get(place).copied().unwrap_or(place), "counts");
        for (sum, count) in sums.iter_mut().zip(payload.clone().exactly::<u64>(counts.len())?) {
            *sum = count.checked_add(*sum).ok_or_else(|| payload.malformed(format!("a count of {count}")))?;
        }
    }
    Ok(sums)
}

/// Failure of an exchange as a [`ComputeError`].
pub(crate) fn failed(error: &CommError) -> ComputeError {
    ComputeError::device("an exchange between ranks", error.to_string())
}
