//! `minibatch`: steps of GraphSAGE on sampled neighbours, with batches made ahead and without, beside DGL's.
//!
//! A repetition is some steps in a row, so that batches made during the turn of a peer are few of them; times are those of a step
//! with all that it takes: sampling, features, both passes and the optimiser.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

use girih_compute::Cpu;
use girih_datasets::Dataset;
use girih_trainer::{
    BatchConfig, BatchKind, Control, Event, ModelConfig, ModelKind, OptimizerConfig, SessionOptions, TrainConfig, train,
};

use super::Setup;
use crate::peer::Peer;
use crate::timing::{Protocol, Summary};
use crate::{Case, Error, Goal, Report, graphs};

const GRAPH: &str = "synth:reddit,degree=98";
const FAN_OUT: [i64; 3] = [15, 10, 5];
const HIDDEN: usize = 256;
const BATCH_SIZE: usize = 1024;
/// Steps of a repetition.
const STEPS: usize = 8;
/// Batches that may be made ahead: the default, and none.
const AHEAD: [usize; 2] = [2, 0];
/// How many times longer the peer's step has to take.
const TIMES_PEER: f64 = 2.5;

/// Adds a case for each number of batches made ahead; the peer takes turns with the first.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let mut peer = setup.peer.as_deref().map(|python| start_peer(python, &dataset)).transpose()?;
    for ahead in AHEAD {
        let mut rivals = Vec::new();
        let peer = peer.as_mut().filter(|_| ahead == AHEAD[0]);
        let name = peer.as_ref().map(|peer| peer.name().to_owned());
        let times = time(&dataset, ahead, setup.protocol, peer, &mut rivals)?;
        let mut case = Case::new(format!("step/{ahead} ahead"), times);
        if let Some(name) = name {
            let theirs = Summary::of(&rivals);
            case = case.with("x_peer", theirs.median_s / times.median_s);
            let what = format!("step, ms, {TIMES_PEER} times as fast as {name}");
            report.goals.push(Goal::at_most(what, 1e3 * times.median_s, 1e3 * theirs.median_s / TIMES_PEER));
            report.cases.push(Case::new(format!("step/{name}"), theirs));
        }
        report.cases.push(case);
    }
    Ok(())
}

fn start_peer(python: &Path, dataset: &Dataset) -> Result<Peer, Error> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("data");
    graphs::export_training(&dataset.graph, dataset, &path)?;
    let fan_out = FAN_OUT.map(|k| k.to_string()).join(",");
    // The script has read everything when it is ready, so that the folder may go.
    let (hidden, batch_size) = (HIDDEN.to_string(), BATCH_SIZE.to_string());
    let arguments = [path.as_os_str(), OsStr::new(&hidden), OsStr::new(&batch_size), OsStr::new(&fan_out)];
    Peer::start(python, "dgl_minibatch.py", &arguments)
}

/// Seconds of a step; after each repetition the peer takes as many, whose seconds go to `rivals`.
fn time(
    dataset: &Dataset,
    ahead: usize,
    protocol: Protocol,
    mut peer: Option<&mut Peer>,
    rivals: &mut Vec<f64>,
) -> Result<Summary, Error> {
    let (mut times, mut failure, mut n_steps, mut start) = (Vec::new(), None, 0, Instant::now());
    let mut observe = |event: Event<'_>| {
        match event {
            Event::RunStarted { .. } => start = Instant::now(),
            Event::Batch { .. } | Event::Epoch { .. } => n_steps += 1,
            _ => {}
        }
        if n_steps < STEPS {
            return Control::Continue;
        }
        times.push(start.elapsed().as_secs_f64() / STEPS as f64);
        if let Some(peer) = &mut peer {
            match peer.ask(&STEPS.to_string()) {
                Ok(seconds) => rivals.push(seconds / STEPS as f64),
                Err(error) => failure = Some(error),
            }
        }
        (n_steps, start) = (0, Instant::now());
        if times.len() < protocol.warm_up + protocol.repeats && failure.is_none() {
            Control::Continue
        } else {
            Control::Stop
        }
    };
    train(&Cpu::new(), dataset.clone(), &config(ahead), &SessionOptions::default(), &mut observe)?;
    failure.map_or(Ok(()), Err)?;
    rivals.drain(..protocol.warm_up.min(rivals.len()));
    Ok(Summary::of(&times[protocol.warm_up.min(times.len() - 1)..]))
}

fn config(prefetch: usize) -> TrainConfig {
    let model = ModelConfig {
        kind: ModelKind::Sage,
        layers: FAN_OUT.len(),
        hidden: HIDDEN,
        dropout: 0.0,
        ..ModelConfig::default()
    };
    TrainConfig {
        model,
        optimizer: OptimizerConfig { weight_decay: 0.0, ..OptimizerConfig::default() },
        // More than are taken, and none that evaluates.
        epochs: 1_000_000,
        eval_every: 1_000_000,
        batch_size: Some(BATCH_SIZE),
        batch: BatchConfig { kind: BatchKind::Neighbor, fanout: FAN_OUT.to_vec(), prefetch, ..BatchConfig::default() },
        ..TrainConfig::default()
    }
}
