//! What suites of training on sampled neighbours share: shares of devices, and training on one or several.

use std::time::Duration;

use girih_comm::CardTransport;
use girih_datasets::Dataset;
use girih_kernels::{Cuda, Device, NcclRank};
use girih_partition::{Exchange, ProcessGrid, Scheme};
use girih_tiers::CacheShares;
use girih_trainer::distributed::{Layout, RankJob, RankOptions, TrainJob};
use girih_trainer::{Observer, Outcome, SessionOptions, TierConfig, TrainConfig, train};

use crate::{Error, Goal, Report};

/// How long a rank waits for another: one may load for long.
const DEADLINE: Duration = Duration::from_secs(300);

/// Shares of features and of rows of the graph, on every device and on one each.
pub(super) fn tiers(features: Option<(f64, f64)>, topology: Option<(f64, f64)>) -> TierConfig {
    let shares = |(every_card, one_card)| CacheShares { every_card, one_card };
    TierConfig { features: features.map(shares), topology: topology.map(shares), ..TierConfig::default() }
}

/// How many devices there are, the first among them.
pub(super) fn n_devices() -> usize {
    (1..).find(|&ordinal| Device::open(ordinal).is_err()).unwrap_or(1)
}

/// Trains on the first devices: on one, or on several with a rank each, which holds what the layout says and gets the
/// rest by the transport, or by the faster one.
pub(super) fn train_on(
    (n_devices, layout, transport): (usize, Layout, Option<CardTransport>),
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

/// Adds to what several devices do how many times as fast as one of them they are, each with as many seeds a batch and
/// in the fastest of its ways, and the goal for four. Cases are named by how many devices they have and where they are
/// in the report.
pub(super) fn beside_one(report: &mut Report, cases: &[(usize, usize)], times_of_four: f64) {
    let fastest = |report: &Report, n| {
        let of_n = cases.iter().filter(|(devices, _)| *devices == n);
        of_n.map(|&(_, at)| report.cases[at].time.median_s).min_by(f64::total_cmp)
    };
    let Some(one_s) = fastest(report, 1) else { return };
    for &(_, at) in cases.iter().filter(|(devices, _)| *devices > 1) {
        let case = &mut report.cases[at];
        *case = case.clone().with("x_one", one_s / case.time.median_s);
    }
    if let Some(four_s) = fastest(report, 4) {
        let what =
            format!("the fastest way of four devices: ms an epoch, {times_of_four} times as fast as that of one");
        report.goals.push(Goal::at_most(what, 1e3 * four_s, 1e3 * one_s / times_of_four));
    }
}
