//! `girih train`.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use girih_compute::Backend;
use girih_datasets::{Dataset, load};
use girih_graph_format::file;
use girih_trainer::{Control, Event, Outcome, RunSummary, SessionOptions, Spread, TrainConfig};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::{DEFAULT_DATA, backend, plan};
use crate::args::TrainArgs;
use crate::error::CliError;
use crate::history::{History, Point};
use crate::output::{Results, print_json};
use crate::report;
use girih_machine::{memory, readable_bytes};

/// What a configuration file holds: a [`TrainConfig`], and the data.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct FileConfig {
    /// As `--data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(flatten)]
    train: toml::Table,
}

/// Files below `--out`.
struct OutputFolder(PathBuf);

impl OutputFolder {
    fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    fn report(&self) -> PathBuf {
        self.0.join("report.html")
    }

    fn result(&self) -> PathBuf {
        self.0.join("result.json")
    }
}

/// Trains, reports, and writes the output folder.
pub fn run(args: &TrainArgs) -> Result<(), CliError> {
    let (spec, config) = settings(args)?;
    config.validate()?;
    let options = args.data.options(config.seed, config.runs as usize);
    if args.plan {
        return plan::run(&spec, &options, &config, args.output);
    }
    let out = args.out.clone().map(OutputFolder);
    if let Some(out) = &out {
        prepare_folder(out, &spec, &config, args.resume)?;
    }
    let backend = backend(&args.device, config.precision)?;
    let dataset = load(&spec, &options)?;
    let facts = Facts::of(&dataset, &spec, &config, backend.name());
    if !args.output.json {
        eprintln!("{}", facts.headline());
    }
    let session =
        SessionOptions { checkpoints: args.out.clone(), checkpoint_every: args.checkpoint_every, resume: args.resume };
    let history = match &out {
        Some(out) => History::open(&out.metrics(), args.resume)?,
        None => History::in_memory(),
    };
    let mut observer = Observer::new(&config, args.output.json, history)?;
    let outcome = girih_trainer::train(&backend, dataset, &config, &session, &mut |event| observer.observe(&event));
    let history = observer.finish()?;
    let outcome = outcome?;
    let results = facts.results(&config, &outcome);
    if let Some(out) = &out {
        write_outputs(out, &facts, &config, &results, history.points())?;
    }
    if !args.output.json && outcome.stopped {
        eprintln!("stopped after the epoch{}", if out.is_some() { "; continue with --resume" } else { "" });
    }
    results.print(args.output.json);
    if !args.output.json {
        print_next_steps(args, out.as_ref());
    }
    Ok(())
}

/// The data and the configuration: defaults, then the file, then the flags.
fn settings(args: &TrainArgs) -> Result<(String, TrainConfig), CliError> {
    let (file_data, mut config) = match &args.config {
        Some(path) => read_config(path)?,
        None => (None, TrainConfig::default()),
    };
    args.settings.override_in(&mut config);
    let spec = args.data.data.clone().or(file_data).unwrap_or_else(|| DEFAULT_DATA.to_owned());
    Ok((spec, config))
}

fn read_config(path: &Path) -> Result<(Option<String>, TrainConfig), CliError> {
    let text = std::fs::read_to_string(path).map_err(|e| CliError::io(path, e))?;
    let wrong = |e: toml::de::Error| CliError::Config { path: path.display().to_string(), message: e.to_string() };
    let file: FileConfig = toml::from_str(&text).map_err(wrong)?;
    // The table is parsed again from text so that messages show the line.
    let config = if file.data.is_some() {
        file.train.try_into().map_err(wrong)?
    } else {
        toml::from_str(&text).map_err(wrong)?
    };
    Ok((file.data, config))
}

/// Makes the folder and writes the configuration that the training is about to use.
fn prepare_folder(out: &OutputFolder, spec: &str, config: &TrainConfig, resume: bool) -> Result<(), CliError> {
    std::fs::create_dir_all(&out.0).map_err(|e| CliError::io(&out.0, e))?;
    let used = std::fs::read_dir(&out.0).map_err(|e| CliError::io(&out.0, e))?.next().is_some();
    if used && !resume {
        let ours = out.config().exists();
        let remedy = if ours { "continue it with --resume, or choose another folder" } else { "choose another folder" };
        return Err(CliError::Other(format!("{}: the folder is not empty; {remedy}", out.0.display())));
    }
    let train = toml::Table::try_from(config).map_err(|e| CliError::Other(e.to_string()))?;
    let text = toml::to_string(&FileConfig { data: Some(spec.to_owned()), train });
    let text = text.map_err(|e| CliError::Other(e.to_string()))?;
    Ok(file::write_file(&out.config(), |file| Ok(file.write_all(text.as_bytes())?))?)
}

