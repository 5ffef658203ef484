//! Settings in order of precedence, lowest first: defaults of task and model, file or resumed session, flags.

use std::path::{Path, PathBuf};

use girih_datasets::FeaturesFrom;
use girih_trainer::{ModelKind, TaskKind, TrainConfig};
use serde::{Deserialize, Serialize};

use crate::args::{DataArgs, ReadArgs, TrainArgs};
use crate::error::CliError;

/// Name of the settings file in the folder of a session.
pub const CONFIG_FILE: &str = "config.toml";

/// Contents of a configuration file: a [`TrainConfig`], and the data.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct FileConfig {
    /// SPEC, as `--data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<ReadArgs>,
    #[serde(flatten)]
    train: toml::Table,
}

/// Task and model given by flags, which decide the defaults.
#[derive(Clone, Copy, Default)]
struct Chosen {
    task: Option<TaskKind>,
    model: Option<ModelKind>,
}

/// Data and configuration that the arguments request.
///
/// # Errors
/// When the file cannot be read or contains an unknown setting.
pub fn resolve(args: &TrainArgs) -> Result<(DataArgs, TrainConfig), CliError> {
    let chosen = Chosen { task: args.settings.task.map(TaskKind::from), model: args.settings.model.model };
    let (spec, read_so, mut config) = match args.config.clone().map_or_else(|| resumed(args), |file| Ok(Some(file)))? {
        Some(path) => read(&path, chosen)?,
        None => {
            let task = chosen.task.unwrap_or_default();
            let config = TrainConfig::for_task(task, chosen.model.unwrap_or(task.usual_model()));
            (None, ReadArgs::default(), config)
        }
    };
    args.settings.override_in(&mut config);
    // In a file, `hidden` is valid: networks share that setting.
    if args.settings.model.hidden.is_some() && config.model.kind == ModelKind::Sgc {
        return Err(CliError::Usage(
            "--hidden has no effect on sgc, which has no hidden layers: leave it out".to_owned(),
        ));
    }
    if config.model.kind.is_recommender() {
        learn_rows(&mut config, args.settings.model.hidden)?;
    }
    Ok((below(spec, read_so, &args.data), config))
}

/// Embeddings of a recommender. It learns a row for each user and item, so `embedding:W` sets their width.
///
/// # Errors
/// When other features are requested, or --hidden is a different width.
fn learn_rows(config: &mut TrainConfig, hidden: Option<usize>) -> Result<(), CliError> {
    let Some(rule) = config.features_from.take() else { return Ok(()) };
    let name = config.model.kind.name();
    match (rule, hidden) {
        (FeaturesFrom::Embedding(width), Some(hidden)) if hidden != width => Err(CliError::Usage(format!(
            "--features-from {rule} and --hidden {hidden} are both the width of what {name} learns: leave one out"
        ))),
        (FeaturesFrom::Embedding(width), _) => {
            config.model.hidden = width;
            Ok(())
        }
        _ => Err(CliError::Usage(format!(
            "--features-from {rule} has no effect on {name}, which learns a row for each user and item: give \
             embedding:WIDTH, or leave it out"
        ))),
    }
}

/// Data for `girih evaluate` and `girih predict`. Options that the flags leave open come from the session that wrote
/// the checkpoint, if its configuration is there.
///
/// # Errors
/// When the configuration cannot be read.
pub fn data_of(checkpoint: &Path, flags: &DataArgs) -> Result<DataArgs, CliError> {
    let folder = if checkpoint.is_dir() { Some(checkpoint) } else { checkpoint.parent() };
    match folder.map(|folder| folder.join(CONFIG_FILE)).filter(|file| file.exists()) {
        Some(file) => {
            let (spec, read_so, _) = read(&file, Chosen::default())?;
            Ok(below(spec, read_so, flags))
        }
        None => Ok(flags.clone()),
    }
}

