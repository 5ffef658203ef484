//! `train` from its flags to its output folder, and `evaluate` and `predict` on that folder.

use std::fs;

use girih_graph_format::file::Array;
use serde_json::json;

use crate::girih::{Finished, SMALL, Workspace, assert_keys, command, girih, losses, names_in, says};

const RESULT_KEYS: [&str; 20] = [
    "model",
    "data",
    "device",
    "seed",
    "runs",
    "epochs",
    "test_accuracy",
    "test_accuracy_std",
    "test_accuracy_last",
    "val_accuracy",
    "train_loss",
    "test_loss",
    "epoch_ms_median",
    "epoch_ms_min",
    "stage_ms",
    "peak_host_bytes",
    "peak_device_bytes",
    "nodes",
    "edges",
    "generated",
];

#[test]
fn without_a_flag_a_network_learns() {
    let finished = girih(&["train"]).ok();
    let score = finished.out.lines().find(|line| line.starts_with("Test accuracy at the best epoch")).unwrap();
    let percent: f64 = score.split_whitespace().rev().nth(1).unwrap().parse().unwrap();
    assert!(percent >= 85.0, "{score}");
    assert!(finished.err.contains("generated") && finished.err.contains("next:"), "{}", finished.err);
}

#[test]
fn json_is_epochs_and_then_one_result() {
    let finished = girih(&["train", "--data", SMALL, "--epochs", "7", "--runs", "2", "--json"]).ok();
    let events = finished.events();
    let (result, epochs) = events.split_last().unwrap();
    let expected: Vec<_> = (0..2).flat_map(|run| (1..=7).map(move |epoch| json!([run, epoch]))).collect();
    let found: Vec<_> = epochs.iter().map(|e| json!([e["run"], e["epoch"]])).collect();
    assert_eq!(found, expected);
    for epoch in epochs {
        assert_eq!(epoch["event"], "epoch");
        assert_keys(epoch, &["train_loss", "val_accuracy", "ms"]);
    }
    assert_eq!(result["event"], "result");
    assert_keys(result, &RESULT_KEYS);
    let is_on_gpu = result["device"].as_str().unwrap().starts_with("cuda");
    assert_eq!(result["peak_device_bytes"].as_u64() > Some(0), is_on_gpu, "{result}");
    assert_eq!((&result["runs"], &result["epochs"], &result["nodes"]), (&json!(2), &json!(7), &json!(600)));
    for share in ["test_accuracy", "test_accuracy_last", "val_accuracy"] {
        assert!((0.0..=1.0).contains(&result[share].as_f64().unwrap()), "{share} in {result}");
    }
}

#[test]
fn one_seed_prints_one_result_on_any_number_of_threads() {
    let result = |seed, threads| {
        let args = ["train", "--data", SMALL, "--epochs", "5", "--seed", seed, "--threads", threads, "--json"];
        girih(&args).ok().result()["train_loss"].to_string()
    };
    assert_eq!(result("3", "1"), result("3", "2"));
    assert_ne!(result("3", "1"), result("4", "1"));
}

#[test]
fn every_model_and_setting_runs() {
    for flags in [
        &["--model", "sgc", "--layers", "3"][..],
        &["--model", "sage", "--hidden", "8", "--input-dropout", "0"],
        &["--model", "mlp", "--optimizer", "sgd", "--lr", "0.1", "--schedule", "cosine", "--warmup", "2"],
        &["--model", "gcn", "--precision", "bf16", "--optimizer", "adamw", "--decay", "all", "--eval-every", "2"],
        &["--schedule", "step:2:0.5", "--patience", "3", "--dropout", "0.2", "--weight-decay", "0"],
        &["--input-dropout", "0", "--aggregate-once", "false"],
    ] {
        let args = [&["train", "--data", SMALL, "--epochs", "4", "--json"], flags].concat();
        let result = girih(&args).ok().result();
        assert!(result["train_loss"].as_f64().unwrap().is_finite(), "{flags:?}: {result}");
    }
}

#[test]
fn wrong_usage_has_status_two_and_a_hint() {
    for args in [
        &["train", "--nonsense"][..],
        &["train", "--model", "transformer"],
        &["train", "--epochs", "many"],
        &["train", "--resume"],
        &["train", "--threads", "0"],
        &["trian"],
        &[],
    ] {
        let finished = girih(args);
        assert_eq!(finished.code, Some(2), "{args:?}: {}", finished.err);
        assert!(finished.err.contains("--help") && finished.out.is_empty(), "{args:?}: {}", finished.err);
    }
}

