//! State that all runs on mini-batches share.

use std::sync::Arc;

use girih_comm::Collective;
use girih_compress::CompressedFeatures;
use girih_compute::{Backend, Dtype, FeatureStore, HostFeatures, NeighborGraph, NeighborOperand};
use girih_datasets::{Dataset, Features, Labels, Split};
use girih_graph_format::{Csr, Matrix, NodeId, Norm};
use girih_sampling::ClusterSampler;
use girih_tiers::{HostMeans, HostReads, HostRowSizes, Placement};

use super::batch::FeatureSource;
use super::batches::{BatchOptions, neighbor_sampler};
use super::device::{DeviceBatches, FeatureLoader};
use super::division::no_neighbours;
use super::layerwise::{Layerwise, LayerwiseClassifier, SplitNodes, scores_by_layers};
use super::tiers::{Placements, check_features};
use super::{Batches, MiniBatch, Neighborhoods};
use crate::TrainError;
use crate::batching::{BatchKind, DEFAULT_BATCH_SIZE};
use crate::classifier::{Classifier, Task};
use crate::config::{TrainConfig, sampled_by_device};
use crate::data::upload_adjacency;
use crate::encoded::EncodedInput;
use crate::engine::build_model;
use crate::features::NodeFeatures;
use crate::inputs::{FeatureInput, Inputs};
use crate::models::{Adjacency, Dims, InputSpec, Propagation};
use crate::report::CacheReport;
use crate::scorer::Scorer;
use crate::session::Trainable;
use crate::state::RunState;
use crate::targets::Targets;

/// Graph and features: on the device for scores and for rows of batches, on the host for samplers.
pub(crate) struct MiniBatchData<B: Backend> {
    /// Inputs of the model, without the graph if scores are computed layer by layer.
    pub(crate) inputs: Inputs<B>,
    pub(crate) neighborhoods: Neighborhoods,
    pub(crate) adjacency: Adjacency,
    /// Graph for layer-wise inference, if batches are sampled from another adjacency than the model's.
    scored_from: Option<Neighborhoods>,
    /// Sparse features on the host.
    sparse: Option<Csr>,
    /// Whether first layers read features in place.
    pub(crate) in_place: bool,
    /// Reader by which the device gathers features that are not a matrix of its own.
    reader: Option<Box<dyn FeatureStore<B>>>,
    /// Set if first layers aggregate raw features. `Some(true)` if they also read the rows of destinations.
    sums: Option<bool>,
    /// Whether features are in host memory, so that layer-wise inference keeps hidden rows there, too.
    pub(crate) keeps_on_host: bool,
    /// Whether a device that samples can make whole batches by itself. It cannot if the host decodes or gathers rows.
    draws_batches: bool,
    /// Report on the placement, empty if devices have all data.
    tiers: Vec<CacheReport>,
    /// Graph on the device, for samplers of batches or for layer-wise inference.
    pub(crate) on_device: Option<Box<dyn NeighborGraph<B>>>,
}

/// Batches and scores that the data of a graph are prepared for.
#[derive(Clone, Copy)]
pub(crate) struct DataUse<'s> {
    /// Seeds of all batches.
    pub(crate) seeds: &'s [NodeId],
    /// Number of devices that hold the data.
    pub(crate) n_devices: usize,
    /// Whether scores are computed layer by layer.
    pub(crate) by_layers: bool,
}

