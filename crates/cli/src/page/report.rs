//! `report.html`: one self-contained page of a training session. A section without data is left out.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use girih_graph_format::file;
use girih_trainer::{CacheReport, EpochTimes, RunSummary, StageTimes, TestReport, Thinned, TrainConfig};
use serde_json::Value;

use super::ranks::RankLoads;
use super::{Chart, Series, classes, escape, facts, figures, note, page, section};
use crate::curves::{Curves, Measure};
use crate::error::CliError;
use crate::output::{Results, median_ms, percent};
use crate::scores::{NodeScore, Subset};

/// Names and values of a table.
pub type Rows = Vec<(&'static str, String)>;

/// Contents of the page.
pub struct Report<'a> {
    /// Title.
    pub title: &'a str,
    /// Result, of which the page shows what people see.
    pub results: &'a Results,
    /// Facts about the data.
    pub data: Rows,
    /// Machine, versions and date.
    pub origin: Rows,
    /// Command line.
    pub command: &'a str,
    /// Curves, and the score of classified nodes that chose the epoch.
    pub curves: (&'a Curves, NodeScore),
    /// Runs.
    pub runs: &'a [RunSummary],
    /// Scores on the test nodes.
    pub test: Option<&'a TestReport>,
    /// Times of the epochs of this session.
    pub times: &'a Thinned<EpochTimes>,
    /// Contents and hit rates of caches.
    pub tiers: &'a [CacheReport],
    /// Division over ranks, if it was measured.
    pub ranks: Option<&'a RankLoads>,
    /// Settings.
    pub settings: &'a TrainConfig,
}

impl Report<'_> {
    /// Writes the page.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), CliError> {
        let page = self.html();
        Ok(file::write_file(path, |out| Ok(out.write_all(page.as_bytes())?))?)
    }

    /// The page.
    pub fn html(&self) -> String {
        let result = facts(self.results.shown().map(|(label, shown)| (label, shown.to_owned())));
        let charts: String = self.charts().iter().map(Chart::html).collect();
        let about_curves = match (charts.is_empty(), self.runs.len()) {
            (true, _) => String::new(),
            (_, 0 | 1) => note("The training loss is taken before the step."),
            _ => note(
                "Curves are means over the runs at each epoch, bands reach from the lowest to the highest run; the training loss is \
                 taken before the step.",
            ),
        };
        let body = [
            columns(&[section("Result", &result), section("Data", &facts(self.data.clone()))]),
            columns(&[charts]),
            about(about_curves),
            section("Runs", &self.runs()),
            self.test.map_or(String::new(), classes::html),
            columns(&[section("Time of an epoch", &self.times()), section("Caches", &self.tiers())]),
            self.ranks.map_or(String::new(), RankLoads::html),
            columns(&[
                section("Settings", &facts_of(&self.settings.read_settings())),
                section("Session", &self.session()),
            ]),
        ]
        .concat();
        page(self.title, &body)
    }

    /// Charts of losses and scores, with the best epochs.
    fn charts(&self) -> [Chart; 2] {
        let (curves, score) = self.curves;
        let epochs: Vec<u64> = self.runs.iter().map(|run| run.best_epoch).collect();
        let name = match epochs[..] {
            [epoch] => format!("best epoch, {epoch}"),
            _ => "best epoch of each run".to_owned(),
        };
        charts(curves, score).map(|chart| Chart { marks: Some((name.clone(), epochs.clone())), ..chart })
    }

    /// Table of several runs.
    fn runs(&self) -> String {
        if self.runs.len() < 2 {
            return String::new();
        }
        let score = self.curves.1;
        let names = match self.runs.first().map(|run| &run.best) {
            Some(best) if best.ranking.is_some() => ["recall@20".to_owned(), "NDCG@20".to_owned()],
            Some(best) if best.triples.is_some() => ["val MRR", "test MRR"].map(str::to_owned),
            Some(best) if best.links.is_some() => ["val ROC-AUC", "test ROC-AUC"].map(str::to_owned),
            _ => ["val", "test"].map(|part| format!("{part} {}", score.title())),
        };
        let row = |run: &RunSummary| {
            let [first, second] = scores_of(run, score);
            let loss = format!("{:.4}", run.train_loss);
            vec![run.run.to_string(), run.epochs.to_string(), run.best_epoch.to_string(), first, second, loss]
        };
        let [first, second] = &names;
        let columns = ["run", "epochs", "best epoch", first, second, "last training loss"];
        figures(&columns, self.runs.iter().map(row)) + &note("Scores are those of the best epoch of each run.")
    }

    /// Bar and table of the stages of an epoch, and the share of time that did not wait for batches.
    fn times(&self) -> String {
        let stages = stages(self.times);
        let total: Duration = stages.iter().map(|stage| stage.total).sum();
        if total.is_zero() {
            return String::new();
        }
        let share = |time: Duration| time.as_secs_f64() / total.as_secs_f64();
        let bar = |(i, stage): (usize, &Stage)| {
            let grow = 1000.0 * share(stage.total);
            format!("<div class=\"c{i}\" style=\"flex:{grow:.0}\" title=\"{}\"></div>", escape(stage.name))
        };
        let bars: String = stages.iter().enumerate().map(bar).collect();
        let key = |(i, stage): (usize, &Stage)| format!("<span class=\"key c{i}\">{}</span>", escape(stage.name));
        let keys: String = stages.iter().enumerate().map(key).collect();
        let rows = stages.iter().map(|stage| {
            let median = stage.median_ms.map_or(String::new(), |ms| format!("{ms:.3} ms"));
            vec![stage.name.to_owned(), median, percent(share(stage.total))]
        });
        let table = figures(&["stage", "median", "share"], rows);
        let busy = busy_share(self.times).filter(|_| self.settings.batch.is_sampled()).map_or(String::new(), |busy| {
            note(&format!(
                "Utilisation: steps computed {} of their time, and waited for batches in the rest.",
                percent(busy)
            ))
        });
        format!("<figcaption>{keys}</figcaption><div class=\"bars\">{bars}</div>{table}{busy}")
    }

    fn tiers(&self) -> String {
        if self.tiers.is_empty() {
            return String::new();
        }
        let row = |share: &CacheReport| {
            let bytes = girih_machine::readable_bytes(share.bytes);
            vec![format!("{}, {}", share.of, share.tier.name()), share.n_nodes.to_string(), bytes, percent(share.reads)]
        };
        figures(&["rows", "nodes", "bytes", "hit rate"], self.tiers.iter().map(row))
            + &note("Hit rate: share of the reads of such rows, in some batches of the first epoch.")
    }

    fn session(&self) -> String {
        let command = format!("<h3>Command</h3><pre>{}</pre>", escape(self.command));
        facts(self.origin.clone()) + &command
    }
}

