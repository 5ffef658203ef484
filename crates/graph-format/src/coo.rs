//! [`Coo`]: a list of edges in any order.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use girih_machine::{parallel, zeros};
use rayon::prelude::*;

use crate::{Csr, FormatError, MAX_NODES, NodeId, Notes, rows};

/// Largest number of nodes that is accepted for any number of edges.
const MAX_SMALL_GRAPH: usize = 1 << 24;
/// Number of nodes per edge above which the stated size of a larger graph is taken for an error.
const MAX_NODES_PER_EDGE: usize = 100;

/// Rule for pairs of nodes that a list holds more than once (parallel edges).
///
/// A [`Csr`] stores a pair once, so every rule but `Refuse` merges `coo.len() - csr.nnz()` entries into others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// Weights of a pair add up, in the order of the list. In a list without weights each entry counts one: repeated
    /// pairs give the matrix weights, and without repeats it has none.
    Sum,
    /// The weight of a pair's first entry counts; a list without weights gives a matrix without weights.
    Merge,
    /// Every parallel edge counts, as in PyG and DGL. Stored as for `Sum`: k parallel edges of weight one are one
    /// entry of weight k.
    Keep,
    /// A repeated pair is an error.
    Refuse,
}

impl Duplicates {
    /// All rules.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Merge, Self::Keep, Self::Refuse];

    fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Merge => "merge",
            Self::Keep => "keep",
            Self::Refuse => "refuse",
        }
    }

    /// Notes that `n_merged` entries are stored together with others; `weighted` says whether they have weights.
    pub fn note(self, n_merged: usize, weighted: bool, notes: &mut Notes) {
        if n_merged == 0 {
            return;
        }
        let what = match (self, weighted) {
            (Self::Merge, false) => "stored once",
            (Self::Merge, true) => "stored once, with the first weight",
            (_, false) => "counted: k parallel edges are one of weight k",
            (_, true) => "their weights are added",
        };
        let noun = if n_merged == 1 { "edge is" } else { "edges are" };
        let text = format!("{n_merged} {noun} parallel to another: {what} (--duplicates {self})");
        notes.make_up("merged_edges", text, &[("edges", n_merged as u64)]);
    }

    /// Whether each entry adds to the weight of its pair.
    fn adds(self) -> bool {
        matches!(self, Self::Sum | Self::Keep)
    }
}

impl fmt::Display for Duplicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Duplicates {
    type Err = FormatError;

    /// Parses the name of a rule, in any case.
    fn from_str(name: &str) -> Result<Self, FormatError> {
        let rule = Self::ALL.into_iter().find(|rule| rule.name().eq_ignore_ascii_case(name));
        rule.ok_or_else(|| {
            FormatError::invalid(format!("{name:?} is no rule for repeated edges; expected sum, merge, keep or refuse"))
        })
    }
}

/// Edges as parallel arrays: entry `e` is at `(rows[e], cols[e])`. For a graph, `rows` are destinations.
///
/// # Invariants
/// Arrays have equal lengths; rows are below `n_rows`, columns below `n_cols`, weights finite; dimensions are at most
/// [`MAX_NODES`].
#[derive(Clone, Debug, PartialEq)]
pub struct Coo {
    n_rows: usize,
    n_cols: usize,
    rows: Vec<NodeId>,
    cols: Vec<NodeId>,
    values: Option<Vec<f32>>,
}

impl Coo {
    /// Makes a list of entries, and checks it.
    ///
    /// # Errors
    /// When lengths differ, an id is out of range, a weight is not finite, or a dimension is too large.
    pub fn new(
        n_rows: usize,
        n_cols: usize,
        rows: Vec<NodeId>,
        cols: Vec<NodeId>,
        values: Option<Vec<f32>>,
    ) -> Result<Self, FormatError> {
        if n_rows.max(n_cols) > MAX_NODES {
            return Err(FormatError::invalid(format!("{n_rows} × {n_cols} exceeds the limit of {MAX_NODES} nodes")));
        }
        let n_values = values.as_ref().map_or(rows.len(), Vec::len);
        if rows.len() != cols.len() || rows.len() != n_values {
            return Err(FormatError::invalid(format!(
                "{} row ids, {} column ids and {n_values} weights; an edge needs one of each",
                rows.len(),
                cols.len()
            )));
        }
        for (what, ids, limit) in [("row", &rows, n_rows), ("column", &cols, n_cols)] {
            if let Some(at) = parallel::position(ids, |&id| id as usize >= limit) {
                return Err(FormatError::invalid(format!(
                    "edge {at}: {what} {} does not exist; there are {limit} nodes, numbered from 0",
                    ids[at]
                )));
            }
        }
        if let Some(at) = values.as_ref().and_then(|v| parallel::position(v, |v| !v.is_finite())) {
            return Err(FormatError::invalid(format!("edge {at}: the weight is not finite")));
        }
        Ok(Self { n_rows, n_cols, rows, cols, values })
    }

