//! Labels as users save them: readings chosen by default or by an option, and their notes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::refusal;
use girih_datasets::{Dataset, Labels, LoadOptions, UNLABELLED, load};
use girih_graph_format::file::{write_npy, write_sparse_npz};
use girih_graph_format::{Coo, Duplicates};
use tempfile::TempDir;

/// A path of four nodes as an edge list, and a place for labels.
fn four_nodes() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let edges = home.path().join("edges.txt");
    fs::write(&edges, "0 1\n1 2\n2 3\n").unwrap();
    (home, edges)
}

fn with_labels(labels: &Path) -> LoadOptions {
    LoadOptions { labels: Some(labels.to_owned()), ..LoadOptions::default() }
}

fn classes(dataset: &Dataset) -> (usize, Vec<u32>) {
    match dataset.labels.as_ref().unwrap() {
        Labels::Single { n_classes, classes } => (*n_classes, classes.clone()),
        Labels::Multi { .. } => panic!("one class a node"),
    }
}

#[test]
fn classes_may_be_stored_as_floats() {
    let (home, edges) = four_nodes();
    let path = home.path().join("y.npy");
    write_npy(&path, &[4], &[0f64, 1.0, f64::NAN, 1.0]).unwrap();
    let dataset = load(edges.to_str().unwrap(), &with_labels(&path)).unwrap();
    assert_eq!(classes(&dataset), (2, vec![0, 1, UNLABELLED, 1]));
    write_npy(&path, &[4], &[0f64, 1.5, 0.0, 1.0]).unwrap();
    let message = load(edges.to_str().unwrap(), &with_labels(&path)).unwrap_err().to_string();
    assert!(message.contains("y.npy") && message.contains("node 1 has class 1.5"), "{message}");
}

#[test]
fn classes_that_count_from_one_are_asked_about() {
    let (home, edges) = four_nodes();
    let path = home.path().join("y.npy");
    write_npy(&path, &[4], &[1i64, 2, 3, 2]).unwrap();
    let message = load(edges.to_str().unwrap(), &with_labels(&path)).unwrap_err().to_string();
    assert!(message.contains("y.npy") && message.contains("--labels-from 1") && message.contains("--labels-from 0"));
    let from = |labels_from| {
        load(edges.to_str().unwrap(), &LoadOptions { labels_from: Some(labels_from), ..with_labels(&path) })
    };
    assert_eq!(classes(&from(1).unwrap()), (3, vec![0, 1, 2, 1]));
    assert_eq!(classes(&from(0).unwrap()), (4, vec![1, 2, 3, 2]));
    write_npy(&path, &[4], &[1i64, 0, 3, 2]).unwrap();
    assert!(from(1).unwrap_err().to_string().contains("node 1 has class 0"));
}

#[test]
fn one_hot_rows_are_classes_and_said_so() {
    let (home, edges) = four_nodes();
    let path = home.path().join("y.npy");
    let one_hot = [1f32, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0];
    write_npy(&path, &[4, 3], &one_hot).unwrap();
    let read = |multi_label| load(edges.to_str().unwrap(), &LoadOptions { multi_label, ..with_labels(&path) }).unwrap();
    let dataset = read(None);
    assert_eq!(classes(&dataset), (3, vec![0, 2, 1, 0]));
    assert!(dataset.notes.made_up.iter().any(|made| made.kind == "one_hot_labels"));
    assert!(read(Some(true)).is_multi_label());
    // A row without a 1: both readings are possible.
    let mut gap = one_hot;
    gap[0] = 0.0;
    write_npy(&path, &[4, 3], &gap).unwrap();
    let dataset = read(None);
    assert!(dataset.is_multi_label());
    assert!(dataset.notes.warnings.iter().any(|warning| warning.contains("--multi-label false")));
    assert_eq!(classes(&read(Some(false))), (3, vec![UNLABELLED, 2, 1, 0]));
    gap[1] = 1.0;
    gap[2] = 1.0;
    write_npy(&path, &[4, 3], &gap).unwrap();
    assert!(read(None).is_multi_label() && read(None).notes.warnings.is_empty());
    let refused = LoadOptions { multi_label: Some(false), ..with_labels(&path) };
    assert!(load(edges.to_str().unwrap(), &refused).unwrap_err().to_string().contains("node 0 has 2 labels"));
}

