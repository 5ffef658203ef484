//! Data sets as named arrays, as users of PyG and DGL save them: in a folder, in one safetensors file, in one archive.

use std::path::{Path, PathBuf};

use crate::common::{load_default, refusal};
use girih_datasets::{Dataset, Features, Labels, LoadOptions, OutputFormat, Split, UNLABELLED, load};
use girih_graph_format::file::{NpzWriter, Tensor, write_npy, write_tensors};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix};
use half::{bf16, f16};
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

/// Folder of arrays of four nodes: 0 → 1, 2 → 1 and 3 → 0.
struct Case {
    home: TempDir,
}

impl Case {
    fn new() -> Self {
        let case = Self { home: tempfile::tempdir().unwrap() };
        write_npy(&case.file("edge_index"), &[2, 3], &[0i64, 2, 3, 1, 1, 0]).unwrap();
        write_npy(&case.file("x"), &[4, 1], &[0.5f32, 1.0, 2.0, 4.0]).unwrap();
        write_npy(&case.file("y"), &[4], &[0i64, 1, -1, 1]).unwrap();
        for (part, mask) in [("train", [1u8, 0, 0, 0]), ("val", [0, 1, 0, 0]), ("test", [0, 0, 0, 1])] {
            write_npy(&case.file(&format!("{part}_mask")), &[4], &mask).unwrap();
        }
        case
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(format!("{name}.npy"))
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.file(name)).unwrap();
    }

    fn load(&self) -> Dataset {
        load_default(self.path())
    }

    fn refusal(&self) -> String {
        refusal(self.path(), &LoadOptions::default())
    }
}

#[test]
fn a_folder_of_arrays() {
    let case = Case::new();
    let original = case.load();
    assert_eq!((original.n_nodes(), original.n_edges(), original.n_features()), (4, 3, 1));
    assert_eq!((original.graph.row(0), original.graph.row(1)), (&[3][..], &[0, 2][..]), "edges keep their direction");
    assert_eq!(original.labels, Some(Labels::Single { n_classes: 2, classes: vec![0, 1, UNLABELLED, 1] }));
    assert_eq!(original.splits, [Split { train: vec![0], val: vec![1], test: vec![3] }]);
    let both = LoadOptions { symmetrize: Some(true), ..LoadOptions::default() };
    assert_eq!(load(case.path().to_str().unwrap(), &both).unwrap().n_edges(), 6);

    // Equal data under other names and shapes.
    write_npy(&case.file("edge_index"), &[3, 2], &[0i32, 1, 2, 1, 3, 0]).unwrap();
    std::fs::rename(case.file("x"), case.file("feat")).unwrap();
    case.remove("y");
    write_npy(&case.file("label"), &[4, 1], &[0f32, 1.0, f32::NAN, 1.0]).unwrap();
    for part in ["train", "val", "test"] {
        case.remove(&format!("{part}_mask"));
    }
    for (part, id) in [("train", 0i64), ("valid", 1), ("test", 3)] {
        write_npy(&case.file(&format!("{part}_idx")), &[1], &[id]).unwrap();
    }
    assert_eq!(case.load(), original);

    // Equal data by rows.
    case.remove("edge_index");
    write_npy(&case.file("indptr"), &[5], &[0i64, 1, 3, 3, 3]).unwrap();
    write_npy(&case.file("indices"), &[3], &[3i64, 2, 0]).unwrap();
    assert_eq!(case.load(), original);
}

#[test]
fn one_file_of_tensors_and_one_archive() {
    let case = Case::new();
    let original = case.load();
    let path = case.path().join("graph.safetensors");
    let x = [0.5f32, 1.0, 2.0, 4.0];
    let halves: Vec<Tensor<'_>> = vec![
        Tensor::new::<f32>(&[4, 1], &x[..]),
        Tensor::new::<f64>(&[4, 1], x.map(f64::from).to_vec()),
        Tensor::new::<f16>(&[4, 1], x.map(f16::from_f32).to_vec()),
    ];
    for x in halves {
        let tensor = |name: &str, tensor| (String::from(name), tensor);
        let tensors = vec![
            tensor("edge_index", Tensor::new::<i64>(&[2, 3], vec![0, 2, 3, 1, 1, 0])),
            tensor("x", x),
            tensor("y", Tensor::new::<i32>(&[4], vec![0, 1, -1, 1])),
            tensor("train_mask", Tensor::bools(&[4], vec![1, 0, 0, 0])),
            tensor("val_mask", Tensor::bools(&[4], vec![0, 1, 0, 0])),
            tensor("test_mask", Tensor::bools(&[4], vec![0, 0, 0, 1])),
        ];
        write_tensors(&path, tensors).unwrap();
        assert_eq!(Dataset { name: original.name.clone(), ..load_default(&path) }, original);
    }
    let path = case.path().join("graph.npz");
    NpzWriter::write_file(&path, |npz| {
        npz.array("edge_index", &[2, 3], &[0i64, 2, 3, 1, 1, 0])?;
        npz.array("x", &[4, 1], &x)?;
        npz.array("y", &[4], &[0i64, 1, -1, 1])?;
        npz.array("train_mask", &[4], &[1u8, 0, 0, 0])?;
        npz.array("val_mask", &[4], &[0u8, 1, 0, 0])?;
        npz.array("test_mask", &[4], &[0u8, 0, 0, 1])
    })
    .unwrap();
    assert_eq!(Dataset { name: original.name.clone(), ..load_default(&path) }, original);
}

