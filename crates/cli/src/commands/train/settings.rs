//! Settings: the defaults of task and model, then the file, or of a session that is resumed its own, then the flags.

use std::path::{Path, PathBuf};

use girih_trainer::{ModelKind, TaskKind, TrainConfig};
use serde::{Deserialize, Serialize};

use crate::args::TrainArgs;
use crate::commands::DEFAULT_DATA;
use crate::error::CliError;

/// What the settings of a session are called in its folder.
pub const CONFIG_FILE: &str = "config.toml";

/// What a configuration file holds: a [`TrainConfig`], and the data.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct FileConfig {
    /// As `--data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(flatten)]
    train: toml::Table,
}

/// What flags say of that which decides the defaults.
#[derive(Clone, Copy, Default)]
struct Chosen {
    task: Option<TaskKind>,
    model: Option<ModelKind>,
}

/// The data SPEC and the configuration that the arguments ask for.
///
/// # Errors
/// When the file cannot be read or says something that is no setting.
pub fn resolve(args: &TrainArgs) -> Result<(String, TrainConfig), CliError> {
    let chosen =
        Chosen { task: args.settings.task.map(TaskKind::from), model: args.settings.model.map(ModelKind::from) };
    let (file_data, mut config) = match args.config.clone().or_else(|| resumed(args)) {
        Some(path) => read(&path, chosen)?,
        None => (None, TrainConfig::for_task(chosen.task.unwrap_or_default(), chosen.model.unwrap_or_default())),
    };
    args.settings.override_in(&mut config);
    let spec = args.data.data.clone().or(file_data).unwrap_or_else(|| DEFAULT_DATA.to_owned());
    Ok((spec, config))
}

/// The settings of the session that is resumed, if it has left some.
fn resumed(args: &TrainArgs) -> Option<PathBuf> {
    let file = args.out.as_ref().filter(|_| args.resume)?.join(CONFIG_FILE);
    file.exists().then_some(file)
}

/// A complete configuration file.
///
/// # Errors
/// Never in practice: every setting has a TOML form.
pub fn to_toml(spec: &str, config: &TrainConfig) -> Result<String, CliError> {
    let other = |e: toml::ser::Error| CliError::Other(e.to_string());
    let train = toml::Table::try_from(config).map_err(other)?;
    toml::to_string(&FileConfig { data: Some(spec.to_owned()), train }).map_err(other)
}

/// The data and the configuration of a file, on top of the settings of task and model: the `chosen` ones, or else the file's.
fn read(path: &Path, chosen: Chosen) -> Result<(Option<String>, TrainConfig), CliError> {
    let text = std::fs::read_to_string(path).map_err(|e| CliError::io(path, e))?;
    let wrong = |e: toml::de::Error| CliError::Config { path: path.display().to_string(), message: e.to_string() };
    let file: FileConfig = toml::from_str(&text).map_err(wrong)?;
    // Without `data` the text is a configuration as it stands, and messages show the line.
    let stated: TrainConfig = if file.data.is_some() {
        file.train.clone().try_into().map_err(wrong)?
    } else {
        toml::from_str(&text).map_err(wrong)?
    };
    let (task, model) = (chosen.task.unwrap_or(stated.task), chosen.model.unwrap_or(stated.model.kind));
    let mut table =
        toml::Table::try_from(TrainConfig::for_task(task, model)).map_err(|e| CliError::Other(e.to_string()))?;
    overlay(&mut table, file.train);
    Ok((file.data, table.try_into().map_err(wrong)?))
}

/// Puts the settings of `file` in the place of those of `config`, in `[model]` and `[optimizer]` one by one.
fn overlay(config: &mut toml::Table, file: toml::Table) {
    for (key, value) in file {
        match (config.get_mut(&key), value) {
            (Some(toml::Value::Table(section)), toml::Value::Table(settings)) => section.extend(settings),
            (_, value) => drop(config.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str, chosen: Chosen) -> TrainConfig {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        read(&path, chosen).unwrap().1
    }

    #[test]
    fn a_file_changes_the_defaults_of_its_model() {
        let config = read_text("epochs = 5\n[model]\nkind = \"lightgcn\"\nlayers = 2\n", Chosen::default());
        let published = TrainConfig::for_model(ModelKind::LightGcn);
        assert_eq!((config.epochs, config.model.layers), (5, 2));
        assert_eq!((config.model.hidden, config.batch_size), (published.model.hidden, published.batch_size));
        assert_eq!(config.optimizer, published.optimizer);
    }

    #[test]
    fn the_chosen_model_goes_before_that_of_the_file() {
        let of = |model| Chosen { model: Some(model), ..Chosen::default() };
        let config = read_text("[optimizer]\nlr = 0.5\n", of(ModelKind::LightGcn));
        assert_eq!((config.optimizer.lr, config.optimizer.weight_decay, config.model.layers), (0.5, 1e-4, 3));
        assert_eq!(read_text("", Chosen::default()), TrainConfig::default());
    }

    #[test]
    fn every_default_survives_its_file() {
        for (task, kind) in [
            (TaskKind::Nodes, ModelKind::Gcn),
            (TaskKind::Nodes, ModelKind::LightGcn),
            (TaskKind::Links, ModelKind::Sage),
        ] {
            let config = TrainConfig::for_task(task, kind);
            assert_eq!(read_text(&to_toml("data", &config).unwrap(), Chosen::default()), config);
        }
    }

    #[test]
    fn links_have_defaults_of_their_own() {
        let links = TrainConfig::for_task(TaskKind::Links, ModelKind::Gat);
        let chosen = Chosen { task: Some(TaskKind::Links), model: Some(ModelKind::Gat) };
        assert_eq!(read_text("", chosen), links);
        assert_eq!(read_text("task = \"links\"\n[model]\nkind = \"gat\"\n", Chosen::default()), links);
        assert_eq!((links.optimizer.weight_decay, links.model.hidden, links.model.heads), (0.0, 8, 8));
        assert_eq!(TrainConfig::for_task(TaskKind::Links, ModelKind::Gcn).model.hidden, 32);
    }
}