impl<B: Backend> MiniBatchData<B> {
    /// Data of a graph for a model with this input spec.
    ///
    /// # Errors
    /// When the model reads no neighbours, or the device's memory does not suffice.
    pub(crate) fn new(
        backend: &B,
        graph: Csr,
        features: NodeFeatures,
        input_spec: &InputSpec,
        config: &TrainConfig,
        DataUse { seeds, n_devices, by_layers }: DataUse<'_>,
    ) -> Result<Self, TrainError> {
        let NodeFeatures::Given(features) = features else {
            return Self::of_learned(backend, graph, input_spec, config, by_layers);
        };
        check_features(&features, config)?;
        let adjacency = input_spec.graph.ok_or_else(|| no_neighbours(config))?;
        let drawn_from = drawn_from(config, adjacency);
        let neighborhoods = Neighborhoods::new(&graph, drawn_from)?;
        let scores_other = by_layers && drawn_from != adjacency;
        let scored_from = scores_other.then(|| Neighborhoods::new(&graph, adjacency)).transpose()?;
        let sums = summed(config, input_spec);
        let input_spec = &if by_layers { InputSpec { graph: None, ..raw(input_spec) } } else { raw(input_spec) };
        let sparse = match &features {
            Features::Sparse(csr) => Some(csr.clone()),
            Features::Dense(_) | Features::Compressed(_) => None,
        };
        let by_device = sampled_by_device(config);
        let placed_on = (by_device && backend.has_own_memory()).then_some(n_devices);
        let row_bytes = match &features {
            Features::Compressed(codes) => codes.codec().row_bytes(),
            Features::Dense(_) | Features::Sparse(_) => features.width() * config.precision.n_bytes(),
        };
        let Placements { features: placement, topology, shares: tiers } =
            Placements::new(&neighborhoods, (seeds, row_bytes), config, placed_on)?;
        let (inputs, reader) = match (&placement, &features) {
            (Some(placement), Features::Dense(rows)) => {
                let HostFeatures { reader, on_host } = host_features(backend, rows, config, placement)?;
                let rows = FeatureInput::Encoded(EncodedInput::new(on_host, config.precision));
                let n_nodes = graph.n_rows();
                let graph =
                    input_spec.graph.map(|adjacency| upload_adjacency(backend, graph, adjacency)).transpose()?;
                (Inputs::assemble(backend, graph, rows, n_nodes, input_spec, config.precision)?, Some(reader))
            }
            (placement, features_of) => {
                let reader = match features_of {
                    Features::Compressed(codes) if by_device => code_rows(backend, codes, config, placement.as_ref())?,
                    _ => None,
                };
                (Inputs::prepare(backend, graph, features, input_spec, config.precision)?, reader)
            }
        };
        let is_dense = matches!(inputs.features, Some(FeatureInput::Dense(_)));
        let in_place = is_dense && reads_in_place(config, input_spec);
        let draws_batches = by_device && (is_dense || reader.is_some());
        let operand = scored_from.as_ref().unwrap_or(&neighborhoods).operand();
        let operand = NeighborOperand { placement: topology.as_ref(), ..operand };
        let on_device = if draws_batches || by_layers { backend.neighbor_graph(&operand)? } else { None };
        if topology.is_some() && (on_device.is_none() || !draws_batches) {
            return Err(TrainError::invalid(format!(
                "--topology-cache needs a device that samples, and {} does not sample with these features: leave it out",
                backend.name()
            )));
        }
        let keeps_on_host = config.tiers.features.is_some() && on_device.is_some();
        Ok(Self {
            inputs,
            neighborhoods,
            adjacency,
            scored_from,
            sparse,
            in_place,
            reader,
            sums,
            keeps_on_host,
            draws_batches,
            tiers,
            on_device,
        })
    }

    /// Data of a graph whose features are learned. The host samples batches, and the device gathers their rows.
    fn of_learned(
        backend: &B,
        graph: Csr,
        input_spec: &InputSpec,
        config: &TrainConfig,
        by_layers: bool,
    ) -> Result<Self, TrainError> {
        let adjacency = input_spec.graph.ok_or_else(|| no_neighbours(config))?;
        let drawn_from = drawn_from(config, adjacency);
        let neighborhoods = Neighborhoods::new(&graph, drawn_from)?;
        let scores_other = by_layers && drawn_from != adjacency;
        let scored_from = scores_other.then(|| Neighborhoods::new(&graph, adjacency)).transpose()?;
        let input_spec = &if by_layers { InputSpec { graph: None, ..raw(input_spec) } } else { raw(input_spec) };
        let operand = scored_from.as_ref().unwrap_or(&neighborhoods).operand();
        let on_device = if by_layers { backend.neighbor_graph(&operand)? } else { None };
        Ok(Self {
            inputs: Inputs::with_learned(backend, graph, input_spec)?,
            neighborhoods,
            adjacency,
            scored_from,
            sparse: None,
            in_place: false,
            reader: None,
            sums: None,
            keeps_on_host: false,
            draws_batches: false,
            tiers: Vec::new(),
            on_device,
        })
    }

