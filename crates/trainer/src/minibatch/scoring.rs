//! [`Scoring`] and [`SubsetClassifier`]: scores of classifiers on mini-batches, in one pass over the graph, layer by layer,
//! or on samples.

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

/// Inference for some nodes, on a graph of any kind: layer by layer, or on samples.
pub(crate) trait NodeInference<B: Backend> {
    /// Logits with the current parameters: a row for each node, in order.
    ///
    /// # Errors
    /// When the device or another rank fails, or the device's memory does not suffice.
    fn logits(&self, model: &dyn Model<B>, state: &mut RunState<'_, B>) -> Result<B::Matrix, TrainError>;

    /// Whether ranks share the work, so that all of them must call.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Inference that stops at hidden layers, too.
pub(crate) trait HiddenInference<B: Backend>: NodeInference<B> {
    /// Rows of the last hidden layer with the current parameters: a row for each node, in order. `None` if there is no
    /// hidden layer.
    ///
    /// # Errors
    /// As [`logits`](NodeInference::logits).
    fn hidden(&self, model: &dyn Model<B>, state: &mut RunState<'_, B>) -> Result<Option<B::Matrix>, TrainError>;
}

/// Targets of the scores of a classifier.
pub(super) enum Scoring<B: Backend> {
    /// Targets of all nodes.
    Graph(Targets<B>),
    /// Nodes of each split, the only ones whose logits are computed, with their targets.
    Nodes(Vec<(SplitNodes, Targets<B>)>),
    /// Validation and test nodes of each split.
    Samples(Vec<SplitNodes>),
}

/// Nodes of a split, ascending, with their labels. Ids are positions among them.
pub(super) struct SplitNodes {
    pub(super) nodes: Vec<NodeId>,
    pub(super) labels: Labels,
    pub(super) split: Split,
}

/// Method that computes the scores of a run of `config`: that of the configuration. Without one, it is layer by layer if
/// devices do not hold all data and the model can.
///
/// # Errors
/// When the configuration requests scores layer by layer and the model cannot.
pub(crate) fn method_of_scores<B: Backend>(config: &TrainConfig, model: &dyn Model<B>) -> Result<ScoreBy, TrainError> {
    let can = model.as_layers().is_some();
    match config.batch.score_by {
        Some(ScoreBy::Layers) if !can => Err(TrainError::invalid(format!(
            "--score-by layers is not possible for this {}: a layer reads more than the rows of the layer before it (batch \
             normalisation, jumping knowledge, several hops); give --score-by graph",
            config.model.name()
        ))),
        Some(method) => Ok(method),
        None if can && !config.tiers.is_default() => Ok(ScoreBy::Layers),
        None => Ok(ScoreBy::Graph),
    }
}

impl<B: Backend> Scoring<B> {
    /// Targets for scores of some splits.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(super) fn new(backend: &B, labels: &Labels, splits: &[Split], method: ScoreBy) -> Result<Self, TrainError> {
        let with_targets = |split| -> Result<_, TrainError> {
            let nodes = SplitNodes::new(labels, split);
            let targets = Targets::upload(backend, &nodes.labels)?;
            Ok((nodes, targets))
        };
        let held_out = |split: &Split| SplitNodes::new(labels, &Split { train: Vec::new(), ..split.clone() });
        Ok(match method {
            ScoreBy::Graph => Self::Graph(Targets::upload(backend, labels)?),
            ScoreBy::Layers => Self::Nodes(splits.iter().map(with_targets).collect::<Result<_, _>>()?),
            ScoreBy::Samples => Self::Samples(splits.iter().map(held_out).collect()),
        })
    }

    /// Validation and test nodes of split number `at`, if scores are those of samples.
    pub(super) fn sampled(&self, at: usize) -> Option<&SplitNodes> {
        match self {
            Self::Samples(splits) => Some(&splits[at]),
            Self::Graph(_) | Self::Nodes(_) => None,
        }
    }

    /// Task on split number `at`; and the nodes that its rows are of, if only theirs are computed.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    ///
    /// # Panics
    /// When scores are those of samples.
    pub(super) fn task<'a>(
        &'a self,
        backend: &B,
        (labels, splits): (&'a Labels, &'a [Split]),
        at: usize,
    ) -> Result<(Task<'a, B>, Option<&'a [NodeId]>), TrainError> {
        match self {
            Self::Graph(targets) => Ok((Task::new(backend, labels, targets, &splits[at])?, None)),
            Self::Nodes(splits) => {
                let (SplitNodes { nodes, labels, split }, targets) = &splits[at];
                Ok((Task::new(backend, labels, targets, split)?, Some(nodes)))
            }
            Self::Samples(_) => panic!("samples are scored batch by batch"),
        }
    }
}

impl SplitNodes {
    /// Nodes of a split, with their labels.
    fn new(labels: &Labels, split: &Split) -> Self {
        let nodes = split.nodes();
        let labels = labels.of_nodes(&nodes);
        let place = |node: &NodeId| nodes.binary_search(node).expect("a node of the split") as NodeId;
        let [train, val, test] = split.parts().map(|(_, part)| part.iter().map(place).collect());
        Self { labels, split: Split { train, val, test }, nodes }
    }
}

/// A node classifier whose logits are computed for the nodes of its task alone.
pub(crate) struct SubsetClassifier<'a, B: Backend, L> {
    /// Inference for the nodes of the classifier's task.
    pub(crate) inference: L,
    /// Model and task.
    pub(crate) classifier: Classifier<'a, B>,
}

impl<'a, B: MiniBatchBackend, L: NodeInference<B>> Scorer<'a, B> for SubsetClassifier<'a, B, L> {
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
        self.inference.is_shared()
    }

    fn evaluate(&self, state: &mut RunState<'a, B>) -> Result<Scores, TrainError> {
        let logits = self.inference.logits(self.model(), state)?;
        self.classifier.evaluate(state, Some(&logits))
    }

    fn test_report(&self, state: &mut RunState<'a, B>) -> Result<Option<TestReport>, TrainError> {
        let logits = self.inference.logits(self.model(), state)?;
        self.classifier.test_report(state, Some(&logits)).map(Some)
    }
}
