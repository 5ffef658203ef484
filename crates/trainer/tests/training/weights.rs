//! Weights travel: exported tensors give the logits of PyG's formulas, imported ones the logits of the checkpoint, bit
//! for bit, and files of other models are refused.

mod formulas;

use std::path::Path;

use girih_compute::Cpu;
use girih_datasets::{Dataset, Features};
use girih_graph_format::{Coo, Duplicates};
use girih_random::Key;
use girih_trainer::{
    Aggregator, Checkpoint, DataShape, Jump, ModelConfig, ModelKind, NamedWeight, NormKind, TrainConfig, WeightFormat,
    apply, checkpoint_path, export_weights, import_weights, read_weights, recommend, write_weights,
};

use self::formulas::{Reference, logits};
use crate::recommend::{lightgcn, tastes};
use crate::{config, planted, train_into};

/// Classifiers with a counterpart in PyG.
const KINDS: [ModelKind; 8] = [
    ModelKind::Gcn,
    ModelKind::Sgc,
    ModelKind::Sage,
    ModelKind::Gat,
    ModelKind::Gatv2,
    ModelKind::Gin,
    ModelKind::Appnp,
    ModelKind::Mlp,
];

/// Three layers, several heads in all of them, and widths that differ from each other.
fn settings(kind: ModelKind) -> TrainConfig {
    let mut config = TrainConfig { optimizer: TrainConfig::default().optimizer, ..config(kind, 4) };
    config.model = ModelConfig { kind, layers: 3, hidden: 5, dropout: 0.1, ..TrainConfig::for_model(kind).model };
    if kind.has_heads() {
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
    for kind in KINDS {
        let (dataset, config) = (data(kind), settings(kind));
        let checkpoint = trained(&dataset, &config);
        let weights = export_weights(&checkpoint).unwrap();
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
    for kind in KINDS {
        let (dataset, config) = (data(kind), settings(kind));
        let checkpoint = trained(&dataset, &config);
        let (.., before) = apply(&Cpu::new(), dataset.clone(), &checkpoint).unwrap();
        for format in WeightFormat::ALL {
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
            let imported = import_weights(&path, read, config, (None, false)).unwrap();
            let file = folder.path().join("run-000.safetensors");
            imported.save(&file).unwrap();
            let (.., after) = apply(&Cpu::new(), dataset.clone(), &Checkpoint::load(&file).unwrap()).unwrap();
            assert_eq!(before, after, "{kind:?} {format}");
        }
    }
}

/// An imported checkpoint is the start of a run on its data.
#[test]
fn training_goes_on_from_imported_weights() {
    let (dataset, config) = (data(ModelKind::Gat), settings(ModelKind::Gat));
    let weights = export_weights(&trained(&dataset, &config)).unwrap();
    let shape = DataShape::of(&dataset);
    let imported = import_weights(Path::new("gat"), weights.clone(), config.clone(), (Some(shape), false)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    imported.save(&checkpoint_path(folder.path(), 0)).unwrap();
    train_into(folder.path(), dataset, &config, None);
    let after = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    assert_eq!(after.progress.epoch, config.epochs);
    assert_ne!(export_weights(&after).unwrap(), weights);
}

#[test]
fn embeddings_of_lightgcn_come_back() {
    let config = lightgcn(4);
    let checkpoint = trained(&tastes(), &config);
    let weights = export_weights(&checkpoint).unwrap();
    assert_eq!(weights[1].shape, [440, 16]);
    let refused =
        import_weights(Path::new("l"), weights.clone(), config.clone(), (None, false)).unwrap_err().to_string();
    assert!(refused.contains("--data"), "{refused}");
    let shape = Some(DataShape::of(&tastes()));
    let imported = import_weights(Path::new("l"), weights, config, (shape, false)).unwrap();
    let [before, after] = [checkpoint, imported].map(|c| recommend(&Cpu::new(), tastes(), &c).unwrap().items);
    assert_eq!(before, after);
}

#[test]
fn models_without_counterpart_are_refused_by_reason() {
    let dataset = planted("nodes=40");
    let changed = |kind, change: fn(&mut TrainConfig)| {
        let mut config = config(kind, 1);
        change(&mut config);
        export_weights(&trained(&dataset, &config)).unwrap_err().to_string()
    };
    for (message, told) in [
        (changed(ModelKind::Ngcn, |_| ()), "ngcn"),
        (changed(ModelKind::Gcn, |c| c.model.residual = true), "--residual"),
        (changed(ModelKind::Gcn, |c| c.model.norm = NormKind::Layer), "--norm none"),
        (changed(ModelKind::Gin, |c| c.model.jump = Jump::Max), "--jump none"),
        (changed(ModelKind::Sage, |c| c.model.aggregator = Aggregator::Pool), "--aggregator mean"),
        (changed(ModelKind::Gcn, |c| c.codec = Some("topk:4".parse().unwrap())), "--codec none"),
    ] {
        assert!(message.contains(told) && message.contains("no counterpart"), "{message}");
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused_by_name() {
    let config = settings(ModelKind::Gatv2);
    let good = export_weights(&trained(&data(ModelKind::Gatv2), &config)).unwrap();
    let message = |config: &TrainConfig, change: &dyn Fn(&mut Vec<NamedWeight>)| {
        let mut weights = good.clone();
        change(&mut weights);
        import_weights(Path::new("some.file"), weights, config.clone(), (None, false)).unwrap_err().to_string()
    };
    let of = |weights: &mut Vec<NamedWeight>, name: &str, change: &dyn Fn(&mut NamedWeight)| {
        change(weights.iter_mut().find(|weight| weight.name == name).unwrap());
    };
    let fewer = TrainConfig { model: ModelConfig { layers: 2, ..config.model.clone() }, ..config.clone() };
    let wider = TrainConfig { model: ModelConfig { hidden: 6, ..config.model.clone() }, ..config.clone() };
    let other = TrainConfig { model: ModelConfig { layers: 3, ..ModelConfig::default() }, ..TrainConfig::default() };
    let unchanged = |_: &mut Vec<NamedWeight>| ();
    for (message, told) in [
        (message(&config, &|w| w.retain(|w| w.name != "convs.1.att")), "no tensor `convs.1.att`"),
        (message(&config, &|w| of(w, "convs.1.att", &|w| w.name = "convs.1.lin_edge".into())), "convs.1.lin_edge"),
        (message(&config, &|w| of(w, "convs.0.lin_r.weight", &|w| w.shape.reverse())), "is transposed"),
        (message(&config, &|w| of(w, "convs.2.bias", &|w| w.values[1] = f32::NAN)), "`convs.2.bias`: value 1 is NaN"),
        (message(&config, &|w| of(w, "convs.0.lin_l.bias", &|w| w.values[2] = 0.5)), "convs.0.lin_l.bias"),
        (message(&fewer, &unchanged), "give --layers 3"),
        (message(&wider, &unchanged), "expects [1, 3, 6]"),
        (message(&other, &unchanged), "gcn with 3 layers has no tensor"),
    ] {
        assert!(message.contains(told) && message.contains("some.file"), "{message}");
    }
}
