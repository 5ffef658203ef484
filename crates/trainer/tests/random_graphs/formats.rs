//! File formats: written data is read back unchanged, and edge lists become the matrix that they describe.

use std::path::Path;

use girih_datasets::{Dataset, LoadOptions, OutputFormat, load};
use girih_graph_format::file::{Folder, Verify, read_sparse_npz};
use girih_graph_format::{Csr, Duplicates};

use crate::campaign::for_each_seed;
use crate::graphs::{Draws, SmallGraph, Weights, features, labels, split};

/// File names for every output format.
const NAMES: [&str; 16] = [
    "folder",
    "all.safetensors",
    "graph.npz",
    "graph.csv",
    "graph.tsv",
    "graph.txt",
    "graph.edges",
    "graph.mtx",
    "graph.graph",
    "graph.csv.gz",
    "graph.tsv.gz",
    "graph.txt.gz",
    "graph.edges.gz",
    "graph.mtx.gz",
    "graph.graph.gz",
    "other-folder",
];

#[test]
fn files_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    for_each_seed("formats", 40, |seed| check_files(seed, folder.path()));
}

#[test]
fn lists_of_edges_become_the_matrix_that_they_say() {
    for_each_seed("matrices", 400, check_matrix);
}

/// Options that keep the graph unchanged.
fn options() -> LoadOptions {
    LoadOptions { symmetrize: Some(false), ..LoadOptions::default() }
}

fn check_files(seed: u64, folder: &Path) {
    let draws = &mut Draws::new(seed, 8);
    let graph = SmallGraph::new(draws);
    let features = (!draws.one_in(4)).then(|| features(draws, graph.n));
    let labels = (!draws.one_in(4)).then(|| labels(draws, graph.n));
    let splits = (0..draws.below(3)).map(|_| split(draws, graph.n)).collect();
    let dataset = Dataset::new("folder", graph.csr.clone(), features, labels, splits).unwrap();
    for name in NAMES {
        let path = folder.join(name);
        let format = OutputFormat::of(&path).unwrap();
        let written = dataset.save_as(format, &path);
        if format == OutputFormat::Metis {
            assert_eq!(written.is_ok(), is_metis(&graph.csr), "{written:?}");
        } else {
            written.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        if format != OutputFormat::Metis || is_metis(&graph.csr) {
            check_read(&dataset, format, &path);
        }
    }
}

/// Whether a METIS file can hold a graph: symmetric, without self-loops, with small positive integer weights.
fn is_metis(csr: &Csr) -> bool {
    let dense = crate::graphs::dense(csr);
    let n = dense.len();
    let is_integer = |w: f64| (1.0..=16_777_216.0).contains(&w) && w.fract() == 0.0;
    (0..n).all(|v| {
        (0..n).all(|u| {
            dense[v][u] == dense[u][v] && (u != v || dense[v][u].is_none()) && dense[v][u].is_none_or(is_integer)
        })
    })
}

fn check_read(dataset: &Dataset, format: OutputFormat, path: &Path) {
    let name = path.display();
    let read = load(path.to_str().unwrap(), &options()).unwrap_or_else(|error| panic!("{name}: {error}"));
    // Unit weights are read as no weights, unless a folder stores them.
    let unweighted = |csr: &Csr| csr.clone().without_unit_weights();
    assert_eq!(unweighted(&read.graph), unweighted(&dataset.graph), "{name}");
    read.graph.validate().unwrap();
    if format.holds_features() {
        assert_eq!(read.features, dataset.features, "{name}");
        assert_eq!(read.labels, dataset.labels, "{name}");
        // If a file has no split, a random one is drawn.
        let is_drawn = format == OutputFormat::Tensors && dataset.splits.is_empty() && dataset.labels.is_some();
        assert!(is_drawn || read.splits == dataset.splits, "{name}: {:?}", read.splits);
    }
    match format {
        OutputFormat::SparseNpz => assert_eq!(read_sparse_npz(path).unwrap(), unweighted(&dataset.graph)),
        OutputFormat::Folder => check_rows_of_folder(dataset, path),
        _ => {}
    }
}

/// Checks that the rows of a rank in a folder equal those of the whole graph.
fn check_rows_of_folder(dataset: &Dataset, path: &Path) {
    let folder = Folder::open(path, Verify::Full).unwrap();
    let graph = folder.graph().unwrap();
    assert!(graph == dataset.graph && graph.is_mapped());
    let n = dataset.n_nodes();
    for first in 0..=n {
        for end in first..=n {
            assert_eq!(folder.graph_rows(first..end).unwrap(), dataset.graph.row_slice(first..end));
        }
    }
}

/// Checks the matrix of an edge list, and conversions of it, against a dense table.
fn check_matrix(seed: u64) {
    let draws = &mut Draws::new(seed, 9);
    let graph = SmallGraph::new(draws);
    let (dense, n) = (graph.dense(), graph.n);
    let first_wins = graph.duplicates == Duplicates::Merge;
    for v in 0..n {
        for u in 0..n {
            let parallel: Vec<f64> = graph
                .edges
                .iter()
                .filter(|edge| (edge.0 as usize, edge.1 as usize) == (v, u))
                .map(|edge| f64::from(edge.2))
                .collect();
            let sum: f64 = parallel.iter().sum();
            let magnitude: f64 = parallel.iter().map(|w| w.abs()).sum();
            match dense[v][u] {
                None => assert!(parallel.is_empty()),
                Some(w) if first_wins => assert_eq!(w, parallel[0]),
                Some(w) => assert!(!parallel.is_empty() && (w - sum).abs() <= 1e-6 * magnitude, "{w}, {sum}"),
            }
        }
    }
    assert!(graph.weights != Weights::None || !first_wins || graph.csr.values().is_none());
    check_operations(draws, &graph.csr);
}

fn check_operations(draws: &mut Draws, csr: &Csr) {
    let (dense, n) = (crate::graphs::dense(csr), csr.n_rows());
    let table = |csr: &Csr, expected: &dyn Fn(usize, usize) -> Option<f64>, what: &str| {
        csr.validate().unwrap();
        let found = crate::graphs::dense(csr);
        for (v, row) in found.iter().enumerate() {
            for (u, &weight) in row.iter().enumerate() {
                assert_eq!(weight, expected(v, u), "{what}: {v}, {u}");
            }
        }
    };
    table(&csr.transposed(), &|v, u| dense[u][v], "transposed");
    let both = |v: usize, u: usize| match (dense[v][u], dense[u][v]) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    table(&csr.symmetrized(), &both, "symmetrized");
    assert!(csr.symmetrized().is_symmetric());
    assert_eq!(csr.is_symmetric(), (0..n).all(|v| (0..n).all(|u| dense[v][u] == dense[u][v])));
    table(&csr.with_self_loops(), &|v, u| if u == v { dense[v][u].or(Some(1.0)) } else { dense[v][u] }, "loops");
    table(&csr.without_self_loops(), &|v, u| dense[v][u].filter(|_| u != v), "no loops");
    let mut cuts: Vec<usize> = (0..4).map(|_| draws.below(n + 1)).collect();
    cuts[..2].sort_unstable();
    cuts[2..].sort_unstable();
    let block = csr.block(cuts[0]..cuts[1], cuts[2]..cuts[3]).unwrap();
    assert_eq!((block.n_rows(), block.n_cols()), (cuts[1] - cuts[0], cuts[3] - cuts[2]));
    table(&block, &|v, u| dense[cuts[0] + v][cuts[2] + u], "block");
}
