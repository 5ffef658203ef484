//! A law over all formats with more than one entry: unused entries are noted, and so are made-up values.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{load_default, refusal, type_folders, write_mag_text, write_ogb_text, write_text};
use girih_datasets::{Dataset, Features, LoadOptions, OutputFormat, Split, load};
use girih_graph_format::file::{NpzWriter, Tensor, write_npy, write_tensors};
use girih_graph_format::{Duplicates, Notes};
use proptest::prelude::*;

/// Names with a meaning in some format.
const KNOWN: &[&str] = &[
    "x",
    "y",
    "feat",
    "features",
    "label",
    "labels",
    "edge_index",
    "edge_weight",
    "edge_attr",
    "indptr",
    "indices",
    "values",
    "data",
    "shape",
    "format",
    "row",
    "col",
    "num_nodes",
    "num_classes",
    "edges",
    "raw",
    "split",
];

fn unknown_name() -> impl Strategy<Value = String> {
    "[a-z][a-z_]{2,12}".prop_filter("names without a meaning", |name| {
        !KNOWN.contains(&name.as_str()) && !name.ends_with('_') && !name.contains("__")
    })
}

/// Folders and archives of all formats, each with one extra entry of a given name.
fn formats(home: &Path, name: &str) -> Vec<(PathBuf, String)> {
    let file = |path: PathBuf| fs::write(path, "anything").unwrap();
    let mut all = Vec::new();
    let girih = home.join("girih");
    load_default(&named_arrays(&home.join("source"), &[])).save(&girih).unwrap();
    write_npy(&girih.join(format!("{name}.npy")), &[1], &[0f32]).unwrap();
    all.push((girih.clone(), format!("{name}.npy")));
    all.push((named_arrays(&home.join("arrays"), &[name]), format!("{name}.npy")));
    let ogb = home.join("ogb");
    write_ogb_text(&ogb, "csv");
    file(ogb.join("raw").join(name));
    all.push((ogb.clone(), format!("raw/{name}")));
    let mag = home.join("ogbn-mag");
    write_mag_text(&mag);
    for folder in ["raw/node-feat/paper", "raw/relations/paper___cites___paper", "split/time/paper"] {
        file(mag.join(folder).join(name));
        all.push((mag.clone(), format!("{folder}/{name}")));
    }
    for folder in [type_folders::mag_in(home), type_folders::igb_in(home)] {
        for below in ["", "processed/", "processed/paper/", "processed/paper__cites__paper/"] {
            if folder.join(below).is_dir() {
                file(folder.join(below).join(name));
                all.push((folder.clone(), format!("{below}{name}")));
            }
        }
    }
    let lightgcn = home.join("lightgcn");
    write_text(&lightgcn.join("train.txt"), "0 0 2\n1 1\n2 0 1 2\n");
    write_text(&lightgcn.join("test.txt"), "0 3\n1 0\n");
    file(lightgcn.join(name));
    all.push((lightgcn, name.to_owned()));
    let only = home.join("only");
    write_text(&only.join("edges.csv"), "0,1\n");
    file(only.join(name));
    all.push((only, name.to_owned()));
    for (format, write) in [("tensors.safetensors", tensors as fn(&Path, &str)), ("arrays.npz", archive)] {
        write(&home.join(format), name);
        all.push((home.join(format), name.to_owned()));
    }
    for (format, write) in [("gnn.npz", gnn_benchmark as fn(&Path, &str)), ("hetero.npz", heterophilous)] {
        write(&home.join(format), name);
        all.push((home.join(format), format!("{name}.npy")));
    }
    scipy(&home.join("scipy.npz"), name);
    all.push((home.join("scipy.npz"), name.to_owned()));
    all
}

/// Makes a folder of named arrays of four nodes, with further arrays.
fn named_arrays(folder: &Path, more: &[&str]) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let file = |name: &str| folder.join(format!("{name}.npy"));
    write_npy(&file("edge_index"), &[2, 3], &[0i64, 2, 3, 1, 1, 0]).unwrap();
    write_npy(&file("x"), &[4, 1], &[0.5f32, 1.0, 2.0, 4.0]).unwrap();
    write_npy(&file("y"), &[4], &[0i64, 1, -1, 1]).unwrap();
    more.iter().for_each(|name| write_npy(&file(name), &[2], &[1f32, 2.0]).unwrap());
    folder.to_owned()
}

fn tensors(path: &Path, name: &str) {
    let tensor = |name: &str, tensor| (name.to_owned(), tensor);
    let tensors = vec![
        tensor("edge_index", Tensor::new::<i64>(&[2, 1], vec![0, 1])),
        tensor(name, Tensor::new::<f32>(&[1], vec![0.0])),
    ];
    write_tensors(path, tensors).unwrap();
}