    /// Graph for layer-wise inference.
    pub(crate) fn scored_from(&self) -> &Neighborhoods {
        self.scored_from.as_ref().unwrap_or(&self.neighborhoods)
    }

    /// Batches that the device samples; `None` where the host does.
    fn batches_of_device<'a>(
        &'a self,
        backend: &'a B,
        config: &TrainConfig,
    ) -> Result<Option<DeviceBatches<'a, B>>, TrainError> {
        let Some(graph) = self.on_device.as_ref().filter(|_| self.draws_batches) else { return Ok(None) };
        let sampler = neighbor_sampler(config, &self.neighborhoods, self.in_place)?;
        let source = graph.source(backend, &sampler, config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE))?;
        let loader = self.whole(None).read_by().map(|read| FeatureLoader::new(backend, read).for_sums(self.sums));
        let is_ahead = config.batch.prefetch > 0;
        Ok(source.map(|source| DeviceBatches::new(source, loader, is_ahead)))
    }

    /// Features and labels from which batches take their rows.
    pub(crate) fn whole<'a>(&'a self, labels: Option<&'a Labels>) -> FeatureSource<'a, B> {
        let features = self.inputs.features.as_ref().expect("raw features were asked for");
        FeatureSource { features, sparse: self.sparse.as_ref(), reader: self.reader.as_deref(), labels }
    }
}

/// Data and targets of a node classifier on mini-batches.
pub(crate) struct Prepared<B: Backend> {
    batch_data: MiniBatchData<B>,
    scoring: Scoring<B>,
    labels: Labels,
    splits: Vec<Split>,
    dims: Dims,
    clusters: Option<Arc<ClusterSampler>>,
}

/// Targets of scores.
enum Scoring<B: Backend> {
    /// Targets of all nodes.
    Graph(Targets<B>),
    /// Nodes of each split, whose logits are computed layer by layer.
    Layers(Vec<SplitNodes<B>>),
}

impl<B: Backend> Prepared<B> {
    /// Data for one device, or for one of several. Cluster batches use the given
    /// [clusters](crate::BatchConfig::cluster_sampler), or compute them.
    pub(crate) fn new(
        backend: &B,
        dataset: Dataset,
        config: &TrainConfig,
        (n_devices, clusters): (usize, Option<Arc<ClusterSampler>>),
    ) -> Result<Self, TrainError> {
        let dims = Dims::of(&dataset);
        let Trainable { dataset, features, labels } = Trainable::check(dataset, config)?;
        let (model, _) = build_model(backend, config, dims, 0, None)?;
        let by_layers = scores_by_layers(config, &*model)?;
        let (input_spec, splits) = (model.input_spec(), dataset.splits);
        let scoring = if by_layers {
            let nodes = |split| SplitNodes::new(backend, &labels, split);
            Scoring::Layers(splits.iter().map(nodes).collect::<Result<_, _>>()?)
        } else {
            Scoring::Graph(Targets::upload(backend, &labels)?)
        };
        let seeds = splits.first().map_or(&[][..], |split| &split.train);
        let clusters = match clusters {
            None => config.batch.cluster_sampler(&dataset.graph)?,
            found => found,
        };
        let data_use = DataUse { seeds, n_devices, by_layers };
        let batch_data = MiniBatchData::new(backend, dataset.graph, features, &input_spec, config, data_use)?;
        Ok(Self { batch_data, scoring, labels, splits, dims, clusters })
    }

    /// Report on the placement, empty if devices have all data.
    pub(crate) fn tiers(&self) -> &[CacheReport] {
        &self.batch_data.tiers
    }

    /// Run at its start; with several ranks, on one rank of `world`.
    pub(crate) fn run<'a>(
        &'a self,
        backend: &'a B,
        config: &'a TrainConfig,
        run: u64,
        world: Option<&'a dyn Collective<B>>,
    ) -> Result<MiniBatch<'a, B>, TrainError> {
        let at = run as usize % self.splits.len();
        let split = &self.splits[at];
        let (model, params) = build_model(backend, config, self.dims, run, None)?;
        let inputs = &self.batch_data.inputs;
        let scorer: Box<dyn Scorer<'a, B> + 'a> = match &self.scoring {
            Scoring::Graph(targets) => {
                let task = Task::new(backend, &self.labels, targets, split)?;
                Box::new(Classifier { inputs, task, model })
            }
            Scoring::Layers(splits) => {
                let SplitNodes { nodes, labels, targets, split } = &splits[at];
                let layers = Layerwise::new(&self.batch_data, &nodes[..]).among(world);
                let task = Task::new(backend, labels, targets, split)?;
                Box::new(LayerwiseClassifier { layers, classifier: Classifier { inputs, task, model } })
            }
        };
        let rank = world.map_or((0, 1), |world| (world.rank(), world.size()));
        let (nodes, batch_data) = ((&self.labels, &split.train[..]), &self.batch_data);
        let (neighborhoods, adjacency) = (&batch_data.neighborhoods, batch_data.adjacency);
        let options =
            BatchOptions { config, clusters: self.clusters.clone(), run, in_place: batch_data.in_place, rank };
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
}

