//! [`Facts`]: what is trained, and the result as a table.

use std::time::Duration;

use girih_datasets::DataSource;
use girih_graph_format::Notes;
use girih_machine::{memory, readable_bytes};
use girih_partition::counted;
use girih_trainer::{
    HITS_K, InteractionSizes, LinkScores, Metric, Outcome, Ranking, RunSummary, Spread, StageTimes, TaskKind,
    TierShare, TrainConfig, mean_over_labels,
};

use crate::commands::reading;
use crate::history::Point;
use crate::output::{self, Results, as_written, median_ms, ms};

/// What is known before training.
pub struct Facts {
    data: String,
    device: String,
    n_nodes: usize,
    n_edges: usize,
    n_features: usize,
    n_classes: usize,
    generated: bool,
    multi_label: bool,
    interactions: Option<InteractionSizes>,
    /// Codec and bytes of a row of compressed features.
    codes: Option<(String, usize)>,
    task: TaskKind,
    model: &'static str,
    splits: Vec<[usize; 3]>,
    notes: Notes,
}

impl Facts {
    /// Of data and a configuration, on a device.
    pub fn of(data: &DataSource, spec: &str, config: &TrainConfig, device: String) -> Self {
        let outline = data.outline();
        let &Outline { generated, n_nodes, n_edges, n_features, n_classes, multi_label, .. } = &outline;
        let sizes = |n_users| InteractionSizes { n_users, n_items: n_nodes - n_users, n_train: n_edges / 2 };
        Self {
            data: spec.to_owned(),
            device,
            n_nodes,
            n_edges,
            n_features,
            n_classes,
            generated,
            multi_label,
            interactions: outline.n_users.map(sizes),
            codes: outline.codes.clone(),
            task: config.task,
            model: config.model.kind.name(),
            splits: outline.splits,
            notes: data.notes().clone(),
        }
    }

    /// What a report is called.
    pub fn title(&self) -> String {
        format!("{} on {}", self.model, self.data)
    }

    /// One line for people, before training.
    pub fn headline(&self) -> String {
        let generated = if self.generated { " (generated)" } else { "" };
        let shown = |(n, noun)| counted(n, noun);
        let task = if self.task == TaskKind::Links { ", links" } else { "" };
        let sizes = match self.interactions {
            Some(sizes) => {
                [(sizes.n_users, "user"), (sizes.n_items, "item"), (sizes.n_train, "interaction")].map(shown).join(", ")
            }
            None => {
                let nodes = [(self.n_nodes, "node"), (self.n_edges, "edge")].map(shown).join(", ");
                let rows = [(self.n_features, "feature"), (self.n_classes, "class")].map(shown).join(", ");
                format!("{nodes}, {rows}")
            }
        };
        let codes = self
            .codes
            .as_ref()
            .map_or(String::new(), |(codec, row_bytes)| format!(" as {codec}, {row_bytes} bytes a row"));
        format!("{}{task} on {}{generated}: {sizes}{codes}; device {}", self.model, self.data, self.device)
    }

    /// Lines for people below the headline: sizes of the split, and what was made up.
    pub fn lines(&self) -> Vec<String> {
        let has_split = self.task == TaskKind::Nodes && self.interactions.is_none();
        let split = has_split.then(|| format!("split: {}", reading::shown_splits(&self.splits)));
        split.into_iter().chain(self.notes.made_up.iter().map(|made| made.text.clone())).collect()
    }

    /// Warns of data that is not used or doubtful.
    pub fn warn(&self) {
        reading::warn_of(&self.notes);
    }

    /// The result of training, with the epochs of these and earlier sessions, which took so many bytes of a device with
    /// memory of its own.
    pub fn results(
        &self,
        config: &TrainConfig,
        outcome: &Outcome,
        points: &[Point],
        peak_device_bytes: u64,
    ) -> Results {
        let mut results = Results::default();
        results
            .add("model", self.model, "Model", self.model)
            .add("data", self.data.as_str(), "Data", self.data.as_str())
            .add_hidden("generated", self.generated)
            .add_hidden("device", self.device.as_str())
            .add_hidden("seed", config.seed)
            .add_hidden("task", config.task.name())
            .add_hidden("batch", config.batch.kind.name())
            .add_hidden("codec", self.codes.as_ref().map_or("none", |(codec, _)| codec.as_str()))
            .add_hidden("row_bytes", self.codes.as_ref().map(|(_, row_bytes)| *row_bytes))
            .add_hidden("runs", outcome.runs.len())
            .add_hidden("epochs", outcome.runs.iter().map(|run| run.epochs).max())
            .add_hidden("stopped", outcome.stopped);
        if config.model.kind.is_recommender() {
            add_ranking(&mut results, outcome);
        } else if self.task == TaskKind::Links {
            add_links(&mut results, outcome);
        } else {
            self.add_scores(&mut results, outcome, config.metric);
        }
        if let Some(error) = outcome.wire_error {
            results.add("wire_error", error, "Error of logits by rounding on the wire", output::percent(error));
        }
        add_times(&mut results, outcome, points);
        add_tiers(&mut results, &outcome.tiers);
        let peak = memory::peak_bytes();
        results
            .add("peak_host_bytes", peak, "Peak memory", peak.map_or(String::new(), readable_bytes))
            .add_hidden("peak_device_bytes", peak_device_bytes)
            .add_hidden("nodes", self.n_nodes)
            .add_hidden("edges", self.n_edges);
        reading::add_hidden(&mut results, &self.splits, &self.notes);
        results
    }

