//! Flags for codecs of features.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use girih_compress::CodecSpec;

use super::{OutputArgs, any_case};
use crate::paths;

/// Compression of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecChoice {
    /// No compression.
    None,
    /// Compression with this codec.
    Codec(CodecSpec),
}

impl CodecChoice {
    /// Codec; `None` for no compression.
    pub fn codec(self) -> Option<CodecSpec> {
        match self {
            Self::None => None,
            Self::Codec(codec) => Some(codec),
        }
    }
}

pub(super) fn parse_codec(text: &str) -> Result<CodecChoice, String> {
    Ok(girih_trainer::parse_codec(&text.to_ascii_lowercase())?.map_or(CodecChoice::None, CodecChoice::Codec))
}

/// `girih compress`.
#[derive(Debug, Args)]
pub struct CompressArgs {
    /// Data with features, as --data of `girih train`; or a matrix
    ///
    /// A matrix is a .npy of float16, float32 or float64 with a row for each node, and may be larger than memory.
    #[arg(value_name = "PATH", conflicts_with = "data", required_unless_present = "data")]
    path: Option<String>,
    /// Alias of PATH
    #[arg(long, value_name = "SPEC", help_heading = "Data")]
    data: Option<String>,
    /// Codec
    ///
    /// One of topk:K (the K largest and K smallest values of each 256), topk-residual:K, f16, bf16, int8, int4, pca:R
    /// (R components), pq:M (M subvectors), or auto:BYTES (the codec with the least error in so many bytes a row).
    #[arg(long, value_name = "CODEC", default_value = "topk:8", value_parser = any_case::<CodecSpec>)]
    pub codec: CodecSpec,
    /// Folder for the store, features.codes
    ///
    /// After an interruption, the same command goes on.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: PathBuf,
    /// CPU threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Rows of the random sample that the codec is fitted to
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(2..))]
    pub sample: u32,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl CompressArgs {
    /// Data to compress: a SPEC, or the path of a matrix.
    pub fn spec(&self) -> &str {
        self.data.as_deref().or(self.path.as_deref()).expect("one of the two is required")
    }
}

/// `girih decompress`.
#[derive(Debug, Args)]
pub struct DecompressArgs {
    /// Folder that `girih compress` wrote
    #[arg(value_name = "DIR")]
    pub store: PathBuf,
    /// Array to write, of float32
    #[arg(long, value_name = "FILE.npy", help_heading = "Output")]
    #[arg(value_parser = PathBufValueParser::new().try_map(paths::npy))]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}
