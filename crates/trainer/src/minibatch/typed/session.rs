//! [`TypedSession`]: state that all mini-batch runs on a typed graph share.

use std::sync::Arc;

use girih_comm::Collective;
use girih_compute::Backend;
use girih_datasets::{Dataset, Features, Labels, Split, TypeFeatures, TypedData};
use girih_features::{FeatureStore, MiniBatchBackend};
use girih_graph_format::{Csr, Matrix, NodeId};

use super::TypedSeeds;
use super::layerwise::TypedLayerwise;
use super::samples::{SampledClassifier, TypedSamples};
use crate::TrainError;
use crate::config::ScoreBy;
use crate::data::{NodeFeatures, Trainable};
use crate::engine::{ModelSource, Run, RunState, Scorer};
use crate::layers::{Inputs, RelationSpec, TypeRows};
use crate::minibatch::batch::{FeatureSource, WholeGraph};
use crate::minibatch::batches::seed_of_run;
use crate::minibatch::data::code_rows;
use crate::minibatch::scoring::{Scoring, SplitNodes, SubsetClassifier, method_of_scores};
use crate::minibatch::{Batches, MiniBatch};
use crate::tasks::nodes::Classifier;

/// Typed graph and targets of a node classifier on mini-batches. Scores are those of the whole graph, in one pass or layer
/// by layer, or of sampled neighbors.
pub(crate) struct TypedSession<'m, B: Backend> {
    /// Whole graph and features on the device, for scores and for rows of batches.
    inputs: Inputs<B>,
    /// Graph on the host, for samplers.
    typed: Arc<TypedData>,
    /// Sparse features on the host: of all nodes, or of each node type that the first layer reads.
    sparse: Vec<Option<Csr>>,
    /// Readers by which the device decodes rows itself: of all nodes, or of each node type that the first layer reads.
    readers: Vec<Option<Box<dyn FeatureStore<B>>>>,
    spec: RelationSpec,
    scoring: Scoring<B>,
    labels: Labels,
    splits: Vec<Split>,
    source: ModelSource<'m, B>,
}

impl<'m, B: MiniBatchBackend> TypedSession<'m, B> {
    /// Checks a data set and copies it to the device.
    ///
    /// # Errors
    /// When the data cannot be trained on, the model learns a row for each pair of a node and a relation, or the device's
    /// memory does not suffice.
    ///
    /// # Panics
    /// When the model reads no relations.
    pub(crate) fn new(backend: &B, dataset: Dataset, source: ModelSource<'m, B>) -> Result<Self, TrainError> {
        let config = source.config;
        let input_spec = source.input_spec(backend)?;
        let Trainable { dataset, features, labels } = Trainable::check(dataset, config, &input_spec)?;
        let spec = input_spec.relations.clone().expect("a model of relations");
        check_batches(config.model.name(), &spec)?;
        let typed = dataset.typed.expect("models of relations get typed data");
        let given: Vec<Option<&Features>> = match &features {
            NodeFeatures::Given(features) => vec![Some(features)],
            NodeFeatures::Learned | NodeFeatures::None => {
                let of_type = |&of: &usize| typed.features.get(of).and_then(TypeFeatures::given);
                spec.layers[0].sources.iter().map(of_type).collect()
            }
        };
        let sparse = given.iter().map(|features| features.and_then(Features::as_sparse).cloned()).collect();
        let reader = |features: &Option<&Features>| match features {
            Some(Features::Compressed(codes)) => code_rows(backend, codes, config, None),
            _ => Ok(None),
        };
        let readers = given.iter().map(reader).collect::<Result<_, TrainError>>()?;
        let (model, _) = source.build(backend, 0, None)?;
        let splits = dataset.splits;
        let (precision, graph) = (config.precision, dataset.graph);
        let method = method_of_scores(config, &*model)?;
        let inputs = if method == ScoreBy::Graph {
            Inputs::of_data(backend, (graph, Some(&*typed)), features, &input_spec, precision)?
        } else {
            let inputs = Inputs::of_features(backend, graph, features, &input_spec, precision)?;
            inputs.with_type_features(backend, &typed, &input_spec, precision)?
        };
        let scoring = Scoring::new(backend, &labels, &splits, method)?;
        Ok(Self { inputs, typed, sparse, readers, spec, scoring, labels, splits, source })
    }

