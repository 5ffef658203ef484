//! Settings: defaults, then the file, then the flags.

use std::path::Path;

use girih_trainer::TrainConfig;
use serde::{Deserialize, Serialize};

use crate::args::TrainArgs;
use crate::commands::DEFAULT_DATA;
use crate::error::CliError;

/// What a configuration file holds: a [`TrainConfig`], and the data.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct FileConfig {
    /// As `--data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(flatten)]
    train: toml::Table,
}

/// The data SPEC and the configuration that the arguments ask for.
///
/// # Errors
/// When the file cannot be read or says something that is no setting.
pub fn resolve(args: &TrainArgs) -> Result<(String, TrainConfig), CliError> {
    let (file_data, mut config) = match &args.config {
        Some(path) => read(path)?,
        None => (None, TrainConfig::default()),
    };
    args.settings.override_in(&mut config);
    let spec = args.data.data.clone().or(file_data).unwrap_or_else(|| DEFAULT_DATA.to_owned());
    Ok((spec, config))
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

fn read(path: &Path) -> Result<(Option<String>, TrainConfig), CliError> {
    let text = std::fs::read_to_string(path).map_err(|e| CliError::io(path, e))?;
    let wrong = |e: toml::de::Error| CliError::Config { path: path.display().to_string(), message: e.to_string() };
    let file: FileConfig = toml::from_str(&text).map_err(wrong)?;
    // Without `data` the text is a configuration as it stands, and messages show the line.
    let config = if file.data.is_some() {
        file.train.try_into().map_err(wrong)?
    } else {
        toml::from_str(&text).map_err(wrong)?
    };
    Ok((file.data, config))
}