fn archive(path: &Path, name: &str) {
    NpzWriter::write_file(path, |npz| {
        npz.array("edge_index", &[2, 1], &[0i64, 1])?;
        npz.array(name, &[1], &[0f32])
    })
    .unwrap();
}

fn gnn_benchmark(path: &Path, name: &str) {
    NpzWriter::write_file(path, |npz| {
        npz.array("adj_indices", &[1], &[1i32])?;
        npz.array("adj_indptr", &[3], &[0i32, 1, 1])?;
        npz.array("adj_shape", &[2], &[2i64, 2])?;
        npz.array("labels", &[2], &[0i64, 1])?;
        npz.array(name, &[1], &[0f32])
    })
    .unwrap();
}

fn heterophilous(path: &Path, name: &str) {
    NpzWriter::write_file(path, |npz| {
        npz.array("node_features", &[2, 1], &[0f32, 1.0])?;
        npz.array("node_labels", &[2], &[0i64, 1])?;
        npz.array("edges", &[1, 2], &[0i64, 1])?;
        for part in ["train", "val", "test"] {
            npz.array(&format!("{part}_masks"), &[1, 2], &[0u8, 0])?;
        }
        npz.array(name, &[1], &[0f32])
    })
    .unwrap();
}

fn scipy(path: &Path, name: &str) {
    NpzWriter::write_file(path, |npz| {
        npz.array("indptr", &[3], &[0i32, 1, 1])?;
        npz.array("indices", &[1], &[1i32])?;
        npz.array(name, &[1], &[0f32])
    })
    .unwrap();
}

fn names(notes: &Notes) -> Vec<&str> {
    notes.not_used.iter().map(|entry| entry.what.as_str()).collect()
}

/// Note of a kind among the made-up values.
fn made<'n>(dataset: &'n Dataset, kind: &str) -> Option<&'n str> {
    dataset.notes.made_up.iter().find(|made| made.kind == kind).map(|made| made.text.as_str())
}

