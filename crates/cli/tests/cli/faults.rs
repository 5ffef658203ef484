//! Fault injection: one file operation or allocation fails, or ends the process. Files on disk stay intact, and the
//! same command then completes normally.
//!
//! `faults.c` counts the operations of a command and lets the `n`-th fail. A test tries [`POSITIONS`] of them, spread
//! evenly; the environment variable `GIRIH_FAULTS=N` sets another number, or `all`. [`KILLS`] more faults kill the
//! process at arbitrary times; `GIRIH_KILLS=N` sets another number.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

use crate::girih::{SMALL, Workspace, command, girih, losses, rows};

/// Number of positions of a fault, per command and kind.
const POSITIONS: usize = 10;

/// Number of kills at arbitrary times, per command.
const KILLS: usize = 4;

/// Data, a trained model and its weights for PyG, and `faults.c` built as a library.
struct Inputs(Workspace);

static INPUTS: LazyLock<Inputs> = LazyLock::new(|| {
    let work = Workspace::new();
    let spec = SMALL.strip_prefix("synth:").unwrap();
    girih(&["generate", spec, "--out", &work.arg("data")]).ok();
    girih(&["train", &work.arg("data"), "--epochs", "2", "--out", &work.arg("model")]).ok();
    girih(&["export", "--checkpoint", &work.arg("model"), "--out", &work.arg("weights")]).ok();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/faults.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-w", "-o"]).arg(work.path("faults.so")).arg(source).arg("-ldl");
    assert!(compiler.status().expect("a C compiler").success());
    Inputs(work)
});

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A file operation returns an error.
    Error,
    /// The process is killed instead of a file operation.
    Kill,
    /// An allocation fails.
    Memory,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Kill => "kill",
            Self::Memory => "memory",
        }
    }
}

/// Command that writes to its own folder, as words; `OUT`, `DATA`, `MODEL` and `WEIGHTS` stand for paths.
#[derive(Clone, Copy)]
struct Writer(&'static str);

impl Writer {
    /// Runs the command in `work` to its end.
    fn run(self, work: &Workspace, fault: Fault, at: usize) -> Output {
        self.command(work, fault, at).output().expect("the binary starts")
    }

    /// The command in `work`, with the `at`-th operation failing; none if `at` is 0.
    fn command(self, work: &Workspace, fault: Fault, at: usize) -> Command {
        let inputs = &INPUTS.0;
        fs::create_dir_all(work.path("out")).unwrap();
        let inside = ["data", "model", "weights"].map(|name| (name.to_uppercase(), inputs.arg(name)));
        let places = [("OUT".to_owned(), work.arg("out"))].into_iter().chain(inside).collect::<Vec<_>>();
        let words = self
            .0
            .split(' ')
            .map(|word| places.iter().fold(word.to_owned(), |word, (name, path)| word.replace(name.as_str(), path)));
        let mut command = command(&words.collect::<Vec<_>>());
        command.env("GIRIH_CACHE", work.path("cache")).env("LD_PRELOAD", inputs.path("faults.so"));
        command.env("FAULT_KIND", fault.name()).env("FAULT_AT", at.to_string());
        command.env("FAULT_COUNT", work.path("count"));
        command
    }

    /// Runs the command without a fault. Returns the files that it leaves, and its number of operations.
    fn reference(self, fault: Fault) -> (BTreeMap<PathBuf, Vec<u8>>, usize) {
        let work = Workspace::new();
        let output = self.run(&work, fault, 0);
        assert!(output.status.success(), "{}: {}", self.0, String::from_utf8_lossy(&output.stderr));
        let count = fs::read_to_string(work.path("count")).unwrap();
        (contents(&work.path("out")), count.trim().parse().unwrap())
    }

    /// Lets operations fail, one at a time, each in a new folder.
    fn withstands(self, fault: Fault) {
        let (expected, n_operations) = self.reference(fault);
        assert!(n_operations > 0 && !expected.is_empty(), "{}: {n_operations} operations", self.0);
        for at in positions(n_operations) {
            let case = format!("{} with {fault:?} {at} of {n_operations}", self.0);
            let work = Workspace::new();
            let output = self.run(&work, fault, at);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let signal = output.status.signal();
            match (fault, output.status.code()) {
                (_, Some(0)) => assert!(contents(&work.path("out")) == expected, "{case}: success with other results"),
                (Fault::Kill, _) => assert_eq!(signal, Some(9), "{case}: {text}"),
                (Fault::Memory, None) => {
                    // The message comes from Rust, or from the C library if that allocates.
                    let says = ["memory allocation of", "out of memory"].iter().any(|words| text.contains(words));
                    assert!(signal == Some(6) && says, "{case}: {signal:?} {text}");
                }
                (_, code) => assert!(code == Some(1) && text.contains('×'), "{case}: {code:?} {signal:?} {text}"),
            }
            if fault == Fault::Error {
                assert_eq!(temporaries(work.folder()), Vec::<PathBuf>::new(), "{case}");
                assert!(!text.contains("panicked"), "{case}: {text}");
            }
            self.assert_whole(&work, &expected, &case);
            self.assert_ends_as_ever(&work, &expected, &case);
        }
    }

    /// Kills the command at times spread over its duration.
    fn withstands_kills(self) {
        let start = Instant::now();
        let (expected, _) = self.reference(Fault::Kill);
        let took = start.elapsed();
        let n = std::env::var("GIRIH_KILLS").map_or(KILLS, |n| n.parse().expect("GIRIH_KILLS is a number"));
        for i in 0..n {
            // Multiples of the golden ratio leave no large gaps.
            let wait = took.mul_f64((0.5 + i as f64 * 0.618_034).fract());
            let case = format!("{}, killed after {wait:?}", self.0);
            let work = Workspace::new();
            let mut child =
                self.command(&work, Fault::Kill, 0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(wait);
            child.kill().unwrap();
            child.wait().unwrap();
            self.assert_whole(&work, &expected, &case);
            self.assert_ends_as_ever(&work, &expected, &case);
        }
    }

    /// Asserts that the same command now leaves its usual files, and no others. `import` refuses to replace its own.
    fn assert_ends_as_ever(self, work: &Workspace, expected: &BTreeMap<PathBuf, Vec<u8>>, case: &str) {
        let refuses = self.0.starts_with("import") && contents(&work.path("out")) == *expected;
        let again = self.run(work, Fault::Kill, 0);
        let text = String::from_utf8_lossy(&again.stderr);
        assert!(again.status.success() != refuses, "{case}, then again: {text}");
        assert!(contents(&work.path("out")) == *expected, "{case}, then again: other results");
        assert_eq!(temporaries(work.folder()), Vec::<PathBuf>::new(), "{case}, then again");
    }

    /// Asserts that files with their final names are complete after a failure. Checkpoints of training differ between
    /// epochs, so they are compared after training has resumed.
    fn assert_whole(self, work: &Workspace, expected: &BTreeMap<PathBuf, Vec<u8>>, case: &str) {
        let found = contents(&work.path("out"));
        if !self.0.starts_with("train") && !found.is_empty() {
            assert!(found == *expected, "{case}: an incomplete result is at its place");
        }
    }
}

/// Numbers of operations, from 1, spread over all of them.
fn positions(n_operations: usize) -> Vec<usize> {
    let most = match std::env::var("GIRIH_FAULTS").as_deref() {
        Err(_) => POSITIONS,
        Ok("all") => n_operations,
        Ok(number) => number.parse().expect("GIRIH_FAULTS is a number or `all`"),
    };
    let n = n_operations.min(most);
    (0..n).map(|i| 1 + i * (n_operations - 1) / (n - 1).max(1)).collect()
}

/// Files below a folder that are equal in every run of the command; of metrics, only the losses.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in files(folder).into_iter().filter(|path| !is_temporary(path)) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let content = match name.as_str() {
            "metrics.jsonl" => format!("{:?}", losses(&path)).into_bytes(),
            "metrics.csv" => format!("{:?}", rows(&path)).into_bytes(),
            // These contain times and paths.
            "report.html" | "config.toml" | "result.json" => continue,
            _ => fs::read(&path).unwrap(),
        };
        found.insert(path.strip_prefix(folder).unwrap().to_owned(), content);
    }
    found
}

