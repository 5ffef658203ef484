//! Dry run of a session: one step and one evaluation on a symbolic device.

use girih_comm::Traffic;
use girih_compute::Symbolic;
use girih_random::Key;

use super::links::LinkSizes;
use super::minibatch::{BatchPlan, LayerCosts, LayerPlan, PlannedRows};
use super::task::Task;
use super::{DataSizes, Plan, PlanDevice, Share};
use crate::TrainError;
use crate::config::{Combination, DEFAULT_BATCH_SIZE, GraphPlacement, ScoreBy, TaskKind, TrainConfig, supported};
use crate::engine::Optimizer;
use crate::layers::Inputs;
use crate::minibatch;
use crate::models::{InputSpec, Model};
use crate::tape::ranks::Ranks;
use crate::tape::{Gradients, Mode, ParamInit, Params, Pool, Tape};

impl Plan {
    /// Plan on a device, of the whole work or of one rank's share.
    pub(crate) fn on(
        (symbolic, device): (&Symbolic, PlanDevice),
        config: &TrainConfig,
        (data, rows): (&DataSizes, PlannedRows),
        share: Option<Share>,
    ) -> Result<Self, TrainError> {
        config.validate()?;
        let is_main_memory = device.is_main_memory();
        let asked = Combination::of(config).on_device(!is_main_memory).with_codes(data.code_bytes.is_some());
        supported(&Combination { is_dry_run: true, ..asked })?;
        let layout = share.as_ref().map_or(GraphPlacement::Replicated, |share| share.layout);
        let (ranks, blocks) = share.map(|share| (share.ranks, share.graph)).unzip();
        let among = ranks.as_deref();
        let links = (config.task == TaskKind::Links).then(|| LinkSizes::new(config, data));
        let data = &links.as_ref().map_or_else(|| data.clone(), |links| links.messages(data));
        let _all_links = links.as_ref().filter(|_| is_main_memory).map(|links| links.on_host(symbolic, data));
        let mut state = ModelState::new(symbolic, config, data, among)?;
        let parameter_bytes = symbolic.cost().live_bytes;

        let (n_train, whole) = (data.n_train, data.as_stored(symbolic, config));
        let data =
            &among.map_or_else(|| data.clone(), |ranks| data.of_rank(ranks.own().len())).as_stored(symbolic, config);
        let method = match config.batch.is_sampled() && among.is_none() {
            true => minibatch::method_of_scores(config, &*state.model)?,
            false => ScoreBy::Graph,
        };
        let by_layers = method == ScoreBy::Layers;
        let input_spec = spec_of(state.model.input_spec(), config, by_layers);
        let graph = blocks.unwrap_or_else(|| input_spec.graph.map(|adjacency| data.whole_graph(symbolic, adjacency)));
        let inputs = data.inputs((symbolic, is_main_memory), graph, &input_spec, config)?;
        let has_graph = method == ScoreBy::Graph;
        let relations = data.relations((symbolic, is_main_memory), &input_spec, (config.precision, has_graph))?;
        let inputs = Inputs { ranks: ranks.clone(), relations, ..inputs };
        let task = data.task(symbolic, config, &*state.model, (links.as_ref(), n_train))?;
        // Ranks that partition the data hold patches when they train on mini-batches.
        let sampled = match among.filter(|_| config.batch.is_sampled()) {
            Some(ranks) => {
                BatchPlan::of_patch(config, (&whole, data), (ranks.world().size(), layout), &state.model.input_spec())
            }
            None => BatchPlan::new(config, (data, rows), &state.model.input_spec(), (links.as_ref(), by_layers)),
        };
        let drawn_from = if among.is_some() && !is_main_memory { &whole } else { data };
        let _drawn_from = sampled.as_ref().map(|batch| batch.sampler(symbolic, drawn_from, is_main_memory));
        let (prepared, traffic) = (symbolic.cost(), exchanged(among, Traffic::default()));

        let mut pool = Pool::default();
        let ahead = sampled.as_ref().filter(|_| is_main_memory);
        let _ahead = ahead.map(|batch| batch.ahead(symbolic, config.batch.prefetch));
        let dry_run = DryRun { symbolic, config, is_main_memory, ranks: among, data, inputs: &inputs, task: &task };
        dry_run.step(&mut state, sampled.as_ref(), &mut pool)?;
        let (stepped, traffic) = (symbolic.cost(), exchanged(among, traffic));

        let evaluation = dry_run.evaluate(&state, (method, sampled.as_ref()), &mut pool)?;
        dry_run.evaluate_unrounded(&state, &mut pool)?;
        let evaluated = symbolic.cost();

        let steps_per_epoch = sampled.map_or_else(|| task.steps_per_epoch(config), |batch| batch.n_steps) as f64;
        let epoch = steps_per_epoch * (stepped.seconds - prepared.seconds);
        let epochs = config.epochs as f64;
        let evaluations = config.epochs.div_ceil(config.eval_every) as f64;
        Ok(Self {
            input_bytes: prepared.live_bytes - parameter_bytes,
            parameter_bytes,
            peak_bytes: evaluated.peak_bytes,
            step_peak_bytes: stepped.peak_bytes,
            host_layer_bytes: evaluation.host_bytes,
            prepare_seconds: prepared.seconds,
            epoch_seconds: epoch,
            computed_seconds: steps_per_epoch * (stepped.computed_seconds - prepared.computed_seconds),
            product_seconds: steps_per_epoch * (stepped.product_seconds - prepared.product_seconds),
            exchange_seconds: steps_per_epoch * (stepped.exchange_seconds - prepared.exchange_seconds),
            exchanged: traffic,
            evaluate_seconds: evaluation.seconds,
            total_seconds: prepared.seconds + config.runs as f64 * (epochs * epoch + evaluations * evaluation.seconds),
            aggregates_once: inputs.propagated.is_some(),
        })
    }
}