fn strict() -> LoadOptions {
    LoadOptions { strict: true, ..LoadOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn an_unknown_entry_of_any_format_is_named_and_refused_when_strict(name in unknown_name()) {
        let home = tempfile::tempdir().unwrap();
        for (path, entry) in formats(home.path(), &name) {
            let notes = load_default(&path).notes;
            prop_assert!(names(&notes).contains(&entry.as_str()), "{}: {:?}", path.display(), notes);
            let refused = refusal(&path, &strict());
            prop_assert!(refused.contains(&entry) && refused.contains("--strict"), "{}", refused);
        }
    }
}

#[test]
fn nothing_is_named_where_all_is_used() {
    let home = tempfile::tempdir().unwrap();
    let arrays = named_arrays(&home.path().join("arrays"), &[]);
    for (part, id) in [("train", 0i64), ("val", 1), ("test", 3)] {
        write_npy(&arrays.join(format!("{part}_nid.npy")), &[1], &[id]).unwrap();
    }
    let dataset = load(arrays.to_str().unwrap(), &strict()).unwrap();
    assert!(dataset.notes.is_empty(), "{:?}", dataset.notes);
    assert_eq!(dataset.splits, [Split { train: vec![0], val: vec![1], test: vec![3] }]);
    for (name, format) in [("folder", OutputFormat::Folder), ("all.safetensors", OutputFormat::Tensors)] {
        let path = home.path().join(name);
        dataset.save_as(format, &path).unwrap();
        let again = load(path.to_str().unwrap(), &strict()).unwrap();
        assert!(again.notes.is_empty(), "{name}: {:?}", again.notes);
    }
}

#[test]
fn a_split_under_an_unknown_name_keeps_girih_from_drawing_one() {
    let home = tempfile::tempdir().unwrap();
    for (i, name) in ["train_nids", "trainmask", "idx_train", "fold"].into_iter().enumerate() {
        let folder = named_arrays(&home.path().join(i.to_string()), &[name]);
        let dataset = load_default(&folder);
        assert!(dataset.splits.is_empty(), "{name}");
        let warning = &dataset.notes.warnings[0];
        assert!(warning.contains(&format!("{name}.npy looks like one")) && warning.contains("--split random"));
        let asked = LoadOptions { random_split: true, ..LoadOptions::default() };
        let drawn = load(folder.to_str().unwrap(), &asked).unwrap();
        assert_eq!(drawn.splits.len(), 1, "{name}");
        assert!(made(&drawn, "drawn_split").unwrap().contains("60 % train, 20 % val, 20 % test"));
    }
    // A boolean array of all nodes counts as a mask under any name.
    let folder = named_arrays(&home.path().join("mask"), &[]);
    let mut mask = b"\x93NUMPY\x01\x00\x76\x00{'descr': '|b1', 'fortran_order': False, 'shape': (4,), }".to_vec();
    mask.resize(127, b' ');
    mask.extend(b"\n\x01\x00\x00\x01");
    fs::write(folder.join("known.npy"), mask).unwrap();
    assert!(load_default(&folder).splits.is_empty());
    // Other arrays do not.
    let folder = named_arrays(&home.path().join("other"), &["pos"]);
    let dataset = load_default(&folder);
    assert_eq!(dataset.splits.len(), 1);
    assert!(made(&dataset, "drawn_split").is_some());
}

#[test]
fn parts_of_a_split_that_are_not_there_are_empty_and_said() {
    let home = tempfile::tempdir().unwrap();
    let folder = named_arrays(home.path(), &[]);
    write_npy(&folder.join("train_mask.npy"), &[4], &[1u8, 0, 0, 0]).unwrap();
    write_npy(&folder.join("test_mask.npy"), &[4], &[0u8, 1, 0, 1]).unwrap();
    let dataset = load_default(&folder);
    assert_eq!(dataset.splits, [Split { train: vec![0], val: vec![], test: vec![1, 3] }]);
    assert_eq!(made(&dataset, "empty_part"), Some("no val nodes: the data has those of train and test alone"));
}

#[test]
fn ids_of_a_part_are_listed_once() {
    let home = tempfile::tempdir().unwrap();
    let folder = named_arrays(home.path(), &[]);
    write_npy(&folder.join("train_idx.npy"), &[3], &[2i64, 0, 2]).unwrap();
    assert!(refusal(&folder, &LoadOptions::default()).contains("train_idx.npy: node 2 is listed twice"));
}

#[test]
fn a_girih_folder_without_its_manifest_is_refused_and_its_arrays_are_read_elsewhere() {
    let home = tempfile::tempdir().unwrap();
    let dataset = load("synth:planted,nodes=60,degree=4", &LoadOptions::default()).unwrap();
    let folder = home.path().join("graph");
    dataset.save(&folder).unwrap();
    fs::remove_file(folder.join("girih.toml")).unwrap();
    let refused = refusal(&folder, &LoadOptions::default());
    assert!(refused.contains("girih.toml is missing") && refused.contains("split0_"), "{refused}");
    // In an archive, the names are those of girih's splits.
    let path = home.path().join("graph.npz");
    NpzWriter::write_file(&path, |npz| {
        npz.array("edge_index", &[2, 1], &[0i64, 1])?;
        npz.array("y", &[3], &[0i64, 1, 0])?;
        npz.array("split0_train", &[1], &[2u32])?;
        npz.array("split0_val", &[1], &[0u32])?;
        npz.array("split0_test", &[1], &[1u32])
    })
    .unwrap();
    assert_eq!(load_default(&path).splits, [Split { train: vec![2], val: vec![0], test: vec![1] }]);
}

#[test]
fn an_unknown_section_of_the_manifest_is_named_and_an_unknown_key_refused() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("graph");
    load("synth:planted,nodes=60,degree=4", &LoadOptions::default()).unwrap().save(&folder).unwrap();
    let manifest = folder.join("girih.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, format!("{text}\n[history]\nmade = \"yesterday\"\n")).unwrap();
    assert_eq!(names(&load_default(&folder).notes), ["girih.toml: [history]"]);
    fs::write(&manifest, text.replace("[dataset]", "[dataset]\ncolour = 3")).unwrap();
    let refused = refusal(&folder, &LoadOptions::default());
    assert!(refused.contains("unknown field `colour`") && !refused.contains("fetch"), "{refused}");
}