/// Features in host memory, with the hot ones also on the device.
fn host_features<B: Backend>(
    backend: &B,
    rows: &Matrix,
    config: &TrainConfig,
    placement: &Placement,
) -> Result<HostFeatures<B>, TrainError> {
    let sizes = HostRowSizes {
        n_rows: rows.n_rows(),
        row_bytes: rows.n_cols() * config.precision.n_bytes(),
        // Rounded once, unless they are read from a mapped file.
        are_copied: config.precision != Dtype::F32 && !rows.buffer().is_mapped(),
    };
    backend.host_features(rows, config.precision, (placement, host_reads(config, placement, &sizes)))?.ok_or_else(
        || {
            TrainError::invalid(format!(
                "--feature-cache has no effect on {}, which reads host memory directly: leave it out",
                backend.name()
            ))
        },
    )
}

/// Access to host rows. The devices of a placement share the threads of this process.
fn host_reads(config: &TrainConfig, placement: &Placement, rows: &HostRowSizes) -> HostReads {
    let host = HostMeans::here(rayon::current_num_threads(), placement.n_cards());
    let chosen = config.tiers.host_reads.chosen(rows, &host);
    tracing::debug!("on the host {rows:?}, for each device {host:?}: {chosen}");
    chosen
}

/// Codes that the device decodes; `None` where it does not.
fn code_rows<B: Backend>(
    backend: &B,
    codes: &CompressedFeatures,
    config: &TrainConfig,
    placement: Option<&Placement>,
) -> Result<Option<Box<dyn FeatureStore<B>>>, TrainError> {
    let sizes = HostRowSizes { n_rows: codes.n_rows(), row_bytes: codes.codec().row_bytes(), are_copied: false };
    let placed = placement.map(|placement| (placement, host_reads(config, placement, &sizes)));
    let reader = backend.code_rows(codes, config.precision, placed)?;
    if reader.is_some() {
        check_codes(codes)?;
    }
    Ok(reader)
}

/// Refuses invalid codes: devices do not check that a position is a column.
///
/// # Errors
/// When a position is not a column.
pub(super) fn check_codes(codes: &CompressedFeatures) -> Result<(), TrainError> {
    codes.check_codes().map_err(|error| TrainError::invalid(error.to_string()))
}

/// Input spec of a model on mini-batches: raw features, from which each batch takes its rows.
pub(crate) fn raw(input_spec: &InputSpec) -> InputSpec {
    InputSpec { raw_features: true, propagation: Propagation::Never, ..*input_spec }
}

/// Adjacency that samplers draw from. A cluster is a graph of its own, with its own self loops and degrees.
fn drawn_from(config: &TrainConfig, adjacency: Adjacency) -> Adjacency {
    match config.batch.kind {
        BatchKind::Cluster => Adjacency { self_loops: false, norm: Norm::None, ..adjacency },
        _ => adjacency,
    }
}

/// Whether the first layer aggregates raw features, so that it needs only sums of them. `Some(true)` if it also reads
/// rows of destinations.
pub(super) fn summed(config: &TrainConfig, input_spec: &InputSpec) -> Option<bool> {
    reads_in_place(config, input_spec).then_some(input_spec.raw_features)
}

/// Whether the first layer aggregates raw features, so that the rows of its sources need not be gathered.
pub(crate) fn reads_in_place(config: &TrainConfig, input_spec: &InputSpec) -> bool {
    config.batch.kind == BatchKind::Neighbor && input_spec.hops > 0 && config.model.input_dropout() == 0.0
}
