//! Data that `--data` names.

use girih_datasets::{Dataset, LoadOptions, load};
use girih_trainer::TrainConfig;

use super::reading;
use crate::args::{DEFAULT_DATA, DataArgs, read_times};
use crate::error::CliError;

/// Loads the data of `--data`; only `train` has default data.
pub fn load_required(data: &DataArgs, options: &LoadOptions) -> Result<Dataset, CliError> {
    Ok(load(required(data)?, options)?)
}

/// As [`load_required`], with warnings about unused or doubtful data.
pub fn load_with_warnings(data: &DataArgs, options: &LoadOptions) -> Result<Dataset, CliError> {
    let dataset = load_required(data, options)?;
    reading::warn_of(&dataset.notes);
    Ok(dataset)
}

/// Options of the loaders for the data of a training: its splits, codec and made features.
pub fn load_options(data: &DataArgs, config: &TrainConfig) -> LoadOptions {
    LoadOptions {
        codec: config.codec,
        features_from: config.features_from,
        type_rules: config.type_rules(),
        times: read_times(&config.time),
        edge_features: config.edges.columns(),
        ..data.options(config.seed, config.runs as usize)
    }
}

/// Refuses to write data whose checksums were not verified: the copy would get new checksums.
pub fn refuse_unverified(data: &DataArgs) -> Result<(), CliError> {
    if !data.no_verify {
        return Ok(());
    }
    Err(CliError::Usage(
        "--no-verify cannot be used to write data: the copy gets new checksums, and damage would go unnoticed; leave it out"
            .to_owned(),
    ))
}

/// SPEC given by `--data`.
pub fn required(data: &DataArgs) -> Result<&str, CliError> {
    let missing =
        || CliError::Usage(format!("no data is named: give a PATH or a generator, for instance {DEFAULT_DATA}"));
    data.data.as_deref().ok_or_else(missing)
}
