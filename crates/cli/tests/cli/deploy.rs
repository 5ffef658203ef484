//! Scripts of `examples/deploy`: they start the ranks that they say, with stand-ins for schedulers.

#![cfg(target_os = "linux")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use girih_comm::tcp;

use crate::girih::{Finished, SMALL, Workspace, curve, girih, names_in};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/deploy");

/// Script with `girih` and other programs in its path, and without variables of launchers.
fn script(name: &str, programs: &Path) -> Command {
    let mut command = Command::new("bash");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    command.arg(format!("{SCRIPTS}/{name}")).env("PATH", path).env("NO_COLOR", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Folder with `girih` and with small programs of the given text.
fn programs(work: &Workspace, others: &[(&str, &str)]) {
    fs::create_dir(work.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_girih"), work.path("bin/girih")).unwrap();
    for (name, text) in others {
        let file = work.path(&format!("bin/{name}"));
        fs::write(&file, format!("#!/usr/bin/env bash\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

const TRAIN: [&str; 4] = ["--data", SMALL, "--epochs", "5"];

fn curve_of_two_threads() -> Vec<String> {
    curve(girih(&[&["train"], &TRAIN[..], &["--json", "--device", "cpu", "--ranks", "2"]].concat()))
}

#[test]
fn hosts_train_together() {
    let work = Workspace::new();
    programs(&work, &[]);
    let first = tcp::local_rendezvous().unwrap();
    let host = |node: &str| {
        let mut command = script("hosts.sh", &work.path("bin"));
        command
            .args(TRAIN)
            .args(["--json", "--device", "cpu"])
            .env("NODES", "2")
            .env("NODE", node)
            .env("FIRST", &first);
        command.env("PROCESSES", "1").spawn().unwrap()
    };
    let finished = [host("0"), host("1")].map(|child| Finished::new(child.wait_with_output().unwrap()));
    let [zero, one] = finished;
    assert_eq!(one.ok().out, "");
    assert_eq!(curve(zero), curve_of_two_threads());
}

#[test]
fn hosts_say_what_they_lack() {
    let work = Workspace::new();
    programs(&work, &[("nvidia-smi", "exit 1")]);
    for (name, value, told) in [("NODES", "1", "set PROCESSES"), ("LAUNCHER", "other", "give girih or torchrun")] {
        let mut command = script("hosts.sh", &work.path("bin"));
        if name == "LAUNCHER" {
            command.env("PROCESSES", "1");
        }
        let finished = Finished::new(command.env(name, value).output().unwrap());
        assert!(finished.code == Some(2) && finished.err.contains(told), "{}", finished.err);
    }
}

/// `torchrun` of PyTorch gets the flags that it knows, and girih its own.
#[test]
fn torchrun_is_called_with_its_flags() {
    let work = Workspace::new();
    programs(&work, &[("torchrun", "echo \"$@\"")]);
    let mut command = script("hosts.sh", &work.path("bin"));
    command.args(["--out", "run"]).env("LAUNCHER", "torchrun").env("FIRST", "node0:29400").env("PROCESSES", "4");
    let finished = Finished::new(command.output().unwrap()).ok();
    let place = "--nproc-per-node 4 --nnodes 1 --node-rank 0 --master-addr node0 --master-port 29400";
    assert_eq!(finished.out.trim(), format!("--no-python {place} girih train --out run"));
}

/// Tasks on this machine, with the variables of Slurm.
const SRUN: &str = "shift
export SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2
SLURM_PROCID=1 SLURM_LOCALID=1 \"$@\" & other=$!
SLURM_PROCID=0 SLURM_LOCALID=0 \"$@\" && wait $other";

#[test]
fn a_job_of_slurm_trains_and_leaves_no_secret() {
    let work = Workspace::new();
    programs(&work, &[("scontrol", "printf '127.0.0.1\\nother\\n'"), ("srun", SRUN)]);
    let start = std::process::id() as u16 % 9_000;
    let job = (start..).find(|job| TcpListener::bind(("127.0.0.1", 20_000 + job)).is_ok()).unwrap();
    let mut command = script("slurm.sh", &work.path("bin"));
    command.args(TRAIN).args(["--json", "--out", &work.arg("out")]);
    command.env("DEVICE", "cpu").env("SECRET_FOLDER", work.path("secrets"));
    command.env("SLURM_JOB_ID", (70_000 + u32::from(job)).to_string()).env("SLURM_JOB_NODELIST", "two");
    let finished = Finished::new(command.output().unwrap());
    assert_eq!(names_in(&work.path("secrets")), Vec::<String>::new());
    assert_eq!(curve(finished), curve_of_two_threads());
}
