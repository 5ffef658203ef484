//! Curve of a training session: one point per epoch, kept in `metrics.jsonl`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use girih_graph_format::{FormatError, file};
use girih_trainer::EpochReport;
use serde::{Deserialize, Serialize};

use crate::curves::Curves;
use crate::error::CliError;
use crate::output::ms;
use crate::scores::{NodeScore, Subset};

/// Measures of one epoch of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Always `epoch`: the line is an event, as those that `--json` prints.
    pub event: String,
    /// Run, from 0.
    pub run: u64,
    /// Epoch, from 1.
    pub epoch: u64,
    /// Mean loss on the training nodes, before the step.
    pub train_loss: f32,
    /// Accuracy on the training part after the step; `None` in epochs without an evaluation.
    pub train_accuracy: Option<f64>,
    /// As `train_accuracy`, on the validation part.
    pub val_accuracy: Option<f64>,
    /// As `train_accuracy`, on the test part.
    pub test_accuracy: Option<f64>,
    /// Mean loss on the validation nodes.
    pub val_loss: Option<f64>,
    /// Mean loss on the test nodes.
    pub test_loss: Option<f64>,
    /// ROC-AUC on the validation part, for links, two classes, or several labels a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_roc_auc: Option<f64>,
    /// As `val_roc_auc`, on the test part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_roc_auc: Option<f64>,
    /// Recall of a recommender: share of test items among the first 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall_at_20: Option<f64>,
    /// NDCG of a recommender: discounted gain of the first 20 over the best possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ndcg_at_20: Option<f64>,
    /// Reasons why a score that chooses the epoch has no value, by name of the score.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub undefined: BTreeMap<String, String>,
    /// Learning rate.
    pub lr: f64,
    /// Milliseconds of the training step.
    pub ms: f64,
    /// End of the epoch, in seconds since 1970-01-01 UTC, to the millisecond; zero in files of earlier versions.
    #[serde(default)]
    pub time: f64,
}

impl Point {
    /// Point of an epoch.
    pub fn new(run: u64, report: &EpochReport) -> Self {
        let scores = report.scores;
        Self {
            event: "epoch".to_owned(),
            run,
            epoch: report.epoch,
            train_loss: report.train_loss,
            train_accuracy: scores.and_then(|s| s.train_accuracy),
            val_accuracy: scores.and_then(|s| s.val_accuracy),
            test_accuracy: scores.and_then(|s| s.test_accuracy),
            val_loss: scores.and_then(|s| s.val_loss),
            test_loss: scores.and_then(|s| s.test_loss),
            val_roc_auc: scores.and_then(|s| s.val_roc_auc),
            test_roc_auc: scores.and_then(|s| s.test_roc_auc),
            recall_at_20: scores.and_then(|s| s.ranking).map(|r| r.recall_at_20),
            ndcg_at_20: scores.and_then(|s| s.ranking).map(|r| r.ndcg_at_20),
            undefined: BTreeMap::new(),
            lr: report.lr,
            ms: ms(report.times.steps),
            time: now(),
        }
    }

    /// Point as a line of `metrics.jsonl`, which `--json` also prints.
    pub fn to_line(&self) -> Result<String, CliError> {
        serde_json::to_string(self).map_err(|e| CliError::Other(e.to_string()))
    }
}

/// Current time in seconds since 1970-01-01 UTC, to the millisecond.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as f64 / 1e3
}

impl Point {
    /// Adds the reasons why the score that chooses an epoch of classified nodes has no value.
    pub fn with_reasons(mut self, report: &EpochReport, score: NodeScore) -> Self {
        let Some(scores) = report.scores.filter(|scores| scores.ranking.is_none() && scores.train_accuracy.is_some())
        else {
            return self;
        };
        let keys = match score {
            NodeScore::RocAuc => ["val_roc_auc", "test_roc_auc"],
            NodeScore::Accuracy | NodeScore::MicroF1 => ["val_accuracy", "test_accuracy"],
        };
        for (key, part) in keys.into_iter().zip([Subset::Val, Subset::Test]) {
            let why = score.why_undefined(&scores, part);
            self.undefined.extend(why.map(|why| (key.to_owned(), why.to_owned())));
        }
        self
    }
}

