//! `girih export` and `girih import`: weights of a model in files of other libraries, and back.

use std::io::Write;
use std::path::Path;

use girih_graph_format::file::{NewFolder, write_file};
use girih_trainer::{
    Checkpoint, DataShape, NamedWeight, TaskKind, TrainConfig, checkpoint_path, import_weights, read_weights,
    write_weights,
};

use crate::args::{ExportArgs, ImportArgs};
use crate::context::data::{load_options, load_with_warnings};
use crate::context::settings::{self, CONFIG_FILE};
use crate::context::trained::best_checkpoint;
use crate::error::CliError;
use crate::output::Results;
use crate::paths;

/// Writes the weights of the best checkpoint.
pub fn export(args: &ExportArgs) -> Result<(), CliError> {
    paths::check(&args.out)?;
    let checkpoint = best_checkpoint(&args.checkpoint)?;
    paths::make_parents(&args.out)?;
    let weights = write_weights(&args.out, args.format, &checkpoint)?;
    describe(&checkpoint, sizes(&weights), &args.out).print(args.output.json);
    Ok(())
}

/// Writes a folder with the weights as a checkpoint, and its settings.
pub fn import(args: &ImportArgs) -> Result<(), CliError> {
    let (weights, config, multi_label) = read(args)?;
    let data = match args.data.data {
        Some(_) => Some(DataShape::of(&load_with_warnings(&args.data, &load_options(&args.data, &config))?)),
        None => None,
    };
    let sizes = sizes(&weights);
    let checkpoint = import_weights(&args.weights, (weights, args.format.library()), config, (data, multi_label))?;
    paths::make_parents(&args.out)?;
    // Folders of a training are never replaced.
    let folder = NewFolder::create(&args.out, |_| false)?;
    checkpoint.save(&checkpoint_path(folder.path(), 0))?;
    let data = Some(&args.data).filter(|data| data.data.is_some());
    let settings = settings::to_toml(data, &checkpoint.progress.config)?;
    write_file(&folder.path().join(CONFIG_FILE), |out| Ok(out.write_all(settings.as_bytes())?))?;
    folder.commit()?;
    describe(&checkpoint, sizes, &args.out).print(args.output.json);
    Ok(())
}

/// Tensors of the file, the settings of their model, and whether a node may have several labels.
fn read(args: &ImportArgs) -> Result<(Vec<NamedWeight>, TrainConfig, bool), CliError> {
    let (weights, stated) = read_weights(&args.weights, args.format)?;
    let multi_label = stated.as_ref().is_some_and(|stated| stated.multi_label);
    let mut config = match (&args.config, stated) {
        (Some(file), _) => settings::read_train(file)?,
        (None, Some(stated)) => stated.config,
        (None, None) => TrainConfig::for_task(TaskKind::Nodes, args.model.model.unwrap_or_default()),
    };
    args.model.override_in(&mut config.model);
    Ok((weights, config, multi_label))
}

/// Numbers of tensors and of their values.
fn sizes(weights: &[NamedWeight]) -> (usize, usize) {
    (weights.len(), weights.iter().map(|weight| weight.values.len()).sum())
}

/// Rows that tell what was written.
fn describe(checkpoint: &Checkpoint, (n_tensors, n_values): (usize, usize), out: &Path) -> Results {
    let (progress, out) = (&checkpoint.progress, out.display().to_string());
    let model = progress.config.model.name();
    let mut results = Results::default();
    results
        .add("model", model, "Model", model)
        .add("features", progress.data.n_features, "Features", progress.data.n_features.to_string())
        .add("classes", progress.data.n_classes, "Classes", progress.data.n_classes.to_string())
        .add("tensors", n_tensors, "Tensors", n_tensors.to_string())
        .add("parameters", n_values, "Values", n_values.to_string())
        .add("out", out.as_str(), "Written to", out.as_str());
    results
}
