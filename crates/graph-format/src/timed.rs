//! [`TimedRows`]: an adjacency whose edges have times.

use std::fmt;
use std::ops::Range;

use rayon::prelude::*;

use crate::{FormatError, MAX_NODES, NodeId, Permutation};

/// Most decimals of a time.
pub const MAX_DECIMALS: u8 = 9;

/// Unit of times: one second, or what a file counts, divided by a power of ten.
///
/// Times are whole numbers of ticks. A file whose times have five decimals has a tick of 10⁻⁵.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tick {
    decimals: u8,
}

impl Tick {
    /// Tick of times with this number of decimals.
    ///
    /// # Errors
    /// When there are more than [`MAX_DECIMALS`].
    pub fn of_decimals(decimals: u8) -> Result<Self, FormatError> {
        if decimals > MAX_DECIMALS {
            return Err(FormatError::invalid(format!(
                "times with {decimals} decimals; at most {MAX_DECIMALS} are read"
            )));
        }
        Ok(Self { decimals })
    }

    /// Number of decimals of a time.
    #[must_use]
    pub fn decimals(self) -> u8 {
        self.decimals
    }

    /// Number of ticks in one unit of the file.
    #[must_use]
    pub fn per_unit(self) -> i64 {
        10_i64.pow(u32::from(self.decimals))
    }

    /// Time as the file writes it.
    #[must_use]
    pub fn show(self, time: i64) -> String {
        let (whole, rest) = (time / self.per_unit(), (time % self.per_unit()).unsigned_abs());
        let sign = if time < 0 && whole == 0 { "-" } else { "" };
        match self.decimals {
            0 => time.to_string(),
            n => format!("{sign}{whole}.{rest:0width$}", width = usize::from(n)),
        }
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decimals {
            0 => f.write_str("1"),
            n => write!(f, "10^-{n}"),
        }
    }
}

/// Times of a list of edges, in the order of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time of each edge in ticks.
    pub values: Vec<i64>,
    /// Unit of the times.
    pub tick: Tick,
}

/// Adjacency of edges with times, where a pair of nodes may have several edges: row `v` lists the edges that end in `v`.
///
/// # Invariants
/// Entries of a row ascend by (time, source, number of the edge). So the edges up to a time are the first of their row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimedRows {
    n_nodes: usize,
    indptr: Vec<u64>,
    sources: Vec<NodeId>,
    times: Vec<i64>,
    edges: Vec<u32>,
    /// Whether an entry is the reverse of its edge; empty where edges are entries of their destinations alone.
    reversed: Vec<bool>,
    n_edges: usize,
    tick: Tick,
}

/// Edge with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedEdge {
    /// Node that the edge leaves.
    pub source: NodeId,
    /// Node that the edge enters.
    pub destination: NodeId,
    /// Time in ticks.
    pub time: i64,
    /// Number of the edge in the list that the rows were made from.
    pub edge: u32,
}

/// Entry of a row: an edge, or its reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedEntry {
    /// Time of the edge in ticks.
    pub time: i64,
    /// Number of the edge in the list that the rows were made from.
    pub edge: u32,
    /// Whether the entry is the reverse of its edge: it leaves the destination, and enters the source.
    pub is_reversed: bool,
}

/// Entry of a row while it is made: time, source, number of the edge, and whether it is the reverse of the edge.
type Entry = (i64, NodeId, u32, bool);

/// Entries of a row, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedRow<'a> {
    /// Node that each edge leaves.
    pub sources: &'a [NodeId],
    /// Time of each edge in ticks.
    pub times: &'a [i64],
    /// Number of each edge in the list that the rows were made from.
    pub edges: &'a [u32],
}

