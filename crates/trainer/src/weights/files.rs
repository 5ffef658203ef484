//! [`WeightFormat`]: files of named tensors, and the folder of Hugging Face's hub.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use girih_graph_format::FormatError;
use girih_graph_format::file::{Array, Npz, NpzWriter, Tensor, Tensors, Values, write_file, write_tensors};
use serde::{Deserialize, Serialize};

use super::convert::{NamedWeight, export_weights};
use crate::TrainError;
use crate::config::{ModelKind, TrainConfig, joined};
use crate::engine::Checkpoint;

/// Name of the tensors in a folder of the hub.
const HUB_TENSORS: &str = "model.safetensors";
/// Name of the settings in a folder of the hub.
const HUB_CONFIG: &str = "config.json";

/// Form of a file of weights. Names and layouts are the same in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFormat {
    /// One file `.safetensors`, a state dict of PyG.
    Pyg,
    /// One file `.npz` for NumPy.
    Npz,
    /// Folder of Hugging Face's hub: `model.safetensors` and `config.json`.
    Hf,
}

impl WeightFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Pyg, Self::Npz, Self::Hf];

    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pyg => "pyg",
            Self::Npz => "npz",
            Self::Hf => "hf",
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WeightFormat {
    type Err = TrainError;

    fn from_str(text: &str) -> Result<Self, TrainError> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names = joined(Self::ALL.map(Self::name), "or");
            TrainError::invalid(format!("`{text}` is not a format of weights: give {names}"))
        })
    }
}

/// Contents of `config.json`.
#[derive(Debug, Deserialize, Serialize)]
struct HubConfig {
    /// PyG's classes of the model's layers.
    architectures: Vec<String>,
    /// Name of the model on girih's command line.
    model_type: String,
    num_features: usize,
    num_classes: usize,
    #[serde(default)]
    multi_label: bool,
    /// Settings of the training, as checkpoints have them; `config.model` has sizes, dropout rates and heads.
    config: TrainConfig,
}

/// Settings that a file of weights states.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedConfig {
    /// Configuration of the training.
    pub config: TrainConfig,
    /// Whether a node may have several labels.
    pub multi_label: bool,
}

/// Layer of PyG that the names of a model's tensors are those of.
fn architecture(kind: ModelKind) -> &'static str {
    match kind {
        ModelKind::Gcn => "GCNConv",
        ModelKind::Sgc => "SGConv",
        ModelKind::Sage => "SAGEConv",
        ModelKind::Gat => "GATConv",
        ModelKind::Gatv2 => "GATv2Conv",
        ModelKind::Gin => "GINConv",
        ModelKind::Appnp => "APPNP",
        ModelKind::Mlp => "Linear",
        ModelKind::LightGcn => "LightGCN",
        ModelKind::Ngcn => unreachable!("refused before"),
    }
}

/// Writes the best parameters of a checkpoint. Every file appears whole or not at all.
///
/// # Errors
/// As [`export_weights`], and when a file cannot be written.
pub fn write_weights(
    path: &Path,
    format: WeightFormat,
    checkpoint: &Checkpoint,
) -> Result<Vec<NamedWeight>, TrainError> {
    let weights = export_weights(checkpoint)?;
    match format {
        WeightFormat::Pyg => write_safetensors(path, &weights)?,
        WeightFormat::Npz => NpzWriter::write_file(path, |out| {
            weights.iter().try_for_each(|weight| out.array(&weight.name, &weight.shape, &weight.values))
        })?,
        WeightFormat::Hf => {
            std::fs::create_dir_all(path).map_err(|e| FormatError::io(e).at(path))?;
            write_safetensors(&path.join(HUB_TENSORS), &weights)?;
            let progress = &checkpoint.progress;
            let failed = |e: serde_json::Error| TrainError::checkpoint(path, e.to_string());
            let config = HubConfig {
                architectures: vec![architecture(progress.config.model.kind).to_owned()],
                model_type: progress.config.model.name().to_owned(),
                num_features: progress.data.n_features,
                num_classes: progress.data.n_classes,
                multi_label: progress.data.multi_label,
                config: progress.config.clone(),
            };
            let text = serde_json::to_string_pretty(&config).map_err(failed)?;
            write_file(&path.join(HUB_CONFIG), |out| Ok(writeln!(out, "{text}")?))?;
        }
    }
    Ok(weights)
}

fn write_safetensors(path: &Path, weights: &[NamedWeight]) -> Result<(), FormatError> {
    let tensor =
        |weight: &'_ NamedWeight| (weight.name.clone(), Tensor::new::<f32>(&weight.shape, weight.values.clone()));
    write_tensors(path, weights.iter().map(tensor).collect())
}

/// Tensors of a file, and the settings that a folder of the hub has beside them. Floats of any width become `f32`.
///
/// # Errors
/// When a file cannot be read or is damaged, or a tensor is not of floats.
pub fn read_weights(
    path: &Path,
    format: WeightFormat,
) -> Result<(Vec<NamedWeight>, Option<ImportedConfig>), TrainError> {
    match format {
        WeightFormat::Pyg => Ok((read_safetensors(path)?, None)),
        WeightFormat::Npz => {
            let mut archive = Npz::open(path)?;
            let names: Vec<String> = archive.names().map(str::to_owned).collect();
            let weights = names.into_iter().map(|name| {
                let array = archive.array(&name)?;
                named(path, name, array)
            });
            Ok((weights.collect::<Result<_, TrainError>>()?, None))
        }
        WeightFormat::Hf => {
            let file = path.join(HUB_CONFIG);
            let text = std::fs::read_to_string(&file).map_err(|e| FormatError::io(e).at(&file))?;
            let config = hub_config(&text).map_err(|what| {
                TrainError::checkpoint(
                    &file,
                    format!("{what}; `girih export --format hf` writes such a file, or use --format pyg"),
                )
            })?;
            Ok((read_safetensors(&path.join(HUB_TENSORS))?, Some(config)))
        }
    }
}

fn read_safetensors(path: &Path) -> Result<Vec<NamedWeight>, TrainError> {
    let tensors = Tensors::open(path)?;
    let weights = tensors.names().into_iter().map(|name| {
        let array = tensors.try_array(&name)?.expect("the file lists it");
        named(path, name, array)
    });
    weights.collect()
}

/// Tensor of an array of floats.
fn named(path: &Path, name: String, array: Array) -> Result<NamedWeight, TrainError> {
    if !matches!(array.values(), Values::F16(_) | Values::F32(_) | Values::F64(_)) {
        let found = array.values().type_name();
        let message = format!(
            "tensor `{name}` has values of type {found}: weights have to be float32, float16, bfloat16 or float64"
        );
        return Err(TrainError::checkpoint(path, message));
    }
    let shape = array.shape().to_vec();
    Ok(NamedWeight { name, shape, values: array.into_f32()?.to_vec() })
}

/// Settings of `config.json`.
fn hub_config(text: &str) -> Result<ImportedConfig, String> {
    let hub: HubConfig = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let named = hub.config.model.name();
    if hub.model_type != named {
        return Err(format!("`model_type` is {}, and `config.model.kind` {named}: make them equal", hub.model_type));
    }
    Ok(ImportedConfig { config: hub.config, multi_label: hub.multi_label })
}
