//! Weights travel: exported tensors give the logits of PyG's formulas, imported ones the logits of the checkpoint, bit
//! for bit, and files of other models are refused.

mod formulas;
mod onnx;

use std::path::Path;

use girih_compute::Cpu;
use girih_datasets::{Dataset, Features};
use girih_graph_format::{Coo, Csr, Duplicates};
use girih_random::Key;
use girih_sampling::Bound;
use girih_trainer::{
    Aggregator, Checkpoint, DataShape, DecoderKind, Jump, Library, ModelConfig, ModelKind, NamedWeight, NormKind,
    TrainConfig, WeightFormat, apply, checkpoint_path, export_weights, import_weights, read_weights, recommend,
    write_weights,
};

use self::formulas::{Reference, logits};
use self::onnx::{Dense, OnnxModel};
use crate::links::timed;
use crate::recommend::{lightgcn, tastes};
use crate::triples::{statements, triples};
use crate::{config, planted, train_into};

/// Classifiers with a counterpart in PyG.
fn exported() -> impl Iterator<Item = ModelKind> {
    ModelKind::classifiers().filter(|kind| kind.properties().exports.is_some())
}

/// Three layers, several heads in all of them, and widths that differ from each other.
fn settings(kind: ModelKind) -> TrainConfig {
    let mut config = TrainConfig { optimizer: TrainConfig::default().optimizer, ..config(kind, 4) };
    config.model = ModelConfig { kind, layers: 3, hidden: 5, dropout: 0.1, ..TrainConfig::for_model(kind).model };
    if kind.reads("out_heads") {
        config.model = ModelConfig { heads: 3, out_heads: 2, slope: 0.3, ..config.model };
    }
    if kind == ModelKind::Appnp {
        config.model = ModelConfig { hops: 3, teleport: 0.2, ..config.model };
    }
    config
}

/// Data whose edges have a direction, for models that do not divide by the degrees of both ends.
fn data(kind: ModelKind) -> Dataset {
    let dataset = planted("nodes=50");
    if !matches!(kind, ModelKind::Sage | ModelKind::Gat | ModelKind::Gatv2 | ModelKind::Gin) {
        return dataset;
    }
    let mut stream = Key::new(11, 7).stream(0, 0);
    let mut end = || (0..220).map(|_| (stream.unit_f32() * 49.9) as u32).collect::<Vec<u32>>();
    let (rows, cols) = (end(), end());
    let apart = rows.into_iter().zip(cols).filter(|(a, b)| a != b);
    let (rows, cols) = apart.unzip();
    let graph = Coo::new(50, 50, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    Dataset { graph, ..dataset }
}

fn trained(dataset: &Dataset, config: &TrainConfig) -> Checkpoint {
    let folder = tempfile::tempdir().unwrap();
    train_into(folder.path(), dataset.clone(), config, None);
    Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap()
}

#[test]
fn exported_weights_give_the_logits_of_the_formulas_of_pyg() {
    for kind in exported() {
        let (dataset, config) = (data(kind), settings(kind));
        let checkpoint = trained(&dataset, &config);
        let weights = export_weights(&checkpoint, Library::Pyg).unwrap();
        let Some(Features::Dense(features)) = &dataset.features else { panic!("dense features") };
        let expected = logits(&Reference::new(&dataset.graph, &config.model, &weights), features);
        let (.., found) = apply(&Cpu::new(), dataset.clone(), &checkpoint).unwrap();
        for (v, row) in expected.iter().enumerate() {
            for (a, &b) in row.iter().zip(found.row(v)) {
                let error = (a - f64::from(b)).abs() / a.abs().max(1.0);
                assert!(error < 1e-5, "{kind:?}: a logit of node {v} is {b}; the formula gives {a}");
            }
        }
    }
}

#[test]
fn weights_come_back_bit_for_bit_in_every_format() {
    for kind in exported() {
        let (dataset, config) = (data(kind), settings(kind));
        let checkpoint = trained(&dataset, &config);
        let (.., before) = apply(&Cpu::new(), dataset.clone(), &checkpoint).unwrap();
        for format in WeightFormat::ALL.into_iter().filter(|format| *format != WeightFormat::Onnx) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("weights");
            let written = write_weights(&path, format, &checkpoint).unwrap();
            let (mut read, stated) = read_weights(&path, format).unwrap();
            assert_eq!(stated.is_some(), format == WeightFormat::Hf);
            let config = stated.map_or(config.clone(), |stated| stated.config);
            assert_eq!(config, checkpoint.progress.config, "{kind:?}");
            read.sort_by(|a, b| a.name.cmp(&b.name));
            let mut sorted = written.clone();
            sorted.sort_by(|a, b| a.name.cmp(&b.name));
            assert_eq!(read, sorted, "{kind:?} {format}");
            let imported = import_weights(&path, (read, format.library()), config, (None, false)).unwrap();
            let file = folder.path().join("run-000.safetensors");
            imported.save(&file).unwrap();
            let (.., after) = apply(&Cpu::new(), dataset.clone(), &Checkpoint::load(&file).unwrap()).unwrap();
            assert_eq!(before, after, "{kind:?} {format}");
        }
    }
}

