//! Preparation of runs: a model with its parameters, labels for data without any, and the best parameters of a
//! checkpoint.

use girih_compute::{Backend, ComputeError, Shape};
use girih_datasets::{Dataset, FeaturesFrom, Labels, Outline, Split, UNLABELLED};
use girih_graph_format::{Matrix, NodeId};

use super::checkpoint::{Checkpoint, DataShape};
use super::report::{Scores, TestReport};
use super::state::Run;
use crate::TrainError;
use crate::config::{BatchKind, ModelConfig, TaskKind, TrainConfig, differences};
use crate::models::{BuildModel, BuildSampler, Dims, InputSpec, Model, Propagation};
use crate::tape::ranks::Ranks;
use crate::tape::{ParamId, ParamInit, Params};

/// Model with its parameters.
type ModelWithParams<B> = (Box<dyn Model<B>>, Params<B>);

/// Source of the models of all runs: a builder, with the configuration and the sizes that it builds for.
pub(crate) struct ModelSource<'m, B: Backend> {
    builder: &'m dyn BuildModel<B>,
    /// Configuration of the runs.
    pub(crate) config: &'m TrainConfig,
    /// Sizes of the models.
    pub(crate) dims: Dims,
}

impl<B: Backend> Clone for ModelSource<'_, B> {
    fn clone(&self) -> Self {
        Self { builder: self.builder, config: self.config, dims: self.dims.clone() }
    }
}

impl<'m, B: Backend> ModelSource<'m, B> {
    /// Source of models for data. Models that predict links or score triples end in embeddings.
    ///
    /// # Errors
    /// When the model of the configuration is not that of the builder.
    pub(crate) fn new(
        builder: &'m dyn BuildModel<B>,
        config: &'m TrainConfig,
        data: &Outline,
    ) -> Result<Self, TrainError> {
        let mut dims = Dims::of_outline(data);
        if config.edges.has_features() || config.model.kind.needs_edge_features() {
            dims.edge_width = config.edges.width(data.edge_features.unwrap_or(0));
        }
        match config.task {
            TaskKind::Nodes => {}
            TaskKind::Links => dims.n_classes = config.links.width,
            TaskKind::Triples => dims.n_classes = config.triples.width,
        }
        Self::with_dims(builder, config, dims)
    }

    /// Source of models of the given sizes.
    ///
    /// # Errors
    /// When the model of the configuration is not that of the builder.
    pub(crate) fn with_dims(
        builder: &'m dyn BuildModel<B>,
        config: &'m TrainConfig,
        dims: Dims,
    ) -> Result<Self, TrainError> {
        check_built_by(&config.model, &builder.config())
            .map_err(|what| TrainError::invalid(format!("the configuration does not fit: {what}")))?;
        Ok(Self { builder, config, dims })
    }

    /// Builder of the model's own sampler, if it has one.
    pub(crate) fn sampler(&self) -> Option<&'m dyn BuildSampler> {
        self.builder.sampler()
    }

    /// A model with its initial parameters. One of several ranks holds only its own rows of per-node parameters.
    pub(crate) fn build(
        &self,
        backend: &B,
        run: u64,
        ranks: Option<&Ranks<B>>,
    ) -> Result<ModelWithParams<B>, TrainError> {
        let mut init = ParamInit::new(backend, self.config.seed, run).among(ranks);
        let model = self.build_with(&mut init)?;
        Ok((model, init.finish()))
    }

    /// The model of a dry run, or of [`build`](Self::build), preceded by its learned features, if any. These are
    /// initialised from a normal distribution, with rows of expected squared length one.
    pub(crate) fn build_with(&self, init: &mut ParamInit<'_, B>) -> Result<Box<dyn Model<B>>, ComputeError> {
        if let Some(FeaturesFrom::Embedding(width)) = self.config.features_from {
            let deviation = 1.0 / (width as f32).sqrt();
            let features = init.embedding(0, "features", Shape::new(self.dims.n_nodes, width), deviation)?;
            debug_assert_eq!(features, ParamId::FEATURES);
        }
        self.builder.build(self.dims.clone(), init)
    }

    /// Inputs that the models read.
    ///
    /// # Errors
    /// When they cannot be had in mini-batches, or ignore the normalisation of the configuration.
    pub(crate) fn input_spec(&self, backend: &B) -> Result<InputSpec, TrainError> {
        let spec = self.build(backend, 0, None)?.0.input_spec();
        spec.check_degrees(&self.config.model)?;
        let aggregates_before = spec.propagation == Propagation::Always && spec.graph.is_some();
        if self.config.batch.is_sampled() && aggregates_before {
            return Err(TrainError::invalid(format!(
                "{} reads features that are aggregated before training, and mini-batches have raw features: give --batch full, or \
                 let the model aggregate them (Propagation::WhenDense)",
                self.config.model.name()
            )));
        }
        Ok(spec)
    }
}