fn write_outputs(
    out: &OutputFolder,
    facts: &Facts,
    config: &TrainConfig,
    results: &Results,
    points: &[Point],
) -> Result<(), CliError> {
    let title = format!("{} on {}", config.model.kind.name(), facts.data);
    let text = toml::to_string(config).map_err(|e| CliError::Other(e.to_string()))?;
    file::write_file(&out.result(), |file| Ok(writeln!(file, "{}", results.to_json())?))?;
    report::write(&out.report(), &title, &text, results, points)
}

fn print_next_steps(args: &TrainArgs, out: Option<&OutputFolder>) {
    if let Some(out) = out {
        eprintln!("\nwritten to {}: report.html, config.toml, metrics.jsonl, checkpoints", out.0.display());
    } else if args.data.data.is_none() && args.config.is_none() {
        eprintln!(
            "\nnext: --model sage or mlp to compare, --data PATH for your own graph, --runs 5 for a deviation,\n      \
             --out DIR to keep checkpoints and curves; `girih train --help` lists everything"
        );
    }
}

/// What is known before training.
struct Facts {
    data: String,
    device: String,
    n_nodes: usize,
    n_edges: usize,
    n_features: usize,
    n_classes: usize,
    generated: bool,
    multi_label: bool,
    model: &'static str,
}

impl Facts {
    fn of(dataset: &Dataset, spec: &str, config: &TrainConfig, device: String) -> Self {
        Self {
            data: spec.to_owned(),
            device,
            n_nodes: dataset.n_nodes(),
            n_edges: dataset.n_edges(),
            n_features: dataset.n_features(),
            n_classes: dataset.n_classes(),
            generated: dataset.generated,
            multi_label: matches!(dataset.labels, Some(girih_datasets::Labels::Multi { .. })),
            model: config.model.kind.name(),
        }
    }

    fn headline(&self) -> String {
        let generated = if self.generated { " (generated)" } else { "" };
        format!(
            "{} on {}{generated}: {} nodes, {} edges, {} features, {} classes; device {}",
            self.model, self.data, self.n_nodes, self.n_edges, self.n_features, self.n_classes, self.device
        )
    }

    fn results(&self, config: &TrainConfig, outcome: &Outcome) -> Results {
        let mut results = Results::default();
        results
            .add("model", self.model, "Model", self.model)
            .add("data", self.data.as_str(), "Data", self.data.as_str())
            .add_hidden("generated", self.generated)
            .add_hidden("device", self.device.as_str())
            .add_hidden("seed", config.seed)
            .add_hidden("runs", outcome.runs.len())
            .add_hidden("epochs", outcome.runs.iter().map(|run| run.epochs).max())
            .add_hidden("metric", if self.multi_label { "f1_micro" } else { "accuracy" })
            .add_hidden("stopped", outcome.stopped);
        self.add_scores(&mut results, outcome);
        add_times(&mut results, outcome);
        let peak = memory::peak_bytes();
        results
            .add("peak_host_bytes", peak, "Peak memory", peak.map_or(String::new(), readable_bytes))
            .add_hidden("peak_device_bytes", 0)
            .add_hidden("nodes", self.n_nodes)
            .add_hidden("edges", self.n_edges);
        results
    }

    fn add_scores(&self, results: &mut Results, outcome: &Outcome) {
        let percent = |spread: Option<Spread>| match spread {
            None => String::new(),
            Some(s) if outcome.runs.len() > 1 => format!("{:.2} ± {:.2} %", 100.0 * s.mean, 100.0 * s.std),
            Some(s) => format!("{:.2} %", 100.0 * s.mean),
        };
        let metric = if self.multi_label { "micro-F1" } else { "accuracy" };
        let test = outcome.over_runs(|run| run.best.test_accuracy);
        let val = outcome.over_runs(|run| run.best.val_accuracy);
        let last = outcome.over_runs(|run| run.last.test_accuracy);
        let mean = |spread: Option<Spread>| spread.map(|s| s.mean);
        let over = |what: fn(&RunSummary) -> Option<f64>| mean(outcome.over_runs(what));
        results
            .add("test_accuracy", mean(test), "Test score at the best epoch", percent(test))
            .add_hidden("test_accuracy_std", test.map(|s| s.std))
            .add("test_accuracy_last", mean(last), "Test score at the last epoch", percent(last))
            .add("val_accuracy", mean(val), "Validation score", percent(val))
            .add_hidden("train_accuracy", over(|run| run.best.train_accuracy))
            .add("metric_shown", metric, "Score", metric)
            .add_hidden("test_f1_micro", outcome.test_f1.map(|f1| f1.micro))
            .add_hidden("test_f1_macro", outcome.test_f1.map(|f1| f1.macro_))
            .add_hidden("train_loss", over(|run| Some(f64::from(run.train_loss))))
            .add_hidden("val_loss", over(|run| run.last.val_loss))
            .add_hidden("test_loss", over(|run| run.last.test_loss));
    }
}

