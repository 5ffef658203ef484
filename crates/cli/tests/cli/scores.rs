//! Names of scores on screen, in JSON and in files, and reasons why some have no value.

use std::fs;

use girih_graph_format::file::write_npy;
use serde_json::{Value, json};

use crate::girih::{Workspace, girih, says};

/// Writes a folder of arrays: a ring of twelve nodes of two classes, with the given validation and test nodes.
fn ring(work: &Workspace, val: &[usize], test: &[usize]) -> String {
    let folder = work.path("ring");
    fs::create_dir_all(&folder).unwrap();
    let n = 12;
    let ends: Vec<i64> = (0..n).chain((0..n).map(|v| (v + 1) % n)).collect();
    write_npy(&folder.join("edge_index.npy"), &[2, 12], &ends).unwrap();
    let features: Vec<f32> = (0..24).map(|i| ((i * 7) % 5) as f32).collect();
    write_npy(&folder.join("x.npy"), &[12, 2], &features).unwrap();
    write_npy(&folder.join("y.npy"), &[12], &(0..n).map(|v| v % 2).collect::<Vec<i64>>()).unwrap();
    let mask = |nodes: &[usize]| -> Vec<u8> { (0..12).map(|v| u8::from(nodes.contains(&v))).collect() };
    for (name, nodes) in [("train_mask.npy", &[0, 1, 2, 3][..]), ("val_mask.npy", val), ("test_mask.npy", test)] {
        write_npy(&folder.join(name), &[12], &mask(nodes)).unwrap();
    }
    folder.to_str().unwrap().to_owned()
}

fn table(out: &str, label: &str) -> String {
    let line = out.lines().find(|line| line.starts_with(label)).unwrap_or_else(|| panic!("no {label} in {out}"));
    line[label.len()..].trim().to_owned()
}

#[test]
fn an_area_of_one_class_is_shown_as_undefined_everywhere() {
    let work = Workspace::new();
    let (data, out) = (ring(&work, &[4, 6], &[8, 9, 10, 11]), work.arg("out"));
    let args = ["train", "--data", &data, "--metric", "roc-auc", "--epochs", "3", "--out", &out];
    let shown = girih(&args).ok().out;
    assert_eq!(table(&shown, "Validation ROC-AUC"), "undefined: one class only");
    assert!(table(&shown, "Test ROC-AUC at the best epoch").ends_with('%'), "{shown}");
    assert!(table(&shown, "Best epoch").contains("by validation loss: ROC-AUC is undefined there"), "{shown}");
    assert!(!shown.contains("Validation accuracy") && !shown.contains("Score"), "{shown}");

    let result: Value = serde_json::from_str(&fs::read_to_string(work.path("out/result.json")).unwrap()).unwrap();
    assert_eq!((&result["val_roc_auc"], &result["metric"]), (&Value::Null, &json!("roc-auc")));
    assert_eq!(result["undefined"], json!({"val_roc_auc": "one class only"}));
    assert_eq!(result["chosen_by"], "val_loss");
    let metrics = fs::read_to_string(work.path("out/metrics.jsonl")).unwrap();
    for line in metrics.lines() {
        let point: Value = serde_json::from_str(line).unwrap();
        assert_eq!(point["undefined"], json!({"val_roc_auc": "one class only"}), "{line}");
    }
    let report = fs::read_to_string(work.path("out/report.html")).unwrap();
    assert!(report.contains("undefined: one class only") && report.contains("<h2>ROC-AUC</h2>"));

    let runs = girih(&["train", "--data", &data, "--metric", "roc-auc", "--epochs", "2", "--runs", "2"]).ok();
    assert!(runs.err.contains("ROC-AUC: val undefined: one class only"), "{}", runs.err);
}

#[test]
fn an_empty_part_has_no_score_and_the_last_epoch_is_said() {
    let work = Workspace::new();
    let (data, out) = (ring(&work, &[], &[8, 9, 10, 11]), work.arg("out"));
    let shown = girih(&["train", "--data", &data, "--epochs", "4", "--out", &out]).ok().out;
    assert_eq!(table(&shown, "Best epoch"), "4, the last one: there is nothing to validate on");
    assert_eq!(table(&shown, "Validation accuracy"), "undefined: no validation nodes with a label");
    let evaluated = girih(&["evaluate", "--checkpoint", &out, "--json"]).ok().result();
    assert_eq!(evaluated["undefined"]["val_accuracy"], "no validation nodes with a label");
    let refused = girih(&["train", "--data", &data, "--epochs", "4", "--patience", "2"]).refused(1);
    assert!(says(&refused, "leave --patience out"), "{refused}");

    let other = Workspace::new();
    let data = ring(&other, &[4, 5], &[]);
    let shown = girih(&["train", "--data", &data, "--epochs", "2"]).ok().out;
    assert_eq!(table(&shown, "Test accuracy at the best epoch"), "undefined: no test nodes with a label");
    let result = girih(&["train", "--data", &data, "--epochs", "2", "--json"]).ok().result();
    assert_eq!(result["test_accuracy"], Value::Null);
    assert_eq!(result["undefined"]["test_accuracy"], "no test nodes with a label");
}

#[test]
fn several_labels_a_node_are_scored_by_what_the_table_says() {
    let args = ["train", "--data", "synth:yelp@0.001", "--epochs", "2"];
    let shown = girih(&args).ok().out;
    assert!(table(&shown, "Validation micro-F1").ends_with('%'), "{shown}");
    assert!(!shown.contains("accuracy"), "{shown}");
    let result = girih(&[&args[..], &["--json"]].concat()).ok().result();
    assert_eq!((&result["accuracy_is"], &result["chosen_by"]), (&json!("f1_micro"), &json!("val_accuracy")));
}

#[test]
fn links_without_a_part_say_so() {
    let data = crate::girih::SMALL;
    let args = ["train", "--data", data, "--task", "links", "--epochs", "2", "--test-links", "0"];
    let shown = girih(&args).ok().out;
    assert_eq!(table(&shown, "Test hits@20"), "undefined: no test links");
    assert!(table(&shown, "Validation ROC-AUC").ends_with('%'), "{shown}");
}
