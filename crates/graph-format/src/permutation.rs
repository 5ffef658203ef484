//! [`Permutation`]: a new numbering of nodes.

use bitvec::vec::BitVec;

use crate::{FormatError, MAX_NODES, Matrix, NodeId};

/// Bijection of `0..len`: old id `i` becomes `new_of_old[i]`.
///
/// # Invariants
/// `new_of_old` holds every id below its length exactly once; every constructor checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    new_of_old: Vec<NodeId>,
}

impl Permutation {
    /// Makes the identity permutation of `len` nodes.
    ///
    /// # Panics
    /// When `len > MAX_NODES`.
    #[must_use]
    pub fn identity(len: usize) -> Self {
        assert!(len <= MAX_NODES, "{len} nodes exceed the limit of {MAX_NODES}");
        Self { new_of_old: (0..len as NodeId).collect() }
    }

    /// Makes a permutation from the new id of every old id.
    ///
    /// # Errors
    /// When an id is missing, repeated or out of range.
    pub fn from_new_of_old(new_of_old: Vec<NodeId>) -> Result<Self, FormatError> {
        let len = new_of_old.len();
        // One bit per node: ids come in any order, and a bitmap has more of them in the caches.
        let mut seen: BitVec = BitVec::repeat(false, len);
        for (old, &new) in new_of_old.iter().enumerate() {
            let mut slot = seen.get_mut(new as usize).ok_or_else(|| {
                FormatError::invalid(format!("old id {old} maps to {new}, but there are only {len} nodes"))
            })?;
            if slot.replace(true) {
                return Err(FormatError::invalid(format!(
                    "new id {new} is given twice, the second time to old id {old}"
                )));
            }
        }
        Ok(Self { new_of_old })
    }

    /// Makes a permutation from an order of visit: `order[k]` is the old id that becomes `k`.
    ///
    /// # Errors
    /// As [`Permutation::from_new_of_old`].
    pub fn from_order(order: Vec<NodeId>) -> Result<Self, FormatError> {
        Ok(Self::from_new_of_old(order)?.inverse())
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.new_of_old.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.new_of_old.is_empty()
    }

    /// New id of `old`.
    ///
    /// # Panics
    /// When `old >= len`.
    #[inline]
    #[must_use]
    pub fn map(&self, old: NodeId) -> NodeId {
        self.new_of_old[old as usize]
    }

    /// New id of every old id.
    #[must_use]
    pub fn new_of_old(&self) -> &[NodeId] {
        &self.new_of_old
    }

    /// Inverse permutation. Its [`new_of_old`](Self::new_of_old) lists old ids in the new order.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let mut old_of_new = vec![0; self.len()];
        for (old, &new) in self.new_of_old.iter().enumerate() {
            old_of_new[new as usize] = old as NodeId;
        }
        Self { new_of_old: old_of_new }
    }

    /// Composition: first this permutation, then `next`.
    ///
    /// # Panics
    /// When the lengths differ.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        assert_eq!(self.len(), next.len(), "permutations of different lengths");
        Self { new_of_old: self.new_of_old.iter().map(|&id| next.map(id)).collect() }
    }

    /// Permutes items, one per node.
    ///
    /// # Panics
    /// When `items.len() != len`.
    #[must_use]
    pub fn apply<T: Clone>(&self, items: &[T]) -> Vec<T> {
        assert_eq!(self.len(), items.len(), "one item per node");
        self.inverse().new_of_old.iter().map(|&old| items[old as usize].clone()).collect()
    }

    /// Permutes the rows of `matrix`.
    ///
    /// # Panics
    /// When `matrix.n_rows() != len`.
    #[must_use]
    pub fn apply_rows(&self, matrix: &Matrix) -> Matrix {
        assert_eq!(self.len(), matrix.n_rows(), "one row per node");
        let mut data = Vec::with_capacity(matrix.data().len());
        for &old in &self.inverse().new_of_old {
            data.extend_from_slice(matrix.row(old as usize));
        }
        Matrix::new(matrix.n_rows(), matrix.n_cols(), data).expect("as many values as before")
    }
}
