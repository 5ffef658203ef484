//! `attention`: full training epochs of two-layer attention networks, with 8 heads of 8 columns and then one head.
//!
//! Peers are DGL and, if its messages fit into memory (eight times 64 floats an edge), PyG. Dropout applies to hidden
//! activations and attention coefficients, not to features.

use std::ffi::OsStr;
use std::path::Path;

use girih_compute::Cpu;
use girih_datasets::Dataset;
use girih_graph_format::Csr;
use girih_trainer::{ModelConfig, ModelKind, OptimizerConfig, TrainConfig};

use super::epochs::Epochs;
use super::setup::Setup;
use crate::peer::Peer;
use crate::timing::Protocol;
use crate::{Error, Report, graphs};

const HEADS: usize = 8;
const HIDDEN: usize = 8;
/// Maximum number of edges for PyG, which stores several floats per edge and column.
const PYG_EDGES_MAX: usize = 8_000_000;

/// Adds a case for each kind of scores; peers alternate with GAT.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let mut peers = match &setup.peer {
        Some(python) => start_peers(python, setup.graph())?,
        None => Vec::new(),
    };
    for kind in [ModelKind::Gat, ModelKind::Gatv2] {
        // Each case loads the data, so that its peak memory is its own.
        let dataset = graphs::load(setup.graph())?;
        report.graph = Some(graphs::describe(&dataset));
        let needed_bytes = needed_bytes(&dataset);
        let rivals = if kind == ModelKind::Gat { &mut peers[..] } else { &mut [] };
        let epochs = Epochs::time(&Cpu::new(), dataset, &config(kind, setup.protocol), setup.protocol, rivals)?;
        report.cases.extend(epochs.cases(kind.name(), needed_bytes, rivals));
    }
    Ok(())
}

fn start_peers(python: &Path, spec: &str) -> Result<Vec<Peer>, Error> {
    let dataset = graphs::load(spec)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("data");
    graphs::export_training(&dataset.graph.with_self_loops(), &dataset, &path)?;
    let libraries = ["dgl", "pyg"].into_iter().filter(|&name| name != "pyg" || dataset.n_edges() <= PYG_EDGES_MAX);
    // A script that is ready has read all its data, so the folder can be deleted.
    libraries.map(|name| Peer::start(python, "gat_epoch.py", &[path.as_os_str(), OsStr::new(name)])).collect()
}

fn config(kind: ModelKind, protocol: Protocol) -> TrainConfig {
    let epochs = (protocol.warm_up + protocol.repeats) as u64;
    TrainConfig {
        model: ModelConfig {
            kind,
            heads: HEADS,
            hidden: HIDDEN,
            dropout: 0.6,
            input_dropout: Some(0.0),
            ..ModelConfig::default()
        },
        optimizer: OptimizerConfig { lr: 0.005, weight_decay: 0.0, ..OptimizerConfig::default() },
        epochs,
        eval_every: epochs,
        ..TrainConfig::default()
    }
}

/// Bytes of the graph, the features, and each layer's output with its gradient.
fn needed_bytes(dataset: &Dataset) -> u64 {
    let activations = 2 * dataset.n_nodes() * (HEADS * HIDDEN + dataset.n_classes());
    let features = dataset.n_nodes() * dataset.n_features();
    Csr::n_bytes(&dataset.graph) + ((activations + features) * size_of::<f32>()) as u64
}
