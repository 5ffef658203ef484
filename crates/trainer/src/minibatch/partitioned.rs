//! [`PatchData`]: the data of ranks that each hold a patch of graph and features, or of features alone. A rank makes its
//! share of batches from it.
//!
//! ```text
//! seeds of the patch ──frontiers to owners, draws back──▶ blocks ──ids to owners, rows back──▶ rows of features
//!                     RankGraph, hop by hop                          RankRows
//! ```
//! All ranks make a batch together; `prefetch.rs` does so ahead of the step. Sampling and loading each have a
//! communicator of their own. One batch can thus be sampled while rows of the previous one are fetched and a step
//! sums gradients.
//!
//! Devices that sample by themselves exchange frontiers, draws and rows directly, or read them in place, whichever is
//! faster (`partitioned/devices.rs`). Their batches stay on the device (`device.rs`).
//!
//! With [`GraphPlacement::SplitFeatures`] the whole graph is on every rank, and each samples by itself. Devices can
//! then cache the hottest features, and hosts hold the others (`partitioned/split_rows.rs`).

mod checks;
pub(crate) mod devices;
mod exchange;
pub(crate) mod split_rows;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use girih_collective_sampling::{RankGraph, RankRows, SpareReplies};
use girih_comm::{Collective, GpuTransport};
use girih_compress::CodecSpec;
use girih_compute::{Backend, Dtype};
use girih_datasets::{Features, Labels, NodeRows, Split};
use girih_features::{
    ByTransport, MiniBatchBackend, NeighborGraph, NeighborOperand, PatchRowsOperand, Placement, SplitRows, StoredAs,
};
use girih_graph_format::{Csr, NodeId};
use girih_partition::Patches;
use girih_sampling::{LoaderOptions, NeighborSampler};

use self::devices::{DrawnFrom, PatchDevices, PatchFeatures, Trial};
use self::exchange::Exchanged;
use self::split_rows::RowsOfRanks;
use super::batch::{FeatureSource, WholeGraph};
use super::batches::neighbor_sampler;
use super::host_batch::PatchSource;
use super::policy::{check_codes, no_neighbors, summed};
use super::tiers::Placements;
use super::{Batches, MiniBatch, Neighborhoods, raw};
use crate::TrainError;
use crate::config::{DEFAULT_BATCH_SIZE, GraphPlacement, TrainConfig};
use crate::data::PartitionedAdjacency;
use crate::engine::{CacheReport, ModelSource, RunState};
use crate::layers::{FeatureInput, Inputs};
use crate::models::{Adjacency, InputSpec};
use crate::tape::ranks::Ranks;
use crate::tape::{EncodedInput, Targets};
use crate::tasks::nodes::{Classifier, Task};

pub(crate) use self::checks::check_patches_of;

/// Data of a rank: rows of its own nodes, and a few numbers for all nodes.
pub(crate) struct PatchData<B: Backend> {
    ranks: Arc<Ranks<B>>,
    /// Blocks of the graph and features of own nodes, for scores.
    inputs: Inputs<B>,
    neighborhoods: Neighborhoods,
    adjacency: Adjacency,
    /// Features of own nodes, in the form in which they are sent.
    features: Features,
    labels: Labels,
    targets: Targets<B>,
    splits: Vec<Split>,
    patches: Patches,
    precision: Dtype,
    /// Whether the device stores rows in the form in which they are sent.
    are_stored_so: bool,
    /// Placement of features and graph rows on devices, for data that are not whole on each.
    placements: Placements,
    /// Set if first layers aggregate raw features. `Some(true)` if they also read the rows of destinations.
    sums: Option<bool>,
    sampler: NeighborSampler,
    options: LoaderOptions,
    /// Communicators: one for frontiers and draws, one for rows of features.
    worlds: [Arc<dyn Collective<B>>; 2],
}

/// Settings of the data of a rank.
#[derive(Clone, Copy)]
pub(crate) struct PatchOptions<'c> {
    pub(crate) config: &'c TrainConfig,
    /// Type in which `f32` features are sent.
    pub(crate) wire: Dtype,
    /// Division of graph and features over ranks.
    pub(crate) layout: GraphPlacement,
}

