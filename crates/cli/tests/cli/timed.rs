//! Edges with times: described, sampled and trained on from the command line.

use std::fs;

use crate::girih::{Workspace, girih, says};

/// File of 400 messages in two groups of ten people, with seconds that have fractions.
fn messages(work: &Workspace) -> String {
    let line = |i: usize| {
        let (group, from, to) = (i % 2 * 10, (i * 7 + i / 10) % 10, (i * i + i / 7) % 10);
        format!("{},{},{}.5\n", group + from, group + to, 1_100_000_000 + 60 * i)
    };
    let text = format!("from,to,time\n{}", (0..400).map(line).collect::<String>());
    fs::write(work.path("messages.csv"), text).unwrap();
    work.arg("messages.csv")
}

#[test]
fn the_span_of_times_is_described() {
    let work = Workspace::new();
    let stats = girih(&["stats", &messages(&work), "--json"]).ok().result();
    assert_eq!((&stats["timed_edges"], &stats["tick"]), (&400.into(), &"10^-1".into()), "{stats}");
    assert_eq!((&stats["times"]["first"], &stats["times"]["distinct"]), (&"1100000000.5".into(), &400.into()));
    assert_eq!(stats["not_used"], serde_json::json!([]), "{stats}");
    fs::write(work.path("dates.csv"), "from,to,date\n0,1,2014-03-02\n").unwrap();
    let stats = girih(&["stats", &work.arg("dates.csv"), "--json"]).ok().result();
    assert!(stats["times"].is_null() && stats["not_used"].to_string().contains("times of edges"), "{stats}");
}

#[test]
fn batches_in_time_are_sampled_alike_on_any_threads() {
    let work = Workspace::new();
    let data = messages(&work);
    let sample = |flags: &[&str]| {
        let fixed = ["sample", &data, "--fanout", "5,5", "--batch-size", "50", "--json"];
        girih(&[&fixed[..], flags].concat()).ok().result()
    };
    for bound in ["seed", "path", "batch"] {
        let [one, two] = ["1", "2"].map(|n| sample(&["--before", bound, "--threads", n]));
        assert_eq!((&one["digest"], &one["batches"], &one["seeds"]), (&two["digest"], &8.into(), &800.into()));
        assert!(one["edges"].as_f64().unwrap() > 0.0, "{one}");
        let later = sample(&["--until", bound]);
        assert_ne!(later["digest"], one["digest"], "an edge is admitted at its own time");
    }
    let whole = sample(&["--before", "seed"]);
    for flags in [&["--window", "1h"][..], &["--time-strategy", "last"]] {
        assert_ne!(sample(&[&["--before", "seed"], flags].concat())["digest"], whole["digest"], "{flags:?}");
    }
    assert_eq!(sample(&["--before", "seed", "--window", "9d"])["digest"], whole["digest"]);
}

#[test]
fn links_in_time_train_evaluate_and_embed() {
    let work = Workspace::new();
    let (data, out) = (messages(&work), work.arg("out"));
    let train = [
        "train",
        "--data",
        &data,
        "--task",
        "links",
        "--model",
        "sage",
        "--batch",
        "neighbor",
        "--fanout",
        "5,5",
        "--before",
        "seed",
        "--features-from",
        "embedding:8",
        "--epochs",
        "6",
        "--lr",
        "0.05",
        "--batch-size",
        "100",
        "--dropout",
        "0",
        "--json",
    ];
    let result = girih(&[&train[..], &["--out", &out]].concat()).ok().result();
    assert!(result["test_roc_auc"].as_f64().unwrap() > 0.6, "{result}");
    let config = fs::read_to_string(work.path("out/config.toml")).unwrap();
    assert!(config.contains("[time]\nbefore = \"seed\""), "{config}");
    let evaluated = girih(&["evaluate", "--checkpoint", &out, "--json"]).ok().result();
    for key in ["test_roc_auc", "val_roc_auc", "test_average_precision", "test_mrr"] {
        assert_eq!(evaluated[key], result[key], "{key}");
    }
    let rows = work.arg("rows.npy");
    let predicted = girih(&["predict", "--checkpoint", &out, "--out", &rows, "--json"]).ok().result();
    assert_eq!(predicted["kind"], "embeddings");
    let again = girih(&["train", "--config", &work.arg("out/config.toml"), "--json"]).ok().result();
    assert_eq!(again["test_roc_auc"], result["test_roc_auc"]);
}