    fn add_scores(&self, results: &mut Results, outcome: &Outcome, metric: Metric) {
        let percent = |spread: Option<Spread>| percent(outcome, spread);
        let metric = match (metric, self.multi_label) {
            (Metric::RocAuc, _) => ("roc-auc", "ROC-AUC"),
            (Metric::Accuracy, true) => ("f1_micro", "micro-F1"),
            (Metric::Accuracy, false) => ("accuracy", "accuracy"),
        };
        let test = outcome.over_runs(|run| run.best.test_accuracy);
        let val = outcome.over_runs(|run| run.best.val_accuracy);
        let last = outcome.over_runs(|run| run.last.test_accuracy);
        let auc = outcome.over_runs(|run| run.best.test_roc_auc);
        let mean = |spread: Option<Spread>| spread.map(|s| s.mean);
        if auc.is_some() {
            results.add("test_roc_auc", mean(auc), "Test ROC-AUC at the best epoch", percent(auc));
        }
        let f1 = outcome.test.as_ref().and_then(|test| test.f1);
        let average_precision = outcome.test.as_ref().and_then(|test| mean_over_labels(&test.average_precision));
        let over = |what: fn(&RunSummary) -> Option<f64>| mean(outcome.over_runs(what));
        results
            .add("test_accuracy", mean(test), "Test score at the best epoch", percent(test))
            .add_hidden("test_accuracy_std", test.map(|s| s.std))
            .add("test_accuracy_last", mean(last), "Test score at the last epoch", percent(last))
            .add("val_accuracy", mean(val), "Validation score", percent(val))
            .add_hidden("train_accuracy", over(|run| run.best.train_accuracy))
            .add("metric", metric.0, "Score", metric.1)
            .add_hidden("val_roc_auc", over(|run| run.best.val_roc_auc))
            .add_hidden("test_roc_auc_std", auc.map(|s| s.std))
            .add_hidden("test_f1_micro", f1.map(|f1| f1.micro))
            .add_hidden("test_f1_macro", f1.map(|f1| f1.macro_))
            .add_hidden("test_average_precision", average_precision)
            .add_hidden("train_loss", over(|run| Some(as_written(run.train_loss))))
            .add_hidden("val_loss", over(|run| run.last.val_loss))
            .add_hidden("test_loss", over(|run| run.last.test_loss));
    }
}

/// What lay where, unless devices had all.
fn add_tiers(results: &mut Results, tiers: &[TierShare]) {
    if tiers.is_empty() {
        return;
    }
    let lines: Vec<String> = tiers.iter().map(of_share).collect();
    results.add("tiers", serde_json::to_value(tiers).unwrap_or_default(), "Tiers", lines.join("\n"));
}

/// What lies in one kind of memory, in words.
pub fn of_share(share: &TierShare) -> String {
    let (bytes, reads) = (readable_bytes(share.bytes), output::percent(share.reads));
    let TierShare { of, tier, n_nodes, .. } = share;
    format!("{of} of {n_nodes} nodes, {}: {bytes}, {reads} of reads", tier.name())
}

/// A share, with its deviation over several runs.
fn percent(outcome: &Outcome, spread: Option<Spread>) -> String {
    match spread {
        None => String::new(),
        Some(s) if outcome.runs.len() > 1 => format!("{:.2} ± {:.2} %", 100.0 * s.mean, 100.0 * s.std),
        Some(s) => output::percent(s.mean),
    }
}

