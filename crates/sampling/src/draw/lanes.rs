//! Draws for sixteen nodes side by side: one node a lane.
//!
//! ```text
//! group      g            g + 1       g + 2          g + 3 …
//!            read edges   waiting     draw, ask for  ask for
//!            into sink                edges          indptr
//! ```
//! An edge that is drawn lies anywhere in memory. Groups of nodes are in flight as a pipeline, so that by the time an edge
//! is read it has arrived in the cache. Lanes are plain arrays that the compiler turns into vectors.

use girih_graph_format::Csr;
use girih_machine::prefetch;
use pulp::Arch;

use super::{Drawn, Sink};
use crate::NodeId;
use crate::key::HopDraws;

/// The largest fan-out that lanes draw: finding a position that is taken looks through all earlier ones.
pub(super) const MAX_FAN_OUT: usize = 64;
/// Nodes that draw side by side.
const LANES: usize = 16;
/// Groups between drawing positions and reading their edges.
const EDGES_AHEAD: usize = 2;
/// Groups between asking for offsets and drawing.
const OFFSETS_AHEAD: usize = 2;
/// Groups that are in flight at most; a power of two.
const RING: usize = 4;
const _: () = assert!(EDGES_AHEAD < RING && RING.is_power_of_two());

/// A value for each lane.
type Lanes = [u32; LANES];

/// Groups in flight.
#[derive(Default)]
pub(super) struct Ring {
    groups: Box<[Group; RING]>,
}

/// What is known of sixteen nodes between drawing and reading.
struct Group {
    /// Where rows start in the graph's indices.
    starts: [u64; LANES],
    /// How many edges each node gets.
    counts: Lanes,
    /// Their positions in the row, draw by draw.
    positions: [Lanes; MAX_FAN_OUT],
}

impl Default for Group {
    fn default() -> Self {
        Self { starts: [0; LANES], counts: [0; LANES], positions: [[0; LANES]; MAX_FAN_OUT] }
    }
}

/// Draws edges for each node of `frontier`: `count` neighbours, with replacement or without.
pub(super) fn hop<S: Sink>(
    graph: &Csr,
    frontier: &[NodeId],
    rule: (u32, bool),
    draws: HopDraws,
    ring: &mut Ring,
    drawn: Drawn<'_>,
    sink: &mut S,
) {
    Arch::new().dispatch(
        #[inline(always)]
        || hop_in_lanes(graph, frontier, rule, draws, ring, drawn, sink),
    );
}

#[inline(always)]
fn hop_in_lanes<S: Sink>(
    graph: &Csr,
    frontier: &[NodeId],
    (count, replace): (u32, bool),
    draws: HopDraws,
    ring: &mut Ring,
    mut drawn: Drawn<'_>,
    sink: &mut S,
) {
    let nodes_of = |group: usize| &frontier[(group * LANES).min(frontier.len())..((group + 1) * LANES).min(frontier.len())];
    let n_groups = frontier.len().div_ceil(LANES);
    for step in 0..n_groups + EDGES_AHEAD {
        for &node in nodes_of(step + OFFSETS_AHEAD) {
            prefetch(graph.indptr().as_ptr().wrapping_add(node as usize));
        }
        if step < n_groups {
            let group = &mut ring.groups[step % RING];
            group.draw(graph, nodes_of(step), count, replace, draws);
            group.fetch(graph, count);
        }
        if let Some(group) = step.checked_sub(EDGES_AHEAD) {
            let n_nodes = nodes_of(group).len();
            ring.groups[group % RING].read(graph, n_nodes, &mut drawn, sink);
        }
    }
}

impl Group {
    /// Draws positions for up to sixteen nodes.
    #[inline(always)]
    fn draw(&mut self, graph: &Csr, nodes: &[NodeId], count: u32, replace: bool, draws: HopDraws) {
        let (mut ids, mut degrees) = ([0; LANES], [0; LANES]);
        self.counts = [0; LANES];
        for (lane, &node) in nodes.iter().enumerate() {
            let (start, end) = (graph.indptr()[node as usize], graph.indptr()[node as usize + 1]);
            ids[lane] = node;
            self.starts[lane] = start;
            degrees[lane] = (end - start) as u32;
        }
        for lane in 0..LANES {
            let all = if replace && degrees[lane] > 0 { count } else { degrees[lane] };
            self.counts[lane] = all.min(count);
        }
        if replace {
            self.draw_with_replacement(&ids, &degrees, count as usize, draws);
        } else {
            self.draw_distinct(&ids, &degrees, count as usize, draws);
        }
    }

