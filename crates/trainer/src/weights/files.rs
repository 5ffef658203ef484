//! [`WeightFormat`]: files of named tensors, ONNX graphs, and the folder of Hugging Face's hub.

use std::fmt;
use std::fs::DirEntry;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use girih_graph_format::FormatError;
use girih_graph_format::file::{Array, NewFolder, Npz, NpzWriter, Tensor, Tensors, Values, write_file, write_tensors};
use serde::{Deserialize, Serialize};

use super::convert::{NamedWeight, export_weights};
use super::onnx::onnx_model;
use super::table::Library;
use crate::TrainError;
use crate::config::{TrainConfig, joined};
use crate::engine::{Checkpoint, Progress};

/// Name of the tensors in a folder of the hub.
const HUB_TENSORS: &str = "model.safetensors";
/// Name of the settings in a folder of the hub.
const HUB_CONFIG: &str = "config.json";

/// Form of a file of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFormat {
    /// One file `.safetensors`, a state dict of PyG.
    Pyg,
    /// One file `.safetensors`, a state dict of DGL.
    Dgl,
    /// One file `.npz` for NumPy, with the names of PyG.
    Npz,
    /// Folder of Hugging Face's hub: `model.safetensors` with the names of PyG, and `config.json`.
    Hf,
    /// One file `.onnx` with the whole model. Girih writes it only.
    Onnx,
}

impl WeightFormat {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Pyg, Self::Dgl, Self::Npz, Self::Hf, Self::Onnx];

    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pyg => "pyg",
            Self::Dgl => "dgl",
            Self::Npz => "npz",
            Self::Hf => "hf",
            Self::Onnx => "onnx",
        }
    }

    /// Library whose names and layouts the tensors have.
    #[must_use]
    pub fn library(self) -> Library {
        match self {
            Self::Pyg | Self::Npz | Self::Hf => Library::Pyg,
            Self::Dgl => Library::Dgl,
            Self::Onnx => Library::Onnx,
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

/// Writes the best parameters of a checkpoint. The file or folder appears whole or not at all.
///
/// # Errors
/// As [`export_weights`], and when a file cannot be written.
pub fn write_weights(
    path: &Path,
    format: WeightFormat,
    checkpoint: &Checkpoint,
) -> Result<Vec<NamedWeight>, TrainError> {
    let weights = export_weights(checkpoint, format.library())?;
    match format {
        WeightFormat::Pyg | WeightFormat::Dgl => write_safetensors(path, &weights)?,
        WeightFormat::Onnx => {
            let model =
                onnx_model(&checkpoint.progress, &weights).map_err(|what| TrainError::checkpoint(path, what))?;
            write_file(path, |out| Ok(out.write_all(&model)?))?;
        }
        WeightFormat::Npz => NpzWriter::write_file(path, |out| {
            weights.iter().try_for_each(|weight| out.array(&weight.name, &weight.shape, &weight.values))
        })?,
        WeightFormat::Hf => write_hub(path, &checkpoint.progress, &weights)?,
    }
    Ok(weights)
}

/// Writes a folder of the hub. It may replace one, if there is nothing else in it.
fn write_hub(path: &Path, progress: &Progress, weights: &[NamedWeight]) -> Result<(), TrainError> {
    let config = HubConfig {
        architectures: progress.config.model.kind.properties().exports.map(str::to_owned).into_iter().collect(),
        model_type: progress.config.model.name().to_owned(),
        num_features: progress.data.n_features,
        num_classes: progress.data.n_classes,
        multi_label: progress.data.multi_label,
        config: progress.config.clone(),
    };
    let text = serde_json::to_string_pretty(&config).map_err(|e| TrainError::checkpoint(path, e.to_string()))?;
    let is_hub = |folder: &Path| {
        let known = |entry: std::io::Result<DirEntry>| {
            entry.is_ok_and(|entry| [HUB_TENSORS, HUB_CONFIG].iter().any(|name| entry.file_name() == *name))
        };
        std::fs::read_dir(folder).is_ok_and(|mut entries| entries.all(known))
    };
    let folder = NewFolder::create(path, is_hub)?;
    write_safetensors(&folder.path().join(HUB_TENSORS), weights)?;
    write_file(&folder.path().join(HUB_CONFIG), |out| Ok(writeln!(out, "{text}")?))?;
    Ok(folder.commit()?)
}

fn write_safetensors(path: &Path, weights: &[NamedWeight]) -> Result<(), FormatError> {
    let tensor =
        |weight: &'_ NamedWeight| (weight.name.clone(), Tensor::new::<f32>(&weight.shape, weight.values.clone()));
    write_tensors(path, weights.iter().map(tensor).collect())
}

/// Tensors of a file, and the settings that a folder of the hub has beside them. Floats of any width become `f32`.
///
/// # Errors
/// When a file cannot be read or is damaged, a tensor is not of floats, or the format is for export only.
pub fn read_weights(
    path: &Path,
    format: WeightFormat,
) -> Result<(Vec<NamedWeight>, Option<ImportedConfig>), TrainError> {
    match format {
        WeightFormat::Pyg | WeightFormat::Dgl => Ok((read_safetensors(path)?, None)),
        WeightFormat::Onnx => Err(TrainError::checkpoint(
            path,
            "ONNX is for export only: import a state dict of the same weights by --format pyg, dgl, npz or hf"
                .to_owned(),
        )),
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
    hub.config.validate().map_err(|e| e.to_string())?;
    Ok(ImportedConfig { config: hub.config, multi_label: hub.multi_label })
}
