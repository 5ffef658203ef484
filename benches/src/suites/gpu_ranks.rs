//! `gpu-ranks`: whole training epochs of a GCN on one CUDA device and on several, by partition, exchange and order of nodes.
//!
//! Nodes are in an order of the whole graph, `whole`, or in one that stays inside the row blocks of the partition, `inside`, in which
//! every device keeps its share of the edges. One device works in the order of the whole graph.

use std::time::Duration;

use girih_comm::threads::ThreadRank;
use girih_comm::{Collective, CommError};
use girih_compute::Dtype;
use girih_datasets::Dataset;
use girih_kernels::{Cuda, Device, NcclRank};
use girih_partition::{Exchange, ProcessGrid, Scheme};
use girih_trainer::distributed::{RankOptions, train_on_devices};
use girih_trainer::{ModelConfig, SessionOptions, TrainConfig};

use super::epochs::Epochs;
use super::gpu::{self, Order};
use super::gpu_fullbatch::{gcn, hidden};
use super::predicted::Predictions;
use super::{DTYPES, Setup, dtype_name};
use crate::timing::{Protocol, Summary};
use crate::{Case, Error, Report, graphs};

/// Layers of the network unless it is told.
const LAYERS: usize = 2;
/// Most devices that are compared.
const CARDS_MAX: usize = 4;
/// How long a rank waits for another.
const DEADLINE: Duration = Duration::from_secs(60);

/// Adds a case for one device and those of each number of devices that is there, two or four, for each storage type.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let n_cards = n_cards(report)?;
    let spec = setup.graph_or(graphs::FULL);
    let dataset = graphs::load(spec)?;
    report.graph = Some(graphs::describe(&dataset));
    let suite = Ranks { hidden: hidden(setup, spec), layers: setup.layers.unwrap_or(LAYERS), protocol: setup.protocol };
    let mut predictions = Predictions::new(n_cards.min(CARDS_MAX))?;
    for &kind in setup.orders_or(&gpu::ORDERS) {
        let whole = ordered(&dataset, &Order::find(kind, &dataset.graph)?)?;
        let mut alone = Vec::new();
        for precision in DTYPES {
            let time = suite.on_one(&whole, precision)?;
            let name = format!("{kind}/{}/1", dtype_name(precision));
            report.cases.push(Case::new(name, time).with("x_one", 1.0));
            alone.push(time);
        }
        for n in [2, 4].into_iter().filter(|n| *n <= n_cards) {
            let inside = ordered(&dataset, &Order::inside(kind, n, &dataset.graph)?)?;
            for (where_, dataset) in [("whole", &whole), ("inside", &inside)] {
                for (precision, one) in DTYPES.into_iter().zip(&alone) {
                    let predicted = predictions.of(dataset, &suite.config(precision))?;
                    let group = format!("{kind}-{where_}/{}/{n}", dtype_name(precision));
                    for (scheme, exchange) in plans(n) {
                        let time = suite.on_several(dataset, precision, (n, scheme, exchange))?;
                        let name = format!("{group}/{scheme}/{exchange}");
                        eprintln!("{name}: {:.3} ms", 1e3 * time.median_s);
                        let case = Case::new(name, time).with("x_one", one.median_s / time.median_s);
                        let epoch_ms = predicted.epoch_ms(&grid(n, scheme)?, exchange)?;
                        report.cases.push(predictions.beside(case, &group, epoch_ms));
                    }
                }
            }
        }
    }
    report.goals.extend(predictions.goals());
    Ok(())
}

/// What is compared on so many devices.
fn plans(n: usize) -> Vec<(Scheme, Exchange)> {
    let mut plans = vec![(Scheme::OneD, Exchange::Dense), (Scheme::OneD, Exchange::Rows)];
    if n == 4 {
        plans.extend([(Scheme::OneAndHalfD, Exchange::Dense), (Scheme::TwoD, Exchange::Dense)]);
    }
    plans
}

/// So many devices, two of which hold the same rows where that is the scheme.
fn grid(n: usize, scheme: Scheme) -> Result<ProcessGrid, Error> {
    Ok(ProcessGrid::new(scheme, n, if scheme == Scheme::OneAndHalfD { 2 } else { 1 })?)
}

/// The data in an order.
fn ordered(dataset: &Dataset, order: &Order) -> Result<Dataset, Error> {
    Ok(match &order.permutation {
        Some(permutation) => dataset.clone().permuted(permutation)?,
        None => dataset.clone(),
    })
}

/// How many devices there are; notes the first.
fn n_cards(report: &mut Report) -> Result<usize, Error> {
    drop(gpu::open_device(report)?);
    Ok((1..).find(|&ordinal| Device::open(ordinal).is_err()).unwrap_or(1))
}

/// Opens a device as training would.
fn open(ordinal: usize, precision: Dtype) -> Result<Cuda, Error> {
    Ok(Cuda::new(Device::open(ordinal)?).storing(precision))
}

struct Ranks {
    hidden: usize,
    layers: usize,
    protocol: Protocol,
}

impl Ranks {
    fn config(&self, precision: Dtype) -> TrainConfig {
        let config = gcn(self.hidden, precision, true, self.protocol);
        TrainConfig { model: ModelConfig { layers: self.layers, ..config.model }, ..config }
    }

    fn on_one(&self, dataset: &Dataset, precision: Dtype) -> Result<Summary, Error> {
        let config = self.config(precision);
        Ok(Epochs::time(&open(0, precision)?, dataset.clone(), &config, self.protocol, &mut [])?.epoch())
    }

    fn on_several(
        &self,
        dataset: &Dataset,
        precision: Dtype,
        (n, scheme, exchange): (usize, Scheme, Exchange),
    ) -> Result<Summary, Error> {
        let ranks = RankOptions { grid: grid(n, scheme)?, exchange, deadline: DEADLINE };
        let cards = (0..n).map(|ordinal| open(ordinal, precision)).collect::<Result<Vec<_>, Error>>()?;
        let connect = |cuda: &Cuda, world: ThreadRank| -> Result<Box<dyn Collective<Cuda>>, CommError> {
            Ok(Box::new(NcclRank::connect(cuda, world.into_transport(), DEADLINE)?))
        };
        let (config, session) = (self.config(precision), SessionOptions::default());
        let epochs = Epochs::of(self.protocol, &mut [], |observe| {
            train_on_devices((&cards, connect), dataset.clone(), &config, &ranks, &session, observe)
        })?;
        Ok(epochs.epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_devices_make_grids_that_two_do_not() {
        assert!(plans(2).iter().all(|(scheme, _)| *scheme == Scheme::OneD));
        for (scheme, _) in plans(4) {
            assert!(grid(4, scheme).is_ok());
        }
    }

    #[test]
    fn networks_are_as_deep_as_told() {
        let ranks = Ranks { hidden: 32, layers: 4, protocol: Protocol::default() };
        assert_eq!((ranks.config(Dtype::Bf16).model.layers, ranks.config(Dtype::Bf16).model.hidden), (4, 32));
    }
}
