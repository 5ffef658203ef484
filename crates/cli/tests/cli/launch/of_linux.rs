//! Ends of launched processes that receive signals, found by `/proc`.

use super::*;

/// Process ids that a launcher has started, in the order of ranks.
fn ranks_of(launcher: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    children.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

/// A rank receives SIGTERM from outside, as when a host is drained.
#[test]
fn any_rank_may_be_asked_for_an_end() {
    let work = Workspace::new();
    let (child, lines) = under_way(&work.arg("out"));
    signal("-TERM", ranks_of(child.id())[2]);
    let result = rest(child, lines).stopped(143).out;
    assert!(result.lines().last().unwrap().contains("\"stopped\":true"), "{result}");
    assert!(work.path("out/run-000.safetensors").is_file());
}

/// Waits until none of the processes lives; orphans may stay as zombies.
fn assert_gone(processes: &[u32]) {
    let start = Instant::now();
    let lives = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
    };
    while processes.iter().any(lives) {
        assert!(start.elapsed() < Duration::from_secs(10), "some are left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_launch_ends_when_a_rank_is_killed() {
    let work = Workspace::new();
    let (child, lines) = under_way(&work.arg("out"));
    let ranks = ranks_of(child.id());
    assert_eq!(ranks.len(), 3);
    signal("-KILL", ranks[2]);
    let start = Instant::now();
    let finished = rest(child, lines);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(finished.code, Some(128 + 9), "{}", finished.err);
    for said in ["rank 2: its process ended without a word", "girih launch: rank 2 was ended by SIGKILL"] {
        assert!(finished.err.contains(said), "{}", finished.err);
    }
    assert_gone(&ranks);
}

/// Ranks that hold patches communicate in every hop of every batch.
#[test]
fn ranks_that_hold_patches_end_with_the_one_that_is_killed_and_resume() {
    let work = Workspace::new();
    let training = |name: &str| {
        let batches = ["--batch", "neighbor", "--batch-size", "128", "--fanout", "4,3", "--layout", "patches"];
        let out = work.arg(name);
        let run = ["--data", SMALL, "--epochs", "40", "--checkpoint-every", "5", "--out", &out, "--json"];
        owned(&[&run[..], &batches].concat())
    };
    let (straight, killed) = (training("straight"), training("killed"));
    let [straight, killed] = [&straight, &killed].map(|all| all.iter().map(String::as_str).collect::<Vec<_>>());
    launch("2", &straight).ok();
    let moment = SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos() as usize;
    let (child, lines) = launched("2", &killed, 6 + moment % 20);
    std::thread::sleep(Duration::from_micros((moment % 10_000) as u64));
    let (ranks, victim) = (ranks_of(child.id()), moment / 100 % 2);
    signal("-KILL", ranks[victim]);
    let start = Instant::now();
    let finished = rest(child, lines);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(finished.code, Some(128 + 9), "{}", finished.err);
    let named = format!("rank {victim}: its process ended without a word");
    assert_eq!(finished.err.matches("its process ended").count(), 1, "{}", finished.err);
    for said in [named, format!("girih launch: rank {victim} was ended by SIGKILL")] {
        assert!(finished.err.contains(&said), "{}", finished.err);
    }
    assert_gone(&ranks);

    launch("2", &[&killed[..], &["--resume"]].concat()).ok();
    let checkpoint = |name: &str| fs::read(work.path(name).join("run-000.safetensors")).unwrap();
    assert!(checkpoint("killed") == checkpoint("straight"), "the checkpoints differ");
    assert_eq!(losses(&work.path("killed/metrics.jsonl")), losses(&work.path("straight/metrics.jsonl")));
}

/// A rank that hangs, without heartbeats, does not delay the end when another one fails.
#[test]
fn ranks_that_hang_are_ended_with_the_others() {
    let work = Workspace::new();
    let (child, lines) = under_way(&work.arg("out"));
    let ranks = ranks_of(child.id());
    signal("-STOP", ranks[1]);
    signal("-KILL", ranks[2]);
    let start = Instant::now();
    let finished = rest(child, lines);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(finished.code, Some(128 + 9), "{}", finished.err);
    assert_gone(&ranks);
}

/// Ranks also notice the end of a killed launcher, and write a checkpoint.
#[test]
fn a_launch_that_is_told_to_end_takes_its_ranks_along() {
    for (name, code) in [("-TERM", Some(143)), ("-KILL", None)] {
        let work = Workspace::new();
        let (child, lines) = under_way(&work.arg("out"));
        let ranks = ranks_of(child.id());
        signal(name, child.id());
        let finished = rest(child, lines);
        assert_eq!(finished.code, code, "{}", finished.err);
        assert_gone(&ranks);
        assert!(work.path("out/run-000.safetensors").is_file(), "{name}: no checkpoint");
    }
}
