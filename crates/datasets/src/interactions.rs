//! [`Interactions`]: interactions of users with items.

use girih_graph_format::{Coo, Csr, Duplicates, NodeId};

use crate::DatasetError;

/// Interactions of users with items, which a recommender learns from and is scored on.
///
/// In the graph of a [`Dataset`](crate::Dataset) users come first: user `u` is node `u`, item `i` is node `n_users +
/// i`.
///
/// # Invariants
/// [`Interactions::new`] checks them. Both matrices are `n_users × n_items` without weights. Every user has a
/// training item and lacks one, so that a negative item can be drawn. No test item is a training item of its user.
#[derive(Clone, Debug, PartialEq)]
pub struct Interactions {
    train: Csr,
    test: Csr,
}

impl Interactions {
    /// Makes interactions from the items of every user in training and in test, and checks them.
    ///
    /// # Errors
    /// At the first broken invariant, naming the user.
    pub fn new(train: Csr, test: Csr) -> Result<Self, DatasetError> {
        if (train.n_rows(), train.n_cols()) != (test.n_rows(), test.n_cols()) {
            return Err(DatasetError::invalid(format!(
                "{} × {} users and items in training, {} × {} in test; they must be the same users and items",
                train.n_rows(),
                train.n_cols(),
                test.n_rows(),
                test.n_cols()
            )));
        }
        if train.values().or(test.values()).is_some() {
            return Err(DatasetError::invalid("interactions carry weights; a user has met an item or has not"));
        }
        let interactions = Self { train, test };
        (0..interactions.n_users()).try_for_each(|user| interactions.check_user(user))?;
        Ok(interactions)
    }

    fn check_user(&self, user: usize) -> Result<(), DatasetError> {
        let (train, test) = (self.train.row(user), self.test.row(user));
        if train.is_empty() {
            let what = format!("user {user} has no training items; remove the user, or give the user one");
            return Err(DatasetError::invalid(what));
        }
        if train.len() == self.n_items() {
            return Err(DatasetError::invalid(format!(
                "user {user} has met all {} items in training; none is left to be ranked below them, so remove the user",
                self.n_items()
            )));
        }
        match test.iter().find(|item| train.binary_search(item).is_ok()) {
            None => Ok(()),
            Some(item) => Err(DatasetError::invalid(format!(
                "user {user}: item {item} is in training and in test; a pair may be in one part only"
            ))),
        }
    }

    /// Number of users.
    #[must_use]
    pub fn n_users(&self) -> usize {
        self.train.n_rows()
    }

    /// Number of items.
    #[must_use]
    pub fn n_items(&self) -> usize {
        self.train.n_cols()
    }

    /// Training items of each user, `n_users × n_items`.
    #[must_use]
    pub fn train(&self) -> &Csr {
        &self.train
    }

    /// Test items of each user, `n_users × n_items`: a recommender should rank them first.
    #[must_use]
    pub fn test(&self) -> &Csr {
        &self.test
    }

    /// Makes the graph of training interactions, users first, every edge in both directions.
    ///
    /// # Errors
    /// When users and items together exceed the largest number of nodes of a graph.
    pub fn graph(&self) -> Result<Csr, DatasetError> {
        let n_nodes = self.n_users() + self.n_items();
        let pairs = || (0..self.n_users()).flat_map(|user| self.train.row(user).iter().map(move |&item| (user, item)));
        let users: Vec<NodeId> = pairs().map(|(user, _)| user as NodeId).collect();
        let items: Vec<NodeId> = pairs().map(|(_, item)| self.n_users() as NodeId + item).collect();
        Ok(Coo::new(n_nodes, n_nodes, users, items, None)?.to_csr(Duplicates::Merge)?.symmetrized())
    }

    /// Checks that `graph` is the graph of these interactions.
    pub(crate) fn check_graph(&self, graph: &Csr) -> Result<(), DatasetError> {
        let n_nodes = self.n_users() + self.n_items();
        if graph.n_rows() != n_nodes || graph.nnz() != 2 * self.train.nnz() {
            return Err(DatasetError::invalid(format!(
                "a graph of {} nodes and {} edges for {n_nodes} users and items and {} interactions; each is a node, and \
                 each interaction an edge in both directions",
                graph.n_rows(),
                graph.nnz(),
                self.train.nnz()
            )));
        }
        Ok(())
    }
}
