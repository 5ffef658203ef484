//! `gpu-accuracy`: whether a CUDA device learns as the CPU does, and bf16 as `f32` does.
//!
//! For each data set, 50 epochs in `f32` on the CPU and on the device give loss curves. Full training on the device
//! then gives scores for both storage types, with the same seeds. Scores are those on the test nodes at the best
//! epoch of the validation nodes. The network is the GCN of `girih train` by default. Data with two classes use the
//! published network and ROC-AUC, because accuracy says little there. Generated graphs, whose 41 classes need more
//! than 16 hidden columns, use that of Miao et al. 2023.

use girih_compute::{Cpu, Dtype};
use girih_datasets::Dataset;
use girih_features::MiniBatchBackend;
use girih_trainer::{Control, Event, Metric, ModelKind, SessionOptions, TrainConfig, train};

use super::gpu;
use super::setup::Setup;
use super::trainings::{Trained, name, wide};
use crate::timing::Summary;
use crate::{Case, Error, Goal, Report, graphs};

/// Number of epochs of the loss curves.
const CURVE: u64 = 50;
/// Maximum difference of losses, relative to the CPU's, in millionths.
const CURVE_MILLIONTHS: f64 = 100.0;
/// Maximum difference between scores of bf16 and `f32`, in points.
const SCORE_POINTS: f64 = 0.3;

/// Adds four cases for each data set: the loss curves on the CPU and the device, and a score for each storage type.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let mut cuda = gpu::open_device(report)?;
    let default = [setup.graph_or(graphs::FULL).to_owned()];
    let specs = if setup.graphs.is_empty() { &default } else { &setup.graphs[..] };
    let mut described = Vec::new();
    for spec in specs {
        let dataset = graphs::load_with_splits(spec, setup.runs as usize)?;
        described.push(graphs::describe(&dataset));
        let config = TrainConfig { runs: setup.runs, ..config(&dataset) };
        let expected = Curve::of(&Cpu::new(), &dataset, &config)?;
        cuda = cuda.storing(Dtype::F32);
        let found = Curve::of(&cuda, &dataset, &config)?;
        add_curves(&dataset.name, expected, found, report);
        let precisely = |precision| TrainConfig { precision, ..config.clone() };
        let exact = Trained::with(&cuda, &dataset, &precisely(Dtype::F32))?;
        cuda = cuda.storing(Dtype::Bf16);
        let trained = [exact, Trained::with(&cuda, &dataset, &precisely(Dtype::Bf16))?];
        add_scores(&dataset.name, config.metric, &trained, report)?;
    }
    report.graph = Some(described.join("; "));
    Ok(())
}

/// Configuration for a data set.
fn config(dataset: &Dataset) -> TrainConfig {
    match dataset.n_classes() {
        2 => TrainConfig::heterophilous(),
        _ if dataset.generated => wide(ModelKind::Gcn),
        _ => TrainConfig::default(),
    }
}

/// Losses of the first epochs of a run, with the times of these epochs.
struct Curve {
    losses: Vec<f32>,
    time: Summary,
}

impl Curve {
    fn of<B: MiniBatchBackend>(backend: &B, dataset: &Dataset, config: &TrainConfig) -> Result<Self, Error> {
        let config = TrainConfig { epochs: CURVE, eval_every: CURVE, runs: 1, ..config.clone() };
        let (mut losses, mut seconds) = (Vec::new(), Vec::new());
        train(backend, dataset.clone(), &config, &SessionOptions::default(), &mut |event: Event<'_>| {
            if let Event::Epoch { report, .. } = event {
                losses.push(report.train_loss);
                seconds.push(report.times.steps.as_secs_f64());
            }
            Control::Continue
        })?;
        Ok(Self { losses, time: Summary::of(&seconds) })
    }

    fn case(self, name: String) -> Case {
        Case { losses: self.losses, ..Case::new(name, self.time) }
    }
}

fn add_curves(data: &str, expected: Curve, found: Curve, report: &mut Report) {
    let millionths = 1e6 * largest_difference(&expected.losses, &found.losses);
    report.cases.push(expected.case(format!("{data}/loss/processor")));
    report.cases.push(found.case(format!("{data}/loss/device")).with("loss_difference_millionths", millionths));
    let what = format!("{data}: loss on the device beside the processor's over {CURVE} epochs, millionths");
    report.goals.push(Goal::at_most(what, millionths, CURVE_MILLIONTHS));
}

/// Largest difference of two curves, relative to the first one.
fn largest_difference(expected: &[f32], found: &[f32]) -> f64 {
    assert_eq!(expected.len(), found.len(), "curves of as many epochs");
    let difference = |(&a, &b): (&f32, &f32)| f64::from((b - a).abs() / a.abs().max(f32::MIN_POSITIVE));
    // Losses are finite: training ends with an error otherwise.
    expected.iter().zip(found).map(difference).fold(0.0, f64::max)
}

/// Adds the cases of both storage types, the second with its difference to the first.
fn add_scores(data: &str, metric: Metric, [f32, bf16]: &[Trained; 2], report: &mut Report) -> Result<(), Error> {
    let named = |dtype: Dtype| format!("{data}/{}", dtype.name());
    let difference = bf16.minus(f32, metric)?;
    report.cases.push(f32.case(named(Dtype::F32), metric)?);
    report.cases.push(
        bf16.case(named(Dtype::Bf16), metric)?
            .with("beside_f32_points", difference.points)
            .with("beside_f32_error_points", difference.error),
    );
    let what = format!("{data}: {} in bf16 beside f32, mean of {} runs, points", name(metric), bf16.n_runs());
    report.goals.push(Goal::at_most(what, difference.points.abs(), SCORE_POINTS));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use girih_machine::Ceilings;

    use super::*;

    #[test]
    fn curves_are_as_far_apart_as_their_worst_epoch() {
        assert!((largest_difference(&[2.0, 1.0, 0.5], &[2.0, 1.01, 0.501]) - 0.01).abs() < 1e-6);
        assert_eq!(largest_difference(&[1.0, 0.0], &[1.0, 0.0]), 0.0);
    }

    /// With the CPU in place of the device: the same curve, the same scores, and a small loss from bf16 rows.
    #[test]
    fn a_data_set_is_reported_with_its_goals() {
        let dataset = graphs::load_with_splits("synth:planted,nodes=400,degree=10,features=16,classes=2", 3).unwrap();
        let config = TrainConfig { runs: 3, epochs: 20, ..config(&dataset) };
        let mut report = Report::new("gpu-accuracy", Path::new("/"), Ceilings::default());
        let curve = || Curve::of(&Cpu::new(), &dataset, &config).unwrap();
        add_curves("planted", curve(), curve(), &mut report);
        let trained = [Dtype::F32, Dtype::Bf16].map(|precision| {
            let config = TrainConfig { precision, ..config.clone() };
            Trained::with(&Cpu::new().gathering(precision), &dataset, &config).unwrap()
        });
        add_scores("planted", config.metric, &trained, &mut report).unwrap();

        assert_eq!(report.cases[0].losses.len(), CURVE as usize);
        assert_eq!((report.goals[0].found, report.goals[0].is_met), (0.0, true), "the same curve twice");
        assert!(report.cases[2].metrics["roc_auc_percent"] > 60.0, "better than guessing");
        let difference = report.cases[3].metrics["beside_f32_points"];
        assert_eq!(report.goals[1].found, difference.abs());
        assert_eq!(
            report.cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(),
            ["planted/loss/processor", "planted/loss/device", "planted/f32", "planted/bf16"]
        );
    }
}