/// The scores of a link predictor, at the epoch of the best ROC-AUC on the validation links.
fn add_links(results: &mut Results, outcome: &Outcome) {
    let over = |what: fn(&RunSummary) -> Option<f64>| outcome.over_runs(what);
    let ranks = |of: fn(&LinkScores) -> f64| outcome.over_runs(|run| run.best.links.as_ref().map(of));
    let mean = |spread: Option<Spread>| spread.map(|s| s.mean);
    let shown = |spread: Option<Spread>| percent(outcome, spread);
    let (test, val) = (over(|run| run.best.test_roc_auc), over(|run| run.best.val_roc_auc));
    let last = over(|run| run.last.test_roc_auc);
    let (precision, hits, mrr) = (ranks(|l| l.average_precision), ranks(|l| l.hits_at_20), ranks(|l| l.mrr));
    const { assert!(HITS_K == 20, "names and labels say so") };
    results
        .add("test_roc_auc", mean(test), "Test ROC-AUC at the best epoch", shown(test))
        .add_hidden("test_roc_auc_std", test.map(|s| s.std))
        .add("test_roc_auc_last", mean(last), "Test ROC-AUC at the last epoch", shown(last))
        .add("test_average_precision", mean(precision), "Test average precision", shown(precision))
        .add("test_hits_at_20", mean(hits), "Test hits@20", shown(hits))
        .add("test_mrr", mean(mrr), "Test mean reciprocal rank", shown(mrr))
        .add("val_roc_auc", mean(val), "Validation ROC-AUC", shown(val))
        .add_hidden("best_epoch", mean(over(|run| Some(run.best_epoch as f64))))
        .add_hidden("train_loss", mean(over(|run| Some(as_written(run.train_loss)))))
        .add_hidden("val_loss", mean(over(|run| run.last.val_loss)))
        .add_hidden("test_loss", mean(over(|run| run.last.test_loss)));
}

/// The scores of a recommender, at the epoch of the best recall and at the last.
fn add_ranking(results: &mut Results, outcome: &Outcome) {
    let best = |of: fn(&Ranking) -> f64| outcome.over_runs(|run| run.best.ranking.as_ref().map(of));
    let last = |of: fn(&Ranking) -> f64| outcome.over_runs(|run| run.last.ranking.as_ref().map(of));
    let mean = |spread: Option<Spread>| spread.map(|s| s.mean);
    let shown = |spread: Option<Spread>| match spread {
        None => String::new(),
        Some(s) if outcome.runs.len() > 1 => format!("{:.4} ± {:.4}", s.mean, s.std),
        Some(s) => format!("{:.4}", s.mean),
    };
    let (recall, ndcg) = (best(|r| r.recall_at_20), best(|r| r.ndcg_at_20));
    let best_epoch = outcome.over_runs(|run| Some(run.best_epoch as f64));
    results
        .add("recall_at_20", mean(recall), "Recall@20 at the best epoch", shown(recall))
        .add("ndcg_at_20", mean(ndcg), "NDCG@20 at the best epoch", shown(ndcg))
        .add_hidden("recall_at_20_std", recall.map(|s| s.std))
        .add_hidden("ndcg_at_20_std", ndcg.map(|s| s.std))
        .add_hidden("precision_at_20", mean(best(|r| r.precision_at_20)))
        .add_hidden("hits_at_20", mean(best(|r| r.hits_at_20)))
        .add_hidden("best_epoch", mean(best_epoch))
        .add(
            "recall_at_20_last",
            mean(last(|r| r.recall_at_20)),
            "Recall@20 at the last epoch",
            shown(last(|r| r.recall_at_20)),
        )
        .add(
            "ndcg_at_20_last",
            mean(last(|r| r.ndcg_at_20)),
            "NDCG@20 at the last epoch",
            shown(last(|r| r.ndcg_at_20)),
        )
        .add_hidden("train_loss", mean(outcome.over_runs(|run| Some(as_written(run.train_loss)))));
}

/// Times of the epochs of this session; where all were trained in earlier ones, of those.
fn add_times(results: &mut Results, outcome: &Outcome, points: &[Point]) {
    let times = &outcome.times;
    let mut steps: Vec<Duration> = times.iter().map(|t| t.steps).collect();
    if steps.is_empty() {
        steps = points.iter().map(|point| Duration::from_secs_f64(1e-3 * point.ms)).collect();
    }
    let median = median_ms(steps.iter().copied());
    let fastest = steps.into_iter().min().map(ms);
    let stage = |stage: fn(StageTimes) -> Duration| median_ms(times.iter().filter_map(|t| t.stages.map(stage)));
    let stages = serde_json::json!({
        "batches": stage(|t| t.batches),
        "forward": stage(|t| t.forward),
        "backward": stage(|t| t.backward),
        "optimizer": stage(|t| t.optimizer),
        "evaluate": median_ms(times.iter().map(|t| t.evaluate)),
    });
    results
        .add("epoch_ms_median", median, "Epoch, median", median.map_or(String::new(), |ms| format!("{ms:.2} ms")))
        .add_hidden("epoch_ms_min", fastest)
        .add_hidden("stage_ms", stages);
}