    /// Run at its start; with several ranks, on one rank of `world`.
    pub(crate) fn run<'a>(
        &'a self,
        backend: &'a B,
        run: u64,
        world: Option<&'a dyn Collective<B>>,
    ) -> Result<MiniBatch<'a, B>, TrainError> {
        let at = run as usize % self.splits.len();
        let (config, split, inputs) = (self.source.config, &self.splits[at], &self.inputs);
        let (model, params) = self.source.build(backend, run, None)?;
        let seeds: Vec<NodeId> = split.train.iter().copied().filter(|&v| self.labels.is_labelled(v)).collect();
        let scorer: Box<dyn Scorer<'a, B> + 'a> = match self.scoring.sampled(at) {
            Some(SplitNodes { nodes, labels, split }) => {
                let samples = self.samples(nodes.clone(), run)?;
                Box::new(SampledClassifier { samples, labels, split, model, n_train: seeds.len() })
            }
            None => {
                let (task, nodes) = self.scoring.task(backend, (&self.labels, &self.splits), at)?;
                let classifier = Classifier { inputs, task, model };
                match nodes {
                    None => Box::new(classifier),
                    Some(nodes) => Box::new(SubsetClassifier { inference: self.layerwise(nodes.to_vec()), classifier }),
                }
            }
        };
        let seeds = TypedSeeds::new(&self.typed, &self.spec, seeds, (config, seed_of_run(config, run)))?;
        let rank = world.map_or((0, 1), |world| (world.rank(), world.size()));
        let batches = Batches::of_typed(seeds, rank);
        let state = RunState::new(backend, config, &config.optimizer, params, run)?;
        Ok(MiniBatch::new(state, batches, self.whole(), scorer, world))
    }

    fn layerwise(&self, nodes: Vec<NodeId>) -> TypedLayerwise<'_, B> {
        TypedLayerwise::new(&self.typed, &self.spec, self.whole(), nodes)
    }

    /// Whether scores are those of sampled neighbors.
    fn scores_samples(&self) -> bool {
        self.source.config.batch.score_by == Some(ScoreBy::Samples)
    }

    /// Inference on samples, with the draws of run number `run`.
    fn samples(&self, nodes: Vec<NodeId>, run: u64) -> Result<TypedSamples<'_, B>, TrainError> {
        let config = self.source.config;
        let seeds = TypedSeeds::new(&self.typed, &self.spec, nodes, (config, seed_of_run(config, run)))?;
        Ok(TypedSamples::new(seeds, self.whole(), self.labels.n_classes()))
    }

    /// All nodes of the target, by global ids.
    fn target_nodes(&self) -> Vec<NodeId> {
        let (schema, target) = (self.typed.graph.schema(), self.typed.target);
        let first = schema.first(target);
        (first as NodeId..(first + schema.node_types()[target].n_nodes) as NodeId).collect()
    }

    /// Logits of all nodes with the parameters of a run, computed as its scores are; zeros for other types than the target.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn logits(&self, run: &mut MiniBatch<'_, B>) -> Result<Matrix, TrainError> {
        let nodes = self.target_nodes();
        let logits = match self.scores_samples() {
            true => run.logits(&self.samples(nodes, run.state().run())?)?,
            false => run.logits(&self.layerwise(nodes))?,
        };
        Ok(self.placed(&logits))
    }

    /// As [`logits`](Self::logits), but rows of the last hidden layer, computed layer by layer; `None` without hidden layers.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn hidden(&self, run: &mut MiniBatch<'_, B>) -> Result<Option<Matrix>, TrainError> {
        let hidden = run.hidden(&self.layerwise(self.target_nodes()))?;
        Ok(hidden.map(|hidden| self.placed(&hidden)))
    }

    /// Rows of all nodes, with those of the target given.
    fn placed(&self, rows: &Matrix) -> Matrix {
        let first = self.typed.graph.schema().first(self.typed.target);
        let (n_nodes, cols) = (self.typed.graph.n_nodes(), rows.n_cols());
        let mut values = vec![0.0; n_nodes * cols];
        values[first * cols..][..rows.data().len()].copy_from_slice(rows.data());
        Matrix::new(n_nodes, cols, values).expect("a row for each node")
    }

    /// Features and labels from which batches take their rows.
    fn whole(&self) -> WholeGraph<'_, B> {
        let source = |features, place: usize| {
            let sparse = self.sparse.get(place).and_then(Option::as_ref);
            FeatureSource { features, sparse, reader: self.readers.get(place).and_then(Option::as_deref) }
        };
        let one = self.inputs.features.as_ref().map(|features| source(features, 0));
        let types = self.inputs.relations().first_rows.iter().enumerate().map(|(place, rows)| match rows {
            TypeRows::Features(features) => Some(source(features, place)),
            TypeRows::Learned(_) => None,
        });
        let types = types.collect();
        WholeGraph { features: one, types, labels: Some(&self.labels) }
    }
}

/// Refuses a model whose first layer learns a row for each pair of a node and a relation.
fn check_batches(model: &str, spec: &RelationSpec) -> Result<(), TrainError> {
    if !spec.learns_pairs {
        return Ok(());
    }
    Err(TrainError::invalid(format!(
        "{model} without features learns a row for each pair of a node and a relation, which mini-batches do not read: give \
         --batch full, or --features-from embedding:WIDTH for a row for each node"
    )))
}
