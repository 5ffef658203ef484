//! Flags for ranks: their number, the partition, and how they are launched.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use girih_comm::GpuTransport;
use girih_partition::{Cuts, Exchange, Scheme, Stages};
use girih_reorder::OrderKind;

use super::order::parse_rate;
use super::{DataArgs, OutputArgs, Precision, any_case};
use crate::paths;

/// How ranks share the work.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ranks")]
pub struct RankArgs {
    /// Number of ranks, as threads of this process; each holds a part of the data
    ///
    /// [default: 1, or the number of processes that a launcher started]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub ranks: Option<u16>,
    /// CUDA devices of this machine to train on, one rank each
    #[arg(long, value_name = "N", conflicts_with = "ranks", value_parser = clap::value_parser!(u16).range(1..))]
    pub gpus: Option<u16>,
    /// Processes of a launcher that share each CUDA device
    ///
    /// For trying more ranks than there are devices; slower than as many devices. Needs NCCL 2.30 or later, and
    /// NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment.
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub ranks_per_gpu: u16,
    #[command(flatten)]
    pub partition: PartitionKind,
    /// Parts of a product whose sums ranks exchange one by one (1.5d, 2d, 3d)
    ///
    /// On CUDA devices, a part is exchanged while the next one is computed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub chunks: u16,
    /// Transport of rows between the CUDA devices of --gpus: nccl or peer
    ///
    /// peer: each device copies rows directly from the memory of the others, which needs peer access. [default: the
    /// faster one in a measurement before training; in a plan nccl]
    #[arg(long, value_name = "nccl|peer", value_parser = any_case::<GpuTransport>)]
    pub transport: Option<GpuTransport>,
    /// Seconds to wait for another rank before giving up [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub rank_deadline: Option<u64>,
    /// Host of rank 0 and a free port there, to which all processes of a launcher connect
    ///
    /// [default: as the launcher says]
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: Option<String>,
    /// File of the secret by which processes of a launcher recognise each other
    ///
    /// One secret for all hosts, in a file that only its owner can read; needed unless --rendezvous is a loopback
    /// address. Make it with `openssl rand -hex 32 > FILE; chmod 600 FILE`. [default: as GIRIH_SECRET or GIRIH_SECRET_FILE says]
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

/// Which rank holds and multiplies which block, and what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Ranks")]
pub struct PartitionKind {
    /// Partition of the adjacency matrix: 1d, 1.5d, 2d, 3d or auto
    ///
    /// 1d: each rank holds a block of rows. 1.5d: several ranks hold the same block (--replication). 2d, 3d: ranks form a
    /// square or a cube. auto, in training: the one that is predicted to be fastest, with its exchange, stages and chunks.
    #[arg(long, value_name = "NAME", default_value_t, value_parser = any_case::<PartitionChoice>)]
    pub partition: PartitionChoice,
    /// Ranks that hold the same rows (1.5d)
    #[arg(long, value_name = "R", default_value_t = 1)]
    pub replication: usize,
    /// Rows that ranks send each other for a product: dense, rows or auto
    ///
    /// dense: all rows of a block. rows: only those that the receiver has edges to. auto: whichever sends fewer bytes.
    #[arg(long, value_name = "NAME", default_value_t, value_parser = any_case::<Exchange>)]
    pub exchange: Exchange,
    /// Size of the ranks' parts: equal numbers of nodes, or weighted by their edges
    ///
    /// weighted: a rank whose nodes have many edges gets fewer nodes. It helps if an order such as rcm or degree puts
    /// nodes with many edges together.
    #[arg(long, value_name = "equal|weighted", default_value_t, value_parser = any_case::<Cuts>)]
    pub cuts: Cuts,
    /// Steps in which rows of other ranks are received: a number, turns or steps
    ///
    /// A step is received while the rows of the step before are multiplied. A number like 4: each step brings some
    /// columns of all rows. turns: a step brings all rows of one rank, and each rank receives from another one. steps:
    /// the same, but all ranks receive from the same one; takes the least memory. [default: 1 on CUDA devices, steps on
    /// CPUs]
    #[arg(long, value_name = "N|turns|steps", value_parser = any_case::<Stages>)]
    pub stages: Option<Stages>,
    /// Precision in which f32 rows are sent to other ranks
    ///
    /// bf16 halves the bytes; the result reports the rounding error. With --precision bf16 all rows are bf16.
    #[arg(long, value_enum, default_value = "f32")]
    pub wire: Precision,
}

impl PartitionKind {
    /// Default partition and exchange.
    pub const USUAL: Self = Self {
        partition: PartitionChoice::Of(Scheme::OneD),
        replication: 1,
        exchange: Exchange::Auto,
        cuts: Cuts::Equal,
        stages: None,
        wire: Precision::F32,
    };

