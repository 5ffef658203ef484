//! Generators that shrink, shared by the tests of this crate.

use std::path::PathBuf;

use girih_graph_format::{Coo, Csr, Duplicates, Permutation};
use proptest::collection::vec;
use proptest::prelude::*;

/// Largest dimension drawn: slightly more than three tiles, so that tiles at the edge are cut.
pub const MAX_DIMENSION: usize = 100;

/// List of edges of the given shape, with repeats, weighted or not.
pub fn coo_of_shape(n_rows: usize, n_cols: usize) -> impl Strategy<Value = Coo> {
    let max_edges = if n_rows * n_cols == 0 { 0 } else { 300 };
    // Weights are multiples of 1/8, so that sums are exact in any order.
    let edge = (0..n_rows.max(1) as u32, 0..n_cols.max(1) as u32, (-80i8..80).prop_map(|w| f32::from(w) / 8.0));
    (vec(edge, 0..=max_edges), any::<bool>()).prop_map(move |(edges, weighted)| {
        let rows = edges.iter().map(|e| e.0).collect();
        let cols = edges.iter().map(|e| e.1).collect();
        let weights = weighted.then(|| edges.iter().map(|e| e.2).collect());
        Coo::new(n_rows, n_cols, rows, cols, weights).expect("ids are drawn in range")
    })
}

pub fn any_coo() -> impl Strategy<Value = Coo> {
    (0..MAX_DIMENSION, 0..MAX_DIMENSION).prop_flat_map(|(r, c)| coo_of_shape(r, c))
}

pub fn any_csr() -> impl Strategy<Value = Csr> {
    any_coo().prop_map(|coo| coo.to_csr(Duplicates::Merge).expect("weights are small"))
}

/// Matrix without weights.
pub fn any_pattern() -> impl Strategy<Value = Csr> {
    any_csr().prop_map(|csr| csr.with_values(None).expect("no weights always fit"))
}

/// Square matrix.
pub fn any_graph() -> impl Strategy<Value = Csr> {
    (0..MAX_DIMENSION)
        .prop_flat_map(|n| coo_of_shape(n, n))
        .prop_map(|coo| coo.to_csr(Duplicates::Merge).expect("weights are small"))
}

pub fn permutation_of(len: usize) -> impl Strategy<Value = Permutation> {
    Just((0..len as u32).collect::<Vec<u32>>())
        .prop_shuffle()
        .prop_map(|ids| Permutation::from_new_of_old(ids).expect("a shuffle is a bijection"))
}

pub fn graph_and_permutation() -> impl Strategy<Value = (Csr, Permutation)> {
    any_graph().prop_flat_map(|g| {
        let n = g.n_rows();
        (Just(g), permutation_of(n))
    })
}

/// Matrix as a plain dense array; absent entries are `None`.
pub fn dense(csr: &Csr) -> Vec<Vec<Option<f32>>> {
    let mut rows = vec![vec![None; csr.n_cols()]; csr.n_rows()];
    for (r, row) in rows.iter_mut().enumerate() {
        for (c, w) in csr.row_entries(r) {
            row[c as usize] = Some(w);
        }
    }
    rows
}

/// Folder of real data: `GIRIH_DATA`, or `shared/data` next to this repository or a folder above it.
pub fn data_folder() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("GIRIH_DATA") {
        return Some(PathBuf::from(path));
    }
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|folder| folder.join("shared/data")).find(|path| path.is_dir())
}