impl<B: MiniBatchBackend> PatchData<B> {
    /// Data of a rank, from its rows of the graph and the data of its own nodes. All ranks call it together.
    ///
    /// # Errors
    /// When the model reads no neighbors, such data cannot be partitioned, or a rank fails.
    pub(crate) fn new(
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        (rows, cut): (Csr, Option<Arc<PartitionedAdjacency>>),
        nodes: NodeRows,
        input_spec: &InputSpec,
        PatchOptions { config, wire, layout }: PatchOptions<'_>,
    ) -> Result<Self, TrainError> {
        let (Some(adjacency), Some(cut)) = (input_spec.graph, cut) else {
            return Err(no_neighbors(config));
        };
        let NodeRows { features, first_value, labels, splits } = nodes;
        let (own, labels) = (features.expect("checked"), labels.expect("checked"));
        check_patches_of(matches!(own, Features::Sparse(_)))?;
        let neighborhoods = match layout {
            GraphPlacement::SplitFeatures => Neighborhoods::new(&rows, adjacency)?,
            GraphPlacement::Patches | GraphPlacement::Replicated => patch(ranks, &rows, &cut, adjacency)?,
        };
        // Rows that the receiver stores as bf16 need not be sent in a wider type.
        let features = match &own {
            Features::Dense(_) if [wire, config.precision].contains(&Dtype::Bf16) => {
                own.clone().encoded(CodecSpec::Bf16, 0)?
            }
            own => own.clone(),
        };
        let first = ranks.own().start as NodeId;
        let of_placements =
            if config.tiers.is_default() { Vec::new() } else { seeds(ranks, first, &splits[0], &labels)? };
        let row_bytes = features.stored_rows().expect("sparse features were refused").1;
        let placements = Placements::new(&neighborhoods, (&of_placements, row_bytes), config, Some(1))?;
        let (ranks, raw, precision) = (Arc::clone(ranks), &raw(input_spec), config.precision);
        let inputs = match (own, &placements.features) {
            (Features::Dense(own), Some(_)) => {
                let on_host = FeatureInput::Encoded(EncodedInput::new(Arc::new(own), precision));
                Inputs::of_rank_with(backend, Arc::clone(&ranks), Some(cut), on_host, raw, precision)?
            }
            (own, _) => Inputs::of_rank(backend, Arc::clone(&ranks), Some(cut), (own, first_value), raw, precision)?,
        };
        let patches = ranks.patches().expect("rows cut in one dimension are a patch a rank");
        let batch_size = config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
        let world = || ranks.world().split(0, ranks.rank()).map(Arc::from);
        Ok(Self {
            worlds: [world()?, world()?],
            inputs,
            adjacency,
            features,
            targets: Targets::upload(backend, &labels)?,
            labels,
            splits,
            patches,
            precision,
            are_stored_so: wire == Dtype::F32 || precision == Dtype::Bf16,
            placements,
            sums: summed(config, input_spec),
            sampler: neighbor_sampler(config, &neighborhoods, false)?,
            neighborhoods,
            options: LoaderOptions { batch_size, ..LoaderOptions::default() },
            ranks,
        })
    }

    /// Report on data that are not whole on devices.
    pub(crate) fn tiers(&self) -> &[CacheReport] {
        &self.placements.shares
    }

