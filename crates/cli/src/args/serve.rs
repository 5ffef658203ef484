//! Flags of `girih serve` and `girih embed`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use girih_sampling::FanOut;

use super::{DataArgs, DeviceArgs, OutputArgs};
use crate::paths;

/// `girih embed`.
#[derive(Debug, Args)]
pub struct EmbedArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Output folder of `girih train`, or one checkpoint file of it
    ///
    /// Without --data, the data are those of its config.toml.
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub checkpoint: PathBuf,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// File to write: a row of floats for each node
    ///
    /// A classifier's are its last hidden layer. Those of a link predictor or a recommender are the rows whose products
    /// are scores; users come first, then items.
    #[arg(long, value_name = "FILE.npy", help_heading = "Output")]
    #[arg(value_parser = PathBufValueParser::new().try_map(paths::npy))]
    pub out: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Output folder of `girih train`, or one checkpoint file of it
    ///
    /// Without --data, the data are those of its config.toml.
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub checkpoint: PathBuf,
    /// Neighbors to sample of each node, layer by layer from the seeds outward; -1 takes all
    ///
    /// Without it, answers are exact: logits of all nodes are computed once at the start, and new nodes read all their
    /// neighbors. With it, every answer samples anew; equal questions get equal answers.
    #[arg(long, value_name = "K,…", allow_hyphen_values = true, help_heading = "Model")]
    pub fanout: Option<FanOut>,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Address and limits of a server.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct LimitArgs {
    /// Address and port to listen on; port 0 takes a free one
    ///
    /// There is no password and no encryption. On other addresses than 127.0.0.1, put a proxy that has both before it.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Requests that may wait for an answer; further ones get status 503
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub queue: u32,
    /// Nodes that one request may ask for, and that are computed at a time
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_nodes: u32,
    /// Bytes of the body of a request; longer ones get status 413
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    pub max_body: u32,
    /// Open connections; further ones wait
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Seconds until a request that has not arrived whole gets status 408
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub timeout: u16,
}
