//! `scaling`: planned epochs on 1 to 1024 GPUs, from rates that were measured on few; nothing runs.
//!
//! Graphs have the sizes of the papers, with evenly spread edges. Times per entry of sparse products come from the
//! records of `gpu-spmm`. Recorded epochs on one GPU check the plans.
//!
//! Cases `GRAPH/1/recorded/…` compare plans with epochs of `gpu-fullbatch`.

use std::time::Duration;

use girih_compute::{BlockKind, BlockSeconds, ByDtype, Dtype, EntrySeconds};
use girih_datasets::generate::Preset;
use girih_partition::{Exchange, ProcessGrid, Scheme, Stages};
use girih_planner::measure::entry_seconds;
use girih_planner::{Estimate, H200_BYTES, HardwareProfile, Planner, Table};
use girih_trainer::distributed::{RankOptions, RankPlanner, SymbolicGraph};
use girih_trainer::{DataSizes, Plan, PlanDevice, TrainConfig};

use super::gpu_fullbatch::gcn;
use super::setup::{DTYPES, Setup};
use crate::scaling_page;
use crate::timing::{Protocol, Summary};
use crate::{Case, Error, Goal, Report, folder};

/// Maximum number of GPUs, a power of two, and that of a quick run.
const GPUS_MAX: usize = 1024;
const GPUS_SMALL: usize = 16;
/// Accepted relative error of a prediction.
const TOLERANCE: f64 = 0.2;
/// Time per entry with 16 columns, relative to that with 32. `gpu-spmm` does not measure 16 columns; the values fit
/// the epochs of `gpu-fullbatch`, whose products have as many columns as classes.
const NARROW: ByDtype<f64> = ByDtype { f32: 0.39, bf16: 0.64 };

/// Graph with the size in a paper, and the network that is trained on it.
struct Subject {
    name: &'static str,
    hidden: usize,
    /// Graph whose times per entry were measured.
    entries_of: &'static str,
}

const SUBJECTS: [Subject; 5] = [
    Subject { name: "reddit", hidden: 128, entries_of: "reddit" },
    Subject { name: "proteins", hidden: 128, entries_of: "proteins" },
    Subject { name: "products", hidden: 64, entries_of: "products" },
    Subject { name: "archaea", hidden: 128, entries_of: "archaea" },
    Subject { name: "papers100m", hidden: 128, entries_of: "products" },
];

/// Adds cases for every graph and number of GPUs, and for the recorded epochs on one GPU.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let gpus_max = if setup.small { GPUS_SMALL } else { GPUS_MAX };
    for subject in &SUBJECTS {
        let planned = subject.planned(Dtype::F32)?;
        let mut one = None;
        for gpus in std::iter::successors(Some(1), |gpus| Some(2 * gpus)).take_while(|gpus| *gpus <= gpus_max) {
            let table = planned.table(gpus)?;
            let Some(choice) = table.choice() else { continue };
            let first = *one.get_or_insert(choice.epoch_ms * gpus as f64);
            eprintln!("{}, {gpus}: {:.2} ms by {}, {}", subject.name, choice.epoch_ms, choice.grid, choice.exchange);
            for estimate in best_of_schemes(&table) {
                let case = case(subject.name, gpus, estimate).with("x_one", first / estimate.epoch_ms);
                report.cases.push(if estimate == choice { case.with("is_choice", 1.0) } else { case });
            }
        }
        check(subject, report)?;
    }
    if let Some(docs) = &setup.docs {
        scaling_page::write(docs, report)?;
    }
    Ok(())
}

/// Fastest plan of each scheme that fits.
fn best_of_schemes(table: &Table) -> impl Iterator<Item = &Estimate> {
    Scheme::ALL.into_iter().filter_map(|scheme| table.choice_of(|plan| plan.grid.scheme() == scheme))
}

fn case(graph: &str, gpus: usize, plan: &Estimate) -> Case {
    let stages = match plan.stages {
        Stages::Parts(1) => String::new(),
        Stages::Parts(n) => format!(", {n} parts"),
        Stages::Steps => ", step by step".to_owned(),
        Stages::Turns => ", in turns".to_owned(),
    };
    let chunks = match plan.chunks {
        1 => String::new(),
        chunks => format!(", {chunks} chunks"),
    };
    let replicas = match plan.grid.replication() {
        1 => String::new(),
        replicas => format!(", {replicas} replicas"),
    };
    Case::new(format!("{graph}/{gpus}/{}", plan.grid.scheme()), Summary::of(&[plan.epoch_ms / 1e3]))
        .by(format!("{}{stages}{chunks}{replicas}", plan.exchange))
        .with("products_ms", plan.product_ms)
        .with("exchanges_ms", plan.exchange_ms)
        .with("sent_mb", plan.sent_bytes as f64 / 1e6)
        .with("memory_gb", plan.needed_bytes as f64 / 1e9)
}

/// Compares plans for one GPU with recorded epochs.
fn check(subject: &Subject, report: &mut Report) -> Result<(), Error> {
    let Some(recorded) = recorded("gpu-fullbatch", subject.name)? else { return Ok(()) };
    let mut worst = 0.0f64;
    for dtype in DTYPES {
        let planned = subject.planned(dtype)?;
        for (aggregates, aggregate_once) in [("once", true), ("every", false)] {
            let name = format!("community/{}/{aggregates}", dtype.name());
            let Some(measured) = recorded.cases.iter().find(|case| case.name == name) else { continue };
            let config = subject.config(dtype, aggregate_once);
            let device = PlanDevice::Gpu(Some(planned.figures.gpu));
            let epoch_ms = 1e3 * Plan::on_device(&config, &planned.sizes, device)?.epoch_seconds;
            let ratio = epoch_ms / (1e3 * measured.time.median_s);
            worst = worst.max((ratio - 1.0).abs());
            let case = Case::new(format!("{}/1/recorded/{}/{aggregates}", subject.name, dtype.name()), measured.time);
            report.cases.push(case.with("predicted_ms", epoch_ms).with("predicted_over_measured", ratio));
        }
    }
    report.goals.push(Goal::at_most(format!("{}: one GPU's epochs, share off", subject.name), worst, TOLERANCE));
    Ok(())
}

