//! [`Peer`]: another library doing the same work, in a Python process that alternates with girih.
//!
//! The scripts are in `benches/peers`. A script loads its data and prints one JSON line `{"ready": …}`. It then
//! answers each line on standard input with a line `{"seconds": …, "peak_bytes": …}`: the time of one repetition of
//! the requested work, and the peak memory of the process. Between requests it waits and uses no core.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;

use crate::Error;

/// Environment without which peers run far slower. By default glibc returns every large temporary to the system, and
/// OpenMP threads spin at barriers on cores that others need. The last entry keeps the source tree clean.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("MALLOC_MMAP_THRESHOLD_", "4294967296"),
    ("MALLOC_TRIM_THRESHOLD_", "17179869184"),
    ("MALLOC_TOP_PAD_", "268435456"),
    ("OMP_WAIT_POLICY", "passive"),
    ("DGLBACKEND", "pytorch"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
];

/// Running script.
pub struct Peer {
    name: String,
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    peak_bytes: Option<u64>,
}

#[derive(Deserialize)]
struct Ready {
    ready: String,
}

#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    #[serde(default)]
    peak_bytes: Option<u64>,
}

impl Peer {
    /// Starts a script of `benches/peers` with the interpreter `python` and girih's number of threads, and waits
    /// until it is ready.
    ///
    /// # Errors
    /// When it cannot be started, or ends before it is ready; its messages are on standard error.
    pub fn start(python: &Path, script: &str, arguments: &[&OsStr]) -> Result<Self, Error> {
        let path = crate::folder().join("peers").join(script);
        let mut command = Command::new(python);
        command.arg(&path).args(arguments).envs(ENVIRONMENT);
        for variable in ["OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(variable, rayon::current_num_threads().to_string());
        }
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|e| format!("{}: {e}; --peer names a Python interpreter", python.display()))?;
        let (questions, stdout) = (child.stdin.take(), child.stdout.take().ok_or("no pipe to the peer")?);
        let mut peer =
            Self { name: script.to_owned(), child, questions, answers: BufReader::new(stdout), peak_bytes: None };
        let ready: Ready = serde_json::from_str(&peer.read_line()?).map_err(|e| format!("{script}: {e}"))?;
        peer.name = ready.ready;
        Ok(peer)
    }

    /// Library with its version, as reported by the script.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Requests one repetition and returns its seconds.
    ///
    /// # Errors
    /// When the script has ended or gives another answer.
    pub fn ask(&mut self, question: &str) -> Result<f64, Error> {
        let questions = self.questions.as_mut().ok_or("the peer has been told to stop")?;
        writeln!(questions, "{question}")?;
        questions.flush()?;
        let line = self.read_line()?;
        let answer: Answer = serde_json::from_str(&line).map_err(|e| format!("{}: '{line}': {e}", self.name))?;
        self.peak_bytes = answer.peak_bytes;
        Ok(answer.seconds)
    }

    /// Peak memory of the script's process in bytes, as of its last answer.
    #[must_use]
    pub fn peak_bytes(&self) -> Option<u64> {
        self.peak_bytes
    }

    fn read_line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("{} ended early ({}); see its message above", self.name, self.child.wait()?).into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Peer {
    /// Ends the script, which stops at the end of its input.
    fn drop(&mut self) {
        self.questions = None;
        // A peer that fails while it ends cannot be helped.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_that_does_not_exist_is_named() {
        let error = Peer::start(Path::new("no-such-python"), "dgl_spmm.py", &[]).err().unwrap();
        assert!(error.to_string().starts_with("no-such-python: "), "{error}");
    }

    #[test]
    fn a_script_that_says_nothing_is_an_error() {
        // `true` replaces an interpreter: it ignores its arguments and ends.
        let error = Peer::start(Path::new("true"), "dgl_spmm.py", &[]).err().unwrap();
        assert!(error.to_string().contains("ended early"), "{error}");
    }
}
