//! `gpu-fullbatch`: full training epochs of a two-layer GCN on a CUDA device, as `girih train` runs them. Cases cover
//! node orders and storage types, with the first aggregation computed once and in every epoch.
//!
//! There is no dropout. The device runs asynchronously to the host, so only whole epochs are timed: each waits for
//! the one before, and nothing runs between them. For the same reason the peer runs after girih and does not
//! alternate.
//!
//! Cases are `ORDER/STORAGE/once` and `ORDER/STORAGE/every`. `x_peer` compares with PyTorch in the given order,
//! `x_peer_same_order` in girih's.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

use girih_compute::Dtype;
use girih_compute::prelude::*;
use girih_datasets::Dataset;
use girih_kernels::Cuda;
use girih_reorder::OrderKind;
use girih_trainer::{ModelConfig, OptimizerConfig, TrainConfig};

use super::epochs::Epochs;
use super::gpu::{self, Order};
use super::setup::{DTYPES, Setup};
use crate::peer::Peer;
use crate::timing::{Contestant, Protocol, Summary, compete};
use crate::{Case, Error, Report, graphs};

/// Width of the hidden layer, except for [`NARROW`].
const HIDDEN: usize = 128;
/// Graph whose published runs have a narrower hidden layer, with its width.
const NARROW: (&str, usize) = ("synth:products", 64);

/// Adds four cases for each order, and the peer's, in the existing order and in the requested ones.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let mut cuda = gpu::open_device(report)?;
    let spec = setup.graph_or(graphs::FULL);
    let dataset = graphs::load(spec)?;
    report.graph = Some(graphs::describe(&dataset));
    let suite = FullBatch { hidden: hidden(setup, spec), protocol: setup.protocol, peer: setup.peer.as_deref() };
    let as_it_is = suite.peer_epoch(&dataset)?;
    if let Some((name, time)) = &as_it_is {
        report.cases.push(Case::new(format!("{}/{name}", OrderKind::None), *time));
    }
    for &kind in setup.orders_or(&gpu::ORDERS) {
        let order = Order::find(kind, &dataset.graph)?;
        let ordered = match &order.permutation {
            Some(permutation) => Cow::Owned(dataset.clone().permuted(permutation)?),
            None => Cow::Borrowed(&dataset),
        };
        let in_order = if order.permutation.is_some() { suite.peer_epoch(&ordered)? } else { None };
        let rivals = [("x_peer", &as_it_is), ("x_peer_same_order", &in_order)];
        for precision in DTYPES {
            cuda = cuda.storing(precision);
            report.cases.extend(suite.cases(&cuda, &ordered, &order, rivals)?);
        }
        report.cases.extend(in_order.map(|(name, time)| Case::new(format!("{kind}/{name}"), time)));
    }
    Ok(())
}

/// Width of the hidden layer: the caller's, otherwise that of published runs on the graph.
pub(super) fn hidden(setup: &Setup, spec: &str) -> usize {
    setup.hidden.unwrap_or(if spec.starts_with(NARROW.0) { NARROW.1 } else { HIDDEN })
}

/// Configuration of the GCN, with an epoch count that includes the warm-up.
pub(super) fn gcn(hidden: usize, precision: Dtype, aggregate_once: bool, protocol: Protocol) -> TrainConfig {
    let epochs = (protocol.warm_up + protocol.repeats) as u64;
    TrainConfig {
        model: ModelConfig { hidden, dropout: 0.0, aggregate_once, ..ModelConfig::default() },
        optimizer: OptimizerConfig { lr: 0.01, weight_decay: 0.0, ..OptimizerConfig::default() },
        epochs,
        eval_every: epochs,
        precision,
        ..TrainConfig::default()
    }
}

/// Library and epoch time of the peer, if there is one.
type PeerEpoch = Option<(String, Summary)>;

struct FullBatch<'a> {
    hidden: usize,
    protocol: Protocol,
    peer: Option<&'a Path>,
}

impl FullBatch<'_> {
    /// girih's cases in one order and storage type, each compared with the available `rivals`.
    fn cases(
        &self,
        cuda: &Cuda,
        dataset: &Dataset,
        order: &Order,
        rivals: [(&str, &PeerEpoch); 2],
    ) -> Result<Vec<Case>, Error> {
        let mut cases = Vec::new();
        let precision = cuda.activations();
        for aggregate_once in [true, false] {
            let config = gcn(self.hidden, precision, aggregate_once, self.protocol);
            let time = Epochs::time(cuda, dataset.clone(), &config, self.protocol, &mut [])?.epoch();
            let aggregates = if aggregate_once { "once" } else { "every" };
            let name = format!("{}/{}/{aggregates}", order.kind, precision.name());
            let mut case = Case::new(name, time).with("order_s", order.seconds);
            for (metric, rival) in rivals {
                if let Some((_, peer)) = rival {
                    case = case.with(metric, peer.median_s / time.median_s);
                }
            }
            cases.push(case);
        }
        Ok(cases)
    }

    /// Epochs of the peer on the graph in its current order.
    fn peer_epoch(&self, dataset: &Dataset) -> Result<PeerEpoch, Error> {
        let Some(python) = self.peer else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("graph");
        graphs::export_graph(&dataset.graph.with_self_loops(), &path)?;
        let n_train = dataset.splits.first().map_or(0, |split| split.train.len());
        let sizes = [dataset.n_features(), self.hidden, dataset.n_classes(), n_train];
        let sizes = sizes.map(|size| OsString::from(size.to_string()));
        let arguments: Vec<_> =
            std::iter::once(path.as_os_str()).chain(sizes.iter().map(OsString::as_os_str)).collect();
        let mut peer = Peer::start(python, "torch_gcn.py", &arguments)?;
        let name = peer.name().to_owned();
        let contestant = Contestant::timed(name.as_str(), || peer.ask("epoch"));
        let mut results = compete(self.protocol, vec![contestant])?;
        Ok(results.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_layers_are_as_wide_as_published() {
        let setup = Setup::default();
        assert_eq!(hidden(&setup, "synth:products@0.1"), 64);
        assert_eq!([graphs::FULL, graphs::SMALL, "synth:archaea"].map(|spec| hidden(&setup, spec)), [128; 3]);
        assert_eq!(hidden(&Setup { hidden: Some(32), ..setup }, "synth:products"), 32);
    }
}
