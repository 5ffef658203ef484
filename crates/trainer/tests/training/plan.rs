//! What a plan says before training is what training then does.

use girih_compute::{Dtype, Rates};
use girih_datasets::Dataset;
use girih_trainer::{DataSizes, Plan, TrainConfig};

use crate::{ALL_MODELS, Stage, config, densified, planted, with_bags_of_words, with_input_dropout};

const RATES: Rates = Rates { stream_bytes: 1e10, gather_bytes: 2e10, flops: 1e11 };

fn plan(config: &TrainConfig, dataset: &Dataset) -> Plan {
    Plan::new(config, &DataSizes::of(dataset), RATES).unwrap()
}

#[test]
fn a_plan_knows_when_the_first_aggregation_is_a_constant() {
    let sparse = with_bags_of_words(&planted("nodes=300"));
    for dataset in [densified(&sparse), sparse] {
        for kind in ALL_MODELS {
            for (p, aggregate_once) in [(0.0, true), (0.0, false), (0.5, true)] {
                let mut config = with_input_dropout(config(kind, 10), p);
                config.model.aggregate_once = aggregate_once;
                let planned = plan(&config, &dataset).aggregates_once;
                let done = Stage::new(dataset.clone(), &config).inputs.propagated.is_some();
                assert_eq!(
                    planned,
                    done,
                    "{kind:?}, dropout {p}, once {aggregate_once}, sparse {}",
                    DataSizes::of(&dataset).feature_nnz.is_some()
                );
            }
        }
    }
}

#[test]
fn plans_grow_with_what_they_plan() {
    let (small, large) = (planted("nodes=1000"), planted("nodes=2000"));
    let base = config(girih_trainer::ModelKind::Gcn, 10);
    let (one, two) = (plan(&base, &small), plan(&base, &large));
    assert!(two.input_bytes > one.input_bytes && two.peak_bytes > one.peak_bytes);
    assert_eq!(one.parameter_bytes, two.parameter_bytes, "parameters do not depend on the graph");
    assert!(one.peak_bytes >= one.input_bytes + one.parameter_bytes);

    let rounded = plan(&TrainConfig { precision: Dtype::Bf16, ..base.clone() }, &small);
    assert!(rounded.input_bytes < one.input_bytes);
    let longer = plan(&TrainConfig { epochs: 20, ..base }, &small);
    let epochs = |plan: &Plan| plan.total_seconds - plan.prepare_seconds;
    assert!((epochs(&longer) - 2.0 * epochs(&one)).abs() < 1e-6 * epochs(&longer));
}
