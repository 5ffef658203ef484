//! Scores of a training session: mean and deviation over runs, or the reason why there are none.

use girih_trainer::{
    ChosenBy, EntityRanks, HITS_K, LinkScores, MeanStd, Metric, Outcome, Ranking, RunSummary, Scores, mean_over_labels,
    n_left_out,
};

use crate::output::{Results, as_written};
use crate::scores::{NodeScore, Subset, Undefined, chosen_in_words};

/// Score over all runs.
struct OverRuns {
    spread: Option<MeanStd>,
    n_runs: usize,
    n_defined: usize,
    why: Option<&'static str>,
}

impl OverRuns {
    fn of(
        outcome: &Outcome,
        value: impl Fn(&RunSummary) -> Option<f64>,
        why: impl Fn(&RunSummary) -> Option<&'static str>,
    ) -> Self {
        let undefined = outcome.runs.iter().filter(|run| value(run).is_none());
        let why = undefined.clone().find_map(&why);
        let n_runs = outcome.runs.len();
        Self { spread: outcome.over_runs(&value), n_runs, n_defined: n_runs - undefined.count(), why }
    }

    fn mean(&self) -> Option<f64> {
        self.spread.map(|spread| spread.mean)
    }

    fn std(&self) -> Option<f64> {
        self.spread.map(|spread| spread.std)
    }

    /// Mean and deviation as text. If not all runs have the score, the text says how many do.
    fn shown(&self, one: impl Fn(f64) -> String, unit: &str) -> String {
        let Some(MeanStd { mean, std }) = self.spread else {
            return self.why.map_or(String::new(), |why| format!("undefined: {why}"));
        };
        let value = if self.n_runs > 1 {
            format!("{} ± {}{unit}", one(mean), one(std))
        } else {
            format!("{}{unit}", one(mean))
        };
        match self.why {
            Some(why) if self.n_defined < self.n_runs => {
                format!("{value}, over {} of {} runs (others: {why})", self.n_defined, self.n_runs)
            }
            _ => value,
        }
    }

    fn percent(&self) -> String {
        self.shown(|value| format!("{:.2}", 100.0 * value), " %")
    }

    fn four(&self) -> String {
        self.shown(|value| format!("{value:.4}"), "")
    }
}

/// Epoch whose scores are reported.
#[derive(Clone, Copy)]
enum At {
    Best,
    Last,
}

fn scores_at(run: &RunSummary, at: At) -> &Scores {
    match at {
        At::Best => &run.best,
        At::Last => &run.last,
    }
}

fn of_nodes(outcome: &Outcome, score: NodeScore, (at, part): (At, Subset)) -> OverRuns {
    let of = |run: &RunSummary| score.value(scores_at(run, at), part);
    OverRuns::of(outcome, of, |run| score.why_undefined(scores_at(run, at), part))
}

/// Labels of the table: test score at the best and at the last epoch, validation score.
fn titles(score: NodeScore) -> [&'static str; 3] {
    match score {
        NodeScore::Accuracy => {
            ["Test accuracy at the best epoch", "Test accuracy at the last epoch", "Validation accuracy"]
        }
        NodeScore::MicroF1 => {
            ["Test micro-F1 at the best epoch", "Test micro-F1 at the last epoch", "Validation micro-F1"]
        }
        NodeScore::RocAuc => ["Test ROC-AUC at the best epoch", "Test ROC-AUC at the last epoch", "Validation ROC-AUC"],
    }
}

