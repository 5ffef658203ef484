//! Typed data in girih's own folder: round trips, and damage.

use std::fs;
use std::path::PathBuf;

use crate::common::{load_default, refusal};
use crate::random_types::random;
use girih_datasets::{
    Dataset, Features, LoadOptions, OutputFormat, ReverseEdges, TypeFeatures, TypedData, load, saved_name,
};
use girih_graph_format::{Csr, EdgeType, NodeType, Schema, TypedGraph};
use proptest::prelude::*;
use tempfile::TempDir;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_folder_gives_back_what_was_written(seed in any::<u64>()) {
        let home = tempfile::tempdir().unwrap();
        let (path, data) = (home.path().join("folder"), random(seed));
        data.save_as(OutputFormat::Folder, &path).unwrap();
        let read = load_default(&path);
        prop_assert_eq!(read.fingerprints(), data.fingerprints());
        prop_assert!(read.notes.is_empty(), "{:?}", read.notes);
        prop_assert_eq!(read, data);
    }
}

/// Two types, `paper` and `author`, with a relation, its reverse, features of both, labels and a split.
pub fn library() -> Dataset {
    let seeds = (0_u64..).map(random);
    let fits = |data: &Dataset| {
        let typed = data.typed.as_ref().unwrap();
        let has = |of: &TypeFeatures| matches!(of, TypeFeatures::Given(Features::Dense(rows)) if rows.n_cols() > 0);
        let types = typed.graph.schema().node_types();
        typed.features.len() == 2
            && typed.features.iter().any(has)
            && types.iter().all(|of| of.n_nodes > 2)
            && typed.graph.relations().iter().filter(|relation| relation.nnz() > 1).count() > 1
            && data.labels.is_some()
            && !data.splits.is_empty()
            && data.names.is_some()
    };
    seeds.into_iter().find(fits).unwrap()
}

fn written() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("library");
    library().save(&path).unwrap();
    (home, path)
}

/// Message of the refusal after a change of the manifest.
fn changed(from: &str, to: &str) -> String {
    let (_home, path) = written();
    let manifest = path.join("girih.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    fs::write(&manifest, text.replacen(from, to, 1)).unwrap();
    refusal(&path, &LoadOptions::default())
}

#[test]
fn the_manifest_has_the_names_and_the_sizes() {
    let (_home, path) = written();
    assert_eq!(saved_name(&path).as_deref(), Some("data"));
    let text = fs::read_to_string(path.join("girih.toml")).unwrap();
    for expected in ["[typed]", "[[node_types]]", "[[edge_types]]", "repeats = false", "target = ", "n_nodes = "] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert!(!text.contains("[graph]"));
}

#[test]
fn manifests_that_contradict_themselves_or_the_arrays_are_refused() {
    let typed = library().typed.unwrap();
    let types = typed.graph.schema().node_types();
    let sizes: Vec<String> = types.iter().map(|of| format!("n_nodes = {}\n", of.n_nodes)).collect();
    let stated = |size: &str, to: &str| changed(size, to);
    let huge = stated(&sizes[0], "n_nodes = 2000000000\n");
    assert!(huge.contains("girih.toml: type ") && huge.contains("2000000000 nodes are declared"), "{huge}");
    let beyond = stated(&sizes[0], "n_nodes = 4000000000\n");
    assert!(beyond.contains("the 2 node types together have more than"), "{beyond}");
    let other = stated(&sizes[0], "n_nodes = 100\n");
    assert!(other.contains("girih.toml"), "{other}");
    let target = changed("target = ", "target = \"nothing\" #");
    let known =
        format!("the target nothing: there is no such node type; known are {}, {}", types[0].name, types[1].name);
    assert!(target.contains(&known), "{target}");
    let repeats = changed("repeats = false", "repeats = true");
    assert!(repeats.contains("has repeated pairs, which this program does not read"), "{repeats}");
    let edges = changed("nnz = ", "nnz = 1");
    assert!(edges.contains("the manifest states 1"), "{edges}");
    let both = changed("[typed]", "[graph]\nn_rows = 1\n\n[typed]");
    assert!(both.contains("both [typed] and [graph]"), "{both}");
    let unknown = changed("[typed]", "[typed]\ncolour = 1");
    assert!(unknown.contains("unknown field `colour`"), "{unknown}");
    let splits = changed("n_splits = ", "n_splits = 9999 #");
    assert!(splits.contains("9999 splits"), "{splits}");
}

#[test]
fn two_relations_of_one_name_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("twice");
    let node_types = ["a", "b"].map(|name| NodeType { name: name.to_owned(), n_nodes: 1 }).to_vec();
    let edge_type =
        |relation: &str| EdgeType { relation: relation.to_owned(), source: 0, destination: 1, reverse_of: None };
    let schema = Schema::new(node_types, vec![edge_type("one"), edge_type("two")]).unwrap();
    let empty = || Csr::empty(1, 1).unwrap();
    let graph = TypedGraph::new(schema, vec![empty(), empty()]).unwrap();
    Dataset::of_typed("twice", TypedData::of_graph(graph)).unwrap().save(&path).unwrap();
    load_default(&path).validate().unwrap();
    let manifest = path.join("girih.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    for (to, expected) in [
        ("one", "there are two relations a.one.b; rename one of them"),
        ("two\", \"c", "invalid length"),
        ("", "there are two relations a..b"),
    ] {
        fs::write(&manifest, text.replace("\"two\"", &format!("\"{to}\""))).unwrap();
        let message = refusal(&path, &LoadOptions::default());
        assert!(message.contains("girih.toml") && message.contains(expected), "{expected}: {message}");
    }
}

