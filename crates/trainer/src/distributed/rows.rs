//! [`RowExchange`]: some of a rank's rows for others, and some of theirs for it.

use girih_comm::Collective;
use girih_compute::{Backend, ComputeError, Dtype, Shape};
use girih_graph_format::NodeId;

use super::ranks::failed;
use crate::tape::Pool;

/// Which rows each member of a group sends to each other: static lists, as this rank sees them.
pub(super) struct RowExchange<B: Backend> {
    /// The rows that are sent, list after list.
    ids: B::Ids,
    /// How many go to each member.
    sent: Vec<usize>,
    /// How many come from each.
    received: Vec<usize>,
}

impl<B: Backend> RowExchange<B> {
    /// From the rows that go to each member, counted from the rank's first, and how many come from each.
    pub(super) fn new(backend: &B, sent: &[impl AsRef<[NodeId]>], received: Vec<usize>) -> Result<Self, ComputeError> {
        let ids: Vec<NodeId> = sent.iter().flat_map(AsRef::as_ref).copied().collect();
        let sent = sent.iter().map(|rows| rows.as_ref().len()).collect();
        Ok(Self { ids: backend.upload_ids(&ids)?, sent, received })
    }

    /// Sends rows of `x`; returns what came, in the order of members.
    pub(super) fn send(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        group: &dyn Collective<B>,
        x: &B::Matrix,
    ) -> Result<B::Matrix, ComputeError> {
        let rows = |counts: &[usize]| Shape::new(counts.iter().sum(), backend.shape(x).cols);
        let mut outgoing = pool.take(backend, rows(&self.sent), Dtype::F32)?;
        backend.gather_rows(x, &self.ids, &mut outgoing)?;
        let mut incoming = pool.take(backend, rows(&self.received), Dtype::F32)?;
        group.all_to_all(&self.sent, &outgoing, &self.received, &mut incoming).map_err(|error| failed(&error))?;
        pool.give(backend, outgoing);
        Ok(incoming)
    }

    /// The way back of [`send`](Self::send): the gradient of each of the rank's `n_rows` rows, added up over all who got
    /// it, in the order of members.
    pub(super) fn give_back(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        group: &dyn Collective<B>,
        grad: &B::Matrix,
        n_rows: usize,
    ) -> Result<B::Matrix, ComputeError> {
        let cols = backend.shape(grad).cols;
        let mut returned = pool.take(backend, Shape::new(self.sent.iter().sum(), cols), Dtype::F32)?;
        group.all_to_all(&self.received, grad, &self.sent, &mut returned).map_err(|error| failed(&error))?;
        let mut x_grad = pool.take(backend, Shape::new(n_rows, cols), Dtype::F32)?;
        backend.set_zero(&mut x_grad)?;
        backend.scatter_add_rows(&returned, &self.ids, &mut x_grad)?;
        pool.give(backend, returned);
        Ok(x_grad)
    }
}
