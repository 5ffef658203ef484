//! Compares ranks on CUDA devices, one each, with ranks on the CPU and with one device. Tests that need two devices
//! report that and pass if there are fewer.

mod exchange;
mod failures;
mod training;

use girih_comm::threads::{self, ThreadRank};
use girih_comm::{Collective, CommError, GpuTransport, Transport};
use girih_kernels::{Cuda, NcclRank};
use girih_partition::{Exchange, Scheme, Stages};
use girih_tests::gpus::{deadline, several};

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