/// Stats, samples and trains on 200 edges in time between 23 users and 17 items, whose ids count from 1 in the file; returns
/// the result of stats.
fn described_and_trained(data: &str, flags: &[&str]) -> serde_json::Value {
    let result = |command: &[&str]| girih(&[command, &["--data", data, "--json"], flags].concat()).ok().result();
    let in_time = ["--before", "seed", "--fanout", "5,5"];
    let sample = result(&[&["sample"][..], &in_time].concat());
    assert_eq!((&sample["seeds"], &sample["batches"]), (&400.into(), &1.into()), "{sample}");
    let gine = ["train", "--task", "links", "--model", "gine", "--batch", "neighbor", "--edge-features", "all"];
    let train = result(&[&gine[..], &in_time, &["--epochs", "2", "--features-from", "degree"]].concat());
    assert!(train["test_roc_auc"].as_f64().unwrap() > 0.0, "{train}");
    let stats = result(&["stats"]);
    assert_eq!((&stats["nodes"], &stats["timed_edges"]), (&40.into(), &200.into()), "{stats}");
    assert_eq!(stats["warnings"], serde_json::json!([]), "{stats}");
    stats
}

/// User, item and number of each edge.
fn ratings() -> impl Iterator<Item = (usize, usize, usize)> {
    (0..200).map(|i| (1 + i % 23, 1 + (i * 7 + i / 10) % 17, i))
}

#[test]
fn a_list_of_jodie_is_described_sampled_and_trained_on() {
    let work = Workspace::new();
    let line = |(user, item, i): (usize, usize, usize)| format!("{user},{item},{}.5,{},0.5,-{i}\n", 36 * i, i % 2);
    let header = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n";
    fs::write(work.path("wikipedia.csv"), header.to_owned() + &ratings().map(line).collect::<String>()).unwrap();
    let data = work.arg("wikipedia.csv");
    let stats = described_and_trained(&data, &["--ids-from", "1"]);
    assert_eq!((&stats["times"]["first"], &stats["times"]["last"]), (&"0.5".into(), &"7164.5".into()), "{stats}");
    let from_zero = girih(&["stats", &data, "--json"]).ok().result();
    assert_eq!(from_zero["nodes"], 42, "{from_zero}");
    assert!(from_zero["warnings"].to_string().contains("ids count from 1 on both sides"), "{from_zero}");
}

#[test]
fn a_folder_of_movielens_is_described_sampled_and_trained_on() {
    let work = Workspace::new();
    let line =
        |(user, item, i): (usize, usize, usize)| format!("{user}\t{item}\t{}\t{}\n", 1 + i % 5, 881_250_949 + 60 * i);
    fs::create_dir(work.path("ml-100k")).unwrap();
    fs::write(work.path("ml-100k/u.data"), ratings().map(line).collect::<String>()).unwrap();
    fs::write(work.path("ml-100k/u.info"), "23 users\n17 items\n200 ratings\n").unwrap();
    let data = work.arg("ml-100k");
    let stats = described_and_trained(&data, &[]);
    assert_eq!(
        (&stats["times"]["first"], &stats["not_used"]),
        (&"881250949".into(), &serde_json::json!([])),
        "{stats}"
    );
    let message = girih(&["stats", &data, "--ids-from", "1"]).refused(1);
    assert!(says(&message, "ids of MovieLens always count from 1"), "{message}");
}

#[test]
fn what_cannot_be_sampled_in_time_is_refused() {
    let work = Workspace::new();
    let data = messages(&work);
    fs::write(work.path("plain.csv"), "from,to\n0,1\n1,2\n").unwrap();
    let plain = work.arg("plain.csv");
    let folder = work.arg("folder");
    girih(&["convert", &plain, "--out", &folder]).ok();
    let in_time = ["sample", &data, "--before", "seed"];
    for (command, code, told) in [
        (&["sample", &plain, "--before", "seed"][..], 1, "no column of times"),
        (&["sample", &folder, "--before", "seed"], 1, "no times of edges"),
        (&["sample", &data, "--window", "3d"], 1, "give the bound as well"),
        (&["sample", &data, "--before", "seed", "--until", "seed"], 2, "--until"),
        (&["sample", &data, "--before", "never"], 2, "seed"),
        (&["sample", &data, "--before", "seed", "--window", "3y"], 2, "span of time"),
        (&[&in_time[..], &["--batch", "layer"]].concat(), 2, "--batch neighbor"),
        (&[&in_time[..], &["--ranks", "2"]].concat(), 2, "--ranks"),
        (&[&in_time[..], &["--weighted"]].concat(), 2, "--weighted"),
        (&[&in_time[..], &["--time-strategy", "last", "--replace"]].concat(), 1, "without replacement"),
        (&["train", "--data", &data, "--task", "links", "--before", "seed"], 1, "--batch neighbor"),
        (&["train", "--data", &data, "--before", "seed", "--batch", "neighbor"], 1, "--task links"),
    ] {
        let message = girih(command).refused(code);
        assert!(says(&message, told), "{command:?}: {message}");
    }
}
