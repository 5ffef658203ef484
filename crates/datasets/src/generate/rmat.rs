//! Pairs of an R-MAT graph: each bit of both ids is one choice among four quadrants; ids shuffled.

use girih_graph_format::NodeId;
use girih_random::Key;

use super::assemble::PairSource;
use super::decision::Decision;
use super::recipes::Rmat;

/// Upper bounds of the first three quadrants out of 256: Graph500's 0.57, 0.19, 0.19, 0.05.
const QUADRANTS: [u8; 3] = [146, 195, 243];
/// Number of choices per block of random words, one byte each.
const CHOICES_PER_BLOCK: u32 = 16;

/// Source of the pairs of one recipe.
pub(super) struct Pairs {
    key: Key,
    n_bits: u32,
    id: Vec<NodeId>,
}

impl Pairs {
    pub(super) fn new(recipe: &Rmat) -> Self {
        let mut id: Vec<NodeId> = (0..recipe.nodes as NodeId).collect();
        Decision::Permutation.key(recipe.seed).stream(0, 0).shuffle(&mut id);
        let n_bits = recipe.nodes.next_power_of_two().trailing_zeros();
        Self { key: Decision::Pair.key(recipe.seed), n_bits, id }
    }

    /// Pair below the next power of two; `attempt` distinguishes repeated draws of the pair.
    fn raw_pair(&self, draw: u64, attempt: u64) -> (usize, usize) {
        let (mut u, mut v) = (0, 0);
        for block in 0..self.n_bits.div_ceil(CHOICES_PER_BLOCK) {
            let words = self.key.block(attempt << 8 | u64::from(block), draw);
            for choice in 0..CHOICES_PER_BLOCK.min(self.n_bits - block * CHOICES_PER_BLOCK) {
                let byte = (words[(choice / 4) as usize] >> (choice % 4 * 8)) as u8;
                let quadrant = QUADRANTS.iter().filter(|&&bound| byte >= bound).count();
                u = u << 1 | quadrant >> 1;
                v = v << 1 | quadrant & 1;
            }
        }
        (u, v)
    }
}

impl PairSource for Pairs {
    fn shape(&self) -> (usize, usize) {
        (self.id.len(), self.id.len())
    }

    /// Repeats the draw while an end is beyond the last node; dense quadrants come first, so that is rare.
    fn pair(&self, draw: u64) -> (NodeId, NodeId) {
        let mut attempt = 0;
        loop {
            let (u, v) = self.raw_pair(draw, attempt);
            if u.max(v) < self.id.len() {
                return (self.id[u], self.id[v]);
            }
            attempt += 1;
        }
    }
}