/// Inputs that a session reads: raw features for mini-batches, and no adjacency where scores come layer by layer.
fn spec_of(spec: InputSpec, config: &TrainConfig, by_layers: bool) -> InputSpec {
    match config.batch.is_sampled() {
        true if by_layers => InputSpec { graph: None, ..minibatch::raw(&spec) },
        true => minibatch::raw(&spec),
        false => spec,
    }
}

/// Symbolic model with everything that a step changes.
struct ModelState {
    /// Network, which reads the parameters.
    model: Box<dyn Model<Symbolic>>,
    /// Parameters of the network.
    params: Params<Symbolic>,
    /// Gradients of the parameters.
    gradients: Gradients<Symbolic>,
    /// Optimiser with its state.
    optimizer: Optimizer<Symbolic>,
}

impl ModelState {
    /// State at the start of a run, for data of the given sizes.
    fn new(
        symbolic: &Symbolic,
        config: &TrainConfig,
        data: &DataSizes,
        ranks: Option<&Ranks<Symbolic>>,
    ) -> Result<Self, TrainError> {
        let mut init = ParamInit::new(symbolic, config.seed, 0).among(ranks);
        let model = data.model_source(config)?.build_with(&mut init)?;
        let params = init.finish();
        let gradients = Gradients::new(symbolic, &params)?;
        let optimizer = Optimizer::new(symbolic, &config.optimizer, &params)?;
        Ok(Self { model, params, gradients, optimizer })
    }
}

/// Symbolic session: everything that steps and evaluations read.
struct DryRun<'a> {
    /// Device that counts bytes and seconds.
    symbolic: &'a Symbolic,
    /// Configuration of the training.
    config: &'a TrainConfig,
    /// Whether the device computes in host memory.
    is_main_memory: bool,
    /// This rank and its world; `None` for a single rank.
    ranks: Option<&'a Ranks<Symbolic>>,
    /// Sizes of this rank's data.
    data: &'a DataSizes,
    /// Graph and features of this rank.
    inputs: &'a Inputs<Symbolic>,
    /// Targets of the loss and of evaluations.
    task: &'a Task,
}