/// `torch.bfloat16` has no NumPy type, so this file is written by hand.
#[test]
fn tensors_of_bfloat16() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("graph.safetensors");
    let header = r#"{"edge_index":{"dtype":"I64","shape":[2,1],"data_offsets":[0,16]},"x":{"dtype":"BF16","shape":[2,1],"data_offsets":[16,20]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend([0i64, 1].iter().flat_map(|id| id.to_le_bytes()));
    bytes.extend([1.5f32, -2.0].iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()));
    std::fs::write(&path, bytes).unwrap();
    let Some(Features::Dense(rows)) = load_default(&path).features else { panic!("dense features") };
    assert_eq!(rows.data(), [1.5, -2.0]);
}

#[test]
fn several_masks_and_one_that_all_share() {
    let case = Case::new();
    write_npy(&case.file("train_mask"), &[4, 2], &[1u8, 0, 0, 0, 0, 1, 0, 0]).unwrap();
    write_npy(&case.file("val_mask"), &[4, 2], &[0u8, 1, 1, 0, 0, 0, 0, 0]).unwrap();
    let splits = case.load().splits;
    let expected = |train, val| Split { train: vec![train], val: vec![val], test: vec![3] };
    assert_eq!(splits, [expected(0, 1), expected(2, 0)]);

    let only = |split| LoadOptions { split: Some(split), ..LoadOptions::default() };
    let chosen = load(case.path().to_str().unwrap(), &only(1)).unwrap();
    assert_eq!(chosen.splits, [expected(2, 0)]);
    let message = load(case.path().to_str().unwrap(), &only(2)).unwrap_err().to_string();
    assert!(message.contains("split 2 does not exist") && message.contains("has 2 splits"), "{message}");
}

#[test]
fn a_chosen_split_is_drawn_like_the_one_of_that_run() {
    let case = Case::new();
    for part in ["train", "val", "test"] {
        case.remove(&format!("{part}_mask"));
    }
    for spec in [case.path().to_str().unwrap(), "synth:planted,nodes=100,degree=4"] {
        let all = load(spec, &LoadOptions { n_splits: 4, ..LoadOptions::default() }).unwrap();
        let one = load(spec, &LoadOptions { split: Some(3), ..LoadOptions::default() }).unwrap();
        assert_eq!(one.splits, all.splits[3..]);
    }
}

#[test]
fn arrays_that_contradict_each_other_are_refused() {
    type Change = fn(&Case);
    let cases: [(Change, &str); 16] = [
        (
            |case| write_npy(&case.file("edge_index"), &[3, 3], &[0i64; 9]).unwrap(),
            "edge_index.npy: edges of shape 3 × 3",
        ),
        (|case| write_npy(&case.file("edge_index"), &[2, 1], &[0i64, 4]).unwrap(), "edge_index.npy: edge 0: row 4"),
        (
            |case| write_npy(&case.file("edge_index"), &[2, 1], &[0f32, 1.0]).unwrap(),
            "edge_index.npy: values are float32",
        ),
        (|case| write_npy(&case.file("x"), &[3, 1], &[0f32; 3]).unwrap(), "column 3 does not exist; there are 3 nodes"),
        (|case| write_npy(&case.file("x"), &[4], &[0f32; 4]).unwrap(), "x.npy: found shape [4]"),
        (|case| write_npy(&case.file("x"), &[4, 1], &[f32::NAN; 4]).unwrap(), "row 0, column 0"),
        (|case| write_npy(&case.file("y"), &[3], &[0i64; 3]).unwrap(), "3 labels for 4 nodes"),
        (|case| write_npy(&case.file("y"), &[4], &[0.5f32; 4]).unwrap(), "y.npy: node 0 has class 0.5"),
        (
            |case| write_npy(&case.file("indptr"), &[5], &[0i64; 5]).unwrap(),
            "arrays edge_index and indptr say the same thing",
        ),
        (|case| write_npy(&case.file("feat"), &[4, 1], &[0f32; 4]).unwrap(), "arrays x and feat say the same thing"),
        (|case| write_npy(&case.file("labels"), &[4], &[0i64; 4]).unwrap(), "arrays y and labels say the same thing"),
        (
            |case| write_npy(&case.file("val_idx"), &[1], &[0i64]).unwrap(),
            "arrays val_mask and val_idx say the same thing",
        ),
        (|case| write_npy(&case.file("num_nodes"), &[2], &[4i64; 2]).unwrap(), "num_nodes.npy: 2 values"),
        (
            |case| write_npy(&case.file("num_nodes"), &[1], &[2_000_000_000i64]).unwrap(),
            "4 rows of features for 2000000000 nodes",
        ),
        (|case| write_npy(&case.file("val_mask"), &[3], &[0u8; 3]).unwrap(), "val_mask.npy: a mask of shape [3]"),
        (|case| write_npy(&case.file("val_mask"), &[4], &[1u8; 4]).unwrap(), "is in both train and val"),
    ];
    for (change, expected) in cases {
        let case = Case::new();
        change(&case);
        let message = case.refusal();
        assert!(message.contains(expected), "{message}");
    }
    let case = Case::new();
    write_npy(&case.file("edge_index"), &[2, 1], &[0i64, 2_000_000_000]).unwrap();
    for name in ["x", "y", "train_mask", "val_mask", "test_mask"] {
        case.remove(name);
    }
    assert!(case.refusal().contains("the largest id is 2000000000, but there are only 1 edges"));
    case.remove("edge_index");
    write_npy(&case.file("indptr"), &[2], &[0i64, 1]).unwrap();
    write_npy(&case.file("indices"), &[1], &[7i64]).unwrap();
    assert!(case.refusal().contains("indices.npy"));
}

