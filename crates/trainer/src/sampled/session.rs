//! What all runs on mini-batches share.

use girih_comm::Collective;
use girih_compress::CompressedFeatures;
use girih_compute::{Backend, Dtype, FarRows, NeighborOperand, RowReader};
use girih_datasets::{Dataset, Features, Labels, Split};
use girih_graph_format::{Csr, Matrix, NodeId};
use girih_tiers::Placement;

use super::batch::Whole;
use super::batches::neighbor_sampler;
use super::device::DeviceBatches;
use super::tiers::{Placements, check_features};
use super::{Batches, MiniBatch, Neighborhoods};
use crate::TrainError;
use crate::batching::{BatchKind, DEFAULT_BATCH_SIZE};
use crate::classifier::{Classifier, Task};
use crate::config::{TaskKind, TrainConfig};
use crate::encoded::EncodedInput;
use crate::inputs::{Adjacency, FeatureInput, Inputs, Needs, Propagation, upload_adjacency};
use crate::models::Dims;
use crate::session::{Trainable, build_model};
use crate::state::RunState;
use crate::targets::Targets;

/// Graph and features, on the device for scores and for the rows that batches read, on the host for samplers.
pub(crate) struct Material<B: Backend> {
    pub(crate) inputs: Inputs<B>,
    pub(crate) neighborhoods: Neighborhoods,
    pub(crate) adjacency: Adjacency,
    /// The features on the host, where they are sparse.
    sparse: Option<Csr>,
    /// Whether first layers read features where they lie.
    pub(crate) in_place: bool,
    /// Features that the device reads by id, where they are no matrix of its own.
    reader: Option<Box<dyn RowReader<B>>>,
    /// Where neighbours lie that the device draws from; `None`: all on the device.
    topology: Option<Placement>,
}

impl<B: Backend> Material<B> {
    /// Of a graph for a model with these needs; batches are of some `seeds`, on so many devices.
    ///
    /// # Errors
    /// When the model reads no neighbours, or the device's memory does not suffice.
    pub(crate) fn new(
        backend: &B,
        graph: Csr,
        features: Features,
        needs: &Needs,
        config: &TrainConfig,
        (seeds, n_devices): (&[NodeId], usize),
    ) -> Result<Self, TrainError> {
        check_features(&features, config)?;
        let adjacency = needs.graph.ok_or_else(|| {
            TrainError::invalid(format!("the model {} reads no neighbours to sample", config.model.kind.name()))
        })?;
        let neighborhoods = Neighborhoods::new(&graph, drawn_from(config, adjacency));
        let sparse = match &features {
            Features::Sparse(csr) => Some(csr.clone()),
            Features::Dense(_) | Features::Compressed(_) => None,
        };
        let by_device = sampled_by_device(config);
        let Placements { features: placement, topology } =
            Placements::new(&neighborhoods, seeds, config, by_device.then_some(n_devices))?;
        let (inputs, reader) = match (&placement, &features) {
            (Some(placement), Features::Dense(rows)) => {
                let FarRows { reader, on_host } = far_rows(backend, rows, config.precision, placement)?;
                let rows = FeatureInput::Encoded(EncodedInput::new(on_host, config.precision));
                let (n_nodes, graph) = (graph.n_rows(), upload_adjacency(backend, graph, adjacency)?);
                (Inputs::assemble(backend, Some(graph), rows, n_nodes, &raw(needs), config.precision)?, Some(reader))
            }
            (placement, features_of) => {
                let reader = match features_of {
                    Features::Compressed(codes) if by_device => code_rows(backend, codes, config, placement.as_ref())?,
                    _ => None,
                };
                (Inputs::prepare(backend, graph, features, &raw(needs), config.precision)?, reader)
            }
        };
        let is_dense = matches!(inputs.features, Some(FeatureInput::Dense(_)));
        let in_place = is_dense && reads_in_place(config, needs);
        Ok(Self { inputs, neighborhoods, adjacency, sparse, in_place, reader, topology })
    }

    /// What the device makes batches of seeds with, if it samples by itself. Rows that the host decodes or picks are named by
    /// the host.
    fn on_device<'a>(
        &'a self,
        backend: &'a B,
        config: &TrainConfig,
    ) -> Result<Option<DeviceBatches<'a, B>>, TrainError> {
        let names_rows = self.reader.is_some() || matches!(self.inputs.features, Some(FeatureInput::Dense(_)));
        let source = if sampled_by_device(config) && names_rows {
            let sampler = neighbor_sampler(config, &self.neighborhoods, self.in_place)?;
            let batch_size = config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
            let operand = NeighborOperand { placement: self.topology.as_ref(), ..self.neighborhoods.operand() };
            backend.neighbors(&operand, &sampler, batch_size)?
        } else {
            None
        };
        if source.is_none() && self.topology.is_some() {
            return Err(TrainError::invalid(format!(
                "tiers of the topology are for a device that samples by itself, and {} does not, or not with these features; leave \
                 them out",
                backend.name()
            )));
        }
        let is_ahead = config.batch.prefetch > 0;
        Ok(source.map(|source| DeviceBatches::new(source, (self.whole(None), backend), is_ahead)))
    }

    /// What batches take their rows from.
    pub(crate) fn whole<'a>(&'a self, labels: Option<&'a Labels>) -> Whole<'a, B> {
        let features = self.inputs.features.as_ref().expect("raw features were asked for");
        Whole { features, sparse: self.sparse.as_ref(), reader: self.reader.as_deref(), labels }
    }
}

