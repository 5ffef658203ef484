//! [`RunFolder`]: what the folder of a training session says about it.

use std::path::Path;

use girih_trainer::{Checkpoint, MeanStd, Metric, Progress, Scores, TaskKind};
use serde_json::{Map, Value, json};

use crate::context::settings::spec_in;
use crate::context::trained::{checkpoints_in, no_checkpoint};
use crate::curves::Curves;
use crate::error::CliError;
use crate::history::{METRICS_FILE, for_each_point};
use crate::page::report::flattened;

/// Name of the data among the settings.
pub const DATA: &str = "data";

/// Score over the runs of a session.
pub struct OverRuns {
    /// Name in results.
    pub key: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Mean and deviation over the runs that have the score.
    pub over_runs: MeanStd,
    /// Whether it is shown in percent.
    pub is_share: bool,
}

/// Contents of the folder of a training session.
pub struct RunFolder {
    /// Path as given.
    pub name: String,
    /// Model.
    pub model: String,
    /// SPEC of the data, or their name.
    pub data: String,
    /// Number of runs with a checkpoint.
    pub n_runs: usize,
    /// Whether all runs are done.
    pub is_finished: bool,
    /// Number of epochs of the longest run.
    pub epochs: u64,
    /// Best epoch over runs; `None` before the first evaluation.
    pub best_epoch: Option<MeanStd>,
    /// Scores at the best epoch.
    pub scores: Vec<OverRuns>,
    /// Median seconds of an epoch's steps; `None` without recorded epochs.
    pub epoch_seconds: Option<f64>,
    /// Curves; empty without recorded epochs.
    pub curves: Curves,
    /// Whether accuracies are micro-F1, with several labels a node.
    pub multi_label: bool,
    /// Data and settings that have an effect, by name.
    pub settings: Vec<(String, String)>,
}

impl RunFolder {
    /// Reads a folder: its checkpoints, and its epochs, if they were recorded.
    ///
    /// # Errors
    /// When it is no folder of a training session, or a file in it is damaged or of another version.
    pub fn read(path: &Path) -> Result<Self, CliError> {
        let name = path.display().to_string();
        if path.is_file() {
            let what = "is a file; give a folder that `girih train --out DIR` wrote";
            return Err(CliError::Other(format!("{name}: {what}")));
        }
        let runs: Vec<Progress> = checkpoints_in(path)?
            .iter()
            .map(|file| Checkpoint::load(file).map(|checkpoint| checkpoint.progress))
            .collect::<Result<_, _>>()?;
        let Some(Progress { config, data, .. }) = runs.first() else { return Err(no_checkpoint(path)) };
        let spec = data_of(path, &data.name)?;
        let mut settings = vec![(DATA.to_owned(), spec.clone())];
        settings.extend(flattened(&config.read_settings()));
        let (curves, epoch_seconds) = recorded(path)?;
        Ok(Self {
            name,
            model: config.model.name().to_owned(),
            data: spec,
            n_runs: runs.len(),
            is_finished: runs.len() as u64 >= config.runs && runs.iter().all(|run| run.finished),
            epochs: runs.iter().map(|run| run.epoch).max().unwrap_or(0),
            best_epoch: over_runs(&runs, |run| run.best.map(|(epoch, _)| epoch as f64)),
            scores: scores(&runs),
            epoch_seconds,
            curves,
            multi_label: data.multi_label,
            settings,
        })
    }

    /// Value of a setting, if the session reads it.
    pub fn setting(&self, name: &str) -> Option<String> {
        self.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// The session in results.
    pub fn to_json(&self) -> Value {
        let score = |score: &OverRuns| {
            let MeanStd { mean, std } = score.over_runs;
            (score.key.to_owned(), json!({ "mean": mean, "std": std }))
        };
        json!({
            "folder": self.name,
            "model": self.model,
            "data": self.data,
            "runs": self.n_runs,
            "finished": self.is_finished,
            "epochs": self.epochs,
            "best_epoch": self.best_epoch.map(|epoch| epoch.mean),
            "epoch_seconds": self.epoch_seconds,
            "scores": self.scores.iter().map(score).collect::<Map<_, _>>(),
        })
    }
}

/// SPEC of the data that a session read, or their name where no configuration is left.
fn data_of(folder: &Path, name: &str) -> Result<String, CliError> {
    Ok(spec_in(folder)?.unwrap_or_else(|| name.to_owned()))
}

/// Curves and median seconds of the epochs that were recorded.
fn recorded(folder: &Path) -> Result<(Curves, Option<f64>), CliError> {
    let path = folder.join(METRICS_FILE);
    let (mut curves, mut times) = (Curves::default(), Vec::new());
    for_each_point(&path, |point| {
        curves.add(&point);
        times.push(point.ms / 1e3);
        Ok(())
    })
    .map_err(|error| error.at(&path))?;
    times.sort_unstable_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied();
    Ok((curves, median))
}

/// Mean and deviation over runs of a number; `None` if no run has it.
fn over_runs(runs: &[Progress], of: impl Fn(&Progress) -> Option<f64>) -> Option<MeanStd> {
    MeanStd::of(&runs.iter().filter_map(of).collect::<Vec<_>>())
}

/// Scores of the best epoch that a session of its task has.
fn scores(runs: &[Progress]) -> Vec<OverRuns> {
    let Some(first) = runs.first() else { return Vec::new() };
    let of = |key, title, is_share, value: fn(&Scores) -> Option<f64>| {
        let over_runs = over_runs(runs, |run| run.best.as_ref().and_then(|(_, scores)| value(scores)))?;
        Some(OverRuns { key, title, over_runs, is_share })
    };
    let [val, test] = match first.data.multi_label {
        true => ["val micro-F1", "test micro-F1"],
        false => ["val accuracy", "test accuracy"],
    };
    let shows_auc = first.config.metric == Metric::RocAuc || first.config.task == TaskKind::Links;
    let auc = |key, title, value| if shows_auc { of(key, title, true, value) } else { None };
    [
        of("val_accuracy", val, true, |scores| scores.val_accuracy),
        of("test_accuracy", test, true, |scores| scores.test_accuracy),
        auc("val_roc_auc", "val ROC-AUC", |scores| scores.val_roc_auc),
        auc("test_roc_auc", "test ROC-AUC", |scores| scores.test_roc_auc),
        of("test_mrr", "test MRR", false, |scores| scores.links.as_ref().map(|links| links.mrr)),
        of("val_mrr", "val MRR", false, Scores::val_mrr),
        of("test_mrr", "test MRR", false, |scores| scores.triples.as_ref()?.test.map(|ranks| ranks.mrr)),
        of("recall_at_20", "recall@20", false, |scores| scores.ranking.as_ref().map(|ranking| ranking.recall_at_20)),
        of("ndcg_at_20", "NDCG@20", false, |scores| scores.ranking.as_ref().map(|ranking| ranking.ndcg_at_20)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
