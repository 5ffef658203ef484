//! `girih evaluate` and `girih predict`: apply a trained model to a data set.

mod links;
mod recommend;
mod similarity;

use std::path::{Path, PathBuf};

use girih_datasets::{DataSource, LoadOptions, load};
use girih_graph_format::{Matrix, file};
use girih_trainer::distributed::{ApplyJob, RankOptions, RecommendJob, TakeLogits};
use girih_trainer::{
    Checkpoint, Embedded, Recommendations, Scores, TaskKind, TestReport, mean_over_labels, n_left_out,
};

use super::device::{Chosen, choose, on_backend, use_threads};
use super::gpus::device_of;
use super::ranks::{LaunchContext, World};
use super::sharing::stages;
use super::train::data_of;
use super::{process_grid, reading, required};
use crate::args::{CodecChoice, DataArgs, DeviceArgs, EvaluateArgs, OutputArgs, PredictArgs, RankArgs};
use crate::error::CliError;
use crate::output::{Results, percent};
use crate::paths;
use crate::scores::{NodeScore, Subset, Undefined, percent_or};

/// Trained model, the data to apply it to, and the devices and ranks that run it.
struct Loaded {
    checkpoint: Checkpoint,
    data: DataSource,
    /// Backend of the first rank of this process.
    backend: Chosen,
    device: DeviceArgs,
    ranks: Option<RankOptions>,
    world: World,
    /// Whether this process prints for people and writes files; true for rank 0 alone.
    is_primary: bool,
}

/// Scores of a model.
struct Applied {
    description: Results,
    scores: Scores,
    test: TestReport,
    /// Whether a node can have several labels.
    multi_label: bool,
}

/// Scores the best checkpoint on the data.
pub fn evaluate(args: &EvaluateArgs) -> Result<(), CliError> {
    if args.similarity {
        let one = "--similarity works in one process: leave --ranks, --gpus and launchers out";
        return alone(&args.ranks, one, || similarity::report(args));
    }
    together(&args.ranks, |world, ranks| {
        let loaded =
            Loaded::new(&args.data, &args.checkpoint, (&args.device, &args.ranks), args.codec, (world, ranks))?;
        if loaded.is_recommender() {
            return recommend::evaluate(loaded, args);
        }
        if loaded.predicts_links() {
            return links::evaluate(loaded, args);
        }
        let (is_primary, name) = (loaded.is_primary, loaded.data.outline().name);
        let applied = loaded.apply(None)?;
        let Scores { train_accuracy, val_accuracy, test_accuracy, .. } = applied.scores;
        if [train_accuracy, val_accuracy, test_accuracy].iter().all(Option::is_none) {
            return Err(CliError::Other(format!(
                "{name}: no node of the split has a label, so that there is no score; `girih predict` writes predictions without labels"
            )));
        }
        if is_primary {
            applied.print(args.output);
        }
        Ok(())
    })
}

/// Runs `work` in every process of the job, with the partition over ranks.
fn together(
    args: &RankArgs,
    work: impl FnOnce(World, Option<RankOptions>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let place = LaunchContext::of(args)?;
    let ranks = place.options(args)?;
    if let Some(RankOptions { grid, .. }) = &ranks {
        // Choices that are still open are made for training.
        process_grid(&args.partition, grid.ranks() as u16)?;
    }
    place.with_the_others(args, |world| work(world, ranks))
}

/// Runs `work` in a single process; with several ranks, fails with the given reason.
fn alone(args: &RankArgs, why: &str, work: impl FnOnce() -> Result<(), CliError>) -> Result<(), CliError> {
    let place = LaunchContext::of(args)?;
    place.refuse_several(why)?;
    match place.options(args)? {
        Some(_) => Err(CliError::Usage(why.to_owned())),
        None => work(),
    }
}

impl Applied {
    fn print(self, output: OutputArgs) {
        let four = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.4}"));
        let Self { description: mut results, scores, test, multi_label } = self;
        let classes = NodeScore::of_classes(multi_label);
        let (micro, macro_) = (test.f1.map(|f1| f1.micro), test.f1.map(|f1| f1.macro_));
        let mut undefined = Undefined::default();
        let titles = match classes {
            NodeScore::MicroF1 => ["Test micro-F1", "Validation micro-F1", "Training micro-F1"],
            _ => ["Test accuracy", "Validation accuracy", "Training accuracy"],
        };
        let parts = [("test_accuracy", Subset::Test), ("val_accuracy", Subset::Val), ("train_accuracy", Subset::Train)];
        for ((key, part), title) in parts.into_iter().zip(titles) {
            let (value, why) = (classes.value(&scores, part), classes.why_undefined(&scores, part));
            results.add(key, value, title, percent_or(value, why));
            undefined.note(key, why);
        }
        results
            .add_hidden("accuracy_is", classes.key())
            .add("test_f1_micro", micro, "Test F1, micro", four(micro))
            .add("test_f1_macro", macro_, "Test F1, macro", four(macro_))
            .add_hidden("test_f1_classes_absent", test.f1.map(|f1| f1.n_absent))
            .add_hidden("val_loss", scores.val_loss)
            .add("test_loss", scores.test_loss, "Test loss", four(scores.test_loss));
        add_ranked(&mut results, (&test, scores.test_loss.is_some()), &mut undefined);
        undefined.add_to(&mut results);
        results.print(output.json);
    }
}

