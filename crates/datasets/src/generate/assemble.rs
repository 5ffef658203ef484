//! Assembly of drawn pairs into a symmetric [`Csr`] with exactly the requested number of edges.
//!
//! 1. As many pairs as requested edges are drawn, scattered into both rows and sorted; repeats are dropped.
//! 2. Pairs lost to repeats and self loops are drawn again until the number is right (`top_up`).
//! 3. Both are merged into the final arrays.
//!
//! At most two copies of the column ids are alive at a time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use girih_graph_format::{Csr, NodeId};
use girih_machine::zeros;
use girih_random::{Key, bounded};
use rayon::prelude::*;

use super::decision::Decision;
use crate::DatasetError;

/// Random graph as a sequence of independent pairs.
pub(super) trait PairSource: Sync {
    /// Number of nodes; both ends are below it.
    fn n_nodes(&self) -> usize;

    /// Pair number `draw`, a pure function of it; may be a self loop or a repeat of another.
    fn pair(&self, draw: u64) -> (NodeId, NodeId);
}

/// Number of rows and entries below which a task is not split.
const TASK: usize = 1 << 15;
/// Number of rounds of draws from the source; later rounds draw pairs uniformly, which always ends.
const SOURCE_ROUNDS: u64 = 16;
/// Number of rounds in all; uniform draws succeed at least every second time, so it is never reached.
const MAX_ROUNDS: u64 = 256;

/// Makes the graph of the first `n_pairs` distinct pairs of `source`, each stored in both directions.
pub(super) fn assemble(source: &impl PairSource, n_pairs: u64, seed: u64) -> Result<Csr, DatasetError> {
    let rows = Rows::scatter(source, n_pairs);
    let extras = top_up(&rows, source, n_pairs, seed)?;
    rows.merge(&extras)
}

/// Sorted distinct columns of every row, with gaps where repeats were.
struct Rows {
    /// Offset of each row in `columns`; `n_nodes + 1` elements.
    starts: Vec<u64>,
    columns: Vec<NodeId>,
    /// Number of valid columns of each row.
    lengths: Vec<u32>,
}

impl Rows {
    fn scatter(source: &impl PairSource, n_pairs: u64) -> Self {
        let pairs: Vec<(NodeId, NodeId)> = (0..n_pairs).into_par_iter().map(|draw| source.pair(draw)).collect();
        let cursors: Vec<AtomicU64> = (0..source.n_nodes()).map(|_| AtomicU64::new(0)).collect();
        pairs.par_iter().filter(|(u, v)| u != v).for_each(|&(u, v)| {
            cursors[u as usize].fetch_add(1, Relaxed);
            cursors[v as usize].fetch_add(1, Relaxed);
        });
        let starts = prefix_sum(cursors.iter().map(|c| c.load(Relaxed)));
        cursors.par_iter().zip(&starts).for_each(|(cursor, &start)| cursor.store(start, Relaxed));

        let slots: Vec<AtomicU32> = (0..starts[source.n_nodes()]).into_par_iter().map(|_| AtomicU32::new(0)).collect();
        pairs.par_iter().filter(|(u, v)| u != v).for_each(|&(u, v)| {
            for (row, column) in [(u, v), (v, u)] {
                slots[cursors[row as usize].fetch_add(1, Relaxed) as usize].store(column, Relaxed);
            }
        });
        drop(pairs);
        let mut columns: Vec<NodeId> = slots.into_iter().map(AtomicU32::into_inner).collect();
        let mut lengths = vec![0; source.n_nodes()];
        // Threads interleave within a row; sorting restores a unique order.
        for_each_row(0, &starts, &mut columns, &mut lengths, &|_, row, length| {
            row.sort_unstable();
            *length = dedup_sorted(row);
        });
        Self { starts, columns, lengths }
    }

    fn row(&self, u: NodeId) -> &[NodeId] {
        let start = self.starts[u as usize] as usize;
        &self.columns[start..start + self.lengths[u as usize] as usize]
    }

    /// Whether `(u, v)` is an edge. Rows are symmetric, so the shorter of the two is searched.
    fn contains(&self, u: NodeId, v: NodeId) -> bool {
        let (short, other) = if self.lengths[u as usize] <= self.lengths[v as usize] { (u, v) } else { (v, u) };
        self.row(short).binary_search(&other).is_ok()
    }

    /// Number of distinct pairs.
    fn n_pairs(&self) -> u64 {
        self.lengths.par_iter().map(|&length| u64::from(length)).sum::<u64>() / 2
    }