impl TimedRows {
    /// Makes rows from a list of edges, which may have any order. With `both_ways`, an edge is an entry of both its ends;
    /// an edge from a node to itself is one entry.
    ///
    /// # Errors
    /// When the arrays have different lengths, a node is not below `n_nodes`, there are more than [`MAX_NODES`] nodes, or
    /// more than 2³² edges.
    pub fn new(
        n_nodes: usize,
        sources: &[NodeId],
        destinations: &[NodeId],
        times: &Times,
        both_ways: bool,
    ) -> Result<Self, FormatError> {
        let n_edges = sources.len();
        if destinations.len() != n_edges || times.values.len() != n_edges {
            let (n_destinations, n_times) = (destinations.len(), times.values.len());
            return Err(FormatError::invalid(format!(
                "{n_edges} sources, {n_destinations} destinations and {n_times} times; each edge has one of each"
            )));
        }
        if n_nodes > MAX_NODES || u32::try_from(n_edges).is_err() {
            return Err(FormatError::invalid(format!("{n_nodes} nodes and {n_edges} timed edges are too many")));
        }
        if let Some(at) = (0..n_edges).find(|&at| sources[at].max(destinations[at]) as usize >= n_nodes) {
            let node = sources[at].max(destinations[at]);
            return Err(FormatError::invalid(format!("edge {at} names node {node}, but there are {n_nodes} nodes")));
        }
        let is_mirrored = |at: usize| both_ways && sources[at] != destinations[at];
        let mut indptr = vec![0_u64; n_nodes + 1];
        for at in 0..n_edges {
            indptr[destinations[at] as usize + 1] += 1;
            indptr[sources[at] as usize + 1] += u64::from(is_mirrored(at));
        }
        (0..n_nodes).for_each(|v| indptr[v + 1] += indptr[v]);
        let mut next = indptr.clone();
        let mut entries = vec![Entry::default(); indptr[n_nodes] as usize];
        let mut put = |row: NodeId, entry: Entry| {
            let at = &mut next[row as usize];
            entries[*at as usize] = entry;
            *at += 1;
        };
        for at in 0..n_edges {
            let (time, edge) = (times.values[at], at as u32);
            put(destinations[at], (time, sources[at], edge, false));
            if is_mirrored(at) {
                put(sources[at], (time, destinations[at], edge, true));
            }
        }
        rows_of(&mut entries, &indptr).into_par_iter().for_each(|row| {
            if !row.is_sorted() {
                row.sort_unstable();
            }
        });
        Ok(Self { n_nodes, n_edges, tick: times.tick, ..Self::of_entries(indptr, &entries, both_ways) })
    }

    /// Rows of entries, without numbers of nodes and edges.
    fn of_entries(indptr: Vec<u64>, entries: &[Entry], both_ways: bool) -> Self {
        Self {
            indptr,
            sources: entries.par_iter().map(|entry| entry.1).collect(),
            times: entries.par_iter().map(|entry| entry.0).collect(),
            edges: entries.par_iter().map(|entry| entry.2).collect(),
            reversed: if both_ways { entries.par_iter().map(|entry| entry.3).collect() } else { Vec::new() },
            ..Self::default()
        }
    }

