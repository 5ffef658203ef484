//! Draws for sixteen nodes at a time, one node per lane.
//!
//! ```text
//! group      g            g + 1       g + 2          g + 3 …
//!            read edges   waiting     draw, ask for  ask for
//!            into sink                edges          indptr
//! ```
//! A drawn edge may lie anywhere in memory. Groups of nodes are in flight as a pipeline, so an edge has arrived in
//! the cache by the time it is read.

use std::ops::Range;

use girih_machine::prefetch;
use girih_random::{PHILOX_MULTIPLIERS, PHILOX_ROUNDS, PHILOX_WEYL};
use pulp::{Arch, Simd, WithSimd};

use super::rows::RowScratch;
use super::rule::{Drawn, DrawnRows, Sink};
use crate::NodeId;
use crate::key::HopDraws;

/// Largest fan-out that lanes draw: the search for a taken position scans all earlier ones.
pub(super) const MAX_FAN_OUT: usize = 64;
/// Number of nodes that draw at a time.
pub(super) const LANES: usize = 16;
/// Number of groups between the draw of positions and the read of their edges.
const EDGES_AHEAD: usize = 3;
/// Number of groups between the prefetch of offsets and the draw.
const OFFSETS_AHEAD: usize = 2;
/// Largest number of groups in flight; a power of two.
const RING: usize = 4;
const _: () = assert!(EDGES_AHEAD < RING && RING.is_power_of_two());

/// Number of draws that a block of random words serves.
const WORDS: u32 = 4;

/// One value per lane.
pub(super) type Lanes = [u32; LANES];

/// Groups in flight.
pub(super) struct Ring {
    groups: Box<[Group; RING]>,
    /// Sources of one group, before they go to the sink.
    sources: Vec<NodeId>,
    /// Memory for nodes whose words do not decide every draw.
    row: RowScratch,
}

impl Default for Ring {
    fn default() -> Self {
        Self { groups: Box::default(), sources: vec![0; LANES * MAX_FAN_OUT], row: RowScratch::default() }
    }
}

/// State of sixteen nodes between the draw and the read.
struct Group {
    /// Offset of each row in the graph's indices.
    starts: [u64; LANES],
    /// Number of edges that each node gets.
    counts: Lanes,
    /// Drawn positions in each row, draw by draw.
    positions: [Lanes; MAX_FAN_OUT],
}

impl Default for Group {
    fn default() -> Self {
        Self { starts: [0; LANES], counts: [0; LANES], positions: [[0; LANES]; MAX_FAN_OUT] }
    }
}

/// Draws edges for each node of `frontier`: `count` neighbors, with replacement or without.
pub(super) fn hop<R: DrawnRows, S: Sink>(hop: Hop<'_, '_, R, S>) {
    Arch::new().dispatch(hop);
}

/// The arguments of [`hop`].
pub(super) struct Hop<'a, 'd, R, S> {
    pub(super) rows: R,
    pub(super) frontier: &'a [NodeId],
    pub(super) count: u32,
    pub(super) replace: bool,
    pub(super) draws: HopDraws,
    pub(super) ring: &'a mut Ring,
    pub(super) drawn: Drawn<'d>,
    pub(super) sink: &'a mut S,
}

impl<R: DrawnRows, K: Sink> WithSimd for Hop<'_, '_, R, K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, frontier, count, replace, draws, ring, mut drawn, sink } = self;
        let first = |group: usize| (group * LANES).min(frontier.len());
        let nodes_of = |group: usize| &frontier[first(group)..first(group + 1)];
        let n_groups = frontier.len().div_ceil(LANES);
        for step in 0..n_groups + EDGES_AHEAD {
            for &node in nodes_of(step + OFFSETS_AHEAD) {
                rows.ask(node);
            }
            if step < n_groups {
                ring.groups[step % RING].draw(simd, rows, nodes_of(step), (count, replace), draws, &mut ring.row);
            }
            if let Some(group) = step.checked_sub(EDGES_AHEAD) {
                let n_nodes = nodes_of(group).len();
                ring.groups[group % RING].read(rows, n_nodes, &mut ring.sources, &mut drawn, sink);
            }
        }
    }
}

