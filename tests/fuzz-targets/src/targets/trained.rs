//! Checkpoints, configurations and folders of weights.

use std::path::Path;

use girih_graph_format::Matrix;
use girih_trainer::{
    Checkpoint, ModelKind, Progress, TaskKind, TrainConfig, WeightFormat, import_weights, read_weights, write_weights,
};

use super::values::text;
use crate::Input;
use crate::seeds::{written, written_one};

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

/// Imports a folder of the hub, `config.json` and `model.safetensors`; an accepted one is written again unchanged.
pub(super) fn hub(path: &Path, _: &Input) -> Result<(), String> {
    let checkpoint = imported(path)?;
    let again = path.with_file_name("again");
    write_weights(&again, WeightFormat::Hf, &checkpoint).expect("what girih reads has a counterpart");
    assert!(imported(&again).expect("what girih writes is read").params == checkpoint.params, "weights change");
    Ok(())
}

fn imported(path: &Path) -> Result<Checkpoint, String> {
    let (weights, stated) = read_weights(path, WeightFormat::Hf).map_err(|error| error.to_string())?;
    let stated = stated.expect("a folder of the hub has settings");
    let weights = (weights, WeightFormat::Hf.library());
    import_weights(path, weights, stated.config, (None, stated.multi_label)).map_err(|error| error.to_string())
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

/// Checkpoint with parameters of these names and sizes.
fn checkpoint_of(config: &TrainConfig, sizes: &[(&str, usize, usize)]) -> Checkpoint {
    let matrix = |rows, cols| Matrix::new(rows, cols, vec![0.25; rows * cols]).expect("a matrix");
    let params = sizes.iter().map(|&(name, rows, cols)| (name.to_owned(), matrix(rows, cols)));
    let moments = params.clone().map(|(name, matrix)| (name, (matrix.clone(), matrix)));
    Checkpoint {
        progress: progress(config),
        best_params: params.clone().collect(),
        params: params.clone().collect(),
        moments: moments.collect(),
        file: None,
    }
}

pub(super) fn checkpoints() -> Vec<Input> {
    let seed = |kind| {
        let config = TrainConfig::for_task(TaskKind::Nodes, kind);
        let checkpoint = checkpoint_of(&config, &[("layer0.weight", 3, 2), ("layer0.bias", 1, 2)]);
        written_one("checkpoint.safetensors", |path| checkpoint.save(path).expect("a file"))
    };
    vec![seed(ModelKind::Gcn), seed(ModelKind::Gat)]
}

pub(super) fn hubs() -> Vec<Input> {
    let seed = |kind, layers, sizes: &[(&str, usize, usize)]| {
        let mut config = TrainConfig::for_task(TaskKind::Nodes, kind);
        config.model.layers = layers;
        config.model.hidden = 2;
        let checkpoint = checkpoint_of(&config, sizes);
        written(|folder| drop(write_weights(folder, WeightFormat::Hf, &checkpoint).expect("a folder")))
    };
    let two = [("layer0.weight", 3, 2), ("layer0.bias", 1, 2), ("layer1.weight", 2, 3), ("layer1.bias", 1, 3)];
    vec![
        seed(ModelKind::Gcn, 2, &two),
        seed(ModelKind::Mlp, 2, &two),
        seed(
            ModelKind::Sage,
            1,
            &[("layer0.weight_own", 3, 3), ("layer0.weight_neighbors", 3, 3), ("layer0.bias", 1, 3)],
        ),
    ]
}

pub(super) fn configs() -> Vec<Input> {
    let text = |kind| toml::to_string(&TrainConfig::for_task(TaskKind::Nodes, kind)).expect("a configuration");
    let kinds = [ModelKind::Gcn, ModelKind::Gat, ModelKind::Sage];
    kinds.into_iter().map(|kind| Input::one("config.toml", text(kind))).collect()
}
