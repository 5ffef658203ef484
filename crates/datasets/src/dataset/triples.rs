//! [`Triples`]: statements of a knowledge graph, in parts for training, validation and test.

use girih_graph_format::{Csr, NodeId, Permutation};
use girih_machine::parallel;

use super::names::NameList;
use crate::DatasetError;

/// Statement of a knowledge graph: head, relation and tail. Relations have numbers of their own.
pub type Triple = [NodeId; 3];

/// Statements of a knowledge graph.
///
/// # Invariants
/// Entities are nodes of the graph, and each relation has a name. The graph has the training triples and, perhaps, their
/// reverses: row `tail` has column `head`. A part lists a triple once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Triples {
    /// Name of each relation.
    pub relations: NameList,
    /// Triples to train on.
    pub train: Vec<Triple>,
    /// Triples that choose the epoch.
    pub val: Vec<Triple>,
    /// Triples whose scores are reported.
    pub test: Vec<Triple>,
}

impl Triples {
    /// Parts with their names.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, &[Triple]); 3] {
        [("train", &self.train), ("val", &self.val), ("test", &self.test)]
    }

    /// Number of relations.
    #[must_use]
    pub fn n_relations(&self) -> usize {
        self.relations.len()
    }

    /// Number of entities of validation and test triples that no training triple names, among `n_nodes`.
    ///
    /// # Panics
    /// When an entity is not below `n_nodes`.
    #[must_use]
    pub fn n_unseen(&self, n_nodes: usize) -> usize {
        let entities = |part: &[Triple]| part.iter().flat_map(|&[head, _, tail]| [head, tail]).collect::<Vec<_>>();
        let mut is_known = vec![false; n_nodes];
        entities(&self.train).into_iter().for_each(|v| is_known[v as usize] = true);
        let held_out = entities(&self.val).into_iter().chain(entities(&self.test));
        held_out.filter(|&v| !std::mem::replace(&mut is_known[v as usize], true)).count()
    }

    /// Checks that entities and relations exist, and that the graph has every training triple.
    pub(super) fn validate(&self, graph: &Csr) -> Result<(), DatasetError> {
        let (n_nodes, n_relations) = (graph.n_rows(), self.n_relations());
        let is_unknown =
            |&[head, relation, tail]: &Triple| head.max(tail) as usize >= n_nodes || relation as usize >= n_relations;
        for (name, part) in self.parts() {
            if let Some(at) = parallel::position(part, is_unknown) {
                let [head, relation, tail] = part[at];
                return Err(DatasetError::invalid(format!(
                    "{name} triple {at}, ({head}, {relation}, {tail}): there are {n_nodes} entities and {n_relations} \
                     relations, numbered from 0"
                )));
            }
        }
        let is_absent = |&[head, _, tail]: &Triple| graph.row(tail as usize).binary_search(&head).is_err();
        match parallel::position(&self.train, is_absent) {
            None => Ok(()),
            Some(at) => {
                let [head, _, tail] = self.train[at];
                Err(DatasetError::invalid(format!(
                    "train triple {at}, from {head} to {tail}, is no edge of the graph, which has the triples that train"
                )))
            }
        }
    }

    /// The triples with entity `v` renamed to `order.map(v)`.
    pub(super) fn permuted(&self, order: &Permutation) -> Self {
        let renamed = |part: &[Triple]| part.iter().map(|&[h, r, t]| [order.map(h), r, order.map(t)]).collect();
        Self {
            relations: self.relations.clone(),
            train: renamed(&self.train),
            val: renamed(&self.val),
            test: renamed(&self.test),
        }
    }

    /// Adds all triples to a hash.
    pub(super) fn add_to(&self, hash: &mut crc32fast::Hasher) {
        for (_, part) in self.parts() {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(bytemuck::cast_slice(part));
        }
    }
}
