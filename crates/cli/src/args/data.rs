//! Flags for data: what is read, generated and converted.

use std::path::PathBuf;

use clap::Args;
use girih_datasets::{FeatureNorm, LoadOptions};

use super::{CacheArgs, OutputArgs, RowDivisor};

/// The data of `girih train` without `--data`.
pub const DEFAULT_DATA: &str = "synth:planted,nodes=10000,degree=20";

const DATA_HELP: &str = "\
A path (girih folder, Planetoid `ind.*` folder, LightGCN folder, OGB raw folder, `edge_index` or `indptr`/`indices` as `.npy`, `.npz` or \
`.safetensors`, gnn-benchmark or scipy `.npz`, also in a `.zip`, Matrix Market `.mtx`, METIS `.graph`, edge list \
`.csv`/`.tsv`/`.txt`, text also as `.gz`), or a generator: synth:planted, synth:rmat, synth:reddit, proteins, archaea, products, papers100m, mag240m, yelp, \
friendster, with @SCALE and ,key=value…, for instance synth:reddit@0.1 or synth:planted,nodes=10000,degree=20";

/// Which data, and how files become a data set.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct DataArgs {
    #[arg(long, value_name = "SPEC", help = DATA_HELP)]
    pub data: Option<String>,
    /// Features for an edge list: a `.npy` with one row of floats per node, or what `girih compress` made of one, a
    /// `.codes`
    #[arg(long, value_name = "FILE")]
    pub features: Option<PathBuf>,
    /// Labels for an edge list: a `.npy` with one integer per node, negative where unknown, or with a row of 0 and 1 for
    /// each, of several labels a node
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// Store every edge in both directions [default: of edge lists yes, of other files as the format's published loader
    /// does]
    #[arg(long, value_name = "BOOL")]
    pub symmetrize: Option<bool>,
    /// What to divide each row of features by [default: sum for Planetoid, root-length for gnn-benchmark, else none]
    #[arg(long, value_enum)]
    pub normalize_features: Option<RowDivisor>,
    /// Which of the data's split sets to use, counted from 0, or all: run r takes set r [default: all]
    #[arg(long, value_name = "I|all", value_parser = parse_split)]
    pub split: Option<SplitChoice>,
}

/// The split sets to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitChoice {
    /// All of them, one a run.
    All,
    /// One of them, in every run.
    One(usize),
}

fn parse_split(text: &str) -> Result<SplitChoice, String> {
    match text {
        "all" => Ok(SplitChoice::All),
        _ => text.parse().map(SplitChoice::One).map_err(|_| "expected a number from 0, or all".to_owned()),
    }
}

impl DataArgs {
    /// What is trained on.
    pub fn spec(&self) -> &str {
        self.data.as_deref().unwrap_or(DEFAULT_DATA)
    }

    /// The options for the loaders; `seed` and `n_splits` decide the splits of data that ships none.
    pub fn options(&self, seed: u64, n_splits: usize) -> LoadOptions {
        LoadOptions {
            feature_norm: self.normalize_features.map(FeatureNorm::from),
            symmetrize: self.symmetrize,
            seed,
            n_splits,
            split: match self.split {
                None | Some(SplitChoice::All) => None,
                Some(SplitChoice::One(split)) => Some(split),
            },
            features: self.features.clone(),
            codec: None,
            features_from: None,
            labels: self.labels.clone(),
        }
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
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Folder to write; a name ending in `.safetensors` writes all arrays to one file, and these write the graph alone:
    /// `.npz` for scipy, `.mtx`, `.graph`, and edge lists `.csv`, `.tsv` and `.txt`, text also as `.gz`
    #[arg(long, value_name = "PATH")]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}
