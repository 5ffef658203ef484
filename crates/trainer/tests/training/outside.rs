//! Models from outside have all that models of girih have: batches, ranks, checkpoints, inference.

use std::path::Path;

use girih_compress::CodecSpec;
use girih_compute::{Activation, Backend, ComputeError, Cpu};
use girih_datasets::Dataset;
use girih_graph_format::{Degrees, Norm};
use girih_partition::{Exchange, Scheme};
use girih_trainer::distributed::{ApplyJob, GraphPlacement, ModelJob, RankJob, RankOptions, TrainJob};
use girih_trainer::{
    Adjacency, BatchConfig, BatchKind, BuildModel, Checkpoint, Control, Dims, Event, GraphConv, InputSpec, Inputs,
    LinkConfig, Masks, Model, ModelConfig, NormAxis, Normalization, Observer, Outcome, ParamInit, Propagation, Rows,
    SessionOptions, Tape, TaskKind, TrainConfig, TrainError, Var, apply, apply_model, checkpoint_path, embed,
    embed_model, similarity, train, train_model,
};
use serde_json::json;

use crate::{ModelKind, config, planted, with_bags_of_words};

/// Copy of girih's GCN, written outside of it.
#[derive(Clone)]
struct CopyOfGcn {
    name: &'static str,
    hidden: usize,
    dropout: f64,
    propagation: Propagation,
    normalizes_columns: bool,
    degrees: Degrees,
}

/// Network of a [`CopyOfGcn`].
struct Copied {
    of: CopyOfGcn,
    layers: [GraphConv; 2],
    norm: Option<Normalization>,
}

impl CopyOfGcn {
    fn new(dropout: f64) -> Self {
        let propagation = if dropout == 0.0 { Propagation::WhenDense } else { Propagation::Never };
        Self { name: "copy", hidden: 16, dropout, propagation, normalizes_columns: false, degrees: Degrees::Default }
    }

    /// Configuration of the model of girih that this copies.
    fn inside(&self) -> ModelConfig {
        let usual = config(ModelKind::Gcn, 1).model;
        ModelConfig { hidden: self.hidden, dropout: self.dropout, normalization: self.degrees, ..usual }
    }
}

impl<B: Backend> BuildModel<B> for CopyOfGcn {
    fn config(&self) -> ModelConfig {
        let settings = json!({ "hidden": self.hidden, "dropout": self.dropout });
        let outside = ModelConfig::from_outside(self.name, settings);
        ModelConfig { own: outside.own, ..self.inside() }
    }

    fn build(&self, dims: Dims, init: &mut ParamInit<'_, B>) -> Result<Box<dyn Model<B>>, ComputeError> {
        let first = GraphConv::new(init, 0, dims.n_features, self.hidden)?;
        let second = GraphConv::new(init, 1, self.hidden, dims.n_classes)?;
        let norm = self.normalizes_columns.then(|| Normalization::new(init, 0, NormAxis::Columns, self.hidden));
        Ok(Box::new(Copied { of: self.clone(), layers: [first, second], norm: norm.transpose()? }))
    }
}

impl<B: Backend> Model<B> for Copied {
    fn input_spec(&self) -> InputSpec {
        let graph = Some(Adjacency::new(true, Norm::Symmetric));
        InputSpec {
            graph,
            hops: 1,
            raw_features: false,
            propagation: self.of.propagation,
            relations: None,
            edges: false,
        }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let operand = tape.next_dropout(self.of.dropout);
        let rows = Rows::aggregated_input(tape, inputs)?;
        let result = tape.next_dropout(self.of.dropout);
        let [first, second] = &self.layers;
        let masks = Masks { operand, result };
        let mut hidden = first.forward(tape, inputs.graph(0), &rows, masks, Activation::Relu)?;
        if let Some(norm) = &self.norm {
            hidden = norm.forward(tape, hidden)?;
        }
        second.forward(tape, inputs.graph(1), &Rows::Dense(hidden), Masks::default(), Activation::Identity)
    }
}

