//! `batches`: accuracy of training on mini-batches, compared with the full graph.
//!
//! On each data set, networks are trained on the full graph and on mini-batches, with the same seeds and splits. All
//! are scored on the full graph, on the test nodes, at the best epoch of the validation nodes. Settings are the
//! defaults of `girih train` with wider layers.
//!
//! Networks have 64 hidden columns; on generated graphs 128, no weight decay and a learning rate that falls to zero.

use std::collections::BTreeMap;

use girih_compute::Cpu;
use girih_datasets::Dataset;
use girih_trainer::{BatchKind, Metric, ModelKind};

use super::setup::Setup;
use super::trainings::{Trained, configured, on_batches};
use crate::{Error, Goal, Report, graphs};

/// Graph with a tenth of Reddit's nodes.
const GRAPH: &str = "synth:reddit@0.1";
/// Networks with their kind of batches, and the accuracy that batches may lose, in points.
const COMPARED: [(ModelKind, BatchKind, f64); 4] = [
    (ModelKind::Sage, BatchKind::Neighbor, 1.0),
    (ModelKind::Gat, BatchKind::Neighbor, 1.0),
    (ModelKind::Gcn, BatchKind::Cluster, 2.0),
    (ModelKind::Gcn, BatchKind::Saint, 2.0),
];

/// Adds a case for each network on the full graph, and for each on mini-batches.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let default = [setup.graph_or(GRAPH).to_owned()];
    let specs = if setup.graphs.is_empty() { &default } else { &setup.graphs[..] };
    let mut described = Vec::new();
    for spec in specs {
        let dataset = graphs::load_with_splits(spec, setup.runs as usize)?;
        described.push(graphs::describe(&dataset));
        compare(setup, &dataset, report)?;
    }
    report.graph = Some(described.join("; "));
    Ok(())
}

/// Trains every network on one data set, on the full graph and on mini-batches.
fn compare(setup: &Setup, dataset: &Dataset, report: &mut Report) -> Result<(), Error> {
    let backend = Cpu::new();
    let mut on_full_graph = BTreeMap::new();
    for (model, batch, points) in COMPARED {
        let full = configured(setup, dataset, model);
        let name = |batch: BatchKind| format!("{}/{}/{}", dataset.name, model.name(), batch.name());
        if !on_full_graph.contains_key(model.name()) {
            let trained = Trained::with(&backend, dataset, &full)?;
            report.cases.push(trained.case(name(BatchKind::Full), Metric::Accuracy)?);
            on_full_graph.insert(model.name(), trained);
        }
        let trained = Trained::with(&backend, dataset, &on_batches(dataset, full, batch))?;
        let difference = trained.minus(&on_full_graph[model.name()], Metric::Accuracy)?;
        let case = trained.case(name(batch), Metric::Accuracy)?;
        report.cases.push(
            case.with("beside_full_points", difference.points).with("beside_full_error_points", difference.error),
        );
        let what = format!("{} below the full graph, mean of {} runs, points", name(batch), setup.runs);
        report.goals.push(Goal::at_most(what, -difference.points, points));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use girih_machine::Ceilings;

    use super::*;

    #[test]
    fn batches_are_scored_beside_the_full_graph() {
        let dataset = graphs::load_with_splits("synth:planted,nodes=400,degree=10,features=16,classes=4", 2).unwrap();
        let mut report = Report::new("batches", Path::new("/"), Ceilings::default());
        compare(&Setup { runs: 2, ..Setup::default() }, &dataset, &mut report).unwrap();
        let of_data = format!("{}/", dataset.name);
        let names: Vec<&str> =
            report.cases.iter().map(|case| case.name.strip_prefix(&of_data).expect("the data comes first")).collect();
        assert_eq!(
            names,
            ["sage/full", "sage/neighbor", "gat/full", "gat/neighbor", "gcn/full", "gcn/cluster", "gcn/saint"]
        );
        for (goal, at) in report.goals.iter().zip([1, 3, 5, 6]) {
            assert_eq!(goal.found, -report.cases[at].metrics["beside_full_points"]);
            assert!(
                report.cases[at].metrics["accuracy_percent"] > 40.0,
                "better than guessing: {:?}",
                report.cases[at]
            );
        }
    }
}
