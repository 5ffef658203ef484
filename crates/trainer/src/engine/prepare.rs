//! Preparation of runs: a model with its parameters, labels for data without any, and the best parameters of a
//! checkpoint.

use girih_compute::{Backend, ComputeError, Shape};
use girih_datasets::{Dataset, FeaturesFrom, Labels, Split, UNLABELLED};
use girih_graph_format::{Matrix, NodeId};

use super::checkpoint::{Checkpoint, DataShape};
use super::report::{Scores, TestReport};
use super::state::Run;
use crate::TrainError;
use crate::config::TrainConfig;
use crate::models::{self, Dims, Model};
use crate::tape::ranks::Ranks;
use crate::tape::{ParamId, ParamInit, Params};

/// Model with its parameters.
type ModelWithParams<B> = (Box<dyn Model<B>>, Params<B>);

/// A model with its initial parameters. One of several ranks holds only its own rows of per-node parameters.
pub(crate) fn build_model<B: Backend>(
    backend: &B,
    config: &TrainConfig,
    dims: Dims,
    run: u64,
    ranks: Option<&Ranks<B>>,
) -> Result<ModelWithParams<B>, TrainError> {
    let mut init = ParamInit::new(backend, config.seed, run).among(ranks);
    let model = build_network(config, dims, &mut init)?;
    Ok((model, init.finish()))
}

/// Builds the network of a configuration, preceded by its learned features, if any. These are initialised from a
/// normal distribution, with rows of expected squared length one.
pub(crate) fn build_network<B: Backend>(
    config: &TrainConfig,
    dims: Dims,
    init: &mut ParamInit<'_, B>,
) -> Result<Box<dyn Model<B>>, ComputeError> {
    if let Some(FeaturesFrom::Embedding(width)) = config.features_from {
        let deviation = 1.0 / (width as f32).sqrt();
        let features = init.embedding(0, "features", Shape::new(dims.n_nodes, width), deviation)?;
        debug_assert_eq!(features, ParamId::FEATURES);
    }
    models::build(&config.model, dims, init)
}

/// Adapts data to a model that was `trained` on other data. It gets the model's number of classes. Without labels,
/// all nodes are unlabelled; without a split, all nodes are test nodes.
pub(crate) fn with_labels_for(trained: &DataShape, dataset: Dataset) -> Dataset {
    let (n_nodes, n_classes) = (dataset.n_nodes(), trained.n_classes);
    let labels = match dataset.labels {
        None if trained.multi_label => {
            let targets = Matrix::new(n_nodes, n_classes, vec![0.0; n_nodes * n_classes]);
            Labels::Multi { n_classes, targets: targets.expect("as many zeros as it has elements") }
        }
        None => Labels::Single { n_classes, classes: vec![UNLABELLED; n_nodes] },
        Some(Labels::Single { n_classes: found, classes }) if found < n_classes && !trained.multi_label => {
            Labels::Single { n_classes, classes }
        }
        Some(labels) => labels,
    };
    let mut splits = if dataset.splits.is_empty() { vec![Split::default()] } else { dataset.splits };
    for split in splits.iter_mut().filter(|split| split.parts().iter().all(|(_, nodes)| nodes.is_empty())) {
        split.test = (0..n_nodes as NodeId).collect();
    }
    Dataset { labels: Some(labels), splits, ..dataset }
}

/// Restores the best parameters of a checkpoint, and returns their scores.
pub(crate) fn apply_best<'a, B: Backend + 'a>(
    run: &mut impl Run<'a, B>,
    checkpoint: &Checkpoint,
) -> Result<(Scores, Option<TestReport>), TrainError> {
    run.state_mut().restore(checkpoint)?;
    run.state_mut().restore_best()?;
    let report = run.test_report()?;
    Ok((run.evaluate()?, report))
}
