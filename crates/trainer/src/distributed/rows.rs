//! [`HaloPlan`]: some of a rank's rows for others, and some of theirs for it. [`HaloExchange`]: the rows of any nodes.

use std::ops::Range;
use std::sync::Arc;

use girih_comm::{Collective, Pending};
use girih_compute::{Backend, ComputeError, Dtype, Shape};
use girih_graph_format::NodeId;
use rayon::prelude::*;

use super::blocks::travelling;
use super::ranks::{Ranks, failed};
use crate::tape::Pool;

/// Rows on their way to this rank, and those that leave it at the same time.
pub(super) struct Arriving<B: Backend> {
    pub(super) pending: Pending,
    pub(super) rows: B::Matrix,
    pub(super) sent: Option<B::Matrix>,
}

impl<B: Backend> Arriving<B> {
    /// The rows, which may be read from now on.
    pub(super) fn finish(
        self,
        backend: &B,
        pool: &mut Pool<B>,
        group: &dyn Collective<B>,
    ) -> Result<B::Matrix, ComputeError> {
        group.finish(self.pending).map_err(|error| failed(&error))?;
        if let Some(sent) = self.sent {
            pool.give(backend, sent);
        }
        Ok(self.rows)
    }
}

/// Which rows each member of a group sends to each other: static lists, as this rank sees them.
pub(super) struct HaloPlan<B: Backend> {
    /// The rows that are sent, list after list.
    ids: B::Ids,
    /// How many go to each member.
    sent: Vec<usize>,
    /// How many come from each.
    received: Vec<usize>,
}

impl<B: Backend> HaloPlan<B> {
    /// From the rows that go to each member, counted from the rank's first, and how many come from each.
    pub(super) fn new(backend: &B, sent: &[impl AsRef<[NodeId]>], received: Vec<usize>) -> Result<Self, ComputeError> {
        let ids: Vec<NodeId> = sent.iter().flat_map(AsRef::as_ref).copied().collect();
        let sent = sent.iter().map(|rows| rows.as_ref().len()).collect();
        Ok(Self::of_ids(backend.upload_ids(&ids)?, sent, received))
    }

    /// From the ids of rows that are sent, list after list, how many go to each member, and how many come from each.
    pub(super) fn of_ids(ids: B::Ids, sent: Vec<usize>, received: Vec<usize>) -> Self {
        Self { ids, sent, received }
    }

    /// How many rows go to each member.
    #[cfg(test)]
    pub(super) fn sent(&self) -> &[usize] {
        &self.sent
    }

    /// How many rows come from each member.
    #[cfg(test)]
    pub(super) fn received(&self) -> &[usize] {
        &self.received
    }

    /// Sends rows of `x`; returns what came, in the order of members.
    pub(super) fn send(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        group: &dyn Collective<B>,
        x: &B::Matrix,
    ) -> Result<B::Matrix, ComputeError> {
        self.begin(backend, pool, group, x)?.finish(backend, pool, group)
    }

    /// Begins to send rows of `x`.
    pub(super) fn begin(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        group: &dyn Collective<B>,
        x: &B::Matrix,
    ) -> Result<Arriving<B>, ComputeError> {
        let (rows, dtype) =
            (|counts: &[usize]| Shape::new(counts.iter().sum(), backend.shape(x).cols), backend.dtype(x));
        let mut outgoing = pool.take(backend, rows(&self.sent), dtype)?;
        backend.gather_rows(x, &self.ids, &mut outgoing)?;
        let mut incoming = pool.take(backend, rows(&self.received), dtype)?;
        let pending = group
            .begin(&mut || group.all_to_all(&self.sent, &outgoing, &self.received, &mut incoming))
            .map_err(|error| failed(&error))?;
        Ok(Arriving { pending, rows: incoming, sent: Some(outgoing) })
    }

