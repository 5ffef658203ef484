//! Raw folders of the Open Graph Benchmark: a real one, if available, and small ones written here.

use std::path::Path;

use crate::common::{load_default, real, refusal, write_ogb_text, write_text};
use girih_datasets::{Features, Labels, LoadOptions, Split, UNLABELLED, load};
use girih_graph_format::file::NpzWriter;

#[test]
fn ogbl_ddi() {
    let Some(root) = real("ogbl-ddi") else { return };
    let ddi = load_default(&root);
    assert_eq!((ddi.n_nodes(), ddi.n_edges(), &ddi.name[..]), (4267, 2 * 1_067_911, "ogbl-ddi"));
    assert!(ddi.graph.is_symmetric() && ddi.features.is_none() && ddi.labels.is_none() && ddi.splits.is_empty());
    assert_eq!(load_default(&root.join("raw")), ddi);
    let as_shipped = LoadOptions { symmetrize: Some(false), ..LoadOptions::default() };
    assert_eq!(load(root.to_str().unwrap(), &as_shipped).unwrap().n_edges(), 1_067_911);
}

#[test]
fn text_packed_or_not_from_root_or_raw() {
    for ending in ["csv.gz", "csv"] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("ogbn-small");
        write_ogb_text(&root, ending);
        let small = load_default(&root);
        assert_eq!((small.n_nodes(), small.n_edges(), &small.name[..]), (4, 4, "ogbn-small"));
        assert_eq!(small.graph.row(1), [0, 2]);
        let Some(Features::Dense(rows)) = &small.features else { panic!("dense features") };
        assert_eq!(rows.data(), [1.0, 0.5, 0.0, 0.1, 0.0, 0.0, -2.0, 3.0]);
        let classes = vec![1, UNLABELLED, 0, UNLABELLED];
        assert_eq!(small.labels, Some(Labels::Single { n_classes: 2, classes }));
        assert_eq!(small.splits, [Split { train: vec![2], val: vec![0], test: vec![1, 3] }]);
        assert_eq!(load_default(&root.join("raw")), small);
    }
}

#[test]
fn several_labels_and_several_splits() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write_ogb_text(root, "csv.gz");
    write_text(&root.join("raw/node-label.csv.gz"), "0,1\n1,1\n0,0\n1,0\n");
    for part in ["train", "valid", "test"] {
        write_text(&root.join(format!("split/by-name/{part}.csv.gz")), "");
    }
    let small = load_default(root);
    assert!(small.is_multi_label());
    assert_eq!((small.n_classes(), small.splits.len()), (2, 2));
    assert_eq!(small.splits[0], Split::default(), "split sets come in the order of their names");

    write_text(&root.join("raw/node-label.csv.gz"), "0,1\n1,\n0,0\n1,0\n");
    assert!(refusal(root, &LoadOptions::default()).contains("node-label.csv.gz: row 1, column 1: no target"));
    write_text(&root.join("raw/node-label.csv.gz"), "0,1\n1,2\n0,0\n1,0\n");
    assert!(refusal(root, &LoadOptions::default()).contains("node 1, class 1: the target is 2"));
}

/// File that PyTorch 2.11 has written.
pub fn torch_file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/torch").join(name)
}

/// Folder without a split as text, whose split `target` consists of these files of `torch.save`.
pub fn with_torch_split(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_ogb_text(dir.path(), "csv.gz");
    std::fs::remove_dir_all(dir.path().join("split")).unwrap();
    std::fs::create_dir_all(dir.path().join("split/target")).unwrap();
    for (name, golden) in files {
        std::fs::copy(torch_file(golden), dir.path().join("split/target").join(name)).unwrap();
    }
    dir
}

