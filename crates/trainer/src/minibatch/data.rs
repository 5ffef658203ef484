//! [`MiniBatchData`]: graph and features of mini-batches, for any task.

use girih_compress::CompressedFeatures;
use girih_compute::{Backend, Dtype};
use girih_datasets::{Features, Labels};
use girih_features::{
    FeatureStore, HostFeatures, HostMeans, HostReads, HostRowSizes, MiniBatchBackend, NeighborGraph, NeighborOperand,
    Placement,
};
use girih_graph_format::{Csr, Matrix, NodeId};

use super::batch::{FeatureSource, WholeGraph};
use super::batches::neighbor_sampler;
use super::device::{DeviceBatches, FeatureLoader};
use super::neighborhoods::Neighborhoods;
use super::policy::{check_codes, drawn_from, no_neighbors, raw, reads_in_place, summed};
use super::tiers::{Placements, check_features};
use crate::TrainError;
use crate::config::{DEFAULT_BATCH_SIZE, TrainConfig, sampled_by_device};
use crate::data::{NodeFeatures, upload_adjacency};
use crate::engine::CacheReport;
use crate::layers::{FeatureInput, Inputs};
use crate::models::{Adjacency, InputSpec};
use crate::tape::EncodedInput;

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
    pub(super) tiers: Vec<CacheReport>,
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
    /// Whether the host samples whatever the device could: the model brings a sampler.
    pub(crate) host_samples: bool,
}

impl<B: MiniBatchBackend> MiniBatchData<B> {
    /// Data of a graph for a model with this input spec.
    ///
    /// # Errors
    /// When the model reads no neighbors, or the device's memory does not suffice.
    pub(crate) fn new(
        backend: &B,
        graph: Csr,
        features: NodeFeatures,
        input_spec: &InputSpec,
        config: &TrainConfig,
        DataUse { seeds, n_devices, by_layers, host_samples }: DataUse<'_>,
    ) -> Result<Self, TrainError> {
        let NodeFeatures::Given(features) = features else {
            return Self::of_learned(backend, graph, input_spec, config, by_layers);
        };
        check_features(&features, config)?;
        let adjacency = input_spec.graph.ok_or_else(|| no_neighbors(config))?;
        let drawn_from = drawn_from(config, adjacency);
        let neighborhoods = Neighborhoods::new(&graph, drawn_from)?;
        let scores_other = by_layers && drawn_from != adjacency;
        let scored_from = scores_other.then(|| Neighborhoods::new(&graph, adjacency)).transpose()?;
        let sums = summed(config, input_spec);
        let input_spec = &if by_layers { InputSpec { graph: None, ..raw(input_spec) } } else { raw(input_spec) };
        let sparse = features.as_sparse().cloned();
        let by_device = !host_samples && sampled_by_device(config);
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
        let adjacency = input_spec.graph.ok_or_else(|| no_neighbors(config))?;
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
    pub(super) fn batches_of_device<'a>(
        &'a self,
        backend: &'a B,
        config: &TrainConfig,
    ) -> Result<Option<DeviceBatches<'a, B>>, TrainError> {
        let Some(graph) = self.on_device.as_ref().filter(|_| self.draws_batches) else { return Ok(None) };
        let sampler = neighbor_sampler(config, &self.neighborhoods, self.in_place)?;
        let source = graph.source(backend, &sampler, config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE))?;
        let loader = self.features().read_by().map(|read| FeatureLoader::new(backend, read).for_sums(self.sums));
        let is_ahead = config.batch.prefetch > 0;
        Ok(source.map(|source| DeviceBatches::new(source, loader, is_ahead)))
    }

    /// Features and labels from which batches take their rows.
    pub(crate) fn whole<'a>(&'a self, labels: Option<&'a Labels>) -> WholeGraph<'a, B> {
        WholeGraph { features: Some(self.features()), types: Vec::new(), labels }
    }

    /// Features from which batches take their rows.
    pub(crate) fn features(&self) -> FeatureSource<'_, B> {
        let features = self.inputs.features.as_ref().expect("raw features were asked for");
        FeatureSource { features, sparse: self.sparse.as_ref(), reader: self.reader.as_deref() }
    }
}

/// Features in host memory, with the hot ones also on the device.
fn host_features<B: MiniBatchBackend>(
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
    let host = HostMeans::here(rayon::current_num_threads(), placement.n_gpus());
    let chosen = config.tiers.host_reads.chosen(rows, &host);
    tracing::debug!("on the host {rows:?}, for each device {host:?}: {chosen}");
    chosen
}

/// Codes that the device decodes; `None` where it does not.
pub(super) fn code_rows<B: MiniBatchBackend>(
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