    /// As given, but with 1D rows instead of a choice that is not made yet.
    pub fn or_rows(self) -> Self {
        match self.partition {
            PartitionChoice::Of(_) => self,
            PartitionChoice::Auto => Self { partition: Self::USUAL.partition, ..self },
        }
    }
}

/// Partition, or the one that the planner predicts to be the fastest.
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
    #[arg(long, value_name = "P", help_heading = "Ranks", value_parser = clap::value_parser!(u16).range(1..))]
    pub ranks: u16,
    #[command(flatten)]
    pub partition: PartitionKind,
    /// Columns of the feature matrix that is multiplied
    #[arg(help_heading = "Machine")]
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub width: u32,
    /// Bandwidth of a rank's link
    #[arg(help_heading = "Machine")]
    #[arg(long, value_name = "GB/S", default_value_t = 10.0, value_parser = parse_rate, allow_negative_numbers = true)]
    pub link: f64,
    /// Latency of an exchange, in microseconds
    #[arg(help_heading = "Machine")]
    #[arg(long, value_name = "US", default_value_t = 10.0, value_parser = parse_latency, allow_negative_numbers = true)]
    pub latency: f64,
    /// Bandwidth at which a rank gathers rows of the operand
    ///
    /// [default: measured here, as if each rank had such a machine]
    #[arg(help_heading = "Machine")]
    #[arg(long, value_name = "GB/S", value_parser = parse_rate, allow_negative_numbers = true)]
    pub gather: Option<f64>,
    /// Receive the rows of a step while those of the step before are multiplied
    #[arg(long, help_heading = "Machine")]
    pub overlap: bool,
    /// Picture of the non-zeros of every block
    #[arg(help_heading = "Output")]
    #[arg(long, value_name = "FILE.svg", value_parser = PathBufValueParser::new().try_map(paths::svg))]
    pub plot: Option<PathBuf>,
    /// Order of nodes to compare with: of the whole graph, and inside each row block
    #[arg(long, value_name = "ORDER", help_heading = "Ranks", value_parser = any_case::<OrderKind>)]
    pub compare: Option<OrderKind>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `girih launch`.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// Processes to start on this host, one rank each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub nproc: u16,
    /// Name or address of the first host, and a free port there
    ///
    /// All processes connect to it. On one host, girih finds a port.
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: Option<String>,
    /// File of the secret by which the processes recognise each other
    ///
    /// One secret for all hosts, in a file that only its owner can read; needed with --nodes. Make it with
    /// `openssl rand -hex 32 > FILE; chmod 600 FILE`. [default: as GIRIH_SECRET or GIRIH_SECRET_FILE says; on one host,
    /// made by girih]
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Hosts that run this command, with the same flags but --node
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub nodes: u16,
    /// Number of this host, from 0
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub node: u16,
    /// Command of each process: train, evaluate or predict, with its flags
    #[arg(last = true, required = true, value_name = "train …")]
    pub command: Vec<OsString>,
}

fn parse_latency(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(latency) if latency >= 0.0 && f64::is_finite(latency) => Ok(latency),
        _ => Err("expected a number of microseconds, 0 or more".to_owned()),
    }
}