#[test]
fn weights_lie_under_every_usual_name() {
    let home = tempfile::tempdir().unwrap();
    let weights = [0.5f32, 2.0, 4.0];
    let expected = Some(&[4.0f32, 0.5, 2.0][..]);
    for (i, (name, shape)) in
        [("edge_weight", &[3][..]), ("edge_weight", &[3, 1]), ("edge_attr", &[3]), ("edge_attr", &[3, 1])]
            .into_iter()
            .enumerate()
    {
        let folder = named_arrays(&home.path().join(i.to_string()), &[]);
        write_npy(&folder.join(format!("{name}.npy")), shape, &weights).unwrap();
        let dataset = load_default(&folder);
        assert_eq!(dataset.graph.values(), expected, "{name} {shape:?}");
        assert!(dataset.notes.not_used.is_empty() && made(&dataset, "weights").is_some() == (name == "edge_attr"));
    }
    for (i, name) in ["values", "data", "edge_weight", "edge_attr"].into_iter().enumerate() {
        let path = home.path().join(format!("{i}.npz"));
        NpzWriter::write_file(&path, |npz| {
            npz.array("indptr", &[4], &[0i64, 1, 3, 3])?;
            npz.array("indices", &[3], &[2i64, 0, 2])?;
            npz.array("x", &[3, 1], &[0f32, 1.0, 2.0])?;
            npz.array(name, &[3], &weights)
        })
        .unwrap();
        assert_eq!(load_default(&path).graph.values(), Some(&weights[..]), "{name}");
    }
    // Several columns are edge features; so is one column next to weights.
    let folder = named_arrays(&home.path().join("columns"), &[]);
    write_npy(&folder.join("edge_attr.npy"), &[3, 2], &[0f32; 6]).unwrap();
    let dataset = load_default(&folder);
    assert_eq!(dataset.graph.values(), None);
    assert_eq!(dataset.notes.not_used_line().unwrap(), "not used: edge_attr.npy: edge features (2 columns)");
    write_npy(&folder.join("edge_attr.npy"), &[3], &[0f32; 3]).unwrap();
    write_npy(&folder.join("edge_weight.npy"), &[3], &weights).unwrap();
    let dataset = load_default(&folder);
    assert_eq!(dataset.graph.values(), expected);
    assert!(dataset.notes.not_used_line().unwrap().contains("edge_weight has the weights"));
}

#[test]
fn parallel_edges_become_what_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let folder = named_arrays(home.path(), &[]);
    write_npy(&folder.join("edge_index.npy"), &[2, 4], &[0i64, 0, 0, 2, 1, 1, 1, 3]).unwrap();
    let with = |duplicates| load(folder.to_str().unwrap(), &LoadOptions { duplicates, ..LoadOptions::default() });
    let values = |duplicates| with(duplicates).unwrap().graph.values().map(<[f32]>::to_vec);
    assert_eq!(values(None), Some(vec![3.0, 1.0]), "as in PyG and DGL each of them counts");
    assert_eq!(values(Some(Duplicates::Merge)), None);
    assert_eq!(values(Some(Duplicates::Sum)), Some(vec![3.0, 1.0]));
    assert!(with(Some(Duplicates::Refuse)).unwrap_err().to_string().contains("edge_index.npy"));
    let text = made(&with(None).unwrap(), "merged_edges").unwrap().to_owned();
    assert!(text.starts_with("2 edges are parallel to another") && text.contains("--duplicates keep"), "{text}");

    write_npy(&folder.join("edge_weight.npy"), &[4], &[0.5f32, 1.0, 4.0, 8.0]).unwrap();
    assert_eq!(values(None), Some(vec![5.5, 8.0]));
    assert_eq!(values(Some(Duplicates::Merge)), Some(vec![0.5, 8.0]));
}

#[test]
fn features_may_be_any_numbers() {
    let home = tempfile::tempdir().unwrap();
    let folder = named_arrays(home.path(), &[]);
    let path = folder.join("x.npy");
    let rows = |path: &Path| match load_default(path).features {
        Some(Features::Dense(rows)) => rows.data().to_vec(),
        _ => panic!("dense features"),
    };
    write_npy(&path, &[4, 1], &[0u16, 1, 2, 65535]).unwrap();
    assert_eq!(rows(&folder), [0.0, 1.0, 2.0, 65535.0]);
    write_npy(&path, &[4, 1], &[-1i8, 1, 2, 3]).unwrap();
    assert_eq!(rows(&folder), [-1.0, 1.0, 2.0, 3.0]);
    let mut bools = b"\x93NUMPY\x01\x00\x76\x00{'descr': '|b1', 'fortran_order': False, 'shape': (4, 1), }".to_vec();
    bools.resize(127, b' ');
    bools.extend(b"\n\x01\x00\x00\x01");
    fs::write(&path, bools).unwrap();
    assert_eq!(rows(&folder), [1.0, 0.0, 0.0, 1.0]);
}

#[test]
fn roots_of_pyg_data_sets_stand_for_their_raw_files() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("Photo");
    fs::create_dir_all(root.join("raw")).unwrap();
    fs::create_dir_all(root.join("processed")).unwrap();
    gnn_benchmark(&root.join("raw/amazon_electronics_photo.npz"), "class_names");
    let dataset = load_default(&root);
    assert_eq!((dataset.n_nodes(), dataset.n_edges()), (2, 2));
    assert!(dataset.features.is_none(), "archives in Nettack's manner have none");
    assert_eq!(names(&dataset.notes), ["class_names.npy", "processed/"]);
    assert!(dataset.splits.is_empty(), "classes of one node are too small to draw from");
    assert!(dataset.notes.warnings[0].contains("class 0 has 1 labelled nodes"), "{:?}", dataset.notes.warnings);
    assert!(dataset.notes.warnings[0].contains("--split random"));
}
