//! [`Names`]: names of nodes and classes.

use girih_graph_format::Permutation;

use crate::DatasetError;

/// Names that the data gives to its nodes and classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Name of each node, such as an IRI.
    pub nodes: NameList,
    /// Name of each class; empty when classes are numbers.
    pub classes: Vec<String>,
}

/// List of names in one piece of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    text: String,
    /// End of each name in `text`, in bytes.
    ends: Vec<u64>,
}

impl NameList {
    /// Adds a name to the end.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len() as u64);
    }

    /// Number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Name number `i`.
    ///
    /// # Panics
    /// When there are not as many names.
    #[must_use]
    pub fn get(&self, i: usize) -> &str {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.text[start as usize..self.ends[i] as usize]
    }

    /// All names in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Bytes of memory that the names take.
    pub(crate) fn n_bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u64>()
    }

    /// Moves name `v` to place `order.map(v)`.
    fn permuted(&self, order: &Permutation) -> Self {
        order.inverse().new_of_old().iter().map(|&old| self.get(old as usize)).collect()
    }
}

impl<'a> FromIterator<&'a str> for NameList {
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> Self {
        let mut list = Self::default();
        names.into_iter().for_each(|name| list.push(name));
        list
    }
}

impl Names {
    /// Checks that each node has a name, and each class if any has one.
    pub(super) fn validate(&self, n_nodes: usize, n_classes: usize) -> Result<(), DatasetError> {
        let (nodes, classes) = (self.nodes.len(), self.classes.len());
        if nodes != n_nodes {
            return Err(DatasetError::invalid(format!("{nodes} names for {n_nodes} nodes; each node needs one")));
        }
        if classes != 0 && classes != n_classes {
            let what = format!("{classes} names for {n_classes} classes; each class needs one, or none has one");
            return Err(DatasetError::invalid(what));
        }
        Ok(())
    }

    /// Names after nodes were renumbered; classes stay.
    pub(super) fn permuted(&self, order: &Permutation) -> Self {
        Self { nodes: self.nodes.permuted(order), classes: self.classes.clone() }
    }
}
