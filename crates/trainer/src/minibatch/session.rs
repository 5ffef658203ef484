//! State that all runs on mini-batches share.

use std::sync::Arc;

use girih_comm::Collective;
use girih_compute::Backend;
use girih_datasets::{Dataset, Labels, Split};
use girih_features::MiniBatchBackend;
use girih_graph_format::{Matrix, NodeId};
use girih_sampling::ClusterSampler;

use super::batches::{BatchOptions, block_draws};
use super::data::{DataUse, MiniBatchData};
use super::inference::Layerwise;
use super::scoring::{Scoring, SubsetClassifier, method_of_scores};
use super::{Batches, MiniBatch};
use crate::TrainError;
use crate::config::ScoreBy;
use crate::data::Trainable;
use crate::engine::{CacheReport, ModelSource, RunState, Scorer};
use crate::tasks::nodes::Classifier;

/// Data and targets of a node classifier on mini-batches.
pub(crate) struct MiniBatchSession<'m, B: Backend> {
    batch_data: MiniBatchData<B>,
    scoring: Scoring<B>,
    labels: Labels,
    splits: Vec<Split>,
    source: ModelSource<'m, B>,
    clusters: Option<Arc<ClusterSampler>>,
}

impl<'m, B: MiniBatchBackend> MiniBatchSession<'m, B> {
    /// Data for one device, or for one of several. Cluster batches use the given
    /// [clusters](crate::BatchConfig::cluster_sampler), or compute them.
    pub(crate) fn new(
        backend: &B,
        dataset: Dataset,
        source: ModelSource<'m, B>,
        (n_devices, clusters): (usize, Option<Arc<ClusterSampler>>),
    ) -> Result<Self, TrainError> {
        let config = source.config;
        let input_spec = source.input_spec(backend)?;
        let Trainable { dataset, features, labels } = Trainable::check(dataset, config, &input_spec)?;
        let (model, _) = source.build(backend, 0, None)?;
        let method = method_of_scores(config, &*model)?;
        let splits = dataset.splits;
        let scoring = Scoring::new(backend, &labels, &splits, method)?;
        let seeds = splits.first().map_or(&[][..], |split| &split.train);
        let clusters = match clusters {
            None => config.batch.cluster_sampler(&dataset.graph)?,
            found => found,
        };
        let by_layers = method == ScoreBy::Layers;
        let data_use = DataUse { seeds, n_devices, by_layers, host_samples: source.sampler().is_some() };
        let batch_data = MiniBatchData::new(backend, dataset.graph, features, &input_spec, config, data_use)?;
        Ok(Self { batch_data, scoring, labels, splits, source, clusters })
    }

    /// Report on the placement, empty if devices have all data.
    pub(crate) fn tiers(&self) -> &[CacheReport] {
        &self.batch_data.tiers
    }

    /// Run at its start; with several ranks, on one rank of `world`.
    pub(crate) fn run<'a>(
        &'a self,
        backend: &'a B,
        run: u64,
        world: Option<&'a dyn Collective<B>>,
    ) -> Result<MiniBatch<'a, B>, TrainError> {
        let at = run as usize % self.splits.len();
        let (split, config) = (&self.splits[at], self.source.config);
        let (model, params) = self.source.build(backend, run, None)?;
        let inputs = &self.batch_data.inputs;
        let (task, nodes) = self.scoring.task(backend, (&self.labels, &self.splits), at)?;
        let classifier = Classifier { inputs, task, model };
        let scorer: Box<dyn Scorer<'a, B> + 'a> = match nodes {
            None => Box::new(classifier),
            Some(nodes) => {
                let inference = Layerwise::new(&self.batch_data, nodes).among(world);
                Box::new(SubsetClassifier { inference, classifier })
            }
        };
        let rank = world.map_or((0, 1), |world| (world.rank(), world.size()));
        let (nodes, batch_data) = ((&self.labels, &split.train[..]), &self.batch_data);
        let (neighborhoods, adjacency) = (&batch_data.neighborhoods, batch_data.adjacency);
        let (clusters, in_place) = (self.clusters.clone(), batch_data.in_place);
        let sampler = match self.source.sampler() {
            Some(builder) => Some(builder.build_sampler(&block_draws(config, neighborhoods, in_place)?)?),
            None => None,
        };
        let options = BatchOptions { config, clusters, run, in_place, sampler, rank };
        let batches = Batches::new(neighborhoods, adjacency, nodes, options)?;
        let state = RunState::new(backend, config, &config.optimizer, params, run)?;
        let run = MiniBatch::new(state, batches, batch_data.whole(Some(&self.labels)), scorer, world);
        Ok(run.sampled_by(batch_data.batches_of_device(backend, &config.of_one_rank(rank.1))?))
    }

    /// Logits of all nodes with the parameters of a run, computed layer by layer. The model must have
    /// [layers](crate::models::Model::as_layers).
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn logits(&self, run: &mut MiniBatch<'_, B>) -> Result<Matrix, TrainError> {
        let all: Vec<NodeId> = (0..self.labels.n_nodes() as NodeId).collect();
        run.logits(&Layerwise::new(&self.batch_data, all))
    }

    /// As [`logits`](Self::logits), but rows of the last hidden layer; `None` without hidden layers.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn hidden(&self, run: &mut MiniBatch<'_, B>) -> Result<Option<Matrix>, TrainError> {
        let all: Vec<NodeId> = (0..self.labels.n_nodes() as NodeId).collect();
        run.hidden(&Layerwise::new(&self.batch_data, all))
    }
}
