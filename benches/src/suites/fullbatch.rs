//! `fullbatch`: full training epochs of two layers with 128 hidden columns, for every model and storage type.
//!
//! An epoch is forward pass, loss on the training nodes, backward pass and Adam, with hidden dropout. Features have
//! no dropout, so the first aggregation is a constant and is computed before the first epoch.

use std::ffi::OsStr;
use std::path::Path;

use girih_compute::{Cpu, Dtype};
use girih_datasets::Dataset;
use girih_graph_format::Csr;
use girih_trainer::{ModelConfig, ModelKind, OptimizerConfig, TrainConfig};

use super::epochs::Epochs;
use super::setup::{DTYPES, Setup};
use crate::peer::Peer;
use crate::timing::Protocol;
use crate::{Error, Report, graphs};

const HIDDEN: usize = 128;
const MODELS: [ModelKind; 4] = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Sgc, ModelKind::Mlp];

/// Adds a case for each model and storage type; the peer alternates with the GCN.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let mut peers: Vec<Peer> =
        setup.peer.iter().map(|python| start_peer(python, setup.graph())).collect::<Result<_, _>>()?;
    for kind in MODELS {
        for precision in DTYPES {
            // Each case loads the data, so that its peak memory is its own.
            let dataset = graphs::load(setup.graph())?;
            report.graph = Some(graphs::describe(&dataset));
            let name = format!("{}/{}", kind.name(), precision.name());
            let needed_bytes = needed_bytes(&dataset, kind);
            let rivals = if kind == ModelKind::Gcn { &mut peers[..] } else { &mut [] };
            let backend = Cpu::new().gathering(precision);
            let config = config(kind, precision, setup.protocol);
            let epochs = Epochs::time(&backend, dataset, &config, setup.protocol, rivals)?;
            report.cases.extend(epochs.cases(&name, needed_bytes, rivals));
        }
    }
    Ok(())
}

fn start_peer(python: &Path, spec: &str) -> Result<Peer, Error> {
    let dataset = graphs::load(spec)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("data");
    graphs::export_training(&dataset.graph.with_self_loops(), &dataset, &path)?;
    // A script that is ready has read all its data, so the folder can be deleted.
    Peer::start(python, "dgl_fullbatch.py", &[path.as_os_str(), OsStr::new(&HIDDEN.to_string())])
}

fn config(kind: ModelKind, precision: Dtype, protocol: Protocol) -> TrainConfig {
    let epochs = (protocol.warm_up + protocol.repeats) as u64;
    TrainConfig {
        model: ModelConfig { kind, hidden: HIDDEN, input_dropout: Some(0.0), ..ModelConfig::default() },
        optimizer: OptimizerConfig { lr: 0.01, weight_decay: 0.0, ..OptimizerConfig::default() },
        epochs,
        eval_every: epochs,
        precision,
        ..TrainConfig::default()
    }
}

/// Bytes of graph, features and activations in `f32`. Activations are each layer's output with its gradient.
/// GraphSAGE also reads the mean over neighbors.
fn needed_bytes(dataset: &Dataset, kind: ModelKind) -> u64 {
    let hidden = if kind == ModelKind::Sgc { 0 } else { HIDDEN };
    let means = if kind == ModelKind::Sage { dataset.n_features() } else { 0 };
    let activations = dataset.n_nodes() * (2 * (hidden + dataset.n_classes()) + means) * size_of::<f32>();
    let features = dataset.n_nodes() * dataset.n_features() * size_of::<f32>();
    let graph = if kind == ModelKind::Mlp { 0 } else { Csr::n_bytes(&dataset.graph) };
    graph + (features + activations) as u64
}
