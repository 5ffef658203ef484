//! Trained models with the data that they are applied to.

use std::path::{Path, PathBuf};

use girih_datasets::{DataSource, Dataset, load};
use girih_trainer::distributed::{ApplyJob, RankOptions, RecommendJob, TakeLogits};
use girih_trainer::{Checkpoint, Combination, Embedded, ExecutionPlan, Recommendations, Scores, TestReport, supported};

use super::combination::execution;
use super::data::{load_options, load_with_warnings, required};
use super::device::{Chosen, choose, on_backend};
use super::gpus::device_of;
use super::ranks::{process_grid, stages};
use super::reading;
use super::settings::data_of;
use super::world::{LaunchContext, World};
use crate::args::{CodecChoice, DataArgs, DeviceArgs, OutputArgs, RankArgs};
use crate::error::CliError;
use crate::output::Results;

/// Trained model, the data to apply it to, and the devices and ranks that run it.
pub struct Loaded {
    /// Parameters and settings.
    pub checkpoint: Checkpoint,
    /// Data that the model is applied to.
    pub data: DataSource,
    /// Backend of the first rank of this process.
    pub backend: Chosen,
    /// Flags of the device.
    pub device: DeviceArgs,
    /// Options of the ranks; `None` without ranks.
    pub ranks: Option<RankOptions>,
    /// The ranks as this process reaches them.
    pub world: World,
    /// Whether this process prints for people and writes files; true for rank 0 alone.
    pub is_primary: bool,
}

/// Scores of a model.
pub struct Applied {
    /// First rows of the result.
    pub description: Results,
    /// Scores on the parts of the split.
    pub scores: Scores,
    /// Metrics of the test nodes.
    pub test: TestReport,
    /// Whether a node can have several labels.
    pub multi_label: bool,
}

/// Runs `work` in every process of the job, with the partition over ranks.
pub fn together(
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

impl Loaded {
    /// Loads the best checkpoint and the data. `codec` overrides the codec of the training.
    pub fn new(
        data: &DataArgs,
        path: &Path,
        (device, args): (&DeviceArgs, &RankArgs),
        codec: Option<CodecChoice>,
        (world, ranks): (World, Option<RankOptions>),
    ) -> Result<Self, CliError> {
        let mut checkpoint = best_checkpoint(path)?;
        if let Some(choice) = codec {
            checkpoint = checkpoint.with_codec(choice.codec())?;
        }
        let config = &checkpoint.progress.config;
        let device = device_of(device, args, world.local_rank())?;
        let backend = choose(&device, config.precision)?;
        // With the splits of the training, the same test nodes are scored.
        let data = data_of(path, data)?;
        let options = load_options(&data, config);
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
    pub fn apply(self, take: Option<&mut TakeLogits<'_>>) -> Result<Applied, CliError> {
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
    pub fn recommend(self) -> Result<Recommendations, CliError> {
        let Self { checkpoint, data, backend, device, ranks, world, .. } = self;
        let Some(ranks) = ranks else {
            let dataset = data.into_dataset()?;
            return Ok(on_backend!(&backend, backend => girih_trainer::recommend(backend, dataset, &checkpoint))?);
        };
        let job = RecommendJob::new(data, &checkpoint, &ranks);
        Ok(world.carry_out(backend, &device, checkpoint.progress.config.precision, job)?.done)
    }

    /// Ranks the entities of the validation and test triples.
    pub fn score_triples(self) -> Result<Scores, CliError> {
        self.refuse_ranks()?;
        let Self { checkpoint, data, backend, .. } = self;
        let dataset = data.into_dataset()?;
        Ok(on_backend!(&backend, backend => girih_trainer::score_triples(backend, dataset, &checkpoint))?)
    }

    /// Refuses ranks where the table of supported combinations does.
    fn refuse_ranks(&self) -> Result<(), CliError> {
        let Some(ranks) = &self.ranks else { return Ok(()) };
        let asked = Combination::of(&self.checkpoint.progress.config).applied().on_ranks(ranks);
        supported(&asked).map(drop).map_err(|reason| CliError::Usage(reason.to_string()))
    }

    /// Applies the link predictor to all nodes.
    pub fn embed(self) -> Result<Embedded, CliError> {
        self.refuse_ranks()?;
        let Self { checkpoint, data, backend, .. } = self;
        let dataset = data.into_dataset()?;
        Ok(on_backend!(&backend, backend => girih_trainer::embed(backend, dataset, &checkpoint))?)
    }

    /// Engine that trained the model, which says whether it classifies nodes, predicts links or recommends.
    pub fn engine(&self) -> Result<ExecutionPlan, CliError> {
        execution(&Combination::of(&self.checkpoint.progress.config).applied())
    }

    /// First rows of every result.
    pub fn describe(&self) -> Results {
        let mut results = describe(&self.checkpoint, &self.backend.name());
        if let Some(RankOptions { grid, exchange, .. }) = &self.ranks {
            results.add("ranks", grid.ranks(), "Ranks", format!("{grid}, exchange {exchange}"));
        }
        results
    }
}

/// Backend and data of a command that runs on one device: the data of the flags, or those of the training at `path`.
pub fn data_of_one(
    checkpoint: &Checkpoint,
    (path, data): (&Path, &DataArgs),
    device: &DeviceArgs,
) -> Result<(Chosen, Dataset), CliError> {
    let config = &checkpoint.progress.config;
    let data = data_of(path, data)?;
    let backend = choose(device, config.precision)?;
    Ok((backend, load_with_warnings(&data, &load_options(&data, config))?))
}

/// Rows that describe the trained model and the device.
pub fn describe(checkpoint: &Checkpoint, backend: &str) -> Results {
    let progress = &checkpoint.progress;
    let best_epoch = progress.best.map(|(epoch, _)| epoch);
    let mut results = Results::default();
    results
        .add("model", progress.config.model.kind.name(), "Model", progress.config.model.kind.name())
        .add_hidden("device", backend)
        .add("run", progress.run, "Run", progress.run.to_string())
        .add("epoch", best_epoch, "Epoch", best_epoch.map_or(String::new(), |e| e.to_string()));
    results
}

/// Checkpoints in a folder, by run. Other files of tensors, such as exported weights, are not among them.
pub fn checkpoints_in(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let is_checkpoint = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        name.starts_with("run-") && name.ends_with(".safetensors")
    };
    let entries = std::fs::read_dir(folder).map_err(|e| CliError::io(folder, e))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_checkpoint).collect();
    files.sort();
    Ok(files)
}

/// Checkpoint at `path`; for a folder, the one with the best validation score.
pub fn best_checkpoint(path: &Path) -> Result<Checkpoint, CliError> {
    if !path.is_dir() {
        return Ok(Checkpoint::load(path)?);
    }
    let files = checkpoints_in(path)?;
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
    best.ok_or_else(|| no_checkpoint(path))
}

/// Error for a folder without checkpoints.
pub fn no_checkpoint(path: &Path) -> CliError {
    let what = "no checkpoint (run-*.safetensors) in this folder; give a folder that `girih train --out DIR` wrote";
    CliError::Other(format!("{}: {what}", path.display()))
}