impl Group {
    /// Draws positions for up to sixteen nodes, and prefetches their edges.
    #[inline(always)]
    fn draw<S: Simd>(
        &mut self,
        simd: S,
        rows: impl DrawnRows,
        nodes: &[NodeId],
        (count, replace): (u32, bool),
        draws: HopDraws,
        row: &mut RowScratch,
    ) {
        let (mut ids, mut degrees) = ([0; LANES], [0; LANES]);
        ids[..nodes.len()].copy_from_slice(nodes);
        rows.ranges(nodes, &mut self.starts, &mut degrees);
        for lane in 0..LANES {
            let all = if replace && degrees[lane] > 0 { count } else { degrees[lane] };
            self.counts[lane] = all.min(count);
        }
        let indices = rows.sources().as_ptr();
        for vector in 0..LANES / S::U32_LANES {
            let lanes = vector * S::U32_LANES..(vector + 1) * S::U32_LANES;
            let nodes = Nodes::<S> { id: of::<S>(&ids, vector), degree: of::<S>(&degrees, vector) };
            // A mask that is false in every lane.
            let mut is_open = simd.less_than_u32s(nodes.id, nodes.id);
            let mut n_asked = 0;
            for block in 0..count.div_ceil(WORDS) {
                let words = philox(simd, draws, block, nodes.id);
                for draw in WORDS * block..(WORDS * (block + 1)).min(count) {
                    let word = words[(draw % WORDS) as usize];
                    let (earlier, rest) = self.positions.split_at_mut(draw as usize);
                    let (position, open) = if replace {
                        word_below(simd, word, nodes.degree)
                    } else {
                        nodes.distinct(simd, word, (draw, count), earlier, vector)
                    };
                    S::as_mut_simd_u32s(&mut rest[0]).0[vector] = position;
                    is_open = simd.or_m32s(is_open, open);
                }
                // The prefetch runs one block late: vectors that were just written are slow to read in parts.
                self.ask(indices, n_asked..(WORDS * block) as usize, lanes.clone());
                n_asked = (WORDS * block) as usize;
            }
            if holds_in_any(simd, is_open) {
                self.draw_again(&ids, &degrees, lanes.clone(), (count, replace), draws, row);
            }
            self.ask(indices, n_asked..count as usize, lanes);
        }
    }

    /// Repeats the draws of some lanes one node after the other, by the definition.
    #[cold]
    fn draw_again(
        &mut self,
        ids: &Lanes,
        degrees: &Lanes,
        lanes: Range<usize>,
        how: (u32, bool),
        draws: HopDraws,
        row: &mut RowScratch,
    ) {
        for lane in lanes {
            row.positions.clear();
            row.take(degrees[lane], how, draws.positions(ids[lane]));
            for (positions, &position) in self.positions.iter_mut().zip(&row.positions) {
                positions[lane] = position;
            }
        }
    }

    /// Prefetches the edges of some draws of some lanes.
    #[inline(always)]
    fn ask(&self, indices: *const NodeId, draws: Range<usize>, lanes: Range<usize>) {
        for lane in lanes {
            let row = indices.wrapping_add(self.starts[lane] as usize);
            for positions in &self.positions[draws.clone()] {
                prefetch(row.wrapping_add(positions[lane] as usize));
            }
        }
    }

