//! Hash maps whose keys are nodes.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::{HashMap, HashSet};

use crate::NodeId;

/// Local ids of nodes.
pub(crate) type NodeMap = HashMap<NodeId, NodeId, BuildHasherDefault<NodeHasher>>;
/// Nodes.
pub(crate) type NodeSet = HashSet<NodeId, BuildHasherDefault<NodeHasher>>;

/// One multiplication: node ids are no adversary's choice, and a third of the time of a batch would be hashing
/// otherwise.
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

/// The hash of a node.
#[inline(always)]
pub(crate) fn hash_of(node: NodeId) -> u64 {
    let mut hasher = NodeHasher::default();
    hasher.write_u32(node);
    hasher.finish()
}
