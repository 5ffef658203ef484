//! [`Observer`]: prints and records training, and stops it when that fails.

use std::time::{Duration, Instant};

use girih_trainer::{BatchDone, Control, Event, RunSummary, TrainConfig};
use indicatif::{ProgressBar, ProgressStyle};

use super::outputs::OutputFolder;
use crate::args::OutputArgs;
use crate::error::CliError;
use crate::history::History;
use crate::messages;
use crate::output::{percent, print_line};
use crate::point::Point;
use crate::progress::{self, INTERVAL, Pace};
use crate::scores::{NodeScore, Subset, percent_or};

/// Observer of training that prints and records it.
pub struct Observer {
    output: OutputArgs,
    bar: Option<ProgressBar>,
    /// Progress lines, used if no bar can be drawn.
    lines: Option<Lines>,
    /// Folder that is made when the first run starts. A refused training leaves no files behind.
    outputs: Option<OutputFolder>,
    has_begun: bool,
    history: History,
    epochs: u64,
    runs: u64,
    /// Score of classified nodes that chooses the epoch.
    score: NodeScore,
    failure: Option<CliError>,
}

impl Observer {
    /// Observer of a training session with `config`. It fills `outputs`, if given; `multi_label` means several labels
    /// a node.
    pub fn new((config, multi_label): (&TrainConfig, bool), output: OutputArgs, outputs: Option<OutputFolder>) -> Self {
        let (is_shown, is_drawn) = (messages::are_shown(output), progress::is_drawn());
        let bar = (is_shown && is_drawn).then(|| {
            let template = "{prefix}{bar:30.cyan/blue} {pos}/{len} {msg}  {eta} left";
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            progress::bar(config.epochs, output).with_style(style)
        });
        let (epochs, runs, history) = (config.epochs, config.runs, History::default());
        let score = NodeScore::of_metric(config.metric, multi_label);
        let lines = (is_shown && !is_drawn).then(|| Lines::new((epochs, runs), score, INTERVAL, Instant::now()));
        Self { output, bar, lines, outputs, has_begun: false, history, epochs, runs, score, failure: None }
    }

    /// Records an event. Stops the training if something cannot be written, or `other` is an error.
    pub fn observe(&mut self, event: &Event<'_>, other: Result<(), CliError>) -> Control {
        let done = match event {
            Event::Prepared => Ok(()),
            Event::RunStarted { run, epochs_done, .. } => self.start(*run, *epochs_done),
            Event::Batch { done, .. } => {
                self.batch(*done, Instant::now());
                Ok(())
            }
            Event::Epoch { run, report } => {
                self.epoch(&Point::new(*run, report).with_reasons(report, self.score), Instant::now())
            }
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

    /// Whether a run has begun, and with it the folder for results.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn start(&mut self, run: u64, epochs_done: u64) -> Result<(), CliError> {
        if let Some(bar) = &self.bar {
            bar.reset();
            bar.set_position(epochs_done);
            if self.runs > 1 {
                bar.set_prefix(format!("run {run} of {} ", self.runs));
            }
        }
        if let Some(lines) = &mut self.lines {
            lines.begin(run, epochs_done, Instant::now());
        }
        self.has_begun = true;
        if let Some(outputs) = self.outputs.take() {
            self.history = outputs.begin()?;
        }
        self.history.truncate(run, epochs_done)
    }

    fn batch(&mut self, done: BatchDone, now: Instant) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("batch {}/{}", done.batches, done.n_batches));
        }
        if let Some(line) = self.lines.as_mut().and_then(|lines| lines.of_batch(done, now)) {
            progress::print_line(&line);
        }
    }

    fn epoch(&mut self, point: &Point, now: Instant) -> Result<(), CliError> {
        if self.output.json {
            print_line(&point.to_line()?);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(point.epoch);
            bar.set_message(in_words(point, self.score));
        }
        if let Some(line) = self.lines.as_mut().and_then(|lines| lines.of_epoch(point, now)) {
            progress::print_line(&line);
        }
        self.history.push(point)
    }

    fn finish_run(&self, summary: &RunSummary) {
        if self.runs == 1 {
            return;
        }
        let score = |value: Option<f64>| value.map_or("–".to_owned(), percent);
        let of_nodes = |part| {
            let (value, why) = (self.score.value(&summary.best, part), self.score.why_undefined(&summary.best, part));
            percent_or(value, why)
        };
        let scores = match summary.best.ranking {
            Some(ranking) => format!("recall@20 {:.4}  NDCG@20 {:.4}", ranking.recall_at_20, ranking.ndcg_at_20),
            None if summary.best.triples.is_some() => {
                let test = summary.best.triples.and_then(|triples| triples.test).map(|ranks| ranks.mrr);
                format!("MRR: val {}  test {}", score(summary.best.val_mrr()), score(test))
            }
            None if summary.best.links.is_some() => {
                format!("ROC-AUC: val {}  test {}", score(summary.best.val_roc_auc), score(summary.best.test_roc_auc))
            }
            None => {
                format!("{}: val {}  test {}", self.score.title(), of_nodes(Subset::Val), of_nodes(Subset::Test))
            }
        };
        let line = format!(
            "run {:>3}  epochs {:>4}/{}  best epoch {:>4}  {scores}",
            summary.run, summary.epochs, self.epochs, summary.best_epoch
        );
        messages::note(self.output, line);
    }

    /// History, or the error that occurred while observing.
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