    /// Reads the edges that were drawn.
    #[inline(always)]
    fn read<S: Sink>(
        &self,
        rows: impl DrawnRows,
        n_nodes: usize,
        sources: &mut [NodeId],
        drawn: &mut Drawn<'_>,
        sink: &mut S,
    ) {
        let mut end = drawn.indptr.last().copied().unwrap_or(0);
        let mut n_read = 0;
        for lane in 0..n_nodes {
            let start = self.starts[lane] as usize;
            let positions = &self.positions[..self.counts[lane] as usize];
            let row = &rows.sources()[start..];
            for (source, positions) in sources[n_read..].iter_mut().zip(positions) {
                *source = row[positions[lane] as usize];
            }
            if let Some(edge_ids) = &mut drawn.edge_ids {
                let first = rows.edge(start);
                edge_ids.extend(positions.iter().map(|positions| first + u64::from(positions[lane])));
            }
            n_read += positions.len();
            end += positions.len() as u64;
            drawn.indptr.push(end);
        }
        sink.take(&sources[..n_read]);
    }
}

/// Some of the nodes of a group, in one vector.
struct Nodes<S: Simd> {
    id: S::u32s,
    degree: S::u32s,
}

impl<S: Simd> Nodes<S> {
    /// Next position of Floyd's algorithm in every lane, and a mask of the lanes in which the word may not decide it.
    /// A lane that takes all neighbors gets them in order.
    #[inline(always)]
    fn distinct(
        &self,
        simd: S,
        word: S::u32s,
        (draw, count): (u32, u32),
        earlier: &[Lanes],
        vector: usize,
    ) -> (S::u32s, S::m32s) {
        let all = simd.splat_u32s(count);
        let last = simd.add_u32s(simd.sub_u32s(self.degree, all), simd.splat_u32s(draw));
        let (drawn, is_open) = word_below(simd, word, simd.add_u32s(last, simd.splat_u32s(1)));
        let mut position = drawn;
        for earlier in earlier {
            position = simd.select_u32s(simd.equal_u32s(of::<S>(earlier, vector), drawn), last, position);
        }
        let draws = simd.greater_than_u32s(self.degree, all);
        (simd.select_u32s(draws, position, simd.splat_u32s(draw)), simd.and_m32s(draws, is_open))
    }
}

/// Whether a mask holds in any lane. (The instruction set decides from which end lanes are counted.)
#[inline(always)]
fn holds_in_any<S: Simd>(simd: S, mask: S::m32s) -> bool {
    simd.first_true_m32s(mask) < S::U32_LANES
}

/// Vector number `vector` of the lanes.
#[inline(always)]
pub(super) fn of<S: Simd>(lanes: &Lanes, vector: usize) -> S::u32s {
    S::as_simd_u32s(lanes).0[vector]
}

/// Block `block` of the draws of each node ([`girih_random::philox4x32`]), word by word.
#[inline(always)]
pub(super) fn philox<S: Simd>(simd: S, draws: HopDraws, block: u32, ids: S::u32s) -> [S::u32s; 4] {
    let [m0, m1] = PHILOX_MULTIPLIERS.map(|m| simd.splat_u32s(m));
    let mut c = [simd.splat_u32s(block), simd.splat_u32s(draws.batch), ids, simd.splat_u32s(draws.hop)];
    let mut k = draws.key.words();
    for _ in 0..PHILOX_ROUNDS {
        let ((low0, high0), (low1, high1)) = (simd.widening_mul_u32s(m0, c[0]), simd.widening_mul_u32s(m1, c[2]));
        let mixed = |high, word, key| simd.xor_u32s(simd.xor_u32s(high, word), simd.splat_u32s(key));
        c = [mixed(high1, c[1], k[0]), low1, mixed(high0, c[3], k[1]), low0];
        k = [k[0].wrapping_add(PHILOX_WEYL[0]), k[1].wrapping_add(PHILOX_WEYL[1])];
    }
    c
}

/// [`girih_random::bounded_word`], and a mask of the lanes in which the word may not decide. These are lanes whose
/// low half is below the bound; the test is seldom true and needs no division.
#[inline(always)]
fn word_below<S: Simd>(simd: S, word: S::u32s, bound: S::u32s) -> (S::u32s, S::m32s) {
    let (low, high) = simd.widening_mul_u32s(word, bound);
    (high, simd.less_than_u32s(low, bound))
}

