//! Compares ranks on CUDA devices, one each, with ranks on the CPU and with one device. Tests that need two devices
//! report that and pass if there are fewer.

mod exchange;
mod failures;
mod training;

use std::iter;
use std::time::{Duration, Instant};

use girih_comm::threads::{self, ThreadRank};
use girih_comm::{Collective, CommError, GpuTransport, Traffic, Transport};
use girih_compute::prelude::*;
use girih_compute::testing::piece;
use girih_compute::{AdamStep, Cpu, Dtype, Shape, StepInputs};
use girih_datasets::{LoadOptions, load};
use girih_features::{CacheShares, Hotness};
use girih_graph_format::Matrix;
use girih_kernels::{Cuda, Device, NcclRank};
use girih_partition::{Exchange, LinkRates, ProcessGrid, Scheme, Stages};
use girih_planner::measure;
use girih_tests::gpus::{Failure, PlannedFailure, deadline, gpus, ranks_per_gpu, several};
use girih_tests::losses_of;
use girih_trainer::distributed::{
    GraphPlacement, Links, Network, RankJob, RankOptions, RankPlanner, SymbolicGraph, TrainJob,
};
use girih_trainer::{
    BatchConfig, BatchKind, CacheConfig, DataSizes, ModelConfig, ModelKind, Outcome, PlanDevice, ScoreBy,
    SessionOptions, TrainConfig, parse_codec,
};

const EPOCHS: u64 = 50;

fn connect(cuda: &Cuda, world: ThreadRank, transport: GpuTransport) -> Result<Box<dyn Collective<Cuda>>, CommError> {
    NcclRank::connect(cuda, world, deadline(), transport)
}

/// Transports that the GPUs here support.
fn transports() -> Vec<GpuTransport> {
    let Some(gpus) = several() else { return Vec::new() };
    let tried = threads::run(gpus.len(), deadline(), |world| {
        connect(&gpus[world.transport().rank()], world, GpuTransport::Peer).map(drop)
    });
    match tried {
        Ok(_) => vec![GpuTransport::Nccl, GpuTransport::Peer],
        Err(failure) if failure.message.contains("cannot read the memory") => {
            println!("only NCCL: {}", failure.message);
            vec![GpuTransport::Nccl]
        }
        Err(failure) => panic!("{}", failure.message),
    }
}

/// Scheme, exchange, stages and chunks.
type Partition = (Scheme, Exchange, Stages, usize);

/// Bytes that a plan may fall short of: the workspaces of cuBLAS and NCCL.
const WORKSPACE_BYTES: u64 = 64 << 20;
