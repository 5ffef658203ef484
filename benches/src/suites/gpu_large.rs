//! `gpu-large`: epochs of GraphSAGE on sampled neighbors of a large graph, with part of the features, or their
//! codes, on the devices. Cases run on one device and on all. Each way of training is a case, with the contents and
//! reads of every memory tier.
//!
//! Epochs are timed, each with all its batches, and nothing is scored. One device also runs in `f32`, the type of
//! features without a codec.

use girih_compress::CodecSpec;
use girih_compute::Dtype;
use girih_datasets::Dataset;
use girih_features::HostReads;
use girih_trainer::distributed::GraphPlacement;
use girih_trainer::{CacheConfig, Control, EpochTimes, Event, Outcome, TrainConfig};

use super::sampled::{n_devices, tiers, train_on};
use super::setup::Setup;
use super::several::Times;
use super::{gpu, sage};
use crate::timing::{Protocol, Summary};
use crate::{Case, Error, Goal, Report, graphs};

const GRAPH: &str = "synth:papers100m";
/// Seeds per device in a batch, as in DSP.
const BATCH_SIZE: usize = 1024;
/// Required speedup of codes on the device over all features on the host, on one device in `f32`.
const TIMES_UNCOMPRESSED: f64 = 10.0;
/// Required speedup of four devices over one.
const TIMES_ONE: f64 = 3.3;

/// Training variant.
struct Way {
    name: String,
    n_devices: usize,
    config: TrainConfig,
}

impl Way {
    /// Whether the host holds all features, uncompressed.
    fn is_uncompressed(&self) -> bool {
        self.config.codec.is_none() && self.config.tiers == tiers(Some((0.0, 0.0)), None)
    }

    /// Whether both variants have the same number of devices and storage type.
    fn is_like(&self, other: &Self) -> bool {
        (self.n_devices, self.config.precision) == (other.n_devices, other.config.precision)
    }

    /// Whether every device holds all codes.
    fn has_all_codes(&self) -> bool {
        self.config.codec.is_some() && self.config.tiers == CacheConfig::default()
    }
}

/// Adds a case for each training variant.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    drop(gpu::open_device(report)?);
    let hidden = setup.hidden.unwrap_or(sage::HIDDEN);
    let ways = setup.ways_of(ways(hidden, n_devices(), setup.protocol), |way| &way.name)?;
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let n_train = dataset.splits.first().map_or(0, |split| split.train.len());
    let (mut uncompressed, mut alike): (Option<(&Way, f64)>, _) = (None, Times::of(Dtype::Bf16));
    for way in &ways {
        let (epoch, outcome) = epochs_of(way, &dataset, setup.protocol)?;
        let n_batches = n_train.div_ceil(way.n_devices * BATCH_SIZE).max(1);
        let ms = |epoch_s| 1e3 * epoch_s / n_batches as f64;
        let mut case = Case::new(way.name.clone(), epoch).with("ms_a_batch", ms(epoch.median_s));
        if way.is_uncompressed() {
            uncompressed = Some((way, epoch.median_s));
        }
        if let Some((_, uncompressed_s)) = uncompressed.filter(|(other, _)| way.is_like(other)) {
            case = case.with("x_uncompressed", uncompressed_s / epoch.median_s);
            if way.has_all_codes() && way.config.precision == Dtype::F32 {
                let what =
                    format!("{}: ms a batch, {TIMES_UNCOMPRESSED} times as fast as features on the host", way.name);
                report.goals.push(Goal::at_most(what, ms(epoch.median_s), ms(uncompressed_s) / TIMES_UNCOMPRESSED));
            }
        }
        for share in &outcome.tiers {
            let tier = share.tier.name().replace('-', "_");
            case = case
                .with(&format!("{tier}_gb"), share.bytes as f64 / 1e9)
                .with(&format!("{tier}_reads_percent"), 100.0 * share.reads);
        }
        if way.config.precision == Dtype::Bf16 && way.config.codec.is_none() {
            case = alike.note(way.n_devices, case);
        }
        report.add(case)?;
    }
    report.goals.extend(alike.goal(4, TIMES_ONE));
    Ok(())
}

/// All variants on one device and on `n_devices`.
fn ways(hidden: usize, n_devices: usize, protocol: Protocol) -> Vec<Way> {
    // The last epoch, which would be scored, is not reached.
    let epochs = (protocol.warm_up + protocol.repeats) as u64 + 1;
    let mut ways = Vec::new();
    let mut groups = vec![(1, Dtype::Bf16), (1, Dtype::F32)];
    groups.extend((n_devices > 1).then_some((n_devices, Dtype::Bf16)));
    for (n, precision) in groups {
        let base = sage::config(hidden, n * BATCH_SIZE);
        let config = TrainConfig { epochs, eval_every: epochs, ..base };
        let mut way = |name: &str, tiers: CacheConfig, codec| {
            let devices = if n == 1 { "device" } else { "devices" };
            let name = format!("{n} {devices}, {}, {name}", precision.name());
            ways.push(Way { name, n_devices: n, config: TrainConfig { precision, tiers, codec, ..config.clone() } });
        };
        let cached = |every, one| tiers(Some((every, one)), None);
        way("features on the host", cached(0.0, 0.0), None);
        let mut each_read = |name: &str, tiers: CacheConfig| {
            for host_reads in [HostReads::Staged, HostReads::InPlace] {
                way(&format!("{name}, {host_reads}"), CacheConfig { host_reads, ..tiers }, None);
            }
        };
        if precision == Dtype::Bf16 {
            each_read("features on the host", cached(0.0, 0.0));
            each_read("cache 0.4", cached(0.4, 0.0));
        }
        if n > 1 {
            each_read("cache 0.1, and 0.6 on one each", cached(0.1, 0.6));
        }
        if precision == Dtype::Bf16 {
            way("cache 0.1", cached(0.1, 0.0), None);
            way("cache 0.4", cached(0.4, 0.0), None);
        }
        if n > 1 {
            way("cache 0.1, and 0.6 on one each", cached(0.1, 0.6), None);
        }
        way("topk:8 on the host", cached(0.0, 0.0), Some(CodecSpec::Topk(8)));
        way("topk:8 on every device", CacheConfig::default(), Some(CodecSpec::Topk(8)));
    }
    ways
}

/// Time of an epoch, and the outcome of training.
fn epochs_of(way: &Way, dataset: &Dataset, protocol: Protocol) -> Result<(Summary, Outcome), Error> {
    let mut times: Vec<EpochTimes> = Vec::new();
    let mut observe = |event: Event<'_>| {
        let Event::Epoch { report, .. } = event else { return Control::Continue };
        times.push(report.times);
        if times.len() < protocol.warm_up + protocol.repeats { Control::Continue } else { Control::Stop }
    };
    let outcome = train_on((way.n_devices, GraphPlacement::default(), None), dataset, &way.config, &mut observe)?;
    let seconds: Vec<f64> = times[protocol.warm_up..].iter().map(|times| times.steps.as_secs_f64()).collect();
    Ok((Summary::of(&seconds), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_configurations_that_train() {
        for (n_devices, n_ways) in [(1, 12), (4, 24)] {
            let ways = ways(16, n_devices, Protocol { warm_up: 1, repeats: 1 });
            ways.iter().for_each(|way| way.config.validate().unwrap_or_else(|error| panic!("{}: {error}", way.name)));
            assert_eq!(ways.len(), n_ways);
            assert!(ways.iter().all(|way| [1, n_devices].contains(&way.n_devices)));
        }
    }
}
