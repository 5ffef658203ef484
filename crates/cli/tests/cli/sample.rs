//! `girih sample`: batches depend on the seed alone, not on threads or ranks.

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
            "inputs_of_batch_before",
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
fn inputs_shared_with_the_previous_batch_are_counted() {
    let share = |flags: &[&str]| sampled(flags)["inputs_of_batch_before"].as_f64();
    // With all neighbors of so many hops, every batch reads the whole graph, except for isolated nodes.
    let all = share(&["--batch-size", "50", "--fanout", "-1,-1,-1,-1,-1,-1"]);
    assert!(all.is_some_and(|share| share > 0.99 && share <= 1.0), "{all:?}");
    let some = share(&["--batch-size", "50", "--fanout", "4,2", "--threads", "1"]);
    assert!(some.is_some_and(|share| share > 0.0 && share < 1.0), "{some:?}");
    assert_eq!(share(&["--batch-size", "50", "--fanout", "4,2", "--threads", "3"]), some);
    assert_eq!(share(&["--batch-size", "1000000", "--fanout", "4,2"]), None, "one batch has none before it");
    assert_eq!(share(&["--batch", "cluster", "--clusters", "9", "--clusters-per-batch", "2"]), None);
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

/// The samplers of all kinds of batches, selected by flags, with the same batches on any number of threads.
#[test]
fn every_sampler_makes_its_own_batches() {
    let kinds: [&[&str]; 9] = [
        &["--batch", "neighbor", "--fanout", "4,2"],
        &["--batch", "neighbor", "--fanout", "4,2", "--draws", "layer"],
        &["--batch", "neighbor", "--fanout", "4,2", "--draws", "labor"],
        &["--batch", "layer", "--fanout", "40,30"],
        &["--batch", "layer", "--fanout", "40,30", "--importance", "fastgcn"],
        &["--batch", "cluster", "--clusters", "9", "--clusters-per-batch", "2"],
        &["--batch", "saint", "--saint", "node", "--batch-size", "60"],
        &["--batch", "saint", "--saint", "edge", "--batch-size", "60"],
        &["--batch", "saint", "--walk-length", "3", "--batch-size", "20"],
    ];
    let mut digests = Vec::new();
    for flags in kinds {
        let [one, three] = ["1", "3"].map(|threads| sampled(&[flags, &["--threads", threads]].concat()));
        assert_eq!(one["digest"], three["digest"], "{flags:?}");
        assert_eq!(one["batch"], flags[1]);
        assert!(one["batches"].as_u64() > Some(0) && one["edges_per_batch"].as_f64() > Some(0.0), "{flags:?}: {one}");
        digests.push(one["digest"].as_str().unwrap().to_owned());
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), kinds.len(), "no two samplers made the same batches");
    let clusters = sampled(kinds[5]);
    assert_eq!(clusters["batches"], 5, "every cluster is in a batch: {clusters}");
}

#[test]
fn ranks_that_share_patches_make_the_same_batches() {
    let flags = ["--fanout", "5,3", "--batch-size", "64", "--patches", "4"];
    let of = |ranks: &str, more: &[&str]| sampled(&[&flags[..], &["--ranks", ranks], more].concat());
    for more in [
        &[][..],
        &["--replace"],
        &["--draws", "layer"],
        &["--draws", "labor"],
        &["--expand", "once"],
        &["--global-inputs"],
        &["--cut", "ranges"],
    ] {
        let whole = of("1", &[&["--layout", "replicated"], more].concat());
        for ranks in ["1", "2", "3", "4"] {
            let shared = of(ranks, more);
            assert_eq!(shared["digest"], whole["digest"], "{ranks} ranks, {more:?}");
            assert_eq!(shared["reshuffle_bytes"].as_f64() > Some(0.0), ranks != "1", "{ranks} ranks, {more:?}");
        }
    }
    // A rank that holds the whole graph draws alone, and requests only features.
    let split = of("3", &["--layout", "split-features"]);
    assert_eq!(split["digest"], of("1", &["--layout", "replicated"])["digest"]);
    assert!(split.get("reshuffle_bytes").is_none() && split["row_bytes"].as_f64() > Some(0.0), "{split}");
    let shared = of("4", &[]);
    assert_keys(&shared, &["batches", "own_frontier", "own_rows", "shuffle_bytes", "reshuffle_bytes", "row_bytes"]);
    let plain = ["--fanout", "5,3", "--batch-size", "64"];
    let one = sampled(&[&plain[..], &["--ranks", "1", "--patches", "1"]].concat());
    assert_eq!(one["digest"], sampled(&plain)["digest"], "one patch is the graph as it is");
    assert_eq!(one["batches"], shared["batches"]);
}

#[test]
fn invalid_settings_of_ranks_are_refused() {
    for (flags, told) in [
        (&["--ranks", "2", "--batch", "cluster"][..], "cluster batches"),
        (&["--ranks", "3", "--patches", "2"], "2 patches cannot be dealt to 3 ranks"),
        (&["--layout", "patches"], "--ranks"),
        (&["--ranks", "2", "--threads", "2"], "leave it or --ranks out"),
        (&["--ranks", "2", "--plan"], "leave it or --ranks out"),
        (&["--threads", "2", "--layout", "patches"], "--ranks <N>"),
        (&["--threads", "2", "--cut", "ranges", "--patches", "7"], "--ranks <N>"),
        (&["--plan", "--layout", "patches"], "--ranks <N>"),
        (&["--plan", "--patches", "3"], "--ranks <N>"),
        (&["--plan", "--cut", "ranges"], "--ranks <N>"),
        (&["--ranks", "2", "--gpus", "2"], "--plan"),
        (&["--ranks", "2", "--codec", "int8"], "--plan"),
    ] {
        let message = girih(&[&["sample", "--data", SMALL], flags].concat()).refused(2);
        assert!(says(&message, told), "{message}");
    }
}