#[test]
fn a_generator_that_does_not_exist_is_wrong_usage() {
    let message = girih(&["train", "--data", "synth:redit"]).refused(2);
    assert!(says(&message, "no generator") && says(&message, "planted, reddit"), "{message}");
}

#[test]
fn failures_have_status_one_and_name_their_cause() {
    let work = Workspace::new();
    let missing = work.arg("nowhere");
    assert!(says(&girih(&["train", "--data", &missing]).refused(1), &missing));
    assert!(says(&girih(&["stats", "--data", &missing, "--json"]).refused(1), &missing));
    assert!(says(&girih(&["evaluate", "--data", SMALL, "--checkpoint", &missing]).refused(1), &missing));
    assert!(says(&girih(&["train", "--config", &missing]).refused(1), &missing));
    let empty = work.folder().to_str().unwrap();
    let message = girih(&["evaluate", "--data", SMALL, "--checkpoint", empty]).refused(1);
    assert!(says(&message, empty) && says(&message, "no checkpoint"), "{message}");
    assert!(says(&girih(&["train", "--dropout", "1.5"]).refused(1), "setting `dropout` must be"));
    assert!(says(&girih(&["train", "--model", "sgc", "--hidden", "8"]).refused(2), "sgc, which has no hidden layers"));
    assert!(names_in(work.folder()).is_empty(), "failures leave nothing behind");
}

#[test]
fn flags_override_the_configuration_file() {
    let work = Workspace::new();
    let text = format!("data = \"{SMALL}\"\nepochs = 3\nseed = 9\n[model]\nkind = \"sage\"\nhidden = 5\n");
    fs::write(work.path("config.toml"), text).unwrap();
    let config = work.arg("config.toml");
    let from_file = girih(&["train", "--config", &config, "--json"]).ok().result();
    assert_eq!(json!([from_file["model"], from_file["seed"], from_file["epochs"]]), json!(["sage", 9, 3]));
    assert_eq!(from_file["data"], SMALL);
    let flags = ["--epochs", "2", "--model", "mlp", "--data", "synth:planted,nodes=300", "--json"];
    let overridden = girih(&[&["train", "--config", &config], &flags[..]].concat()).ok().result();
    assert_eq!(json!([overridden["model"], overridden["seed"], overridden["epochs"]]), json!(["mlp", 9, 2]));
    assert_eq!(overridden["nodes"], 300);
}

#[test]
fn a_configuration_file_says_what_it_does_not_know() {
    let work = Workspace::new();
    let config = work.arg("config.toml");
    for (text, culprit) in [
        ("epohcs = 3\n", "epohcs"),
        ("[model]\nwidth = 3\n", "width"),
        ("[optimizer]\nlr = \"fast\"\n", "lr"),
        ("data = \"synth:planted\"\nepohcs = 3\n", "epohcs"),
        ("[model]\nkind = \"transformer\"\n", "transformer"),
        ("[optimizer]\nschedule = { kind = \"cosine\", every = 3 }\n", "every"),
        ("epochs = \n", "line 1"),
    ] {
        fs::write(&config, text).unwrap();
        let message = girih(&["train", "--config", &config]).refused(1);
        assert!(says(&message, &config) && says(&message, culprit), "{text:?}: {message}");
    }
}

#[test]
fn a_folder_without_a_run_is_not_resumed() {
    let work = Workspace::new();
    let out = work.arg("nothing");
    let message = girih(&["train", "--resume", "--out", &out]).refused(2);
    assert!(says(&message, &out) && says(&message, "config.toml") && says(&message, "--data"), "{message}");
    assert!(names_in(work.folder()).is_empty());
    // With data given, it starts from epoch 1; scripts may always pass `--resume`.
    girih(&["train", "--resume", "--out", &out, "--data", SMALL, "--epochs", "2"]).ok();
    girih(&["train", "--resume", "--out", &out, "--epochs", "3"]).ok();
    assert_eq!(losses(&work.path("nothing/metrics.jsonl")).len(), 3);
}