/// Checks that mini-batches, if the configuration has any, may have a sampler from outside.
///
/// # Errors
/// When they may not.
fn check_sampler(config: &TrainConfig) -> Result<(), TrainError> {
    let batch = config.batch.kind;
    let (why, remedy) = match () {
        () if !config.batch.is_sampled() => return Ok(()),
        () if batch != BatchKind::Neighbor => {
            (format!("--batch {} samples by another rule", batch.name()), "give --batch neighbor or full")
        }
        () if config.task == TaskKind::Links => {
            let why = "--task links leaves the links of each batch out of it, and that sampler cannot";
            (why.to_owned(), "give --batch full, or a builder without a sampler")
        }
        () if !config.tiers.is_default() => {
            ("caches are for GPUs that sample".to_owned(), "leave --feature-cache and --topology-cache out")
        }
        () => return Ok(()),
    };
    Err(TrainError::invalid(format!("{} brings a sampler of its own, and {why}: {remedy}", config.model.name())))
}

/// The configuration of a call, with the model of its builder.
///
/// # Errors
/// When the configuration is refused, names another model from outside, or cannot have the model's own sampler.
pub(crate) fn config_for<B: Backend>(
    config: &TrainConfig,
    builder: &dyn BuildModel<B>,
) -> Result<TrainConfig, TrainError> {
    let model = builder.config();
    if config.model.own.is_some() {
        check_built_by(&config.model, &model)
            .map_err(|what| TrainError::invalid(format!("the configuration does not fit: {what}")))?;
    }
    let config = TrainConfig { model, ..config.clone() };
    config.validate()?;
    if builder.sampler().is_some() {
        check_sampler(&config)?;
    }
    Ok(config)
}

/// Checks that a builder with the configuration `built` builds the model of `config`.
///
/// # Errors
/// When it does not; the message names both models, or the settings that differ.
fn check_built_by(config: &ModelConfig, built: &ModelConfig) -> Result<(), String> {
    check_builder(config, built)?;
    if config == built {
        return Ok(());
    }
    let of_model = |model: &ModelConfig| TrainConfig { model: model.clone(), ..TrainConfig::default() };
    let what = differences(&of_model(config), &of_model(built)).join(", ");
    Err(format!("its model {} has other settings than the builder of this call: {what}", config.name()))
}

/// Checks that the model of `config`, whatever its settings, and that of a builder with the configuration `built` are
/// both of girih, or both the same one from outside.
///
/// # Errors
/// When they are not; the message names both models.
pub(crate) fn check_builder(config: &ModelConfig, built: &ModelConfig) -> Result<(), String> {
    let [of_config, of_built] = [config, built].map(|model| model.own.as_ref().map(|own| &own.name));
    if of_config == of_built {
        return Ok(());
    }
    let (wanted, found) = (config.name(), built.name());
    let place = |config: &ModelConfig| if config.own.is_some() { "from outside girih" } else { "of girih" };
    let remedy = match config.own {
        Some(_) => "give its builder to train_model, apply_model, embed_model, or to a job on ranks",
        None => "call train, apply or embed, or start a job on ranks without a builder",
    };
    let (wanted_place, found_place) = (place(config), place(built));
    Err(format!("its model is {wanted} {wanted_place}, and this call builds {found} {found_place}: {remedy}"))
}

impl Checkpoint {
    /// Refuses a builder of another model than that of the checkpoint.
    ///
    /// # Errors
    /// When it builds another model; the message names both.
    pub(crate) fn check_built_by<B: Backend>(&self, builder: &dyn BuildModel<B>) -> Result<(), TrainError> {
        check_built_by(&self.progress.config.model, &builder.config()).map_err(|what| self.refused(what))
    }
}

/// Adapts data to a model that was `trained` on other data. It gets the model's number of classes. Without labels,
/// all nodes are unlabelled; without a split, all nodes are test nodes.
pub(crate) fn with_labels_for(trained: &DataShape, dataset: Dataset) -> Dataset {
    let (n_nodes, n_classes) = (dataset.n_nodes(), trained.n_classes);
    let labels = match dataset.labels {
        None if trained.multi_label => {
            let targets = Matrix::new(n_nodes, n_classes, vec![0.0; n_nodes * n_classes]);
            Labels::Multi { n_classes, targets: targets.expect("as many zeros as it has elements") }
        }
        None => Labels::Single { n_classes, classes: vec![UNLABELLED; n_nodes] },
        Some(Labels::Single { n_classes: found, classes }) if found < n_classes && !trained.multi_label => {
            Labels::Single { n_classes, classes }
        }
        Some(labels) => labels,
    };
    let mut splits = if dataset.splits.is_empty() { vec![Split::default()] } else { dataset.splits };
    for split in splits.iter_mut().filter(|split| split.parts().iter().all(|(_, nodes)| nodes.is_empty())) {
        split.test = (0..n_nodes as NodeId).collect();
    }
    Dataset { labels: Some(labels), splits, ..dataset }
}

/// Restores the best parameters of a checkpoint.
pub(crate) fn restore_best<'a, B: Backend + 'a>(
    run: &mut impl Run<'a, B>,
    checkpoint: &Checkpoint,
) -> Result<(), TrainError> {
    run.state_mut().restore(checkpoint)?;
    run.state_mut().restore_best()
}

/// Restores the best parameters of a checkpoint, and returns their scores.
pub(crate) fn apply_best<'a, B: Backend + 'a>(
    run: &mut impl Run<'a, B>,
    checkpoint: &Checkpoint,
) -> Result<(Scores, Option<TestReport>), TrainError> {
    restore_best(run, checkpoint)?;
    let report = run.test_report()?;
    Ok((run.evaluate()?, report))
}