    /// Makes the edges `sources[e] → destinations[e]` of a graph: destinations are rows. The default number of nodes
    /// is the largest id plus one.
    ///
    /// # Errors
    /// As [`Coo::new`]. Without a number of nodes, when the largest id is implausibly large for the number of edges,
    /// because such ids do not count from 0.
    pub fn from_edges(
        sources: Vec<NodeId>,
        destinations: Vec<NodeId>,
        weights: Option<Vec<f32>>,
        n_nodes: Option<usize>,
    ) -> Result<Self, FormatError> {
        let n_nodes = match n_nodes {
            Some(n_nodes) => n_nodes,
            None => {
                let n_nodes = sources.par_iter().chain(&destinations).max().map_or(0, |&id| id as usize + 1);
                check_proportion(n_nodes, sources.len(), &format!("the largest id is {}", n_nodes.saturating_sub(1)))?;
                n_nodes
            }
        };
        Self::new(n_nodes, n_nodes, destinations, sources, weights)
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    #[must_use]
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Row id of every entry.
    #[must_use]
    pub fn rows(&self) -> &[NodeId] {
        &self.rows
    }

    /// Column id of every entry.
    #[must_use]
    pub fn cols(&self) -> &[NodeId] {
        &self.cols
    }

    /// Weight of every entry, if weighted.
    #[must_use]
    pub fn values(&self) -> Option<&[f32]> {
        self.values.as_deref()
    }

    /// Number of entries, including repeated ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Exchanges rows and columns.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { n_rows: self.n_cols, n_cols: self.n_rows, rows: self.cols, cols: self.rows, values: self.values }
    }

    /// Sorts the entries into rows: O(entries + rows), in parallel, with an equal result on any number of threads.
    ///
    /// # Errors
    /// With [`Duplicates::Refuse`], at the first repeated entry; when sums of weights overflow `f32`.
    pub fn to_csr(&self, duplicates: Duplicates) -> Result<Csr, FormatError> {
        let buckets = if self.values.is_none() { self.bucket_columns() } else { self.bucket_positions()? };
        self.matrix_of(&buckets, duplicates)
    }

    /// As [`to_csr`](Self::to_csr), and for each entry of the matrix its position in this list: of the first, where
    /// several were merged.
    ///
    /// # Errors
    /// As [`to_csr`](Self::to_csr); when there are more than 2³² entries.
    pub fn to_csr_with_positions(&self, duplicates: Duplicates) -> Result<(Csr, Vec<u64>), FormatError> {
        let buckets = self.bucket_positions()?;
        let csr = self.matrix_of(&buckets, duplicates)?;
        let mut positions = zeros(csr.nnz());
        let tasks = rows::row_tasks(csr.indptr());
        let parts = rows::split_entries(csr.indptr(), &tasks, &mut positions);
        tasks.into_par_iter().zip(parts).for_each(|(task, part)| {
            let firsts = task.flat_map(|r| buckets.pairs(r)).map(|same| u64::from(same[0] as u32));
            part.iter_mut().zip(firsts).for_each(|(position, first)| *position = first);
        });
        Ok((csr, positions))
    }

    fn matrix_of(&self, buckets: &Buckets, duplicates: Duplicates) -> Result<Csr, FormatError> {
        let csr = match &self.values {
            None => buckets.merged(self, false, |same| same.len() as f32),
            Some(values) if duplicates.adds() => {
                let sum = |same: &[u64]| same.iter().map(|&key| values[key as u32 as usize]).sum();
                buckets.check_sums(sum)?;
                buckets.merged(self, true, sum)
            }
            Some(values) => buckets.merged(self, true, |same| values[same[0] as u32 as usize]),
        };
        let n_merged = self.len() - csr.nnz();
        match duplicates {
            Duplicates::Refuse if n_merged > 0 => Err(self.first_duplicate()),
            Duplicates::Sum | Duplicates::Keep if n_merged > 0 && self.values.is_none() => {
                Ok(buckets.merged(self, true, |same| same.len() as f32))
            }
            _ => Ok(csr),
        }
    }

    /// Entries by row and column.
    fn bucket_columns(&self) -> Buckets {
        self.bucket(0, |e| u64::from(self.cols[e]))
    }

    /// Entries by row, column and position: entries of equal columns keep the order of the list.
    fn bucket_positions(&self) -> Result<Buckets, FormatError> {
        if self.len() > u32::MAX as usize {
            return Err(FormatError::invalid("more than 2³² edges, whose order counts, in one list; split it"));
        }
        Ok(self.bucket(32, |e| (u64::from(self.cols[e]) << 32) | e as u64))
    }

