//! [`Report`]: outcome of a suite, stored as JSON.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::provenance::{Commit, today};
use crate::timing::Summary;
use girih_graph_format::file;
use girih_machine::{Ceilings, Machine};

/// Results of one run of one suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the suite.
    pub suite: String,
    /// Graph, as its SPEC with its sizes.
    pub graph: Option<String>,
    /// Day of the run, UTC.
    pub date: String,
    /// Measured source; `None` outside a git checkout.
    pub commit: Option<Commit>,
    /// Machine of the run.
    pub machine: Machine,
    /// Ceilings of the machine, measured in the same run.
    pub ceilings: Ceilings,
    /// Accelerator that the suite ran on, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Accelerator>,
    /// Whether the suite was stopped before its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// Results, in the order of execution.
    pub cases: Vec<Case>,
    /// Goals of the suite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Goal>,
    /// Path of the record.
    #[serde(skip)]
    path: Option<PathBuf>,
}

/// Accelerator, with its measured copy rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accelerator {
    /// Name of the device.
    pub name: String,
    /// Copy rate within its memory in 10⁹ bytes a second; read and written bytes both count.
    pub copy_gb_s: f64,
}

/// Row of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Name, unique in its report, by which reports are compared.
    pub name: String,
    /// Time of one run.
    pub time: Summary,
    /// Variant that was the fastest, if the best of several counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Derived numbers; names end in the unit.
    pub metrics: BTreeMap<String, f64>,
    /// Training loss of every epoch, for cases about losses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<f32>,
}

/// Bound that a suite sets for a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Measured quantity, with its unit.
    pub what: String,
    /// Measured value.
    pub found: f64,
    /// Upper bound of the value.
    pub at_most: f64,
    /// Whether the value is within the bound.
    pub is_met: bool,
}

impl Goal {
    /// Goal that a value up to `at_most` meets.
    #[must_use]
    pub fn at_most(what: impl Into<String>, found: f64, at_most: f64) -> Self {
        Self { what: what.into(), found, at_most, is_met: found <= at_most }
    }
}

impl Case {
    /// Case without derived numbers.
    #[must_use]
    pub fn new(name: impl Into<String>, time: Summary) -> Self {
        Self { name: name.into(), time, variant: None, metrics: BTreeMap::new(), losses: Vec::new() }
    }

    /// Adds the variant that was the fastest.
    #[must_use]
    pub fn by(self, variant: impl Into<String>) -> Self {
        Self { variant: Some(variant.into()), ..self }
    }

    /// Adds a derived number.
    #[must_use]
    pub fn with(mut self, metric: &str, value: f64) -> Self {
        self.metrics.insert(metric.to_owned(), value);
        self
    }
}

impl Report {
    /// Empty report about this machine and the source at `root`, dated today.
    #[must_use]
    pub fn new(suite: &str, root: &Path, ceilings: Ceilings) -> Self {
        Self {
            suite: suite.to_owned(),
            graph: None,
            date: today(),
            commit: Commit::of_program(root),
            machine: Machine::here(),
            ceilings,
            device: None,
            is_cut: false,
            cases: Vec::new(),
            goals: Vec::new(),
            path: None,
        }
    }

    /// Sets the path of the record. By default it is `record/SUITE-COMMIT.json` in `benches`, with the date if there
    /// is no commit.
    #[must_use]
    pub fn kept_at(self, path: Option<PathBuf>, benches: &Path) -> Self {
        let source = self.commit.as_ref().map_or(self.date.clone(), Commit::to_string);
        let default = || benches.join("record").join(format!("{}-{source}.json", self.suite));
        Self { path: Some(path.unwrap_or_else(default)), ..self }
    }

    /// Adds a case of a long suite, prints it on standard error, and writes the record so far. A stopped suite
    /// therefore loses nothing.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn add(&mut self, case: Case) -> Result<(), Error> {
        eprintln!("{}: {:.3} ms {:?}", case.name, 1e3 * case.time.median_s, case.metrics);
        self.cases.push(case);
        self.is_cut = true;
        self.keep().map(drop)
    }

    /// Writes the complete record and returns its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(&mut self) -> Result<Option<&Path>, Error> {
        self.is_cut = false;
        self.keep()
    }

    fn keep(&self) -> Result<Option<&Path>, Error> {
        let Some(path) = self.path.as_deref() else { return Ok(None) };
        self.write(path)?;
        Ok(Some(path))
    }

    /// Reads a report.
    ///
    /// # Errors
    /// When the file cannot be read or is no report.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: not a benchmark record: {e}", path.display()).into())
    }

    /// Writes the report as indented JSON, which suits diffs. An existing file stays until the new one is complete.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        Ok(file::write_file(path, |out| Ok(out.write_all(text.as_bytes())?))?)
    }

    /// Speedup of each case: its median in `baseline` over its median here. `None` if the baseline lacks the case.
    #[must_use]
    pub fn speedups(&self, baseline: &Self) -> Vec<Option<f64>> {
        let earlier: BTreeMap<&str, f64> = baseline.cases.iter().map(|c| (c.name.as_str(), c.time.median_s)).collect();
        self.cases.iter().map(|case| Some(earlier.get(case.name.as_str())? / case.time.median_s)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(cases: &[(&str, f64)]) -> Report {
        let case = |(name, seconds): &(&str, f64)| Case::new(*name, Summary::of(&[*seconds])).with("gflop_s", 2.5);
        let mut report = Report::new("test", Path::new("/"), Ceilings::default());
        report.cases = cases.iter().map(case).collect();
        report
    }

    #[test]
    fn a_report_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let mut report = report(&[("a", 1.0)]);
        report.cases[0].losses = vec![0.1, 1e-7];
        report.goals = vec![Goal::at_most("difference, points", 0.2, 0.3)];
        report.write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report);
    }

    #[test]
    fn a_suite_that_is_ended_leaves_what_it_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let mut report = report(&[]).kept_at(Some(path.clone()), folder.path());
        for name in ["a", "b"] {
            report.add(Case::new(name, Summary::of(&[1.0]))).unwrap();
            let found = Report::read(&path).unwrap();
            assert!(found.is_cut && found.cases == report.cases, "{name}");
        }
        assert_eq!(report.finish().unwrap(), Some(&*path));
        assert!(!fs::read_to_string(&path).unwrap().contains("is_cut"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        let by_default = report.kept_at(None, Path::new("benches")).path.unwrap();
        assert!(by_default.to_str().unwrap().starts_with("benches/record/test-"), "{by_default:?}");
    }

    #[test]
    fn speedups_go_by_name() {
        let (now, then) = (report(&[("a", 1.0), ("new", 1.0)]), report(&[("gone", 9.0), ("a", 3.0)]));
        assert_eq!(now.speedups(&then), [Some(3.0), None]);
    }

    #[test]
    fn a_file_that_is_no_report_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        fs::write(&path, "{}").unwrap();
        assert!(Report::read(&path).unwrap_err().to_string().contains("report.json"));
    }
}
