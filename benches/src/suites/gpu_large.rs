//! `gpu-large`: epochs of GraphSAGE on sampled neighbours of a graph of which devices keep a part of the features, or their codes, on one
//! device and on all there are. Each way is a case, with what every kind of memory holds and serves.
//!
//! Nothing is scored: only epochs are timed, each with all of its batches.

use girih_compress::CodecSpec;
use girih_compute::Dtype;
use girih_datasets::Dataset;
use girih_trainer::{Control, EpochTimes, Event, Outcome, TierConfig, TrainConfig};

use super::sampled::{n_devices, tiers, train_on};
use super::{Setup, gpu, sage};
use crate::timing::{Protocol, Summary};
use crate::{Case, Error, Report, graphs};

const GRAPH: &str = "synth:papers100m";
const BATCH_SIZE: usize = 1024;

/// One way to train.
struct Way {
    name: String,
    n_devices: usize,
    config: TrainConfig,
}

/// Adds a case for each way to train.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    drop(gpu::open_device(report)?);
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let n_train = dataset.splits.first().map_or(0, |split| split.train.len());
    let hidden = setup.hidden.unwrap_or(sage::HIDDEN);
    for way in ways(hidden, n_devices(), setup.protocol) {
        let (epoch, outcome) = epochs_of(&way, &dataset, setup.protocol)?;
        let n_batches = n_train.div_ceil(BATCH_SIZE).max(1);
        let mut case = Case::new(way.name, epoch).with("ms_a_batch", 1e3 * epoch.median_s / n_batches as f64);
        for share in &outcome.tiers {
            let tier = share.tier.name().replace('-', "_");
            case = case
                .with(&format!("{tier}_gb"), share.bytes as f64 / 1e9)
                .with(&format!("{tier}_reads_percent"), 100.0 * share.reads);
        }
        eprintln!("{}: {:.1} ms {:?}", case.name, 1e3 * epoch.median_s, case.metrics);
        report.cases.push(case);
    }
    Ok(())
}

/// All ways on so many devices.
fn ways(hidden: usize, n_devices: usize, protocol: Protocol) -> Vec<Way> {
    // The last epoch, which would be scored, is not reached.
    let epochs = (protocol.warm_up + protocol.repeats) as u64 + 1;
    let base = sage::config(hidden, BATCH_SIZE);
    let config = TrainConfig { precision: Dtype::Bf16, epochs, eval_every: epochs, ..base };
    let mut ways = Vec::new();
    let mut numbers = vec![1, n_devices];
    numbers.dedup();
    for n in numbers {
        let mut way = |name: &str, tiers: TierConfig, codec| {
            let name = if n == 1 { format!("1 device, {name}") } else { format!("{n} devices, {name}") };
            ways.push(Way { name, n_devices: n, config: TrainConfig { tiers, codec, ..config.clone() } });
        };
        let cached = |every, one| tiers(Some((every, one)), None);
        way("features on the host", cached(0.0, 0.0), None);
        way("cache 0.1", cached(0.1, 0.0), None);
        way("cache 0.4", cached(0.4, 0.0), None);
        if n > 1 {
            way("cache 0.1, and 0.6 on one each", cached(0.1, 0.6), None);
        }
        way("topk:8 on the host", cached(0.0, 0.0), Some(CodecSpec::Topk(8)));
        way("topk:8 on every device", TierConfig::default(), Some(CodecSpec::Topk(8)));
    }
    ways
}

/// The time of an epoch, and what training came to.
fn epochs_of(way: &Way, dataset: &Dataset, protocol: Protocol) -> Result<(Summary, Outcome), Error> {
    let mut times: Vec<EpochTimes> = Vec::new();
    let mut observe = |event: Event<'_>| {
        let Event::Epoch { report, .. } = event else { return Control::Continue };
        times.push(report.times);
        if times.len() < protocol.warm_up + protocol.repeats { Control::Continue } else { Control::Stop }
    };
    let outcome = train_on(way.n_devices, dataset, &way.config, &mut observe)?;
    let seconds: Vec<f64> = times[protocol.warm_up..].iter().map(|times| times.steps.as_secs_f64()).collect();
    Ok((Summary::of(&seconds), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_configurations_that_train() {
        for (n_devices, n_ways) in [(1, 5), (4, 11)] {
            let ways = ways(16, n_devices, Protocol { warm_up: 1, repeats: 1 });
            ways.iter().for_each(|way| way.config.validate().unwrap_or_else(|error| panic!("{}: {error}", way.name)));
            assert_eq!(ways.len(), n_ways);
            assert!(ways.iter().all(|way| [1, n_devices].contains(&way.n_devices)));
        }
    }
}
