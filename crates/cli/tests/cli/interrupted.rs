//! Training that is stopped, killed, or runs out of disk: files on disk stay intact, and `--resume` gives the results
//! of an uninterrupted session.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::girih::{Finished, SMALL, Workspace, command, girih, losses, names_in, says, signal, within};

/// More epochs than a pipe holds lines: a child whose output is not read cannot finish before it is stopped.
const EPOCHS: &str = "900";
const N_EPOCHS: usize = 900;

fn arguments(out: &str) -> Vec<&str> {
    vec!["train", "--data", SMALL, "--epochs", EPOCHS, "--checkpoint-every", "10", "--out", out, "--json"]
}

/// Starts a training session and reads `n_lines` epochs. It blocks at the latest when its pipe is full.
fn start_and_read(args: &[&str], n_lines: usize) -> (Child, BufReader<ChildStdout>) {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..n_lines {
        let mut line = String::new();
        assert!(out.read_line(&mut line).unwrap() > 0, "the session ended early");
    }
    (child, out)
}

/// Resumes in `out` and compares everything with an uninterrupted session.
fn assert_resumes_to_the_same_end(work: &Workspace) {
    let (out, straight) = (work.arg("out"), work.arg("straight"));
    let resumed = girih(&[arguments(&out), vec!["--resume"]].concat()).ok().result();
    let wanted = girih(&arguments(&straight)).ok().result();
    for key in ["train_loss", "test_accuracy", "test_loss", "epochs", "stopped"] {
        assert_eq!(resumed[key], wanted[key], "{key}");
    }
    let curve = losses(&work.path("straight/metrics.jsonl"));
    assert_eq!(curve.len(), N_EPOCHS);
    assert!(losses(&work.path("out/metrics.jsonl")) == curve, "the curves differ");
    let checkpoint = |folder: &str| fs::read(work.path(folder).join("run-000.safetensors")).unwrap();
    assert!(checkpoint("out") == checkpoint("straight"), "the checkpoints differ");
}

#[test]
fn ctrl_c_stops_after_the_epoch_and_resume_goes_on() {
    stops_after_the_epoch_and_goes_on("-INT", 130);
}

/// Cluster schedulers send SIGTERM at the end of a job's time.
#[test]
fn sigterm_stops_after_the_epoch_and_resume_goes_on() {
    stops_after_the_epoch_and_goes_on("-TERM", 143);
}

fn stops_after_the_epoch_and_goes_on(name: &str, status: i32) {
    let work = Workspace::new();
    let out = work.arg("out");
    let (child, mut rest) = start_and_read(&arguments(&out), 5);
    signal(name, child.id());
    let mut text = String::new();
    rest.read_to_string(&mut text).unwrap();
    let finished = Finished { out: text, ..Finished::new(child.wait_with_output().unwrap()) }.stopped(status);
    let result = finished.result();
    assert_eq!(result["stopped"], true, "{result}");
    assert!(result["continue"].as_str().unwrap().contains("train --resume --data"), "{result}");
    let epochs = result["epochs"].as_u64().unwrap() as usize;
    assert!((5..N_EPOCHS).contains(&epochs), "{epochs} epochs");
    assert_eq!(losses(&work.path("out/metrics.jsonl")).len(), epochs);
    assert!(work.path("out/run-000.safetensors").is_file());
    assert_resumes_to_the_same_end(&work);
}

/// The first signal waits for the epoch, here until the output is read; the second one does not wait.
#[test]
fn a_second_signal_ends_at_once() {
    let work = Workspace::new();
    let out = work.arg("out");
    let args = ["train", "--data", SMALL, "--epochs", "1000000", "--out", &out, "--json"];
    let (mut child, _rest) = start_and_read(&args, 2);
    // The pipe is full after this time.
    std::thread::sleep(Duration::from_secs(4));
    signal("-INT", child.id());
    std::thread::sleep(Duration::from_secs(1));
    assert!(child.try_wait().unwrap().is_none(), "it waits for its epoch to be printed");
    signal("-INT", child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(2));
}

