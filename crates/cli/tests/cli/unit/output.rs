//! Messages, results and progress.

use std::time::{Duration, Instant};

use girih_cli::internals::args::Cli;
use girih_cli::internals::output::{LABEL_WIDTH, Results, WIDTH, as_written, directive, escaped, line, ms, wrapped};
use girih_cli::internals::progress::{INTERVAL, Lines, Pace, readable};
use girih_cli::internals::session::{NodeScore, Point};
use girih_trainer::BatchDone;
use tracing::Level;

#[test]
fn numbers_have_the_digits_of_their_precision() {
    assert_eq!(as_written(0.1).to_string(), "0.1");
    assert_eq!(as_written(1.790_125).to_string(), "1.790125");
    assert!(as_written(f32::NAN).is_nan() && as_written(f32::INFINITY).is_infinite());
    assert_eq!(ms(Duration::from_nanos(1_234_567)), 1.235);
}

#[test]
fn text_cannot_steer_a_terminal() {
    assert_eq!(escaped("a.npy\tGröße 3\n"), "a.npy\tGröße 3\n");
    let (title, up, colour) = ("\x1b]0;title\x07", "\x1b[1A\x1b[2K\r", "\x1b[1;31mred\x1b[0m");
    assert_eq!(escaped(title), "\\u{1b}]0;title\\u{7}");
    assert_eq!(escaped(up), "\\u{1b}[1A\\u{1b}[2K\\r");
    assert_eq!(escaped(colour), colour);
}

#[test]
fn programs_see_all_values_and_people_the_labelled_ones() {
    let mut results = Results::default();
    results.add("nodes", 3, "Nodes", "3").add_hidden("seed", 1);
    assert_eq!(results.to_json().to_string(), r#"{"event":"result","nodes":3,"seed":1}"#);
    assert_eq!(results.to_part().to_string(), r#"{"nodes":3,"seed":1}"#);
    assert_eq!(results.shown().collect::<Vec<_>>(), [("Nodes", "3")]);
}

#[test]
fn flags_choose_the_level() {
    let of =
        |flags: &str| directive(Cli::parse_line(format!("girih doctor {flags}").split_whitespace()).unwrap().messages);
    assert_eq!(["", "-q", "-qq"].map(of), ["warn", "warn", "error"]);
    assert_eq!(["-v", "-vv", "-vvv"].map(of), ["warn,girih=info", "warn,girih=debug", "warn,girih=debug"]);
}

#[test]
fn a_warning_names_no_module() {
    assert_eq!(line(Level::WARN, "girih_reorder::clusters", "few nodes"), "warning: few nodes");
    assert_eq!(line(Level::DEBUG, "girih_cli", "a"), "debug: girih_cli: a");
}

#[test]
fn lines_fit_beside_labels_and_paths_stay_whole() {
    let path = format!("/{}", "a".repeat(90));
    let text = format!("some library that is found in the folder {path} and is needed for dense products of all kinds");
    let lines = wrapped(&text);
    assert_eq!(lines.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
    for line in lines.lines() {
        assert!(line.chars().count() <= WIDTH - LABEL_WIDTH || line == path, "{line}");
    }
}

#[test]
fn a_line_is_due_once_an_interval() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut pace = Pace::new(INTERVAL, start);
    let due: Vec<u64> = (0..45).filter(|&second| pace.is_due(at(second))).collect();
    assert_eq!(due, [10, 20, 30, 40]);
}

#[test]
fn durations_are_readable() {
    let of = |seconds| readable(Duration::from_secs_f64(seconds));
    assert_eq!([of(0.4), of(45.0), of(150.0), of(12_000.0)], ["0 s", "45 s", "3 min", "3 h 20 min"]);
}

fn point(epoch: u64) -> Point {
    Point { epoch, train_loss: 0.5, val_accuracy: Some(0.7125), val_roc_auc: Some(0.64), ..Point::default() }
}

#[test]
fn a_line_an_interval_says_where_training_is_and_what_is_left() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut lines = Lines::new((100, 1), NodeScore::Accuracy, INTERVAL, start);
    lines.begin(0, 20, start);
    let told: Vec<String> = (1..=30).filter_map(|i| lines.of_epoch(&point(20 + i), at(i))).collect();
    assert_eq!(told[0], "epoch 30/100  loss 0.5000  val accuracy 71.25 %  70 s left");
    assert_eq!(told[2], "epoch 50/100  loss 0.5000  val accuracy 71.25 %  50 s left");
    assert_eq!(told.len(), 3);
}

#[test]
fn a_long_epoch_is_told_by_its_batches_and_runs_are_counted_from_zero() {
    let start = Instant::now();
    let mut lines = Lines::new((10, 3), NodeScore::RocAuc, INTERVAL, start);
    lines.begin(1, 0, start);
    let done = BatchDone { batches: 40, n_batches: 900 };
    assert_eq!(lines.of_batch(done, start + INTERVAL / 2), None);
    let told = lines.of_batch(done, start + INTERVAL);
    assert_eq!(told.unwrap(), "run 1 of 3  epoch 1/10  batch 40/900");
    let told = lines.of_epoch(&point(1), start + 2 * INTERVAL);
    assert_eq!(told.unwrap(), "run 1 of 3  epoch 1/10  loss 0.5000  val ROC-AUC 64.00 %  6 min left");
}