/// Ranking metrics (ROC-AUC, average precision): their mean over labels and, with several labels, each label's value.
fn add_ranked(results: &mut Results, (test, has_nodes): (&TestReport, bool), undefined: &mut Undefined) {
    let metrics = [
        (
            ["test_roc_auc", "test_roc_auc_per_label"],
            ["Test ROC-AUC", "of each label"],
            (&test.roc_auc, "one class only"),
        ),
        (
            ["test_average_precision", "test_average_precision_per_label"],
            ["Test average precision", "of each label"],
            (&test.average_precision, "no positives"),
        ),
    ];
    for ([key, key_of_each], [title, title_of_each], (values, why)) in metrics {
        // There are no values for more than two classes.
        if values.is_empty() {
            continue;
        }
        let mean = mean_over_labels(values);
        let why = mean.is_none().then_some(if has_nodes { why } else { "no test nodes with a label" });
        let left_out = match n_left_out(values) {
            n if n > 0 && mean.is_some() => format!(" ({n} of {} labels left out: undefined for them)", values.len()),
            _ => String::new(),
        };
        results.add(key, mean, title, format!("{}{left_out}", percent_or(mean, why)));
        undefined.note(key, why);
        if values.len() > 1 {
            let shown = |value: &Option<f64>| value.map_or("–".to_owned(), percent);
            let each: Vec<String> = values.iter().map(shown).collect();
            results.add(key_of_each, values.clone(), title_of_each, each.join("  "));
        }
    }
}

/// Writes the predictions of the best checkpoint for every node.
pub fn predict(args: &PredictArgs) -> Result<(), CliError> {
    together(&args.ranks, |world, ranks| {
        if world.is_primary() {
            paths::check(&args.out)?;
        }
        let loaded = Loaded::new(&args.data, &args.checkpoint, (&args.device, &args.ranks), None, (world, ranks))?;
        if loaded.is_recommender() {
            return recommend::predict(loaded, args);
        }
        if loaded.predicts_links() {
            return links::predict(loaded, args);
        }
        let (is_primary, n_nodes, trained) =
            (loaded.is_primary, loaded.data.outline().n_nodes, loaded.checkpoint.progress.data.clone());
        let mut predictions = Predictions::of(args.logits, trained.multi_label);
        let applied = loaded.apply(Some(&mut |logits| predictions.take(logits)))?;
        if !is_primary {
            return Ok(());
        }
        paths::make_parents(&args.out)?;
        predictions.write(&args.out, (n_nodes, trained.n_classes))?;
        let (mut results, kind, out) = (applied.description, predictions.kind(), args.out.display().to_string());
        results.add("nodes", n_nodes, "Nodes", n_nodes.to_string()).add("kind", kind, "Values", kind).add(
            "out",
            out.as_str(),
            "Written to",
            out.as_str(),
        );
        results.print(args.output.json);
        Ok(())
    })
}

/// Predictions to write, in the order of nodes.
enum Predictions {
    Logits(Vec<f32>),
    /// With several labels a node: 1 for each label whose probability exceeds 0.5.
    Labels(Vec<u8>),
    Classes(Vec<i64>),
}

impl Predictions {
    fn of(logits: bool, multi_label: bool) -> Self {
        match (logits, multi_label) {
            (true, _) => Self::Logits(Vec::new()),
            (false, true) => Self::Labels(Vec::new()),
            (false, false) => Self::Classes(Vec::new()),
        }
    }

    /// Takes the logits of the next nodes.
    fn take(&mut self, logits: &Matrix) {
        match self {
            Self::Logits(all) => all.extend_from_slice(logits.data()),
            Self::Labels(all) => all.extend(logits.data().iter().map(|&logit| u8::from(logit > 0.0))),
            Self::Classes(all) => all.extend((0..logits.n_rows()).map(|v| argmax(logits.row(v)))),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Logits(_) => "logits",
            Self::Labels(_) => "labels",
            Self::Classes(_) => "classes",
        }
    }

    fn write(&self, path: &Path, (n_nodes, n_classes): (usize, usize)) -> Result<(), CliError> {
        match self {
            Self::Logits(values) => file::write_npy(path, &[n_nodes, n_classes], values)?,
            Self::Labels(values) => file::write_npy(path, &[n_nodes, n_classes], values)?,
            Self::Classes(values) => file::write_npy(path, &[n_nodes], values)?,
        }
        Ok(())
    }
}

