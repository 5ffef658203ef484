//! [`Plan`]: memory and time of a training session, predicted before anything is loaded onto a device.
//!
//! A dry run executes one step and one evaluation on a [`Symbolic`] backend, with the code that will train.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use girih_comm::Traffic;
use girih_compress::CodecSpec;
use girih_compute::{Backend, Cost, Dtype, GpuRates, Rates, Shape, Symbolic};
use girih_datasets::{Dataset, Features, Interactions};
use girih_graph_format::Csr;
use girih_random::Key;

use crate::TrainError;
use crate::config::{TaskKind, TrainConfig};
use crate::distributed::{GraphPlacement, Ranks};
use crate::encoded::{EncodedInput, SymbolicRows};
use crate::graph::Graph;
use crate::inputs::{self, Adjacency, FeatureInput, InputSpec, Inputs, Propagation};
use crate::links::{LinkSizes, Pairs};
use crate::models::{Dims, Model};
use crate::optim::Optimizer;
use crate::params::{Gradients, ParamId, ParamInit};
use crate::recommend::{self, Batch};
use crate::sampled::{self, BatchPlan, CacheConfig, LayerCosts, LayerPlan, NODES_AT_ONCE, PlannedRows, RowsOnDevice};
use crate::session::build_network;
use crate::tape::{Loss, Mode, Pool, Tape, Var};
use crate::targets::{Part, Targets};

/// Bytes of a CUDA device that its software takes: the workspace of cuBLAS (up to 32 MiB) and the kernels' code.
const DEVICE_SOFTWARE_BYTES: u64 = 128 << 20;
/// Inverse of the largest share of a CUDA device's memory that fragmentation leaves unused.
const ALLOCATOR_LOSS_SHARE: u64 = 20;

/// Sizes of a data set, the only input of a plan besides the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSizes {
    /// Number of nodes.
    pub n_nodes: usize,
    /// Number of stored edges.
    pub n_edges: usize,
    /// Largest number of edges of a chunk of nodes in [layer-wise inference](crate::ScoreBy::Layers): the edges of the
    /// nodes with the most neighbours. A value below the average of such a chunk stands for that average.
    pub n_edges_at_once: usize,
    /// Whether edges carry weights.
    pub weighted: bool,
    /// Whether the adjacency equals its transpose.
    pub symmetric: bool,
    /// Number of features of a node.
    pub n_features: usize,
    /// Number of stored values of sparse features; `None` for dense ones.
    pub feature_nnz: Option<usize>,
    /// Bytes of a row of compressed features; `None` for uncompressed ones.
    pub code_bytes: Option<usize>,
    /// Whether compressed features are codes of a [code book](CodecSpec::has_book), which devices read directly.
    pub has_code_book: bool,
    /// Number of classes.
    pub n_classes: usize,
    /// Whether a node may have several labels.
    pub multi_label: bool,
    /// Number of training nodes.
    pub n_train: usize,
    /// Number of nodes in all three parts of the split.
    pub n_scored: usize,
    /// Numbers of users, items and interactions, for recommendation data.
    pub interactions: Option<InteractionSizes>,
}

/// Sizes of a data set of users and items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InteractionSizes {
    /// Number of users.
    pub n_users: usize,
    /// Number of items.
    pub n_items: usize,
    /// Number of training interactions.
    pub n_train: usize,
}

