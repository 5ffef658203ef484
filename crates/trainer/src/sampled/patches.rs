//! [`Held`]: graph and features of which every rank holds a patch, and what it makes its share of batches of.
//!
//! ```text
//! seeds of the patch ──frontiers to owners, draws back──▶ blocks ──ids to owners, rows back──▶ rows of features
//!                     RankGraph, hop by hop                          RankRows
//! ```
//! All ranks make a batch together: `together.rs` says how they do so ahead of the step. Sampling and loading have a communicator each,
//! so that one batch may be sampled while rows of the one before it are fetched and a step adds up gradients.
//!
//! Ranks whose devices sample by themselves exchange the same between these instead, or read it where it is, whichever is faster
//! (`patch_devices.rs`), and leave batches where they are used (`device.rs`).

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use girih_collective_sampling::{CollectiveError, RankGraph, RankRows};
use girih_comm::{CardTransport, Collective};
use girih_compress::{CodecSpec, CompressedFeatures};
use girih_compute::{Backend, Dtype, PatchRowsOperand};
use girih_datasets::{Features, Labels, NodeRows, Split};
use girih_graph_format::{Csr, Matrix, NodeId};
use girih_partition::Patches;
use girih_sampling::{DrawKey, LoaderOptions, MiniBatch as Sampled, NeighborSampler};

use super::batch::Whole;
use super::batches::neighbor_sampler;
use super::device::DeviceBatches;
use super::patch_devices::{PatchDevices, Trial};
use super::{Batches, MiniBatch, Neighborhoods, raw};
use crate::TrainError;
use crate::batching::{DEFAULT_BATCH_SIZE, ScoreBy};
use crate::classifier::{Classifier, Scored, Task};
use crate::config::TrainConfig;
use crate::distributed::{CutAdjacency, Ranks, numbers};
use crate::encoded::EncodedInput;
use crate::inputs::{Adjacency, FeatureInput, Inputs, Needs};
use crate::models::Dims;
use crate::session::build_model;
use crate::state::RunState;
use crate::targets::Targets;

/// What a rank holds: rows of its own nodes, and a few numbers for all.
pub(crate) struct Held<B: Backend> {
    ranks: Arc<Ranks<B>>,
    /// The graph in blocks and the features of own nodes, for scores.
    inputs: Inputs<B>,
    neighborhoods: Neighborhoods,
    adjacency: Adjacency,
    /// The features of own nodes, as they travel.
    features: Features,
    labels: Labels,
    targets: Targets<B>,
    splits: Vec<Split>,
    patches: Patches,
    precision: Dtype,
    /// Whether rows are stored as they travel where they are computed with.
    are_stored_so: bool,
    sampler: NeighborSampler,
    options: LoaderOptions,
    /// What frontiers and draws travel by, and rows of features.
    worlds: [Box<dyn Collective<B>>; 2],
}

/// Makes a rank's share of a batch, together with the others.
pub(crate) trait PatchSource: Send + Sync {
    /// The nodes of the rank's patch.
    fn own(&self) -> Range<NodeId>;

    /// How seeds become batches.
    fn options(&self) -> LoaderOptions;

    /// Blocks for some seeds; all ranks call it together, batch after batch.
    ///
    /// # Errors
    /// When a rank fails.
    fn sample(&self, seeds: &[NodeId], key: DrawKey) -> Result<Sampled, TrainError>;

    /// The features of the inputs of a batch; all ranks call it together, batch after batch.
    ///
    /// # Errors
    /// When a rank fails.
    fn load(&self, batch: &Sampled) -> Result<BatchRows, TrainError>;
}

/// The features of the inputs of a batch, row by row.
pub(crate) enum BatchRows {
    Dense(Matrix),
    Encoded(EncodedInput),
}

impl<B: Backend> Held<B> {
    /// What a rank holds of a graph, from the rows of its own nodes, of which those of `f32` travel as `wire`; all ranks call it
    /// together.
    ///
    /// # Errors
    /// When the model reads no neighbours, edges have weights, features are sparse, or a rank fails.
    pub(crate) fn new(
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        (rows, cut): (Csr, Option<Arc<CutAdjacency>>),
        nodes: NodeRows,
        needs: &Needs,
        (config, wire): (&TrainConfig, Dtype),
    ) -> Result<Self, TrainError> {
        let (Some(adjacency), Some(cut)) = (needs.graph, cut) else {
            let name = config.model.kind.name();
            return Err(TrainError::invalid(format!("the model {name} reads no neighbours to sample")));
        };
        let NodeRows { features, first_value, labels, splits } = nodes;
        let (features, labels) = (features.expect("checked"), labels.expect("checked"));
        check_patches_of(rows.values().is_some(), matches!(features, Features::Sparse(_)))?;
        let first = ranks.own().start as NodeId;
        let drawn = Neighborhoods::rows_to_draw(&rows, first, adjacency);
        let own_degrees: Vec<u32> = (0..drawn.n_rows()).map(|row| drawn.degree(row) as u32).collect();
        let all = ranks.join(bytemuck::cast_slice(&own_degrees))?;
        let degrees = all.iter().flat_map(|message| numbers(message).map(u32::from_le_bytes)).collect();
        let neighborhoods = Neighborhoods::of_patch(drawn, degrees, cut.scales(), adjacency);
        let own = (features.clone(), first_value);
        // What is stored as bf16 where it arrives need not travel as more.
        let features = match features {
            Features::Dense(_) if [wire, config.precision].contains(&Dtype::Bf16) => {
                features.encoded(CodecSpec::Bf16, 0)?
            }
            features => features,
        };
        let inputs = Inputs::of_rank(backend, Arc::clone(ranks), Some(cut), own, &raw(needs), config.precision)?;
        let patches = ranks.patches().expect("rows cut in one dimension are a patch a rank");
        let batch_size = config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
        let world = || ranks.world().split(0, ranks.rank());
        Ok(Self {
            worlds: [world()?, world()?],
            ranks: Arc::clone(ranks),
            inputs,
            adjacency,
            features,
            targets: Targets::upload(backend, &labels)?,
            labels,
            splits,
            patches,
            precision: config.precision,
            are_stored_so: wire == Dtype::F32 || config.precision == Dtype::Bf16,
            sampler: neighbor_sampler(config, &neighborhoods, false)?,
            neighborhoods,
            options: LoaderOptions { batch_size, ..LoaderOptions::default() },
        })
    }