fn add_times(results: &mut Results, outcome: &Outcome) {
    let ms = |time: Option<Duration>| time.map(|t| t.as_secs_f64() * 1e3);
    let median = ms(outcome.epoch_time_median());
    let stages = serde_json::json!({
        "forward": ms(outcome.median(|t| t.forward)),
        "backward": ms(outcome.median(|t| t.backward)),
        "optimizer": ms(outcome.median(|t| t.optimizer)),
        "evaluate": ms(outcome.median(|t| t.evaluate)),
    });
    let fastest = ms(outcome.times.iter().map(girih_trainer::StageTimes::epoch).min());
    results
        .add("epoch_ms_median", median, "Epoch, median", median.map_or(String::new(), |ms| format!("{ms:.2} ms")))
        .add_hidden("epoch_ms_min", fastest)
        .add_hidden("stage_ms", stages);
}

/// Follows training: prints, records, and stops it on Ctrl-C.
struct Observer {
    json: bool,
    bar: Option<ProgressBar>,
    history: History,
    epochs: u64,
    runs: u64,
    interrupted: Arc<AtomicBool>,
    failure: Option<CliError>,
}

impl Observer {
    fn new(config: &TrainConfig, json: bool, history: History) -> Result<Self, CliError> {
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&interrupted);
        let handler = move || {
            // The second Ctrl-C does not wait for the epoch.
            if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        };
        ctrlc::set_handler(handler).map_err(|e| CliError::Other(format!("cannot catch Ctrl-C: {e}")))?;
        let show_bar = !json && std::io::stderr().is_terminal();
        let bar = show_bar.then(|| {
            let template = "{prefix}{bar:30.cyan/blue} {pos}/{len} {msg}  {eta} left";
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(config.epochs).with_style(style)
        });
        Ok(Self { json, bar, history, epochs: config.epochs, runs: config.runs, interrupted, failure: None })
    }

    fn observe(&mut self, event: &Event<'_>) -> Control {
        let done = match event {
            Event::Prepared => Ok(()),
            Event::RunStarted { run, epochs_done } => self.start(*run, *epochs_done),
            Event::Epoch { run, report } => self.epoch(Point::new(*run, report)),
            Event::RunFinished(summary) => {
                self.finish_run(summary);
                Ok(())
            }
        };
        if let Err(error) = done {
            self.failure.get_or_insert(error);
        }
        let stop = self.failure.is_some() || self.interrupted.load(Ordering::Relaxed);
        if stop { Control::Stop } else { Control::Continue }
    }

    fn start(&mut self, run: u64, epochs_done: u64) -> Result<(), CliError> {
        if let Some(bar) = &self.bar {
            bar.reset();
            bar.set_position(epochs_done);
            if self.runs > 1 {
                bar.set_prefix(format!("run {}/{} ", run + 1, self.runs));
            }
        }
        self.history.truncate(run, epochs_done)
    }

    fn epoch(&mut self, point: Point) -> Result<(), CliError> {
        if self.json {
            print_json(&serde_json::to_value(&point).map_err(|e| CliError::Other(e.to_string()))?);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(point.epoch);
            let val = point.val_accuracy.map_or(String::new(), |a| format!("  val {:.1} %", 100.0 * a));
            bar.set_message(format!("loss {:.4}{val}", point.train_loss));
        }
        self.history.push(point)
    }

    fn finish_run(&self, summary: &RunSummary) {
        if self.json || self.runs == 1 {
            return;
        }
        let score = |value: Option<f64>| value.map_or("–".to_owned(), |a| format!("{:.2} %", 100.0 * a));
        let line = format!(
            "run {:>3}  epochs {:>4}/{}  best epoch {:>4}  val {}  test {}",
            summary.run + 1,
            summary.epochs,
            self.epochs,
            summary.best_epoch,
            score(summary.best.val_accuracy),
            score(summary.best.test_accuracy)
        );
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// The history, or what went wrong while observing.
    fn finish(self) -> Result<History, CliError> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(self.history),
        }
    }
}