/// Directed graph of 50 nodes, in which every fifth node has a self-loop; with weights from 0.5 to 1.5, or without.
fn looped_graph(weighted: bool) -> Csr {
    let mut stream = Key::new(5, 1).stream(0, 0);
    let mut draws = |n: usize| (0..n).map(|_| stream.unit_f32()).collect::<Vec<f32>>();
    let [mut rows, mut cols] = [(); 2].map(|()| draws(200).iter().map(|x| (x * 49.9) as u32).collect::<Vec<u32>>());
    rows.extend((0..50).step_by(5));
    cols.extend((0..50).step_by(5));
    let weights = weighted.then(|| draws(rows.len()).iter().map(|x| x + 0.5).collect());
    Coo::new(50, 50, rows, cols, weights).unwrap().to_csr(Duplicates::Merge).unwrap()
}

/// Inputs of an ONNX graph for a data set.
fn onnx_inputs(dataset: &Dataset) -> [(&'static str, Dense); 3] {
    let Some(Features::Dense(features)) = &dataset.features else { panic!("dense features") };
    let (graph, shape) = (&dataset.graph, [features.n_rows(), features.n_cols()]);
    let sources = (0..shape[0]).flat_map(|v| graph.row(v).iter().map(|&source| f64::from(source)));
    let destinations = (0..shape[0]).flat_map(|v| vec![v as f64; graph.row(v).len()]);
    let weights = graph.values().map_or_else(|| vec![1.0; graph.nnz()], |of| of.iter().map(|&w| w.into()).collect());
    [
        ("x", Dense::new(&shape, features.data().iter().map(|&value| value.into()).collect())),
        ("edge_index", Dense::new(&[2, graph.nnz()], sources.chain(destinations).collect())),
        ("edge_weight", Dense::new(&[graph.nnz()], weights)),
    ]
}

#[test]
fn onnx_graphs_compute_the_logits_on_any_graph() {
    for kind in exported() {
        let (dataset, config) = (data(kind), settings(kind));
        let checkpoint = trained(&dataset, &config);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        let weights = write_weights(&path, WeightFormat::Onnx, &checkpoint).unwrap();
        let model = OnnxModel::read(&std::fs::read(&path).unwrap());
        assert!(weights.iter().all(|weight| model.tensors().any(|name| *name == weight.name)), "{kind:?}");
        assert_eq!(model.inputs.contains(&"edge_weight".to_owned()), config.model.reads_weights(), "{kind:?}");
        assert_eq!(model.output, "logits");
        for (graph, n_inputs) in [(dataset.graph.clone(), 2), (looped_graph(false), 3), (looped_graph(true), 3)] {
            let dataset = Dataset { graph, ..dataset.clone() };
            let (.., expected) = apply(&Cpu::new(), dataset.clone(), &checkpoint).unwrap();
            let found = model.run(&onnx_inputs(&dataset)[..n_inputs]);
            assert_eq!(found.shape, [expected.n_rows(), expected.n_cols()]);
            for (a, &b) in found.values.iter().zip(expected.data()) {
                let error = (a - f64::from(b)).abs() / a.abs().max(1.0);
                assert!(error < 1e-5, "{kind:?}: the graph of ONNX gives {a}, girih {b}");
            }
        }
        let refused = read_weights(&path, WeightFormat::Onnx).unwrap_err().to_string();
        assert!(refused.contains("model.onnx") && refused.contains("for export only"), "{refused}");
    }
}

/// An imported checkpoint is the start of a run on its data.
#[test]
fn training_goes_on_from_imported_weights() {
    let (dataset, config) = (data(ModelKind::Gat), settings(ModelKind::Gat));
    let weights = export_weights(&trained(&dataset, &config), Library::Pyg).unwrap();
    let shape = DataShape::of(&dataset);
    let imported =
        import_weights(Path::new("gat"), (weights.clone(), Library::Pyg), config.clone(), (Some(shape), false))
            .unwrap();
    let folder = tempfile::tempdir().unwrap();
    imported.save(&checkpoint_path(folder.path(), 0)).unwrap();
    train_into(folder.path(), dataset, &config, None);
    let after = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    assert_eq!(after.progress.epoch, config.epochs);
    assert_ne!(export_weights(&after, Library::Pyg).unwrap(), weights);
}

#[test]
fn embeddings_of_lightgcn_come_back() {
    let config = lightgcn(4);
    let checkpoint = trained(&tastes(), &config);
    for library in [Library::Pyg, Library::Dgl] {
        let weights = export_weights(&checkpoint, library).unwrap();
        assert_eq!(
            (&*weights.last().unwrap().name, &*weights.last().unwrap().shape),
            ("embedding.weight", &[440, 16][..])
        );
        let import = |shape| import_weights(Path::new("l"), (weights.clone(), library), config.clone(), (shape, false));
        let refused = import(None).unwrap_err().to_string();
        assert!(refused.contains("--data"), "{refused}");
        let imported = import(Some(DataShape::of(&tastes()))).unwrap();
        let [before, after] =
            [checkpoint.clone(), imported].map(|c| recommend(&Cpu::new(), tastes(), &c).unwrap().items);
        assert_eq!(before, after);
    }
    let refused = export_weights(&checkpoint, Library::Onnx).unwrap_err().to_string();
    assert!(refused.contains("lightgcn") && refused.contains("--format pyg"), "{refused}");
}

/// Neither a network without names of its own in a table, nor one that the properties forget.
#[test]
fn every_network_is_exported_to_each_format_or_refused_by_name() {
    for kind in ModelKind::ALL {
        let (dataset, config) = match kind {
            ModelKind::LightGcn => (tastes(), lightgcn(1)),
            ModelKind::Embedding => (statements(), triples(DecoderKind::DistMult, 1)),
            ModelKind::Gine => (timed::dataset(&timed::edges()), timed::in_time(kind, 1, Bound::Seed)),
            _ => (data(kind), settings(kind)),
        };
        let (checkpoint, folder) = (trained(&dataset, &config), tempfile::tempdir().unwrap());
        for format in WeightFormat::ALL {
            let is_graph = format == WeightFormat::Onnx;
            let exports = kind.properties().exports.is_some() && !(is_graph && kind.is_recommender());
            match write_weights(&folder.path().join(format.name()), format, &checkpoint) {
                Ok(weights) => assert!(exports && !weights.is_empty(), "{kind:?} {format}"),
                Err(error) => {
                    let message = error.to_string();
                    let is_reason = [kind.name(), "no counterpart"].iter().all(|told| message.contains(told));
                    assert!(!exports && is_reason, "{kind:?} {format}: {message}");
                }
            }
        }
    }
}

#[test]
fn models_without_counterpart_are_refused_by_reason() {
    let dataset = planted("nodes=40");
    let changed = |kind, change: fn(&mut TrainConfig)| {
        let mut config = config(kind, 1);
        change(&mut config);
        export_weights(&trained(&dataset, &config), Library::Pyg).unwrap_err().to_string()
    };
    for (message, told) in [
        (changed(ModelKind::Gcn, |c| c.model.residual = true), "--residual"),
        (changed(ModelKind::Gcn, |c| c.model.norm = NormKind::Layer), "--norm none"),
        (changed(ModelKind::Gin, |c| c.model.jump = Jump::Max), "--jump none"),
        (changed(ModelKind::Sage, |c| c.model.aggregator = Aggregator::Pool), "--aggregator mean"),
        (changed(ModelKind::Gcn, |c| c.codec = Some("topk:4".parse().unwrap())), "--codec none"),
    ] {
        assert!(message.contains(told) && message.contains("no counterpart"), "{message}");
    }
}

/// State dict of a GATv2 of three layers, and the message about it after a change.
struct Refusals {
    library: Library,
    config: TrainConfig,
    good: Vec<NamedWeight>,
}

impl Refusals {
    fn new(library: Library) -> Self {
        let config = settings(ModelKind::Gatv2);
        let good = export_weights(&trained(&data(ModelKind::Gatv2), &config), library).unwrap();
        Self { library, config, good }
    }

    fn of_config(&self, config: &TrainConfig, change: impl Fn(&mut Vec<NamedWeight>)) -> String {
        let mut weights = self.good.clone();
        change(&mut weights);
        let weights = (weights, self.library);
        import_weights(Path::new("some.file"), weights, config.clone(), (None, false)).unwrap_err().to_string()
    }

    fn of(&self, name: &str, change: impl Fn(&mut NamedWeight)) -> String {
        let changed = |weights: &mut Vec<NamedWeight>| {
            change(weights.iter_mut().find(|weight| weight.name == name).unwrap());
        };
        self.of_config(&self.config, changed)
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused_by_name() {
    let pyg = Refusals::new(Library::Pyg);
    let config = &pyg.config;
    let fewer = TrainConfig { model: ModelConfig { layers: 2, ..config.model.clone() }, ..config.clone() };
    let wider = TrainConfig { model: ModelConfig { hidden: 6, ..config.model.clone() }, ..config.clone() };
    let other = TrainConfig { model: ModelConfig { layers: 3, ..ModelConfig::default() }, ..TrainConfig::default() };
    let unchanged = |_: &mut Vec<NamedWeight>| ();
    for (message, told) in [
        (pyg.of_config(config, |w| w.retain(|w| w.name != "convs.1.att")), "no tensor `convs.1.att`"),
        (pyg.of("convs.1.att", |w| w.name = "convs.1.lin_edge".into()), "convs.1.lin_edge"),
        (pyg.of("convs.0.lin_r.weight", |w| w.shape.reverse()), "is transposed"),
        (pyg.of("convs.2.bias", |w| w.values[1] = f32::NAN), "`convs.2.bias`: value 1 is NaN"),
        (pyg.of("convs.0.lin_l.bias", |w| w.values[2] = 0.5), "convs.0.lin_l.bias"),
        (pyg.of_config(&fewer, unchanged), "give --layers 3"),
        (pyg.of_config(&wider, unchanged), "expects [1, 3, 6]"),
        (pyg.of_config(&other, unchanged), "gcn with 3 layers has no tensor"),
    ] {
        assert!(message.contains(told) && message.contains("some.file"), "{message}");
    }
}

#[test]
fn a_bias_that_dgl_adds_inside_of_scores_is_refused() {
    let dgl = Refusals::new(Library::Dgl);
    for (message, told) in [
        (dgl.of("layers.1.fc_dst.bias", |w| w.values[2] += 0.5), "`layers.1.fc_dst.bias`: value 2 is"),
        (dgl.of("layers.1.fc_src.bias", |w| w.values[2] += 0.5), "`layers.1.fc_dst.bias`: value 2 is"),
        (dgl.of("layers.2.fc_src.bias", |w| w.shape[0] = 3), "`layers.2.fc_src.bias`"),
        (
            dgl.of_config(&dgl.config, |w| w.retain(|w| w.name != "layers.2.fc_src.bias")),
            "no tensor `layers.2.fc_src.bias`",
        ),
        (dgl.of("layers.0.attn", |w| w.name = "layers.0.res_fc.weight".into()), "layers.0.res_fc.weight"),
    ] {
        assert!(message.contains(told) && message.contains("some.file"), "{message}");
    }
}
