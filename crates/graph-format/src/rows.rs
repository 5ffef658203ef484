//! Building a CSR row by row, in parallel: count, prefix sum, fill.
//!
//! Every operation of this crate that makes a new matrix calls [`build`], the only place that divides output arrays
//! among threads.

use girih_machine::zeros;
use rayon::prelude::*;

use crate::{Csr, NodeId};

/// Smallest number of rows of a task: small enough to balance, large enough to hide the task's overhead.
const ROWS_PER_TASK: usize = 256;
/// Approximate number of rows and entries of a task.
const WORK_PER_TASK: u64 = 1 << 16;

/// Message about columns that were valid before.
const CHANGED: &str = "a column is out of range; the file of the graph has changed while it was read";

/// Offsets of rows with the given lengths: `n + 1` values from 0.
pub(crate) fn prefix_sum(lengths: impl ExactSizeIterator<Item = u64>) -> Vec<u64> {
    let mut indptr = Vec::with_capacity(lengths.len() + 1);
    let mut total = 0;
    indptr.push(0);
    for length in lengths {
        total += length;
        indptr.push(total);
    }
    indptr
}

/// Cuts `0..n_rows` into consecutive ranges of about equal work (rows and entries).
pub(crate) fn row_tasks(indptr: &[u64]) -> Vec<std::ops::Range<usize>> {
    let n_rows = indptr.len() - 1;
    let mut tasks = Vec::new();
    let mut start = 0;
    while start < n_rows {
        let mut end = (start + ROWS_PER_TASK).min(n_rows);
        while end < n_rows && indptr[end] - indptr[start] + ((end - start) as u64) < WORK_PER_TASK {
            end = (end + ROWS_PER_TASK).min(n_rows);
        }
        tasks.push(start..end);
        start = end;
    }
    tasks
}

/// Splits an array of entries among [`row_tasks`], so that each task writes its own range.
pub(crate) fn split_entries<'a, T>(
    indptr: &[u64],
    tasks: &[std::ops::Range<usize>],
    mut entries: &'a mut [T],
) -> Vec<&'a mut [T]> {
    let mut parts = Vec::with_capacity(tasks.len());
    for task in tasks {
        let len = (indptr[task.end] - indptr[task.start]) as usize;
        let (part, rest) = entries.split_at_mut(len);
        parts.push(part);
        entries = rest;
    }
    parts
}

/// Row of every entry.
pub(crate) fn row_of_entry(indptr: &[u64]) -> Vec<NodeId> {
    let mut row_of = vec![0; indptr.last().map_or(0, |&n| n as usize)];
    let tasks = row_tasks(indptr);
    let parts = split_entries(indptr, &tasks, &mut row_of);
    tasks.par_iter().zip(parts).for_each(|(task, part)| {
        let base = indptr[task.start];
        for r in task.clone() {
            part[(indptr[r] - base) as usize..(indptr[r + 1] - base) as usize].fill(r as NodeId);
        }
    });
    row_of
}

/// Builds a matrix whose row `r` has `count(r)` entries, written by `fill(r, columns, weights)`; `weights` is empty
/// unless `weighted`.
///
/// # Safety
/// `fill` writes columns below `n_cols` in strictly ascending order, and finite weights.
pub(crate) unsafe fn build(
    n_rows: usize,
    n_cols: usize,
    weighted: bool,
    count: impl Fn(usize) -> usize + Sync,
    fill: impl Fn(usize, &mut [NodeId], &mut [f32]) + Sync,
) -> Csr {
    let counts: Vec<u64> = (0..n_rows).into_par_iter().with_min_len(ROWS_PER_TASK).map(|r| count(r) as u64).collect();
    let indptr = prefix_sum(counts.into_iter());
    let nnz = indptr[n_rows] as usize;
    let mut indices = zeros(nnz);
    let mut values = zeros(if weighted { nnz } else { 0 });
    let tasks = row_tasks(&indptr);
    let columns = split_entries(&indptr, &tasks, &mut indices);
    let weights: Vec<&mut [f32]> = if weighted {
        split_entries(&indptr, &tasks, &mut values)
    } else {
        tasks.iter().map(|_| &mut [][..]).collect()
    };
    tasks.par_iter().zip(columns).zip(weights).for_each(|((task, columns), weights)| {
        let base = indptr[task.start];
        for r in task.clone() {
            let range = (indptr[r] - base) as usize..(indptr[r + 1] - base) as usize;
            let row_weights = if weighted { &mut weights[range.clone()] } else { &mut [][..] };
            let row = &mut columns[range];
            fill(r, row, row_weights);
            assert!(row.iter().all(|&c| (c as usize) < n_cols), "row {r}: {CHANGED}");
        }
    });
    // SAFETY: offsets are a prefix sum of the row lengths. Columns are below `n_cols`: this was just checked, since
    // their source may lie in a file that changes. The caller promises that they ascend, and that weights are finite.
    unsafe { Csr::new_unchecked(n_rows, n_cols, indptr, indices, weighted.then(|| values.into())) }
}
