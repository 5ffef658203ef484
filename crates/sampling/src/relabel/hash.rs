//! Hash maps whose keys are nodes.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::{HashMap, HashSet};

use crate::NodeId;

/// Map from global to local ids.
pub(crate) type NodeMap = HashMap<NodeId, NodeId, BuildHasherDefault<NodeHasher>>;
/// Set of nodes.
pub(crate) type NodeSet = HashSet<NodeId, BuildHasherDefault<NodeHasher>>;

/// Hash of one multiplication. Node ids are not chosen by an adversary, and a stronger hash would take a third of a
/// batch's time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeHasher(u64);

impl Hasher for NodeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    #[inline(always)]
    fn write_u32(&mut self, word: u32) {
        // The table reads low and high bits: fold the well-mixed upper half into the lower.
        let mixed = (self.0 ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// Hash of a node.
#[inline(always)]
pub(crate) fn hash_of(node: NodeId) -> u64 {
    let mut hasher = NodeHasher::default();
    hasher.write_u32(node);
    hasher.finish()
}
