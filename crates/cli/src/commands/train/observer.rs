//! [`Observer`]: follows training, prints and records it, and stops it when that fails.

use std::io::IsTerminal;

use girih_trainer::{BatchDone, Control, Event, RunSummary, TrainConfig};
use indicatif::{ProgressBar, ProgressStyle};

use super::outputs::OutputFolder;
use crate::error::CliError;
use crate::history::{History, Point};
use crate::output::print_json;
use crate::scores::{NodeScore, Part, percent_or};

/// Follows training: prints and records it.
pub struct Observer {
    json: bool,
    bar: Option<ProgressBar>,
    /// The folder to make when the first run starts; before that, a refused training leaves nothing behind.
    outputs: Option<OutputFolder>,
    has_begun: bool,
    history: History,
    epochs: u64,
    runs: u64,
    /// Score that chooses the epoch, of classified nodes.
    score: NodeScore,
    failure: Option<CliError>,
}

impl Observer {
    /// An observer of `config`'s training, with several labels a node or one, that fills `outputs`, if there are any.
    pub fn new((config, multi_label): (&TrainConfig, bool), json: bool, outputs: Option<OutputFolder>) -> Self {
        let show_bar = !json && std::io::stderr().is_terminal();
        let bar = show_bar.then(|| {
            let template = "{prefix}{bar:30.cyan/blue} {pos}/{len} {msg}  {eta} left";
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(config.epochs).with_style(style)
        });
        let (epochs, runs, history) = (config.epochs, config.runs, History::in_memory());
        let score = NodeScore::of_metric(config.metric, multi_label);
        Self { json, bar, outputs, has_begun: false, history, epochs, runs, score, failure: None }
    }

    /// Takes note of an event, and of whether another has; says to stop when something cannot be written.
    pub fn observe(&mut self, event: &Event<'_>, other: Result<(), CliError>) -> Control {
        let done = match event {
            Event::Prepared => Ok(()),
            Event::RunStarted { run, epochs_done, .. } => self.start(*run, *epochs_done),
            Event::Batch { done, .. } => {
                self.batch(*done);
                Ok(())
            }
            Event::Epoch { run, report } => self.epoch(Point::new(*run, report).with_reasons(report, self.score)),
            Event::RunFinished(summary) => {
                self.finish_run(summary);
                Ok(())
            }
        };
        if let Err(error) = other.and(done) {
            self.failure.get_or_insert(error);
        }
        if self.failure.is_some() { Control::Stop } else { Control::Continue }
    }

    /// Whether a run has begun, and with it the folder for results, if there shall be one.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn start(&mut self, run: u64, epochs_done: u64) -> Result<(), CliError> {
        if let Some(bar) = &self.bar {
            bar.reset();
            bar.set_position(epochs_done);
            if self.runs > 1 {
                bar.set_prefix(format!("run {}/{} ", run + 1, self.runs));
            }
        }
        self.has_begun = true;
        if let Some(outputs) = self.outputs.take() {
            self.history = outputs.begin()?;
        }
        self.history.truncate(run, epochs_done)
    }

    fn batch(&self, done: BatchDone) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("batch {}/{}", done.batches, done.n_batches));
        }
    }

    fn epoch(&mut self, point: Point) -> Result<(), CliError> {
        if self.json {
            print_json(&serde_json::to_value(&point).map_err(|e| CliError::Other(e.to_string()))?);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(point.epoch);
            let title = self.score.title();
            let value = if self.score == NodeScore::RocAuc { point.val_roc_auc } else { point.val_accuracy };
            let val = value.map_or(String::new(), |value| format!("  val {title} {:.1} %", 100.0 * value));
            let recall = point.recall_at_20.map_or(String::new(), |r| format!("  recall@20 {r:.4}"));
            let auc = point.val_roc_auc.filter(|_| value.is_none());
            let auc = auc.map_or(String::new(), |a| format!("  val ROC-AUC {:.1} %", 100.0 * a));
            bar.set_message(format!("loss {:.4}{val}{recall}{auc}", point.train_loss));
        }
        self.history.push(point)
    }

    fn finish_run(&self, summary: &RunSummary) {
        if self.json || self.runs == 1 {
            return;
        }
        let score = |value: Option<f64>| value.map_or("–".to_owned(), |a| format!("{:.2} %", 100.0 * a));
        let of_nodes = |part| {
            let (value, why) = (self.score.value(&summary.best, part), self.score.why_undefined(&summary.best, part));
            percent_or(value, why)
        };
        let scores = match summary.best.ranking {
            Some(ranking) => format!("recall@20 {:.4}  NDCG@20 {:.4}", ranking.recall_at_20, ranking.ndcg_at_20),
            None if summary.best.links.is_some() => {
                format!("ROC-AUC: val {}  test {}", score(summary.best.val_roc_auc), score(summary.best.test_roc_auc))
            }
            None => {
                format!("{}: val {}  test {}", self.score.title(), of_nodes(Part::Val), of_nodes(Part::Test))
            }
        };
        let line = format!(
            "run {:>3}  epochs {:>4}/{}  best epoch {:>4}  {scores}",
            summary.run + 1,
            summary.epochs,
            self.epochs,
            summary.best_epoch
        );
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// The history, or what went wrong while observing.
    pub fn finish(self) -> Result<History, CliError> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(self.history),
        }
    }
}
