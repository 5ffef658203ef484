//! [`WholeRun`]: every suite of one device in one run, as a record of records.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use girih_graph_format::file;
use girih_machine::{Ceilings, Machine};
use serde::{Deserialize, Serialize};

use crate::provenance::{Commit, today};
use crate::suites::{DeviceKind, Setup, Suite};
use crate::{Error, Report, regression, table};

/// Records of the suites of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WholeRun {
    /// `all`, in place of the name of a suite.
    pub suite: String,
    /// Device of the suites.
    pub on: DeviceKind,
    /// Whether operands were small.
    pub is_quick: bool,
    /// Day of the run, UTC.
    pub date: String,
    /// Measured source; `None` outside a git checkout.
    pub commit: Option<Commit>,
    /// Machine of the run.
    pub machine: Machine,
    /// Seconds of the whole run.
    pub seconds: f64,
    /// Seconds that processors worked for it, without peers, which other programs do not add to; `None` where the
    /// system does not tell.
    pub processor_seconds: Option<f64>,
    /// Record of each suite that ran to its end.
    pub records: Vec<Report>,
    /// Suites that did not run, or without a peer that was asked for.
    pub omitted: Vec<Omission>,
}

/// Part of a run that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omission {
    /// Name of the suite.
    pub suite: String,
    /// Kind of the omission.
    pub kind: OmissionKind,
    /// Reason, as a message.
    pub reason: String,
}

/// Kind of an omission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OmissionKind {
    /// The suite cannot run on this machine.
    Skipped,
    /// The suite ended with an error.
    Failed,
    /// The suite ran, but without its peer.
    WithoutPeer,
}

impl WholeRun {
    /// Name in place of that of a suite.
    pub const NAME: &str = "all";

    /// Run without results, of the source at `benches`.
    #[must_use]
    pub fn new(on: DeviceKind, is_quick: bool, benches: &Path) -> Self {
        Self {
            suite: Self::NAME.to_owned(),
            on,
            is_quick,
            date: today(),
            commit: Commit::of_program(benches),
            machine: Machine::here(),
            seconds: 0.0,
            processor_seconds: None,
            records: Vec::new(),
            omitted: Vec::new(),
        }
    }

    /// Default path of the record: `record/all-DEVICE-COMMIT.json` in `benches`, with `-quick` after the device for
    /// small operands.
    #[must_use]
    pub fn default_path(&self, benches: &Path) -> PathBuf {
        let source = self.commit.as_ref().map_or(self.date.clone(), Commit::to_string);
        let quick = if self.is_quick { "-quick" } else { "" };
        benches.join("record").join(format!("all-{}{quick}-{source}.json", self.on.name()))
    }

    /// Runs every suite, prints their tables, and writes the record after each suite.
    ///
    /// # Errors
    /// When the record cannot be written. A suite that fails is an omission.
    pub fn run(&mut self, setup: &Setup, ceilings: &Ceilings, path: &Path) -> Result<(), Error> {
        let (start, benches) = (Instant::now(), crate::folder());
        for suite in Suite::of_device(self.on) {
            if let Some(reason) = suite.obstacle(setup) {
                self.omit(suite, OmissionKind::Skipped, reason);
                continue;
            }
            let without_peer = suite.missing_peer(setup);
            let peer = if without_peer.is_some() { None } else { setup.peer.clone() };
            if let Some(reason) = without_peer {
                self.omit(suite, OmissionKind::WithoutPeer, reason);
            }
            let mut report = Report::new(suite.name(), &benches, ceilings.clone());
            match suite.run(&Setup { peer, ..setup.clone() }, &mut report) {
                Ok(()) => {
                    println!("{}", table::render(&report, None));
                    self.records.push(report);
                }
                Err(error) => self.omit(suite, OmissionKind::Failed, error.to_string()),
            }
            (self.seconds, self.processor_seconds) = (start.elapsed().as_secs_f64(), processor_seconds());
            eprintln!("{} ended after {} of the whole run", suite.name(), self.time());
            self.write(path)?;
        }
        self.write(path)
    }

    fn omit(&mut self, suite: Suite, kind: OmissionKind, reason: String) {
        self.omitted.push(Omission { suite: suite.name().to_owned(), kind, reason });
    }

    /// Time so far, as text.
    fn time(&self) -> String {
        let worked = self.processor_seconds.map(|seconds| format!(" ({seconds:.0} s of processors)"));
        format!("{:.0} s{}", self.seconds, worked.unwrap_or_default())
    }

