//! [`Triples`]: the batches of an epoch, whose triples are drawn by their number.

use girih_datasets::Interactions;
use girih_graph_format::{Csr, NodeId};
use girih_random::Key;
use rayon::prelude::*;

/// Triples of one epoch, as many as there are training interactions. A triple is a uniformly drawn user, one of its
/// training items, and another item (Rendle et al., UAI 2009, in the form of LightGCN's authors).
pub struct Triples<'a> {
    train: &'a Csr,
    key: Key,
    batch_size: usize,
}

impl<'a> Triples<'a> {
    /// Triples of an epoch with draws below `key`. A `batch_size` of `None` puts all triples in one batch.
    pub fn new(interactions: &'a Interactions, key: Key, batch_size: Option<usize>) -> Self {
        let train = interactions.train();
        Self { train, key, batch_size: batch_size.unwrap_or(train.nnz()).min(train.nnz()) }
    }

    /// Number of batches.
    #[must_use]
    pub fn n_batches(&self) -> usize {
        self.train.nnz().div_ceil(self.batch_size)
    }

    pub(crate) fn n_triples(&self, batch: usize) -> usize {
        self.batch_size.min(self.train.nnz() - batch * self.batch_size)
    }

    /// Nodes of a batch: its users, then their training items, then the other items.
    #[must_use]
    pub fn batch(&self, batch: usize) -> Vec<NodeId> {
        let n_triples = self.n_triples(batch);
        let key = self.key.child(batch as u64);
        let triples: Vec<[NodeId; 3]> =
            (0..n_triples).into_par_iter().with_min_len(256).map(|t| self.draw(key, t as u64)).collect();
        (0..3).flat_map(|role| triples.iter().map(move |triple| triple[role])).collect()
    }

    fn draw(&self, key: Key, triple: u64) -> [NodeId; 3] {
        let (n_users, n_items) = (self.train.n_rows(), self.train.n_cols());
        let mut stream = key.stream(triple, 0);
        let user = stream.below(n_users as u64) as usize;
        let items = self.train.row(user);
        let met = items[stream.below(items.len() as u64) as usize];
        loop {
            // Terminates, since no user has met every item.
            let other = stream.below(n_items as u64) as NodeId;
            if items.binary_search(&other).is_err() {
                let item_node = |item: NodeId| n_users as NodeId + item;
                return [user as NodeId, item_node(met), item_node(other)];
            }
        }
    }
}