/// What is classified on batches.
pub(crate) struct Prepared<B: Backend> {
    material: Material<B>,
    targets: Targets<B>,
    labels: Labels,
    splits: Vec<Split>,
    dims: Dims,
}

impl<B: Backend> Prepared<B> {
    /// For one device, or one of several.
    pub(crate) fn new(
        backend: &B,
        dataset: Dataset,
        config: &TrainConfig,
        n_devices: usize,
    ) -> Result<Self, TrainError> {
        let dims = Dims::of(&dataset);
        let Trainable { dataset, features, labels } = Trainable::check(dataset, config)?;
        let needs = build_model(backend, config, dims, 0, None)?.0.needs();
        let targets = Targets::upload(backend, &labels)?;
        let seeds = dataset.splits.first().map_or(&[][..], |split| &split.train);
        let material = Material::new(backend, dataset.graph, features, &needs, config, (seeds, n_devices))?;
        Ok(Self { material, targets, labels, splits: dataset.splits, dims })
    }

    /// A run at its start; of several ranks, one of those of `world`.
    pub(crate) fn run<'a>(
        &'a self,
        backend: &'a B,
        config: &'a TrainConfig,
        run: u64,
        world: Option<&'a dyn Collective<B>>,
    ) -> Result<MiniBatch<'a, B>, TrainError> {
        let split = &self.splits[run as usize % self.splits.len()];
        let task = Task::new(backend, &self.labels, &self.targets, split)?;
        let (model, params) = build_model(backend, config, self.dims, run, None)?;
        let rank = world.map_or((0, 1), |world| (world.rank(), world.size()));
        let (nodes, material) = ((&self.labels, &split.train[..]), &self.material);
        let (neighborhoods, adjacency) = (&material.neighborhoods, material.adjacency);
        let batches = Batches::new(neighborhoods, adjacency, nodes, config, (run, material.in_place), rank)?;
        let state = RunState::new(backend, config, &config.optimizer, params, run)?;
        let scorer = Box::new(Classifier { inputs: &material.inputs, task, model });
        let run = MiniBatch::new(state, batches, material.whole(Some(&self.labels)), scorer, world);
        Ok(run.sampled_by(material.on_device(backend, config)?))
    }
}

/// Features in memory of the host, and some of them on the device, too.
fn far_rows<B: Backend>(
    backend: &B,
    rows: &Matrix,
    precision: Dtype,
    placement: &Placement,
) -> Result<FarRows<B>, TrainError> {
    backend.far_rows(rows, precision, placement)?.ok_or_else(|| {
        TrainError::invalid(format!(
            "a feature cache is for a device with memory of its own, and {} reads features where they are; leave it out",
            backend.name()
        ))
    })
}

/// Codes as the device decodes them, if it does.
fn code_rows<B: Backend>(
    backend: &B,
    codes: &CompressedFeatures,
    config: &TrainConfig,
    placement: Option<&Placement>,
) -> Result<Option<Box<dyn RowReader<B>>>, TrainError> {
    let reader = backend.code_rows(codes, config.precision, placement)?;
    if reader.is_some() {
        // Devices do not ask whether a position is a column.
        codes.check_codes().map_err(|error| TrainError::invalid(error.to_string()))?;
    }
    Ok(reader)
}

/// Whether a device that can makes the batches of these settings by itself: not draws that meet, and not those for links, which leave
/// out what they ask about.
pub(crate) fn sampled_by_device(config: &TrainConfig) -> bool {
    config.batch.kind == BatchKind::Neighbor && !config.batch.replace && config.task != TaskKind::Links
}

/// What a model needs when steps see mini-batches: features as they are, from which each batch takes its rows.
pub(crate) fn raw(needs: &Needs) -> Needs {
    Needs { raw_features: true, propagation: Propagation::Never, ..*needs }
}

/// The adjacency that samplers draw from. A cluster is a graph of its own, and gets its self loops as such.
fn drawn_from(config: &TrainConfig, adjacency: Adjacency) -> Adjacency {
    match config.batch.kind {
        BatchKind::Cluster => Adjacency { self_loops: false, ..adjacency },
        _ => adjacency,
    }
}

/// Whether the first layer aggregates features as they are, so that it need not have the rows of its sources gathered.
pub(crate) fn reads_in_place(config: &TrainConfig, needs: &Needs) -> bool {
    config.batch.kind == BatchKind::Neighbor && needs.hops > 0 && config.model.input_dropout() == 0.0
}