/// Configuration of three epochs, without a model.
fn three_epochs() -> TrainConfig {
    TrainConfig { epochs: 3, ..TrainConfig::default() }
}

fn neighbor_batches() -> TrainConfig {
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![4, 3], ..BatchConfig::default() };
    TrainConfig { batch, batch_size: Some(25), ..three_epochs() }
}

/// Checkpoint that `train` leaves.
fn checkpoint_of(
    train: impl FnOnce(&SessionOptions, &mut Observer<'_>) -> Result<Outcome, TrainError>,
) -> Result<Checkpoint, TrainError> {
    let folder = tempfile::tempdir().unwrap();
    let options = SessionOptions { checkpoints: Some(folder.path().to_owned()), ..SessionOptions::default() };
    train(&options, &mut |_: Event<'_>| Control::Continue)?;
    Checkpoint::load(&checkpoint_path(folder.path(), 0))
}

/// Checkpoints of girih's GCN and of its copy.
fn both(dataset: &Dataset, model: &CopyOfGcn, config: &TrainConfig) -> [Checkpoint; 2] {
    let inside = TrainConfig { model: model.inside(), ..config.clone() };
    let inside =
        checkpoint_of(|options, observe| train(&Cpu::new(), dataset.clone(), &inside, options, observe)).unwrap();
    let outside =
        checkpoint_of(|options, observe| train_model(&Cpu::new(), dataset.clone(), model, config, options, observe));
    [inside, outside.unwrap()]
}

/// Checks that two checkpoints differ only in the name and settings of a model from outside.
fn assert_same(mut inside: Checkpoint, outside: &Checkpoint, what: &str) {
    assert_eq!(inside.progress.config.model.own, None);
    let own = outside.progress.config.model.own.clone();
    assert_eq!(own.as_ref().unwrap().name, "copy");
    inside.progress.config.model.own = own;
    inside.progress.arrangement.clone_from(&outside.progress.arrangement);
    assert!(&inside == outside, "{what}");
}

#[test]
fn a_copy_of_a_model_trains_to_the_same_bits() {
    let dataset = planted("nodes=300");
    let cluster = BatchConfig {
        kind: BatchKind::Cluster,
        clusters: Some(11),
        clusters_per_batch: Some(3),
        ..BatchConfig::default()
    };
    let clusters = TrainConfig { batch: cluster, ..three_epochs() };
    for dataset in [&dataset, &with_bags_of_words(&dataset)] {
        for config in [three_epochs(), neighbor_batches(), clusters.clone()] {
            for dropout in [0.0, 0.4] {
                let [inside, outside] = both(dataset, &CopyOfGcn::new(dropout), &config);
                assert_same(inside, &outside, &format!("{:?}, dropout {dropout}", config.batch.kind));
            }
        }
    }
}

fn options(scheme: Scheme, n_ranks: usize) -> RankOptions {
    crate::distributed::options(scheme, n_ranks, 1, Exchange::Auto)
}

#[test]
fn a_copy_of_a_model_trains_to_the_same_bits_on_ranks() {
    let (dataset, model) = (planted("nodes=300"), CopyOfGcn::new(0.0));
    let patches = RankOptions { layout: GraphPlacement::Patches, ..options(Scheme::OneD, 3) };
    for (config, ranks) in [
        (three_epochs(), options(Scheme::OneD, 3)),
        (three_epochs(), options(Scheme::TwoD, 4)),
        (neighbor_batches(), options(Scheme::OneD, 3)),
        (neighbor_batches(), patches),
    ] {
        let inside = TrainConfig { model: model.inside(), ..config.clone() };
        let inside = checkpoint_of(|options, observe| {
            TrainJob::new(dataset.clone(), &inside, &ranks, options, observe).on_threads(Cpu::new)
        });
        let outside = checkpoint_of(|options, observe| {
            TrainJob::new(dataset.clone(), &config, &ranks, options, observe).on_threads_with(&model, Cpu::new)
        });
        let (inside, outside) = (inside.unwrap(), outside.unwrap());
        assert_same(inside.clone(), &outside, &format!("{:?}, {:?}", config.batch.kind, ranks.layout));
        if !config.batch.is_sampled() {
            let expected = ApplyJob::new(dataset.clone(), &inside, &ranks).on_threads(Cpu::new).unwrap();
            let found = ApplyJob::new(dataset.clone(), &outside, &ranks).on_threads_with(&model, Cpu::new).unwrap();
            assert_eq!(expected, found);
        }
        let refused = ApplyJob::new(dataset.clone(), &outside, &ranks).on_threads(Cpu::new).unwrap_err().to_string();
        assert!(refused.contains("copy from outside girih"), "{refused}");
    }
}

/// Trains with checkpoints in `folder`, and stops after an epoch.
fn train_into(folder: &Path, dataset: &Dataset, model: &CopyOfGcn, stop_after: Option<u64>) -> Result<(), TrainError> {
    let options = SessionOptions { checkpoints: Some(folder.to_owned()), resume: true, ..SessionOptions::default() };
    let mut observe = |event: Event<'_>| match event {
        Event::Epoch { report, .. } if Some(report.epoch) == stop_after => Control::Stop,
        _ => Control::Continue,
    };
    train_model(&Cpu::new(), dataset.clone(), model, &three_epochs(), &options, &mut observe).map(drop)
}

#[test]
fn a_resumed_run_goes_on_bit_for_bit_and_only_with_its_builder() {
    let (dataset, model, folder) = (planted("nodes=200"), CopyOfGcn::new(0.4), tempfile::tempdir().unwrap());
    let [_, expected] = both(&dataset, &model, &three_epochs());
    train_into(folder.path(), &dataset, &model, Some(1)).unwrap();

    let refused = |model: &CopyOfGcn| train_into(folder.path(), &dataset, model, None).unwrap_err().to_string();
    let other_name = refused(&CopyOfGcn { name: "other", ..model.clone() });
    assert!(other_name.contains("its model is copy from outside girih"), "{other_name}");
    assert!(other_name.contains("this call builds other from outside girih"), "{other_name}");
    let other_settings = refused(&CopyOfGcn { hidden: 9, ..model.clone() });
    assert!(other_settings.contains("model.own.settings.hidden 9 (was 16)"), "{other_settings}");
    let without = TrainConfig { model: model.inside(), ..three_epochs() };
    let options =
        SessionOptions { checkpoints: Some(folder.path().to_owned()), resume: true, ..SessionOptions::default() };
    let without = train(&Cpu::new(), dataset.clone(), &without, &options, &mut |_| Control::Continue);
    let without = without.unwrap_err().to_string();
    assert!(without.contains("copy from outside girih, and this call builds gcn of girih"), "{without}");

    train_into(folder.path(), &dataset, &model, None).unwrap();
    let found = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    assert!(Checkpoint { file: None, ..found } == Checkpoint { file: None, ..expected });
}

#[test]
fn a_checkpoint_is_applied_only_with_its_builder() {
    let (dataset, cpu, model) = (planted("nodes=200"), Cpu::new(), CopyOfGcn::new(0.0));
    let [inside, outside] = both(&dataset, &model, &three_epochs());
    let expected = apply(&cpu, dataset.clone(), &inside).unwrap();
    assert_eq!(apply_model(&cpu, dataset.clone(), &model, &outside).unwrap(), expected);

    let without = apply(&cpu, dataset.clone(), &outside).unwrap_err().to_string();
    assert!(without.contains("copy from outside girih, and this call builds gcn of girih"), "{without}");
    assert!(without.contains(outside.file.as_ref().unwrap().to_str().unwrap()), "{without}");
    let wrong = apply_model(&cpu, dataset.clone(), &model, &inside).unwrap_err().to_string();
    assert!(wrong.contains("gcn of girih, and this call builds copy from outside girih"), "{wrong}");
    let compared = similarity(&cpu, dataset, &outside, Some(CodecSpec::Bf16)).unwrap_err().to_string();
    assert!(compared.contains("copy from outside girih"), "{compared}");
}

#[test]
fn a_configuration_that_names_another_model_is_refused() {
    let (dataset, model) = (planted("nodes=100"), CopyOfGcn::new(0.0));
    let other = ModelConfig::from_outside("other", ());
    let config = TrainConfig { model: other, ..three_epochs() };
    let options = SessionOptions::default();
    let observe = &mut |_: Event<'_>| Control::Continue;
    let wrong = train_model(&Cpu::new(), dataset.clone(), &model, &config, &options, observe).unwrap_err().to_string();
    assert!(wrong.contains("other from outside girih, and this call builds copy from outside girih"), "{wrong}");
    let without = train(&Cpu::new(), dataset, &config, &options, observe).unwrap_err().to_string();
    assert!(without.contains("other from outside girih, and this call builds gcn of girih"), "{without}");
}

/// The copy never passes the setting on.
#[test]
fn a_model_that_would_ignore_the_normalisation_is_refused() {
    let model = CopyOfGcn { degrees: Degrees::Absolute, ..CopyOfGcn::new(0.0) };
    for config in [three_epochs(), neighbor_batches()] {
        let train = |options: &SessionOptions, observe: &mut Observer<'_>| {
            train_model(&Cpu::new(), planted("nodes=60"), &model, &config, options, observe)
        };
        let refused = checkpoint_of(train).unwrap_err().to_string();
        assert!(refused.contains("copy would ignore") && refused.contains("with_degrees"), "{refused}");
    }
}