    /// The way to what the others hold, between devices by the fastest of some transports; all ranks call it together. `seed` names draws.
    ///
    /// # Errors
    /// When a rank fails, or the device's memory does not suffice.
    pub(crate) fn patches(
        &self,
        backend: &B,
        transports: &[CardTransport],
        seed: u64,
    ) -> Result<Exchanged<'_, B>, TrainError> {
        let ([sampling, loading], rows) = (&self.worlds, self.neighborhoods.graph());
        let (features, row_bytes) = self.features.stored_rows().expect("sparse features were refused");
        let graph = RankGraph::new(&**sampling, &self.patches, rows, None)?;
        let rows = RankRows::new(&**loading, &self.patches, features, row_bytes)?;
        let (own, on_device) = (self.patches.range(self.ranks.rank()), self.on_device(backend, transports, seed)?);
        Ok(Exchanged { held: self, own, graph: Mutex::new(graph), rows: Mutex::new(rows), on_device })
    }

    /// What ranks make batches with whose devices sample and bring rows by themselves; all ranks call it together. Devices decode codes of
    /// a code book; the host decodes others, and brings rows that travel in fewer bytes than they are stored in.
    fn on_device(
        &self,
        backend: &B,
        transports: &[CardTransport],
        seed: u64,
    ) -> Result<Option<PatchDevices<B>>, TrainError> {
        let (own, n_columns) = match (&self.features, &self.inputs.features) {
            (_, Some(FeatureInput::Dense(own))) if self.are_stored_so => {
                (PatchRowsOperand::Dense(Arc::clone(own)), backend.shape(own).cols)
            }
            (Features::Compressed(codes), Some(FeatureInput::Encoded(_))) => {
                // Devices do not ask whether a position is a column.
                codes.check_codes().map_err(|error| TrainError::invalid(error.to_string()))?;
                (PatchRowsOperand::Codes(codes, self.precision), codes.width())
            }
            _ => return Ok(None),
        };
        let (world, patch) = (self.ranks.world(), self.neighborhoods.patch_operand(self.patches.bounds()));
        let all = PatchDevices::all(backend, world, &patch, (own, n_columns, self.precision), transports)?;
        let own = self.patches.range(self.ranks.rank());
        let (sampler, batch_size) = (&self.sampler, self.options.batch_size);
        let trial = Trial { backend, world, sampler, batch_size, own, seed };
        trial.fastest(all)
    }

    /// A run at its start; all ranks call it together.
    ///
    /// # Errors
    /// When no training node has a label, or a rank fails.
    pub(crate) fn run<'a>(
        &'a self,
        backend: &'a B,
        patches: &'a Exchanged<'_, B>,
        (config, dims): (&'a TrainConfig, Dims),
        run: u64,
    ) -> Result<MiniBatch<'a, B>, TrainError> {
        let split = &self.splits[run as usize % self.splits.len()];
        let task = Task::on_ranks(backend, &self.labels, &self.targets, split, Some(&*self.ranks))?;
        let first = patches.own().start;
        let here = split.train.iter().filter(|&&node| self.labels.is_labelled(node)).map(|node| first + node);
        let all = self.ranks.join(bytemuck::cast_slice(&here.collect::<Vec<NodeId>>()))?;
        let seeds = all.iter().flat_map(|message| numbers(message).map(NodeId::from_le_bytes)).collect();
        let (model, params) = build_model(backend, config, dims, run, None)?;
        let batches = Batches::of_patches(&self.neighborhoods, self.adjacency, patches, seeds, (config, run));
        let state = RunState::new(backend, config, &config.optimizer, params, run)?;
        let features = self.inputs.features.as_ref().expect("raw features were asked for");
        let whole = Whole { features, sparse: None, reader: None, labels: Some(&self.labels) };
        let scorer = Box::new(Classifier { scored: Scored::Graph(&self.inputs), task, model });
        let run = MiniBatch::new(state, batches, whole, scorer, Some(self.ranks.world()));
        Ok(run.sampled_by(patches.batches_of_device(backend, config)?))
    }
}

