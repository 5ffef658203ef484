//! Control words of a batch, as `Control` of `cuda/sampling.cuh` reads them.
//!
//! ```text
//! 0            failures, as bits
//! 1 + h        nodes found before hop h, for h = 0..=hops
//! 2 + H + h    first edge of hop h, which is the end of hop h − 1, for h = 0..=hops
//! 3 + 2H       the key, its first word low
//! 4 + 2H       the number of the batch
//! then         seeds, two to a word
//! ```
//! The host writes all of them before a batch, with zeros where the device writes; one copy brings them there.

use girih_graph_format::NodeId;
use girih_random::Key;

use crate::abi::{SEED_TWICE, TOO_MANY_EDGES, TOO_MANY_NODES};

/// Layout of the words of a batch with `n_hops` hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) n_hops: usize,
}

/// Sizes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// Nodes of each block from the seeds on: the seeds, then the new nodes of each relabelled hop in addition.
    pub n_nodes: Vec<u64>,
    /// End of the edges of each hop, in the list of all hops.
    pub end_edges: Vec<u64>,
    pub(super) failure: Failure,
}

/// Failures of a batch, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure(u64);

impl Failure {
    /// Whether the batch exceeds its capacities.
    pub(super) fn is_overflow(self) -> bool {
        self.0 & (TOO_MANY_EDGES | TOO_MANY_NODES) != 0
    }

    /// Whether a seed is listed twice.
    pub(super) fn has_repeated_seed(self) -> bool {
        self.0 & SEED_TWICE != 0
    }
}

impl BatchSizes {
    /// Whether the batch exceeds its capacities; its sizes are then limited by these.
    #[must_use]
    pub fn is_overflow(&self) -> bool {
        self.failure.is_overflow()
    }

    /// Edges of all hops; with [`Expand::Once`](girih_sampling::Expand::Once) each of them once.
    #[must_use]
    pub fn n_edges(&self) -> u64 {
        self.end_edges.last().copied().unwrap_or(0)
    }
}

impl Words {
    /// Number of words besides seeds.
    pub(super) fn len(self) -> usize {
        5 + 2 * self.n_hops
    }

    /// Number of words with `n_seeds` seeds.
    pub(super) fn len_with(self, n_seeds: usize) -> usize {
        self.len() + n_seeds.div_ceil(2)
    }

    /// Words before a batch.
    pub(super) fn of_request(self, seeds: &[NodeId], key: Key, batch: u32) -> Vec<u64> {
        let mut words = vec![0; self.len()];
        words[1] = seeds.len() as u64;
        let [low, high] = key.words();
        words[3 + 2 * self.n_hops] = pair(low, high);
        words[4 + 2 * self.n_hops] = u64::from(batch);
        words.extend(seeds.chunks(2).map(|two| pair(two[0], two.get(1).copied().unwrap_or(0))));
        words
    }

    /// Words before the draws of one hop for `n_nodes` nodes, whose edges begin at `first_edge` among the requested
    /// ones.
    pub(super) fn of_draws(self, (hop, n_nodes, first_edge): (usize, u64, u64), key: Key, batch: u32) -> Vec<u64> {
        let mut words = self.of_request(&[], key, batch);
        words[1 + hop] = n_nodes;
        words[2 + self.n_hops + hop] = first_edge;
        words
    }

    /// Sizes of a batch from its words; `n_local` hops were relabelled.
    pub(super) fn sizes(self, words: &[u64], n_local: usize) -> BatchSizes {
        let edges = 3 + self.n_hops;
        BatchSizes {
            n_nodes: words[1..2 + n_local].to_vec(),
            end_edges: words[edges..edges + self.n_hops].to_vec(),
            failure: Failure(words[0]),
        }
    }
}

/// Two numbers in a word, the first one low, as they lie in memory.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_where_kernels_look() {
        let (words, key) = (Words { n_hops: 3 }, Key::new(7, 8));
        let page = words.of_request(&[5, 6, 7], key, 9);
        assert_eq!(page.len(), words.len_with(3));
        assert_eq!(page[..words.len()], [0, 3, 0, 0, 0, 0, 0, 0, 0, page[9], 9]);
        let in_memory: &[u32] = bytemuck::cast_slice(&page);
        assert_eq!(in_memory[18..20], key.words());
        assert_eq!(in_memory[22..], [5, 6, 7, 0]);
        let after = [2, 3, 10, 30, 0, 0, 8, 40, 90, 0, 0];
        let sizes = words.sizes(&after, 2);
        assert_eq!((&sizes.n_nodes[..], &sizes.end_edges[..]), (&[3, 10, 30][..], &[8, 40, 90][..]));
        assert!(sizes.is_overflow() && !sizes.failure.has_repeated_seed());
        let draws = words.of_draws((1, 30, 90), key, 9);
        assert_eq!(draws, [0, 0, 30, 0, 0, 0, 90, 0, 0, page[9], 9]);
    }
}
