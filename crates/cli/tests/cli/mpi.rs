//! Ranks that are processes of MPI: `mpirun -n 4 girih train`.

use std::process::{Command, Output};

use serde_json::Value;

use crate::girih::{SMALL, Workspace, girih};
use crate::recommend::{QUICK, write_tastes};

fn mpirun(n: &str, data: &str, flags: &[&str]) -> Output {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--allow-run-as-root", "-n", n]);
    command.arg(env!("CARGO_BIN_EXE_girih"));
    command.args(["train", "--data", data, "--epochs", "15", "--json"]).args(flags);
    command.output().expect("mpirun starts")
}

fn result(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().last().expect("a result");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn processes_train_what_one_rank_does() {
    let single = girih(&["train", "--data", SMALL, "--epochs", "15", "--json"]).ok().result();
    for flags in [
        &["--ranks", "4"][..],
        &[],
        &["--ranks", "4", "--partition", "1.5d", "--replication", "2"],
        &["--ranks", "4", "--partition", "2d", "--model", "gcn", "--exchange", "rows"],
    ] {
        let shared = result(&mpirun("4", SMALL, flags));
        for key in ["train_loss", "test_loss"] {
            let (a, b) = (single[key].as_f64().unwrap(), shared[key].as_f64().unwrap());
            assert!((a - b).abs() < 1e-4 * a, "{flags:?}: {key} {b}, on one rank {a}");
        }
    }
}

#[test]
fn processes_train_on_mini_batches() {
    let neighbor = ["--batch", "neighbor", "--fanout", "5,5", "--batch-size", "60", "--dropout", "0"];
    let cluster = [
        "--batch",
        "cluster",
        "--clusters",
        "12",
        "--clusters-per-batch",
        "1",
        "--subgraphs-per-step",
        "4",
        "--dropout",
        "0",
    ];
    for (batch, layout) in
        [(&neighbor[..], "replicated"), (&neighbor, "patches"), (&neighbor, "split-features"), (&cluster, "replicated")]
    {
        let single = girih(&[&["train", "--data", SMALL, "--epochs", "15", "--json"], batch].concat()).ok().result();
        let shared = result(&mpirun("4", SMALL, &[batch, &["--layout", layout]].concat()));
        for key in ["train_loss", "test_loss"] {
            let (a, b) = (single[key].as_f64().unwrap(), shared[key].as_f64().unwrap());
            assert!((a - b).abs() < 1e-3 * a, "{batch:?}, {layout}: {key} {b}, on one rank {a}");
        }
    }
}

#[test]
fn processes_train_a_recommender() {
    let work = Workspace::new();
    let tastes = write_tastes(&work);
    let single = girih(&[&["train", "--data", &tastes, "--epochs", "15", "--json"], &QUICK[..]].concat()).ok().result();
    let ranks = ["--ranks", "4", "--partition", "1.5d", "--replication", "2"];
    let shared = result(&mpirun("4", &tastes, &[&ranks[..], &QUICK].concat()));
    let number = |result: &Value, key: &str| result[key].as_f64().unwrap();
    let (a, b) = (number(&single, "train_loss"), number(&shared, "train_loss"));
    assert!((a - b).abs() < 1e-4 * a, "{b}, on one rank {a}");
    let (a, b) = (number(&single, "recall_at_20"), number(&shared, "recall_at_20"));
    assert!((a - b).abs() < 0.02, "{b}, on one rank {a}");
}

#[test]
fn processes_that_do_not_fit_the_plan_end_with_one_message() {
    let output = mpirun("2", SMALL, &["--ranks", "4"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a launcher started 2 processes, one rank each, but --ranks is 4"), "{said}");
}