/// Refuses settings for ranks that hold all of graph and features.
///
/// # Errors
/// When there are some.
pub(crate) fn check_patches(config: &TrainConfig) -> Result<(), TrainError> {
    const PLACED: &str = "ranks hold rows of their patches where they compute, and no other memory does";
    let settings = [
        (config.tiers.features.is_some(), "a feature cache", PLACED),
        (config.tiers.topology.is_some(), "a topology cache", PLACED),
        (
            config.batch.score_by == Some(ScoreBy::Layers),
            "scores layer by layer",
            "ranks that hold patches score all nodes in one pass",
        ),
    ];
    match settings.iter().find(|(is_set, ..)| *is_set) {
        None => Ok(()),
        Some((_, setting, why)) => Err(TrainError::invalid(format!(
            "{setting} cannot be had with patches: {why}; leave it out, or hold the graph whole: --layout replicated"
        ))),
    }
}

/// Refuses data of which ranks cannot hold patches.
///
/// # Errors
/// When it has weights of edges, or sparse features.
pub(crate) fn check_patches_of(has_weights: bool, has_sparse_features: bool) -> Result<(), TrainError> {
    if has_weights {
        return Err(TrainError::invalid(
            "edges have weights, which draws from patches do not bring along; hold the graph whole: --layout replicated",
        ));
    }
    if has_sparse_features {
        return Err(TrainError::invalid(
            "features are sparse, and only rows of a fixed size travel; store them as dense rows or with --codec, or hold \
             them whole: --layout replicated",
        ));
    }
    Ok(())
}

/// A rank's rows, and the way to those of others.
pub(crate) struct Exchanged<'h, B: Backend> {
    held: &'h Held<B>,
    own: Range<NodeId>,
    graph: Mutex<RankGraph<'h, B>>,
    rows: Mutex<RankRows<'h, B>>,
    on_device: Option<PatchDevices<B>>,
}

impl<B: Backend> Exchanged<'_, B> {
    /// What devices make batches with, if they sample by themselves as these settings want it.
    fn batches_of_device<'a>(
        &'a self,
        backend: &'a B,
        config: &TrainConfig,
    ) -> Result<Option<DeviceBatches<'a, B>>, TrainError> {
        let of_batches = (&self.held.sampler, self.held.options.batch_size);
        let batches = |devices: &'a PatchDevices<B>| devices.batches(backend, of_batches, config.batch.prefetch > 0);
        let batches = self.on_device.as_ref().map_or(Ok(None), batches)?;
        if batches.is_none() && backend.has_own_memory() {
            tracing::debug!(
                "the host samples batches of patches and brings their rows: the device does not draw so, or not read such rows"
            );
        }
        Ok(batches)
    }
}

impl<B: Backend> PatchSource for Exchanged<'_, B> {
    fn own(&self) -> Range<NodeId> {
        self.own.clone()
    }

    fn options(&self) -> LoaderOptions {
        self.held.options
    }

    fn sample(&self, seeds: &[NodeId], key: DrawKey) -> Result<Sampled, TrainError> {
        let (mut graph, mut batch) = (self.graph.lock().unwrap_or_else(PoisonError::into_inner), Sampled::default());
        self.held.sampler.sample_from(&mut *graph, seeds, key, &mut batch)?;
        Ok(batch)
    }

    fn load(&self, batch: &Sampled) -> Result<BatchRows, TrainError> {
        let (mut rows, mut bytes) = (self.rows.lock().unwrap_or_else(PoisonError::into_inner), Vec::new());
        rows.gather(batch.inputs(), &mut bytes)?;
        self.held.read(bytes)
    }
}

impl<B: Backend> Held<B> {
    /// Rows of features from their bytes.
    fn read(&self, bytes: Vec<u8>) -> Result<BatchRows, TrainError> {
        Ok(match &self.features {
            Features::Dense(own) => {
                let values: Vec<f32> = numbers(&bytes).map(f32::from_le_bytes).collect();
                BatchRows::Dense(Matrix::new(values.len() / own.n_cols().max(1), own.n_cols(), values)?)
            }
            Features::Compressed(own) => BatchRows::Encoded(self.encoded(own, bytes)?),
            Features::Sparse(_) => unreachable!("refused before"),
        })
    }

    fn encoded(&self, own: &CompressedFeatures, codes: Vec<u8>) -> Result<EncodedInput, TrainError> {
        let rows = own.of_codes(codes).map_err(|error| TrainError::invalid(error.to_string()))?;
        Ok(EncodedInput::new(Arc::new(rows), self.precision))
    }
}

impl From<CollectiveError> for TrainError {
    fn from(error: CollectiveError) -> Self {
        match error {
            CollectiveError::Comm(error) => error.into(),
            CollectiveError::Sample(error) => error.into(),
            error => Self::invalid(error.to_string()),
        }
    }
}
