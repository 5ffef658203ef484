//! [`Scoring`] and [`LayerwiseClassifier`]: scores of classifiers on mini-batches, in one pass over the graph or layer by
//! layer.

use girih_compute::Backend;
use girih_datasets::{Labels, Split};
use girih_features::MiniBatchBackend;
use girih_graph_format::NodeId;

use crate::TrainError;
use crate::config::{ScoreBy, TrainConfig};
use crate::engine::{RunState, Scorer, Scores, TestReport};
use crate::models::Model;
use crate::tape::Targets;
use crate::tasks::nodes::{Classifier, Task};

/// Layer-wise inference for some nodes, on a graph of any kind.
pub(crate) trait LayerInference<B: Backend> {
    /// Logits with the current parameters: a row for each node, in order.
    ///
    /// # Errors
    /// When the device or another rank fails, or the device's memory does not suffice.
    fn logits(&self, model: &dyn Model<B>, state: &mut RunState<'_, B>) -> Result<B::Matrix, TrainError>;

    /// Rows of the last hidden layer with the current parameters: a row for each node, in order. `None` if there is no
    /// hidden layer.
    ///
    /// # Errors
    /// As [`logits`](Self::logits).
    fn hidden(&self, model: &dyn Model<B>, state: &mut RunState<'_, B>) -> Result<Option<B::Matrix>, TrainError>;

    /// Whether ranks share the work, so that all of them must call.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Targets of the scores of a classifier.
pub(super) enum Scoring<B: Backend> {
    /// Targets of all nodes.
    Graph(Targets<B>),
    /// Nodes of each split, whose logits are computed layer by layer.
    Layers(Vec<SplitNodes<B>>),
}

/// Nodes of a split, ascending, with labels and targets. Ids are positions among them.
pub(super) struct SplitNodes<B: Backend> {
    nodes: Vec<NodeId>,
    labels: Labels,
    targets: Targets<B>,
    split: Split,
}

/// Whether scores of a run of `config` are computed layer by layer. They are if the configuration says so. They also
/// are if devices do not hold all data and the model can.
///
/// # Errors
/// When the configuration requests it and the model cannot.
pub(crate) fn scores_by_layers<B: Backend>(config: &TrainConfig, model: &dyn Model<B>) -> Result<bool, TrainError> {
    let can = model.as_layers().is_some();
    match config.batch.score_by {
        Some(ScoreBy::Graph) => Ok(false),
        Some(ScoreBy::Layers) if !can => Err(TrainError::invalid(format!(
            "--score-by layers is not possible for this {}: a layer reads more than the rows of the layer before it (batch \
             normalisation, jumping knowledge, several hops); give --score-by graph",
            config.model.name()
        ))),
        Some(ScoreBy::Layers) => Ok(true),
        None => Ok(can && !config.tiers.is_default()),
    }
}

impl<B: Backend> Scoring<B> {
    /// Targets for scores of some splits, layer by layer or not.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(super) fn new(backend: &B, labels: &Labels, splits: &[Split], by_layers: bool) -> Result<Self, TrainError> {
        if !by_layers {
            return Ok(Self::Graph(Targets::upload(backend, labels)?));
        }
        let nodes = |split| SplitNodes::new(backend, labels, split);
        Ok(Self::Layers(splits.iter().map(nodes).collect::<Result<_, _>>()?))
    }

    /// Task on split number `at`; and the nodes that its rows are of, if logits are computed layer by layer.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(super) fn task<'a>(
        &'a self,
        backend: &B,
        (labels, splits): (&'a Labels, &'a [Split]),
        at: usize,
    ) -> Result<(Task<'a, B>, Option<&'a [NodeId]>), TrainError> {
        match self {
            Self::Graph(targets) => Ok((Task::new(backend, labels, targets, &splits[at])?, None)),
            Self::Layers(splits) => {
                let SplitNodes { nodes, labels, targets, split } = &splits[at];
                Ok((Task::new(backend, labels, targets, split)?, Some(nodes)))
            }
        }
    }
}

impl<B: Backend> SplitNodes<B> {
    /// Nodes of a split, with their labels.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn new(backend: &B, labels: &Labels, split: &Split) -> Result<Self, TrainError> {
        let nodes = split.nodes();
        let labels = labels.of_nodes(&nodes);
        let place = |node: &NodeId| nodes.binary_search(node).expect("a node of the split") as NodeId;
        let [train, val, test] = split.parts().map(|(_, part)| part.iter().map(place).collect());
        let targets = Targets::upload(backend, &labels)?;
        Ok(Self { labels, targets, split: Split { train, val, test }, nodes })
    }
}

/// A node classifier whose logits are computed layer by layer.
pub(crate) struct LayerwiseClassifier<'a, B: Backend, L> {
    /// Inference for the nodes of the classifier's task.
    pub(crate) layers: L,
    /// Model and task.
    pub(crate) classifier: Classifier<'a, B>,
}

impl<'a, B: MiniBatchBackend, L: LayerInference<B>> Scorer<'a, B> for LayerwiseClassifier<'a, B, L> {
    fn model(&self) -> &dyn Model<B> {
        self.classifier.model()
    }

    fn check_trains(&self) -> Result<(), TrainError> {
        self.classifier.check_trains()
    }

    fn has_validation(&self) -> bool {
        self.classifier.has_validation()
    }

    fn is_shared(&self) -> bool {
        self.layers.is_shared()
    }

    fn evaluate(&self, state: &mut RunState<'a, B>) -> Result<Scores, TrainError> {
        let logits = self.layers.logits(self.model(), state)?;
        self.classifier.evaluate(state, Some(&logits))
    }

    fn test_report(&self, state: &mut RunState<'a, B>) -> Result<Option<TestReport>, TrainError> {
        let logits = self.layers.logits(self.model(), state)?;
        self.classifier.test_report(state, Some(&logits)).map(Some)
    }
}
