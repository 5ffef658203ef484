//! Flags for orders of nodes.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use girih_reorder::OrderKind;

use super::{DataArgs, OutputArgs, any_case};
use crate::paths;

/// `girih reorder`.
#[derive(Debug, Args)]
pub struct ReorderArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Order of the nodes; several, separated by commas, are compared
    ///
    /// One of degree, slashburn, rcm (reverse Cuthill-McKee), metis (clusters of 200 nodes), parts (--blocks parts of
    /// METIS, with few edges between them), community (nested communities, by falling degree inside), auto (the one
    /// that is predicted to be fastest), random, none.
    #[arg(long, value_name = "ORDER,…", value_delimiter = ',', required_unless_present = "permutation")]
    #[arg(value_parser = any_case::<OrderKind>, help_heading = "Order of nodes")]
    pub order: Vec<OrderKind>,
    /// Number of equal ranges of ids that are renumbered apart; for the order parts, the number of parts
    ///
    /// Give the number of row blocks of a partition, and each node stays in its block.
    #[arg(help_heading = "Order of nodes")]
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub blocks: u32,
    /// File with the order instead: the new id of every node
    #[arg(long, help_heading = "Order of nodes", value_name = "FILE.npy", conflicts_with_all = ["order", "blocks"])]
    #[arg(value_parser = PathBufValueParser::new().try_map(paths::npy))]
    pub permutation: Option<PathBuf>,
    /// Bandwidth of gathers from the cache of the device that auto chooses for
    ///
    /// Needs --memory-gb-s; the size of the cache is --cache. [default: the CPU here]
    #[arg(help_heading = "Order of nodes")]
    #[arg(long, value_name = "GB/S", requires = "memory_gb_s", value_parser = parse_rate, allow_negative_numbers = true)]
    pub cache_gb_s: Option<f64>,
    /// Bandwidth of gathers from the memory of that device
    #[arg(help_heading = "Order of nodes")]
    #[arg(long, value_name = "GB/S", requires = "cache_gb_s", value_parser = parse_rate, allow_negative_numbers = true)]
    pub memory_gb_s: Option<f64>,
    /// Folder for the reordered data, with the order as new_of_old.npy
    ///
    /// If several orders are given, the one with the largest coverage is written.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Picture of the non-zeros: as they are (left), then in every order, three in a row
    #[arg(help_heading = "Output")]
    #[arg(long, value_name = "FILE.png", value_parser = PathBufValueParser::new().try_map(paths::png))]
    pub plot: Option<PathBuf>,
    /// Page with figures, pictures of all orders and the balance of blocks
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Shuffle the ids first, so that the order of the nodes in the files has no influence
    #[arg(long, help_heading = "Order of nodes")]
    pub shuffle: bool,
    /// Random seed
    #[arg(long, default_value_t = 0, help_heading = "Order of nodes")]
    pub seed: u64,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Cache whose hit rate is simulated.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Simulated cache")]
pub struct CacheArgs {
    /// Size of the cache in KiB [default: the last-level cache of this machine]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(1..))]
    pub cache: Option<u64>,
    /// Columns of the f32 feature matrix whose rows it holds
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub width: u32,
}

pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && f64::is_finite(rate) => Ok(rate),
        _ => Err("expected a positive number of GB/s".to_owned()),
    }
}
