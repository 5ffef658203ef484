//! `girih evaluate` and `girih predict`: a trained model on a data set.

mod links;
mod recommend;
mod similarity;

use std::path::{Path, PathBuf};

use girih_compress::CodecSpec;
use girih_datasets::{Dataset, LoadOptions};
use girih_graph_format::{Matrix, file};
use girih_trainer::{Checkpoint, Embedded, Recommendations, Scores, TaskKind, TestReport, mean_over_labels};

use super::device::{Chosen, choose, on_backend};
use super::load_required;
use crate::args::{CodecChoice, DataArgs, DeviceArgs, EvaluateArgs, PredictArgs};
use crate::error::CliError;
use crate::output::Results;
use crate::paths;

/// A trained model, and the data that it is to be applied to.
struct Loaded {
    checkpoint: Checkpoint,
    backend: Chosen,
    dataset: Dataset,
}

/// A model applied to all nodes.
struct Applied {
    description: Results,
    scores: Scores,
    test: TestReport,
    logits: Matrix,
    multi_label: bool,
}

/// Scores the best checkpoint on the data.
pub fn evaluate(args: &EvaluateArgs) -> Result<(), CliError> {
    if args.similarity {
        return similarity::report(args);
    }
    let loaded = Loaded::new(&args.data, &args.checkpoint, &args.device, args.codec)?;
    if loaded.is_recommender() {
        return recommend::evaluate(loaded, args);
    }
    if loaded.predicts_links() {
        return links::evaluate(loaded, args);
    }
    let applied = Applied::new(loaded)?;
    let percent = |value: Option<f64>| value.map_or(String::new(), |v| format!("{:.2} %", 100.0 * v));
    let Applied { description: mut results, scores, test, .. } = applied;
    results
        .add("test_accuracy", scores.test_accuracy, "Test score", percent(scores.test_accuracy))
        .add("val_accuracy", scores.val_accuracy, "Validation score", percent(scores.val_accuracy))
        .add("train_accuracy", scores.train_accuracy, "Training score", percent(scores.train_accuracy))
        .add("test_f1_micro", test.f1.micro, "Test F1, micro", format!("{:.4}", test.f1.micro))
        .add("test_f1_macro", test.f1.macro_, "Test F1, macro", format!("{:.4}", test.f1.macro_))
        .add_hidden("val_loss", scores.val_loss)
        .add("test_loss", scores.test_loss, "Test loss", scores.test_loss.map_or(String::new(), |l| format!("{l:.4}")));
    add_ranked(&mut results, &test);
    results.print(args.output.json);
    Ok(())
}

/// Metrics of scores against yes or no: their mean over labels and, with several labels, each of them.
fn add_ranked(results: &mut Results, test: &TestReport) {
    let metrics = [
        (["test_roc_auc", "test_roc_auc_per_label"], ["Test ROC-AUC", "of each label, %"], &test.roc_auc),
        (
            ["test_average_precision", "test_average_precision_per_label"],
            ["Test average precision", "of each label, %"],
            &test.average_precision,
        ),
    ];
    for ([key, key_of_each], [title, title_of_each], values) in metrics {
        if let Some(mean) = mean_over_labels(values) {
            results.add(key, mean, title, format!("{:.2} %", 100.0 * mean));
        }
        if values.len() > 1 {
            let shown = |value: &Option<f64>| value.map_or("–".to_owned(), |v| format!("{:.1}", 100.0 * v));
            let each: Vec<String> = values.iter().map(shown).collect();
            results.add(key_of_each, values.clone(), title_of_each, each.join(" "));
        }
    }
}

/// Writes what the best checkpoint says of every node.
pub fn predict(args: &PredictArgs) -> Result<(), CliError> {
    paths::check(&args.out)?;
    let loaded = Loaded::new(&args.data, &args.checkpoint, &args.device, None)?;
    if loaded.is_recommender() {
        return recommend::predict(loaded, args);
    }
    if loaded.predicts_links() {
        return links::predict(loaded, args);
    }
    let applied = Applied::new(loaded)?;
    paths::make_parents(&args.out)?;
    let logits = &applied.logits;
    let (n_rows, n_cols) = (logits.n_rows(), logits.n_cols());
    let kind = if args.logits {
        file::write_npy(&args.out, &[n_rows, n_cols], logits.data())?;
        "logits"
    } else if applied.multi_label {
        let positive: Vec<u8> = logits.data().iter().map(|&v| u8::from(v > 0.0)).collect();
        file::write_npy(&args.out, &[n_rows, n_cols], &positive)?;
        "labels"
    } else {
        let classes: Vec<i64> = (0..n_rows).map(|v| argmax(logits.row(v))).collect();
        file::write_npy(&args.out, &[n_rows], &classes)?;
        "classes"
    };
    let mut results = applied.description;
    results.add("nodes", n_rows, "Nodes", n_rows.to_string()).add("kind", kind, "Values", kind).add(
        "out",
        args.out.display().to_string(),
        "Written to",
        args.out.display().to_string(),
    );
    results.print(args.output.json);
    Ok(())
}