/// Adds the scores of classified nodes: of the metric that chooses the epoch, then of others.
pub fn add_nodes(results: &mut Results, outcome: &Outcome, (metric, multi_label): (Metric, bool)) {
    let classes = NodeScore::of_classes(multi_label);
    let chosen = NodeScore::of_metric(metric, multi_label);
    let over = |score, at, part| of_nodes(outcome, score, (at, part));
    let (test, last) = (over(classes, At::Best, Subset::Test), over(classes, At::Last, Subset::Test));
    let (val, auc) = (over(classes, At::Best, Subset::Val), over(NodeScore::RocAuc, At::Best, Subset::Test));
    let (auc_last, val_auc) =
        (over(NodeScore::RocAuc, At::Last, Subset::Test), over(NodeScore::RocAuc, At::Best, Subset::Val));
    let mut undefined = Undefined::default();
    let has_auc = auc.spread.is_some() || val_auc.spread.is_some() || chosen == NodeScore::RocAuc;
    let shows_auc = auc.spread.is_some() || chosen == NodeScore::RocAuc;
    let is_chosen = |score: NodeScore| score == chosen;
    let [title, title_last, title_val] = titles(NodeScore::RocAuc);
    if shows_auc {
        let shown = auc.percent() + &left_out(outcome, &auc, |scores| scores.test_labels_left_out);
        results.add("test_roc_auc", auc.mean(), title, shown);
    }
    if is_chosen(NodeScore::RocAuc) {
        let shown = val_auc.percent() + &left_out(outcome, &val_auc, |scores| scores.val_labels_left_out);
        results.add("test_roc_auc_last", auc_last.mean(), title_last, auc_last.percent());
        results.add("val_roc_auc", val_auc.mean(), title_val, shown);
    } else {
        results.add_hidden("val_roc_auc", val_auc.mean());
    }
    if has_auc {
        let all = [("test_roc_auc", &auc), ("test_roc_auc_last", &auc_last), ("val_roc_auc", &val_auc)];
        all.iter().for_each(|(key, score)| undefined.note(key, score.why));
    }
    let [title, title_last, title_val] = titles(classes);
    let if_chosen = |shown: String| if is_chosen(classes) { shown } else { String::new() };
    results
        .add("test_accuracy", test.mean(), title, test.percent())
        .add_hidden("test_accuracy_std", test.std())
        .add("test_accuracy_last", last.mean(), title_last, if_chosen(last.percent()))
        .add("val_accuracy", val.mean(), title_val, if_chosen(val.percent()))
        .add_hidden("train_accuracy", over(classes, At::Best, Subset::Train).mean())
        .add_hidden("metric", chosen.key())
        .add_hidden("accuracy_is", classes.key())
        .add_hidden("test_roc_auc_std", auc.std());
    let all = [("test_accuracy", &test), ("test_accuracy_last", &last), ("val_accuracy", &val)];
    all.iter().for_each(|(key, score)| undefined.note(key, score.why));
    add_test_report(results, outcome, &mut undefined);
    add_best_epoch(results, outcome, chosen);
    add_losses(results, outcome);
    undefined.add_to(results);
}

/// Number of labels of the last run that the mean leaves out, in words. Empty if there is no mean.
fn left_out(outcome: &Outcome, mean: &OverRuns, of: impl Fn(&Scores) -> usize) -> String {
    match outcome.runs.last().filter(|_| mean.spread.is_some()).map(|run| of(&run.best)) {
        None | Some(0) => String::new(),
        Some(1) => " (1 label left out: it has one answer only)".to_owned(),
        Some(n) => format!(" ({n} labels left out: they have one answer only)"),
    }
}

/// Adds F1 and average precision of the last run.
fn add_test_report(results: &mut Results, outcome: &Outcome, undefined: &mut Undefined) {
    let Some(test) = &outcome.test else {
        for key in ["test_f1_micro", "test_f1_macro", "test_average_precision"] {
            results.add_hidden(key, None::<f64>);
        }
        return;
    };
    let scores = outcome.runs.last().map(|run| run.best).unwrap_or_default();
    let precision = mean_over_labels(&test.average_precision);
    results
        .add_hidden("test_f1_micro", test.f1.map(|f1| f1.micro))
        .add_hidden("test_f1_macro", test.f1.map(|f1| f1.macro_))
        .add_hidden("test_f1_classes_absent", test.f1.map(|f1| f1.n_absent))
        .add_hidden("test_average_precision", precision)
        .add_hidden("test_roc_auc_labels_left_out", n_left_out(&test.roc_auc))
        .add_hidden("test_average_precision_labels_left_out", n_left_out(&test.average_precision));
    if test.f1.is_none() {
        let why = NodeScore::MicroF1.why_undefined(&Scores { test_accuracy: None, ..scores }, Subset::Test);
        undefined.note("test_f1_micro", why);
        undefined.note("test_f1_macro", why);
    }
    if precision.is_none() && !test.average_precision.is_empty() {
        let why = if scores.test_loss.is_some() { "no positives" } else { "no test nodes with a label" };
        undefined.note("test_average_precision", Some(why));
    }
}