    /// Connection to the data of the other ranks. Devices use the fastest of some transports. All ranks call it
    /// together. `seed` keys the draws of the trial.
    ///
    /// # Errors
    /// When a rank fails, or the device's memory does not suffice.
    pub(crate) fn patches(
        &self,
        backend: &B,
        transports: &[GpuTransport],
        seed: u64,
    ) -> Result<Exchanged<'_, B>, TrainError> {
        let ([sampling, loading], rows) = (&self.worlds, self.neighborhoods.graph());
        let (features, row_bytes) = self.features.stored_rows().expect("sparse features were refused");
        let graph = match self.neighborhoods.is_whole() {
            true => None,
            false => Some(Mutex::new(RankGraph::new(&**sampling, &self.patches, rows, None)?)),
        };
        let rows = RankRows::new(&**loading, &self.patches, features, row_bytes)?;
        let (own, on_device) = (self.patches.range(self.ranks.rank()), self.on_device(backend, transports, seed)?);
        Ok(Exchanged { held: self, own, graph, rows: Mutex::new(rows), on_device })
    }

    /// Samplers and readers of devices that make batches by themselves; `None` where the host does. All ranks call it
    /// together.
    fn on_device(
        &self,
        backend: &B,
        transports: &[GpuTransport],
        seed: u64,
    ) -> Result<Option<PatchDevices<B>>, TrainError> {
        let patch;
        let graph = if self.neighborhoods.is_whole() {
            let placement = self.placements.topology.as_ref();
            let operand = NeighborOperand { placement, ..self.neighborhoods.operand() };
            let Some(graph) = backend.neighbor_graph(&operand)?.map(Arc::from) else { return Ok(None) };
            if let Some(hot) = &self.placements.features {
                return self.beside_hosts(backend, graph, hot).map(Some);
            }
            DrawnFrom::Whole(graph)
        } else if self.neighborhoods.needs_edge_ids() {
            // Devices do not fetch weights of edges.
            return Ok(None);
        } else {
            patch = self.neighborhoods.patch_operand(self.patches.bounds());
            DrawnFrom::Patches(&patch)
        };
        let Some((own, n_columns)) = self.own_on_device(backend)? else { return Ok(None) };
        let rows = PatchFeatures { own, bounds: self.patches.bounds(), result: (n_columns, self.precision) };
        let all = PatchDevices::all(backend, graph, rows, transports)?;
        self.fastest(backend, all, seed)
    }

    /// Devices with the fastest of several transports.
    fn fastest(
        &self,
        backend: &B,
        all: ByTransport<PatchDevices<B>>,
        seed: u64,
    ) -> Result<Option<PatchDevices<B>>, TrainError> {
        let (world, own) = (self.ranks.world(), self.patches.range(self.ranks.rank()));
        let (sampler, batch_size) = (&self.sampler, self.options.batch_size);
        let trial = Trial { backend, world, sampler, batch_size, own, seed };
        Ok(trial.fastest(all)?.map(|(_, devices)| devices))
    }

    /// Own rows as the device has them, with their number of columns. Devices decode codes of a code book. The host
    /// decodes other codes, and converts rows that are sent in fewer bytes than they are stored in.
    fn own_on_device(&self, backend: &B) -> Result<Option<(PatchRowsOperand<'_, B>, usize)>, TrainError> {
        Ok(match (&self.features, &self.inputs.features) {
            (_, Some(FeatureInput::Dense(own))) if self.are_stored_so => {
                Some((PatchRowsOperand::Dense(Arc::clone(own)), backend.shape(own).cols))
            }
            (Features::Compressed(codes), Some(FeatureInput::Encoded(_))) => {
                check_codes(codes)?;
                Some((PatchRowsOperand::Codes(codes, self.precision), codes.width()))
            }
            _ => None,
        })
    }

    /// Sampler on the device's graph, with a reader that caches hot rows and fetches others from the hosts of all
    /// ranks.
    fn beside_hosts(
        &self,
        backend: &B,
        graph: Arc<dyn NeighborGraph<B>>,
        hot: &Placement,
    ) -> Result<PatchDevices<B>, TrainError> {
        let (stored, n_columns) = match &self.features {
            Features::Dense(own) => (StoredAs::Dense(own.n_cols(), Dtype::F32), own.n_cols()),
            Features::Compressed(codes) => {
                check_codes(codes)?;
                let is_bf16 = codes.codec().spec() == CodecSpec::Bf16 && self.precision == Dtype::Bf16;
                let dense = StoredAs::Dense(codes.width(), Dtype::Bf16);
                (if is_bf16 { dense } else { StoredAs::Codes(codes, self.precision) }, codes.width())
            }
            Features::Sparse(_) => unreachable!("refused before"),
        };
        let (world, patches, own) = (Arc::clone(&self.worlds[1]), self.patches.clone(), self.features.clone());
        let fetch = Box::new(RowsOfRanks { world, patches, own, spare: SpareReplies::default() });
        let rows = backend.split_rows(SplitRows { n_rows: self.patches.n_nodes(), stored, fetch }, hot)?;
        let rows = rows.ok_or_else(|| {
            TrainError::invalid(
                "--feature-cache cannot hold these features: other hosts send them as codes that only the host decodes, or \
                 rounded while training reads f32; leave it out, or give --codec topk:8 or --precision f32",
            )
        })?;
        Ok(PatchDevices { graph, rows, result: (n_columns, self.precision) })
    }

    /// Run at its start; all ranks call it together.
    ///
    /// # Errors
    /// When no training node has a label, or a rank fails.
    pub(crate) fn run<'a>(
        &'a self,
        backend: &'a B,
        patches: &'a Exchanged<'_, B>,
        source: &ModelSource<'a, B>,
        run: u64,
    ) -> Result<MiniBatch<'a, B>, TrainError> {
        let split = &self.splits[run as usize % self.splits.len()];
        let task = Task::on_ranks(backend, &self.labels, &self.targets, split, Some(&*self.ranks))?;
        let first = patches.own().start;
        let seeds = seeds(&self.ranks, first, split, &self.labels)?;
        let config = source.config;
        let (model, params) = source.build(backend, run, None)?;
        let batches = Batches::of_patches(&self.neighborhoods, self.adjacency, patches, seeds, (config, run));
        let state = RunState::new(backend, config, &config.optimizer, params, run)?;
        let features = self.inputs.features.as_ref().expect("raw features were asked for");
        let features = Some(FeatureSource { features, sparse: None, reader: None });
        let whole = WholeGraph { features, types: Vec::new(), labels: Some(&self.labels) };
        let scorer = Box::new(Classifier { inputs: &self.inputs, task, model });
        let run = MiniBatch::new(state, batches, whole, scorer, Some(self.ranks.world()));
        Ok(run.sampled_by(patches.batches_of_device(backend, config)?))
    }
}

