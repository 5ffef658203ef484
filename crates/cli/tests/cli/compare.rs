//! `girih compare`: sessions side by side, and refusals by name.

use std::fs;

use serde_json::Value;

use crate::girih::{SMALL, Workspace, assert_keys, girih, says};

/// Folder of a session with two runs, and results of its training.
fn trained(work: &Workspace, name: &str, more: &[&str]) -> (String, Value) {
    let out = work.arg(name);
    let args = ["train", "--epochs", "6", "--runs", "2", "--out", &out, "--json"];
    let data: &[&str] = if more.contains(&"--data") { &[] } else { &["--data", SMALL] };
    let result = girih(&[&args[..], data, more].concat()).ok().result();
    (out, result)
}

#[test]
fn sessions_stand_side_by_side() {
    let work = Workspace::new();
    let (gcn, of_gcn) = trained(&work, "gcn", &[]);
    let (sage, of_sage) = trained(&work, "sage", &["--model", "sage", "--hidden", "24"]);
    let page = work.arg("deep/compared.html");
    let result = girih(&["compare", &gcn, &sage, "--out", &page, "--json"]).ok().result();
    for (run, trained) in [(0, &of_gcn), (1, &of_sage)] {
        let found = &result["runs"][run];
        assert_keys(found, &["folder", "model", "data", "runs", "finished", "epochs", "best_epoch", "epoch_seconds"]);
        for score in ["test_accuracy", "val_accuracy"] {
            assert_eq!(found["scores"][score]["mean"], trained[score], "{score}");
        }
        assert_eq!(found["scores"]["test_accuracy"]["std"], trained["test_accuracy_std"]);
        assert_eq!(found["best_epoch"], trained["best_epoch"]);
        assert_eq!((&found["runs"], &found["epochs"], &found["finished"]), (&2.into(), &6.into(), &true.into()));
        let seconds = found["epoch_seconds"].as_f64().unwrap();
        assert!(seconds > 0.0 && seconds < 60.0, "{found}");
    }
    let settings = result["settings"].as_object().unwrap();
    assert_eq!(settings["model.kind"], serde_json::json!(["gcn", "sage"]));
    assert_eq!(settings["model.hidden"][1], "24");
    assert_eq!(settings["model.aggregator"], serde_json::json!([null, "mean"]), "gcn reads no aggregator");
    assert!(!settings.contains_key("epochs") && !settings.contains_key("data"), "equal settings: {settings:?}");

    let page = fs::read_to_string(page).unwrap();
    for text in ["<h2>Validation accuracy</h2>", "<h2>Training loss</h2>", &gcn, &sage, "±"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.matches("class=\"band\"").count() >= 2, "bands of both sessions");

    let shown = girih(&["compare", &gcn, &sage]).ok().out;
    let mean = 100.0 * of_sage["test_accuracy"].as_f64().unwrap();
    let deviation = 100.0 * of_sage["test_accuracy_std"].as_f64().unwrap();
    for text in [&gcn, &sage, "model.kind", "test accuracy", "s/epoch", &format!("{mean:.2} ± {deviation:.2} %")] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
}

#[test]
fn other_data_and_an_unfinished_session_are_told() {
    let work = Workspace::new();
    let (whole, _) = trained(&work, "whole", &[]);
    let (other, _) = trained(&work, "other", &["--data", "synth:planted,nodes=300,degree=8,features=24,classes=4"]);
    fs::remove_file(work.path("other/run-001.safetensors")).unwrap();
    fs::remove_file(work.path("other/metrics.jsonl")).unwrap();
    let result = girih(&["compare", &whole, &other, "--json"]).ok().result();
    assert_eq!(result["settings"]["data"][0], SMALL);
    assert_eq!((&result["runs"][1]["finished"], &result["runs"][1]["epoch_seconds"]), (&false.into(), &Value::Null));
    assert!(girih(&["compare", &whole, &other]).ok().out.contains("unfinished"));
}

#[test]
fn what_is_no_session_is_refused_by_name() {
    let work = Workspace::new();
    let (good, _) = trained(&work, "good", &[]);
    let refused = |name: &str, words: &[&str]| {
        let message = girih(&["compare", &good, &work.arg(name)]).refused(1);
        assert!(words.iter().all(|word| says(&message, word)) && says(&message, &work.arg(name)), "{message}");
    };
    refused("absent", &["absent"]);
    fs::create_dir(work.path("empty")).unwrap();
    refused("empty", &["no checkpoint", "girih train --out DIR"]);
    fs::write(work.path("file"), "text").unwrap();
    refused("file", &["is a file", "girih train --out DIR"]);

    let copy = |name: &str| {
        fs::create_dir(work.path(name)).unwrap();
        for file in ["run-000.safetensors", "metrics.jsonl", "config.toml"] {
            fs::copy(work.path("good").join(file), work.path(name).join(file)).unwrap();
        }
    };
    copy("schema");
    fs::write(work.path("schema/metrics.jsonl"), "{\"step\":1,\"loss\":0.5}\n").unwrap();
    refused("schema", &["metrics.jsonl", "line 1 is not an epoch"]);
    copy("cut");
    let bytes = fs::read(work.path("good/run-000.safetensors")).unwrap();
    fs::write(work.path("cut/run-000.safetensors"), &bytes[..bytes.len() / 2]).unwrap();
    refused("cut", &["run-000.safetensors"]);
    copy("version");
    let at = bytes.windows(13).position(|found| found == b"\\\"version\\\":3").expect("the metadata have a version");
    let mut other = bytes;
    other[at + 12] = b'9';
    fs::write(work.path("version/run-000.safetensors"), other).unwrap();
    refused("version", &["run-000.safetensors"]);
    copy("settings");
    fs::write(work.path("settings/config.toml"), "layers_of_cake = 3\n").unwrap();
    refused("settings", &["config.toml", "layers_of_cake"]);
}
