//! Ranks that are processes: `girih launch`, and the environment variables of other launchers.

#![cfg(unix)]

#[cfg(target_os = "linux")]
mod of_linux;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use girih_comm::tcp;

use crate::girih::{Finished, SMALL, Workspace, command, curve, girih, losses, says, signal};

fn launch(n: &str, train: &[&str]) -> Finished {
    girih(&[&["launch", "--nproc", n, "--", "train"], train].concat())
}

#[test]
fn launched_processes_train_what_threads_do_bit_for_bit() {
    for (n, flags) in [
        ("2", &[][..]),
        ("4", &["--partition", "2d", "--exchange", "rows"]),
        ("4", &["--partition", "1.5d", "--replication", "2", "--ranks", "4", "--model", "gat"]),
        ("3", &["--batch", "neighbor", "--batch-size", "64", "--model", "sage"]),
        (
            "2",
            &[
                "--batch",
                "cluster",
                "--clusters",
                "12",
                "--clusters-per-batch",
                "2",
                "--subgraphs-per-step",
                "2",
                "--model",
                "gat",
            ],
        ),
    ] {
        let train = [&["--data", SMALL, "--epochs", "8", "--json"], flags].concat();
        let threads = curve(girih(&[&["train", "--ranks", n][..], &without_ranks(&train)].concat()));
        assert_eq!(curve(launch(n, &train)), threads, "{n} {flags:?}");
    }
}

/// Writes data to a folder, from which each rank reads its own rows.
fn folder(work: &Workspace, name: &str, spec: &str) -> String {
    let path = work.arg(name);
    girih(&["convert", "--data", spec, "--out", &path]).ok();
    path
}

#[test]
fn ranks_that_read_their_rows_alone_train_the_same_bits() {
    let work = Workspace::new();
    let data = folder(&work, "data", SMALL);
    for (n, flags) in [
        ("3", &[][..]),
        ("4", &["--partition", "2d", "--model", "sage"]),
        ("4", &["--partition", "1.5d", "--replication", "2", "--model", "gat"]),
    ] {
        let train = [&["--epochs", "8", "--json"], flags].concat();
        let of = |data| [&["--data", data], &train[..]].concat();
        let whole = curve(girih(&[&["train", "--ranks", n][..], &of(SMALL)].concat()));
        assert_eq!(curve(launch(n, &of(&data))), whole, "processes, {n} {flags:?}");
        assert_eq!(curve(girih(&[&["train", "--ranks", n][..], &of(&data)].concat())), whole, "threads, {n} {flags:?}");
    }
    // A checkpoint has the same hash of the data as with one process, which can resume from it.
    let out = work.arg("out");
    let train = |epochs| ["--data", &data, "--epochs", epochs, "--out", &out, "--resume", "--json"];
    launch("3", &train("4")).ok();
    girih(&[&["train"][..], &train("6")].concat()).ok();
    launch("2", &train("8")).ok();
}

#[test]
fn processes_apply_what_threads_do_and_one_of_them_writes() {
    let work = Workspace::new();
    let (data, out) = (folder(&work, "data", SMALL), work.arg("out"));
    girih(&["train", "--data", &data, "--epochs", "6", "--out", &out]).ok();
    let apply = |start: &[&str], flags: &[&str]| {
        girih(&[start, &["--data", &data, "--checkpoint", &out, "--json"], flags].concat()).ok().result()
    };
    let launched = apply(&["launch", "--nproc", "3", "--", "evaluate"], &[]);
    assert_eq!(launched, apply(&["evaluate", "--ranks", "3"], &[]));
    let files = [work.arg("threads.npy"), work.arg("processes.npy")];
    apply(&["predict", "--ranks", "3"], &["--out", &files[0], "--logits"]);
    apply(&["launch", "--nproc", "3", "--", "predict"], &["--out", &files[1], "--logits"]);
    assert_eq!(fs::read(&files[0]).unwrap(), fs::read(&files[1]).unwrap());

    let other = work.arg("other");
    girih(&["train", "--data", &data, "--epochs", "6", "--seed", "5", "--out", &other]).ok();
    let checkpoints = [&out, &other];
    let evaluate = |rank: usize| owned(&["evaluate", "--data", &data, "--checkpoint", checkpoints[rank]]);
    for rank in finish(by_hand(&own_variables(2), evaluate)) {
        let said = rank.refused(1);
        assert!(says(&said, "its parameters differ from those of rank 0"), "{said}");
    }
}

