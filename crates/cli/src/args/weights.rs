//! Flags of `girih export` and `girih import`.

use std::path::PathBuf;

use clap::Args;
use girih_trainer::WeightFormat;

use super::{DataArgs, ModelSettings, OutputArgs, one_of};

/// `girih export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Output folder of `girih train`, or one checkpoint file of it
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub checkpoint: PathBuf,
    /// Form of the weights: pyg, dgl, npz, hf or onnx
    ///
    /// pyg: one .safetensors file with the names of PyG's layers, as in `convs.0.lin.weight`. dgl: the same with the
    /// names of DGL's layers, as in `layers.0.weight`. npz: the arrays of pyg for NumPy. hf: a folder with
    /// model.safetensors and config.json, as for Hugging Face's hub. onnx: one .onnx file with the whole model, from
    /// features and edges to logits. docs/formats.md lists names and layouts.
    #[arg(long, value_parser = one_of::<WeightFormat>(WeightFormat::ALL.map(WeightFormat::name)), default_value = "pyg")]
    #[arg(hide_possible_values = true, help_heading = "Output")]
    pub format: WeightFormat,
    /// File to write; with --format hf, a folder
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// File of weights; with --format hf, a folder
    #[arg(long, value_name = "PATH", help_heading = "Weights")]
    pub weights: PathBuf,
    /// Form of the weights: pyg, dgl, npz or hf, as `girih export` writes them
    #[arg(long, value_parser = one_of::<WeightFormat>(WeightFormat::ALL.map(WeightFormat::name)), default_value = "pyg")]
    #[arg(hide_possible_values = true, help_heading = "Weights")]
    pub format: WeightFormat,
    /// Settings of the training as TOML; of hf, those of its config.json
    ///
    /// Flags of the model come on top. Numbers of features and classes follow from the weights.
    #[arg(long, value_name = "FILE", help_heading = "Weights")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelSettings,
    /// Folder to write, which `girih evaluate`, `predict` and `train --resume` take
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}