    #[inline(always)]
    fn draw_with_replacement(&mut self, ids: &Lanes, degrees: &Lanes, count: usize, draws: HopDraws) {
        for (block, pair) in self.positions[..count].chunks_mut(2).enumerate() {
            let words = philox_lanes(draws, block as u32, ids);
            for (positions, words) in pair.iter_mut().zip(words.as_chunks::<2>().0) {
                for lane in 0..LANES {
                    positions[lane] = below(words[0][lane], words[1][lane], degrees[lane]);
                }
            }
        }
    }

    /// Floyd's algorithm in every lane; where all neighbours are taken, their positions in order.
    #[inline(always)]
    fn draw_distinct(&mut self, ids: &Lanes, degrees: &Lanes, count: usize, draws: HopDraws) {
        for block in 0..count.div_ceil(2) {
            let words = philox_lanes(draws, block as u32, ids);
            for draw in 2 * block..(2 * block + 2).min(count) {
                let half = 2 * (draw % 2);
                let (earlier, rest) = self.positions.split_at_mut(draw);
                let (mut positions, mut last) = ([0; LANES], [0; LANES]);
                for lane in 0..LANES {
                    last[lane] = degrees[lane].wrapping_sub(count as u32).wrapping_add(draw as u32);
                    positions[lane] = below(words[half][lane], words[half + 1][lane], last[lane].wrapping_add(1));
                }
                let mut is_taken = [0; LANES];
                for earlier in earlier {
                    for lane in 0..LANES {
                        is_taken[lane] |= u32::from(earlier[lane] == positions[lane]);
                    }
                }
                for lane in 0..LANES {
                    let drawn = if is_taken[lane] != 0 { last[lane] } else { positions[lane] };
                    rest[0][lane] = if degrees[lane] <= count as u32 { draw as u32 } else { drawn };
                }
            }
        }
    }

    /// Asks for the edges that were drawn.
    #[inline(always)]
    fn fetch(&self, graph: &Csr, count: u32) {
        let indices = graph.indices().as_ptr();
        for positions in &self.positions[..count as usize] {
            for lane in 0..LANES {
                prefetch(indices.wrapping_add(self.starts[lane] as usize + positions[lane] as usize));
            }
        }
    }

    /// Reads the edges that were drawn.
    #[inline(always)]
    fn read<S: Sink>(&self, graph: &Csr, n_nodes: usize, drawn: &mut Drawn<'_>, sink: &mut S) {
        let mut sources = [0; LANES * MAX_FAN_OUT];
        let mut end = drawn.indptr.last().copied().unwrap_or(0);
        let mut n_read = 0;
        for lane in 0..n_nodes {
            let start = self.starts[lane] as usize;
            let positions = &self.positions[..self.counts[lane] as usize];
            let row = &graph.indices()[start..];
            for (source, positions) in sources[n_read..].iter_mut().zip(positions) {
                *source = row[positions[lane] as usize];
            }
            if let Some(edge_ids) = &mut drawn.edge_ids {
                edge_ids.extend(positions.iter().map(|positions| (start + positions[lane] as usize) as u64));
            }
            n_read += positions.len();
            end += positions.len() as u64;
            drawn.indptr.push(end);
        }
        sink.take(&sources[..n_read]);
    }
}

/// Block `block` of the draws of each node, word by word.
#[inline(always)]
fn philox_lanes(draws: HopDraws, block: u32, ids: &Lanes) -> [Lanes; 4] {
    let mut words = [[0; LANES]; 4];
    let key = draws.key.words();
    for lane in 0..LANES {
        let block = girih_random::philox4x32([block, draws.batch, ids[lane], draws.hop], key);
        for (word, value) in words.iter_mut().zip(block) {
            word[lane] = value;
        }
    }
    words
}

/// [`girih_random::bounded`] for bounds of 32 bits, in steps that vectors can take.
#[inline(always)]
fn below(low: u32, high: u32, bound: u32) -> u32 {
    let carry = (u64::from(low) * u64::from(bound)) >> 32;
    ((u64::from(high) * u64::from(bound) + carry) >> 32) as u32
}
