//! Typed data as named arrays: round trips, exports of other libraries, and refusals.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{load_default, refusal};
use crate::random_types::random;
use girih_datasets::{
    Dataset, Features, Labels, LoadOptions, OutputFormat, ReverseEdges, TypeFeatures, UNLABELLED, load,
};
use girih_graph_format::file::{Tensor, write_npy, write_tensors};
use proptest::prelude::*;
use tempfile::TempDir;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn arrays_give_back_what_was_written(seed in any::<u64>()) {
        let (home, data) = (tempfile::tempdir().unwrap(), random(seed));
        for name in ["data.safetensors", "data.npz"] {
            let path = home.path().join(name);
            data.save_as(OutputFormat::of(&path).unwrap(), &path).unwrap();
            let options = LoadOptions { labels_from: Some(0), ..LoadOptions::default() };
            let read = load(path.to_str().unwrap(), &options).unwrap();
            // Labels without a split get a drawn one.
            let is_drawn = data.splits.is_empty() && data.labels.is_some();
            let read = if is_drawn { Dataset { splits: Vec::new(), ..read } } else { read };
            prop_assert!(read.notes.not_used.is_empty(), "{:?}", read.notes);
            prop_assert_eq!(read.fingerprints(), data.fingerprints());
            prop_assert_eq!(read, data.clone());
        }
    }
}

type Array<'a> = (&'a str, &'a [usize], &'a [i64]);

/// Three papers with features, classes and masks, two authors without features, and who wrote what.
const EXPORT: [Array<'static>; 8] = [
    ("paper.num_nodes", &[1], &[3]),
    ("paper.x", &[3, 2], &[1, 0, 0, 2, 3, 4]),
    ("paper.y", &[3], &[0, 1, -1]),
    ("paper.train_mask", &[3], &[1, 0, 0]),
    ("paper.val_mask", &[3], &[0, 1, 0]),
    ("paper.test_mask", &[3], &[0, 0, 0]),
    ("author.num_nodes", &[1], &[2]),
    ("author__writes__paper.edge_index", &[2, 3], &[0, 1, 1, 0, 0, 2]),
];