#[test]
fn names_and_arrays_that_changed_are_refused() {
    let (_home, path) = written();
    let (names, intact) = (path.join("n0_names.txt"), fs::read(path.join("n0_names.txt")).unwrap());
    fs::write(&names, "other\n").unwrap();
    assert!(refusal(&path, &LoadOptions::default()).contains("n0_names.txt: checksum"));
    fs::write(&names, intact).unwrap();
    load_default(&path);
    let indices = path.join("e0_indices.npy");
    let size = fs::metadata(&indices).unwrap().len();
    let mut bytes = fs::read(&indices).unwrap();
    bytes[size as usize - 1] = 1;
    fs::write(&indices, bytes).unwrap();
    assert!(refusal(&path, &LoadOptions::default()).contains("e0_indices.npy: checksum"));
}

#[test]
fn options_of_folders_keep_their_meaning_for_types() {
    let (_home, path) = written();
    let typed = library().typed.unwrap();
    let schema = typed.graph.schema();
    let other = &schema.node_types()[1 - typed.target].name;
    let with = |options: LoadOptions| refusal(&path, &options);
    let default = LoadOptions::default;
    let target = with(LoadOptions { target: Some(other.clone()), ..default() });
    assert!(target.contains("labels and splits are those of"), "{target}");
    let none = with(LoadOptions { target: Some("nothing".to_owned()), ..default() });
    assert!(none.contains("--target nothing: there is no such node type; known are"), "{none}");
    let names = with(LoadOptions { type_names: Some("p=paper".parse().unwrap()), ..default() });
    assert!(names.contains("--type-names is for folders of id pairs"), "{names}");
    let symmetrize = with(LoadOptions { symmetrize: Some(true), ..default() });
    assert!(symmetrize.contains("mixes the directions"), "{symmetrize}");
    let own = schema.node_types()[typed.target].name.clone();
    let options = LoadOptions { target: Some(own), reverse: Some(ReverseEdges::No), ..default() };
    assert_eq!(load(path.to_str().unwrap(), &options).unwrap(), library());
    let random = LoadOptions { random_split: true, ..default() };
    let drawn = load(path.to_str().unwrap(), &random).unwrap();
    drawn.validate().unwrap();
    assert_eq!(drawn.splits.len(), 1);
}

#[test]
fn features_are_divided_and_encoded_by_type() {
    let (_home, path) = written();
    let norm = Some(girih_datasets::FeatureNorm::Length);
    let divided = load(path.to_str().unwrap(), &LoadOptions { feature_norm: norm, ..LoadOptions::default() }).unwrap();
    let typed = divided.typed.unwrap();
    let rows = |data: &TypedData| -> Vec<f32> {
        let given = data.features.iter().filter_map(|of| match of {
            TypeFeatures::Given(Features::Dense(rows)) => Some(rows.data().to_vec()),
            _ => None,
        });
        given.flatten().collect()
    };
    let (before, after) = (rows(&library().typed.unwrap()), rows(&typed));
    assert_eq!(before.len(), after.len());
    assert_ne!(before, after);
    let codec = Some("int8".parse().unwrap());
    let encoded = load(path.to_str().unwrap(), &LoadOptions { codec, ..LoadOptions::default() }).unwrap();
    let is_code = |of: &TypeFeatures| matches!(of, TypeFeatures::Given(Features::Compressed(_)));
    assert!(encoded.typed.as_ref().unwrap().features.iter().any(is_code));
    let copy = path.with_file_name("encoded");
    encoded.save(&copy).unwrap();
    assert_eq!(load_default(&copy), encoded);
    let refused = encoded.save_as(OutputFormat::Tensors, &path.with_file_name("a.safetensors")).unwrap_err();
    assert!(refused.to_string().contains("compressed, which named arrays do not keep"), "{refused}");
}

#[test]
fn folders_are_replaced_whole_and_other_files_are_named() {
    let (_home, path) = written();
    library().save(&path).unwrap();
    fs::write(path.join("n9_labels.npy"), "").unwrap();
    fs::write(path.join("notes.md"), "").unwrap();
    let dataset = load_default(&path);
    let line = dataset.notes.not_used_line().unwrap();
    assert_eq!(line, "not used: n9_labels.npy: girih.toml does not list it; notes.md: girih.toml does not list it");
    let error = library().save(&path).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(path.join("notes.md").is_file(), "a folder with files of others is not replaced");
}