/// Patch to sample from: the rank's rows, with the degrees and self-loop weights of all nodes. All ranks call it
/// together.
fn patch<B: Backend>(
    ranks: &Ranks<B>,
    rows: &Csr,
    cut: &PartitionedAdjacency,
    adjacency: Adjacency,
) -> Result<Neighborhoods, TrainError> {
    let first = ranks.own().start as NodeId;
    let drawn = Neighborhoods::rows_to_draw(rows, first, adjacency);
    let own_degrees: Vec<u32> = (0..drawn.n_rows()).map(|row| drawn.degree(row) as u32).collect();
    let of_rows = |nodes: Range<usize>| Some(nodes.len());
    let degrees = ranks.join_numbers("degrees", bytemuck::cast_slice(&own_degrees), of_rows)?;
    let loops = match adjacency.self_loops && rows.values().is_some() {
        true => {
            let own = Neighborhoods::own_loops(rows, first);
            Some(ranks.join_numbers("weights of loops", bytemuck::cast_slice(&own), of_rows)?)
        }
        false => None,
    };
    Ok(Neighborhoods::of_patch(drawn, (degrees, loops), cut.scales(), adjacency))
}

/// Labelled training nodes of all ranks. The ids of `split` count from `first`. All ranks call it together.
fn seeds<B: Backend>(
    ranks: &Ranks<B>,
    first: NodeId,
    split: &Split,
    labels: &Labels,
) -> Result<Vec<NodeId>, TrainError> {
    let here = split.train.iter().filter(|&&node| labels.is_labelled(node)).map(|node| first + node);
    let all = ranks.join(bytemuck::cast_slice(&here.collect::<Vec<NodeId>>()))?;
    let read = |(peer, (message, nodes)): (usize, (&Vec<u8>, Range<usize>))| {
        ranks.payload(peer, message, "seeds").ids(&(nodes.start as NodeId..nodes.end as NodeId))
    };
    Ok(all.iter().zip(ranks.peer_nodes()).enumerate().map(read).collect::<Result<Vec<_>, _>>()?.concat())
}