#[test]
fn splits_that_pytorch_has_saved_are_read() {
    let all = Split { train: vec![0, 2], val: vec![1], test: vec![3] };
    for golden in ["dict_tensors.pt", "dict_numpy.pt"] {
        assert_eq!(
            load_default(with_torch_split(&[("split_dict.pt", golden)]).path()).splits,
            std::slice::from_ref(&all),
            "{golden}"
        );
    }
    for golden in ["tensor_i64.pt", "tensor_i32.pt", "numpy.pt", "legacy.pt"] {
        let small = load_default(with_torch_split(&[("train.pt", golden)]).path());
        assert_eq!(small.splits, [Split { train: vec![0, 2], ..Split::default() }], "{golden}");
        assert_eq!(small.notes.made_up.iter().filter(|made| made.kind == "empty_part").count(), 2);
    }
    let strided = with_torch_split(&[("train.pt", "tensor_strided.pt")]);
    assert!(refusal(strided.path(), &LoadOptions::default()).contains("node 5 does not exist"), "every other of six");
}

#[test]
fn files_of_pytorch_that_are_no_split_of_nodes_are_named() {
    let small = load_default(with_torch_split(&[("split_dict.pt", "nested.pt")]).path());
    assert!(small.splits.is_empty());
    let named: Vec<&str> = small.notes.not_used.iter().map(|entry| entry.what.as_str()).collect();
    assert!(named.contains(&"split/target/split_dict.pt"), "{named:?}");
    assert!(small.notes.warnings[0].contains("--split random"));
    for (golden, expected) in [
        ("tensor_float.pt", "a tensor of floats"),
        ("tensor_2d.pt", "a tensor of 2 dimensions"),
        ("hostile.pt", "not on the list of allowed names"),
    ] {
        let dir = with_torch_split(&[("train.pt", golden)]);
        let message = refusal(dir.path(), &LoadOptions::default());
        assert!(message.contains("train.pt") && message.contains(expected), "{golden}: {message}");
    }
}

#[test]
fn labels_without_a_split_get_one() {
    let dir = with_torch_split(&[]);
    let options = LoadOptions { n_splits: 3, ..LoadOptions::default() };
    let small = load(dir.path().to_str().unwrap(), &options).unwrap();
    assert_eq!(small.splits.len(), 3);
    assert!(small.notes.made_up.iter().any(|made| made.kind == "drawn_split"));
    let n_dealt = |split: &Split| split.parts().iter().map(|(_, ids)| ids.len()).sum::<usize>();
    assert!(small.splits.iter().all(|split| n_dealt(split) == 2), "two of four nodes are labelled");
}

#[test]
fn weights_of_edges_are_read_and_other_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    write_ogb_text(dir.path(), "csv.gz");
    write_text(&dir.path().join("raw/edge_weight.csv.gz"), "0.5\n2\n");
    write_text(&dir.path().join("raw/edge_year.csv.gz"), "2001\n2002\n");
    let small = load_default(dir.path());
    assert_eq!((small.graph.row(1), small.graph.values()), (&[0, 2][..], Some(&[0.5, 0.5, 2.0, 2.0][..])));
    let named: Vec<&str> = small.notes.not_used.iter().map(|entry| entry.what.as_str()).collect();
    assert_eq!(named, ["raw/edge_year.csv.gz", "raw/node_year.csv.gz"]);
    write_text(&dir.path().join("raw/edge_weight.csv.gz"), "0.5\n");
    assert!(refusal(dir.path(), &LoadOptions::default()).contains("1 lines of 1 columns for 2 edges"));
}

