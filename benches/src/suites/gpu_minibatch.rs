//! `gpu-minibatch`: epochs of GraphSAGE on sampled neighbours on a CUDA device, graph and features in its memory, beside PyG's
//! loader.
//!
//! The device works while the host goes on, so that only whole epochs are timed, each with all of its batches; the peer runs after
//! girih instead of taking turns.

use std::ffi::OsStr;
use std::path::Path;

use girih_compute::Dtype;
use girih_datasets::Dataset;
use girih_trainer::{BatchConfig, BatchKind, ModelConfig, ModelKind, OptimizerConfig, TrainConfig};

use super::epochs::Epochs;
use super::{DTYPES, Setup, gpu};
use crate::peer::Peer;
use crate::timing::{Contestant, Protocol, Summary, compete};
use crate::{Case, Error, Goal, Report, graphs};

const GRAPH: &str = "synth:products";
const FAN_OUT: [i64; 3] = [15, 10, 5];
const HIDDEN: usize = 256;
const BATCH_SIZES: [usize; 2] = [1024, 8192];
/// How many times longer the peer's epoch has to take, whose batches have [`PEER_BATCH_SIZE`] seeds.
const TIMES_PEER: fn(Dtype) -> f64 = |precision| match precision {
    Dtype::F32 => 45.0,
    Dtype::Bf16 => 100.0,
};
const PEER_BATCH_SIZE: usize = BATCH_SIZES[0];

/// Adds a case for each size of batches and storage type, and the peer's.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let mut cuda = gpu::open_device(report)?;
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let hidden = setup.hidden.unwrap_or(HIDDEN);
    let mut peers_turn = Vec::new();
    for batch_size in BATCH_SIZES {
        for precision in DTYPES {
            cuda = cuda.storing(precision);
            let config = config((hidden, batch_size), precision, setup.protocol);
            let epoch = Epochs::time(&cuda, dataset.clone(), &config, setup.protocol, &mut [])?.epoch();
            let n_batches = dataset.splits.first().map_or(0, |split| split.train.len()).div_ceil(batch_size);
            let case = Case::new(format!("epoch/{batch_size}/{}", precision.name()), epoch)
                .with("ms_a_batch", 1e3 * epoch.median_s / n_batches.max(1) as f64);
            if batch_size == PEER_BATCH_SIZE {
                peers_turn.push((report.cases.len(), precision, epoch.median_s));
            }
            report.cases.push(case);
        }
    }
    let Some(python) = &setup.peer else { return Ok(()) };
    let (name, theirs) = peer_epoch(python, &dataset, hidden, setup.protocol)?;
    for (at, precision, ours) in peers_turn {
        let case = &mut report.cases[at];
        *case = case.clone().with("x_peer", theirs.median_s / ours);
        let what = format!("epoch in {}, ms, {} times as fast as {name}", precision.name(), TIMES_PEER(precision));
        report.goals.push(Goal::at_most(what, 1e3 * ours, 1e3 * theirs.median_s / TIMES_PEER(precision)));
    }
    report.cases.push(Case::new(format!("epoch/{PEER_BATCH_SIZE}/{name}"), theirs));
    Ok(())
}

/// The network and its epochs: as many as are timed, and those before.
fn config((hidden, batch_size): (usize, usize), precision: Dtype, protocol: Protocol) -> TrainConfig {
    let epochs = (protocol.warm_up + protocol.repeats) as u64;
    let model =
        ModelConfig { kind: ModelKind::Sage, layers: FAN_OUT.len(), hidden, dropout: 0.0, ..ModelConfig::default() };
    TrainConfig {
        model,
        optimizer: OptimizerConfig { lr: 0.01, weight_decay: 0.0, ..OptimizerConfig::default() },
        epochs,
        eval_every: epochs,
        precision,
        batch_size: Some(batch_size),
        batch: BatchConfig { kind: BatchKind::Neighbor, fanout: FAN_OUT.to_vec(), ..BatchConfig::default() },
        ..TrainConfig::default()
    }
}

/// The peer's name, and the time of its epochs: one is enough where it takes seconds.
fn peer_epoch(python: &Path, dataset: &Dataset, hidden: usize, protocol: Protocol) -> Result<(String, Summary), Error> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("data");
    graphs::export_training(&dataset.graph, dataset, &path)?;
    let fan_out = FAN_OUT.map(|k| k.to_string()).join(",");
    let (hidden, batch_size) = (hidden.to_string(), PEER_BATCH_SIZE.to_string());
    let arguments = [path.as_os_str(), OsStr::new(&hidden), OsStr::new(&batch_size), OsStr::new(&fan_out)];
    let mut peer = Peer::start(python, "pyg_minibatch.py", &arguments)?;
    let name = peer.name().to_owned();
    let protocol = Protocol { warm_up: protocol.warm_up.min(1), repeats: protocol.repeats.min(2) };
    let contestant = Contestant::timed(name.as_str(), || peer.ask("epoch"));
    let mut results = compete(protocol, vec![contestant])?;
    results.pop().ok_or_else(|| "the peer was not timed".into())
}