#[test]
fn ranks_with_other_or_damaged_data_are_told_before_the_first_step() {
    let work = Workspace::new();
    let other = "synth:planted,nodes=600,degree=9,features=24,classes=4";
    let data = [folder(&work, "data", SMALL), folder(&work, "other", other)];
    let train = |rank: usize| owned(&["train", "--data", &data[rank], "--epochs", "1"]);
    for rank in finish(by_hand(&own_variables(2), train)) {
        let said = rank.refused(1);
        assert!(says(&said, "its data differ from those of rank 0"), "{said}");
    }
    let features = work.path("data/features.npy");
    let mut bytes = fs::read(&features).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&features, bytes).unwrap();
    for rank in finish(by_hand(&own_variables(2), |_| train(0))) {
        let said = rank.refused(1);
        assert!(says(&said, "features.npy: checksum"), "{said}");
    }
}

/// A rank holds at most 1.2 times its share of the data, mapped pages included, plus some numbers per node of the
/// whole graph. The memory of a rank on tiny data is subtracted.
#[cfg(target_os = "linux")]
#[test]
fn a_rank_holds_its_share_of_the_data() {
    const NODES: u64 = 24_000;
    let work = Workspace::new();
    let spec = |nodes: u64| format!("synth:planted,nodes={nodes},degree=8,features=1024,classes=4");
    let (small, large) = (folder(&work, "small", &spec(400)), folder(&work, "large", &spec(NODES)));
    let peak = |data: &str| {
        let train = ["--data", data, "--epochs", "1", "--hidden", "4", "--json"];
        launch("4", &train).ok().result()["peak_host_bytes"].as_u64().unwrap()
    };
    let sizes =
        |data: &str| fs::read_dir(data).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>();
    let (taken, share) = (peak(&large).saturating_sub(peak(&small)), sizes(&large) / 4);
    let most = share * 12 / 10 + 64 * NODES;
    assert!(taken <= most, "{taken} bytes for a share of {share}, at most {most}");
}

fn without_ranks<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let place = flags.iter().position(|flag| *flag == "--ranks");
    let is_left = |i: usize| place.is_none_or(|place| i != place && i != place + 1);
    flags.iter().enumerate().filter(|(i, _)| is_left(*i)).map(|(_, flag)| *flag).collect()
}

