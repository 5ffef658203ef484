//! [`TypedSession`]: state that all mini-batch runs on a typed graph share.

use std::sync::Arc;

use girih_comm::Collective;
use girih_compute::Backend;
use girih_datasets::{Dataset, Features, Labels, Split, TypeFeatures, TypedData};
use girih_features::{FeatureStore, MiniBatchBackend};
use girih_graph_format::{Csr, NodeId};

use super::TypedSeeds;
use crate::TrainError;
use crate::data::{NodeFeatures, Trainable};
use crate::engine::{ModelSource, RunState};
use crate::layers::{Inputs, RelationSpec, TypeRows};
use crate::minibatch::batch::{FeatureSource, WholeGraph};
use crate::minibatch::batches::seed_of_run;
use crate::minibatch::data::code_rows;
use crate::minibatch::{Batches, MiniBatch};
use crate::tape::Targets;
use crate::tasks::nodes::{Classifier, Task};

/// Typed graph and targets of a node classifier on mini-batches. Scores are those of the whole graph.
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
    targets: Targets<B>,
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
        let targets = Targets::upload(backend, &labels)?;
        let graphs = (dataset.graph, Some(&*typed));
        let inputs = Inputs::of_data(backend, graphs, features, &input_spec, config.precision)?;
        Ok(Self { inputs, typed, sparse, readers, spec, targets, labels, splits: dataset.splits, source })
    }

    /// Run at its start; with several ranks, on one rank of `world`.
    pub(crate) fn run<'a>(
        &'a self,
        backend: &'a B,
        run: u64,
        world: Option<&'a dyn Collective<B>>,
    ) -> Result<MiniBatch<'a, B>, TrainError> {
        let (config, split) = (self.source.config, &self.splits[run as usize % self.splits.len()]);
        let (model, params) = self.source.build(backend, run, None)?;
        let task = Task::new(backend, &self.labels, &self.targets, split)?;
        let scorer = Box::new(Classifier { inputs: &self.inputs, task, model });
        let seeds: Vec<NodeId> = split.train.iter().copied().filter(|&v| self.labels.is_labelled(v)).collect();
        let seeds = TypedSeeds::new(&self.typed, &self.spec, seeds, (config, seed_of_run(config, run)))?;
        let rank = world.map_or((0, 1), |world| (world.rank(), world.size()));
        let batches = Batches::of_typed(seeds, rank);
        let state = RunState::new(backend, config, &config.optimizer, params, run)?;
        Ok(MiniBatch::new(state, batches, self.whole(), scorer, world))
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
