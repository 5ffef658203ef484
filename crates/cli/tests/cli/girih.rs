//! Running the binary.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Small generated graph that trains in milliseconds.
pub const SMALL: &str = "synth:planted,nodes=600,degree=8,features=24,classes=4";

/// Command that runs the binary with arguments; output is not a terminal.
pub fn command(args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_girih"));
    // Measurements of tests are cached apart from those of users.
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/girih-cache");
    command.args(args).env("NO_COLOR", "1").env_remove("GIRIH_LOG").env("GIRIH_CACHE", cache);
    command
}

/// Appends the binary with its arguments and environment to `outer`, a program such as a shell that starts it.
pub fn within(mut outer: Command, binary: &Command) -> Command {
    outer.arg(binary.get_program()).args(binary.get_args());
    for (name, value) in binary.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Runs the binary to its end.
pub fn girih(args: &[impl AsRef<OsStr>]) -> Finished {
    Finished::new(command(args).output().expect("the binary starts"))
}

/// Sends a signal, such as `-INT`, to a process.
#[cfg(unix)]
pub fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// Exit status and output of a run of the binary.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Finished {
    pub fn new(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is Unicode");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Asserts that the run succeeded.
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self
    }

    /// Asserts that a signal stopped the run after a checkpoint, with the exit status `code`.
    pub fn stopped(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self
    }

    /// Asserts that the run failed with `code` and printed only a message; under `--json` also the event of an error.
    /// Returns the message without line breaks.
    pub fn refused(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        for event in self.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            assert!(event["event"] == "error" || event["event"] == "warning", "a refusal prints no result: {event}");
        }
        unwrapped(&self.err)
    }

    /// Standard output as JSON objects, one per line.
    pub fn events(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    }

    /// The last event, which is the result.
    pub fn result(&self) -> Value {
        let result = self.events().pop().unwrap_or_else(|| panic!("no output; {}", self.err));
        assert_eq!(result["event"], "result");
        result
    }
}

/// Message as one line, without its frame and without line breaks, which may be inside long paths.
fn unwrapped(message: &str) -> String {
    message.split(|c: char| c.is_whitespace() || c == '│').filter(|word| !word.is_empty()).collect()
}

/// Whether a message of [`Finished::refused`] contains `what`.
pub fn says(message: &str, what: &str) -> bool {
    message.contains(&unwrapped(what))
}

/// Asserts that an object has all `keys`.
pub fn assert_keys(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(value.get(key).is_some(), "no {key} in {value}");
    }
}

/// Sorted names of the entries of a folder.
pub fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Temporary folder for a test.
pub struct Workspace(tempfile::TempDir);

impl Workspace {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Path of an entry as an argument.
    pub fn arg(&self, name: &str) -> String {
        self.path(name).into_os_string().into_string().unwrap()
    }
}

/// Training losses in a folder's `metrics.jsonl`, in order: `(run, epoch, loss as written)`.
pub fn losses(metrics: &Path) -> Vec<(u64, u64, String)> {
    let text = fs::read_to_string(metrics).unwrap();
    let point = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        (value["run"].as_u64().unwrap(), value["epoch"].as_u64().unwrap(), value["train_loss"].to_string())
    };
    text.lines().map(point).collect()
}

/// Training losses in a folder's `metrics.csv`, in order: `(run, epoch, loss)`.
pub fn rows(table: &Path) -> Vec<(u64, u64, f32)> {
    let text = fs::read_to_string(table).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (cells[0].parse().unwrap(), cells[1].parse().unwrap(), cells[2].parse().unwrap())
    };
    text.lines().skip(1).map(row).collect()
}

/// Losses of all epochs as printed, for training and test, followed by the final ones.
pub fn curve(finished: Finished) -> Vec<String> {
    let finished = finished.ok();
    let numbers = |event: &Value| format!("{} {}", event["train_loss"], event["test_loss"]);
    // A warning appears if there are more ranks than cores.
    finished.events().iter().filter(|event| event["event"] != "warning").map(numbers).collect()
}