/// Starts processes directly, each with its own variables.
fn by_hand(all: &[Vec<(&str, String)>], args: impl Fn(usize) -> Vec<String>) -> Vec<Child> {
    let start = |(rank, variables): (usize, &Vec<(&str, String)>)| {
        let mut command = command(&args(rank));
        command.envs(variables.iter().cloned()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    all.iter().enumerate().map(start).collect()
}

fn own_variables(n: usize) -> Vec<Vec<(&'static str, String)>> {
    let place = tcp::local_rendezvous().unwrap();
    let of = |rank: usize| {
        vec![("GIRIH_RANK", rank.to_string()), ("GIRIH_SIZE", n.to_string()), ("GIRIH_RENDEZVOUS", place.clone())]
    };
    (0..n).map(of).collect()
}

fn finish(children: Vec<Child>) -> Vec<Finished> {
    children.into_iter().map(|child| Finished::new(child.wait_with_output().unwrap())).collect()
}

fn owned(args: &[&str]) -> Vec<String> {
    args.iter().map(ToString::to_string).collect()
}

#[test]
fn variables_of_other_launchers_do_the_same() {
    let train = ["train", "--data", SMALL, "--epochs", "8", "--json"];
    let threads = curve(girih(&[&train[..], &["--ranks", "3"]].concat()));
    for names in [
        ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
        ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
        ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ] {
        let place = tcp::local_rendezvous().unwrap();
        let (host, port) = place.rsplit_once(':').unwrap();
        let variables = |rank: usize| {
            let numbers = names.into_iter().zip([rank, 3, rank].map(|number| number.to_string()));
            let others = [("MASTER_ADDR", host), ("MASTER_PORT", port), ("SLURM_STEP_ID", "0")];
            numbers.chain(others.map(|(name, value)| (name, value.to_owned()))).collect()
        };
        let all: Vec<Vec<(&str, String)>> = (0..3).map(variables).collect();
        let mut finished = finish(by_hand(&all, |_| owned(&train)));
        for other in finished.drain(1..) {
            let other = other.ok();
            assert_eq!((other.out.as_str(), other.err.as_str()), ("", ""), "the first one speaks");
        }
        assert_eq!(curve(finished.remove(0)), threads, "{names:?}");
    }
}

/// Kills rank `victim` after some epochs. Returns the output of the others, and the time until they ended.
fn kill_one(out: &str, victim: usize, n_lines: usize) -> (Vec<Finished>, Duration) {
    let args = |_| owned(&training(out));
    let mut children = by_hand(&own_variables(3), args);
    let mut lines = BufReader::new(children[0].stdout.take().unwrap());
    for _ in 0..n_lines {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    children[victim].kill().unwrap();
    let start = Instant::now();
    lines.read_to_string(&mut String::new()).unwrap();
    let mut finished = finish(children);
    finished.remove(victim);
    (finished, start.elapsed())
}

fn training(out: &str) -> Vec<&str> {
    vec!["train", "--data", SMALL, "--epochs", "150", "--checkpoint-every", "10", "--out", out, "--json"]
}

#[test]
fn when_a_rank_is_killed_all_name_it_and_training_resumes() {
    let work = Workspace::new();
    let straight = work.arg("straight");
    girih(&[&training(&straight)[..], &["--ranks", "3"]].concat()).ok();
    let checkpoint = |folder: &str| fs::read(work.path(folder).join("run-000.safetensors")).unwrap();
    for victim in 0..3 {
        let name = format!("killed{victim}");
        let out = work.arg(&name);
        let moment = SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos() as usize;
        let (others, took) = kill_one(&out, victim, 11 + moment % 60);
        assert!(took < Duration::from_secs(10), "{took:?}");
        for other in others {
            let what = format!("rank {victim}: its process ended without a word");
            assert!(other.code == Some(1) && other.err.contains(&what), "{:?}: {}", other.code, other.err);
        }
        launch("3", &[&training(&out)[1..], &["--resume"]].concat()).ok();
        assert!(checkpoint(&name) == checkpoint("straight"), "the checkpoints differ");
        assert_eq!(losses(&work.path(&name).join("metrics.jsonl")), losses(&work.path("straight/metrics.jsonl")));
    }
}

#[test]
fn ranks_that_differ_are_told_before_the_first_step() {
    let work = Workspace::new();
    let told = |args: &dyn Fn(usize) -> Vec<String>| {
        let finished = finish(by_hand(&own_variables(2), args));
        finished.into_iter().map(|rank| rank.refused(1)).collect::<Vec<_>>()
    };
    let train = |rank: usize, flags: [&str; 2]| {
        let all = owned(&["train", "--data", SMALL, "--epochs", "3"]);
        if rank == 1 { [all, owned(&flags)].concat() } else { all }
    };
    for said in told(&|rank| train(rank, ["--hidden", "7"])) {
        assert!(says(&said, "its settings differ from those of rank 0"), "{said}");
    }
    for said in told(&|rank| train(rank, ["--features", "/nowhere/x.npy"])) {
        assert!(says(&said, "rank 1: ") && says(&said, "/nowhere/x.npy"), "{said}");
    }
    // The folder may have different contents on each host.
    let folders = [work.arg("here"), work.arg("there")];
    girih(&["train", "--data", SMALL, "--epochs", "2", "--out", &folders[1]]).ok();
    let resume = |rank: usize| owned(&["train", "--data", SMALL, "--epochs", "3", "--resume", "--out", &folders[rank]]);
    for said in told(&resume) {
        assert!(says(&said, "rank 1: it goes on from another checkpoint than rank 0"), "{said}");
    }
}

#[test]
fn variables_that_make_no_sense_are_refused() {
    let refused = |variables: &[(&str, &str)], flags: &[&str]| {
        let mut command = command(&[&["train", "--data", SMALL, "--epochs", "1"], flags].concat());
        Finished::new(command.envs(variables.iter().copied()).output().unwrap()).refused(2)
    };
    let two = [("RANK", "0"), ("WORLD_SIZE", "2")];
    assert!(says(&refused(&two[..1], &[]), "the environment variable WORLD_SIZE is not set, but RANK is"));
    assert!(says(
        &refused(&two, &["--rendezvous", "a:1", "--ranks", "4"]),
        "a launcher started 2 processes, one rank each, but --ranks is 4"
    ));
    assert!(says(&refused(&two, &["--plan", "--rendezvous", "a:1"]), "call it alone"));
    let peer = ["--transport", "peer", "--rendezvous", "a:1"];
    assert!(says(&refused(&two, &peer), "--transport peer is for the GPUs of one process"));
    assert!(says(&refused(&[], &["--rendezvous", "a:1"]), "no launcher says which of them this is"));
    let pmi = [("PMI_RANK", "0"), ("PMI_SIZE", "2")];
    for unmet in [&two[..], if cfg!(feature = "mpi") { &two } else { &pmi }] {
        assert!(says(&refused(unmet, &[]), "2 processes were started together"), "{unmet:?}");
    }
    let mut alone = command(&["train", "--data", SMALL, "--epochs", "1", "--ranks", "2"]);
    Finished::new(alone.env("RANK", "0").env("WORLD_SIZE", "1").output().unwrap()).ok();
}

#[test]
fn ranks_that_do_not_meet_say_so() {
    let mut ranks = own_variables(3);
    ranks.remove(1);
    let args = |_| owned(&["train", "--data", SMALL, "--epochs", "1", "--rank-deadline", "1"]);
    for rank in finish(by_hand(&ranks, args)) {
        assert!(says(&rank.refused(1), "ranks cannot start together: rank 1 did not come to 127."));
    }
}

#[test]
fn launches_that_cannot_be_meant_are_refused() {
    let refusal = |flags: &[&str]| girih(&[&["launch"], flags].concat()).refused(2);
    assert!(says(&refusal(&["--nproc", "2", "--", "stats", "--data", SMALL]), "girih launch starts `train`"));
    assert!(says(&refusal(&["--nproc", "2", "--", "train", "--ranks", "3"]), "--ranks 3 with 2 processes"));
    assert!(says(&refusal(&["--nproc", "2", "--", "train", "--plan"]), "call it alone"));
    assert!(says(&refusal(&["--nproc", "2", "--nodes", "2", "--", "train"]), "give --rendezvous HOST:PORT"));
    let beyond = ["--nproc", "2", "--nodes", "2", "--node", "2", "--rendezvous", "a:1", "--", "train"];
    assert!(says(&refusal(&beyond), "hosts are counted from 0"));
    // The address belongs to no host here: it is reserved for documentation (RFC 5737).
    let open = ["--nproc", "2", "--nodes", "2", "--rendezvous", "192.0.2.1:4000"];
    for part in ["openssl rand -hex 32", "chmod 600", "--secret-file FILE"] {
        let said = refusal(&[&open[..], &["--", "train"]].concat());
        assert!(says(&said, part), "{said}");
    }
    for flags in [
        &["--nproc", "0", "--", "train"][..],
        &["--nproc", "2"],
        &["--", "train"],
        &["--nproc", "2", "--", "train", "--hidden", "many"],
    ] {
        refusal(flags);
    }
}

#[test]
fn a_failure_of_all_ranks_is_the_status_of_the_launch() {
    let finished = launch("2", &["--data", "/nowhere"]);
    assert_eq!((finished.code, finished.out.as_str()), (Some(1), ""), "{}", finished.err);
    assert!(finished.err.contains("girih launch: rank") && finished.err.contains("[rank 1] "), "{}", finished.err);
    let usage = launch("2", &["--data", SMALL, "--partition", "2d"]);
    assert_eq!(usage.code, Some(2), "{}", usage.err);
    assert_eq!(usage.err.matches("form no square").count(), 1, "said once: {}", usage.err);
}

/// Two hosts of two ranks each, both on this machine.
#[test]
fn several_hosts_make_one_world() {
    let place = tcp::local_rendezvous().unwrap();
    let train = ["train", "--data", SMALL, "--epochs", "8", "--json"];
    let host = |node: &str| {
        let flags = ["launch", "--nproc", "2", "--nodes", "2", "--node", node, "--rendezvous", &place, "--"];
        let mut command = command(&[&flags[..], &train].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut finished = finish(vec![host("0"), host("1")]);
    assert_eq!(finished.remove(1).ok().out, "");
    assert_eq!(curve(finished.remove(0)), curve(girih(&[&train[..], &["--ranks", "4"]].concat())));
}

/// A different secret is detected before training, and is never printed.
#[test]
fn hosts_recognise_each_other_by_their_secret() {
    use std::os::unix::fs::PermissionsExt;

    let work = Workspace::new();
    let digits = ["5a".repeat(32), "a5".repeat(32)];
    let files = ["one", "other"].map(|name| work.arg(name));
    for (file, digits) in files.iter().zip(&digits) {
        fs::write(file, format!("{digits}\n")).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let train = ["train", "--data", SMALL, "--epochs", "8", "--rank-deadline", "10"];
    let json = [&train[..], &["--json"]].concat();
    let hosts = |secrets: [&str; 2], train: &[&str]| {
        let place = tcp::local_rendezvous().unwrap();
        let host = |(node, secret): (usize, &str)| {
            let node = node.to_string();
            let flags = ["launch", "--nproc", "1", "--nodes", "2", "--node", &node, "--rendezvous", &place];
            let mut command = command(&[&flags[..], &["--secret-file", secret, "--"], train].concat());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        finish(secrets.into_iter().enumerate().map(host).collect())
    };
    let mut same = hosts([&files[0], &files[0]], &json);
    assert_eq!(same.remove(1).ok().out, "");
    assert_eq!(curve(same.remove(0)), curve(girih(&[&json[..], &["--ranks", "2"]].concat())));

    let [zero, one] = hosts([&files[0], &files[1]], &train).try_into().unwrap_or_else(|_| panic!("two hosts"));
    let (zero, one) = (zero.refused(1), one.refused(1));
    assert!(says(&one, "with another secret"), "{one}");
    assert!(says(&zero, "1 connection was turned away: another secret"), "{zero}");
    assert!(digits.iter().all(|digits| !zero.contains(digits) && !one.contains(digits)), "{zero} {one}");

    fs::set_permissions(&files[0], fs::Permissions::from_mode(0o644)).unwrap();
    let open = girih(&["launch", "--nproc", "2", "--secret-file", &files[0], "--", "train"]).refused(2);
    assert!(says(&open, "is open to other users (mode 644): chmod 600"), "{open}");
}

/// Launch that has printed `n_epochs` epochs, with the rest of its output.
fn launched(n: &str, train: &[&str], n_epochs: usize) -> (Child, BufReader<std::process::ChildStdout>) {
    let args = [&["launch", "--nproc", n, "--", "train"], train].concat();
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..n_epochs {
        assert!(lines.read_line(&mut String::new()).unwrap() > 0, "it ended early");
    }
    (child, lines)
}

fn under_way(out: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    launched("3", &["--data", SMALL, "--epochs", "100000", "--out", out, "--json"], 1)
}

fn rest(child: Child, mut lines: BufReader<std::process::ChildStdout>) -> Finished {
    let mut out = String::new();
    lines.read_to_string(&mut out).unwrap();
    Finished { out, ..Finished::new(child.wait_with_output().unwrap()) }
}

#[test]
fn ctrl_c_ends_a_launch_after_the_epoch() {
    let work = Workspace::new();
    let (child, lines) = under_way(&work.arg("out"));
    signal("-INT", child.id());
    let finished = rest(child, lines).stopped(130);
    assert!(finished.err.contains("launch --nproc 3 -- train --resume --data"), "{}", finished.err);
    assert!(!finished.err.contains("failed"), "{}", finished.err);
    let result = finished.out;
    assert!(result.lines().last().unwrap().contains("\"stopped\":true"), "{result}");
    assert!(work.path("out/run-000.safetensors").is_file());
}