impl DryRun<'_> {
    /// Runs forward pass, backward pass and optimiser step, on a mini-batch or on the whole graph.
    fn step(
        &self,
        state: &mut ModelState,
        batches: Option<&BatchPlan>,
        pool: &mut Pool<Symbolic>,
    ) -> Result<(), TrainError> {
        let &Self { symbolic, config, is_main_memory, ranks, data, inputs, task } = self;
        let batch = batches.map(|batch| batch.inputs((symbolic, is_main_memory), data, inputs, config.precision));
        let seen = batch.as_ref().unwrap_or(inputs);
        let mut tape = Tape::new(symbolic, &state.params, pool, Mode::Train(Key::new(0, 0))).among(ranks);
        let loss = task.loss(&mut tape, &*state.model, seen, config)?;
        let loss = tape.backward(loss, &mut state.gradients)?;
        let step = state.optimizer.begin(config.optimizer.lr);
        state.optimizer.apply((symbolic, pool), step, &mut state.gradients, &mut state.params)?;
        pool.give(symbolic, loss);
        if batch.is_some() {
            // Batches differ in shape, so that buffers are freed rather than kept for the next batch.
            *pool = Pool::default();
        }
        Ok(())
    }

    /// Scores all nodes of the split by a method, and returns the costs.
    fn evaluate(
        &self,
        state: &ModelState,
        (method, batches): (ScoreBy, Option<&BatchPlan>),
        pool: &mut Pool<Symbolic>,
    ) -> Result<LayerCosts, TrainError> {
        let &Self { symbolic, config, is_main_memory, ranks, data, inputs, task } = self;
        let ModelState { model, params, .. } = state;
        if let Some(layers) = model.as_layers().filter(|_| method == ScoreBy::Layers) {
            let keeps_on_host = config.tiers.features.is_some() && !is_main_memory;
            let is_ahead = config.batch.prefetch > 0 && !is_main_memory;
            let scores = LayerPlan { layers, input_spec: model.input_spec(), keeps_on_host, is_main_memory, is_ahead };
            return scores.evaluate((symbolic, params, pool), data, inputs);
        }
        let begun = symbolic.cost().seconds;
        if let Some(batches) = batches.filter(|_| method == ScoreBy::Samples) {
            let n_scored = data.n_scored.saturating_sub(data.n_train);
            let n_batches = n_scored.div_ceil(config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE)) as f64;
            let batch = batches.inputs((symbolic, is_main_memory), data, inputs, config.precision);
            let mut tape = Tape::new(symbolic, params, pool, Mode::Evaluate);
            model.forward(&mut tape, &batch)?;
            drop(tape);
            return Ok(LayerCosts { seconds: n_batches * (symbolic.cost().seconds - begun), host_bytes: 0 });
        }
        let mut tape = Tape::new(symbolic, params, pool, Mode::Evaluate).among(ranks);
        let output = model.forward(&mut tape, inputs)?;
        task.evaluate(&mut tape, output)?;
        drop(tape);
        Ok(LayerCosts { seconds: symbolic.cost().seconds - begun, host_bytes: 0 })
    }

    /// Runs the pass after training that measures the rounding error: one without rounding, if products round.
    fn evaluate_unrounded(&self, state: &ModelState, pool: &mut Pool<Symbolic>) -> Result<(), TrainError> {
        let &Self { symbolic, ranks, inputs, .. } = self;
        let Some(graph) = inputs.rounding() else { return Ok(()) };
        pool.clear();
        graph.unrounded(|| {
            let mut tape = Tape::new(symbolic, &state.params, pool, Mode::Evaluate).among(ranks);
            state.model.forward(&mut tape, inputs).map(drop)
        })?;
        Ok(())
    }
}

/// Traffic of a rank since `since`.
fn exchanged(ranks: Option<&Ranks<Symbolic>>, since: Traffic) -> Traffic {
    let now = ranks.map_or(since, |ranks| ranks.world().traffic());
    Traffic { sent: now.sent - since.sent, received: now.received - since.received }
}
