//! New nodes: what files and lists of edges may say.

use std::path::Path;

use girih_datasets::{Dataset, FeatureNorm, Features, LoadOptions, NewNodes, load};
use girih_graph_format::{Matrix, NodeId, file};
use proptest::collection::vec;
use proptest::prelude::*;

fn planted() -> Dataset {
    load("synth:planted,nodes=50,degree=4,features=3,classes=2", &LoadOptions::default()).unwrap()
}

fn rows(n: usize) -> Matrix {
    Matrix::new(n, 3, (0..3 * n).map(|at| at as f32).collect::<Vec<_>>()).unwrap()
}

fn refused(edges: [Vec<NodeId>; 2], weights: Option<Vec<f32>>) -> String {
    let new = NewNodes::new(rows(2), edges, weights);
    new.and_then(|new| planted().with_new_nodes(&new)).unwrap_err().to_string()
}

#[test]
fn edges_that_do_not_fit_are_refused_by_name() {
    for (edges, weights, what) in [
        ([vec![0, 1], vec![50, 60]], None, "edge 1 of the new nodes names node 60; the graph has the nodes 0 to 49"),
        ([vec![0], vec![1]], None, "edge 0 of the new nodes joins 0 and 1"),
        ([vec![0, 0], vec![50, 50]], None, "two new edges go from 0 to 50"),
        ([vec![0, 0], vec![50]], None, "2 sources and 1 destinations"),
        ([vec![0], vec![50]], Some(vec![1.0]), "the graph has none; leave edge_weight out"),
        ([vec![0], vec![50]], Some(vec![]), "0 weights for 1 edges"),
        ([vec![0], vec![50]], Some(vec![f32::NAN]), "the weight of edge 0 is not finite"),
    ] {
        let error = refused(edges, weights);
        assert!(error.contains(what), "{error}");
    }
    let narrow = NewNodes::new(Matrix::new(1, 2, vec![0.0; 2]).unwrap(), [vec![], vec![]], None).unwrap();
    let error = planted().with_new_nodes(&narrow).unwrap_err().to_string();
    assert!(error.contains("2 features, and those of the graph 3"), "{error}");
    assert!(NewNodes::new(Matrix::new(1, 1, vec![f32::NAN]).unwrap(), [vec![], vec![]], None).is_err());
}

/// Writes the arrays of new nodes as a folder.
fn write(folder: &Path, x: &Matrix, edges: &[i64]) {
    file::write_npy(&folder.join("x.npy"), &[x.n_rows(), x.n_cols()], x.data()).unwrap();
    file::write_npy(&folder.join("edge_index.npy"), &[2, edges.len() / 2], edges).unwrap();
}

#[test]
fn a_folder_gives_what_lists_give() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &rows(2), &[0, 50, 50, 51]);
    let read = NewNodes::read(folder.path()).unwrap();
    assert_eq!(read, NewNodes::new(rows(2), [vec![0, 50], vec![50, 51]], None).unwrap());
    assert!(!read.is_symmetric());
    let divided = read.normalized(FeatureNorm::Sum).unwrap();
    assert_eq!(divided.features().unwrap().row(1), [0.25, 4.0 / 12.0, 5.0 / 12.0]);

    file::write_npy(&folder.path().join("y.npy"), &[2], &[0i64, 1]).unwrap();
    let error = NewNodes::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("array y.npy is not known"), "{error}");
    std::fs::remove_file(folder.path().join("y.npy")).unwrap();
    std::fs::remove_file(folder.path().join("x.npy")).unwrap();
    let error = NewNodes::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("no array x and no num_nodes"), "{error}");
    let error = NewNodes::read(Path::new("new.csv")).unwrap_err().to_string();
    assert!(error.contains("an .npz archive"), "{error}");
}

proptest! {
    /// The grown graph is that of all edges together.
    #[test]
    fn grown_rows_have_the_edges_of_both(pairs in vec((0u32..53, 0u32..53), 0..40)) {
        let dataset = planted();
        let mut pairs: Vec<_> = pairs.into_iter().filter(|&(u, v)| u >= 50 || v >= 50).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let (sources, destinations): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let new = NewNodes::new(rows(3), [sources, destinations], None).unwrap();
        let grown = dataset.clone().with_new_nodes(&new).unwrap();
        prop_assert_eq!(grown.n_nodes(), 53);
        let edge = |v: usize, u: &u32| (*u, v as u32);
        let mut expected: Vec<_> = (0..50).flat_map(|v| dataset.graph.row(v).iter().map(move |u| edge(v, u))).collect();
        expected.extend(pairs);
        expected.sort_unstable();
        let mut found: Vec<_> = (0..53).flat_map(|v| grown.graph.row(v).iter().map(move |u| edge(v, u))).collect();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
        let Some(Features::Dense(all)) = &grown.features else { panic!("dense features") };
        prop_assert_eq!(all.row(51), [3.0, 4.0, 5.0]);
    }
}
