//! Loaders on small files written here: unusual but valid input, and input that breaks one rule.

use std::path::{Path, PathBuf};

use girih_datasets::{Dataset, DatasetError, FeatureNorm, Features, Labels, LoadOptions, Split, UNLABELLED, load};
use girih_graph_format::file::{NpzWriter, write_npy};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, Permutation};
use tempfile::TempDir;

fn in_temporary(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

fn load_default(path: &Path) -> Result<Dataset, DatasetError> {
    load(path.to_str().unwrap(), &LoadOptions::default())
}

fn refusal(path: &Path, options: &LoadOptions) -> String {
    let message = load(path.to_str().unwrap(), options).expect_err("this file must be refused").to_string();
    assert!(message.contains(path.parent().unwrap().to_str().unwrap()), "no file is named: {message}");
    message
}

fn path_graph(n: usize) -> Csr {
    let (u, v): (Vec<u32>, Vec<u32>) = (1..n as u32).map(|v| (v - 1, v)).unzip();
    Coo::new(n, n, u, v, None).unwrap().to_csr(Duplicates::Merge).unwrap().symmetrized()
}

fn assert_round_trip(dataset: &Dataset) {
    let (_dir, path) = in_temporary("saved");
    dataset.save(&path).unwrap();
    assert_eq!(&load_default(&path).unwrap(), dataset);
}

#[test]
fn folders_keep_every_kind_of_content() {
    let split = Split { train: vec![0, 3], val: vec![1], test: vec![2] };
    let dense = Matrix::new(4, 2, vec![0.5, -1.0, 0.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let sparse = Csr::new(4, 9, vec![0, 1, 1, 3, 3], vec![8, 0, 4], Some(vec![0.5, 1.0, 2.0].into())).unwrap();
    let targets = Matrix::new(4, 2, vec![0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]).unwrap();
    let single = Labels::Single { n_classes: 5, classes: vec![4, UNLABELLED, 0, 1] };
    let multi = Labels::Multi { n_classes: 2, targets };
    for (features, labels, splits) in [
        (None, None, vec![]),
        (Some(Features::Dense(dense)), Some(single), vec![split.clone(), Split::default(), split.clone()]),
        (Some(Features::Sparse(sparse)), Some(multi), vec![split]),
    ] {
        assert_round_trip(&Dataset::new("four nodes", path_graph(4), features, labels, splits).unwrap());
    }
}

#[test]
fn empty_one_node_and_isolated_graphs_are_data_sets() {
    for n in [0, 1, 3] {
        assert_round_trip(&Dataset::new("lonely", Csr::empty(n, n).unwrap(), None, None, vec![]).unwrap());
    }
}

#[test]
fn a_generated_data_set_still_says_so() {
    let generated = load("synth:planted,nodes=200,degree=6", &LoadOptions::default()).unwrap();
    assert!(generated.generated);
    assert_round_trip(&generated);
    assert_round_trip(&load("synth:yelp@0.001", &LoadOptions::default()).unwrap());
}

#[test]
fn a_path_that_is_not_there_is_named_beside_generators() {
    let (_folder, path) = in_temporary("reddit");
    let message = "there is no such file or folder; data that is generated has a name that begins with `synth:`";
    assert_eq!(refusal(&path, &LoadOptions::default()), format!("{}: {message}", path.display()));
}

#[test]
fn rules_of_a_data_set() {
    let graph = path_graph(3);
    let refuse = |features: Option<Features>, labels: Option<Labels>, split: Split| {
        Dataset::new("bad", graph.clone(), features, labels, vec![split]).unwrap_err().to_string()
    };
    let dense = |n, values: Vec<f32>| Some(Features::Dense(Matrix::new(n, 1, values).unwrap()));
    assert!(refuse(dense(2, vec![0.0; 2]), None, Split::default()).contains("2 rows of features for 3 nodes"));
    assert!(refuse(dense(3, vec![0.0, f32::NAN, 0.0]), None, Split::default()).contains("row 1, column 0"));
    let single = |n_classes, classes| Some(Labels::Single { n_classes, classes });
    assert!(refuse(None, single(2, vec![0, 1]), Split::default()).contains("2 labels for 3 nodes"));
    assert!(refuse(None, single(2, vec![0, 1, 2]), Split::default()).contains("node 2 has class 2"));
    let targets = Matrix::new(3, 1, vec![0.0, 0.5, 1.0]).unwrap();
    assert!(refuse(None, Some(Labels::Multi { n_classes: 1, targets }), Split::default()).contains("node 1, class 0"));
    let split = |train: &[u32], val: &[u32]| Split { train: train.to_vec(), val: val.to_vec(), test: vec![] };
    assert!(refuse(None, None, split(&[0, 3], &[])).contains("node 3 does not exist"));
    assert!(refuse(None, None, split(&[1, 0], &[])).contains("ascend"));
    assert!(refuse(None, None, split(&[0, 1], &[1])).contains("node 1 is in both train and val"));
}

/// Writes a gnn-benchmark archive of `n` nodes on a path, in two classes.
fn write_gnn_benchmark(path: &Path, n: usize, labels: &[i64]) {
    let n_edges = n - 1;
    NpzWriter::write_file(path, |npz| {
        npz.array("adj_data", &[n_edges], &vec![2.5f32; n_edges])?;
        npz.array("adj_indices", &[n_edges], &(1..n as i32).collect::<Vec<_>>())?;
        npz.array("adj_indptr", &[n + 1], &(0..=n).map(|v| v.min(n_edges) as i32).collect::<Vec<_>>())?;
        npz.array("adj_shape", &[2], &[n as i64; 2])?;
        npz.array("attr_matrix", &[n, 2], &(0..2 * n).map(|i| (i % 3) as f32).collect::<Vec<_>>())?;
        npz.array("labels", &[labels.len()], labels)
    })
    .unwrap();
}

#[test]
fn a_small_gnn_benchmark_archive() {
    let (_dir, path) = in_temporary("small.npz");
    let labels: Vec<i64> = (0..120).map(|v| v % 2).collect();
    write_gnn_benchmark(&path, 120, &labels);
    let dataset = load_default(&path).unwrap();
    assert_eq!((dataset.n_nodes(), dataset.n_edges(), dataset.n_classes()), (120, 238, 2));
    assert_eq!(dataset.splits[0].parts().map(|(_, ids)| ids.len()), [40, 60, 20]);

    write_gnn_benchmark(&path, 120, &labels[..100]);
    assert!(refusal(&path, &LoadOptions::default()).contains("100 labels for 120 nodes"));
    write_gnn_benchmark(&path, 60, &labels[..60]);
    let small = load_default(&path).unwrap();
    assert!(small.splits.is_empty() && small.notes.warnings[0].contains("class 0 has 30 labelled nodes"));
    write_gnn_benchmark(&path, 120, &vec![1 << 40; 120]);
    assert!(refusal(&path, &LoadOptions::default()).contains("node 0 has class 1099511627776"));
}

/// Writes a heterophilous archive of three nodes whose masks are `mask_width` wide.
fn write_heterophilous(path: &Path, edge: [i64; 2], feature: f32, mask_width: usize) {
    NpzWriter::write_file(path, |npz| {
        npz.array("node_features", &[3, 1], &[0.0, feature, 1.0])?;
        npz.array("node_labels", &[3], &[0i64, 1, 1])?;
        npz.array("edges", &[1, 2], &edge)?;
        for (part, chosen) in [("train", 0), ("val", 1), ("test", 2)] {
            let mask: Vec<u8> = (0..mask_width).map(|v| u8::from(v == chosen)).collect();
            npz.array(&format!("{part}_masks"), &[1, mask_width], &mask)?;
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_small_heterophilous_archive() {
    let (_dir, path) = in_temporary("small.npz");
    write_heterophilous(&path, [0, 2], 0.5, 3);
    let dataset = load_default(&path).unwrap();
    assert_eq!((dataset.graph.row(0), dataset.graph.row(1)), (&[2][..], &[][..]));
    assert_eq!(dataset.splits, [Split { train: vec![0], val: vec![1], test: vec![2] }]);

    write_heterophilous(&path, [0, 2], 0.5, 4);
    assert!(refusal(&path, &LoadOptions::default()).contains("split masks of 4 nodes; the graph has 3"));
    write_heterophilous(&path, [0, 3], 0.5, 3);
    assert!(refusal(&path, &LoadOptions::default()).contains('3'));
    write_heterophilous(&path, [0, 2], f32::INFINITY, 3);
    assert!(refusal(&path, &LoadOptions::default()).contains("row 1, column 0"));
}

#[test]
fn an_edge_list_with_features_and_labels() {
    let (dir, path) = in_temporary("edges.csv");
    std::fs::write(&path, "source,destination\n0,1\n2,1\n").unwrap();
    let bare = load_default(&path).unwrap();
    assert_eq!((bare.n_nodes(), bare.n_edges(), &bare.name[..]), (3, 4, "edges"));

    let (features, labels) = (dir.path().join("x.npy"), dir.path().join("y.npy"));
    let options = LoadOptions {
        features: Some(features.clone()),
        labels: Some(labels.clone()),
        n_splits: 2,
        ..LoadOptions::default()
    };
    write_npy(&features, &[4, 2], &[1.0f32, 3.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0]).unwrap();
    write_npy(&labels, &[4], &[0i32, 2, -1, 1]).unwrap();
    let full = load(path.to_str().unwrap(), &options).unwrap();
    assert_eq!((full.n_nodes(), full.n_features(), full.n_classes(), full.splits.len()), (4, 2, 3, 2));
    assert!(full.splits.iter().all(|split| split.parts().iter().all(|(_, ids)| !ids.contains(&2))), "2 is unlabelled");

    let normalized = LoadOptions { feature_norm: Some(FeatureNorm::Sum), ..options.clone() };
    let Some(Features::Dense(rows)) = load(path.to_str().unwrap(), &normalized).unwrap().features else { panic!() };
    assert_eq!(rows.row(0), [0.25, 0.75]);
    assert_eq!(rows.row(1), [0.0, 0.0]);

    write_npy(&labels, &[3], &[0i32, 2, 1]).unwrap();
    assert!(refusal(&path, &options).contains("3 labels for 4 nodes"));
    write_npy(&labels, &[4], &[0f32, 2.5, 1.0, 1.0]).unwrap();
    assert!(refusal(&path, &options).contains("node 1 has class 2.5"));
    write_npy(&features, &[2, 2], &[0f32; 4]).unwrap();
    let message = refusal(&path, &options);
    let row_for_each = format!("at most 2 nodes, numbered from 0; the line is \"2,1\"; {}", features.display());
    assert!(message.contains("line 3") && message.contains(&row_for_each), "{message}");
    std::fs::write(&path, "0,1\n1,one\n").unwrap();
    let message = refusal(&path, &options);
    assert!(message.contains("line 2") && !message.contains("x.npy"), "{message}");
}

#[test]
fn fortran_order_features_are_read_or_refused_never_transposed() {
    let (dir, path) = in_temporary("edges.csv");
    std::fs::write(&path, "0,1\n").unwrap();
    let features = dir.path().join("x.npy");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }".to_vec();
    bytes.resize(127, b' ');
    bytes.push(b'\n');
    bytes.extend([1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()));
    std::fs::write(&features, bytes).unwrap();
    let options = LoadOptions { features: Some(features), ..LoadOptions::default() };
    match load(path.to_str().unwrap(), &options) {
        Ok(dataset) => {
            let Some(Features::Dense(rows)) = dataset.features else { panic!("dense features") };
            assert_eq!(rows.row(0), [1.0, 3.0]);
        }
        Err(error) => assert!(error.to_string().contains("ortran"), "{error}"),
    }
}

#[test]
fn ids_that_are_no_positions_are_refused() {
    let (_dir, path) = in_temporary("edges.txt");
    std::fs::write(&path, "1000000000 2\n").unwrap();
    assert!(refusal(&path, &LoadOptions::default()).contains("number the nodes from 0"));
}

#[test]
fn formats_of_scipy_that_are_not_read_say_what_to_save() {
    let (_dir, path) = in_temporary("matrix.npz");
    for (format, arrays) in [("bsr", &["indptr", "indices", "data"][..]), ("dia", &["offsets", "data"]), ("lil", &[])] {
        NpzWriter::write_file(&path, |npz| {
            npz.ascii("format", format)?;
            npz.array("shape", &[2], &[2i64, 2])?;
            arrays.iter().try_for_each(|name| npz.array(name, &[1], &[0i32]))
        })
        .unwrap();
        let message = refusal(&path, &LoadOptions::default());
        assert!(message.contains(&format!("{format:?}")) && message.contains("matrix.tocsr()"), "{message}");
    }
}

#[test]
fn a_planetoid_graph_is_no_metis_graph() {
    let (dir, path) = in_temporary("ind.small.graph");
    std::fs::write(&path, "").unwrap();
    assert!(refusal(&path, &LoadOptions::default()).contains("ind.small.graph"));
    assert_eq!(refusal(&path, &LoadOptions::default()), load_default(dir.path()).unwrap_err().to_string());
}

#[test]
fn an_unknown_path_lists_what_is_there_and_what_is_known() {
    let (dir, path) = in_temporary("notes.md");
    assert!(load_default(&path).unwrap_err().is_not_found());
    std::fs::write(&path, "hello").unwrap();
    assert!(refusal(&path, &LoadOptions::default()).contains("supported are"));
    let message = load_default(dir.path()).unwrap_err().to_string();
    assert!(message.contains("notes.md") && message.contains("Planetoid"), "{message}");

    for name in ["a", "b"] {
        std::fs::write(dir.path().join(format!("ind.{name}.graph")), "").unwrap();
    }
    let message = load_default(dir.path()).unwrap_err().to_string();
    assert!(message.contains("several data sets (a, b)"), "{message}");
    assert!(load("synth:nothing", &LoadOptions::default()).unwrap_err().is_spec());
}

/// A larger number of runs draws more splits; the data of the first runs stays equal.
#[test]
fn every_split_has_a_fingerprint() {
    let split = |train: u32| Split { train: vec![train], val: vec![2], test: vec![3] };
    let fingerprints =
        |splits: &[Split]| Dataset::new("path", path_graph(4), None, None, splits.to_vec()).unwrap().fingerprints();
    let [first, second] = fingerprints(&[split(0), split(1)])[..] else { panic!("one a split") };
    assert_eq!(fingerprints(&[split(0)]), [first]);
    assert_ne!(first, second);
    let [none] = fingerprints(&[])[..] else { panic!("one without splits") };
    assert!(none != first && none != second);
}

/// Everything with a row per node moves with the node; the inverse permutation restores it.
#[test]
fn a_permuted_data_set_is_the_same_under_other_names() {
    let options = LoadOptions::default();
    let dataset = load("synth:planted,nodes=120,degree=6,features=5,classes=3", &options).unwrap();
    let order = Permutation::from_new_of_old((0..120u32).map(|v| (v * 7 + 3) % 120).collect()).unwrap();
    let renamed = dataset.clone().permuted(&order).unwrap();
    renamed.validate().unwrap();
    let class = |dataset: &Dataset, v: u32| match dataset.labels.as_ref().unwrap() {
        Labels::Single { classes, .. } => classes[v as usize],
        Labels::Multi { .. } => panic!("one class per node"),
    };
    for v in 0..120u32 {
        assert_eq!(class(&dataset, v), class(&renamed, order.map(v)));
        let mut neighbors: Vec<u32> = dataset.graph.row(v as usize).iter().map(|&u| order.map(u)).collect();
        neighbors.sort_unstable();
        assert_eq!(renamed.graph.row(order.map(v) as usize), neighbors);
        let trains = |dataset: &Dataset, v: u32| dataset.splits[0].train.contains(&v);
        assert_eq!(trains(&dataset, v), trains(&renamed, order.map(v)));
    }
    assert_ne!(renamed.fingerprint(), dataset.fingerprint());
    let returned = renamed.permuted(&order.inverse()).unwrap();
    assert_eq!(returned.fingerprint(), dataset.fingerprint());
    assert_eq!(returned, dataset);
    let short = Permutation::identity(3);
    assert!(dataset.permuted(&short).unwrap_err().to_string().contains("an order of 3 nodes for a graph of 120"));
}

#[test]
fn generated_data_refuses_options_of_files() {
    let default = LoadOptions::default();
    let columns = Some("source,target".parse().unwrap());
    for (options, flag) in [
        (LoadOptions { ids_from: Some(1), ..default.clone() }, "--ids-from is for edge lists"),
        (LoadOptions { bipartite: Some(true), ..default.clone() }, "--bipartite is for edge lists"),
        (LoadOptions { columns, ..default.clone() }, "--columns is for edge lists and triples"),
        (LoadOptions { labels_from: Some(1), ..default.clone() }, "--labels-from is for labels of files"),
        (LoadOptions { multi_label: Some(true), ..default.clone() }, "--multi-label is for labels of files"),
        (LoadOptions { duplicates: Some(Duplicates::Sum), ..default.clone() }, "--duplicates has no effect"),
    ] {
        let message = load("synth:planted,nodes=50,degree=4", &options).expect_err(flag).to_string();
        assert!(message.contains(flag) && message.contains("leave it out"), "{message}");
    }
    let (_dir, path) = in_temporary("y.npy");
    write_npy(&path, &[50], &(0..50i64).map(|v| v % 2 + 1).collect::<Vec<_>>()).unwrap();
    let options = LoadOptions { labels: Some(path), labels_from: Some(1), ..default };
    assert_eq!(load("synth:planted,nodes=50,degree=4", &options).unwrap().n_classes(), 2);
}
