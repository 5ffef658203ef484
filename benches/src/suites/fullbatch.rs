//! `fullbatch`: whole training epochs of two layers with 128 hidden columns, in every model and storage type.
//!
//! An epoch is forward pass, loss on the training nodes, backward pass and Adam, with hidden dropout. Features are not
//! dropped out, so that the first aggregation is a constant and computed before the first epoch.

use std::ffi::OsStr;
use std::path::Path;

use girih_compute::{Cpu, Dtype};
use girih_datasets::Dataset;
use girih_graph_format::Csr;
use girih_machine::memory;
use girih_trainer::{
    Control, Event, ModelConfig, ModelKind, OptimizerConfig, SessionOptions, StageTimes, TrainConfig, train,
};

use super::{DTYPES, Setup, dtype_name};
use crate::peer::Peer;
use crate::timing::{Protocol, Summary};
use crate::{Case, Error, Report, graphs};

const HIDDEN: usize = 128;
const MODELS: [ModelKind; 4] = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Sgc, ModelKind::Mlp];

/// Adds a case for each model and storage type; the peer takes turns with the GCN.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let mut peer = setup.peer.as_ref().map(|python| start_peer(python, setup.graph())).transpose()?;
    for kind in MODELS {
        for precision in DTYPES {
            // Loaded for each case, so that its peak memory is its own.
            let dataset = graphs::load(setup.graph())?;
            report.graph = Some(graphs::describe(&dataset));
            let name = format!("{}/{}", kind.name(), dtype_name(precision));
            let rival = peer.as_mut().filter(|_| kind == ModelKind::Gcn);
            let epochs = time_epochs(dataset, kind, precision, setup.protocol, rival)?;
            report.cases.extend(epochs.cases(&name, peer.as_ref().map_or("peer", Peer::name)));
        }
    }
    Ok(())
}

fn start_peer(python: &Path, spec: &str) -> Result<Peer, Error> {
    let dataset = graphs::load(spec)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("data");
    graphs::export_training(&dataset.graph.with_self_loops(), &dataset, &path)?;
    // The script has read everything when it is ready, so that the folder may go.
    Peer::start(python, "dgl_fullbatch.py", &[path.as_os_str(), OsStr::new(&HIDDEN.to_string())])
}

/// What the epochs of one model took.
struct Epochs {
    times: Vec<StageTimes>,
    peer_s: Vec<f64>,
    peak_bytes: Option<u64>,
    /// Graph, features and activations: what has to be in memory.
    needed_bytes: u64,
}

fn time_epochs(
    dataset: Dataset,
    kind: ModelKind,
    precision: Dtype,
    protocol: Protocol,
    mut peer: Option<&mut Peer>,
) -> Result<Epochs, Error> {
    let config = config(kind, precision, protocol);
    let needed_bytes = needed_bytes(&dataset, kind);
    let (mut times, mut peer_s, mut failure) = (Vec::new(), Vec::new(), None);
    let can_reset = memory::reset_peak();
    train(&Cpu::new().gathering(precision), dataset, &config, &SessionOptions::default(), &mut |event: Event<'_>| {
        let Event::Epoch { report, .. } = event else { return Control::Continue };
        let asked = peer.as_mut().map(|peer| peer.ask("epoch")).transpose();
        if report.epoch as usize > protocol.warm_up {
            times.push(report.times);
            peer_s.extend(asked.as_ref().ok().copied().flatten());
        }
        failure = asked.err();
        if failure.is_some() { Control::Stop } else { Control::Continue }
    })?;
    match failure {
        Some(error) => Err(error),
        None => {
            let peak_bytes = memory::peak_bytes().filter(|_| can_reset);
            Ok(Epochs { times, peer_s, peak_bytes, needed_bytes })
        }
    }
}

fn config(kind: ModelKind, precision: Dtype, protocol: Protocol) -> TrainConfig {
    let epochs = (protocol.warm_up + protocol.repeats) as u64;
    TrainConfig {
        model: ModelConfig {
            kind,
            layers: 2,
            hidden: HIDDEN,
            dropout: 0.5,
            input_dropout: Some(0.0),
            ..ModelConfig::default()
        },
        optimizer: OptimizerConfig { lr: 0.01, weight_decay: 0.0, ..OptimizerConfig::default() },
        epochs,
        eval_every: epochs,
        precision,
        ..TrainConfig::default()
    }
}

/// Bytes of the graph, of the features, and of the activations: each layer's output with its gradient, and GraphSAGE's
/// mean over neighbours, which it reads beside the features. All in `f32`.
fn needed_bytes(dataset: &Dataset, kind: ModelKind) -> u64 {
    let hidden = if kind == ModelKind::Sgc { 0 } else { HIDDEN };
    let means = if kind == ModelKind::Sage { dataset.n_features() } else { 0 };
    let activations = dataset.n_nodes() * (2 * (hidden + dataset.n_classes()) + means) * size_of::<f32>();
    let features = dataset.n_nodes() * dataset.n_features() * size_of::<f32>();
    let graph = if kind == ModelKind::Mlp { 0 } else { Csr::n_bytes(&dataset.graph) };
    graph + (features + activations) as u64
}

impl Epochs {
    /// The case of the model, and that of the peer if it took turns.
    fn cases(&self, name: &str, peer: &str) -> Vec<Case> {
        let summary = |stage: fn(&StageTimes) -> std::time::Duration| {
            Summary::of(&self.times.iter().map(|times| stage(times).as_secs_f64()).collect::<Vec<_>>())
        };
        let time = summary(StageTimes::epoch);
        let mut case = Case::new(name, time)
            .with("forward_ms", summary(|times| times.forward).median_s * 1e3)
            .with("backward_ms", summary(|times| times.backward).median_s * 1e3)
            .with("adam_ms", summary(|times| times.optimizer).median_s * 1e3);
        if let Some(peak) = self.peak_bytes {
            case = case
                .with("peak_mb", peak as f64 / 1e6)
                .with("peak_over_needed", peak as f64 / self.needed_bytes as f64);
        }
        if self.peer_s.is_empty() {
            return vec![case];
        }
        let peer_time = Summary::of(&self.peer_s);
        let case = case.with("x_peer", peer_time.median_s / time.median_s);
        vec![case, Case::new(format!("{name}/{peer}"), peer_time)]
    }
}
