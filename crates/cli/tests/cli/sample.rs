//! `girih sample`: batches are those of a seed, whoever makes them.

use serde_json::Value;

use crate::girih::{SMALL, Workspace, assert_keys, girih, says};

fn sampled(flags: &[&str]) -> Value {
    girih(&[&["sample", "--data", SMALL, "--json"], flags].concat()).ok().result()
}

#[test]
fn batches_are_counted_timed_and_hashed() {
    let flags = ["--batch-size", "50", "--fanout", "4,2", "--relabel", "to-block-fast"];
    let result = sampled(&flags);
    assert_keys(
        &result,
        &[
            "batches",
            "edges_per_batch",
            "inputs_per_batch",
            "batch_ms_median",
            "sample_ms_median",
            "relabel_ms_median",
            "edges_per_s",
            "digest",
        ],
    );
    let [seeds, batches] = ["seeds", "batches"].map(|key| result[key].as_u64().unwrap());
    assert_eq!(batches, seeds.div_ceil(50), "every seed is in a batch");
    let shown = girih(&[&["sample", "--data", SMALL], &flags[..]].concat()).ok().out;
    assert!(shown.contains("Edges a batch") && shown.contains(result["digest"].as_str().unwrap()), "{shown}");
}

#[test]
fn threads_and_ways_to_relabel_make_the_same_batches() {
    let flags = ["--fanout", "5,-1", "--batch-size", "64", "--epochs", "2"];
    let of = |more: &[&str]| sampled(&[&flags, more].concat())["digest"].clone();
    let digest = of(&["--threads", "1"]);
    for relabel in ["to-block", "to-block-fast", "fused", "rank"] {
        for threads in ["1", "3"] {
            assert_eq!(of(&["--relabel", relabel, "--threads", threads]), digest, "{relabel}, {threads} threads");
        }
    }
    for other in [&["--seed", "1"][..], &["--replace"], &["--expand", "once"], &["--global-inputs"]] {
        assert_ne!(of(other), digest, "{other:?}");
    }
}

#[test]
fn edges_are_drawn_by_their_weights() {
    let work = Workspace::new();
    // Node 0 has two neighbours, one of which weighs nothing.
    std::fs::write(work.path("weights.mtx"), "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 1.5\n1 3 0\n")
        .unwrap();
    let data = work.arg("weights.mtx");
    let of = |flags: &[&str]| girih(&[&["sample", "--data", &data, "--fanout", "-1", "--json"], flags].concat());
    assert_eq!(of(&[]).ok().result()["edges_per_batch"], 2.0);
    assert_eq!(of(&["--weighted"]).ok().result()["edges_per_batch"], 1.0);
}

#[test]
fn what_cannot_be_sampled_is_refused() {
    let refused = |flags: &[&str], code| girih(&[&["sample", "--data", SMALL], flags].concat()).refused(code);
    assert!(says(&refused(&["--fanout", "15,ten"], 2), "ten"));
    assert!(says(&refused(&["--fanout", "5,-2"], 2), "-2"));
    assert!(says(&refused(&["--batch-size", "0"], 2), "--batch-size"));
    assert!(says(&refused(&["--relabel", "sort"], 2), "to-block-fast"));
    assert!(says(&refused(&["--weighted"], 1), "weights"));
}