/// Loss and validation score of an epoch, in words.
fn in_words(point: &Point, score: NodeScore) -> String {
    let value = if score == NodeScore::RocAuc { point.val_roc_auc } else { point.val_accuracy };
    let val = value.map(|value| format!("  val {} {}", score.title(), percent(value)));
    let recall = point.recall_at_20.map(|r| format!("  recall@20 {r:.4}"));
    let auc = point.val_roc_auc.filter(|_| value.is_none());
    let auc = auc.map(|a| format!("  val ROC-AUC {}", percent(a)));
    let mrr = point.val_mrr.map(|mrr| format!("  val MRR {}", percent(mrr)));
    let scores: String = [val, recall, auc, mrr].into_iter().flatten().collect();
    format!("loss {:.4}{scores}", point.train_loss)
}

/// Progress in lines, at most one per interval.
pub struct Lines {
    pace: Pace,
    /// Number of epochs of a run, and number of runs.
    sizes: (u64, u64),
    /// Score of classified nodes that chooses the epoch.
    score: NodeScore,
    run: u64,
    /// Current epoch, from 1.
    epoch: u64,
    /// Number of epochs done in this session, and the time when they began.
    done: u64,
    begun: Instant,
}

impl Lines {
    /// Lines for runs of `sizes`: number of epochs, and number of runs. The first is due an `interval` after `now`.
    pub fn new(sizes: (u64, u64), score: NodeScore, interval: Duration, now: Instant) -> Self {
        Self { pace: Pace::new(interval, now), sizes, score, run: 0, epoch: 1, done: 0, begun: now }
    }

    /// Begins a run, of which `epochs_done` are done.
    pub fn begin(&mut self, run: u64, epochs_done: u64, now: Instant) {
        (self.run, self.epoch) = (run, epochs_done + 1);
        if self.done == 0 {
            self.begun = now;
        }
    }

    /// Line for a finished epoch, if one is due.
    pub fn of_epoch(&mut self, point: &Point, now: Instant) -> Option<String> {
        self.done += 1;
        self.epoch = point.epoch + 1;
        let is_due = self.pace.is_due(now);
        is_due.then(|| format!("{}  {}  {} left", self.place(point.epoch), in_words(point, self.score), self.left(now)))
    }

    /// Line for a finished batch, if one is due.
    pub fn of_batch(&mut self, done: BatchDone, now: Instant) -> Option<String> {
        let is_due = self.pace.is_due(now);
        is_due.then(|| format!("{}  batch {}/{}", self.place(self.epoch), done.batches, done.n_batches))
    }

    fn place(&self, epoch: u64) -> String {
        let (epochs, runs) = self.sizes;
        let run = if runs > 1 { format!("run {} of {runs}  ", self.run) } else { String::new() };
        format!("{run}epoch {epoch}/{epochs}")
    }

    /// Remaining time, if patience never runs out.
    fn left(&self, now: Instant) -> String {
        let (epochs, runs) = self.sizes;
        let n_left = epochs.saturating_sub(self.epoch - 1) + runs.saturating_sub(self.run + 1) * epochs;
        let each = now.duration_since(self.begun).as_secs_f64() / self.done.max(1) as f64;
        Duration::try_from_secs_f64(each * n_left as f64).map_or("long".to_owned(), progress::readable)
    }
}
