//! Assembly of drawn pairs into a [`Csr`] with exactly the requested number of edges: a symmetric graph, or a relation.
//!
//! 1. As many pairs as requested edges are drawn, scattered into their rows and sorted; repeats are dropped.
//! 2. Pairs lost to repeats and self loops are drawn again until the number is right (`top_up`).
//! 3. Both are merged into the final arrays.
//!
//! At most two copies of the column ids are alive at a time, in a relation three.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use girih_graph_format::{Csr, NodeId};
use girih_machine::zeros;
use girih_random::{Key, bounded};
use rayon::prelude::*;

use super::decision::{Decision, Keys};
use crate::DatasetError;

/// Random graph as a sequence of independent pairs of row and column.
pub(super) trait PairSource: Sync {
    /// Number of rows and of columns; the ends of a pair are below them.
    fn shape(&self) -> (usize, usize);

    /// Pair number `draw`, a pure function of it; may be a self loop or a repeat of another.
    fn pair(&self, draw: u64) -> (NodeId, NodeId);
}

/// Entries of a pair of row and column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entries {
    /// The pair, and the same pair in the other direction. Self loops have none.
    Both,
    /// The pair alone. Self loops have none, unless rows and columns are nodes of different types.
    One {
        /// Whether rows and columns are nodes of different types.
        joins_types: bool,
    },
}

impl Entries {
    /// Number of entries of a pair.
    fn per_pair(self) -> usize {
        if matches!(self, Self::Both) { 2 } else { 1 }
    }

    /// Entries of a pair, by row and column.
    fn of(self, (u, v): (NodeId, NodeId)) -> impl Iterator<Item = (NodeId, NodeId)> {
        let is_loop = u == v && !matches!(self, Self::One { joins_types: true });
        [(u, v), (v, u)].into_iter().take(if is_loop { 0 } else { self.per_pair() })
    }

    /// Number that is the same for repeats of a pair, and for no other pair; `None` for a pair without entries.
    fn key(self, (u, v): (NodeId, NodeId)) -> Option<u64> {
        let entries = self.of((u, v));
        entries.map(|(row, column)| u64::from(row) << 32 | u64::from(column)).min()
    }
}

/// Number of rows and entries below which a task is not split.
const TASK: usize = 1 << 15;
/// Number of rounds of draws from the source; later rounds draw pairs uniformly, which always ends.
const SOURCE_ROUNDS: u64 = 16;
/// Number of rounds in all; uniform draws succeed at least every second time, so it is never reached.
const MAX_ROUNDS: u64 = 256;

/// Makes the graph of the first `n_pairs` distinct pairs of `source`, each with all its entries.
pub(super) fn assemble(
    source: &impl PairSource,
    entries: Entries,
    n_pairs: u64,
    keys: Keys,
) -> Result<Csr, DatasetError> {
    let rows = Rows::scatter(source, entries, n_pairs);
    let extras = top_up(&rows, source, n_pairs, keys.key(Decision::UniformPair))?;
    rows.merge(&extras)
}

/// Sorted distinct columns of every row, with gaps where repeats were.
struct Rows {
    n_cols: usize,
    /// Entries of a pair.
    entries: Entries,
    /// Offset of each row in `columns`; one more than rows.
    starts: Vec<u64>,
    columns: Vec<NodeId>,
    /// Number of valid columns of each row.
    lengths: Vec<u32>,
}

impl Rows {
    fn scatter(source: &impl PairSource, entries: Entries, n_pairs: u64) -> Self {
        let (n_rows, n_cols) = source.shape();
        let pairs: Vec<(NodeId, NodeId)> = (0..n_pairs).into_par_iter().map(|draw| source.pair(draw)).collect();
        let cursors: Vec<AtomicU64> = (0..n_rows).map(|_| AtomicU64::new(0)).collect();
        pairs.par_iter().for_each(|&pair| {
            for (row, _) in entries.of(pair) {
                cursors[row as usize].fetch_add(1, Relaxed);
            }
        });
        let starts = prefix_sum(cursors.iter().map(|c| c.load(Relaxed)));
        cursors.par_iter().zip(&starts).for_each(|(cursor, &start)| cursor.store(start, Relaxed));

        let slots: Vec<AtomicU32> = (0..starts[n_rows]).into_par_iter().map(|_| AtomicU32::new(0)).collect();
        pairs.par_iter().for_each(|&pair| {
            for (row, column) in entries.of(pair) {
                slots[cursors[row as usize].fetch_add(1, Relaxed) as usize].store(column, Relaxed);
            }
        });
        drop(pairs);
        let mut columns: Vec<NodeId> = slots.into_iter().map(AtomicU32::into_inner).collect();
        let mut lengths = vec![0; n_rows];
        // Threads interleave within a row; sorting restores a unique order.
        for_each_row(0, &starts, &mut columns, &mut lengths, &|_, row, length| {
            row.sort_unstable();
            *length = dedup_sorted(row);
        });
        Self { n_cols, entries, starts, columns, lengths }
    }

