//! Link prediction from data to embeddings.

use std::fs;

use girih_graph_format::file::Array;

use crate::girih::{SMALL, Workspace, assert_keys, girih, names_in, says};

const QUICK: [&str; 7] = ["--task", "links", "--dropout", "0", "--negatives", "2", "--json"];

#[test]
fn a_link_predictor_trains_scores_and_embeds() {
    let work = Workspace::new();
    let out = work.arg("out");
    let finished = girih(&[&["train", "--data", SMALL, "--epochs", "30", "--out", &out], &QUICK[..]].concat()).ok();
    let events = finished.events();
    assert_keys(&events[0], &["val_roc_auc", "test_roc_auc", "val_loss", "train_loss"]);
    let result = finished.result();
    assert_keys(&result, &["test_roc_auc_last", "best_epoch", "train_loss", "epoch_ms_median"]);
    assert_eq!(result["task"], "links");
    assert!(result["test_roc_auc"].as_f64().unwrap() > 0.6, "{result}");
    let report = fs::read_to_string(work.path("out/report.html")).unwrap();
    assert!(report.matches("<svg").count() == 2 && report.contains("ROC-AUC"));

    let evaluated = girih(&["evaluate", "--data", SMALL, "--checkpoint", &out, "--json"]).ok().result();
    for key in ["test_roc_auc", "val_roc_auc", "test_average_precision", "test_hits_at_20", "test_mrr"] {
        assert_eq!(evaluated[key], result[key], "{key}");
    }
    let predict = ["predict", "--data", SMALL, "--checkpoint", &out, "--out", &work.arg("rows.npy"), "--json"];
    assert_eq!(girih(&predict).ok().result()["kind"], "embeddings");
    assert_eq!(Array::read(&work.path("rows.npy")).unwrap().shape(), [600, 16]);
    let message = girih(&[&predict[..], &["--logits"]].concat()).refused(1);
    assert!(says(&message, "no logits"), "{message}");

    let config = work.arg("out/config.toml");
    let longer = ["train", "--config", &config, "--epochs", "31", "--out", &out, "--resume", "--json"];
    assert_eq!(girih(&longer).ok().events().len(), 2, "one more epoch, and the result");
}

#[test]
fn links_are_learnt_on_batches_and_planned() {
    let batches = ["--model", "sage", "--batch", "neighbor", "--fanout", "5,5", "--batch-size", "500", "--epochs", "3"];
    let train = [&["train", "--data", SMALL], &batches[..], &QUICK[..]].concat();
    assert!(girih(&train).ok().result()["test_roc_auc"].as_f64().is_some());
    let plan = girih(&[&train[..], &["--plan"]].concat()).ok().result();
    assert!(plan["predicted_epoch_ms"].as_f64().unwrap() > 0.0, "{plan}");
}

#[test]
fn conflicting_settings_are_refused() {
    let work = Workspace::new();
    let out = work.arg("out");
    let refused =
        |flags: &[&str], code| girih(&[&["train", "--data", SMALL, "--out", &out], flags].concat()).refused(code);
    let message = refused(&["--task", "links", "--ranks", "2"], 1);
    assert!(says(&message, "--ranks"), "{message}");
    let message = refused(&["--task", "links", "--batch", "saint"], 1);
    assert!(says(&message, "neighbor batches"), "{message}");
    let message = refused(&["--negatives", "3"], 1);
    assert!(says(&message, "task links"), "{message}");
    let message = refused(&["--task", "links", "--reorder", "degree"], 2);
    assert!(says(&message, "girih reorder --out"), "{message}");
    assert!(names_in(work.folder()).is_empty(), "refusals leave nothing behind");
}