    /// Summary in some lines: number of suites and cases, time, and everything that is missing.
    #[must_use]
    pub fn summary(&self) -> String {
        let n_cases: usize = self.records.iter().map(|record| record.cases.len()).sum();
        let mut text = format!("{} suites with {n_cases} cases in {}\n", self.records.len(), self.time());
        for Omission { suite, kind, reason } in &self.omitted {
            let kind = match kind {
                OmissionKind::Skipped => "skipped",
                OmissionKind::Failed => "failed",
                OmissionKind::WithoutPeer => "without its peer",
            };
            text += &format!("{suite} {kind}: {reason}\n");
        }
        text
    }

    /// Fails if a suite failed.
    ///
    /// # Errors
    /// With the names of these suites.
    pub fn check_suites(&self) -> Result<(), Error> {
        let failed = self.omitted.iter().filter(|omission| omission.kind == OmissionKind::Failed);
        let names: Vec<&str> = failed.map(|omission| omission.suite.as_str()).collect();
        if names.is_empty() { Ok(()) } else { Err(format!("suites failed: {}", names.join(", ")).into()) }
    }

    /// Refuses a baseline that cannot be compared with this run.
    ///
    /// # Errors
    /// When machine, threads, device or size of the operands differ.
    pub fn check_baseline(&self, then: &Self, ceilings: &Ceilings) -> Result<(), Error> {
        let kind = |run: &Self| format!("--device {}{}", run.on.name(), if run.is_quick { " --quick" } else { "" });
        let (now_kind, then_kind) = (kind(self), kind(then));
        if now_kind != then_kind {
            return Err(format!("the baseline is of `bench all {then_kind}`, this run of `{now_kind}`").into());
        }
        let threads = then.records.first().map_or(ceilings.threads, |record| record.ceilings.threads);
        regression::check_machine((&self.machine, ceilings.threads), (&then.machine, threads))
    }

    /// One line for each case that is slower than in `then`, or missing.
    ///
    /// # Errors
    /// When a suite ran on another graph.
    pub fn regressions(&self, then: &Self, tolerance_percent: f64) -> Result<Vec<String>, Error> {
        let mut lines = Vec::new();
        for earlier in &then.records {
            match self.records.iter().find(|record| record.suite == earlier.suite) {
                Some(now) => lines.extend(regression::regressions(now, earlier, tolerance_percent)?),
                None => lines.push(format!("{}: in the baseline, did not run here", earlier.suite)),
            }
        }
        Ok(lines)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the file cannot be read, or is no record of all suites.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let of_what = |e: serde_json::Error| format!("{}: not a record of `bench all`: {e}", path.display());
        Ok(serde_json::from_str(&text).map_err(of_what)?)
    }

    fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        Ok(file::write_file(path, |out| Ok(out.write_all(text.as_bytes())?))?)
    }
}

/// Seconds that processors have worked for this process, by Linux.
fn processor_seconds() -> Option<f64> {
    /// Ticks of a second in files of `/proc`.
    const TICKS: f64 = 100.0;
    of_stat(&fs::read_to_string("/proc/self/stat").ok()?).map(|ticks| ticks as f64 / TICKS)
}

/// Ticks in user and system mode, the fields 14 and 15 of `/proc/PID/stat`; the second, a name, may have spaces.
fn of_stat(stat: &str) -> Option<u64> {
    let mut ticks = stat.rsplit_once(')')?.1.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(ticks.next()?.ok()? + ticks.next()?.ok()?)
}

/// Modules of `needed` that a Python interpreter lacks.
///
/// # Errors
/// When the interpreter cannot be started or fails.
pub fn missing_modules(python: &Path, needed: &[&str]) -> Result<BTreeSet<String>, Error> {
    let script =
        "import importlib.util, sys\nfor m in sys.argv[1:]:\n    if importlib.util.find_spec(m) is None: print(m)";
    let output = std::process::Command::new(python).arg("-c").arg(script).args(needed).output();
    let output = output.map_err(|e| format!("{}: {e}; --peer names a Python interpreter", python.display()))?;
    if !output.status.success() {
        return Err(format!("{}: {}", python.display(), String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_processors_is_read() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 100 200 0 0 31 11 5 6 20 0 4 0 100 1000 10";
        assert_eq!(of_stat(stat), Some(42));
        assert_eq!(of_stat("7 (a) S 1"), None);
        #[cfg(target_os = "linux")]
        assert!(processor_seconds().is_some());
    }
}
