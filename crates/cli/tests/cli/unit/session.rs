//! Files of a training session: curves, scores, report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use girih_cli::internals::output::Results;
use girih_cli::internals::session::{
    CurvePoint, Curves, History, Measure, NodeScore, Point, Report, Subset, of_rank, percent_or, utc,
};
use girih_trainer::{ChosenBy, RunSummary, Scores, Thinned, TrainConfig};

fn point(run: u64, epoch: u64) -> Point {
    Point {
        event: "epoch".to_owned(),
        run,
        epoch,
        train_loss: 0.5,
        train_accuracy: Some(0.25),
        val_accuracy: None,
        test_accuracy: None,
        val_loss: None,
        test_loss: None,
        val_roc_auc: None,
        test_roc_auc: Some(0.75),
        recall_at_20: None,
        ndcg_at_20: Some(0.125),
        undefined: BTreeMap::new(),
        lr: 0.01,
        ms: 1.5,
        time: 1.7e9,
        test_mrr: None,
        val_mrr: None,
    }
}

#[test]
fn a_resumed_history_drops_the_cut_line_and_later_epochs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let mut history = History::open(&path, false, None).unwrap();
    for epoch in 1..=3 {
        history.push(&point(0, epoch)).unwrap();
    }
    drop(history);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"event\":\"epo");
    std::fs::write(&path, bytes).unwrap();

    let mut history = History::open(&path, true, None).unwrap();
    assert_eq!(history.curves().means(Measure::TrainLoss).len(), 3);
    history.truncate(0, 2).unwrap();
    assert_eq!(history.curves().means(Measure::TrainLoss).len(), 2);
    history.push(&Point { train_loss: 9.0, ..point(0, 3) }).unwrap();
    assert_eq!(history.curves().means(Measure::TrainLoss), [(1, 0.5), (2, 0.5), (3, 9.0)]);
    let text = std::fs::read_to_string(&path).unwrap();
    let found: Vec<Point> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found, [point(0, 1), point(0, 2), Point { train_loss: 9.0, ..point(0, 3) }]);
}

#[test]
fn a_damaged_line_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    std::fs::write(&path, "nonsense\n{}\n").unwrap();
    let error = History::open(&path, true, None).err().unwrap().to_string();
    assert!(error.starts_with(&path.display().to_string()) && error.contains("line 1 is not an epoch"), "{error}");
}

#[test]
fn long_curves_are_thinned_and_means_are_over_all_runs() {
    let mut curves = Curves::default();
    for run in 0..3_u8 {
        for epoch in 1..=20_000 {
            let val_loss = (epoch % 10 == 0).then_some(f64::from(run));
            curves.add(&Point { epoch, train_loss: f32::from(run), val_loss, ..Point::default() });
        }
    }
    let losses = curves.means(Measure::TrainLoss);
    assert!(losses.iter().copied().eq((8..=20_000).step_by(8).map(|epoch| (epoch, 1.0))));
    let of_scores = curves.means(Measure::ValLoss);
    assert!(of_scores.iter().copied().eq((10..=20_000).step_by(10).map(|epoch| (epoch, 1.0))));
    assert!(curves.have(Measure::ValLoss) && !curves.have(Measure::TestLoss));
}

#[test]
fn losses_that_are_not_finite_are_left_out() {
    let mut curves = Curves::default();
    curves.add(&Point { epoch: 1, train_loss: f32::NAN, ..Point::default() });
    assert!(!curves.have(Measure::TrainLoss) && curves.have(Measure::StepsMs));
}

#[test]
fn a_score_has_a_value_or_a_reason() {
    let one_class = Scores { val_accuracy: Some(1.0), val_loss: Some(0.1), ..Scores::default() };
    let reasons = [
        (NodeScore::RocAuc, Subset::Val, Some("one class only")),
        (NodeScore::Accuracy, Subset::Val, None),
        (NodeScore::RocAuc, Subset::Test, Some("no test nodes with a label")),
        (NodeScore::Accuracy, Subset::Test, Some("no test nodes with a label")),
    ];
    for (score, part, expected) in reasons {
        assert_eq!(score.why_undefined(&one_class, part), expected, "{score:?} {part:?}");
    }
    assert_eq!(percent_or(None, Some("one class only")), "undefined: one class only");
    assert_eq!(percent_or(Some(0.5), None), "50.00 %");
}

fn of(point: &Point) -> Curves {
    let mut curves = Curves::default();
    curves.add(point);
    curves
}

/// Page of a session with these curves and runs, a small result and the settings of a GCN.
fn page(title: &str, (curves, score): (&Curves, NodeScore), runs: &[RunSummary]) -> String {
    let mut results = Results::default();
    results.add("test_accuracy", 0.8, "Test accuracy", "80 % <of nodes>");
    Report {
        title,
        results: &results,
        data: vec![("Nodes", "5".to_owned()), ("Compressed as", String::new())],
        origin: vec![("Date", utc(0.0))],
        command: "girih train --data 'a & b'",
        curves: (curves, score),
        runs,
        test: None,
        times: &Thinned::default(),
        tiers: &[],
        ranks: None,
        settings: &TrainConfig::default(),
    }
    .html()
}

