//! Tables of labels that name nodes.

use std::path::{Path, PathBuf};

use crate::common::{load_default, real, refusal, write_text};
use crate::ntriples::forward;
use girih_datasets::{Dataset, LabelColumns, Labels, LoadOptions, UNLABELLED, load};
use girih_graph_format::file::write_npy;
use tempfile::TempDir;

/// Five persons in a row.
const GRAPH: &str = "<p:0> <knows:> <p:1> .\n<p:1> <knows:> <p:2> .\n<p:2> <knows:> <p:3> .\n<p:3> <knows:> <p:4> .\n";

fn graph() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("graph.nt");
    write_text(&path, GRAPH);
    (home, path)
}

fn table(home: &TempDir, name: &str, text: &str) -> Option<PathBuf> {
    let path = home.path().join(name);
    write_text(&path, text);
    Some(path)
}

fn loaded(path: &Path, options: &LoadOptions) -> Dataset {
    load(path.to_str().unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn classes(dataset: &Dataset) -> (Vec<u32>, Vec<&str>) {
    let Some(Labels::Single { classes, .. }) = &dataset.labels else { panic!("one label a node") };
    (classes.clone(), dataset.names.as_ref().unwrap().classes.iter().map(String::as_str).collect())
}

#[test]
fn tables_of_parts_make_labels_and_the_split() {
    let (home, graph) = graph();
    let train = table(&home, "train.tsv", "person\tid\tlabel_group\np:3\t1\tb\np:0\t2\ta\n");
    let test = table(&home, "test.csv", "label,node\r\n\"b\", p:4 \r\n");
    let labels = table(&home, "all.tsv", "id\tperson\tlabel_group\n7\tp:0\ta\n8\tp:2\tc\n");
    let parts = LoadOptions { train: train.clone(), test, ..forward() };
    let dataset = loaded(&graph, &parts);
    assert_eq!(classes(&dataset), (vec![0, UNLABELLED, UNLABELLED, 1, 1], vec!["a", "b"]));
    let [split] = &dataset.splits[..] else { panic!("one split") };
    assert_eq!(split.parts().map(|(_, nodes)| nodes.to_vec()), [vec![0, 3], vec![], vec![4]]);
    let more = loaded(&graph, &LoadOptions { labels: labels.clone(), ..parts.clone() });
    assert_eq!(classes(&more), (vec![0, UNLABELLED, 2, 1, 1], vec!["a", "b", "c"]));
    assert_eq!(more.splits, dataset.splits);
    let alone = loaded(&graph, &LoadOptions { train, ..forward() });
    assert_eq!((alone.outline().splits, alone.n_classes()), (vec![[2, 0, 0]], 2));
    let drawn = loaded(&graph, &LoadOptions { labels, ..forward() });
    assert_eq!((drawn.outline().splits.len(), drawn.notes.made_up[0].kind), (1, "drawn_split"));
}

#[test]
fn a_share_of_the_training_nodes_validates() {
    let (home, graph) = graph();
    let train = table(&home, "train.csv", "node,label\np:0,a\np:1,a\np:2,b\np:3,b\n");
    let test = table(&home, "test.csv", "node,label\np:4,b\n");
    let with = |share| LoadOptions { train: train.clone(), test: test.clone(), val_share: Some(share), ..forward() };
    let dataset = loaded(&graph, &LoadOptions { n_splits: 8, ..with(0.25) });
    assert_eq!(dataset.outline().splits, [[3, 1, 1]; 8]);
    assert!(dataset.splits.iter().any(|split| split.val != dataset.splits[0].val), "runs draw other nodes");
    assert_eq!(loaded(&graph, &with(0.25)).splits[0], dataset.splits[0]);
    assert_eq!(dataset.notes.made_up[0].kind, "drawn_validation");
    for share in [0.0, 1.0, -1.0, f64::NAN, 0.01] {
        let message = load(graph.to_str().unwrap(), &with(share)).unwrap_err().to_string();
        assert!(message.contains("leaves a part empty"), "{message}");
    }
    let alone = LoadOptions { val_share: Some(0.2), labels: test, ..forward() };
    let message = load(graph.to_str().unwrap(), &alone).unwrap_err().to_string();
    assert!(message.contains("name a table of them by --train"), "{message}");
}

#[test]
fn classes_count_in_the_order_of_their_values() {
    let (home, graph) = graph();
    let labels = table(&home, "labels.csv", "node,label\np:0,10\np:1,9.0\np:2,-1\np:3,9\n");
    let dataset = loaded(&graph, &LoadOptions { labels, ..forward() });
    assert_eq!(classes(&dataset), (vec![2, 1, 0, 1, UNLABELLED], vec!["-1", "9", "10"]));
    let labels = table(&home, "mixed.csv", "node,label\np:0,10\np:1,9\np:2,x\n");
    assert_eq!(classes(&loaded(&graph, &LoadOptions { labels, ..forward() })).1, ["10", "9", "x"]);
    let array = home.path().join("y.npy");
    write_npy(&array, &[5], &[1i64, 0, -1, 1, 0]).unwrap();
    let dataset = loaded(&graph, &LoadOptions { labels: Some(array), ..forward() });
    assert_eq!(classes(&dataset), (vec![1, 0, UNLABELLED, 1, 0], vec![]));
}

#[test]
fn columns_are_found_or_named() {
    let (home, graph) = graph();
    let text = "rank\tperson\tfriend\tlabel\tsex\n1\tp:0\tp:1\ta\tx\n2\tp:1\tp:2\tb\ty\n";
    let labels = table(&home, "labels.tsv", text);
    let found = LoadOptions { labels, ..forward() };
    assert_eq!(classes(&loaded(&graph, &found)).0[..2], [0, 1]);
    let named = |columns: &str| {
        let columns: LabelColumns = columns.parse().unwrap();
        LoadOptions { label_columns: Some(columns), ..found.clone() }
    };
    let other = loaded(&graph, &named("friend,sex"));
    assert_eq!(classes(&other), (vec![UNLABELLED, 0, 1, UNLABELLED, UNLABELLED], vec!["x", "y"]));
    let message = load(graph.to_str().unwrap(), &named("who,sex")).unwrap_err().to_string();
    let headers = "the columns are `rank`, `person`, `friend`, `label`, `sex`, of which --label-columns NODE,LABEL";
    assert!(message.contains("labels.tsv: there is no column `who`") && message.contains(headers), "{message}");
    for wrong in ["person", "person,", "a,b,c", "a,a"] {
        assert!(wrong.parse::<LabelColumns>().unwrap_err().to_string().contains("expected NODE,LABEL"));
    }
}

#[test]
fn tables_that_contradict_the_graph_or_each_other_are_refused() {
    let (home, graph) = graph();
    let refused = |train: &str, test: Option<&str>, parts: &[&str]| {
        let train = table(&home, "train.csv", train);
        let test = test.and_then(|text| table(&home, "test.csv", text));
        let options = LoadOptions { train, test, ..forward() };
        let message = load(graph.to_str().unwrap(), &options).unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in: {message}");
        }
    };
    let good = "node,label\np:0,a\n";
    refused("node,label\np:0,a\np:9,b\n", None, &["train.csv: line 3: `p:9` is no node", "column `node`"]);
    refused("node,label\n<p:0>,a\n", None, &["no column has names of nodes; the columns are `node`, `label`"]);
    refused(
        good,
        Some("node,label\np:0,b\n"),
        &["test.csv: line 2: `p:0` has the label `b`, but `a` in", "train.csv, line 2"],
    );
    refused("node,label\np:0,a\np:0,b\n", None, &["line 3: `p:0` has the label `b`, but `a`"]);
    refused("node,label\np:0,a\np:0,a\n", None, &["line 3: `p:0` has a row already, line 2"]);
    refused(good, Some(good), &["test.csv: line 2: `p:0` is in test, but also in train by", "keep it in one part"]);
    refused("node,class\np:0,a\n", None, &["train.csv: 0 columns begin with `label`"]);
    refused("node,label,label2\np:0,a,b\n", None, &["2 columns begin with `label`"]);
    refused("node,label\np:0,\n", None, &["line 2: `p:0` has no label; leave the row out"]);
    refused("node,label\n", None, &["train.csv: a header without a row"]);
    refused("", None, &["train.csv: the file is empty"]);
    refused("node,label\np:0,a,b\n", None, &["line 2: 3 fields under 2 names of columns"]);
    let labels = table(&home, "labels.csv", good);
    let message = |options: LoadOptions| load(graph.to_str().unwrap(), &options).unwrap_err().to_string();
    let from = LoadOptions { labels: labels.clone(), labels_from: Some(1), ..forward() };
    assert!(message(from).contains("a table names its classes"));
    let columns = LoadOptions { label_columns: Some("a,b".parse().unwrap()), ..forward() };
    assert!(message(columns).contains("none is given"));
}

#[test]
fn a_folder_of_triples_and_tables_needs_no_options() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("people");
    write_text(&folder.join("graph.nt.gz"), GRAPH);
    write_text(&folder.join("trainingSet.tsv"), "person\tlabel\np:0\ta\np:1\tb\n");
    write_text(&folder.join("testSet.tsv"), "person\tlabel\np:2\tb\n");
    write_text(&folder.join("README.md"), "People\n");
    let dataset = load_default(&folder);
    assert_eq!((dataset.outline().splits, dataset.n_classes()), (vec![[2, 0, 1]], 2));
    assert_eq!(dataset.notes.not_used_line().unwrap(), "not used: README.md: description");
    let other = home.path().join("other.tsv");
    write_text(&other, "person\tlabel\np:3\tx\n");
    let replaced = loaded(&folder, &LoadOptions { train: Some(other), ..LoadOptions::default() });
    assert_eq!((classes(&replaced).1, replaced.outline().splits), (vec!["x"], vec![[1, 0, 0]]));
    assert!(replaced.notes.not_used_line().unwrap().contains("trainingSet.tsv"));
    write_text(&folder.join("completeDataset.tsv"), "id\tperson\tlabel\n1\tp:2\ta\n");
    assert!(refusal(&folder, &LoadOptions::default()).contains("completeDataset.tsv: line 2: `p:2` has the label `a`"));
}

#[test]
fn real_folders_have_their_published_splits() {
    for (name, n_labelled, split, n_classes) in
        [("hetero/aifb", 176, [140, 0, 36], 4), ("hetero/mutag", 340, [272, 0, 68], 2)]
    {
        let Some(folder) = real(name) else { return };
        let dataset = load_default(&folder);
        let n_known = classes(&dataset).0.iter().filter(|&&class| class != UNLABELLED).count();
        assert_eq!((n_known, dataset.outline().splits, dataset.n_classes()), (n_labelled, vec![split], n_classes));
        let names = dataset.names.as_ref().unwrap();
        if n_classes == 2 {
            assert_eq!(names.classes, ["0", "1"]);
        } else {
            assert!(names.classes[0].ends_with("viewForschungsgruppeOWL/id1instance"), "{:?}", names.classes);
        }
        dataset.validate().unwrap();
    }
}
