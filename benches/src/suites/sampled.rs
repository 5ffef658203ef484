//! Shared parts of the suites on sampled neighbors: cache shares, and training on one or several devices.

use std::time::Duration;

use girih_comm::GpuTransport;
use girih_datasets::Dataset;
use girih_features::CacheShares;
use girih_kernels::{Cuda, Device, NcclRank};
use girih_partition::{Exchange, ProcessGrid, Scheme};
use girih_trainer::distributed::{GraphPlacement, RankJob, RankOptions, TrainJob};
use girih_trainer::{CacheConfig, Observer, Outcome, SessionOptions, TrainConfig, train};

use crate::Error;

/// Time that a rank waits for another, long enough for loading.
const DEADLINE: Duration = Duration::from_secs(300);

/// Cache configuration with the shares of features and of rows of the graph: on every device, and on one each.
pub(super) fn tiers(features: Option<(f64, f64)>, topology: Option<(f64, f64)>) -> CacheConfig {
    let shares = |(every_gpu, one_gpu)| CacheShares { every_gpu, one_gpu };
    CacheConfig { features: features.map(shares), topology: topology.map(shares), ..CacheConfig::default() }
}

/// Number of devices, at least one.
pub(super) fn n_devices() -> usize {
    (1..).find(|&ordinal| Device::open(ordinal).is_err()).unwrap_or(1)
}

/// Trains on the first devices: on one, or on several with a rank each. The layout gives the rows that a rank holds;
/// the transport carries the others, by default the faster one.
pub(super) fn train_on(
    (n_devices, layout, transport): (usize, GraphPlacement, Option<GpuTransport>),
    dataset: &Dataset,
    config: &TrainConfig,
    observe: &mut Observer<'_>,
) -> Result<Outcome, Error> {
    let open = |ordinal| Ok(Cuda::new(Device::open(ordinal)?).storing(config.precision));
    let session = SessionOptions::default();
    if n_devices == 1 {
        return Ok(train(&open(0)?, dataset.clone(), config, &session, observe)?);
    }
    let gpus: Vec<Cuda> = (0..n_devices).map(open).collect::<Result<_, Error>>()?;
    let grid = ProcessGrid::new(Scheme::OneD, n_devices, 1)?;
    let ranks = RankOptions { layout, transport, ..RankOptions::new(grid, Exchange::Dense, DEADLINE) };
    let connect = |cuda: &Cuda, world| NcclRank::connect(cuda, world, DEADLINE, GpuTransport::Nccl);
    Ok(TrainJob::new(dataset.clone(), config, &ranks, &session, observe).on_devices(&gpus, connect)?)
}