/// Position of the largest value; the first one of equal values.
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
    /// Loads the best checkpoint and the data. `codec` overrides the codec of the training.
    fn new(
        data: &DataArgs,
        path: &Path,
        (device, args): (&DeviceArgs, &RankArgs),
        codec: Option<CodecChoice>,
        (world, ranks): (World, Option<RankOptions>),
    ) -> Result<Self, CliError> {
        use_threads(device.threads)?;
        let mut checkpoint = best_checkpoint(path)?;
        if let Some(choice) = codec {
            checkpoint = checkpoint.with_codec(choice.codec())?;
        }
        let config = &checkpoint.progress.config;
        let device = device_of(device, args, world.local_rank())?;
        let backend = choose(&device, config.precision)?;
        // With the splits of the training, the same test nodes are scored.
        let data = data_of(path, data)?;
        let options = LoadOptions {
            codec: config.codec,
            features_from: config.features_from,
            ..data.options(config.seed, config.runs as usize)
        };
        let data = match ranks {
            Some(_) => DataSource::open(required(&data)?, &options)?,
            None => load(required(&data)?, &options)?.into(),
        };
        let ranks = ranks.map(|ranks| RankOptions { stages: stages(args, &backend), ..ranks });
        let is_primary = world.is_primary();
        if is_primary {
            world.tell_what_is_read(&data, OutputArgs { json: false });
            reading::warn_of(&data.notes());
        }
        Ok(Self { checkpoint, data, backend, device, ranks, world, is_primary })
    }

    /// Applies the classifier to all nodes. On the first rank, `take` receives their logits.
    fn apply(self, take: Option<&mut TakeLogits<'_>>) -> Result<Applied, CliError> {
        let (description, multi_label) = (self.describe(), self.checkpoint.progress.data.multi_label);
        let Self { checkpoint, data, backend, device, ranks, world, .. } = self;
        let Some(ranks) = ranks else {
            let dataset = data.into_dataset()?;
            let applied = on_backend!(&backend, backend => girih_trainer::apply(backend, dataset, &checkpoint));
            let (scores, test, logits) = applied?;
            take.into_iter().for_each(|take| take(&logits));
            return Ok(Applied { description, scores, test, multi_label });
        };
        let job = ApplyJob::new(data, &checkpoint, &ranks);
        let job = match take {
            Some(take) => job.handing_logits(take),
            None => job,
        };
        let (scores, test) = world.carry_out(backend, &device, checkpoint.progress.config.precision, job)?.done;
        Ok(Applied { description, scores, test, multi_label })
    }

    /// Applies the recommender to all users.
    fn recommend(self) -> Result<Recommendations, CliError> {
        let Self { checkpoint, data, backend, device, ranks, world, .. } = self;
        let Some(ranks) = ranks else {
            let dataset = data.into_dataset()?;
            return Ok(on_backend!(&backend, backend => girih_trainer::recommend(backend, dataset, &checkpoint))?);
        };
        let job = RecommendJob::new(data, &checkpoint, &ranks);
        Ok(world.carry_out(backend, &device, checkpoint.progress.config.precision, job)?.done)
    }

    /// Applies the link predictor to all nodes.
    fn embed(self) -> Result<Embedded, CliError> {
        let Self { checkpoint, data, backend, ranks, .. } = self;
        if ranks.is_some() {
            return Err(CliError::Usage(
                "links are predicted by one rank: leave --ranks, --gpus and launchers out".to_owned(),
            ));
        }
        let dataset = data.into_dataset()?;
        Ok(on_backend!(&backend, backend => girih_trainer::embed(backend, dataset, &checkpoint))?)
    }

    fn predicts_links(&self) -> bool {
        self.checkpoint.progress.config.task == TaskKind::Links
    }

    fn is_recommender(&self) -> bool {
        self.checkpoint.progress.config.model.kind.is_recommender()
    }

    /// First rows of every result.
    fn describe(&self) -> Results {
        let mut results = describe(&self.checkpoint, &self.backend);
        if let Some(RankOptions { grid, exchange, .. }) = &self.ranks {
            results.add("ranks", grid.ranks(), "Ranks", format!("{grid}, exchange {exchange}"));
        }
        results
    }
}

/// Rows that describe the trained model and the device.
fn describe(checkpoint: &Checkpoint, backend: &Chosen) -> Results {
    let progress = &checkpoint.progress;
    let best_epoch = progress.best.map(|(epoch, _)| epoch);
    let mut results = Results::default();
    results
        .add("model", progress.config.model.kind.name(), "Model", progress.config.model.kind.name())
        .add_hidden("device", backend.name())
        .add("run", progress.run, "Run", progress.run.to_string())
        .add("epoch", best_epoch, "Epoch", best_epoch.map_or(String::new(), |e| e.to_string()));
    results
}

/// Checkpoint at `path`; for a folder, the one with the best validation score.
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
        let message = format!(
            "{}: no checkpoint (run-*.safetensors) in this folder; give a folder that `girih train --out DIR` wrote",
            path.display()
        );
        CliError::Other(message)
    })
}