fn run(run: u64, best_epoch: u64) -> RunSummary {
    let scores = Scores { val_accuracy: Some(0.5), test_accuracy: Some(0.25), ..Scores::default() };
    let chosen_by = ChosenBy::ValAccuracy;
    RunSummary { run, epochs: 9, best_epoch, chosen_by, best: scores, last: scores, train_loss: 0.125 }
}

#[test]
fn the_page_holds_both_plots_and_escapes_text() {
    let curves =
        of(&Point { epoch: 1, train_loss: 2.0, val_loss: Some(1.5), val_roc_auc: Some(0.9), ..Point::default() });
    let page = page("gcn & co", (&curves, NodeScore::Accuracy), &[run(0, 1)]);
    assert_eq!(page.matches("training</span>").count(), 1, "a legend names the curves that there are");
    assert_eq!(page.matches("test</span>").count(), 0);
    assert_eq!(page.matches("<svg").count(), 2);
    for text in ["80 % &lt;of nodes&gt;", "gcn &amp; co", "--data 'a &amp; b'", "1970-01-01 00:00 UTC", "best epoch, 1"]
    {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page.matches("class=\"x\"").count(), 2, "the one epoch is labelled once in each plot");
    assert!(!page.contains("http:") && !page.contains("https:"), "nothing is fetched");
}

#[test]
fn sections_without_data_are_left_out_and_so_are_settings_that_are_not_read() {
    let curves = of(&Point { epoch: 1, train_loss: 2.0, ..Point::default() });
    let page = page("gcn", (&curves, NodeScore::Accuracy), &[run(0, 1)]);
    for absent in ["Runs", "Classes", "Time of an epoch", "Caches", "Ranks", "ROC-AUC", "Accuracy"] {
        assert!(!page.contains(&format!("<h2>{absent}</h2>")), "{absent}");
    }
    assert!(!page.contains("Compressed as"), "a fact without a value");
    for (setting, is_read) in [
        ("model.hidden", true),
        ("optimizer.beta1", true),
        ("model.heads", false),
        ("model.teleport", false),
        ("optimizer.momentum", false),
    ] {
        assert_eq!(page.contains(&format!("<th>{setting}</th>")), is_read, "{setting}");
    }
}

#[test]
fn several_runs_have_a_band_a_table_and_marks() {
    let mut curves = Curves::default();
    for (run, loss) in [(0, 1.0), (1, 3.0)] {
        curves.add(&Point { run, epoch: 1, train_loss: loss, ..Point::default() });
        curves.add(&Point { run, epoch: 2, train_loss: loss, ..Point::default() });
    }
    assert_eq!(curves.points(Measure::TrainLoss)[1], CurvePoint { epoch: 2, mean: 2.0, low: 1.0, high: 3.0 });
    let page = page("gcn", (&curves, NodeScore::Accuracy), &[run(0, 1), run(1, 2)]);
    assert_eq!(page.matches("class=\"band\"").count(), 1);
    assert_eq!(page.matches("<path class=\"mark\"").count(), 2, "a mark for each run");
    assert!(page.contains("best epoch of each run") && page.contains("[2,2.0,1.0,3.0]"), "values for the pointer");
    assert!(page.contains("<h2>Runs</h2>") && page.contains("<td>50.00 %</td><td>25.00 %</td><td>0.1250</td>"));
}

#[test]
fn curves_are_of_the_score_that_chooses_the_epoch() {
    let curves = of(&Point { epoch: 1, train_accuracy: Some(0.5), val_roc_auc: Some(0.9), ..Point::default() });
    for (score, title) in [
        (NodeScore::RocAuc, "<h2>ROC-AUC</h2>"),
        (NodeScore::MicroF1, "<h2>Micro-F1</h2>"),
        (NodeScore::Accuracy, "<h2>Accuracy</h2>"),
    ] {
        assert!(page("gcn", (&curves, score), &[]).contains(title), "{title}");
    }
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (seconds, date) in [
        (0.0, "1970-01-01 00:00 UTC"),
        (951_782_399.0, "2000-02-28 23:59 UTC"),
        (951_782_400.0, "2000-02-29 00:00 UTC"),
        (951_868_800.0, "2000-03-01 00:00 UTC"),
        (1_709_164_800.0, "2024-02-29 00:00 UTC"),
        (1_735_689_599.9, "2024-12-31 23:59 UTC"),
        (4_107_542_400.0, "2100-03-01 00:00 UTC"),
    ] {
        assert_eq!(utc(seconds), date, "{seconds}");
    }
}

#[test]
fn each_rank_has_a_file_of_its_own() {
    let path = Path::new("out/a.json");
    assert_eq!([0, 2].map(|rank| of_rank(path, rank)), ["out/a.json", "out/a.2.json"].map(PathBuf::from));
}