/// Writes arrays, with some replaced or added, as a `.safetensors` file.
fn written(changes: &[Array<'_>]) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("export.safetensors");
    let tensors = changed(changes).into_iter().map(|(name, shape, values)| (name, Tensor::new::<i64>(&shape, values)));
    write_tensors(&path, tensors.collect()).unwrap();
    (home, path)
}

fn changed(changes: &[Array<'_>]) -> Vec<(String, Vec<usize>, Vec<i64>)> {
    let is_changed = |name: &str| changes.iter().any(|(other, ..)| *other == name);
    let kept = EXPORT.iter().filter(|(name, ..)| !is_changed(name));
    let all = kept.chain(changes).filter(|(_, shape, _)| !shape.is_empty());
    all.map(|(name, shape, values)| ((*name).to_owned(), shape.to_vec(), values.to_vec())).collect()
}

fn refused(changes: &[Array<'_>], options: &LoadOptions) -> String {
    let (_home, path) = written(changes);
    refusal(&path, options)
}

fn loaded(changes: &[Array<'_>], options: &LoadOptions) -> Dataset {
    let (_home, path) = written(changes);
    load(path.to_str().unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn edge_names(dataset: &Dataset) -> Vec<(String, Option<usize>)> {
    let schema = dataset.typed.as_ref().unwrap().graph.schema().clone();
    schema.edge_types().iter().enumerate().map(|(i, of)| (schema.edge_name(i), of.reverse_of)).collect()
}

fn kinds(dataset: &Dataset) -> Vec<&str> {
    dataset.notes.made_up.iter().map(|made| made.kind).collect()
}

#[test]
fn an_export_has_types_features_labels_and_reverses() {
    let data = loaded(&[], &LoadOptions::default());
    let typed = data.typed.as_ref().unwrap();
    let sizes: Vec<_> = typed.graph.schema().node_types().iter().map(|of| (of.name.as_str(), of.n_nodes)).collect();
    assert_eq!(sizes, [("author", 2), ("paper", 3)]);
    let writes = ("author.writes.paper".to_owned(), None);
    assert_eq!(edge_names(&data), [writes, ("paper.rev_writes.author".to_owned(), Some(0))]);
    assert_eq!((typed.target, kinds(&data)), (1, vec!["reverse_relations"]));
    assert_eq!(typed.graph.relations()[0].row(0), [0, 1]);
    assert_eq!(typed.graph.relations()[0].row(2), [1]);
    assert_eq!(typed.features[0], TypeFeatures::None);
    let TypeFeatures::Given(Features::Dense(rows)) = &typed.features[1] else { panic!("dense rows") };
    assert_eq!(rows.data(), [1.0, 0.0, 0.0, 2.0, 3.0, 4.0]);
    let classes = vec![UNLABELLED, UNLABELLED, 0, 1, UNLABELLED];
    assert_eq!(data.labels, Some(Labels::Single { n_classes: 2, classes }));
    assert_eq!((&data.splits[0].train[..], &data.splits[0].val[..]), (&[2][..], &[3][..]));
    assert!(data.notes.not_used.is_empty() && data.notes.warnings.is_empty());
}

#[test]
fn folders_and_names_of_dgl_are_read_as_well() {
    let home = tempfile::tempdir().unwrap();
    let renamed = [("paper.x", "paper.feat"), ("paper.y", "paper.label")];
    for (name, shape, values) in changed(&[]) {
        let name = renamed.iter().find(|(from, _)| *from == name).map_or(name.as_str(), |(_, to)| to);
        write_npy(&home.path().join(format!("{name}.npy")), &shape, &values).unwrap();
    }
    fs::write(home.path().join("README.md"), "").unwrap();
    let data = load_default(home.path());
    assert_eq!(data.fingerprint(), loaded(&[], &LoadOptions::default()).fingerprint());
    assert_eq!(data.notes.not_used_line().unwrap(), "not used: README.md: description");
}

#[test]
fn a_reverse_that_is_there_is_paired_and_not_added_again() {
    let reverse: Array<'_> = ("paper__written_by__author.edge_index", &[3, 2], &[0, 0, 0, 1, 2, 1]);
    let data = loaded(&[reverse], &LoadOptions::default());
    let names = [("author.writes.paper".to_owned(), None), ("paper.written_by.author".to_owned(), Some(0))];
    assert_eq!((edge_names(&data), kinds(&data)), (names.to_vec(), vec!["paired_relations"]));
    let add = LoadOptions { reverse: Some(ReverseEdges::Add), ..LoadOptions::default() };
    let message = refused(&[reverse], &add);
    let told = "paper.written_by.author has the edges of author.writes.paper in the other direction, and --reverse add";
    assert!(message.contains(told), "{message}");
    assert_eq!(edge_names(&loaded(&[], &add)).len(), 2);
    let no = LoadOptions { reverse: Some(ReverseEdges::No), ..LoadOptions::default() };
    assert_eq!(edge_names(&loaded(&[reverse], &no)).iter().filter(|(_, of)| of.is_some()).count(), 0);
    let cites: Array<'_> = ("paper__cites__paper.edge_index", &[2, 2], &[0, 1, 1, 0]);
    let symmetric = loaded(&[cites], &LoadOptions::default());
    assert_eq!(edge_names(&symmetric).len(), 3, "a relation that goes both ways needs no reverse");
    let text = &symmetric.notes.made_up[0].text;
    assert_eq!(text, "paper__cites__paper.edge_index of 2 × 2 is read as two rows, sources and destinations");
}

#[test]
fn merged_citations_go_both_ways_and_other_relations_get_reverses() {
    let merge = LoadOptions { reverse: Some(ReverseEdges::Merge), ..LoadOptions::default() };
    let cites: Array<'_> = ("paper__cites__paper.edge_index", &[2, 3], &[1, 0, 2, 0, 1, 0]);
    let data = loaded(&[cites], &merge);
    let names: Vec<String> = edge_names(&data).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["author.writes.paper", "paper.rev_writes.author", "paper.cites.paper"]);
    let relation = &data.typed.as_ref().unwrap().graph.relations()[2];
    let rows: Vec<&[u32]> = (0..3).map(|v| relation.row(v)).collect();
    assert_eq!(rows, [&[1, 2][..], &[0], &[0]], "pairs that are there already are stored once");
    assert_eq!(
        data.notes.made_up[0].text,
        "1 relation inside a type has each edge in both directions, with 1 edge more (--reverse merge)"
    );
    let reverse: Array<'_> = ("paper__written_by__author.edge_index", &[3, 2], &[0, 0, 0, 1, 2, 1]);
    assert!(refused(&[reverse], &merge).contains("--reverse merge would add them again"));
}

#[test]
fn what_is_not_used_is_named() {
    let more: [Array<'_>; 6] = [
        ("author__writes__paper.edge_attr", &[3, 2], &[0; 6]),
        ("author__writes__paper.edge_weight", &[3], &[1; 3]),
        ("author__writes__paper.time", &[3], &[1; 3]),
        ("author.y", &[2], &[0, 1]),
        ("paper.year", &[3], &[1; 3]),
        ("lonely", &[1], &[1]),
    ];
    let options = LoadOptions { target: Some("paper".to_owned()), ..LoadOptions::default() };
    let line = loaded(&more, &options).notes.not_used_line().unwrap();
    for expected in [
        "author.y: of another type than paper",
        "author__writes__paper.edge_attr: edge features",
        "author__writes__paper.edge_weight: weights, which edges with types do not have",
        "author__writes__paper.time: times of edges",
        "paper.year: times of nodes",
        "lonely",
    ] {
        assert!(line.contains(expected), "{expected} in {line}");
    }
    let strict = refused(&more, &LoadOptions { strict: true, ..options });
    assert!(strict.contains("--strict refuses such data"), "{strict}");
    let message = refused(&more, &LoadOptions::default());
    assert!(message.contains("author, paper have labels; choose the one to be classified by --target"), "{message}");
    let unknown = refused(&[], &LoadOptions { target: Some("venue".to_owned()), ..LoadOptions::default() });
    assert!(unknown.contains("--target venue: there is no such node type; known are author, paper"), "{unknown}");
}

#[test]
fn contradictions_name_the_array_and_the_types() {
    let default = LoadOptions::default();
    let edges = |values: &[i64]| refused(&[("author__writes__paper.edge_index", &[2, 2], values)], &default);
    let beyond = edges(&[0, 2, 0, 1]);
    assert!(
        beyond.contains(
            "author__writes__paper.edge_index: edge 1: writes goes from author (2 nodes) to paper (3 nodes), and the source \
             is node 2, which is beyond author"
        ),
        "{beyond}"
    );
    assert!(edges(&[0, 1, 0, 3]).contains("the destination is node 3, which is beyond paper"));
    assert!(edges(&[0, -1, 0, 1]).contains("is -1, which is not a node id"));
    let cases: [(&[Array<'_>], &str); 10] = [
        (
            &[("paper.train_mask", &[], &[]), ("paper.train_idx", &[1], &[9])],
            "type paper: split 0: train: node 9 does not exist; there are 3 nodes",
        ),
        (&[("paper.number", &[1], &[0]), ("author.number", &[1], &[0])], "paper.number is 0, and 1 is expected"),
        (&[("paper.x", &[2, 1], &[1, 2])], "type paper: there are 2 rows of features for 3 nodes"),
        (&[("paper.y", &[2], &[0, 1])], "type paper: there are 2 labels for 3 nodes"),
        (
            &[("paper.train_mask", &[2], &[0, 1])],
            "a mask of shape [2]; expected one value a node, and there are 3 nodes",
        ),
        (&[("paper.test_mask", &[3], &[1, 0, 0])], "type paper: split 0: node 0 is in both train and test"),
        (&[("author.num_nodes", &[1], &[2_000_000_000])], "type author: 2000000000 nodes are declared"),
        (&[("paper.feat", &[3, 1], &[0; 3])], "arrays paper.x and paper.feat say the same thing"),
        (
            &[("author__paper.edge_index", &[2, 1], &[0, 0])],
            "author__paper.edge_index: expected SOURCE__RELATION__DEST",
        ),
        (&[("a__b__c__d.edge_index", &[2, 1], &[0, 0])], "a__b__c__d.edge_index: expected SOURCE__RELATION__DEST"),
    ];
    for (changes, expected) in cases {
        let message = refused(changes, &default);
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let again = LoadOptions { duplicates: Some("refuse".parse().unwrap()), ..LoadOptions::default() };
    let repeated = refused(&[("author__writes__paper.edge_index", &[2, 3], &[0, 0, 1, 1, 1, 2])], &again);
    assert!(repeated.contains("edges 0 and 1"), "{repeated}");
    let sum = LoadOptions { duplicates: Some("sum".parse().unwrap()), ..LoadOptions::default() };
    assert!(refused(&[], &sum).contains("edges with types have none; take merge or refuse"));
    let names = LoadOptions { type_names: Some("p=paper".parse().unwrap()), ..LoadOptions::default() };
    assert!(refused(&[], &names).contains("--type-names is for folders of id pairs, which this is not"));
}

#[test]
fn floats_that_are_no_classes_or_not_finite_are_refused() {
    let (_home, path) = written(&[]);
    let folder = path.with_file_name("folder");
    fs::create_dir(&folder).unwrap();
    for (name, shape, values) in changed(&[]) {
        write_npy(&folder.join(format!("{name}.npy")), &shape, &values).unwrap();
    }
    let with = |name: &str, shape: &[usize], values: &[f32]| {
        let file = folder.join(format!("{name}.npy"));
        let before = fs::read(&file).unwrap();
        write_npy(&file, shape, values).unwrap();
        let message = refusal(&folder, &LoadOptions::default());
        fs::write(&file, before).unwrap();
        message
    };
    assert!(with("paper.y", &[3], &[0.0, 0.5, 1.0]).contains("node 1 has class 0.5; classes are whole numbers"));
    let nan = with("paper.x", &[3, 1], &[0.0, f32::NAN, 1.0]);
    assert!(nan.contains("type paper: ") && nan.contains("NaN"), "{nan}");
    load_default(&folder);
}

#[test]
fn types_without_a_number_of_nodes_are_counted() {
    let none: Array<'_> = ("author.num_nodes", &[], &[]);
    let data = loaded(&[none], &LoadOptions::default());
    assert_eq!(data.typed.as_ref().unwrap().graph.schema().node_types()[0].n_nodes, 2);
    assert_eq!(kinds(&data), ["counted_nodes", "reverse_relations"]);
    let plain: Array<'_> = ("venue.num_nodes", &[1], &[0]);
    let empty: Array<'_> = ("paper__in__venue.edge_index", &[2, 0], &[]);
    let with_empty = loaded(&[plain, empty], &LoadOptions::default());
    assert_eq!(edge_names(&with_empty).len(), 4, "empty types and relations are valid");
}

#[test]
fn names_that_do_not_tell_types_are_not_written() {
    let types: [Array<'_>; 3] =
        [("a.num_nodes", &[1], &[2]), ("a__b.num_nodes", &[1], &[2]), ("a__b__c__a.edge_index", &[2, 1], &[0, 1])];
    let message = refused(&types, &LoadOptions::default());
    assert!(message.contains("may go from a to a or from a__b to a; rename a type"), "{message}");
    let (_home, path) = written(&[]);
    let data = load_default(&path);
    let mut typed = (**data.typed.as_ref().unwrap()).clone();
    let schema = typed.graph.schema().clone();
    let mut nodes = schema.node_types().to_vec();
    (nodes[0].name, nodes[1].name) = ("writes".to_owned(), "writes__writes".to_owned());
    let schema = girih_graph_format::Schema::new(nodes, schema.edge_types().to_vec()).unwrap();
    typed.graph = girih_graph_format::TypedGraph::new(schema, typed.graph.relations().to_vec()).unwrap();
    let renamed = Dataset { typed: Some(typed.into()), ..data };
    let file: &Path = &path.with_file_name("renamed.npz");
    let refused = renamed.save_as(OutputFormat::SparseNpz, file).unwrap_err().to_string();
    assert!(refused.contains("would not tell the types") && !file.exists(), "{refused}");
}