/// Points so far: all in `metrics.jsonl`, if there is an output folder, and their curves in memory.
#[derive(Default)]
pub struct History {
    curves: Curves,
    /// Last epoch of each run in the file.
    last_epochs: BTreeMap<u64, u64>,
    file: Option<(PathBuf, BufWriter<File>)>,
    /// Lock that keeps other processes out of the folder.
    _lock: Option<File>,
}

impl History {
    /// Opens a history at `path`. With `resume` it keeps the points of the file; a last line that a crash truncated
    /// is dropped.
    pub fn open(path: &Path, resume: bool) -> Result<Self, CliError> {
        let mut history = Self::default();
        history.rewrite(path, resume.then_some(&|_: &Point| true))?;
        Ok(history)
    }

    /// Adds the lock that keeps other processes out of the folder.
    pub fn holding(self, lock: Option<File>) -> Self {
        Self { _lock: lock, ..self }
    }

    /// Drops the points of `run` after `epoch`, which a resumed run trains again. Later runs have their own
    /// checkpoints.
    pub fn truncate(&mut self, run: u64, epoch: u64) -> Result<(), CliError> {
        if self.last_epochs.get(&run).is_none_or(|&last| last <= epoch) {
            return Ok(());
        }
        let Some((path, writer)) = self.file.take() else { return Ok(()) };
        drop(writer);
        self.rewrite(&path, Some(&|point: &Point| point.run != run || point.epoch <= epoch))
    }

    /// Adds a point. Its line is in the file when this returns.
    pub fn push(&mut self, point: &Point) -> Result<(), CliError> {
        if let Some((path, writer)) = &mut self.file {
            let line = point.to_line()?;
            writeln!(writer, "{line}").and_then(|()| writer.flush()).map_err(|e| CliError::io(path, e))?;
        }
        self.take(point);
        Ok(())
    }

    /// Curves of all points.
    pub fn curves(&self) -> &Curves {
        &self.curves
    }

    fn take(&mut self, point: &Point) {
        self.curves.add(point);
        let last = self.last_epochs.entry(point.run).or_default();
        *last = point.epoch.max(*last);
    }

    /// Keeps the points of the file that `keep` accepts, none without `keep`, and opens the file for more.
    fn rewrite(&mut self, path: &Path, keep: Option<&impl Fn(&Point) -> bool>) -> Result<(), CliError> {
        (self.curves, self.last_epochs) = Default::default();
        file::write_file(path, |out| {
            let Some(keep) = keep else { return Ok(()) };
            for_each_point(path, |point| {
                if keep(&point) {
                    writeln!(out, "{}", serde_json::to_string(&point).map_err(std::io::Error::from)?)?;
                    self.take(&point);
                }
                Ok(())
            })
        })?;
        let file = File::options().append(true).open(path).map_err(|e| CliError::io(path, e))?;
        self.file = Some((path.to_owned(), BufWriter::new(file)));
        Ok(())
    }
}

/// Calls `each` for the points of a file, one by one; for none if the file does not exist.
fn for_each_point(path: &Path, mut each: impl FnMut(Point) -> Result<(), FormatError>) -> Result<(), FormatError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut lines = BufReader::new(file).lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        match serde_json::from_str(&line?) {
            Ok(point) => each(point)?,
            Err(_) if lines.peek().is_none() => break,
            Err(error) => {
                return Err(FormatError::invalid(format!(
                    "line {} is not an epoch ({error}); correct the line, or choose another --out",
                    number + 1
                )));
            }
        }
    }
    Ok(())
}