    fn row(&self, u: NodeId) -> &[NodeId] {
        let start = self.starts[u as usize] as usize;
        &self.columns[start..start + self.lengths[u as usize] as usize]
    }

    /// Whether a pair has entries. The shortest of its rows is searched.
    fn contains(&self, pair: (NodeId, NodeId)) -> bool {
        let entry = self.entries.of(pair).min_by_key(|&(row, _)| self.lengths[row as usize]);
        entry.is_some_and(|(row, column)| self.row(row).binary_search(&column).is_ok())
    }

    /// Number of distinct pairs.
    fn n_pairs(&self) -> u64 {
        self.lengths.par_iter().map(|&length| u64::from(length)).sum::<u64>() / self.entries.per_pair() as u64
    }

    /// Merges these rows with the `extras`, which they do not contain.
    fn merge(self, extras: &[u64]) -> Result<Csr, DatasetError> {
        let n_rows = self.lengths.len();
        let n_entries = self.entries.per_pair();
        let directions = |&key: &u64| [key, key.rotate_left(32)].into_iter().take(n_entries);
        let mut directed: Vec<u64> = extras.par_iter().flat_map_iter(directions).collect();
        directed.par_sort_unstable();
        let mut n_extras = vec![0u32; n_rows];
        directed.iter().for_each(|&key| n_extras[(key >> 32) as usize] += 1);
        let extra_starts = prefix_sum(n_extras.iter().map(|&n| u64::from(n)));
        let indptr = prefix_sum(self.lengths.iter().zip(&n_extras).map(|(&a, &b)| u64::from(a) + u64::from(b)));

        let mut indices = zeros(indptr[n_rows] as usize);
        for_each_row(0, &indptr, &mut indices, &mut vec![(); n_rows], &|v, out, ()| {
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
        Ok(Csr::new(n_rows, self.n_cols, indptr, indices, None)?)
    }
}

/// Distinct pairs to add to `rows` for a total of `n_pairs`, as ascending keys.
fn top_up(rows: &Rows, source: &impl PairSource, n_pairs: u64, key: Key) -> Result<Vec<u64>, DatasetError> {
    let n_missing = n_pairs - rows.n_pairs();
    let uniform = Uniform { shape: source.shape(), key };
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
    Err(DatasetError::invalid(format!("{n_pairs} distinct edges were not found; lower degree=, or take more nodes")))
}

/// Keys of drawn pairs that are in neither `rows` nor `extras`, each once, in the order of their first draw.
fn new_keys(rows: &Rows, extras: &[u64], source: &impl PairSource, draws: std::ops::Range<u64>) -> Vec<u64> {
    let is_new = |pair, key: &u64| !rows.contains(pair) && extras.binary_search(key).is_err();
    let mut found: Vec<(u64, u64)> = draws
        .into_par_iter()
        .filter_map(|draw| {
            let pair = source.pair(draw);
            rows.entries.key(pair).filter(|key| is_new(pair, key)).map(|key| (key, draw))
        })
        .collect();
    found.par_sort_unstable();
    found.dedup_by_key(|(key, _)| *key);
    found.par_sort_unstable_by_key(|&(_, draw)| draw);
    found.into_iter().map(|(key, _)| key).collect()
}

/// Source of pairs of any row and column with equal probability.
struct Uniform {
    shape: (usize, usize),
    key: Key,
}

impl PairSource for Uniform {
    fn shape(&self) -> (usize, usize) {
        self.shape
    }

    fn pair(&self, draw: u64) -> (NodeId, NodeId) {
        let words = self.key.block(0, draw).map(u64::from);
        let end = |high: u64, low: u64, n: usize| bounded(high << 32 | low, n as u64) as NodeId;
        (end(words[0], words[1], self.shape.0), end(words[2], words[3], self.shape.1))
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
