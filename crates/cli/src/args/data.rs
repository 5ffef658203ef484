//! Flags for data: reading, generating and converting.

use std::path::PathBuf;

use clap::Args;
use girih_datasets::{FORMATS, LoadOptions};
use girih_graph_format::file::Verify;

use super::{CacheArgs, OutputArgs, ReadArgs};

/// Data of `girih train` without `--data`.
pub const DEFAULT_DATA: &str = "synth:planted,nodes=10000,degree=20";

/// Help of `--data`: formats of paths, then generators.
fn data_help() -> String {
    format!(
        "A path: {FORMATS}. Or a generator: synth:planted, synth:rmat, synth:reddit, proteins, archaea, products, \
         papers100m, mag240m, yelp, friendster, and with types igbh, igbh-tiny, -small, -medium, -large, -full, \
         mag240m-hetero, ogbn-mag, aifb-like; with @SCALE and ,key=value…, for instance synth:reddit@0.1 or \
         synth:planted,nodes=10000,degree=20"
    )
}

/// Which data, and how files become a data set.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Data")]
pub struct DataArgs {
    /// Data: a file or folder of any supported format, or synth:NAME
    #[arg(value_name = "PATH", conflicts_with = "data")]
    pub path: Option<String>,
    /// Alias of PATH
    #[arg(long, value_name = "SPEC", long_help = data_help())]
    pub data: Option<String>,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Fail if parts of the data are not used or doubtful, instead of warning
    #[arg(long)]
    pub strict: bool,
    /// Do not compare folders and stores with their checksums
    ///
    /// Saves the time to read every byte before the first step. `girih verify` compares them at any time.
    #[arg(long)]
    pub no_verify: bool,
}

impl DataArgs {
    /// SPEC of the training data.
    pub fn spec(&self) -> &str {
        self.data.as_deref().unwrap_or(DEFAULT_DATA)
    }

    /// Options for the loaders. `seed` and `n_splits` decide the splits of data that ships none.
    pub fn options(&self, seed: u64, n_splits: usize) -> LoadOptions {
        let verify = if self.no_verify { Verify::Structure } else { Verify::Full };
        LoadOptions { verify, ..self.read.options(seed, n_splits, self.strict) }
    }
}

/// `girih stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    #[arg(
        value_name = "SPEC",
        help = "What to generate: NAME[@SCALE][,key=value…], with or without `synth:` before it"
    )]
    pub spec: String,
    /// Folder to write
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Folder to write, or file whose extension names the format
    ///
    /// A .safetensors file holds all arrays, and so does .npz for data with types. These hold the graph alone: .npz for
    /// scipy, .mtx, .graph, and edge lists .csv, .tsv and .txt, text also as .gz.
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub out: PathBuf,
    /// Leave types out: all relations become one graph, and node types one list of nodes
    ///
    /// Types need features of the same width, or none.
    #[arg(long, help_heading = "Output")]
    pub homogeneous: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}