    /// Scatters `key(e)` into the bucket of row `rows[e]` and sorts each bucket. Keys have the column from bit `shift`
    /// on.
    fn bucket(&self, shift: u32, key: impl Fn(usize) -> u64 + Sync) -> Buckets {
        let cursors: Vec<AtomicU64> = (0..self.n_rows).map(|_| AtomicU64::new(0)).collect();
        self.rows.par_iter().with_min_len(1 << 14).for_each(|&r| {
            cursors[r as usize].fetch_add(1, Relaxed);
        });
        let starts = rows::prefix_sum(cursors.iter().map(|c| c.load(Relaxed)));
        cursors.par_iter().zip(&starts).for_each(|(c, &s)| c.store(s, Relaxed));
        let slots: Vec<AtomicU64> = (0..self.len()).into_par_iter().map(|_| AtomicU64::new(0)).collect();
        self.rows.par_iter().enumerate().with_min_len(1 << 14).for_each(|(e, &r)| {
            let slot = cursors[r as usize].fetch_add(1, Relaxed);
            slots[slot as usize].store(key(e), Relaxed);
        });
        let mut keys: Vec<u64> = slots.into_iter().map(AtomicU64::into_inner).collect();

        let tasks = rows::row_tasks(&starts);
        let parts = rows::split_entries(&starts, &tasks, &mut keys);
        tasks.par_iter().zip(parts).for_each(|(task, part)| {
            for r in task.clone() {
                let base = starts[task.start];
                part[(starts[r] - base) as usize..(starts[r + 1] - base) as usize].sort_unstable();
            }
        });
        Buckets { starts, keys, shift }
    }

    fn first_duplicate(&self) -> FormatError {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|&e| (self.rows[e], self.cols[e], e));
        let repeat =
            order.windows(2).find(|w| (self.rows[w[0]], self.cols[w[0]]) == (self.rows[w[1]], self.cols[w[1]]));
        match repeat {
            Some(w) => FormatError::invalid(format!(
                "edges {} and {} are both ({}, {}); each edge may be listed once",
                w[0], w[1], self.rows[w[0]], self.cols[w[0]]
            )),
            None => FormatError::invalid("an edge is listed twice"),
        }
    }
}

/// Entries by row; keys ascend in each.
struct Buckets {
    /// Offsets of rows; `n_rows + 1` elements.
    starts: Vec<u64>,
    /// Column in the bits from `shift` on, and the entry's position below.
    keys: Vec<u64>,
    shift: u32,
}

impl Buckets {
    fn n_rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Keys of row `r`, grouped by column.
    fn pairs(&self, r: usize) -> impl Iterator<Item = &[u64]> {
        let row = &self.keys[self.starts[r] as usize..self.starts[r + 1] as usize];
        row.chunk_by(|a, b| a >> self.shift == b >> self.shift)
    }

    /// Refuses sums of weights beyond `f32`.
    fn check_sums(&self, sum: impl Fn(&[u64]) -> f32 + Sync) -> Result<(), FormatError> {
        let overflows = |&r: &usize| self.pairs(r).any(|same| !sum(same).is_finite());
        match (0..self.n_rows()).into_par_iter().find_first(overflows) {
            None => Ok(()),
            Some(r) => Err(FormatError::invalid(format!("row {r}: the weights of a repeated edge add up beyond f32"))),
        }
    }

    /// Makes the matrix of `coo` with one entry per pair; `weight` gives the weight of a pair from its keys, always
    /// finite.
    fn merged(&self, coo: &Coo, weighted: bool, weight: impl Fn(&[u64]) -> f32 + Sync) -> Csr {
        let fill = |r: usize, columns: &mut [NodeId], weights: &mut [f32]| {
            for (i, same) in self.pairs(r).enumerate() {
                columns[i] = (same[0] >> self.shift) as NodeId;
                if let Some(slot) = weights.get_mut(i) {
                    *slot = weight(same);
                }
            }
        };
        // SAFETY: keys ascend and the keys of one column make one entry, so columns ascend strictly. `Coo::new`
        // checked the ids, and the caller checked that weights are finite.
        unsafe { rows::build(coo.n_rows, coo.n_cols, weighted, |r| self.pairs(r).count(), fill) }
    }
}

/// Refuses numbers of nodes that are implausibly large for the edges, before memory is allocated for them; `found`
/// names the source of the number. A few bytes of a file can state any number, while edges, or rows of features, take
/// space in it.
///
/// # Errors
/// When there are more than 2²⁴ nodes, and more than 100 for each edge.
pub fn check_proportion(n_nodes: usize, n_edges: usize, found: &str) -> Result<(), FormatError> {
    if n_nodes <= MAX_SMALL_GRAPH || n_nodes / MAX_NODES_PER_EDGE <= n_edges {
        return Ok(());
    }
    let remedy = "number the nodes from 0 without gaps, and state no more of them than there are";
    Err(FormatError::invalid(format!("{found}, but there are only {n_edges} edges; {remedy}")))
}
