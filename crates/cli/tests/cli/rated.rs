//! Features and labels of edges with times, from the command line.

use std::fs;

use crate::girih::{Workspace, girih, says};

/// File of 400 ratings among twenty people, positive for every third of those that are rated.
fn ratings(work: &Workspace) -> String {
    let line = |i: usize| {
        let (from, to) = ((i * 7 + i / 10) % 20, (i * i + i / 7) % 20);
        format!("{from},{to},{},{},{}.25\n", if to % 3 == 0 { 0.5 } else { -1.5 }, i % 4, 1_100_000_000 + 60 * i)
    };
    let text = format!("from,to,rating,kind,time\n{}", (0..400).map(line).collect::<String>());
    fs::write(work.path("ratings.csv"), text).unwrap();
    work.arg("ratings.csv")
}

const GINE: [&str; 16] = [
    "train",
    "--task",
    "links",
    "--model",
    "gine",
    "--batch",
    "neighbor",
    "--fanout",
    "5,5",
    "--features-from",
    "degree",
    "--batch-size",
    "50",
    "--dropout",
    "0",
    "--json",
];
const FEATURES: [&str; 6] = ["--edge-features", "rating,KIND", "--edge-label", "rating", "--time-encoding", "2"];

#[test]
fn signs_of_edges_train_evaluate_and_resume() {
    let work = Workspace::new();
    let (data, out) = (ratings(&work), work.arg("out"));
    let more = ["--data", &data, "--before", "seed", "--epochs", "12", "--lr", "0.01", "--residual", "true"];
    let train = [&GINE[..], &FEATURES, &more].concat();
    let result = girih(&[&train[..], &["--out", &out]].concat()).ok().result();
    assert!(result["test_roc_auc"].as_f64().unwrap() > 0.6, "{result}");
    let config = fs::read_to_string(work.path("out/config.toml")).unwrap();
    assert!(config.contains("[edges]") && config.contains("label = \"rating\""), "{config}");
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

/// Columns by number, all columns and the default features are read as what they are.
#[test]
fn columns_are_named_or_counted() {
    let work = Workspace::new();
    let data = ratings(&work);
    let auc = |flags: &[&str]| {
        let more = ["--data", &data, "--before", "batch", "--epochs", "2"];
        girih(&[&GINE[..], &more, flags].concat()).ok().result()["test_roc_auc"].as_f64().unwrap()
    };
    let by_name = auc(&["--edge-features", "rating,kind"]);
    assert_eq!(auc(&["--edge-features", "3,4"]), by_name);
    assert_eq!(auc(&["--edge-features", "all"]), by_name);
    assert_ne!(auc(&["--edge-features", "kind"]), by_name);
    assert_ne!(auc(&[]), by_name);
}

#[test]
fn features_that_cannot_be_read_are_refused() {
    let work = Workspace::new();
    let data = ratings(&work);
    fs::write(work.path("plain.csv"), "from,to,rating,time\n0,1,x,1\n1,2,1.5,2\n").unwrap();
    let plain = work.arg("plain.csv");
    let in_time = |data| [&GINE[..], &["--data", data, "--before", "seed"]].concat();
    for (command, code, told) in [
        (&[&in_time(&data)[..], &["--edge-features", "price"]].concat()[..], 1, "price"),
        (&[&in_time(&data)[..], &["--edge-features", "9"]].concat(), 1, "9"),
        (&[&in_time(&data)[..], &["--edge-features", "time"]].concat(), 1, "--time-encoding"),
        (&[&in_time(&data)[..], &["--edge-features", "from"]].concat(), 1, "from"),
        (&[&in_time(&plain)[..], &["--edge-features", "rating"]].concat(), 1, "rating"),
        (&[&in_time(&data)[..], &["--edge-label", "kind", "--negatives", "3"]].concat(), 1, "links.negatives"),
        (&["train", "--data", &data, "--model", "sage", "--edge-features", "rating"], 1, "--model gine"),
        (&[&GINE[..], &["--data", &data, "--edge-features", "rating"]].concat(), 1, "--before seed"),
        (&[&GINE[..], &["--data", &data]].concat(), 1, "--model gine without --before"),
    ] {
        let message = girih(command).refused(code);
        assert!(says(&message, told), "{command:?}: {message}");
    }
}