    /// The way back of [`send`](Self::send): the gradient of each of the rank's `n_rows` rows, added up in `f32` over
    /// all who got it, in the order of members.
    pub(super) fn give_back(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        group: &dyn Collective<B>,
        grad: &B::Matrix,
        n_rows: usize,
    ) -> Result<B::Matrix, ComputeError> {
        let cols = backend.shape(grad).cols;
        let mut returned = pool.take(backend, Shape::new(self.sent.iter().sum(), cols), backend.dtype(grad))?;
        group.all_to_all(&self.received, grad, &self.sent, &mut returned).map_err(|error| failed(&error))?;
        let mut sums = pool.take(backend, Shape::new(n_rows, cols), Dtype::F32)?;
        backend.set_zero(&mut sums)?;
        backend.scatter_add_rows(&returned, &self.ids, &mut sums)?;
        pool.give(backend, returned);
        Ok(sums)
    }
}

/// Rows of nodes that a rank reads, wherever they are held: a rank's peers hold every node once.
pub(crate) struct HaloExchange<B: Backend> {
    ranks: Arc<Ranks<B>>,
    exchange: HaloPlan<B>,
}

impl<B: Backend> HaloExchange<B> {
    /// From the rows that go to each peer and how many come from each, as [`HaloPlan::new`].
    pub(super) fn new(
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        sent: &[impl AsRef<[NodeId]>],
        received: Vec<usize>,
    ) -> Result<Self, ComputeError> {
        Ok(Self::of(ranks, HaloPlan::new(backend, sent, received)?))
    }

    /// The rows that peers exchange so.
    pub(super) fn of(ranks: &Arc<Ranks<B>>, exchange: HaloPlan<B>) -> Self {
        Self { ranks: Arc::clone(ranks), exchange }
    }

    /// The rows of the nodes that each peer wants, as all peers know: `wanted(i, range)` lists those in a range of ids
    /// that the `i`-th wants, ascending. Also returns the nodes that this rank gets, in the order of their rows.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn wanted(
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        wanted: impl Fn(usize, &Range<usize>) -> Vec<NodeId> + Sync,
    ) -> Result<(Self, Vec<NodeId>), ComputeError> {
        let (own, (n_peers, place)) = (ranks.own(), ranks.peers());
        let from_own = |peer| -> Vec<NodeId> { wanted(peer, &own).iter().map(|v| v - own.start as NodeId).collect() };
        let sent: Vec<Vec<NodeId>> = (0..n_peers).into_par_iter().map(from_own).collect();
        let held: Vec<Range<usize>> = ranks.peer_nodes().collect();
        let received: Vec<Vec<NodeId>> = held.par_iter().map(|nodes| wanted(place, nodes)).collect();
        let rows = Self::new(backend, ranks, &sent, received.iter().map(Vec::len).collect())?;
        Ok((rows, received.concat()))
    }

    /// The rows of `x`, of which each rank has those of its own nodes; all ranks call it together. Rows of `f32` are
    /// rounded to `wire`, own ones too: how many ranks there are changes none.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn fetch(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        x: &B::Matrix,
        wire: Dtype,
    ) -> Result<B::Matrix, ComputeError> {
        let (dtype, peers) = (backend.dtype(x), &*self.ranks.peers);
        let travelling = travelling(dtype, wire);
        if travelling == dtype {
            return self.exchange.send(backend, pool, peers, x);
        }
        let rounded = pool.converted(backend, x, travelling)?;
        let received = self.exchange.send(backend, pool, peers, &rounded)?;
        pool.give(backend, rounded);
        let rows = pool.converted(backend, &received, dtype)?;
        pool.give(backend, received);
        Ok(rows)
    }

    /// The way back of [`fetch`](Self::fetch): the gradient of each of the rank's own rows, added up over all who
    /// fetched it, in the order of ranks, and stored as `grad` is.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn give_back(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        grad: &B::Matrix,
        wire: Dtype,
    ) -> Result<B::Matrix, ComputeError> {
        let (peers, n_rows, dtype) = (&*self.ranks.peers, self.ranks.own().len(), backend.dtype(grad));
        let travelling = travelling(dtype, wire);
        let rounded = (travelling != dtype).then(|| pool.converted(backend, grad, travelling)).transpose()?;
        let sums = self.exchange.give_back(backend, pool, peers, rounded.as_ref().unwrap_or(grad), n_rows)?;
        if let Some(rounded) = rounded {
            pool.give(backend, rounded);
        }
        if backend.dtype(&sums) == dtype {
            return Ok(sums);
        }
        let x_grad = pool.converted(backend, &sums, dtype)?;
        pool.give(backend, sums);
        Ok(x_grad)
    }
}
