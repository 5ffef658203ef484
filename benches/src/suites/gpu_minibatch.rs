//! `gpu-minibatch`: epochs of GraphSAGE on sampled neighbours on a CUDA device, the graph in its memory, features there or in
//! that of the host, beside PyG's loader.
//!
//! The device works while the host goes on, so that only whole epochs are timed, each with all of its batches; the peer runs after
//! girih instead of taking turns.

use girih_compute::Dtype;
use girih_trainer::TrainConfig;

use super::epochs::Epochs;
use super::{DTYPES, Setup, gpu, sage};
use crate::peer::Peer;
use crate::timing::{Contestant, Protocol, Summary, compete};
use crate::{Case, Error, Goal, Report, graphs};

const GRAPH: &str = "synth:products";
const BATCH_SIZES: [usize; 2] = [1024, 8192];
/// Features on the device, or on the host with this share of the rows on the device, too.
const CACHES: [Option<f64>; 3] = [None, Some(0.0), Some(0.2)];
/// Seeds of the peer's batches.
const PEER_BATCH_SIZE: usize = BATCH_SIZES[0];

/// How many times longer the peer's epoch has to take.
fn times_peer(precision: Dtype, cache: Option<f64>) -> f64 {
    match (precision, cache) {
        (_, Some(_)) => 20.0,
        (Dtype::F32, None) => 45.0,
        (Dtype::Bf16, None) => 100.0,
    }
}

/// Adds a case for each size of batches and storage type, and the peer's.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let mut cuda = gpu::open_device(report)?;
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let hidden = setup.hidden.unwrap_or(sage::HIDDEN);
    let peer = setup
        .peer
        .as_deref()
        .map(|python| sage::start_peer(python, "pyg_minibatch.py", &dataset, (hidden, PEER_BATCH_SIZE)))
        .transpose()?;
    let mut peers_turn = Vec::new();
    for (batch_size, cache) in BATCH_SIZES.into_iter().flat_map(|size| CACHES.map(|cache| (size, cache))) {
        for precision in DTYPES {
            cuda = cuda.storing(precision);
            let config = config((hidden, batch_size), (precision, cache), setup.protocol);
            let epoch = Epochs::time(&cuda, dataset.clone(), &config, setup.protocol, &mut [])?.epoch();
            let n_batches = dataset.splits.first().map_or(0, |split| split.train.len()).div_ceil(batch_size);
            let lies = cache.map_or_else(|| "on the device".to_owned(), |share| format!("cache {share}"));
            let case = Case::new(format!("epoch/{batch_size}/{}/{lies}", precision.name()), epoch)
                .with("ms_a_batch", 1e3 * epoch.median_s / n_batches.max(1) as f64);
            if batch_size == PEER_BATCH_SIZE {
                peers_turn.push((report.cases.len(), (precision, cache), epoch.median_s));
            }
            report.cases.push(case);
        }
    }
    let Some(mut peer) = peer else { return Ok(()) };
    let name = peer.name().to_owned();
    let theirs = peer_epoch(&mut peer, setup.protocol)?;
    for (at, (precision, cache), ours) in peers_turn {
        let case = &mut report.cases[at];
        *case = case.clone().with("x_peer", theirs.median_s / ours);
        let times = times_peer(precision, cache);
        let what = format!("{}, ms, {times} times as fast as {name}", case.name);
        report.goals.push(Goal::at_most(what, 1e3 * ours, 1e3 * theirs.median_s / times));
    }
    report.cases.push(Case::new(format!("epoch/{PEER_BATCH_SIZE}/{name}"), theirs));
    Ok(())
}

/// The network and its epochs: as many as are timed, and those before.
fn config(
    (hidden, batch_size): (usize, usize),
    (precision, feature_cache): (Dtype, Option<f64>),
    protocol: Protocol,
) -> TrainConfig {
    let epochs = (protocol.warm_up + protocol.repeats) as u64;
    TrainConfig { epochs, eval_every: epochs, precision, feature_cache, ..sage::config(hidden, batch_size) }
}

/// The time of the peer's epochs: few are enough where one takes seconds.
fn peer_epoch(peer: &mut Peer, protocol: Protocol) -> Result<Summary, Error> {
    let protocol = Protocol { warm_up: protocol.warm_up.min(1), repeats: protocol.repeats.min(2) };
    let name = peer.name().to_owned();
    let contestant = Contestant::timed(name, || peer.ask("epoch"));
    let mut results = compete(protocol, vec![contestant])?;
    results.pop().map(|(_, time)| time).ok_or_else(|| "the peer was not timed".into())
}