#[test]
fn text_holds_a_class_a_line_or_nodes_with_their_classes() {
    let (home, edges) = four_nodes();
    let path = home.path().join("y.csv");
    for (text, expected) in [
        ("0\n1\n\n1\n", vec![0, 1, UNLABELLED, 1]),
        ("label\n0\n1\n0\n1\n", vec![0, 1, 0, 1]),
        ("node,label\n3,1\n0,0\n1,1\n", vec![0, 1, UNLABELLED, 1]),
        (",label\n0,0\n1,1\n2,0\n3,1\n", vec![0, 1, 0, 1]),
    ] {
        fs::write(&path, text).unwrap();
        let dataset = load(edges.to_str().unwrap(), &with_labels(&path)).unwrap();
        assert_eq!(classes(&dataset), (2, expected), "{text:?}");
    }
    for (text, expected) in [
        ("0,0\n1,2\n2,0\n3,1\n", "two columns without a header"),
        ("node,label\n0,1\n0,0\n", "node 0 has a label already"),
        ("node,label\n4,0\n", "node 4 does not exist"),
        ("0\n1\n", "2 labels for 4 nodes"),
        ("label\n0\nAI\n", "line 3: \"AI\""),
    ] {
        fs::write(&path, text).unwrap();
        let message = load(edges.to_str().unwrap(), &with_labels(&path)).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("y.csv"), "{text:?}: {message}");
    }
}

#[test]
fn features_may_be_a_sparse_matrix_of_scipy_or_text() {
    let (home, edges) = four_nodes();
    let path = home.path().join("x.npz");
    let rows = Coo::new(4, 6, vec![0, 1, 3], vec![5, 0, 2], Some(vec![0.5, 1.0, 2.0])).unwrap();
    write_sparse_npz(&path, &rows.to_csr(Duplicates::Refuse).unwrap()).unwrap();
    let with = |path: &Path| LoadOptions { features: Some(path.to_owned()), ..LoadOptions::default() };
    let dataset = load(edges.to_str().unwrap(), &with(&path)).unwrap();
    assert_eq!((dataset.n_nodes(), dataset.n_features()), (4, 6));
    let path = home.path().join("x.csv");
    fs::write(&path, "a,b\n1,2\n3,4\n5,6\n7,8\n").unwrap();
    assert_eq!(load(edges.to_str().unwrap(), &with(&path)).unwrap().n_features(), 2);
}

#[test]
fn ids_that_count_from_one_are_told_from_rows_that_are_missing() {
    let home = tempfile::tempdir().unwrap();
    let edges = home.path().join("edges.txt");
    fs::write(&edges, "1 2\n2 3\n3 4\n").unwrap();
    let (labels, features) = (home.path().join("y.npy"), home.path().join("x.npy"));
    write_npy(&labels, &[4], &[0i64, 1, 0, 1]).unwrap();
    write_npy(&features, &[4, 1], &[0f32, 1.0, 0.0, 1.0]).unwrap();
    let options = LoadOptions { features: Some(features), ..with_labels(&labels) };
    for options in [options.clone(), with_labels(&labels)] {
        let message = load(edges.to_str().unwrap(), &options).unwrap_err().to_string();
        assert!(message.contains("--ids-from 1"), "{message}");
        let dataset = load(edges.to_str().unwrap(), &LoadOptions { ids_from: Some(1), ..options }).unwrap();
        assert_eq!((dataset.n_nodes(), dataset.graph.row(0)), (4, &[1][..]));
    }
    fs::write(&edges, "0 1\n").unwrap();
    let from_one = LoadOptions { ids_from: Some(1), ..LoadOptions::default() };
    assert!(refusal(&edges, &from_one).contains("leave that out"));
}

#[test]
fn ids_count_from_zero_in_formats_other_than_edge_lists() {
    let home = tempfile::tempdir().unwrap();
    let (labels, features) = (home.path().join("y.npy"), home.path().join("x.npy"));
    write_npy(&labels, &[4], &[0i64, 1, 0, 1]).unwrap();
    write_npy(&features, &[4, 1], &[0f32, 1.0, 0.0, 1.0]).unwrap();
    let (matrix, archive) = (home.path().join("a.mtx"), home.path().join("a.npz"));
    fs::write(&matrix, "%%MatrixMarket matrix coordinate pattern symmetric\n5 5 2\n3 2\n5 4\n").unwrap();
    let graph = Coo::new(5, 5, vec![1, 2, 3, 4], vec![2, 1, 4, 3], None).unwrap();
    write_sparse_npz(&archive, &graph.to_csr(Duplicates::Refuse).unwrap()).unwrap();
    for path in [matrix, archive] {
        for options in [with_labels(&labels), LoadOptions { features: Some(features.clone()), ..Default::default() }] {
            let message = load(path.to_str().unwrap(), &options).unwrap_err().to_string();
            assert!(message.contains("5 nodes") && !message.contains("--ids-from"), "{message}");
        }
    }
}