/// Memory and time of a training session. Bytes are those of matrices, without code and allocator overhead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Bytes of graph and features on the device, including results that are computed once.
    pub input_bytes: u64,
    /// Bytes of parameters, gradients and optimiser state.
    pub parameter_bytes: u64,
    /// Peak bytes over the first steps and the first evaluation.
    pub peak_bytes: u64,
    /// Peak bytes before the first evaluation, which reads the full graph.
    pub step_peak_bytes: u64,
    /// Bytes of host memory for rows of hidden layers in layer-wise inference.
    pub host_layer_bytes: u64,
    /// Seconds of computation before the first epoch.
    pub prepare_seconds: f64,
    /// Seconds of the training steps of an epoch.
    pub epoch_seconds: f64,
    /// Seconds of an epoch spent in operations; the rest waits for other ranks.
    pub computed_seconds: f64,
    /// Seconds of an epoch spent in products with sparse matrices.
    pub product_seconds: f64,
    /// Seconds of exchanges with other ranks in an epoch. Products may overlap them.
    pub exchange_seconds: f64,
    /// Bytes of matrices exchanged with other ranks in an epoch.
    pub exchanged: Traffic,
    /// Seconds of an evaluation.
    pub evaluate_seconds: f64,
    /// Seconds of all epochs of all runs, if patience never runs out.
    pub total_seconds: f64,
    /// Whether the first aggregation is computed once, before the first epoch.
    pub aggregates_once: bool,
}

/// Device that a session is planned for.
#[expect(clippy::large_enum_variant, reason = "there is one, which is copied")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlanDevice {
    /// A CPU, with the main memory.
    Cpu(Rates),
    /// A CUDA device. Without rates, only bytes are planned, and seconds are zero.
    Gpu(Option<GpuRates>),
}

impl PlanDevice {
    pub(crate) fn symbolic(&self, config: &TrainConfig) -> Symbolic {
        match self {
            Self::Cpu(rates) => Symbolic::new(*rates),
            Self::Gpu(rates) => Symbolic::cuda(config.precision, *rates),
        }
    }

    fn is_main_memory(&self) -> bool {
        matches!(self, Self::Cpu(_))
    }
}

/// Share of the work that one of several ranks has.
pub(crate) struct Share {
    pub(crate) ranks: Arc<Ranks<Symbolic>>,
    /// This rank's blocks of the adjacency, if the model reads it.
    pub(crate) graph: Option<Graph<Symbolic>>,
    /// Placement of graph and features over ranks, for mini-batches.
    pub(crate) layout: GraphPlacement,
}