/// An epoch has so many batches that the signal arrives in the middle of one.
#[test]
fn ctrl_c_stops_after_a_batch_and_resume_goes_on() {
    let work = Workspace::new();
    let train = |out: &str| {
        let args =
            ["train", "--data", SMALL, "--batch", "neighbor", "--batch-size", "1", "--epochs", "60", "--out", out];
        [&args[..], &["--json"]].concat().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (out, straight) = (work.arg("out"), work.arg("straight"));
    let args = train(&out);
    let (child, mut rest) = start_and_read(&args.iter().map(String::as_str).collect::<Vec<_>>(), 2);
    signal("-INT", child.id());
    let mut text = String::new();
    rest.read_to_string(&mut text).unwrap();
    let stopped = Finished { out: text, ..Finished::new(child.wait_with_output().unwrap()) }.stopped(130).result();
    assert_eq!(stopped["stopped"], true, "{stopped}");
    girih(&[args, vec!["--resume".to_owned()]].concat()).ok();
    girih(&train(&straight)).ok();
    let checkpoint = |folder: &str| fs::read(work.path(folder).join("run-000.safetensors")).unwrap();
    assert!(checkpoint("out") == checkpoint("straight"), "the checkpoints differ");
}

#[cfg(unix)]
#[test]
fn one_session_at_a_time_trains_into_a_folder() {
    let work = Workspace::new();
    let out = work.arg("out");
    let args = ["train", "--data", SMALL, "--epochs", "1000000", "--out", &out, "--json"];
    let (mut child, _rest) = start_and_read(&args, 2);
    for flags in [&["--resume"][..], &["--resume", "--epochs", "2"]] {
        let message = girih(&[&["train", "--out", &out], flags].concat()).refused(1);
        assert!(says(&message, &out) && says(&message, "another process"), "{message}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    girih(&["train", "--out", &out, "--resume", "--epochs", "3"]).ok();
    assert_eq!(losses(&work.path("out/metrics.jsonl")).len(), 3);
}

/// Commands that write one file end at once, because an incomplete file is useless. The signals arrive at the start
/// and while arrays are written one after the other.
#[test]
fn a_signal_ends_other_commands_without_a_trace() {
    for wait in [0, 5, 10, 20, 40].map(Duration::from_millis) {
        for (name, number) in [("-INT", 2), ("-TERM", 15)] {
            let work = Workspace::new();
            let spec = "planted,nodes=100000,degree=10,features=256";
            let mut child = command(&["generate", spec, "--out", &work.arg("graph")]).spawn().unwrap();
            let unfinished = || names_in(work.folder()).iter().any(|name| name.starts_with(".girih-"));
            while !unfinished() {
                assert!(child.try_wait().unwrap().is_none(), "it ended before it wrote");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(wait);
            signal(name, child.id());
            assert_eq!(child.wait().unwrap().signal(), Some(number), "{name} after {wait:?}");
            assert_eq!(names_in(work.folder()), Vec::<String>::new(), "{name} after {wait:?}");
        }
    }
}

#[test]
fn a_finished_session_that_is_resumed_keeps_its_result() {
    let work = Workspace::new();
    let args = ["train", "--data", SMALL, "--epochs", "4", "--out", &work.arg("out"), "--json"];
    let first = girih(&args).ok().result();
    let again = girih(&[&args[..], &["--resume"]].concat()).ok().result();
    for key in ["epoch_ms_median", "epoch_ms_min", "test_accuracy", "train_loss", "epochs"] {
        assert!(!first[key].is_null() && again[key] == first[key], "{key}: {} and {}", first[key], again[key]);
    }
}

#[test]
fn a_killed_session_resumes_from_its_last_checkpoint() {
    let work = Workspace::new();
    let out = work.arg("out");
    let (mut child, _rest) = start_and_read(&arguments(&out), 25);
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(work.path("out/run-000.safetensors").is_file(), "a checkpoint every ten epochs");
    assert_resumes_to_the_same_end(&work);
}

#[test]
fn a_session_killed_before_its_first_checkpoint_starts_again() {
    let work = Workspace::new();
    let out = work.arg("out");
    let args = ["train", "--data", SMALL, "--epochs", EPOCHS, "--out", &out, "--json"];
    let (mut child, _rest) = start_and_read(&args, 3);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!work.path("out/run-000.safetensors").exists());
    assert_resumes_to_the_same_end(&work);
}

/// A node's random draws depend on its position, so the same flags train differently in another order.
#[test]
fn a_session_resumes_in_its_own_order_only() {
    let work = Workspace::new();
    let out = work.arg("out");
    let train = |epochs: &str, flags: &[&str]| {
        let args = ["train", "--data", SMALL, "--epochs", epochs, "--out", &out, "--json"];
        girih(&[&args, flags].concat())
    };
    train("3", &["--reorder", "rcm", "--ranks", "2"]).ok();
    for other in [&[][..], &["--reorder", "degree"], &["--reorder", "rcm"]] {
        let message = train("6", &[&["--resume"], other].concat()).refused(1);
        assert!(says(&message, "another order of nodes") && says(&message, "--reorder-blocks"), "{message}");
    }
    assert_eq!(losses(&work.path("out/metrics.jsonl")).len(), 3);
    let same = ["--resume", "--reorder", "rcm", "--reorder-blocks", "2", "--runs", "2"];
    train("6", &same).ok();
    assert_eq!(losses(&work.path("out/metrics.jsonl")).len(), 12);
}

/// Runs the binary with a file size limit of `blocks` of 512 bytes: writes fail with an error, as on a full disk.
fn with_file_limit(blocks: u32, args: &[&str]) -> Finished {
    let binary = command(args);
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script);
    Finished::new(within(shell, &binary).output().unwrap())
}

#[test]
fn a_full_disk_is_one_message_and_leaves_the_earlier_checkpoint() {
    let work = Workspace::new();
    let out = work.arg("out");
    let train = |epochs| vec!["train", "--data", SMALL, "--hidden", "256", "--epochs", epochs, "--out", &out];
    let resume = || [train("6"), vec!["--resume"]].concat();
    girih(&train("3")).ok();
    let checkpoint = work.path("out/run-000.safetensors");
    let before = fs::read(&checkpoint).unwrap();
    assert!(before.len() > 64 << 10, "the checkpoint does not fit below the limit");
    let names = names_in(&work.path("out"));

    let message = with_file_limit(64, &resume()).refused(1);
    assert!(says(&message, checkpoint.to_str().unwrap()) && says(&message, "File too large"), "{message}");
    assert!(fs::read(&checkpoint).unwrap() == before, "the earlier checkpoint is intact");
    assert_eq!(names_in(&work.path("out")), names, "nothing half-written is left");

    girih(&resume()).ok();
    assert_eq!(losses(&work.path("out/metrics.jsonl")).len(), 6);
}

#[test]
fn a_full_disk_leaves_no_half_written_data() {
    let work = Workspace::new();
    let data = "synth:planted,nodes=5000,degree=10,features=64";
    for name in ["folder", "graph.npz", "edges.csv"] {
        let message = with_file_limit(16, &["convert", "--data", data, "--out", &work.arg(name)]).refused(1);
        assert!(says(&message, &work.arg(name)) && says(&message, "File too large"), "{message}");
    }
    assert!(names_in(work.folder()).is_empty());
}

/// A resumed session keeps its settings; flags override them.
#[test]
fn a_resumed_session_keeps_its_settings() {
    let work = Workspace::new();
    let out = work.arg("sage");
    girih(&["train", "--data", SMALL, "--model", "sage", "--hidden", "8", "--epochs", "2", "--out", &out]).ok();
    let resumed = girih(&["train", "--out", &out, "--resume", "--epochs", "4", "--json"]).ok().result();
    assert_eq!((&resumed["model"], &resumed["epochs"]), (&"sage".into(), &4.into()));
    let message = girih(&["train", "--out", &out, "--resume", "--hidden", "9"]).refused(1);
    assert!(says(&message, "other settings"), "{message}");
    let nowhere = girih(&["train", "--data", SMALL, "--epochs", "1", "--out", &work.arg("none"), "--resume"]).ok();
    assert!(nowhere.err.contains("no checkpoint to resume"), "{}", nowhere.err);
}

/// Points of finished runs are kept, in whichever order runs are resumed.
#[test]
fn metrics_of_all_runs_are_kept() {
    let work = Workspace::new();
    let out = work.arg("runs");
    let train =
        |runs| girih(&["train", "--data", SMALL, "--epochs", "3", "--runs", runs, "--out", &out, "--resume"]).ok();
    train("2");
    train("3");
    let metrics = fs::read_to_string(work.path("runs").join("metrics.jsonl")).unwrap();
    assert_eq!(metrics.lines().count(), 9, "{metrics}");
}

/// Threads are set before any computation, and results that cannot be printed are a failure.
#[test]
fn threads_and_lost_output_of_an_evaluation() {
    let work = Workspace::new();
    let out = work.arg("run");
    girih(&["train", "--data", SMALL, "--epochs", "2", "--out", &out]).ok();
    let evaluate = ["evaluate", "--data", SMALL, "--checkpoint", &out, "--threads", "1"];
    girih(&evaluate).ok();
    if cfg!(target_os = "linux") {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let lost = Finished::new(command(&evaluate).stdout(full).output().unwrap()).refused(1);
        assert!(says(&lost, "could not be printed"), "{lost}");
    }
    let pipe = work.arg("pipe.npy");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let message = girih(&["predict", "--data", SMALL, "--checkpoint", &out, "--out", &pipe]).refused(1);
    assert!(says(&message, "no regular file"), "{message}");
    // Writing through a symbolic link changes its target.
    let (link, target) = (work.path("link.npy"), work.path("target.npy"));
    fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    girih(&["predict", "--data", SMALL, "--checkpoint", &out, "--out", &work.arg("link.npy")]).ok();
    assert!(link.is_symlink() && fs::metadata(&target).unwrap().len() > 600);
}

/// SIGKILL leaves unfinished files; the next command that writes there removes them.
#[test]
fn temporaries_of_a_killed_command_are_removed_by_the_next_one() {
    let work = Workspace::new();
    let out = work.arg("data");
    let temporaries = || {
        let names = names_in(work.folder());
        names.into_iter().filter(|name| name.starts_with(".girih-")).collect::<Vec<String>>()
    };
    let generate =
        |nodes: &str| command(&["generate", &format!("planted,nodes={nodes},degree=8,features=64"), "--out", &out]);
    let mut killed = generate("300000").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while temporaries().is_empty() && killed.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(temporaries().len(), 1, "it ended before it was killed");
    Finished::new(generate("300").output().unwrap()).ok();
    assert_eq!(names_in(work.folder()), ["data"]);
}
