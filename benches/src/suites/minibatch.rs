//! `minibatch`: steps of GraphSAGE on sampled neighbors, with and without prefetch, compared with DGL's.
//!
//! A repetition is an epoch of a few steps, so no batch is prefetched while a peer runs. Times are per step and
//! include sampling, features, both passes and the optimiser.
//!
//! `training_ms` is the time of both passes and Adam.

use std::time::Duration;

use girih_compute::Cpu;
use girih_datasets::Dataset;
use girih_trainer::{BatchConfig, Control, Event, SessionOptions, TrainConfig, train};

use super::sage;
use super::setup::Setup;
use crate::peer::Peer;
use crate::timing::{Protocol, Summary};
use crate::{Case, Error, Goal, Report, graphs};

const GRAPH: &str = "synth:reddit,degree=98";
const BATCH_SIZE: usize = 1024;
/// Steps of a repetition.
const STEPS: usize = 8;
/// Numbers of prefetched batches: the default, and none.
const AHEAD: [usize; 2] = [2, 0];
/// Maximum time of a step with prefetch, relative to its passes and optimiser alone.
const HIDDEN_WITHIN: f64 = 1.1;
/// Required speedup over the peer's step.
const TIMES_PEER: f64 = 2.5;

/// Adds a case for each number of prefetched batches; the peer alternates with the first. The time of the last case
/// without sampling is the target of prefetching.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let mut peer = setup
        .peer
        .as_deref()
        .map(|python| sage::start_peer(python, "dgl_minibatch.py", &dataset, (sage::HIDDEN, BATCH_SIZE)))
        .transpose()?;
    let dataset = of_short_epochs(dataset)?;
    let mut medians = Vec::new();
    for ahead in AHEAD {
        let mut rivals = Vec::new();
        let peer = peer.as_mut().filter(|_| ahead == AHEAD[0]);
        let name = peer.as_ref().map(|peer| peer.name().to_owned());
        let steps = time(&dataset, ahead, setup.protocol, peer, &mut rivals)?;
        let (whole, training) = (Summary::of(&steps.whole), Summary::of(&steps.training));
        let mut case = Case::new(format!("step/{ahead} ahead"), whole).with("training_ms", 1e3 * training.median_s);
        if let Some(name) = name {
            let theirs = Summary::of(&rivals);
            case = case.with("x_peer", theirs.median_s / whole.median_s);
            let what = format!("step, ms, {TIMES_PEER} times as fast as {name}");
            report.goals.push(Goal::at_most(what, 1e3 * whole.median_s, 1e3 * theirs.median_s / TIMES_PEER));
            report.cases.push(Case::new(format!("step/{name}"), theirs));
        }
        report.cases.push(case);
        medians.push((whole.median_s, training.median_s));
    }
    let [(prefetched, _), (_, training)] = medians[..] else { unreachable!("with batches made ahead, and without") };
    let what = "step, ms, that hides sampling behind training alone";
    report.goals.push(Goal::at_most(what, 1e3 * prefetched, 1e3 * training * HIDDEN_WITHIN));
    Ok(())
}

/// Seconds of a step, one value per repetition.
#[derive(Default)]
struct Steps {
    /// Complete step.
    whole: Vec<f64>,
    /// Both passes and the optimiser.
    training: Vec<f64>,
}

/// Times the steps of epochs, which are repetitions. After each the peer runs as many steps, whose seconds go to
/// `rivals`.
fn time(
    dataset: &Dataset,
    ahead: usize,
    protocol: Protocol,
    mut peer: Option<&mut Peer>,
    rivals: &mut Vec<f64>,
) -> Result<Steps, Error> {
    let (mut steps, mut failure) = (Steps::default(), None);
    let n_epochs = protocol.warm_up + protocol.repeats;
    let mut observe = |event: Event<'_>| {
        let Event::Epoch { report, .. } = event else { return Control::Continue };
        let per_step = |time: Duration| time.as_secs_f64() / STEPS as f64;
        let stages = report.times.stages.expect("the processor computes while it is asked to");
        steps.whole.push(per_step(report.times.steps));
        steps.training.push(per_step(stages.forward + stages.backward + stages.optimizer));
        if let Some(peer) = &mut peer {
            match peer.ask(&STEPS.to_string()) {
                Ok(seconds) => rivals.push(seconds / STEPS as f64),
                Err(error) => failure = Some(error),
            }
        }
        if steps.whole.len() < n_epochs && failure.is_none() { Control::Continue } else { Control::Stop }
    };
    train(&Cpu::new(), dataset.clone(), &config(ahead), &SessionOptions::default(), &mut observe)?;
    failure.map_or(Ok(()), Err)?;
    for times in [&mut steps.whole, &mut steps.training, rivals] {
        times.drain(..protocol.warm_up.min(times.len()));
    }
    Ok(steps)
}

/// Data with fewer training nodes, evenly chosen, so that an epoch is a repetition.
fn of_short_epochs(mut dataset: Dataset) -> Result<Dataset, Error> {
    for split in &mut dataset.splits {
        let (all, wanted) = (split.train.len(), STEPS * BATCH_SIZE);
        if all < wanted {
            return Err(format!(
                "{all} training nodes are too few for {STEPS} batches of {BATCH_SIZE}: take more data"
            )
            .into());
        }
        split.train = (0..wanted).map(|i| split.train[i * all / wanted]).collect();
    }
    Ok(dataset)
}

fn config(prefetch: usize) -> TrainConfig {
    let sage = sage::config(sage::HIDDEN, BATCH_SIZE);
    TrainConfig {
        // More epochs than are run, so that no evaluation takes place.
        epochs: 1_000_000,
        eval_every: 1_000_000,
        batch: BatchConfig { prefetch, ..sage.batch },
        ..sage
    }
}