/// The position of the largest value, the first of equals.
fn argmax(row: &[f32]) -> i64 {
    let mut best = 0;
    for (i, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = i;
        }
    }
    best as i64
}

impl Loaded {
    /// Features are compressed as in training, unless another `codec` is chosen.
    fn new(data: &DataArgs, path: &Path, device: &DeviceArgs, codec: Option<CodecChoice>) -> Result<Self, CliError> {
        let mut checkpoint = best_checkpoint(path)?;
        if let Some(choice) = codec {
            checkpoint.progress.config.codec = choice.codec();
            checkpoint.progress.config.validate()?;
        }
        let codec = checkpoint.progress.config.codec;
        Self::of_checkpoint(checkpoint, data, device, codec)
    }

    /// The data with features compressed while they are loaded, or as they are.
    fn of_checkpoint(
        checkpoint: Checkpoint,
        data: &DataArgs,
        device: &DeviceArgs,
        codec: Option<CodecSpec>,
    ) -> Result<Self, CliError> {
        let config = &checkpoint.progress.config;
        let backend = choose(device, config.precision)?;
        // The splits that the training drew, so that its test nodes are tested.
        let options = LoadOptions { codec, ..data.options(config.seed, config.runs as usize) };
        let dataset = load_required(data, &options)?;
        Ok(Self { checkpoint, backend, dataset })
    }

    /// The recommender applied to all users.
    fn recommend(self) -> Result<Recommendations, CliError> {
        let (dataset, checkpoint) = (self.dataset, &self.checkpoint);
        Ok(on_backend!(&self.backend, backend => girih_trainer::recommend(backend, dataset, checkpoint))?)
    }

    /// The link predictor applied to all nodes.
    fn embed(self) -> Result<Embedded, CliError> {
        let (dataset, checkpoint) = (self.dataset, &self.checkpoint);
        Ok(on_backend!(&self.backend, backend => girih_trainer::embed(backend, dataset, checkpoint))?)
    }

    fn predicts_links(&self) -> bool {
        self.checkpoint.progress.config.task == TaskKind::Links
    }

    fn is_recommender(&self) -> bool {
        self.checkpoint.progress.config.model.kind.is_recommender()
    }

    /// The first rows of every result.
    fn describe(&self) -> Results {
        let progress = &self.checkpoint.progress;
        let best_epoch = progress.best.map(|(epoch, _)| epoch);
        let mut results = Results::default();
        results
            .add("model", progress.config.model.kind.name(), "Model", progress.config.model.kind.name())
            .add_hidden("device", self.backend.name())
            .add("run", progress.run, "Run", (progress.run + 1).to_string())
            .add("epoch", best_epoch, "Epoch", best_epoch.map_or(String::new(), |e| e.to_string()));
        results
    }
}

impl Applied {
    fn new(loaded: Loaded) -> Result<Self, CliError> {
        let (description, multi_label) = (loaded.describe(), loaded.dataset.is_multi_label());
        let (dataset, checkpoint) = (loaded.dataset, &loaded.checkpoint);
        let applied = on_backend!(&loaded.backend, backend => girih_trainer::apply(backend, dataset, checkpoint));
        let (scores, test, logits) = applied?;
        Ok(Self { description, scores, test, logits, multi_label })
    }
}

/// The checkpoint at `path`; of a folder, the one with the best validation score.
fn best_checkpoint(path: &Path) -> Result<Checkpoint, CliError> {
    if !path.is_dir() {
        return Ok(Checkpoint::load(path)?);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(|e| CliError::io(path, e))?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|file| file.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    files.sort();
    let mut best: Option<Checkpoint> = None;
    for file in files {
        let candidate = Checkpoint::load(&file)?;
        let scores = |c: &Checkpoint| c.progress.best.map(|(_, scores)| scores);
        let metric = candidate.progress.config.metric;
        let better = match (&best, scores(&candidate)) {
            (None, _) => true,
            (Some(best), Some(found)) => scores(best).is_none_or(|known| found.better_than(&known, metric)),
            (Some(_), None) => false,
        };
        if better {
            best = Some(candidate);
        }
    }
    best.ok_or_else(|| {
        let message = format!("{}: no checkpoint (run-*.safetensors) in this folder; train with --out", path.display());
        CliError::Other(message)
    })
}
