//! Network of the suites on sampled neighbors, and its peers: GraphSAGE with the mini-batch settings of papers.

use std::ffi::OsStr;
use std::path::Path;

use girih_datasets::Dataset;
use girih_trainer::{BatchConfig, BatchKind, ModelConfig, ModelKind, OptimizerConfig, TrainConfig};

use crate::peer::Peer;
use crate::{Error, graphs};

/// Sampled neighbors of each node, from the seeds outward.
const FAN_OUT: [i64; 3] = [15, 10, 5];
/// Width of the hidden layers.
pub(super) const HIDDEN: usize = 256;

/// Configuration for batches of `batch_size` seeds, without dropout and weight decay.
pub(super) fn config(hidden: usize, batch_size: usize) -> TrainConfig {
    let model =
        ModelConfig { kind: ModelKind::Sage, layers: FAN_OUT.len(), hidden, dropout: 0.0, ..ModelConfig::default() };
    TrainConfig {
        model,
        optimizer: OptimizerConfig { weight_decay: 0.0, ..OptimizerConfig::default() },
        batch_size: Some(batch_size),
        batch: BatchConfig { kind: BatchKind::Neighbor, fanout: FAN_OUT.to_vec(), ..BatchConfig::default() },
        ..TrainConfig::default()
    }
}

/// Starts a script of `benches/peers` that trains the same network on the same data.
pub(super) fn start_peer(
    python: &Path,
    script: &str,
    dataset: &Dataset,
    (hidden, batch_size): (usize, usize),
) -> Result<Peer, Error> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("data");
    graphs::export_training(&dataset.graph, dataset, &path)?;
    let fan_out = FAN_OUT.map(|k| k.to_string()).join(",");
    // A script that is ready has read all its data, so the folder can be deleted.
    let (hidden, batch_size) = (hidden.to_string(), batch_size.to_string());
    let arguments = [path.as_os_str(), OsStr::new(&hidden), OsStr::new(&batch_size), OsStr::new(&fan_out)];
    Peer::start(python, script, &arguments)
}