/// [`girih_random::bounded`] of 64 bits, low word first, for bounds of 32 bits.
#[inline(always)]
pub(super) fn below<S: Simd>(simd: S, (low, high): (S::u32s, S::u32s), bound: S::u32s) -> S::u32s {
    let ((_, carried), (low, high)) = (simd.widening_mul_u32s(low, bound), simd.widening_mul_u32s(high, bound));
    let overflows = simd.less_than_u32s(simd.add_u32s(low, carried), carried);
    simd.select_u32s(overflows, simd.add_u32s(high, simd.splat_u32s(1)), high)
}

#[cfg(test)]
mod tests {
    use girih_graph_format::{Coo, Duplicates};
    use girih_random::bounded_word;
    use proptest::prelude::*;

    use super::*;
    use crate::key::Scheme;
    use crate::{DrawKey, Patch};

    /// A word and a bound in every lane.
    struct WordBelow {
        words: Lanes,
        bounds: Lanes,
    }

    impl WithSimd for WordBelow {
        /// Positions, and for each vector whether all its words decide.
        type Output = (Lanes, Vec<bool>);

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
            let mut found = [0; LANES];
            let mut decided = Vec::new();
            for vector in 0..LANES / S::U32_LANES {
                let (position, is_open) = word_below(simd, of::<S>(&self.words, vector), of::<S>(&self.bounds, vector));
                S::as_mut_simd_u32s(&mut found).0[vector] = position;
                decided.push(!holds_in_any(simd, is_open));
            }
            (found, decided)
        }
    }

    proptest! {
        #[test]
        fn lanes_know_which_words_decide(words: Lanes, wide: Lanes, shift in 0..24u32) {
            let bounds = wide.map(|bound| bound >> shift);
            let (found, decided) = Arch::new().dispatch(WordBelow { words, bounds });
            for lane in 0..LANES {
                match bounded_word(words[lane], bounds[lane]) {
                    Some(position) => prop_assert_eq!(position, found[lane]),
                    None => prop_assert!(!decided[lane * decided.len() / LANES], "lane {}", lane),
                }
            }
        }

        #[test]
        fn drawing_again_draws_the_same(
            edges in prop::collection::vec((0..40u32, 0..40u32), 0..1000),
            count in 1..=MAX_FAN_OUT as u32,
            replace: bool,
            seed: u64,
        ) {
            let (rows, cols) = edges.into_iter().unzip();
            let graph = Coo::new(40, 40, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
            let nodes: Vec<NodeId> = (7..7 + LANES as NodeId).collect();
            let degrees: Vec<u32> = nodes.iter().map(|&node| graph.row(node as usize).len() as u32).collect();
            let (ids, degrees) = (nodes.clone().try_into().unwrap(), degrees.try_into().unwrap());
            let draws = DrawKey::new(seed, 1, 2).hop(Scheme::Neighbors, 3);
            let (mut group, mut row) = (Group::default(), RowScratch::default());
            group.draw(pulp::Scalar::new(), Patch::whole(&graph), &nodes, (count, replace), draws, &mut row);
            let drawn = group.of_nodes();
            group.positions = [[0; LANES]; MAX_FAN_OUT];
            group.draw_again(&ids, &degrees, 0..LANES, (count, replace), draws, &mut row);
            prop_assert_eq!(drawn, group.of_nodes());
        }
    }

    impl Group {
        /// Positions of each node.
        fn of_nodes(&self) -> Vec<Vec<u32>> {
            let positions = |lane: usize| self.positions[..self.counts[lane] as usize].iter().map(move |p| p[lane]);
            (0..LANES).map(|lane| positions(lane).collect()).collect()
        }
    }
}
