//! What suites of training on sampled neighbours share: shares of devices, and training on one or several.

use std::time::Duration;

use girih_comm::CardTransport;
use girih_datasets::Dataset;
use girih_kernels::{Cuda, Device, NcclRank};
use girih_partition::{Exchange, ProcessGrid, Scheme};
use girih_tiers::CacheShares;
use girih_trainer::distributed::{GraphPlacement, RankJob, RankOptions, TrainJob};
use girih_trainer::{CacheConfig, Observer, Outcome, SessionOptions, TrainConfig, train};

use crate::Error;

/// How long a rank waits for another: one may load for long.
const DEADLINE: Duration = Duration::from_secs(300);

/// Shares of features and of rows of the graph, on every device and on one each.
pub(super) fn tiers(features: Option<(f64, f64)>, topology: Option<(f64, f64)>) -> CacheConfig {
    let shares = |(every_card, one_card)| CacheShares { every_card, one_card };
    CacheConfig { features: features.map(shares), topology: topology.map(shares), ..CacheConfig::default() }
}

/// How many devices there are, the first among them.
pub(super) fn n_devices() -> usize {
    (1..).find(|&ordinal| Device::open(ordinal).is_err()).unwrap_or(1)
}

/// Trains on the first devices: on one, or on several with a rank each, which holds what the layout says and gets the
/// rest by the transport, or by the faster one.
pub(super) fn train_on(
    (n_devices, layout, transport): (usize, GraphPlacement, Option<CardTransport>),
    dataset: &Dataset,
    config: &TrainConfig,
    observe: &mut Observer<'_>,
) -> Result<Outcome, Error> {
    let open = |ordinal| Ok(Cuda::new(Device::open(ordinal)?).storing(config.precision));
    let session = SessionOptions::default();
    if n_devices == 1 {
        return Ok(train(&open(0)?, dataset.clone(), config, &session, observe)?);
    }
    let cards: Vec<Cuda> = (0..n_devices).map(open).collect::<Result<_, Error>>()?;
    let grid = ProcessGrid::new(Scheme::OneD, n_devices, 1)?;
    let ranks = RankOptions { layout, transport, ..RankOptions::new(grid, Exchange::Dense, DEADLINE) };
    let connect = |cuda: &Cuda, world| NcclRank::connect(cuda, world, DEADLINE, CardTransport::Nccl);
    Ok(TrainJob::new(dataset.clone(), config, &ranks, &session, observe).on_devices(&cards, connect)?)
}
