//! [`HaloPlan`]: the rows that a rank sends and receives. [`HaloExchange`]: the exchange of these rows with its
//! peers.

use std::ops::Range;
use std::sync::Arc;

use girih_comm::{Collective, Pending};
use girih_compute::{Backend, ComputeError, Dtype, Shape};
use girih_graph_format::NodeId;
use rayon::prelude::*;

use super::blocks::travelling;
use super::context::{Ranks, failed};
use crate::tape::Pool;

/// Rows that this rank is receiving, and the buffer that it sends meanwhile.
pub(super) struct Arriving<B: Backend> {
    pub(super) pending: Pending,
    pub(super) rows: B::Matrix,
    pub(super) sent: Option<B::Matrix>,
}

impl<B: Backend> Arriving<B> {
    /// Waits for the rows, and returns them.
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

/// Rows that the members of a group send to each other, as seen by this rank. The lists do not change.
pub struct HaloPlan<B: Backend> {
    /// Ids of the rows that are sent, list after list.
    ids: B::Ids,
    /// Number of rows sent to each member.
    sent: Vec<usize>,
    /// Number of rows received from each member.
    received: Vec<usize>,
}

impl<B: Backend> HaloPlan<B> {
    /// Plan with the rows sent to each member, counted from the rank's first row, and the number received from each.
    pub(super) fn new(backend: &B, sent: &[impl AsRef<[NodeId]>], received: Vec<usize>) -> Result<Self, ComputeError> {
        let ids: Vec<NodeId> = sent.iter().flat_map(AsRef::as_ref).copied().collect();
        let sent = sent.iter().map(|rows| rows.as_ref().len()).collect();
        Ok(Self::of_ids(backend.upload_ids(&ids)?, sent, received))
    }

    /// Plan with the ids of sent rows on the device, list after list, and the numbers sent to and received from each
    /// member.
    pub(crate) fn of_ids(ids: B::Ids, sent: Vec<usize>, received: Vec<usize>) -> Self {
        Self { ids, sent, received }
    }

    /// Number of rows sent to each member.
    #[must_use]
    pub fn sent(&self) -> &[usize] {
        &self.sent
    }

    /// Number of rows received from each member.
    #[must_use]
    pub fn received(&self) -> &[usize] {
        &self.received
    }

    /// Sends rows of `x`, and returns the received rows in the order of members.
    pub(super) fn send(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        group: &dyn Collective<B>,
        x: &B::Matrix,
    ) -> Result<B::Matrix, ComputeError> {
        self.begin(backend, pool, group, x)?.finish(backend, pool, group)
    }

    /// Starts to send rows of `x`.
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

    /// Backward pass of [`send`](Self::send): the gradient of each of the rank's `n_rows` rows. Sums the gradients of
    /// all receivers in `f32`, in the order of members.
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

/// Exchange of the rows that a rank reads (its halo) with its peers, which hold every node once.
pub struct HaloExchange<B: Backend> {
    ranks: Arc<Ranks<B>>,
    exchange: HaloPlan<B>,
}

impl<B: Backend> HaloExchange<B> {
    /// Exchange of the rows that go to each peer and come from each, as in [`HaloPlan::new`].
    pub(super) fn new(
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        sent: &[impl AsRef<[NodeId]>],
        received: Vec<usize>,
    ) -> Result<Self, ComputeError> {
        Ok(Self::of(ranks, HaloPlan::new(backend, sent, received)?))
    }

    /// Exchange of peers by a plan.
    pub(crate) fn of(ranks: &Arc<Ranks<B>>, exchange: HaloPlan<B>) -> Self {
        Self { ranks: Arc::clone(ranks), exchange }
    }

    /// Exchange of the rows that each peer wants, which all peers know. `wanted(i, range)` lists the nodes of a range
    /// of ids that the `i`-th peer wants, ascending. Also returns the nodes that this rank receives, in the order of
    /// their rows.
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

    /// Rows of `x` for this rank's halo; each rank passes its own rows, and all ranks call it together. `f32` rows
    /// are rounded to `wire`, own rows too, so that the number of ranks changes none of them.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub fn fetch(
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

    /// Backward pass of [`fetch`](Self::fetch): the gradient of each of the rank's own rows. Sums the gradients of
    /// all receivers in the order of ranks, and stores the sum in the type of `grad`.
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
