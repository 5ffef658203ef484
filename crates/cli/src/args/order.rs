//! Flags for orders of nodes.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use girih_reorder::OrderKind;

use super::{DataArgs, OutputArgs};
use crate::paths;

/// `girih reorder`.
#[derive(Debug, Args)]
pub struct ReorderArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// The order: degree, slashburn, rcm (reverse Cuthill-McKee), metis (clusters of 200 nodes), parts (--blocks of
    /// METIS's parts, which few edges leave), community (nested communities, nodes by falling degree inside), auto
    /// (what is predicted to be quickest), random, none; several, separated by commas, are compared
    #[arg(long, value_name = "ORDER,…", value_delimiter = ',', required_unless_present = "permutation")]
    pub order: Vec<OrderKind>,
    /// Order inside so many equal ranges of ids, so that blocks of a partition keep their non-zeros; of parts, how many
    /// there are
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub blocks: u32,
    /// Take the order from a file instead: the new id of every node, as `.npy`
    #[arg(long, value_name = "FILE.npy", conflicts_with_all = ["order", "blocks"])]
    #[arg(value_parser = PathBufValueParser::new().try_map(paths::npy))]
    pub permutation: Option<PathBuf>,
    /// GB/s that the device which auto chooses for gathers from its cache, of --cache KiB [default: the processor here]
    #[arg(long, value_name = "GB/S", requires = "memory_gb_s", value_parser = parse_rate, allow_negative_numbers = true)]
    pub cache_gb_s: Option<f64>,
    /// GB/s that it gathers from its memory
    #[arg(long, value_name = "GB/S", requires = "cache_gb_s", value_parser = parse_rate, allow_negative_numbers = true)]
    pub memory_gb_s: Option<f64>,
    /// Write the reordered data to this folder, with the order as new_of_old.npy; of several orders, that with the
    /// largest coverage
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw the non-zeros to this file: left as they are before, right after
    #[arg(long, value_name = "FILE.png", value_parser = PathBufValueParser::new().try_map(paths::png))]
    pub plot: Option<PathBuf>,
    /// Write figures, pictures and the balance of blocks to this page
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Shuffle the ids first: what an order gains is then not what the files brought along
    #[arg(long)]
    pub shuffle: bool,
    /// Seed of shuffled and random orders
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The cache whose hits are simulated.
#[derive(Clone, Copy, Debug, Args)]
pub struct CacheArgs {
    /// Size of the simulated cache in KiB [default: the last-level cache of this machine]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(1..))]
    pub cache: Option<u64>,
    /// Columns of the operand whose rows it holds, as f32
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub width: u32,
}

pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && f64::is_finite(rate) => Ok(rate),
        _ => Err("expected a positive number of GB/s".to_owned()),
    }
}