/// Charts of losses and of the score that chooses the epoch.
pub fn charts(curves: &Curves, score: NodeScore) -> [Chart; 2] {
    let line = |name: &str, colour, measure| Series { name: name.to_owned(), colour, points: curves.points(measure) };
    let of_parts = |[train, val, test]: [Measure; 3]| {
        vec![line("training", 0, train), line("validation", 1, val), line("test", 2, test)]
    };
    let losses = of_parts([Measure::TrainLoss, Measure::ValLoss, Measure::TestLoss]);
    let of_classes = [Measure::TrainAccuracy, Measure::ValAccuracy, Measure::TestAccuracy];
    let has_classes = of_classes.iter().any(|&measure| curves.have(measure));
    let accuracies = || of_parts(of_classes);
    let (title, is_share, series) = if curves.have(Measure::RecallAt20) {
        let lines = vec![line("recall@20", 1, Measure::RecallAt20), line("NDCG@20", 2, Measure::NdcgAt20)];
        ("Ranking", false, lines)
    } else if curves.have(Measure::ValMrr) || curves.have(Measure::TestMrr) {
        let lines = vec![line("validation", 1, Measure::ValMrr), line("test", 2, Measure::TestMrr)];
        ("Mean reciprocal rank", true, lines)
    } else if score == NodeScore::RocAuc || !has_classes {
        let lines = vec![line("validation", 1, Measure::ValRocAuc), line("test", 2, Measure::TestRocAuc)];
        ("ROC-AUC", true, lines)
    } else if score == NodeScore::MicroF1 {
        ("Micro-F1", true, accuracies())
    } else {
        ("Accuracy", true, accuracies())
    };
    let chart = |title: &str, is_share, series| Chart { title: title.to_owned(), is_share, series, marks: None };
    [chart("Loss", false, losses), chart(title, is_share, series)]
}