impl Plan {
    /// Plan of `config` for data of the given sizes, on a CPU with the given rates.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn new(config: &TrainConfig, data: &DataSizes, rates: Rates) -> Result<Self, TrainError> {
        Self::on_device(config, data, PlanDevice::Cpu(rates))
    }

    /// As [`new`](Self::new), but on a CUDA device of unknown speed: only bytes are planned, and seconds are zero.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn on_cuda(config: &TrainConfig, data: &DataSizes) -> Result<Self, TrainError> {
        Self::on_device(config, data, PlanDevice::Gpu(None))
    }

    /// As [`new`](Self::new), but on any device.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn on_device(config: &TrainConfig, data: &DataSizes, device: PlanDevice) -> Result<Self, TrainError> {
        Self::on((&device.symbolic(config), device), config, (data, PlannedRows::AtMost), None)
    }

    /// As [`on_cuda`](Self::on_cuda), but for a device that holds the given rows of the adjacency, instead of the
    /// longest possible ones.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn on_cuda_with(config: &TrainConfig, data: &DataSizes, rows: RowsOnDevice) -> Result<Self, TrainError> {
        let device = PlanDevice::Gpu(None);
        Self::on((&device.symbolic(config), device), config, (data, PlannedRows::These(rows)), None)
    }

    /// Plan of sampled training on a CUDA device without its cache: without rows of features and adjacency, their
    /// indptr and the lists of row positions. The cache settings of the configuration do not matter.
    ///
    /// # Errors
    /// When the configuration is refused, or has no batches that use the cache.
    pub fn beside_rows(config: &TrainConfig, data: &DataSizes) -> Result<Self, TrainError> {
        let config = &TrainConfig { tiers: CacheConfig::on_host(), ..config.clone() };
        let device = PlanDevice::Gpu(None);
        Self::on((&device.symbolic(config), device), config, (data, PlannedRows::Elsewhere), None)
    }

    /// Bytes that must be free on a CUDA device before the first upload: the peak, a share for fragmentation, and the
    /// device's software (workspace of dense products, kernels' code).
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.peak_bytes + self.peak_bytes / ALLOCATOR_LOSS_SHARE + DEVICE_SOFTWARE_BYTES
    }

    /// Bytes that additional permanent matrices may take, so that the plan fits so many [bytes of a
    /// device](Self::device_bytes); `None` if the plan alone does not fit.
    pub(crate) fn bytes_left(&self, device_bytes: u64) -> Option<u64> {
        let bytes = device_bytes.checked_sub(DEVICE_SOFTWARE_BYTES)?;
        // The largest `peak` with `peak + peak / share <= bytes`.
        let (whole, rest) = (bytes / (ALLOCATOR_LOSS_SHARE + 1), bytes % (ALLOCATOR_LOSS_SHARE + 1));
        let peak = whole * ALLOCATOR_LOSS_SHARE + rest.min(ALLOCATOR_LOSS_SHARE - 1);
        peak.checked_sub(self.peak_bytes)
    }

    /// Plan on a device, of the whole work or of one rank's share.
    pub(crate) fn on(
        (symbolic, device): (&Symbolic, PlanDevice),
        config: &TrainConfig,
        (data, rows): (&DataSizes, PlannedRows),
        share: Option<Share>,
    ) -> Result<Self, TrainError> {
        config.validate()?;
        let is_main_memory = device.is_main_memory();
        let has_codes = data.code_bytes.is_some() || config.codec.is_some();
        if is_main_memory && (config.tiers.topology.is_some() || (config.tiers.features.is_some() && !has_codes)) {
            return Err(CacheConfig::refused_by_processors());
        }
        let layout = share.as_ref().map_or(GraphPlacement::Replicated, |share| share.layout);
        let (ranks, blocks) = share.map(|share| (share.ranks, share.graph)).unzip();
        let among = ranks.as_deref();
        let links = (config.task == TaskKind::Links).then(|| LinkSizes::new(config, data));
        let data = &links.as_ref().map_or(*data, |links| links.messages(data));
        let _all_links = links.as_ref().filter(|_| is_main_memory).map(|links| links.on_host(symbolic, data));
        let mut init = ParamInit::new(symbolic, config.seed, 0).among(among);
        let dims = Dims { n_nodes: data.n_nodes, n_features: data.n_features, n_classes: data.n_classes };
        let model = build_network(config, dims, &mut init)?;
        let mut params = init.finish();
        let mut gradients = Gradients::new(symbolic, &params)?;
        let mut optimizer = Optimizer::new(symbolic, &config.optimizer, &params)?;
        let parameter_bytes = symbolic.cost().live_bytes;

        let (n_train, whole) = (data.n_train, data.as_stored(symbolic, config));
        let data = &among.map_or(*data, |ranks| data.of_rank(ranks.own().len())).as_stored(symbolic, config);
        let by_layers = config.batch.is_sampled() && among.is_none() && sampled::scores_by_layers(config, &*model)?;
        let input_spec = match config.batch.is_sampled() {
            true if by_layers => InputSpec { graph: None, ..sampled::raw(&model.input_spec()) },
            true => sampled::raw(&model.input_spec()),
            false => model.input_spec(),
        };
        let graph = blocks.unwrap_or_else(|| input_spec.graph.map(|adjacency| data.whole_graph(symbolic, adjacency)));
        let inputs = data.inputs((symbolic, is_main_memory), graph, &input_spec, config)?;
        let inputs = Inputs { ranks: ranks.clone(), ..inputs };
        let task = data.task(symbolic, config, &*model, (links.as_ref(), n_train))?;
        // Ranks that partition the data hold patches when they train on mini-batches.
        let sampled = match among.filter(|_| config.batch.is_sampled()) {
            Some(ranks) => {
                BatchPlan::of_patch(config, (&whole, data), (ranks.world().size(), layout), &model.input_spec())
            }
            None => BatchPlan::new(config, (data, rows), &model.input_spec(), (links.as_ref(), by_layers)),
        };
        let drawn_from = if among.is_some() && !is_main_memory { &whole } else { data };
        let _drawn_from = sampled.as_ref().map(|batch| batch.sampler(symbolic, drawn_from, is_main_memory));
        let (prepared, traffic) = (symbolic.cost(), exchanged(among, Traffic::default()));

        let mut pool = Pool::default();
        let ahead = sampled.as_ref().filter(|_| is_main_memory);
        let _ahead = ahead.map(|batch| batch.ahead(symbolic, config.batch.prefetch));
        let batch =
            sampled.as_ref().map(|batch| batch.inputs((symbolic, is_main_memory), data, &inputs, config.precision));
        let seen = batch.as_ref().unwrap_or(&inputs);
        let mut tape = Tape::new(symbolic, &params, &mut pool, Mode::Train(Key::new(0, 0))).among(among);
        let loss = task.loss(&mut tape, &*model, seen, config)?;
        let loss = tape.backward(loss, &mut gradients)?;
        let step = optimizer.begin(config.optimizer.lr);
        optimizer.apply(symbolic, step, &gradients, &mut params)?;
        pool.give(symbolic, loss);
        if batch.is_some() {
            // Batches differ in shape, so that buffers are freed rather than kept for the next batch.
            pool = Pool::default();
        }
        drop(batch);
        let (stepped, traffic) = (symbolic.cost(), exchanged(among, traffic));

        let seconds = |from: Cost, to: Cost| to.seconds - from.seconds;
        let (evaluate, host_layer_bytes) = if let Some(layers) = model.as_layers().filter(|_| by_layers) {
            let keeps_on_host = config.tiers.features.is_some() && !is_main_memory;
            let is_ahead = config.batch.prefetch > 0 && !is_main_memory;
            let scores = LayerPlan { layers, input_spec: model.input_spec(), keeps_on_host, is_main_memory, is_ahead };
            let LayerCosts { seconds, host_bytes } = scores.evaluate((symbolic, &params, &mut pool), data, &inputs)?;
            (seconds, host_bytes)
        } else {
            let mut tape = Tape::new(symbolic, &params, &mut pool, Mode::Evaluate).among(among);
            let output = model.forward(&mut tape, &inputs)?;
            task.evaluate(&mut tape, output)?;
            drop(tape);
            (seconds(stepped, symbolic.cost()), 0)
        };
        if let Some(graph) = inputs.rounding() {
            // After training, a pass without rounding measures the rounding error.
            pool.clear();
            graph.unrounded(|| {
                let mut tape = Tape::new(symbolic, &params, &mut pool, Mode::Evaluate).among(among);
                model.forward(&mut tape, &inputs).map(drop)
            })?;
        }
        let evaluated = symbolic.cost();

        let steps_per_epoch = sampled.map_or_else(|| task.steps_per_epoch(config), |batch| batch.n_steps) as f64;
        let epoch = steps_per_epoch * seconds(prepared, stepped);
        let epochs = config.epochs as f64;
        let evaluations = config.epochs.div_ceil(config.eval_every) as f64;
        Ok(Self {
            input_bytes: prepared.live_bytes - parameter_bytes,
            parameter_bytes,
            peak_bytes: evaluated.peak_bytes,
            step_peak_bytes: stepped.peak_bytes,
            host_layer_bytes,
            prepare_seconds: prepared.seconds,
            epoch_seconds: epoch,
            computed_seconds: steps_per_epoch * (stepped.computed_seconds - prepared.computed_seconds),
            product_seconds: steps_per_epoch * (stepped.product_seconds - prepared.product_seconds),
            exchange_seconds: steps_per_epoch * (stepped.exchange_seconds - prepared.exchange_seconds),
            exchanged: traffic,
            evaluate_seconds: evaluate,
            total_seconds: prepared.seconds + config.runs as f64 * (epochs * epoch + evaluations * evaluate),
            aggregates_once: inputs.propagated.is_some(),
        })
    }
}