/// Subject with its sizes and hardware profile.
struct Planned {
    config: TrainConfig,
    sizes: DataSizes,
    figures: HardwareProfile,
}

impl Subject {
    fn config(&self, precision: Dtype, aggregate_once: bool) -> TrainConfig {
        gcn(self.hidden, precision, aggregate_once, Protocol { warm_up: 1, repeats: 1 })
    }

    fn planned(&self, precision: Dtype) -> Result<Planned, Error> {
        let preset = Preset::find(self.name).ok_or("a preset for each graph")?;
        let n_edges = (preset.mean_degree() * preset.nodes() as f64).round() as usize;
        let sizes = DataSizes {
            n_train: preset.nodes() / 10,
            n_scored: preset.nodes() / 5,
            ..DataSizes::undirected(preset.nodes(), n_edges, preset.features(), preset.classes())
        };
        let figures = HardwareProfile::h200().with_entries(recorded_entries(self.entries_of)?);
        Ok(Planned { config: self.config(precision, true), sizes, figures })
    }
}

impl Planned {
    fn table(&self, gpus: usize) -> Result<Table, Error> {
        let Self { config, sizes: data, figures } = self;
        let graph = SymbolicGraph::even(config, data)?;
        let devices = &[PlanDevice::Gpu(Some(figures.gpu))];
        let ranks = RankPlanner { config, data, graph: &graph, devices, network: figures.hosts() };
        let by_rows = ProcessGrid::new(Scheme::OneD, gpus, 1)?;
        // Equal panels and operands as they are. No rank waits in a dry run, so the deadline is zero.
        let like = RankOptions::new(by_rows, Exchange::Dense, Duration::ZERO);
        Ok(Planner { ranks, free_bytes: Some(H200_BYTES) }.table(&like)?)
    }
}

/// Record of a suite on a graph; the last one if there are several.
fn recorded(suite: &str, graph: &str) -> Result<Option<Report>, Error> {
    let prefix = format!("{suite}-{graph}-");
    let mut found: Vec<Report> = Vec::new();
    for entry in std::fs::read_dir(folder().join("record"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or("");
        // The rest of the name is a commit; other names belong to other runs.
        if name.strip_prefix(&prefix).is_some_and(|rest| !rest.contains('-')) {
            found.push(Report::read(&path)?);
        }
    }
    Ok(found.into_iter().max_by(|a, b| a.date.cmp(&b.date)))
}

/// Seconds per entry, from the record of products.
fn recorded_entries(graph: &str) -> Result<ByDtype<BlockSeconds>, Error> {
    let report = recorded("gpu-spmm", graph)?.ok_or("a record of products")?;
    let copied = 1e9 * report.device.as_ref().ok_or("a record of a device")?.copy_gb_s;
    let described = report.graph.as_deref().unwrap_or("");
    let count = |of: &str| -> Result<usize, Error> {
        let before = described.split(of).next().unwrap_or("");
        Ok(before.rsplit(' ').next().unwrap_or("").parse()?)
    };
    let (n, nnz) = (count(" nodes")?, count(" edges")?);
    let (of_operand, of_result) = (BlockKind::Whole.operand_passes(), BlockKind::result_passes(false));
    let of = |dtype: Dtype| -> Result<BlockSeconds, Error> {
        let mut seconds = [0.0; EntrySeconds::WIDTHS.len()];
        for (seconds, cols) in seconds.iter_mut().zip(EntrySeconds::WIDTHS).skip(1) {
            let name = format!("community/w{cols}/{}/girih", dtype.name());
            let case = report.cases.iter().find(|case| case.name == name).ok_or("a product of each width")?;
            let passes = ((of_operand + of_result) * n * cols * dtype.n_bytes()) as f64 / copied;
            *seconds = entry_seconds(case.time.median_s, nnz, passes);
        }
        seconds[0] = NARROW.of(dtype) * seconds[1];
        Ok(BlockSeconds::alike(EntrySeconds::new(seconds)))
    };
    Ok(ByDtype { f32: of(Dtype::F32)?, bf16: of(Dtype::Bf16)? })
}

#[cfg(test)]
mod tests {
    use girih_machine::{Ceilings, Machine};

    use super::*;

    #[test]
    fn plans_for_one_gpu_come_out_as_recorded() {
        let ceilings = Ceilings::measure(&Machine::here()).unwrap();
        let mut report = Report::new("scaling", &folder(), ceilings);
        for subject in &SUBJECTS {
            check(subject, &mut report).unwrap();
        }
        assert_eq!(report.goals.len(), 4, "four graphs are recorded");
        assert!(report.goals.iter().all(|goal| goal.is_met), "{:?}", report.goals);
    }

    #[test]
    fn the_best_of_each_scheme_fits() {
        let planned = SUBJECTS[4].planned(Dtype::F32).unwrap();
        assert!(planned.table(1).unwrap().choice().is_none(), "Papers100M is too large for one GPU");
        let table = planned.table(64).unwrap();
        let best: Vec<Scheme> = best_of_schemes(&table).map(|plan| plan.grid.scheme()).collect();
        assert_eq!(best, Scheme::ALL);
    }
}