#[test]
fn text_that_contradicts_itself_is_refused_by_file_and_line() {
    let cases = [
        ("raw/edge.csv.gz", "0,1\n4,1\n", "edge.csv.gz: line 2: node 4 does not exist"),
        ("raw/edge.csv.gz", "0,1\n", "edge.csv.gz: 2 edges are declared, but the file holds 1"),
        ("raw/edge.csv.gz", "0,1,1\n2,1,1\n", "edge.csv.gz: three columns"),
        ("raw/num-node-list.csv.gz", "4\n5\n", "num-node-list.csv.gz: 2 graphs"),
        ("raw/num-node-list.csv.gz", "four\n", "num-node-list.csv.gz: line 1"),
        ("raw/num-node-list.csv.gz", "9000000000\n", "exceed the limit"),
        ("raw/num-node-list.csv.gz", "2000000000\n", "4 rows of features for 2000000000 nodes"),
        ("raw/node-feat.csv.gz", "1,2\n1\n3,4\n5,6\n", "node-feat.csv.gz: line 2: 1 fields"),
        ("raw/node-feat.csv.gz", "1\n1\nnan\n1\n", "node-feat.csv.gz: line 3: \"nan\""),
        ("raw/node-feat.csv.gz", "1\n1\n", "2 rows of features for 4 nodes"),
        ("raw/node-label.csv.gz", "1\n1\n0.5\n1\n", "node-label.csv.gz: node 2 has class 0.5"),
        ("raw/node-label.csv.gz", "1\n0\n", "2 labels for 4 nodes"),
        ("split/time/train.csv.gz", "x\n", "train.csv.gz: line 1"),
        ("split/time/train.csv.gz", "4\n", "node 4 does not exist"),
        ("split/time/train.csv.gz", "3000000000\n", "train.csv.gz: line 1: node 3000000000 does not exist"),
        ("split/time/train.csv.gz", "0\n", "node 0 is in both train and val"),
    ];
    for (file, text, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        write_ogb_text(dir.path(), "csv.gz");
        write_text(&dir.path().join(file), text);
        let message = refusal(dir.path(), &LoadOptions::default());
        assert!(message.contains(expected), "{file} {text:?}: {message}");
    }
    let dir = tempfile::tempdir().unwrap();
    write_ogb_text(dir.path(), "csv.gz");
    std::fs::remove_file(dir.path().join("split/time/valid.csv.gz")).unwrap();
    assert_eq!(load_default(dir.path()).splits, [Split { train: vec![2], val: vec![], test: vec![1, 3] }]);
    std::fs::remove_file(dir.path().join("raw/num-edge-list.csv.gz")).unwrap();
    assert!(refusal(dir.path(), &LoadOptions::default()).contains("no num-edge-list.csv.gz beside"));
    std::fs::remove_file(dir.path().join("raw/num-node-list.csv.gz")).unwrap();
    let message = refusal(dir.path(), &LoadOptions::default());
    assert!(message.contains("no num-node-list.csv.gz and num-edge-list.csv.gz"), "{message}");
}

/// Writes the binary form of a graph of three nodes, with `edge_index` and the declared number of edges.
fn write_binary(root: &Path, edges: &[i64], n_edges: i64) {
    std::fs::create_dir_all(root.join("raw")).unwrap();
    NpzWriter::write_file(&root.join("raw/data.npz"), |npz| {
        npz.array("edge_index", &[2, edges.len() / 2], edges)?;
        npz.array("node_feat", &[3, 1], &[0.5f32, 1.0, -1.0])?;
        npz.array("node_year", &[3, 1], &[2020i64; 3])?;
        npz.array("num_nodes_list", &[1], &[3i64])?;
        npz.array("num_edges_list", &[1], &[n_edges])
    })
    .unwrap();
    NpzWriter::write_file(&root.join("raw/node-label.npz"), |npz| {
        npz.array("node_label", &[3, 1], &[2.0f32, f32::NAN, 0.0])
    })
    .unwrap();
}

#[test]
fn the_binary_form() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write_binary(root, &[0, 2, 1, 1], 2);
    for (part, id) in [("train", "2\n"), ("valid", ""), ("test", "0\n")] {
        write_text(&root.join(format!("split/time/{part}.csv.gz")), id);
    }
    let small = load_default(root);
    assert_eq!((small.n_nodes(), small.n_edges(), small.n_features()), (3, 4, 1));
    assert_eq!(small.graph.row(1), [0, 2]);
    assert_eq!(small.labels, Some(Labels::Single { n_classes: 3, classes: vec![2, UNLABELLED, 0] }));
    assert_eq!(small.splits, [Split { train: vec![2], val: vec![], test: vec![0] }]);
    assert_eq!(load_default(&root.join("raw")), small);

    write_binary(root, &[0, 2, 1, 1], 3);
    assert!(refusal(root, &LoadOptions::default()).contains("3 edges are declared, but the file holds 2"));
    write_binary(root, &[0, 3, 1, 1], 2);
    assert!(refusal(root, &LoadOptions::default()).contains('3'));
}