#[test]
fn a_copy_of_a_model_embeds_as_the_model_does() {
    let (dataset, cpu, model) = (planted("nodes=200"), Cpu::new(), CopyOfGcn::new(0.0));
    let links = LinkConfig { width: 8, ..LinkConfig::default() };
    let config = TrainConfig { task: TaskKind::Links, links, ..three_epochs() };
    let [inside, outside] = both(&dataset, &model, &config);
    let expected = embed(&cpu, dataset.clone(), &inside).unwrap();
    assert_eq!(expected.embeddings.n_cols(), 8);
    assert_eq!(embed_model(&cpu, dataset.clone(), &model, &outside).unwrap(), expected);
    let without = embed(&cpu, dataset, &outside).unwrap_err().to_string();
    assert!(without.contains("copy from outside girih"), "{without}");
}

/// Each rank would have the statistics of its own seeds only.
#[test]
fn ranks_refuse_to_normalise_columns_of_a_batch_that_they_share() {
    let dataset = planted("nodes=200");
    let model = CopyOfGcn { normalizes_columns: true, ..CopyOfGcn::new(0.0) };
    let train_on = |ranks: &RankOptions, config: &TrainConfig| {
        checkpoint_of(|options, observe| {
            TrainJob::new(dataset.clone(), config, ranks, options, observe).on_threads_with(&model, Cpu::new)
        })
    };
    let patches = RankOptions { layout: GraphPlacement::Patches, ..options(Scheme::OneD, 2) };
    for ranks in [options(Scheme::OneD, 2), patches] {
        let refused = train_on(&ranks, &neighbor_batches()).unwrap_err().to_string();
        assert!(refused.contains("each rank sees its own seeds only"), "{refused}");
    }
    train_on(&options(Scheme::OneD, 2), &three_epochs()).unwrap();
    train_on(&options(Scheme::OneD, 1), &neighbor_batches()).unwrap();
}

#[test]
fn batches_refuse_a_model_that_reads_only_aggregated_features() {
    let (dataset, always) = (planted("nodes=200"), Propagation::Always);
    let model = CopyOfGcn { propagation: always, ..CopyOfGcn::new(0.0) };
    let refused = checkpoint_of(|options, observe| {
        train_model(&Cpu::new(), dataset.clone(), &model, &neighbor_batches(), options, observe)
    });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.starts_with("copy reads features that are aggregated before training"), "{refused}");
}