    /// Number of nodes.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// Number of entries of all rows.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.sources.len()
    }

    /// Number of edges of the list that the rows were made from.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.n_edges
    }

    /// Whether edges are entries of both their ends.
    #[must_use]
    pub fn goes_both_ways(&self) -> bool {
        !self.reversed.is_empty()
    }

    /// Unit of the times.
    #[must_use]
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// Offsets of rows; one more element than there are nodes.
    #[must_use]
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// Source of each entry, row after row.
    #[must_use]
    pub fn sources(&self) -> &[NodeId] {
        &self.sources
    }

    /// Time of each entry in ticks, row after row.
    #[must_use]
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// Number of the edge of each entry in the list that the rows were made from, row after row.
    #[must_use]
    pub fn edge_numbers(&self) -> &[u32] {
        &self.edges
    }

    /// Entries of the edges that end in `v`, oldest first.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn row(&self, v: usize) -> TimedRow<'_> {
        self.entries(self.row_range(v))
    }

    /// Positions of the entries of row `v`.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn row_range(&self, v: usize) -> Range<usize> {
        self.indptr[v] as usize..self.indptr[v + 1] as usize
    }

    /// Entries at some positions.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn entries(&self, at: Range<usize>) -> TimedRow<'_> {
        TimedRow { sources: &self.sources[at.clone()], times: &self.times[at.clone()], edges: &self.edges[at] }
    }

    /// Entry at a position.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn entry(&self, at: usize) -> TimedEntry {
        let is_reversed = self.reversed.get(at).copied().unwrap_or(false);
        TimedEntry { time: self.times[at], edge: self.edges[at], is_reversed }
    }

    /// Positions of the entries of row `v` whose times are in `window`.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn within(&self, v: usize, window: &TimeWindow) -> Range<usize> {
        let row = self.row_range(v);
        let times = &self.times[row.clone()];
        let n_late = times.partition_point(|&time| time <= window.last);
        let is_open = window.first == i64::MIN;
        let n_early = if is_open { 0 } else { times[..n_late].partition_point(|&time| time < window.first) };
        row.start + n_early..row.start + n_late
    }

    /// Earliest and latest time; `None` without edges.
    #[must_use]
    pub fn span(&self) -> Option<(i64, i64)> {
        let ends = |v: usize| {
            let times = self.row(v).times;
            Some((*times.first()?, *times.last()?))
        };
        (0..self.n_nodes).into_par_iter().filter_map(ends).reduce_with(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The rows with nodes in another order.
    ///
    /// # Panics
    /// When the permutation is of another number of nodes.
    #[must_use]
    pub fn permuted(&self, permutation: &Permutation) -> Self {
        let (new_of, old_of) = (permutation.new_of_old(), permutation.inverse());
        let mut indptr = vec![0_u64];
        let mut entries: Vec<Entry> = Vec::with_capacity(self.nnz());
        for &old in old_of.new_of_old() {
            let TimedRow { sources, times, edges } = self.row(old as usize);
            let start = entries.len();
            let first = self.row_range(old as usize).start;
            let is_reversed = |at: usize| self.reversed.get(first + at).copied().unwrap_or(false);
            entries.extend(
                (0..sources.len()).map(|at| (times[at], new_of[sources[at] as usize], edges[at], is_reversed(at))),
            );
            entries[start..].sort_unstable();
            indptr.push(entries.len() as u64);
        }
        let (n_nodes, n_edges, tick) = (self.n_nodes, self.n_edges, self.tick);
        Self { n_nodes, n_edges, tick, ..Self::of_entries(indptr, &entries, self.goes_both_ways()) }
    }

    /// All edges in the order of their times, and of the list where times are equal.
    #[must_use]
    pub fn edges_in_time(&self) -> Vec<TimedEdge> {
        let mut all = Vec::with_capacity(self.n_edges);
        for destination in 0..self.n_nodes {
            let own = self.row_range(destination).filter(|&at| !self.reversed.get(at).copied().unwrap_or(false));
            all.extend(own.map(|at| TimedEdge {
                source: self.sources[at],
                destination: destination as NodeId,
                time: self.times[at],
                edge: self.edges[at],
            }));
        }
        all.par_sort_unstable_by_key(|edge| (edge.time, edge.edge));
        all
    }
}

/// Times from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// Earliest time.
    pub first: i64,
    /// Latest time.
    pub last: i64,
}

/// Entries of each row.
fn rows_of<'a, T>(mut entries: &'a mut [T], indptr: &[u64]) -> Vec<&'a mut [T]> {
    let mut rows = Vec::with_capacity(indptr.len());
    for ends in indptr.windows(2) {
        let (row, rest) = entries.split_at_mut((ends[1] - ends[0]) as usize);
        rows.push(row);
        entries = rest;
    }
    rows
}