    /// Merges these rows with the `extras`, which they do not contain.
    fn merge(self, extras: &[u64]) -> Result<Csr, DatasetError> {
        let n_nodes = self.lengths.len();
        let mut directed: Vec<u64> = extras.par_iter().flat_map_iter(|&key| [key, key.rotate_left(32)]).collect();
        directed.par_sort_unstable();
        let mut n_extras = vec![0u32; n_nodes];
        directed.iter().for_each(|&key| n_extras[(key >> 32) as usize] += 1);
        let extra_starts = prefix_sum(n_extras.iter().map(|&n| u64::from(n)));
        let indptr = prefix_sum(self.lengths.iter().zip(&n_extras).map(|(&a, &b)| u64::from(a) + u64::from(b)));

        let mut indices = zeros(indptr[n_nodes] as usize);
        for_each_row(0, &indptr, &mut indices, &mut vec![(); n_nodes], &|v, out, ()| {
            let own = self.row(v as NodeId);
            let (front, back) = out.split_at_mut(own.len());
            front.copy_from_slice(own);
            let more = &directed[extra_starts[v] as usize..extra_starts[v + 1] as usize];
            if !more.is_empty() {
                back.iter_mut().zip(more).for_each(|(slot, &key)| *slot = key as NodeId);
                // Two ascending runs: the stable sort finds and merges them.
                out.sort();
            }
        });
        Ok(Csr::new(n_nodes, n_nodes, indptr, indices, None)?)
    }
}

/// Distinct pairs to add to `rows` for a total of `n_pairs`, as ascending keys.
fn top_up(rows: &Rows, source: &impl PairSource, n_pairs: u64, seed: u64) -> Result<Vec<u64>, DatasetError> {
    let n_missing = n_pairs - rows.n_pairs();
    let uniform = Uniform { n_nodes: source.n_nodes(), key: Decision::UniformPair.key(seed) };
    let mut extras: Vec<u64> = Vec::new();
    let mut next_draw = n_pairs;
    for round in 0..MAX_ROUNDS {
        let n_wanted = n_missing - extras.len() as u64;
        if n_wanted == 0 {
            return Ok(extras);
        }
        let draws = next_draw..next_draw + n_wanted + n_wanted / 4 + 64;
        next_draw = draws.end;
        let found = if round < SOURCE_ROUNDS {
            new_keys(rows, &extras, source, draws)
        } else {
            new_keys(rows, &extras, &uniform, draws)
        };
        extras.extend(found.into_iter().take(n_wanted as usize));
        extras.par_sort_unstable();
    }
    Err(DatasetError::invalid(format!("{n_pairs} distinct edges were not found; lower degree= or take more nodes")))
}

/// Keys of drawn pairs that are in neither `rows` nor `extras`, each once, in the order of their first draw.
fn new_keys(rows: &Rows, extras: &[u64], source: &impl PairSource, draws: std::ops::Range<u64>) -> Vec<u64> {
    let is_new = |u, v, key| u != v && !rows.contains(u, v) && extras.binary_search(&key).is_err();
    let mut found: Vec<(u64, u64)> = draws
        .into_par_iter()
        .filter_map(|draw| {
            let (u, v) = source.pair(draw);
            let key = u64::from(u.min(v)) << 32 | u64::from(u.max(v));
            is_new(u, v, key).then_some((key, draw))
        })
        .collect();
    found.par_sort_unstable();
    found.dedup_by_key(|(key, _)| *key);
    found.par_sort_unstable_by_key(|&(_, draw)| draw);
    found.into_iter().map(|(key, _)| key).collect()
}

/// Source of pairs of any two nodes with equal probability.
struct Uniform {
    n_nodes: usize,
    key: Key,
}

impl PairSource for Uniform {
    fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    fn pair(&self, draw: u64) -> (NodeId, NodeId) {
        let words = self.key.block(0, draw).map(u64::from);
        let end = |high: u64, low: u64| bounded(high << 32 | low, self.n_nodes as u64) as NodeId;
        (end(words[0], words[1]), end(words[2], words[3]))
    }
}

/// Moves the distinct values of an ascending slice to its front; returns their number.
fn dedup_sorted(row: &mut [NodeId]) -> u32 {
    let mut n_distinct = row.len().min(1);
    for at in 1..row.len() {
        if row[at] != row[n_distinct - 1] {
            row[n_distinct] = row[at];
            n_distinct += 1;
        }
    }
    n_distinct as u32
}

fn prefix_sum(lengths: impl ExactSizeIterator<Item = u64>) -> Vec<u64> {
    let mut starts = Vec::with_capacity(lengths.len() + 1);
    starts.push(0);
    starts.extend(lengths.scan(0, |total, length| {
        *total += length;
        Some(*total)
    }));
    starts
}

/// Calls `work(row, entries of the row, result of the row)` for every row, in parallel: rows are halved until the
/// work is small.
fn for_each_row<R: Send>(
    first: usize,
    starts: &[u64],
    entries: &mut [NodeId],
    results: &mut [R],
    work: &(impl Fn(usize, &mut [NodeId], &mut R) + Sync),
) {
    let n_rows = results.len();
    if n_rows <= 1 || n_rows + entries.len() <= TASK {
        let mut rest = entries;
        for (row, result) in results.iter_mut().enumerate() {
            let (entries, after) = rest.split_at_mut((starts[row + 1] - starts[row]) as usize);
            work(first + row, entries, result);
            rest = after;
        }
        return;
    }
    let half = n_rows / 2;
    let (left, right) = entries.split_at_mut((starts[half] - starts[0]) as usize);
    let (left_results, right_results) = results.split_at_mut(half);
    rayon::join(
        || for_each_row(first, &starts[..=half], left, left_results, work),
        || for_each_row(first + half, &starts[half..], right, right_results, work),
    );
}
