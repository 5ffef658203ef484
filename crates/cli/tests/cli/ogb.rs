//! Scores as the evaluators of the Open Graph Benchmark print them.

use std::fs;
use std::path::Path;

use crate::girih::{SMALL, Workspace, girih, says};

fn golden(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ogb").join(name).to_str().unwrap().to_owned()
}

const QUICK: [&str; 8] = ["--features-from", "degree", "--task", "links", "--model", "sage", "--epochs", "5"];

#[test]
fn links_are_scored_on_the_split_of_the_benchmark() {
    let work = Workspace::new();
    let (out, ddi) = (work.arg("ddi"), golden("ogbl_ddi"));
    girih(&[&["train", "--data", &ddi, "--out", &out], &QUICK[..]].concat()).ok();
    let evaluate = ["evaluate", "--data", &ddi, "--checkpoint", &out];
    let usual = girih(&[&evaluate[..], &["--json"]].concat()).ok().result();
    let result = girih(&[&evaluate[..], &["--ogb", "--json"]].concat()).ok().result();
    assert_eq!(result["ogb"], "ogbl-ddi");
    assert_eq!(result["test"]["hits@20"], usual["test_hits_at_20"], "the same negative pairs");
    assert!(result["valid"]["hits@20"].is_f64(), "{result}");
    let shown = girih(&[&evaluate[..], &["--ogb"]].concat()).ok().out;
    let expected = format!("{{'hits@20': {:?}}}", result["test"]["hits@20"].as_f64().unwrap());
    assert!(shown.lines().any(|line| line.starts_with("test ") && line.ends_with(&expected)), "{shown}");

    let (out, citation) = (work.arg("citation"), golden("ogbl_citation2"));
    girih(&[&["train", "--data", &citation, "--out", &out], &QUICK[..]].concat()).ok();
    let result = girih(&["evaluate", "--data", &citation, "--checkpoint", &out, "--ogb", "--json"]).ok().result();
    let test = &result["test"];
    let score = |name: &str| test[name].as_f64().unwrap_or_else(|| panic!("{name} of {test}"));
    let in_order = [0.0, score("hits@1_list"), score("hits@3_list"), score("hits@10_list"), 1.0];
    assert!(in_order.is_sorted() && score("mrr_list") >= 0.1, "of ten places: {test}");
}

/// Folder of `ogbn-arxiv`'s form: two classes, which the feature tells.
fn nodes(work: &Workspace) -> String {
    let root = work.path("ogbn_arxiv");
    let lines = |of: &dyn Fn(usize) -> String| (0..40).map(|v| of(v) + "\n").collect::<String>();
    let ids = |from: usize, to: usize| (from..to).map(|v| format!("{v}\n")).collect::<String>();
    fs::create_dir_all(root.join("raw")).unwrap();
    fs::create_dir_all(root.join("split/time")).unwrap();
    for (name, text) in [
        ("raw/edge", lines(&|v| format!("{v},{}", (v + 2) % 40))),
        ("raw/num-node-list", "40\n".to_owned()),
        ("raw/num-edge-list", "40\n".to_owned()),
        ("raw/node-feat", lines(&|v| format!("{},{}", v % 2, 1 - v % 2))),
        ("raw/node-label", lines(&|v| (v % 2).to_string())),
        ("split/time/train", ids(0, 20)),
        ("split/time/valid", ids(20, 30)),
        ("split/time/test", ids(30, 40)),
    ] {
        fs::write(root.join(format!("{name}.csv")), text).unwrap();
    }
    root.to_str().unwrap().to_owned()
}

#[test]
fn classes_of_nodes_are_scored_on_the_split_of_the_benchmark() {
    let work = Workspace::new();
    let (out, arxiv) = (work.arg("out"), nodes(&work));
    girih(&["train", "--data", &arxiv, "--epochs", "40", "--out", &out]).ok();
    let evaluate = ["evaluate", "--data", &arxiv, "--checkpoint", &out, "--json"];
    let usual = girih(&evaluate).ok().result();
    let result = girih(&[&evaluate[..], &["--ogb"]].concat()).ok().result();
    assert_eq!(result["ogb"], "ogbn-arxiv");
    for (part, key) in [("train", "train_accuracy"), ("valid", "val_accuracy"), ("test", "test_accuracy")] {
        assert_eq!(result[part]["acc"], usual[key], "{part}");
    }
    let message = girih(&[&evaluate[..], &["--ogb", "--split", "random"]].concat()).refused(2);
    assert!(says(&message, "not used as shipped"), "{message}");
    // The model classifies nodes, and the data has links to score.
    let message =
        girih(&["evaluate", "--data", &golden("ogbl_ddi"), "--checkpoint", &out, "--ogb", "--json"]).refused(1);
    assert!(says(&message, "train with --task links"), "{message}");
}

#[test]
fn other_data_is_refused_with_the_reason() {
    let work = Workspace::new();
    let out = work.arg("out");
    girih(&["train", "--data", SMALL, "--epochs", "1", "--out", &out]).ok();
    let evaluate = ["evaluate", "--data", SMALL, "--checkpoint", &out, "--ogb"];
    let message = girih(&evaluate).refused(2);
    assert!(says(&message, "no data set of the Open Graph Benchmark") && says(&message, "ogbl-ddi"), "{message}");
    let message = girih(&[&evaluate[..], &["--similarity"]].concat()).refused(2);
    assert!(says(&message, "--similarity"), "{message}");
}
