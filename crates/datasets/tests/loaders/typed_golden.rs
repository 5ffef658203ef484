//! Typed data that `benches/peers/golden_typed.py` wrote with NumPy, SciPy and safetensors.

use std::path::{Path, PathBuf};

use crate::common::load_default;
use girih_datasets::{Dataset, Features, Labels, TypeFeatures, UNLABELLED};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/typed").join(name)
}

/// Dense rows of the features of a type.
fn rows(dataset: &Dataset, number: usize) -> Vec<f32> {
    match &dataset.typed.as_ref().unwrap().features[number] {
        TypeFeatures::Given(Features::Dense(rows)) => rows.data().to_vec(),
        TypeFeatures::Given(Features::Sparse(rows)) => girih_graph_format::Matrix::from_sparse(rows).data().to_vec(),
        _ => Vec::new(),
    }
}

/// Names and numbers of edges of all relations.
fn relations(dataset: &Dataset) -> Vec<(String, usize)> {
    let graph = &dataset.typed.as_ref().unwrap().graph;
    graph.relations().iter().enumerate().map(|(number, of)| (graph.schema().edge_name(number), of.nnz())).collect()
}

#[test]
fn arrays_of_numpy_and_safetensors_are_typed_data() {
    let [npz, tensors] = ["hetero.npz", "hetero.safetensors"].map(|name| load_default(&golden(name)));
    assert_eq!(npz, tensors);
    let schema = npz.typed.as_ref().unwrap().graph.schema().clone();
    let sizes: Vec<_> = schema.node_types().iter().map(|of| (of.name.as_str(), of.n_nodes)).collect();
    assert_eq!(sizes, [("author", 3), ("empty one", 0), ("paper", 4)]);
    let expected = [
        ("author.writes.paper", 4),
        ("paper.rev_writes.author", 4),
        ("paper.größe \"x\".empty one", 0),
        ("empty one.rev_größe \"x\".paper", 0),
    ];
    assert_eq!(relations(&npz), expected.map(|(name, n)| (name.to_owned(), n)));
    assert_eq!(rows(&npz, 2), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let classes = [&[UNLABELLED; 3][..], &[0, 1, UNLABELLED, 1]].concat();
    assert_eq!(npz.labels, Some(Labels::Single { n_classes: 2, classes }));
    let split = &npz.splits[0];
    assert_eq!((&split.train[..], &split.val[..], &split.test[..]), (&[3][..], &[4][..], &[6][..]));
    let line = npz.notes.not_used_line().unwrap();
    assert_eq!(line, "not used: author__writes__paper.edge_attr: edge features");
}

#[test]
fn features_of_scipy_in_either_form_belong_to_id_pairs() {
    let pairs = load_default(&golden("pairs"));
    let expected = [("p.pa.a", 4), ("a.rev_pa.p", 4), ("p.ps.s", 4), ("s.rev_ps.p", 4)];
    assert_eq!(relations(&pairs), expected.map(|(name, n)| (name.to_owned(), n)));
    assert_eq!(rows(&pairs, 0), [1.0, 0.0, 0.0, 0.0, 0.0, 3.0], "coo");
    assert_eq!(rows(&pairs, 1), [1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 1.0, 1.0, 1.0], "csr");
    assert_eq!(rows(&pairs, 2), [0.5, 1.5], "an array");
    assert_eq!((pairs.n_classes(), pairs.typed.as_ref().unwrap().target), (2, 1));
    assert_eq!(pairs.splits[0].train, [3, 6]);
}
