//! Flags for ranks: how many, how they cut the graph, and what starts them.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use girih_comm::CardTransport;
use girih_partition::{Cuts, Exchange, Scheme, Stages};
use girih_reorder::OrderKind;

use super::order::parse_rate;
use super::{DataArgs, OutputArgs, Precision};
use crate::paths;

/// How ranks share the work.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ranks")]
pub struct RankArgs {
    /// Work on this many ranks, threads of this process, each of which holds a part of the graph and of the features
    /// [default: one, or as many as `girih launch` or another launcher started processes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub ranks: Option<u16>,
    /// Work on this many CUDA devices of this machine, a rank each
    #[arg(long, value_name = "N", conflicts_with = "ranks", value_parser = clap::value_parser!(u16).range(1..))]
    pub gpus: Option<u16>,
    /// Of processes that a launcher started, so many share each CUDA device: to try what more devices would come to,
    /// slower than they. Needs NCCL 2.30 or later, and NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub ranks_per_gpu: u16,
    #[command(flatten)]
    pub partition: PartitionKind,
    /// In how many chunks of rows products are taken that sums of ranks or slices of columns follow (1.5d, 2d, 3d): on
    /// CUDA devices these are exchanged while the next chunk is multiplied
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub chunks: u16,
    /// What carries rows between the CUDA devices of --gpus: NCCL, whose kernels run beside those of products, or each
    /// takes them from the memory of the others (peer), which have to be able to read it, by its copy engines, those of
    /// patches by kernels [default: in training the faster one, which is measured; else nccl]
    #[arg(long, value_name = "nccl|peer")]
    pub transport: Option<CardTransport>,
    /// Seconds that a rank waits for another before it gives up [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub rank_deadline: Option<u64>,
    /// Where processes that a launcher started meet: rank 0's host and a free port there [default: what the launcher
    /// says]
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: Option<String>,
}

/// Which rank holds and multiplies which block, and what travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct PartitionKind {
    /// How the adjacency is cut: by rows (1d), by rows that several ranks hold (1.5d), in a square of ranks (2d), in a
    /// cube (3d); in training also as a plan predicts to be quickest, exchange, stages and chunks included (auto)
    #[arg(long, value_name = "1d|1.5d|2d|3d|auto", default_value_t)]
    pub partition: PartitionChoice,
    /// Ranks that hold the same rows, of 1.5d
    #[arg(long, value_name = "R", default_value_t = 1)]
    pub replication: usize,
    /// What is sent for a step: whole blocks of rows (dense), only those that the receiver touches (rows), or whichever
    /// is less (auto)
    #[arg(long, value_name = "dense|rows|auto", default_value_t)]
    pub exchange: Exchange,
    /// Where nodes are cut: into equal numbers (equal), or into equal shares of nodes and edges (weighted), for graphs
    /// in an order of the whole
    #[arg(long, value_name = "equal|weighted", default_value_t)]
    pub cuts: Cuts,
    /// In which stages the rows of other ranks come, each while those of the one before are multiplied: so many parts
    /// of their columns, of rows that are wide enough; those of one rank at a time, each rank from another one (turns)
    /// or all from the same (steps), which takes least memory [default: on CUDA devices 1, on processors steps]
    #[arg(long, value_name = "N|turns|steps")]
    pub stages: Option<Stages>,
    /// How f32 rows travel and are multiplied: as they are, or rounded, in half the bytes, with the error in the
    /// result. With --precision bf16 all do
    #[arg(long, value_name = "f32|bf16", value_enum, default_value = "f32")]
    pub wire: Precision,
}

impl PartitionKind {
    /// What is cut and sent unless it is told.
    pub const USUAL: Self = Self {
        partition: PartitionChoice::Of(Scheme::OneD),
        replication: 1,
        exchange: Exchange::Auto,
        cuts: Cuts::Equal,
        stages: None,
        wire: Precision::F32,
    };

    /// The same, with rows in the place of what is still to be chosen.
    pub fn or_rows(self) -> Self {
        match self.partition {
            PartitionChoice::Of(_) => self,
            PartitionChoice::Auto => Self { partition: Self::USUAL.partition, ..self },
        }
    }
}

/// A partition, or the one that a plan predicts to be quickest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionChoice {
    Of(Scheme),
    Auto,
}

impl Default for PartitionChoice {
    fn default() -> Self {
        Self::Of(Scheme::default())
    }
}

impl fmt::Display for PartitionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(scheme) => scheme.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for PartitionChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Of).map_err(|error| format!("{error}, or auto")),
        }
    }
}

/// `girih partition`.
#[derive(Debug, Args)]
pub struct PartitionArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Number of ranks
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..))]
    pub ranks: u16,
    #[command(flatten)]
    pub partition: PartitionKind,
    /// Columns of the operand of the product that is counted
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub width: u32,
    /// Bytes a second that a rank exchanges, in GB/s
    #[arg(long, value_name = "GB/S", default_value_t = 10.0, value_parser = parse_rate, allow_negative_numbers = true)]
    pub link: f64,
    /// Microseconds before the first byte of an exchange
    #[arg(long, value_name = "US", default_value_t = 10.0, value_parser = parse_latency, allow_negative_numbers = true)]
    pub latency: f64,
    /// GB/s at which a rank gathers rows of the operand [default: measured here, as if each rank had such a machine]
    #[arg(long, value_name = "GB/S", value_parser = parse_rate, allow_negative_numbers = true)]
    pub gather: Option<f64>,
    /// Exchange the operand of a step while the step before multiplies
    #[arg(long)]
    pub overlap: bool,
    /// Draw the non-zeros of every block to this file
    #[arg(long, value_name = "FILE.svg", value_parser = PathBufValueParser::new().try_map(paths::svg))]
    pub plot: Option<PathBuf>,
    /// Say (and draw) it also after ordering the whole graph, and after ordering inside each block's ids
    #[arg(long, value_name = "ORDER")]
    pub compare: Option<OrderKind>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih launch`.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// Processes to start on this host, each a rank
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub nproc: u16,
    /// Where they meet: a name or address of the first host, and a free port there [default, on one host: found]
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: Option<String>,
    /// Hosts on which this command is called, with the same flags but --node
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub nodes: u16,
    /// Which of the hosts this is, from 0
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub node: u16,
    /// What each process does: `train`, `evaluate` or `predict` and its flags
    #[arg(last = true, required = true, value_name = "train …")]
    pub command: Vec<OsString>,
}

fn parse_latency(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(latency) if latency >= 0.0 && f64::is_finite(latency) => Ok(latency),
        _ => Err("expected a number of microseconds, 0 or more".to_owned()),
    }
}
