//! Flags for codecs of features.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use girih_compress::CodecSpec;

use super::OutputArgs;
use crate::paths;

/// How features are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecChoice {
    /// Not at all.
    None,
    /// By this codec.
    Codec(CodecSpec),
}

impl CodecChoice {
    /// The codec, if there is one.
    pub fn codec(self) -> Option<CodecSpec> {
        match self {
            Self::None => None,
            Self::Codec(codec) => Some(codec),
        }
    }
}

pub(super) fn parse_codec(text: &str) -> Result<CodecChoice, String> {
    Ok(girih_trainer::parse_codec(text)?.map_or(CodecChoice::None, CodecChoice::Codec))
}

/// `girih compress`.
#[derive(Debug, Args)]
pub struct CompressArgs {
    /// Data with features, as for `girih train`; or a matrix `.npy` of float16, float32 or float64 with a row for each
    /// node, which may be larger than memory
    #[arg(long, value_name = "SPEC")]
    pub data: String,
    /// Code of a row: topk:K (K largest and K smallest values of each 256), topk-residual:K, f16, bf16, int8, int4,
    /// pca:R (R components), pq:M (M pieces), or auto:BYTES (the one with the least error in so many bytes)
    #[arg(long, value_name = "CODEC", default_value = "topk:8")]
    pub codec: CodecSpec,
    /// Folder that gets the store, `features.codes`; interrupted, the same call goes on
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Threads to encode with [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Rows that the codec learns from, drawn at random
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(2..))]
    pub sample: u32,
    /// Seed of what is drawn
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih decompress`.
#[derive(Debug, Args)]
pub struct DecompressArgs {
    /// Folder that `girih compress` wrote
    #[arg(value_name = "DIR")]
    pub store: PathBuf,
    /// Array to write, of float32
    #[arg(long, value_name = "FILE.npy")]
    #[arg(value_parser = PathBufValueParser::new().try_map(paths::npy))]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}
