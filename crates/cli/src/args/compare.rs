//! Flags of `girih compare`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};

use super::OutputArgs;
use crate::paths;

/// `girih compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Folders that `girih train --out DIR` wrote
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Page with the table and all curves over one another
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    #[arg(value_parser = PathBufValueParser::new().try_map(paths::html))]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}