/// Traffic of a rank since `since`.
fn exchanged(ranks: Option<&Ranks<Symbolic>>, since: Traffic) -> Traffic {
    let now = ranks.map_or(since, |ranks| ranks.world().traffic());
    Traffic { sent: now.sent - since.sent, received: now.received - since.received }
}

/// Symbolic targets of a step's loss.
enum Task {
    Classes { targets: Targets<Symbolic>, train: Part<Symbolic> },
    Ranking { sizes: InteractionSizes, embedding: ParamId, batch: Batch<Symbolic> },
    Links { step: Box<Pairs<Symbolic>>, held_out: Box<[Pairs<Symbolic>; 2]> },
}

impl Task {
    fn loss<'a>(
        &'a self,
        tape: &mut Tape<'a, Symbolic>,
        model: &dyn Model<Symbolic>,
        inputs: &'a Inputs<Symbolic>,
        config: &TrainConfig,
    ) -> Result<Loss<Symbolic>, TrainError> {
        Ok(match self {
            Self::Classes { targets, train } => {
                let logits = model.forward(tape, inputs)?;
                tape.loss_of(logits, targets, train)?
            }
            Self::Ranking { embedding, batch, .. } => {
                batch.loss(tape, model, inputs, *embedding, config.optimizer.weight_decay as f32)?
            }
            Self::Links { step, .. } => {
                let embeddings = model.forward(tape, inputs)?;
                let scores = step.scores(tape, embeddings)?;
                step.loss(tape, scores)?
            }
        })
    }

    fn evaluate<'a>(&'a self, tape: &mut Tape<'a, Symbolic>, output: Var) -> Result<(), TrainError> {
        let symbolic = tape.backend();
        match self {
            Self::Classes { .. } => drop(symbolic.argmax_rows(tape.value(output))?),
            Self::Links { held_out, .. } => {
                for pairs in &**held_out {
                    let scores = pairs.scores(tape, output)?;
                    drop(pairs.loss(tape, scores)?);
                }
            }
            Self::Ranking { sizes, .. } => {
                let users_and_items = (sizes.n_users, sizes.n_items);
                let nothing_met = |users: Range<usize>| Csr::empty(users.len(), sizes.n_items);
                let (pool, users) = (&mut Pool::default(), 0..sizes.n_users);
                let output = tape.value(output);
                drop(recommend::top_items(symbolic, pool, output, users_and_items, users, nothing_met)?);
            }
        }
        Ok(())
    }

    fn steps_per_epoch(&self, config: &TrainConfig) -> usize {
        match self {
            Self::Classes { .. } | Self::Links { .. } => 1,
            Self::Ranking { sizes, .. } => sizes.n_train.div_ceil(config.batch_size.unwrap_or(sizes.n_train)),
        }
    }
}