/// Adds the chosen epoch, and the rule that chose it.
fn add_best_epoch(results: &mut Results, outcome: &Outcome, score: NodeScore) {
    let mean = outcome.over_runs(|run| Some(run.best_epoch as f64)).map(|spread| spread.mean);
    let mut rules: Vec<ChosenBy> = Vec::new();
    for run in &outcome.runs {
        if !rules.contains(&run.chosen_by) {
            rules.push(run.chosen_by);
        }
    }
    let words: Vec<String> = rules.iter().map(|&rule| chosen_in_words(rule, score)).collect();
    let shown = match &outcome.runs[..] {
        [] => String::new(),
        [run] => format!("{}, {}", run.best_epoch, words.join("; ")),
        _ => words.join("; "),
    };
    let names: Vec<&str> = rules.iter().map(|rule| rule.name()).collect();
    results.add("best_epoch", mean, "Best epoch", shown).add_hidden("chosen_by", names.join(", "));
}

fn add_losses(results: &mut Results, outcome: &Outcome) {
    let mean = |what: fn(&RunSummary) -> Option<f64>| outcome.over_runs(what).map(|spread| spread.mean);
    results
        .add_hidden("train_loss", mean(|run| Some(as_written(run.train_loss))))
        .add_hidden("val_loss", mean(|run| run.last.val_loss))
        .add_hidden("test_loss", mean(|run| run.last.test_loss));
}

/// Adds the scores of a link predictor, at the epoch of the best ROC-AUC on the validation links.
pub fn add_links(results: &mut Results, outcome: &Outcome) {
    const NO_TEST: &str = "no test links";
    let over =
        |value: fn(&RunSummary) -> Option<f64>, why: &'static str| OverRuns::of(outcome, value, move |_| Some(why));
    let ranks = |of: fn(&LinkScores) -> f64| {
        OverRuns::of(outcome, move |run| run.best.links.as_ref().map(of), |_| Some(NO_TEST))
    };
    let (test, last) = (over(|run| run.best.test_roc_auc, NO_TEST), over(|run| run.last.test_roc_auc, NO_TEST));
    let val = over(|run| run.best.val_roc_auc, "no validation links");
    let (precision, hits, mrr) = (ranks(|l| l.average_precision), ranks(|l| l.hits_at_20), ranks(|l| l.mrr));
    const { assert!(HITS_K == 20, "names and labels say so") };
    let mut undefined = Undefined::default();
    results.add_hidden("test_roc_auc_std", test.std());
    for (key, score, title) in [
        ("test_roc_auc", &test, "Test ROC-AUC at the best epoch"),
        ("test_roc_auc_last", &last, "Test ROC-AUC at the last epoch"),
        ("test_average_precision", &precision, "Test average precision"),
        ("test_hits_at_20", &hits, "Test hits@20"),
        ("test_mrr", &mrr, "Test mean reciprocal rank"),
        ("val_roc_auc", &val, "Validation ROC-AUC"),
    ] {
        results.add(key, score.mean(), title, score.percent());
        undefined.note(key, score.why);
    }
    add_best_epoch(results, outcome, NodeScore::RocAuc);
    add_losses(results, outcome);
    undefined.add_to(results);
}

