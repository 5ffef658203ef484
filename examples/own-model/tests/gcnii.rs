//! GCNII trains, resumes, samples and runs on ranks; the gradient of its operation is that of differences.

use std::path::Path;
use std::time::Duration;

use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Reference, Shape};
use girih_datasets::{Dataset, LoadOptions, load};
use girih_graph_format::Matrix;
use girih_partition::{Exchange, ProcessGrid, Scheme};
use girih_random::Key;
use girih_trainer::distributed::{ModelJob, RankOptions, TrainJob};
use girih_trainer::{
    BatchConfig, BatchKind, Checkpoint, Control, Event, Gradients, Mode, Outcome, ParamInit, Pool, SessionOptions,
    Tape, Targets, TrainConfig, TrainError, apply, apply_model, checkpoint_path, train_model,
};
use own_model::{Gcnii, identity_mapping};

fn dataset() -> Dataset {
    load("synth:planted,nodes=400,degree=10,features=24,classes=3", &LoadOptions::default()).unwrap()
}

fn small() -> Gcnii {
    Gcnii { layers: 3, hidden: 16, dropout: 0.2, ..Gcnii::default() }
}

/// Trains with checkpoints in `folder`, and stops after an epoch.
fn train_into(
    folder: &Path,
    model: &Gcnii,
    config: &TrainConfig,
    stop_after: Option<u64>,
) -> Result<Outcome, TrainError> {
    let options = SessionOptions { checkpoints: Some(folder.to_owned()), resume: true, ..SessionOptions::default() };
    train_model(&Cpu::new(), dataset(), model, config, &options, &mut |event| match event {
        Event::Epoch { report, .. } if Some(report.epoch) == stop_after => Control::Stop,
        _ => Control::Continue,
    })
}

#[test]
fn it_learns_and_resumes_bit_for_bit() {
    let config = TrainConfig { epochs: 40, ..TrainConfig::default() };
    let [whole, parts] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let outcome = train_into(whole.path(), &small(), &config, None).unwrap();
    let accuracy = outcome.runs[0].best.val_accuracy.unwrap();
    assert!(accuracy > 0.6, "{accuracy}");
    train_into(parts.path(), &small(), &config, Some(13)).unwrap();
    train_into(parts.path(), &small(), &config, None).unwrap();
    let load = |folder: &Path| Checkpoint::load(&checkpoint_path(folder, 0)).unwrap();
    let (expected, found) = (load(whole.path()), load(parts.path()));
    assert!(expected == found);

    apply_model(&Cpu::new(), dataset(), &small(), &found).unwrap();
    let refused = apply(&Cpu::new(), dataset(), &found).unwrap_err().to_string();
    assert!(refused.contains("gcnii"), "{refused}");
    let other = Gcnii { alpha: 0.3, ..small() };
    let refused = train_into(parts.path(), &other, &config, None).unwrap_err().to_string();
    assert!(refused.contains("alpha"), "{refused}");
}

#[test]
fn it_trains_on_mini_batches_and_on_ranks() {
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![5, 4, 3], ..BatchConfig::default() };
    let sampled = TrainConfig { epochs: 12, batch, batch_size: Some(40), ..TrainConfig::default() };
    let folder = tempfile::tempdir().unwrap();
    let outcome = train_into(folder.path(), &small(), &sampled, None).unwrap();
    let accuracy = outcome.runs[0].best.val_accuracy.unwrap();
    assert!(accuracy > 0.6, "{accuracy}");

    let config = TrainConfig { epochs: 3, ..TrainConfig::default() };
    let (options, mut observe) = (SessionOptions::default(), |_: Event<'_>| Control::Continue);
    let one = train_model(&Cpu::new(), dataset(), &small(), &config, &options, &mut observe).unwrap();
    let grid = ProcessGrid::new(Scheme::OneD, 3, 1).unwrap();
    let ranks = RankOptions::new(grid, Exchange::Auto, Duration::from_secs(60));
    let job = TrainJob::new(dataset(), &config, &ranks, &options, &mut observe);
    let several = job.on_threads_with(&small(), Cpu::new).unwrap();
    let (a, b) = (one.runs[0].train_loss, several.runs[0].train_loss);
    assert!((a - b).abs() < 1e-4 * a, "{a} on one rank, {b} on three");
}

/// Central differences of the loss, in `f64`.
#[test]
fn the_gradient_of_its_operation_is_right() {
    let mut init = ParamInit::new(&Reference, 3, 0);
    let ids = [("x", 5), ("weight", 3)].map(|(name, rows)| init.glorot(0, name, Shape::new(rows, 3), 1).unwrap());
    let mut params = init.finish();
    let targets = Matrix::new(5, 3, (0..15).map(|i| f32::from(u8::from(i % 4 == 0))).collect::<Vec<_>>()).unwrap();
    let targets = Targets::<Reference>::Multi(Reference.upload(&targets, Dtype::F32).unwrap());
    let rows = Reference.upload_ids(&[0, 1, 2, 3, 4]).unwrap();
    let (mut pool, mode) = (Pool::default(), Mode::Train(Key::new(5, 1)));
    let mut gradients = Gradients::new(&Reference, &params).unwrap();
    let mut tape = Tape::new(&Reference, &params, &mut pool, mode);
    let [x, weight] = ids.map(|id| tape.param(id));
    let logits = identity_mapping(&mut tape, x, weight, 0.4).unwrap();
    let loss = tape.loss(logits, &targets, &rows).unwrap();
    tape.backward(loss, &mut gradients).unwrap();
    for id in ids {
        for element in 0..params.value(id).data().len() {
            let mut loss_at = |delta: f64| {
                params.value_mut(id).data_mut()[element] += delta;
                let mut tape = Tape::new(&Reference, &params, &mut pool, mode);
                let [x, weight] = ids.map(|id| tape.param(id));
                let logits = identity_mapping(&mut tape, x, weight, 0.4).unwrap();
                let value = tape.loss(logits, &targets, &rows).unwrap().matrix().data()[0];
                drop(tape);
                params.value_mut(id).data_mut()[element] -= delta;
                value
            };
            let difference = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6;
            let gradient = gradients.get(id).map_or(0.0, |grad| grad.data()[element]);
            assert!((difference - gradient).abs() < 2e-7, "element {element}: {difference}, but {gradient}");
        }
    }
}