impl InteractionSizes {
    /// Sizes of loaded interactions.
    #[must_use]
    pub fn of(interactions: &Interactions) -> Self {
        let n_train = interactions.train().nnz();
        Self { n_users: interactions.n_users(), n_items: interactions.n_items(), n_train }
    }
}

/// Number of edges of the `n` rows with the most edges.
fn edges_of_largest(graph: &Csr, n: usize) -> usize {
    let mut largest = BinaryHeap::with_capacity(n.min(graph.n_rows()) + 1);
    for edges in graph.indptr().windows(2).map(|ends| ends[1] - ends[0]) {
        if largest.len() < n {
            largest.push(Reverse(edges));
        } else if let Some(mut least) = largest.peek_mut().filter(|least| least.0 < edges) {
            least.0 = edges;
        }
    }
    largest.into_iter().map(|Reverse(edges)| edges as usize).sum()
}

impl DataSizes {
    /// Sizes of a loaded data set.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        Self {
            n_nodes: dataset.n_nodes(),
            n_edges: dataset.n_edges(),
            n_edges_at_once: edges_of_largest(&dataset.graph, NODES_AT_ONCE),
            weighted: dataset.graph.values().is_some(),
            symmetric: dataset.graph.is_symmetric(),
            n_features: dataset.n_features(),
            feature_nnz: match &dataset.features {
                Some(Features::Sparse(csr)) => Some(csr.nnz()),
                None => dataset.features_from.and_then(|rule| rule.n_stored(dataset.n_nodes())),
                _ => None,
            },
            code_bytes: match &dataset.features {
                Some(Features::Compressed(features)) => Some(features.codec().row_bytes()),
                _ => None,
            },
            has_code_book: match &dataset.features {
                Some(Features::Compressed(features)) => features.codec().spec().has_book(),
                _ => false,
            },
            n_classes: dataset.n_classes(),
            multi_label: dataset.is_multi_label(),
            n_train: dataset.splits.first().map_or(0, |split| split.train.len()),
            n_scored: dataset.splits.first().map_or(0, |split| split.parts().iter().map(|(_, part)| part.len()).sum()),
            interactions: dataset.interactions.as_ref().map(InteractionSizes::of),
        }
    }

    /// Sizes of the data with features stored as in `config`.
    fn as_stored(&self, symbolic: &Symbolic, config: &TrainConfig) -> Self {
        // Rows in host memory are planned like codes of the same size.
        let codes = self.encoded_bytes(config);
        let has_code_book = self.has_code_book || config.codec.is_some_and(CodecSpec::has_book);
        match codes.or_else(|| config.tiers.features.map(|_| self.row_bytes(symbolic, config))) {
            None => *self,
            code_bytes => Self { code_bytes, has_code_book, feature_nnz: None, ..*self },
        }
    }

    /// Bytes of a row of features in the cache.
    pub(crate) fn row_bytes(&self, symbolic: &Symbolic, config: &TrainConfig) -> usize {
        self.encoded_bytes(config).unwrap_or_else(|| symbolic.stride(self.n_features, config.precision))
    }

    /// Bytes of a row of codes, if `config` compresses features.
    fn encoded_bytes(&self, config: &TrainConfig) -> Option<usize> {
        self.code_bytes.or_else(|| config.codec.map(|codec| codec.row_bytes(self.n_features)))
    }

    /// Inputs that the model of `config` reads.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub(crate) fn input_spec(&self, config: &TrainConfig) -> Result<InputSpec, TrainError> {
        config.validate()?;
        let symbolic = Symbolic::cuda(config.precision, None);
        let dims = Dims { n_nodes: self.n_nodes, n_features: self.n_features, n_classes: self.n_classes };
        Ok(build_network(config, dims, &mut ParamInit::new(&symbolic, config.seed, 0))?.input_spec())
    }

    /// Sizes of one rank's share, with `n_nodes` nodes.
    fn of_rank(&self, n_nodes: usize) -> Self {
        let share = |n: usize| (n as u128 * n_nodes as u128).div_ceil(self.n_nodes.max(1) as u128) as usize;
        Self {
            n_nodes,
            n_edges: share(self.n_edges),
            n_edges_at_once: self.n_edges_at_once.min(share(self.n_edges)),
            feature_nnz: self.feature_nnz.map(share),
            n_train: share(self.n_train),
            ..*self
        }
    }

    fn whole_graph(&self, symbolic: &Symbolic, adjacency: Adjacency) -> Graph<Symbolic> {
        let nnz = self.n_edges + if adjacency.self_loops { self.n_nodes } else { 0 };
        Graph::Whole(symbolic.sparse(Shape::new(self.n_nodes, self.n_nodes), nnz, self.weighted, self.symmetric))
    }

    fn inputs(
        &self,
        (symbolic, is_main_memory): (&Symbolic, bool),
        graph: Option<Graph<Symbolic>>,
        input_spec: &InputSpec,
        config: &TrainConfig,
    ) -> Result<Inputs<Symbolic>, TrainError> {
        let precision = config.precision;
        if self.interactions.is_some() || config.learns_features() {
            return Ok(Inputs {
                graphs: graph.into(),
                features: config.learns_features().then_some(FeatureInput::Learned(ParamId::FEATURES)),
                propagated: None,
                n_nodes: self.n_nodes,
                ranks: None,
            });
        }
        let shape = Shape::new(self.n_nodes, self.n_features);
        let keeps_sparse = |nnz: &usize| {
            input_spec.propagation != Propagation::Always && inputs::stay_sparse(self.n_nodes, self.n_features, *nnz)
        };
        let stored_sparse = self.feature_nnz.filter(keeps_sparse);
        let stays_encoded = self.code_bytes.filter(|_| input_spec.propagation != Propagation::Always);
        let features = match (stays_encoded, stored_sparse) {
            (Some(row_bytes), _) => {
                let codes = SymbolicRows::new(symbolic, shape, row_bytes, is_main_memory);
                FeatureInput::Encoded(EncodedInput::new(Arc::new(codes), precision))
            }
            (None, None) => FeatureInput::dense(symbolic.uploaded(shape, precision)),
            (None, Some(nnz)) => FeatureInput::Sparse {
                matrix: symbolic.sparse(shape, nnz, false, false),
                values: symbolic.matrix(Shape::new(nnz, 1), Dtype::F32),
                first_value: 0,
            },
        };
        Ok(Inputs::assemble(symbolic, graph, features, self.n_nodes, input_spec, precision)?)
    }

    /// Symbolic targets of a step, where `n_train` nodes train on all ranks together.
    fn task(
        &self,
        symbolic: &Symbolic,
        config: &TrainConfig,
        model: &dyn Model<Symbolic>,
        (links, n_train): (Option<&LinkSizes>, usize),
    ) -> Result<Task, TrainError> {
        if let Some(links) = links {
            let held_out = Box::new(links.held_out.map(|n_links| Pairs::symbolic(symbolic, 2 * n_links)));
            return Ok(Task::Links { step: Box::new(Pairs::symbolic(symbolic, links.step_pairs)), held_out });
        }
        let Some(embedding) = model.embedding() else {
            let rows = symbolic.matrix(Shape::new(self.n_train, 1), Dtype::F32);
            let train = Part { rows, n_here: self.n_train, n_all: n_train };
            return Ok(Task::Classes { targets: self.targets(symbolic), train });
        };
        let sizes = self.interactions.ok_or_else(|| {
            let name = config.model.kind.name();
            TrainError::invalid(format!("{name} recommends items to users, and this data has no users and items: give --bipartite, or another --model"))
        })?;
        if sizes.n_train == 0 {
            return Err(TrainError::invalid(
                "the data has no interactions of users and items to train on: check its split",
            ));
        }
        let n_triples = config.batch_size.unwrap_or(sizes.n_train).min(sizes.n_train);
        let nodes = symbolic.matrix(Shape::new(3 * n_triples, 1), Dtype::F32);
        Ok(Task::Ranking { sizes, embedding, batch: Batch::whole(nodes, 3 * n_triples) })
    }

    fn targets(&self, symbolic: &Symbolic) -> Targets<Symbolic> {
        if self.multi_label {
            Targets::Multi(symbolic.matrix(Shape::new(self.n_nodes, self.n_classes), Dtype::F32))
        } else {
            Targets::Single(symbolic.matrix(Shape::new(self.n_nodes, 1), Dtype::F32))
        }
    }
}