/// SPEC of the data in the configuration of a session's folder; `None` where the folder has none.
///
/// # Errors
/// When the configuration cannot be read.
pub fn spec_in(folder: &Path) -> Result<Option<String>, CliError> {
    let file = folder.join(CONFIG_FILE);
    if file.exists() { read(&file, Chosen::default()).map(|(spec, ..)| spec) } else { Ok(None) }
}

/// Data options of the flags, with unset ones from a file. The file's reading options apply only to its own data.
fn below(spec: Option<String>, read: ReadArgs, flags: &DataArgs) -> DataArgs {
    let is_its_own = flags.data.is_none() || spec.is_none() || flags.data == spec;
    let read = if is_its_own { read } else { ReadArgs::default() };
    let flags = flags.clone();
    DataArgs { path: None, data: flags.data.or(spec), read: flags.read.or(read), ..flags }
}

/// Settings of the session to resume, if it left any.
///
/// # Errors
/// When it left none, and no flags say how to start.
fn resumed(args: &TrainArgs) -> Result<Option<PathBuf>, CliError> {
    let Some(folder) = args.out.as_ref().filter(|_| args.resume) else { return Ok(None) };
    let file = folder.join(CONFIG_FILE);
    if file.exists() {
        return Ok(Some(file));
    }
    if args.data.data.is_some() {
        return Ok(None);
    }
    Err(CliError::Usage(format!(
        "{}: no {CONFIG_FILE} to resume from; give the --out of an earlier training, or --data to start one",
        folder.display()
    )))
}

/// Contents of a complete configuration file. Without `data`, commands that read it need data of their own.
///
/// # Errors
/// Never in practice: every setting has a TOML form.
pub fn to_toml(data: Option<&DataArgs>, config: &TrainConfig) -> Result<String, CliError> {
    let other = |e: toml::ser::Error| CliError::Other(e.to_string());
    let train = toml::Table::try_from(config).map_err(other)?;
    let read = data.map(|data| data.read.clone()).filter(|read| *read != ReadArgs::default());
    toml::to_string(&FileConfig { data: data.map(|data| data.spec().to_owned()), read, train }).map_err(other)
}

/// Settings of a file, without its data.
///
/// # Errors
/// When the file cannot be read or contains an unknown setting.
pub fn read_train(path: &Path) -> Result<TrainConfig, CliError> {
    read(path, Chosen::default()).map(|(_, _, config)| config)
}

/// Data and configuration of a file, on top of the defaults of task and model. The `chosen` task and model take
/// precedence over those of the file.
fn read(path: &Path, chosen: Chosen) -> Result<(Option<String>, ReadArgs, TrainConfig), CliError> {
    let text = std::fs::read_to_string(path).map_err(|e| CliError::io(path, e))?;
    let wrong = |e: toml::de::Error| CliError::Config { path: path.display().to_string(), message: e.to_string() };
    let file: FileConfig = toml::from_str(&text).map_err(wrong)?;
    // Without data, the text itself is a configuration, and messages can show the line.
    let stated: TrainConfig = if file.data.is_some() || file.read.is_some() {
        file.train.clone().try_into().map_err(wrong)?
    } else {
        toml::from_str(&text).map_err(wrong)?
    };
    let task = chosen.task.unwrap_or(stated.task);
    let states_model = file.train.get("model").is_some_and(|model| model.get("kind").is_some());
    let of_file = if states_model { stated.model.kind } else { task.usual_model() };
    let model = chosen.model.unwrap_or(of_file);
    let mut table =
        toml::Table::try_from(TrainConfig::for_task(task, model)).map_err(|e| CliError::Other(e.to_string()))?;
    overlay(&mut table, file.train);
    Ok((file.data, file.read.unwrap_or_default(), table.try_into().map_err(wrong)?))
}

/// Overwrites settings of `config` by those of `file`; in `[model]` and `[optimizer]` one by one.
fn overlay(config: &mut toml::Table, file: toml::Table) {
    for (key, value) in file {
        match (config.get_mut(&key), value) {
            (Some(toml::Value::Table(section)), toml::Value::Table(settings)) => section.extend(settings),
            (_, value) => drop(config.insert(key, value)),
        }
    }
}
