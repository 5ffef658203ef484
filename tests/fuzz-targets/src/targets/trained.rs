//! Checkpoints and configurations.

use std::path::Path;

use girih_graph_format::Matrix;
use girih_trainer::{Checkpoint, ModelKind, Progress, TaskKind, TrainConfig};

use super::values::text;
use crate::Input;
use crate::seeds::written_one;

/// Loads a checkpoint; an accepted one is written again unchanged.
pub(super) fn checkpoint(path: &Path, _: &Input) -> Result<(), String> {
    let checkpoint = Checkpoint::load(path).map_err(|error| error.to_string())?;
    let again = path.with_file_name("again");
    if checkpoint.save(&again).is_ok() {
        let other = Checkpoint::load(&again).expect("what girih writes is read");
        assert!(other == checkpoint, "a checkpoint changes as it is written");
    }
    Ok(())
}

/// Parses a configuration.
pub(super) fn config(_: &Path, input: &Input) -> Result<(), String> {
    let text = text(input)?;
    let config: TrainConfig = toml::from_str(text).map_err(|error| error.to_string())?;
    config.validate().map_err(|error| error.to_string())?;
    let written = toml::to_string(&config).expect("a valid configuration is written");
    let again: TrainConfig = toml::from_str(&written).expect("what girih writes is read");
    assert!(again == config, "a configuration changes as it is written:\n{written}");
    Ok(())
}

/// Progress after an epoch, with these settings.
fn progress(config: &TrainConfig) -> Progress {
    let value = serde_json::json!({
        "version": 3, "config": config, "run": 0, "epoch": 1, "n_steps": 1, "finished": false,
        "data": {"name": "x", "n_nodes": 12, "n_edges": 36, "n_features": 3, "n_classes": 3, "fingerprints": [1]},
        "best": null, "last": null, "train_loss": 0.5,
    });
    serde_json::from_value(value).expect("progress")
}

pub(super) fn checkpoints() -> Vec<Input> {
    let matrix = |n: usize| Matrix::new(n, 2, vec![0.25; 2 * n]).expect("a matrix");
    let seed = |kind| {
        let params = [("layer0.weight".to_owned(), matrix(3)), ("layer0.bias".to_owned(), matrix(1))];
        let moments = params.clone().map(|(name, matrix)| (name, (matrix.clone(), matrix)));
        let checkpoint = Checkpoint {
            progress: progress(&TrainConfig::for_task(TaskKind::Nodes, kind)),
            best_params: params.clone().into_iter().collect(),
            params: params.into_iter().collect(),
            moments: moments.into_iter().collect(),
            file: None,
        };
        written_one("checkpoint.safetensors", |path| checkpoint.save(path).expect("a file"))
    };
    vec![seed(ModelKind::Gcn), seed(ModelKind::Gat)]
}

pub(super) fn configs() -> Vec<Input> {
    let text = |kind| toml::to_string(&TrainConfig::for_task(TaskKind::Nodes, kind)).expect("a configuration");
    let kinds = [ModelKind::Gcn, ModelKind::Gat, ModelKind::Sage];
    kinds.into_iter().map(|kind| Input::one("config.toml", text(kind))).collect()
}
