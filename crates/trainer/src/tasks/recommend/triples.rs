//! [`Triples`]: the batches of an epoch, whose triples are drawn by their number.

use girih_datasets::Interactions;
use girih_graph_format::{Csr, NodeId};
use girih_random::Key;
use rayon::prelude::*;

/// Triples of one epoch, as many as there are training interactions. A triple is a uniformly drawn user, one of its
/// training items, and another item (Rendle et al., UAI 2009, in the form of LightGCN's authors).
pub(crate) struct Triples<'a> {
    train: &'a Csr,
    key: Key,
    batch_size: usize,
}

impl<'a> Triples<'a> {
    /// Triples of an epoch with draws below `key`. A `batch_size` of `None` puts all triples in one batch.
    pub(crate) fn new(interactions: &'a Interactions, key: Key, batch_size: Option<usize>) -> Self {
        let train = interactions.train();
        Self { train, key, batch_size: batch_size.unwrap_or(train.nnz()).min(train.nnz()) }
    }

    pub(crate) fn n_batches(&self) -> usize {
        self.train.nnz().div_ceil(self.batch_size)
    }

    pub(crate) fn n_triples(&self, batch: usize) -> usize {
        self.batch_size.min(self.train.nnz() - batch * self.batch_size)
    }

    /// Nodes of a batch: its users, then their training items, then the other items.
    pub(crate) fn batch(&self, batch: usize) -> Vec<NodeId> {
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

#[cfg(test)]
mod tests {
    use girih_graph_format::{Coo, Duplicates};
    use girih_random::purpose;

    use super::*;

    /// User 0 lacks only item 4, user 1 has only item 2, user 2 has items 0 and 3.
    fn interactions() -> Interactions {
        let (users, items) = (vec![0, 0, 0, 0, 1, 2, 2], vec![0, 1, 2, 3, 2, 0, 3]);
        let train = Coo::new(3, 5, users, items, None).unwrap().to_csr(Duplicates::Refuse).unwrap();
        Interactions::new(train, Csr::empty(3, 5).unwrap()).unwrap()
    }

    fn key(epoch: u64) -> Key {
        Key::new(1, purpose::TRIPLES).child(0).child(epoch)
    }

    #[test]
    fn an_epoch_has_as_many_triples_as_interactions() {
        let interactions = interactions();
        for (batch_size, sizes) in [(None, vec![7]), (Some(3), vec![3, 3, 1]), (Some(100), vec![7])] {
            let triples = Triples::new(&interactions, key(0), batch_size);
            let found: Vec<usize> = (0..triples.n_batches()).map(|batch| triples.batch(batch).len()).collect();
            assert_eq!(found, sizes.iter().map(|n| 3 * n).collect::<Vec<_>>(), "{batch_size:?}");
        }
    }

    #[test]
    fn users_meet_their_items_and_not_the_others() {
        let interactions = interactions();
        let mut n_of_user = [0u32; 3];
        let mut n_of_item = [0u32; 5];
        for epoch in 0..2000 {
            let nodes = Triples::new(&interactions, key(epoch), None).batch(0);
            let (users, items) = nodes.split_at(7);
            let (met, others) = items.split_at(7);
            for t in 0..7 {
                let row = interactions.train().row(users[t] as usize);
                assert!(row.contains(&(met[t] - 3)) && !row.contains(&(others[t] - 3)));
                n_of_user[users[t] as usize] += 1;
                n_of_item[others[t] as usize - 3] += u32::from(users[t] == 1);
            }
        }
        // Six standard deviations around the means of 14,000 draws of three, and of a third of these of four.
        assert!(n_of_user.iter().all(|&n| n.abs_diff(4667) < 335), "users are drawn evenly: {n_of_user:?}");
        assert_eq!(n_of_item[2], 0);
        let others = [0, 1, 3, 4].map(|item: usize| n_of_item[item]);
        assert!(others.iter().all(|&n| n.abs_diff(1167) < 190), "so are the others: {others:?}");
    }

    #[test]
    fn draws_depend_on_their_names_only() {
        let interactions = interactions();
        let draw = |epoch, batch| Triples::new(&interactions, key(epoch), Some(3)).batch(batch);
        assert_eq!(draw(4, 1), draw(4, 1));
        assert_ne!(draw(4, 1), draw(4, 0));
        assert_ne!(draw(4, 1), draw(5, 1));
    }
}