#[test]
fn edges_are_drawn_by_their_weights() {
    let work = Workspace::new();
    // Node 0 has two neighbors, one of which has weight zero.
    std::fs::write(work.path("weights.mtx"), "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 1.5\n1 3 0\n")
        .unwrap();
    let data = work.arg("weights.mtx");
    let of = |flags: &[&str]| girih(&[&["sample", "--data", &data, "--fanout", "-1", "--json"], flags].concat());
    assert_eq!(of(&[]).ok().result()["edges_per_batch"], 2.0);
    assert_eq!(of(&["--weighted"]).ok().result()["edges_per_batch"], 1.0);
}

#[test]
fn invalid_settings_of_samplers_are_refused() {
    let refused = |flags: &[&str], code| girih(&[&["sample", "--data", SMALL], flags].concat()).refused(code);
    assert!(says(&refused(&["--fanout", "15,ten"], 2), "ten"));
    assert!(says(&refused(&["--fanout", "5,-2"], 2), "-2"));
    assert!(says(&refused(&["--batch-size", "0"], 2), "--batch-size"));
    assert!(says(&refused(&["--relabel", "sort"], 2), "to-block-fast"));
    assert!(says(&refused(&["--weighted"], 1), "weights"));
    assert!(says(&refused(&["--batch", "full"], 2), "neighbor"));
    assert!(says(&refused(&["--batch", "saint", "--relabel", "rank"], 2), "--relabel is for neighbor batches"));
    assert!(says(&refused(&["--importance", "fastgcn"], 2), "--importance is for layer batches"));
    assert!(says(&refused(&["--draws", "labor", "--replace"], 1), "LABOR"));
    assert!(says(&refused(&["--batch", "cluster", "--batch-size", "3"], 2), "--batch-size is for neighbor, layer"));
    assert!(says(&refused(&["--batch", "cluster", "--fanout", "3"], 1), "batch.fanout"));
    assert!(says(&refused(&["--batch", "saint", "--clusters", "3"], 1), "batch.clusters"));
    let draws = ["--batch", "saint", "--saint", "node", "--batch-size", "4000000000"];
    assert!(says(&refused(&draws, 1), "draw at most 16777216"));
}

/// Result of `girih sample --plan` with batches of a small graph, on devices that are not present.
fn planned(flags: &[&str]) -> Value {
    sampled(&[&["--plan", "--fanout", "4,2", "--batch-size", "50", "--training-memory", "1MB"], flags].concat())
}

#[test]
fn plans_name_every_tier_with_expected_and_measured_hits() {
    let plan = planned(&["--memory", "1.03MB", "--gpus", "2", "--host-memory", "50KB"]);
    assert_keys(&plan, &["predicted_ms", "topology_bytes", "feature_bytes", "host_bytes", "in_patches", "tiers"]);
    for part in ["topology", "features"] {
        let tiers: Vec<&Value> = plan["tiers"].as_array().unwrap().iter().filter(|tier| tier["part"] == part).collect();
        for key in ["expected_hits", "measured_hits"] {
            let sum: f64 = tiers.iter().map(|tier| tier[key].as_f64().unwrap()).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{part}, {key}: {sum}");
        }
        let nodes: u64 = tiers.iter().map(|tier| tier["nodes"].as_u64().unwrap()).sum();
        assert_eq!(Some(nodes), plan["nodes"].as_u64());
    }
    let bytes = |key: &str| plan[key].as_u64().unwrap();
    assert!(bytes("training_bytes") + bytes("topology_bytes") + bytes("feature_bytes") <= bytes("memory_bytes"));
}

#[test]
fn plans_are_the_same_on_any_number_of_threads() {
    for hotness in ["degree", "pagerank", "reverse-pagerank", "presampled"] {
        let of = |threads| planned(&["--memory", "1.05MB", "--hotness", hotness, "--threads", threads]);
        assert_eq!(of("1"), of("3"), "{hotness}");
    }
}

#[test]
fn codecs_and_shares_change_what_fits() {
    let on_gpu = |flags: &[&str]| {
        let plan = planned(&[&["--memory", "1.1MB"], flags].concat());
        let is_cached = |tier: &&Value| tier["part"] == "features" && tier["tier"] == "every-gpu";
        plan["tiers"].as_array().unwrap().iter().find(is_cached).map_or(0, |tier| tier["nodes"].as_u64().unwrap())
    };
    assert!(on_gpu(&["--codec", "int8", "--cache-share", "0.2"]) > on_gpu(&["--cache-share", "0.2"]));
    assert_eq!(on_gpu(&["--cache-share", "0"]), 0);
}

#[test]
fn placements_that_do_not_fit_are_refused_with_bytes_and_remedies() {
    let refused = |flags: &[&str], code| {
        girih(&[&["sample", "--data", SMALL, "--plan", "--fanout", "4,2"], flags].concat()).refused(code)
    };
    let training = refused(&["--memory", "1MB"], 1);
    for part in ["training alone needs", "1000000 bytes", "a smaller --batch-size"] {
        assert!(says(&training, part), "{training}");
    }
    let no_host = ["--memory", "1.001MB", "--training-memory", "1MB", "--host-memory", "1KB"];
    assert!(says(&refused(&no_host, 1), "give the host "));
    assert!(says(&refused(&["--batch", "layer"], 2), "--plan is for neighbor batches"));
    assert!(says(&refused(&["--global-inputs"], 1), "local columns"));
    assert!(says(&girih(&["sample", "--data", SMALL, "--cache-share", "0.5"]).refused(2), "--plan"));
}
