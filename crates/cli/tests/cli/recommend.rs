//! Recommendation from data to predictions.

use std::fmt::Write as _;
use std::fs;

use girih_graph_format::file::Array;

use crate::girih::{SMALL, Workspace, assert_keys, girih, names_in, says};

const USERS: usize = 60;
const ITEMS: usize = 80;

/// Writes a LightGCN folder in which each user has every fourth item, the last two of them in the test set.
pub(crate) fn write_tastes(work: &Workspace) -> String {
    let (mut train, mut test) = (String::new(), String::new());
    for user in 0..USERS {
        let items: Vec<String> = (0..8).map(|i| ((user + 4 * (i + user / 8)) % ITEMS).to_string()).collect();
        writeln!(train, "{user} {}", items[..6].join(" ")).unwrap();
        writeln!(test, "{user} {}", items[6..].join(" ")).unwrap();
    }
    fs::create_dir(work.path("tastes")).unwrap();
    fs::write(work.path("tastes/train.txt"), train).unwrap();
    fs::write(work.path("tastes/test.txt"), test).unwrap();
    work.arg("tastes")
}

pub(crate) const QUICK: [&str; 8] = ["--model", "lightgcn", "--dim", "8", "--batch-size", "100", "--lr", "0.01"];

#[test]
fn a_recommender_trains_scores_and_recommends() {
    let work = Workspace::new();
    let (data, out) = (write_tastes(&work), work.arg("out"));
    let train =
        [&["train", "--data", &data, "--epochs", "4", "--eval-every", "2", "--out", &out, "--json"], &QUICK[..]];
    let finished = girih(&train.concat()).ok();
    let events = finished.events();
    let scored: Vec<bool> = events[..4].iter().map(|event| event.get("recall_at_20").is_some()).collect();
    assert_eq!(scored, [false, true, false, true], "scores are taken every second epoch");
    let result = finished.result();
    assert_keys(
        &result,
        &["recall_at_20", "ndcg_at_20", "recall_at_20_last", "train_loss", "epoch_ms_median", "stage_ms"],
    );
    assert!((0.0..=1.0).contains(&result["recall_at_20"].as_f64().unwrap()), "{result}");
    let report = fs::read_to_string(work.path("out/report.html")).unwrap();
    assert!(report.matches("<svg").count() == 2 && report.contains("NDCG@20"));

    let evaluated = girih(&["evaluate", "--data", &data, "--checkpoint", &out, "--json"]).ok().result();
    for key in ["recall_at_20", "ndcg_at_20", "precision_at_20", "hits_at_20"] {
        assert_eq!(evaluated[key], result[key], "{key}");
    }
    let predict = ["predict", "--data", &data, "--checkpoint", &out, "--out", &work.arg("items.npy"), "--json"];
    assert_eq!(girih(&predict).ok().result()["users"], USERS);
    let items = Array::read(&work.path("items.npy")).unwrap();
    assert_eq!(items.shape(), [USERS, 20]);
    assert!(items.into_i64().unwrap().iter().all(|&item| (0..ITEMS as i64).contains(&item)));
    let message = girih(&[&predict[..], &["--logits"]].concat()).refused(1);
    assert!(says(&message, "no logits"), "{message}");
}

#[test]
fn published_settings_are_the_defaults_of_the_model() {
    let work = Workspace::new();
    let (data, out) = (write_tastes(&work), work.arg("out"));
    girih(&["train", "--data", &data, "--model", "lightgcn", "--epochs", "1", "--out", &out]).ok();
    let config = fs::read_to_string(work.path("out/config.toml")).unwrap();
    for line in ["layers = 3", "hidden = 64", "lr = 0.001", "weight_decay = 0.0001", "batch_size = 2048", "epochs = 1"]
    {
        assert!(config.lines().any(|found| found == line), "no {line} in {config}");
    }
    let longer = girih(&[
        "train",
        "--config",
        &work.arg("out/config.toml"),
        "--epochs",
        "2",
        "--out",
        &out,
        "--resume",
        "--json",
    ]);
    assert_eq!(longer.ok().events().len(), 2, "one more epoch, and the result");
}

#[test]
fn a_recommender_can_be_planned_converted_and_described() {
    let work = Workspace::new();
    let data = write_tastes(&work);
    let plan = girih(&[&["train", "--data", &data, "--plan", "--json"], &QUICK[..]].concat()).ok().result();
    assert!(plan["predicted_epoch_ms"].as_f64().unwrap() > 0.0, "{plan}");
    girih(&["convert", "--data", &data, "--out", &work.arg("folder")]).ok();
    let described = |data: &str| girih(&["stats", "--data", data, "--json"]).ok().result()["interactions"].clone();
    let sizes = serde_json::json!({ "users": USERS, "items": ITEMS, "train": 6 * USERS, "test": 2 * USERS });
    assert_eq!((described(&data), described(&work.arg("folder"))), (sizes.clone(), sizes));
}

#[test]
fn models_and_data_that_do_not_fit_are_refused() {
    let work = Workspace::new();
    let (data, out) = (write_tastes(&work), work.arg("out"));
    let message = girih(&["train", "--data", &data, "--model", "gcn", "--out", &out]).refused(1);
    assert!(says(&message, "users and items") && says(&message, "lightgcn"), "{message}");
    let message = girih(&["train", "--data", SMALL, "--model", "lightgcn", "--out", &out]).refused(1);
    assert!(says(&message, "no interactions"), "{message}");
    let message = girih(&["train", "--data", SMALL, "--batch-size", "10", "--out", &out]).refused(1);
    assert!(says(&message, "batch_size"), "{message}");
    let message = girih(&["convert", "--data", &data, "--out", &work.arg("tastes.safetensors")]).refused(1);
    assert!(says(&message, "kept in a folder alone"), "{message}");
    let message = girih(&["train", "--data", &data, "--model", "lightgcn", "--symmetrize", "true"]).refused(1);
    assert!(says(&message, "edges in both directions"), "{message}");
    assert_eq!(names_in(work.folder()), ["tastes"], "refusals leave nothing behind");
    fs::create_dir(work.path("empty")).unwrap();
    for name in ["train.txt", "test.txt"] {
        fs::write(work.path(&format!("empty/{name}")), "0\n").unwrap();
    }
    for plan in [&[][..], &["--plan"]] {
        let args = ["train", "--data", &work.arg("empty"), "--model", "lightgcn"];
        girih(&[&args[..], plan].concat()).refused(1);
    }
}
