//! Training on a CUDA device against training on the processor. Without a device the tests say so and pass, unless
//! `GIRIH_REQUIRE_GPU` is set: `cargo xtask gpu-test` sets it.

use girih_compute::{Backend, Cpu};
use girih_datasets::{LoadOptions, load};
use girih_kernels::{Cuda, Device};
use girih_trainer::{Control, Event, ModelKind, SessionOptions, TrainConfig};

const EPOCHS: u64 = 20;

fn cuda() -> Option<Cuda> {
    match Device::open(0) {
        Ok(device) => Some(Cuda::new(device)),
        Err(error) if std::env::var_os("GIRIH_REQUIRE_GPU").is_some() => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// The training loss of every epoch.
fn losses<B: Backend>(backend: &B, kind: ModelKind) -> Vec<f32> {
    let spec = "synth:planted,nodes=1500,degree=12,features=24,classes=5";
    let dataset = load(spec, &LoadOptions::default()).expect("a generated data set");
    let config = TrainConfig { epochs: EPOCHS, eval_every: EPOCHS, ..TrainConfig::for_model(kind) };
    let mut losses = Vec::new();
    let mut observe = |event: Event<'_>| {
        if let Event::Epoch { report, .. } = event {
            losses.push(report.train_loss);
        }
        Control::Continue
    };
    girih_trainer::train(backend, dataset, &config, &SessionOptions::default(), &mut observe).expect("training");
    losses
}

#[test]
fn models_learn_on_a_device_what_they_learn_on_the_processor() {
    let Some(cuda) = cuda() else { return };
    let kinds = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin, ModelKind::Sgc];
    for kind in kinds.into_iter().chain([ModelKind::Ngcn, ModelKind::Appnp, ModelKind::Mlp]) {
        let (expected, found) = (losses(&Cpu::new(), kind), losses(&cuda, kind));
        for (epoch, (a, b)) in expected.iter().zip(&found).enumerate() {
            assert!((a - b).abs() < 1e-4 * a.abs(), "{kind:?}, epoch {epoch}: {b}, on the processor {a}");
        }
        assert_eq!(found, losses(&cuda, kind), "{kind:?}: the same bits again");
    }
}