/// Adds the scores of triples, at the epoch of the best mean reciprocal rank of the validation triples.
pub fn add_triples(results: &mut Results, outcome: &Outcome) {
    const NO_TEST: &str = "no test triples";
    let over = |at: At, of: fn(&EntityRanks) -> f64| {
        let value = move |run: &RunSummary| scores_at(run, at).triples?.test.as_ref().map(of);
        OverRuns::of(outcome, value, |_| Some(NO_TEST))
    };
    let (mrr, last) = (over(At::Best, |r| r.mrr), over(At::Last, |r| r.mrr));
    let val = OverRuns::of(outcome, |run| run.best.val_mrr(), |_| Some("no validation triples"));
    let mut undefined = Undefined::default();
    results.add_hidden("test_mrr_std", mrr.std());
    for (key, score, title) in [
        ("test_mrr", &mrr, "Test mean reciprocal rank at the best epoch"),
        ("test_mrr_last", &last, "Test mean reciprocal rank at the last epoch"),
        ("test_hits_at_1", &over(At::Best, |r| r.hits_at_1), "Test hits@1"),
        ("test_hits_at_3", &over(At::Best, |r| r.hits_at_3), "Test hits@3"),
        ("test_hits_at_10", &over(At::Best, |r| r.hits_at_10), "Test hits@10"),
        ("val_mrr", &val, "Validation mean reciprocal rank"),
    ] {
        results.add(key, score.mean(), title, score.percent());
        undefined.note(key, score.why);
    }
    let unseen = outcome.runs.first().and_then(|run| run.best.triples).map(|triples| triples.unseen_entities);
    results.add(
        "unseen_entities",
        unseen,
        "Entities unseen in training",
        unseen.map_or(String::new(), |n| n.to_string()),
    );
    add_best_epoch(results, outcome, NodeScore::RocAuc);
    let loss = outcome.over_runs(|run| Some(as_written(run.train_loss)));
    results.add_hidden("train_loss", loss.map(|spread| spread.mean));
    undefined.add_to(results);
}

/// Adds the scores of a recommender, at the epoch of the best recall and at the last epoch.
pub fn add_ranking(results: &mut Results, outcome: &Outcome) {
    let of = |at: At, of: fn(&Ranking) -> f64| {
        let value = move |run: &RunSummary| scores_at(run, at).ranking.as_ref().map(of);
        OverRuns::of(outcome, value, |_| Some("no test items"))
    };
    let (recall, ndcg) = (of(At::Best, |r| r.recall_at_20), of(At::Best, |r| r.ndcg_at_20));
    let (recall_last, ndcg_last) = (of(At::Last, |r| r.recall_at_20), of(At::Last, |r| r.ndcg_at_20));
    let (precision, hits) = (of(At::Best, |r| r.precision_at_20), of(At::Best, |r| r.hits_at_20));
    let mut undefined = Undefined::default();
    for (key, score, title) in [
        ("recall_at_20", &recall, "Recall@20 at the best epoch"),
        ("ndcg_at_20", &ndcg, "NDCG@20 at the best epoch"),
        ("recall_at_20_last", &recall_last, "Recall@20 at the last epoch"),
        ("ndcg_at_20_last", &ndcg_last, "NDCG@20 at the last epoch"),
    ] {
        results.add(key, score.mean(), title, score.four());
        undefined.note(key, score.why);
    }
    results
        .add_hidden("recall_at_20_std", recall.std())
        .add_hidden("ndcg_at_20_std", ndcg.std())
        .add_hidden("precision_at_20", precision.mean())
        .add_hidden("hits_at_20", hits.mean());
    undefined.note("precision_at_20", precision.why);
    undefined.note("hits_at_20", hits.why);
    add_best_epoch(results, outcome, NodeScore::RocAuc);
    let loss = outcome.over_runs(|run| Some(as_written(run.train_loss)));
    results.add_hidden("train_loss", loss.map(|spread| spread.mean));
    undefined.add_to(results);
}
