//! What suites of training on sampled neighbours share: shares of devices, and training on several.

use std::time::Duration;

use girih_comm::CardTransport;
use girih_datasets::Dataset;
use girih_kernels::{Cuda, Device, NcclRank};
use girih_partition::{Exchange, ProcessGrid, Scheme};
use girih_tiers::CacheShares;
use girih_trainer::distributed::{RankJob, RankOptions, TrainJob};
use girih_trainer::{Observer, Outcome, SessionOptions, TierConfig, TrainConfig};

use crate::Error;

/// How long a rank waits for another: one may load for long.
const DEADLINE: Duration = Duration::from_secs(300);

/// Shares of features and of rows of the graph, on every device and on one each.
pub(super) fn tiers(features: Option<(f64, f64)>, topology: Option<(f64, f64)>) -> TierConfig {
    let shares = |(every_card, one_card)| CacheShares { every_card, one_card };
    TierConfig { features: features.map(shares), topology: topology.map(shares), ..TierConfig::default() }
}

/// Trains on the first devices, a rank each.
pub(super) fn on_devices(
    n_devices: usize,
    dataset: &Dataset,
    config: &TrainConfig,
    observe: &mut Observer<'_>,
) -> Result<Outcome, Error> {
    let open = |ordinal| Ok(Cuda::new(Device::open(ordinal)?).storing(config.precision));
    let cards: Vec<Cuda> = (0..n_devices).map(open).collect::<Result<_, Error>>()?;
    let grid = ProcessGrid::new(Scheme::OneD, n_devices, 1)?;
    let ranks = RankOptions::new(grid, Exchange::Dense, DEADLINE);
    let connect = |cuda: &Cuda, world| NcclRank::connect(cuda, world, DEADLINE, CardTransport::Nccl);
    let session = SessionOptions::default();
    Ok(TrainJob::new(dataset.clone(), config, &ranks, &session, observe).on_devices(&cards, connect)?)
}
