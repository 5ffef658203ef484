//! [`Split`]: nodes for training, validation and testing.

use girih_graph_format::NodeId;

/// Nodes for training, validation and testing: ascending ids, no node in two parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Nodes whose labels the loss sees.
    pub train: Vec<NodeId>,
    /// Nodes whose score selects the best epoch.
    pub val: Vec<NodeId>,
    /// Nodes whose score is reported.
    pub test: Vec<NodeId>,
}

impl Split {
    /// The three parts with their names, in the order train, val, test.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, &[NodeId]); 3] {
        [("train", &self.train), ("val", &self.val), ("test", &self.test)]
    }

    /// All nodes of the three parts, ascending.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.parts().into_iter().flat_map(|(_, part)| part).copied().collect();
        nodes.sort_unstable();
        nodes
    }

    /// Adds the nodes of all parts to a hash.
    pub(super) fn add_to(&self, hash: &mut crc32fast::Hasher) {
        for (_, nodes) in self.parts() {
            hash.update(&(nodes.len() as u64).to_le_bytes());
            hash.update(bytemuck::cast_slice(nodes));
        }
    }

    /// Checks that parts are ascending and disjoint lists of existing nodes.
    pub(crate) fn validate(&self, n_nodes: usize) -> Result<(), String> {
        let mut part_of: Vec<Option<&str>> = vec![None; n_nodes];
        for (name, ids) in self.parts() {
            if let Some(w) = ids.windows(2).find(|w| w[0] >= w[1]) {
                return Err(format!("{name}: node {} is followed by {}; ids must ascend without repeats", w[0], w[1]));
            }
            for &id in ids {
                let slot = part_of
                    .get_mut(id as usize)
                    .ok_or_else(|| format!("{name}: node {id} does not exist; there are {n_nodes} nodes"))?;
                if let Some(other) = slot.replace(name) {
                    return Err(format!("node {id} is in both {other} and {name}; a node may be in one part only"));
                }
            }
        }
        Ok(())
    }
}