#[test]
fn an_output_folder_holds_what_a_run_was_and_did() {
    let work = Workspace::new();
    let out = work.arg("out");
    let args = ["train", "--data", SMALL, "--epochs", "6", "--runs", "2", "--out", &out];
    let result = girih(&[&args[..], &["--json"]].concat()).ok().result();
    let expected = [
        "config.toml",
        "metrics.csv",
        "metrics.jsonl",
        "report.html",
        "result.json",
        "run-000.safetensors",
        "run-001.safetensors",
    ];
    assert_eq!(names_in(&work.path("out")), expected);
    assert_eq!(losses(&work.path("out/metrics.jsonl")).len(), 12);
    let written: serde_json::Value = serde_json::from_slice(&fs::read(work.path("out/result.json")).unwrap()).unwrap();
    assert_eq!(written, result);
    let report = fs::read_to_string(work.path("out/report.html")).unwrap();
    assert_eq!(report.matches("<svg").count(), 2);
    assert!(!report.contains("<script src") && !report.contains("<link"), "the report is self-contained");

    let again = girih(&args).refused(1);
    assert!(says(&again, &out) && says(&again, "not empty") && says(&again, "--resume"), "{again}");
    assert_eq!(names_in(&work.path("out")), expected);

    let repeated = girih(&["train", "--config", &work.arg("out/config.toml"), "--json"]).ok().result();
    for key in ["data", "model", "seed", "test_accuracy", "train_loss"] {
        assert_eq!(repeated[key], result[key], "the written configuration repeats the run");
    }
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let work = Workspace::new();
    fs::write(work.path("thesis.txt"), "years of work").unwrap();
    assert!(says(&girih(&["train", "--data", SMALL, "--out", &work.arg("thesis.txt")]).refused(1), "is a file"));
    let message = girih(&["train", "--data", SMALL, "--out", work.folder().to_str().unwrap()]).refused(1);
    assert!(says(&message, "not empty"), "{message}");
    assert_eq!(names_in(work.folder()), ["thesis.txt"]);
}

#[test]
fn evaluate_repeats_the_score_and_predict_names_every_node() {
    let work = Workspace::new();
    let out = work.arg("out");
    let trained = girih(&["train", "--data", SMALL, "--epochs", "40", "--out", &out, "--json"]).ok().result();
    let file = work.arg("out/run-000.safetensors");
    for checkpoint in [&out, &file] {
        let scored = girih(&["evaluate", "--data", SMALL, "--checkpoint", checkpoint, "--json"]).ok().result();
        assert_eq!(scored["test_accuracy"], trained["test_accuracy"]);
        assert_eq!(scored["val_accuracy"], trained["val_accuracy"]);
        assert_keys(&scored, &["model", "epoch", "test_loss", "test_f1_micro", "test_f1_macro"]);
    }

    let predict = |name: &str, flags: &[&str]| {
        let args = ["predict", "--data", SMALL, "--checkpoint", &out, "--out", &work.arg(name), "--json"];
        assert_eq!(girih(&[&args, flags].concat()).ok().result()["nodes"], 600);
        Array::read(&work.path(name)).unwrap()
    };
    // A checkpoint is not overwritten.
    girih(&["predict", "--data", SMALL, "--checkpoint", &out, "--out", &file]).refused(2);
    let classes = predict("classes.npy", &[]).into_i64().unwrap();
    let logits = predict("logits.npy", &["--logits"]).into_matrix().unwrap();
    assert_eq!((classes.len(), logits.n_rows(), logits.n_cols()), (600, 600, 4));
    for (v, &class) in classes.iter().enumerate() {
        let row = logits.row(v);
        assert!(row.iter().all(|&logit| logit <= row[class as usize]), "node {v}: {class} of {row:?}");
    }
}

#[test]
fn a_model_predicts_where_no_node_has_a_label() {
    let work = Workspace::new();
    let (graph, folder) = (work.arg("graph.csv"), work.arg("data"));
    girih(&["convert", "--data", SMALL, "--out", &graph]).ok();
    girih(&["convert", "--data", SMALL, "--out", &folder]).ok();
    let features = work.arg("data/features.npy");
    let unlabelled = ["--data", &graph, "--features", &features];
    let by_layers = ["--model", "sage", "--batch", "neighbor", "--score-by", "layers"];
    for (name, flags) in [("full", &[][..]), ("layers", &by_layers)] {
        let out = work.arg(name);
        girih(&[&["train", "--data", SMALL, "--epochs", "5", "--out", &out], flags].concat()).ok();
        let predict = |file: &str, data: &[&str]| {
            girih(&[&["predict", "--checkpoint", &out, "--out", &work.arg(file)], data].concat()).ok();
            Array::read(&work.path(file)).unwrap().into_i64().unwrap()
        };
        let expected = predict("expected.npy", &["--data", SMALL]);
        assert_eq!(predict("found.npy", &unlabelled), expected, "{name}");
        assert_eq!(predict("shared.npy", &[&unlabelled[..], &["--ranks", "2"]].concat()), expected, "{name} on ranks");
        let message = girih(&[&["evaluate", "--checkpoint", &out], &unlabelled[..]].concat()).refused(1);
        assert!(says(&message, "graph: no node") && says(&message, "label"), "{message}");
    }
}

