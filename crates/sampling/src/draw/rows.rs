//! Draws for one node after the other. A draw costs O(fan-out), or its square where the fan-out is small, for any
//! number of neighbors. Weights and excluded edges add a binary search.

use girih_random::Stream;
use hashbrown::HashSet;

use super::rule::{Drawn, HopRule, Rule, Sink};
use crate::fan_out::Neighbors;
use crate::key::{HopDraws, Positions};
use crate::{Bias, NodeId, Patch};

/// Largest number of positions for which a scan of a list is faster than hashing.
const LIST_MAX: usize = 64;

/// Memory of one row.
#[derive(Default)]
pub(super) struct RowScratch {
    pub(super) positions: Vec<u32>,
    sources: Vec<NodeId>,
    taken: Taken,
    /// Positions that may not be drawn, ascending.
    skipped: Vec<u32>,
}

/// Draws edges for each node of `frontier`.
pub(super) fn hop<S: Sink>(
    patch: Patch<'_>,
    frontier: &[NodeId],
    HopRule { rule, shares }: HopRule<'_>,
    draws: HopDraws,
    scratch: &mut RowScratch,
    mut drawn: Drawn<'_>,
    sink: &mut S,
) {
    for (at, &node) in frontier.iter().enumerate() {
        let neighbors = shares.map_or(rule.neighbors, |shares| Neighbors::Count(shares[at]));
        let rule = Rule { neighbors, ..rule };
        let range = patch.row_range(node);
        let row = &patch.rows().indices()[range.clone()];
        let edges = patch.edges(&range);
        scratch.positions.clear();
        scratch.skipped.clear();
        scratch.skipped.extend(rule.excluded.within(&edges).iter().map(|edge| (edge - edges.start) as u32));
        match rule.bias {
            None => draw(row.len(), rule, draws.positions(node), scratch),
            Some(bias) => draw_weighted(bias, range.start..range.end, rule, draws.stream(node), scratch),
        }
        scratch.sources.clear();
        scratch.sources.extend(scratch.positions.iter().map(|&position| row[position as usize]));
        sink.take(&scratch.sources);
        if let Some(edge_ids) = &mut drawn.edge_ids {
            edge_ids.extend(scratch.positions.iter().map(|&position| edges.start + u64::from(position)));
        }
        let end = drawn.indptr.last().copied().unwrap_or(0) + scratch.positions.len() as u64;
        drawn.indptr.push(end);
    }
}

/// Draws positions of neighbors that are all equally likely.
fn draw(n_row: usize, rule: Rule<'_>, draws: Positions, scratch: &mut RowScratch) {
    let degree = (n_row - scratch.skipped.len()) as u32;
    scratch.draw(degree, (rule.neighbors, rule.replace), draws);
    let RowScratch { positions, skipped, .. } = scratch;
    if !skipped.is_empty() {
        positions.iter_mut().for_each(|position| *position = past_skipped(*position, skipped));
    }
}

impl RowScratch {
    /// Draws positions below `degree` by a fan-out, with replacement or without.
    pub(super) fn draw(&mut self, degree: u32, (neighbors, replace): (Neighbors, bool), draws: Positions) {
        match neighbors {
            Neighbors::Count(count) => self.take(degree, (count, replace), draws),
            Neighbors::All => self.positions.extend(0..degree),
        }
    }

    /// Draws `count` positions below `degree`, with replacement or without.
    pub(super) fn take(&mut self, degree: u32, (count, replace): (u32, bool), mut draws: Positions) {
        if replace {
            let n_draws = if degree == 0 { 0 } else { count };
            self.positions.extend((0..n_draws).map(|_| draws.below(degree)));
        } else if count < degree {
            floyd(degree, count, draws, &mut self.taken, &mut self.positions);
        } else {
            self.positions.extend(0..degree);
        }
    }
}

/// `count` distinct positions below `degree`, in the order drawn (Bentley and Floyd, CACM 30(9), 1987).
fn floyd(degree: u32, count: u32, mut draws: Positions, taken: &mut Taken, positions: &mut Vec<u32>) {
    taken.clear(count as usize);
    for last in degree - count..degree {
        let drawn = draws.below(last + 1);
        let position = if taken.contains(drawn) { last } else { drawn };
        taken.insert(position);
        positions.push(position);
    }
}

/// Position in the whole row of position `among` the entries that are not skipped.
fn past_skipped(among: u32, skipped: &[u32]) -> u32 {
    // Entry `i` of `skipped` has `skipped[i] − i` unskipped positions before it.
    let (mut low, mut high) = (0, skipped.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if skipped[middle] - middle as u32 <= among { low = middle + 1 } else { high = middle }
    }
    among + low as u32
}

/// Draws positions of neighbors with chances in proportion to their weights.
fn draw_weighted(
    bias: &Bias,
    range: std::ops::Range<usize>,
    rule: Rule<'_>,
    mut stream: Stream,
    scratch: &mut RowScratch,
) {
    let RowScratch { positions, skipped, .. } = scratch;
    let row = bias.row(range.clone());
    let degree = range.len() - skipped.len();
    let is_all = |count: u32| !rule.replace && count as usize >= degree;
    match rule.neighbors {
        Neighbors::Count(count) if !is_all(count) => {
            // Cutting whole intervals out of the running sum keeps every draw exact, and needs no second try.
            for _ in 0..count {
                let left_out: u64 = skipped.iter().map(|&position| row.weight(position)).sum();
                let left = row.total() - left_out;
                if left == 0 {
                    break;
                }
                let position = row.find(past_weights(stream.below(left), row, skipped));
                positions.push(position);
                if !rule.replace {
                    let at = skipped.partition_point(|&other| other < position);
                    skipped.insert(at, position);
                }
            }
        }
        _ => positions
            .extend((0..range.len() as u32).filter(|&p| row.weight(p) > 0 && skipped.binary_search(&p).is_err())),
    }
}

/// Converts place `among` in the running sum over unskipped entries to the place in the running sum of the whole row.
fn past_weights(among: u64, row: crate::bias::RowBias<'_>, skipped: &[u32]) -> u64 {
    let mut place = among;
    for &position in skipped {
        if place < row.before(position) {
            break;
        }
        place += row.weight(position);
    }
    place
}

/// Set of the positions drawn already.
#[derive(Default)]
struct Taken {
    list: Vec<u32>,
    set: HashSet<u32>,
    is_list: bool,
}

impl Taken {
    /// Empties the set and prepares it for up to `count` positions.
    fn clear(&mut self, count: usize) {
        self.is_list = count <= LIST_MAX;
        self.list.clear();
        self.set.clear();
    }

    fn contains(&self, position: u32) -> bool {
        if self.is_list { self.list.contains(&position) } else { self.set.contains(&position) }
    }

    fn insert(&mut self, position: u32) {
        if self.is_list {
            self.list.push(position);
        } else {
            self.set.insert(position);
        }
    }
}