/// Data set of up to 20 nodes with all contents that a safetensors file keeps.
fn any_dataset() -> impl Strategy<Value = Dataset> {
    (1..20usize, any::<bool>(), any::<bool>(), 1..4usize).prop_flat_map(|(n, sparse, multi, n_splits)| {
        let edges = vec((0..n as u32, 0..n as u32, 1..9u8), 0..40);
        let numbers = vec(0..3u8, n * 3);
        let parts = vec(0..4u8, n * n_splits);
        (edges, numbers, parts).prop_map(move |(edges, numbers, parts)| {
            let (rows, cols) = (edges.iter().map(|e| e.0).collect(), edges.iter().map(|e| e.1).collect());
            let weights = edges.iter().map(|e| f32::from(e.2)).collect();
            let graph = Coo::new(n, n, rows, cols, sparse.then_some(weights)).unwrap();
            let rows = Matrix::new(n, 3, numbers.iter().map(|&v| f32::from(v)).collect::<Vec<_>>()).unwrap();
            let bags = Csr::new(n, 7, (0..=n as u64).collect::<Vec<_>>(), vec![4; n], None).unwrap();
            let targets = Matrix::new(n, 3, numbers.iter().map(|&v| f32::from(v % 2)).collect::<Vec<_>>()).unwrap();
            let classes = (0..n).map(|v| if numbers[v] == 2 { UNLABELLED } else { numbers[v].into() }).collect();
            let ids = |i: usize, part: u8| (0..n).filter(|&v| parts[i * n + v] == part).map(|v| v as u32).collect();
            Dataset::new(
                "all",
                graph.to_csr(Duplicates::Merge).unwrap(),
                Some(if sparse { Features::Sparse(bags) } else { Features::Dense(rows) }),
                Some(if multi {
                    Labels::Multi { n_classes: 3, targets }
                } else {
                    Labels::Single { n_classes: 5, classes }
                }),
                (0..n_splits).map(|i| Split { train: ids(i, 0), val: ids(i, 1), test: ids(i, 2) }).collect(),
            )
            .unwrap()
        })
    })
}

proptest! {
    #[test]
    fn tensors_keep_everything(dataset in any_dataset()) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("all.safetensors");
        dataset.save_as(OutputFormat::of(&path).unwrap(), &path).unwrap();
        prop_assert_eq!(load_default(&path), dataset);
    }
}

/// A column of 0 and 1 is read as classes, unless the file states that it holds multi-label rows of one label.
#[test]
fn several_labels_a_node_come_back_though_there_is_one_label() {
    let case = Case::new();
    let targets = Matrix::new(4, 1, vec![0.0, 1.0, 1.0, 0.0]).unwrap();
    let labels = Labels::Multi { n_classes: 1, targets };
    let original = Dataset { labels: Some(labels.clone()), ..case.load() };
    let path = case.path().join("one.safetensors");
    original.save_as(OutputFormat::Tensors, &path).unwrap();
    assert_eq!(load_default(&path).labels, Some(labels));
    write_npy(&case.file("y"), &[4, 1], &[0i64, 1, 1, 0]).unwrap();
    assert!(!case.load().is_multi_label());
}

#[test]
fn names_ask_for_formats() {
    let format = |name: &str| OutputFormat::of(Path::new(name));
    for (name, expected) in [
        ("graph", OutputFormat::Folder),
        ("graph.d", OutputFormat::Folder),
        ("graph.NPZ", OutputFormat::SparseNpz),
        ("graph.csv.gz", OutputFormat::EdgeList),
        ("graph.mtx", OutputFormat::MatrixMarket),
        ("a.b.graph.gz", OutputFormat::Metis),
        ("graph.safetensors", OutputFormat::Tensors),
    ] {
        assert_eq!(format(name).unwrap(), expected, "{name}");
    }
    assert!(format("graph.npz.gz").unwrap_err().to_string().contains("only text is packed"));
    assert!(format("graph.zip").unwrap_err().to_string().contains("read only"));
}