/// Two scores of a run at its best epoch: validation and test, or recall and NDCG.
pub fn scores_of(run: &RunSummary, score: NodeScore) -> [String; 2] {
    let shown = |value: Option<f64>| value.map_or("–".to_owned(), percent);
    let best = &run.best;
    match best.ranking {
        Some(ranking) => [ranking.recall_at_20, ranking.ndcg_at_20].map(|value| format!("{value:.4}")),
        None if best.triples.is_some() => {
            [best.val_mrr(), best.triples.and_then(|triples| triples.test).map(|ranks| ranks.mrr)].map(shown)
        }
        None if best.links.is_some() => [best.val_roc_auc, best.test_roc_auc].map(shown),
        None => [Subset::Val, Subset::Test].map(|part| shown(score.value(best, part))),
    }
}

/// Stage of an epoch.
struct Stage {
    name: &'static str,
    median_ms: Option<f64>,
    total: Duration,
}

/// Stages with a measured time. Without stages of the steps, as on a GPU, the steps are one.
fn stages(times: &Thinned<EpochTimes>) -> Vec<Stage> {
    let of = |name, of: fn(&EpochTimes) -> Duration| Stage {
        name,
        median_ms: median_ms(times.iter().map(of)),
        total: times.iter().map(of).sum(),
    };
    let mut all = if times.iter().all(|times| times.stages.is_some()) {
        vec![
            of("waiting for batches", |times| times.stages.unwrap_or_default().batches),
            of("forward", |times| times.stages.unwrap_or_default().forward),
            of("backward", |times| times.stages.unwrap_or_default().backward),
            of("optimizer", |times| times.stages.unwrap_or_default().optimizer),
        ]
    } else {
        vec![of("steps", |times| times.steps)]
    };
    all.push(of("evaluation", |times| times.evaluate));
    all.retain(|stage| !stage.total.is_zero());
    all
}

/// Share of the time of steps that did not wait for batches; `None` where that was not measured.
fn busy_share(times: &Thinned<EpochTimes>) -> Option<f64> {
    let all: Option<Vec<StageTimes>> = times.iter().map(|times| times.stages).collect();
    let all = all.filter(|all| !all.is_empty())?;
    let waited: Duration = all.iter().map(|stages| stages.batches).sum();
    let computed: Duration = all.iter().map(|stages| stages.forward + stages.backward + stages.optimizer).sum();
    let total = waited + computed;
    (!total.is_zero()).then(|| computed.as_secs_f64() / total.as_secs_f64())
}

/// Sections beside each other, where the page is wide.
fn columns(sections: &[String]) -> String {
    let body = sections.concat();
    if body.is_empty() { body } else { format!("<div class=\"columns\">{body}</div>") }
}

/// Section right below the charts.
fn about(body: String) -> String {
    if body.is_empty() { body } else { format!("<section class=\"about\">{body}</section>") }
}

/// Table of settings; those of a section have its name in front.
pub fn facts_of(settings: &serde_json::Map<String, Value>) -> String {
    let rows = flattened(settings);
    facts(rows.iter().map(|(name, value)| (name.as_str(), value.clone())))
}

/// Settings by their full names, such as `model.layers`.
pub fn flattened(settings: &serde_json::Map<String, Value>) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for (name, value) in settings {
        match value {
            Value::Object(section) => {
                rows.extend(flattened(section).into_iter().map(|(inner, value)| (format!("{name}.{inner}"), value)));
            }
            Value::String(text) => rows.push((name.clone(), text.clone())),
            other => rows.push((name.clone(), other.to_string())),
        }
    }
    rows
}
