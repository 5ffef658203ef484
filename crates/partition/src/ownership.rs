//! [`Ownership`]: any assignment of nodes to parts, relabelled so that parts are ranges of ids.

use girih_graph_format::{NodeId, Permutation};

use crate::{PartitionError, Patches};

/// Parts of a graph, and the permutation of nodes by which each part is a range of new ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    permutation: Permutation,
    patches: Patches,
}

impl Ownership {
    /// Ownership with the parts `0..n_parts`, from the part of every node. Nodes of a part keep their order.
    ///
    /// # Errors
    /// When there are no parts, or a node is in a part that does not exist.
    pub fn new(part_of: &[u32], n_parts: usize) -> Result<Self, PartitionError> {
        let mut sizes = vec![0; n_parts];
        for (node, &part) in part_of.iter().enumerate() {
            let Some(size) = sizes.get_mut(part as usize) else {
                return Err(PartitionError::invalid(format!("node {node} is in part {part}, but there are {n_parts}")));
            };
            *size += 1;
        }
        if n_parts == 0 {
            return Err(PartitionError::invalid("a graph is cut into at least one part"));
        }
        let patches = Patches::of_sizes(&sizes);
        let mut next: Vec<NodeId> = (0..n_parts).map(|part| patches.range(part).start).collect();
        let place = |&part: &u32| {
            let new = next[part as usize];
            next[part as usize] += 1;
            new
        };
        let new_of_old: Vec<NodeId> = part_of.iter().map(place).collect();
        let permutation = Permutation::from_new_of_old(new_of_old).expect("each node gets the next id of its part");
        Ok(Self { permutation, patches })
    }

    /// Permutation from old ids to new ones.
    #[must_use]
    pub fn permutation(&self) -> &Permutation {
        &self.permutation
    }

    /// Parts, as ranges of new ids.
    #[must_use]
    pub fn patches(&self) -> &Patches {
        &self.patches
    }
}