/// Files of an unfinished command.
fn temporaries(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| is_temporary(path) && !is_resumable(path)).collect()
}

fn is_temporary(path: &Path) -> bool {
    path.iter().any(|part| part.to_string_lossy().starts_with(".girih-"))
}

/// Whether `compress` can resume from the file.
fn is_resumable(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "part")
}

/// Files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Commands of one test run sequentially; tests run in parallel.
macro_rules! withstand {
    ($($name:ident: $line:expr;)*) => {$(
        mod $name {
            use super::{Fault, Writer};

            #[test]
            fn an_error() {
                Writer($line).withstands(Fault::Error);
            }

            #[test]
            fn a_kill() {
                Writer($line).withstands(Fault::Kill);
            }

            #[test]
            fn a_kill_at_any_time() {
                Writer($line).withstands_kills();
            }

            #[test]
            fn no_memory() {
                Writer($line).withstands(Fault::Memory);
            }
        }
    )*};
}

withstand! {
    train: "train DATA --epochs 4 --checkpoint-every 1 --out OUT --resume";
    train_in_batches: "train DATA --batch neighbor --batch-size 128 --epochs 2 --checkpoint-every 1 --out OUT --resume";
    predict: "predict DATA --checkpoint MODEL --out OUT/classes.npy";
    convert_to_a_folder: "convert DATA --out OUT";
    convert_to_an_archive: "convert DATA --out OUT/graph.npz";
    convert_to_text: "convert DATA --out OUT/edges.csv.gz";
    compress: "compress DATA --codec int8 --out OUT";
    export_to_a_file: "export --checkpoint MODEL --format onnx --out OUT/model.onnx";
    export_to_a_folder: "export --checkpoint MODEL --format hf --out OUT/hub";
    import: "import DATA --weights WEIGHTS --out OUT/session";
    reorder: "reorder DATA --order degree --out OUT";
    generate: "generate planted,nodes=600,degree=8,features=24,classes=4 --out OUT";
}
