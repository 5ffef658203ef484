//! Training on compressed features: `--codec`, data with `features.codes`, and the similarity report.

use std::fs;

use serde_json::{Value, json};

use crate::girih::{SMALL, Workspace, assert_keys, girih, says};

/// Data with one group of 120 columns.
const DATA: &str = "synth:planted,nodes=600,degree=8,features=120,classes=4,signal=3";

fn train(args: &[&str]) -> Value {
    let common = ["train", "--model", "sage", "--epochs", "8", "--json"];
    girih(&[&common, args].concat()).ok().result()
}

#[test]
fn a_codec_trains_on_codes_and_its_checkpoint_evaluates_and_predicts_on_them() {
    let work = Workspace::new();
    let (out, classes) = (work.arg("run"), work.arg("classes.npy"));
    let result = train(&["--data", DATA, "--codec", "topk:8", "--out", &out]);
    assert_eq!((&result["codec"], &result["row_bytes"]), (&json!("topk:8"), &json!(16)));
    assert!(fs::read_to_string(work.path("run/config.toml")).unwrap().contains("codec = \"topk:8\""));
    let evaluated = girih(&["evaluate", "--data", DATA, "--checkpoint", &out, "--json"]).ok().result();
    assert_eq!(evaluated["test_accuracy"], result["test_accuracy"]);
    girih(&["predict", "--data", DATA, "--checkpoint", &out, "--out", &classes]).ok();

    let plain = girih(&["evaluate", "--data", DATA, "--checkpoint", &out, "--codec", "none", "--json"]).ok().result();
    assert_ne!(plain["test_loss"], evaluated["test_loss"], "the same parameters on other features");
    let config = work.arg("run/config.toml");
    let again = girih(&["train", "--config", &config, "--json"]).ok().result();
    assert_eq!((&again["codec"], &again["train_loss"]), (&json!("topk:8"), &result["train_loss"]));
    let without = girih(&["train", "--config", &config, "--codec", "none", "--json"]).ok().result();
    assert_eq!((&without["codec"], &without["row_bytes"]), (&json!("none"), &Value::Null));
}

#[test]
fn a_folder_with_a_store_trains_as_with_the_codec_and_says_what_it_holds() {
    let work = Workspace::new();
    let (folder, alone) = (work.arg("data"), work.arg("alone"));
    girih(&["generate", DATA, "--out", &folder]).ok();
    let expected = train(&["--data", &folder, "--codec", "topk:8"]);
    girih(&["compress", "--data", &folder, "--codec", "topk:8", "--out", &folder]).ok();
    let found = train(&["--data", &folder]);
    assert_eq!((&found["codec"], &found["train_loss"]), (&json!("topk:8"), &expected["train_loss"]));

    girih(&["convert", "--data", &folder, "--out", &alone]).ok();
    assert!(!work.path("alone/features.npy").exists());
    assert_eq!(train(&["--data", &alone, "--codec", "topk:8"])["train_loss"], expected["train_loss"]);
    let stats = girih(&["stats", "--data", &alone, "--json"]).ok().result();
    assert_eq!(
        stats["features"],
        json!({ "width": 120, "kind": "compressed", "codec": "topk:8", "row_bytes": 16, "bytes": 9600, "ratio": 30.0 })
    );
    let reordered = work.arg("reordered");
    girih(&["reorder", "--data", &alone, "--order", "degree", "--out", &reordered]).ok();
    assert_eq!(train(&["--data", &reordered])["codec"], "topk:8");

    let message = girih(&["train", "--data", &alone, "--codec", "int8"]).refused(1);
    assert!(says(&message, "topk:8") && says(&message, "int8"), "{message}");
    let message = girih(&["compress", "--data", &alone, "--out", &work.arg("twice")]).refused(1);
    assert!(says(&message, "already"), "{message}");
    let store = work.path("alone/features.codes");
    let bytes = fs::read(&store).unwrap();
    fs::write(&store, &bytes[..bytes.len() - 1]).unwrap();
    let message = girih(&["train", "--data", &alone]).refused(1);
    assert!(says(&message, "features.codes"), "{message}");
}

#[test]
fn similarity_is_told_for_inputs_and_layers() {
    let work = Workspace::new();
    let (out, plain) = (work.arg("run"), work.arg("plain"));
    train(&["--data", DATA, "--codec", "topk:8", "--out", &out]);
    let evaluate = |out: &str, args: &[&str]| {
        let common = ["evaluate", "--data", DATA, "--similarity", "--checkpoint", out];
        girih(&[&common, args].concat())
    };
    let result = evaluate(&out, &["--json"]).ok().result();
    assert_keys(&result, &["codec", "cosine_inputs", "cosine_layers_initial", "cosine_layers_trained"]);
    assert!((0.4..0.99).contains(&result["cosine_inputs"].as_f64().unwrap()), "{result}");
    assert_eq!(result["cosine_layers_trained"].as_array().unwrap().len(), 2);
    let half = evaluate(&out, &["--codec", "half", "--json"]).ok().result();
    assert!(half["cosine_inputs"].as_f64().unwrap() > 0.9999, "{half}");
    assert!(evaluate(&out, &[]).ok().out.contains("Cosines of layers"));

    assert!(says(&evaluate(&out, &["--codec", "none"]).refused(2), "name a codec"));
    train(&["--data", DATA, "--out", &plain]);
    assert!(says(&evaluate(&plain, &[]).refused(1), "name one"));
}

#[test]
fn codecs_that_are_none_and_models_without_features_are_refused() {
    let refused = |args: &[&str], code| girih(&[&["train", "--data", SMALL], args].concat()).refused(code);
    assert!(says(&refused(&["--codec", "foo"], 2), "topk:K"));
    assert!(says(&refused(&["--codec", "foo"], 2), "or none"));
    assert!(says(&refused(&["--codec", "topk:0"], 2), "1 to 128"));
    assert!(says(&refused(&["--codec", "pca:25"], 1), "24"));
    let message = refused(&["--codec", "topk:8", "--model", "lightgcn"], 1);
    assert!(says(&message, "--codec with --model lightgcn is not supported: it reads no features"), "{message}");
}

/// A plan on 13 MB of features and on their codes: the saved bytes are the difference in size.
#[test]
fn a_plan_says_what_codes_save() {
    let wide = "synth:planted,nodes=4000,degree=8,features=800,classes=4";
    let plan = |codec: &str| {
        girih(&["train", "--data", wide, "--device", "cpu", "--plan", "--codec", codec, "--json"]).ok().result()
    };
    let bytes = |codec: &str| plan(codec)["input_bytes"].as_u64().unwrap();
    assert_eq!(bytes("none") - bytes("topk:8"), 4000 * (4 * 800 - 64));
}