#[test]
fn a_model_is_not_applied_to_data_of_another_shape() {
    let work = Workspace::new();
    let out = work.arg("out");
    girih(&["train", "--data", SMALL, "--epochs", "2", "--out", &out]).ok();
    let other = "synth:planted,nodes=600,degree=8,features=25,classes=4";
    let message = girih(&["predict", "--data", other, "--checkpoint", &out, "--out", &work.arg("p.npy")]).refused(1);
    assert!(says(&message, "25 features") && says(&message, "24 features"), "{message}");
    assert_eq!(names_in(work.folder()), ["out"]);
}

#[test]
fn a_plan_predicts_and_trains_nothing() {
    let work = Workspace::new();
    let args = ["train", "--data", SMALL, "--plan", "--out", &work.arg("out"), "--json"];
    let result = girih(&args).ok().result();
    assert_keys(
        &result,
        &[
            "input_bytes",
            "parameter_bytes",
            "predicted_peak_bytes",
            "aggregates_once",
            "predicted_epoch_ms",
            "predicted_seconds",
        ],
    );
    assert!(result["predicted_epoch_ms"].as_f64().unwrap() > 0.0);
    assert!(names_in(work.folder()).is_empty(), "a plan writes nothing");
}

#[test]
fn every_kind_of_mini_batches_trains_plans_and_is_applied() {
    let work = Workspace::new();
    for (kind, flags) in [
        ("neighbor", &["--fanout", "5,-1", "--batch-size", "40", "--model", "sage", "--dropout", "0"][..]),
        ("neighbor", &["--model", "gat", "--batch-size", "40", "--ranks", "2"]),
        (
            "neighbor",
            &["--model", "gcn", "--batch-size", "40", "--score-by", "layers", "--dropout", "0.2", "--lr", "0.01"],
        ),
        ("layer", &["--fanout", "100,100", "--batch-size", "40", "--replace"]),
        ("cluster", &["--clusters", "6", "--clusters-per-batch", "2"]),
        ("saint", &["--saint", "edge", "--batch-size", "200", "--model", "gin", "--lr", "0.001"]),
    ] {
        let out = work.arg(&format!("{kind}-{}", flags.len()));
        let args = [&["train", "--data", SMALL, "--batch", kind, "--epochs", "4", "--json"], flags].concat();
        let result = girih(&[&args[..], &["--out", &out]].concat()).ok().result();
        assert_eq!((&result["batch"], &result["epochs"]), (&kind.into(), &4.into()));
        assert!(result["stage_ms"]["batches"].as_f64().unwrap() > 0.0);
        let applied = girih(&["evaluate", "--data", SMALL, "--checkpoint", &out, "--json"]).ok().result();
        assert_eq!(applied["test_accuracy"], result["test_accuracy"], "scores are those of the full graph");
        if !args.contains(&"--ranks") {
            let plan = girih(&[&args[..], &["--plan"]].concat()).ok().result();
            assert!(plan["predicted_peak_bytes"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn mini_batches_that_make_no_sense_are_refused_before_anything_is_loaded() {
    let refusal = |flags: &[&str]| girih(&[&["train", "--data", "no/such/file"], flags].concat()).refused(1);
    for (flags, told) in [
        (&["--batch", "neighbor", "--fanout", "5,5,5"][..], "2 layers"),
        (&["--batch", "neighbor", "--model", "sgc"], "choose the model gcn, sage, gat, gatv2 or gin"),
        (&["--batch", "layer", "--model", "appnp"], "cluster, saint or full"),
        (&["--batch", "cluster", "--batch-size", "5"], "clusters_per_batch"),
        (&["--fanout", "5,5"], "choose a batch kind"),
        (&["--score-by", "layers"], "that train on mini-batches"),
        (&["--feature-cache", "0.5"], "full batches read the whole graph and all features"),
        (&["--batch", "cluster", "--topology-cache", "0.5"], "GPUs sample neighbor batches"),
    ] {
        let message = refusal(flags);
        assert!(says(&message, told), "{message}");
    }
    for (flag, shares, told) in [
        ("--feature-cache", "1.5", "from 0 to 1"),
        ("--topology-cache", "0.6,0.6", "at most 1 together"),
        ("--hotness", "warm", "is not a measure of hotness"),
    ] {
        let message = girih(&["train", "--data", "no/such/file", "--batch", "neighbor", flag, shares]).refused(2);
        assert!(says(&message, told), "{message}");
    }
    let cache = ["train", "--data", SMALL, "--batch", "neighbor", "--device", "cpu", "--feature-cache", "0.5"];
    assert!(says(&girih(&cache).refused(1), "--feature-cache on the CPU is not supported"));
    let topology = ["train", "--data", SMALL, "--batch", "neighbor", "--device", "cpu", "--topology-cache", "0.5"];
    assert!(says(&girih(&topology).refused(1), "--topology-cache on the CPU is not supported"));
}

/// More nodes than are scored at a time.
const NODES: u64 = 120_000;

/// Training on mini-batches whose device memory `--tier-memory` divides.
const DIVIDED: [&str; 13] = [
    "train",
    "--data",
    "synth:planted,nodes=120000,degree=8,features=48,classes=4",
    "--batch",
    "neighbor",
    "--fanout",
    "3,2",
    "--batch-size",
    "20",
    "--hidden",
    "64",
    "--prefetch",
    "0",
];

/// Device memory that training needs without any features, as the refusal states it.
fn least_memory(flags: &[&str]) -> u64 {
    let message = girih(&[&DIVIDED[..], &["--plan", "--tier-memory", "1MB"], flags].concat()).refused(1);
    for part in ["training alone needs", "(1000000bytes)", "smaller--batch-size"] {
        assert!(says(&message, part), "no {part}: {message}");
    }
    message.split("bytes)").next().and_then(|rest| rest.rsplit('(').next()).unwrap().parse().unwrap()
}

#[test]
fn memory_is_divided_for_devices_that_are_not_here() {
    let planned = |flags: &[&str]| girih(&[&DIVIDED[..], &["--plan", "--json"], flags].concat()).ok().result();
    // Offsets and position lists take 3 MB, feature rows about 23 MB, and scores of the whole graph more.
    for (flags, n_devices) in
        [(&[][..], 1), (&["--codec", "topk:4"], 1), (&["--gpus", "3"], 3), (&["--score-by", "layers"], 1)]
    {
        let least = least_memory(flags);
        for more in [4_500_000, 400_000_000] {
            let memory = (least + more).to_string();
            let plan = planned(&[&["--tier-memory", &memory], flags].concat());
            assert_keys(&plan, &["needed_bytes", "available_bytes", "predicted_peak_bytes"]);
            let division = &plan["division"];
            assert_eq!(
                (&plan["fits"], &plan["needed_bytes"]),
                (&true.into(), &division["needed_bytes"]),
                "{n_devices}"
            );
            assert_eq!(division["memory_bytes"], least + more);
            let expected = division["expected"].as_array().unwrap();
            for of in ["features", "neighbors"] {
                let of = || expected.iter().filter(|share| share["of"] == of);
                assert_eq!(of().map(|share| share["n_nodes"].as_u64().unwrap()).sum::<u64>(), NODES);
                assert!((of().map(|share| share["reads"].as_f64().unwrap()).sum::<f64>() - 1.0).abs() < 1e-9);
            }
            let is_whole = expected.iter().all(|share| share["tier"] == "every-gpu");
            assert!(is_whole || more < 1 << 24, "{division}");
            assert_eq!(more > 1 << 24, division["config"] == serde_json::json!({}), "{division}");
        }
    }
    let text = girih(&[&DIVIDED[..], &["--plan", "--tier-memory", "80GB"]].concat()).ok().out;
    assert!(text.contains("every device has all") && text.contains("100.00 % of reads expected"), "{text}");
    assert_eq!(planned(&["--memory", "80GB", "--tier-memory", "auto"])["division"]["memory_bytes"], 80_000_000_000u64);
    let too_much = girih(&[&DIVIDED[..], &["--plan", "--memory", "1MB", "--tier-memory", "80GB"]].concat());
    assert!(
        too_much.code == Some(1) && too_much.err.contains("a CUDA device as given by --memory"),
        "{}",
        too_much.err
    );
}

#[test]
fn the_shares_of_a_division_are_planned_for_alike() {
    let flags = ["--hotness", "degree"];
    let memory = (least_memory(&flags) + 4_500_000).to_string();
    let plan = |more: &[&str]| girih(&[&DIVIDED[..], &["--plan", "--json"], &flags, more].concat()).ok().result();
    let divided = plan(&["--tier-memory", &memory]);
    let shares = |part: &str| match &divided["division"]["config"][part] {
        serde_json::Value::String(text) => text.clone(),
        share => share.to_string(),
    };
    let (features, topology) = (shares("features"), shares("topology"));
    let mut by_hand = vec!["--memory", &memory, "--feature-cache", &features];
    if topology != "null" {
        by_hand.extend(["--topology-cache", &topology]);
    }
    assert_eq!(plan(&by_hand)["needed_bytes"], divided["needed_bytes"], "{divided}");
}

#[test]
fn memory_that_cannot_be_divided_is_refused() {
    let refusal = |flags: &[&str], code| girih(&[&["train", "--data", "no/such/file"], flags].concat()).refused(code);
    let neighbors = ["--batch", "neighbor", "--tier-memory"];
    for (flags, code, told) in [
        (&["--tier-memory", "80GB"][..], 1, "full batches read the whole graph and all features"),
        (&["--batch", "cluster", "--tier-memory", "80GB"], 1, "GPUs sample neighbor batches"),
        (&["--batch", "neighbor", "--replace", "--tier-memory", "80GB"], 1, "without replacement"),
        (&["--batch", "neighbor", "--task", "links", "--tier-memory", "80GB"], 1, "neighbor batches of nodes"),
        (&[&neighbors[..], &["much"]].concat(), 2, "or auto"),
        (&[&neighbors[..], &["80GB", "--feature-cache", "0.1"]].concat(), 2, "cannot be used with"),
        (&[&neighbors[..], &["80GB", "--topology-cache", "0.1"]].concat(), 2, "cannot be used with"),
        (&[&neighbors[..], &["80GB", "--device", "cpu"]].concat(), 1, "caches have no effect"),
        (&[&neighbors[..], &["80GB", "--device", "cpu", "--plan"]].concat(), 1, "caches have no effect"),
        (&[&neighbors[..], &["80GB", "--gpus", "2", "--layout", "patches", "--plan"]].concat(), 2, "--layout patches"),
        (
            &[&neighbors[..], &["80GB", "--gpus", "2", "--layout", "split-features"]].concat(),
            2,
            "--layout split-features",
        ),
    ] {
        let message = refusal(flags, code);
        assert!(says(&message, told), "{flags:?}: {message}");
    }
    let of_codec = girih(&[&DIVIDED[..], &["--plan", "--tier-memory", "80GB", "--codec", "int8"]].concat()).refused(1);
    assert!(says(&of_codec, "the host decodes codes of int8"), "{of_codec}");
    let launched = command(&[&["train", "--data", SMALL][..], &neighbors, &["auto"]].concat())
        .envs([("GIRIH_RANK", "0"), ("GIRIH_SIZE", "2"), ("GIRIH_RENDEZVOUS", "127.0.0.1:1")])
        .output()
        .unwrap();
    let launched = Finished::new(launched).refused(2);
    assert!(says(&launched, "give --tier-memory a size, like 80GB, instead of auto"), "{launched}");
}

#[test]
fn a_model_is_applied_to_data_as_it_was_trained_on_them() {
    let work = Workspace::new();
    let out = work.arg("out");
    let train = ["train", "--data", SMALL, "--split", "1", "--runs", "2", "--epochs", "3", "--out", &out, "--json"];
    girih(&train).ok();
    let evaluate = |flags: &[&str]| girih(&[&["evaluate", "--checkpoint", &out, "--json"], flags].concat()).ok();
    let same = evaluate(&[]);
    assert_eq!(same.result(), evaluate(&["--data", SMALL, "--split", "1"]).result());
    assert!(!same.err.contains("another split"), "{}", same.err);
    let other = evaluate(&["--split", "0"]);
    assert!(other.err.contains("another split"), "{}", other.err);
}
