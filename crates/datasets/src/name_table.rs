//! [`NameTable`]: numbers of names.

use std::hash::BuildHasher as _;

use girih_graph_format::NodeId;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::NameList;

/// Names, numbered in order of their first appearance.
#[derive(Default)]
pub(crate) struct NameTable {
    names: NameList,
    numbers: HashTable<NodeId>,
    hasher: DefaultHashBuilder,
}

impl NameTable {
    /// Number of a name, which may be new.
    pub(crate) fn number_of(&mut self, name: &str) -> NodeId {
        let Self { names, numbers, hasher } = self;
        let is_name = |&number: &NodeId| names.get(number as usize) == name;
        let hash_of = |&number: &NodeId| hasher.hash_one(names.get(number as usize));
        match numbers.entry(hasher.hash_one(name), is_name, hash_of) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let number = names.len() as NodeId;
                entry.insert(number);
                names.push(name);
                number
            }
        }
    }

    /// Number of names.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Bytes of memory that names and numbers take.
    pub(crate) fn n_bytes(&self) -> u64 {
        (self.names.n_bytes() + self.numbers.capacity() * size_of::<NodeId>()) as u64
    }

    pub(crate) fn into_names(self) -> NameList {
        self.names
    }
}
