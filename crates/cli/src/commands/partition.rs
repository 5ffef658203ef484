//! `girih partition`: predicts how ranks share a product with a graph, without starting ranks.

use std::io::Write as _;
use std::path::Path;

use girih_graph_format::{Csr, file};
use girih_machine::{Machine as Host, readable_bytes};
use girih_partition::{BlockPlan, Estimate, LinkRates, Machine, ProcessGrid, Schedule, block_nnz, imbalance};
use girih_reorder::{Auto, OrderKind};
use serde_json::json;

use crate::args::{PartitionArgs, PartitionKind, Precision};
use crate::context::data::load_with_warnings;
use crate::context::order::Wanted;
use crate::context::ranks::process_grid;
use crate::error::CliError;
use crate::output::{Results, under_spinner};
use crate::paths;
use crate::plan::ceilings::{GATHER_SHARE, load_or_measure};
use crate::plots::heat::{self, Panel};

/// Maximum number of blocks a side that are shown to people.
const SHOWN_BLOCKS: usize = 8;

/// Prints the plan: blocks, bytes, memory and time of one product.
pub fn run(args: &PartitionArgs) -> Result<(), CliError> {
    if args.partition.wire != Precision::F32 {
        return Err(CliError::Usage(
            "girih partition counts f32 rows: leave --wire out; `girih train --ranks N --plan` counts bf16 rows"
                .to_owned(),
        ));
    }
    let grid = process_grid(&args.partition, args.ranks)?;
    args.plot.as_deref().map_or(Ok(()), paths::check)?;
    let dataset = load_with_warnings(&args.data, &args.data.options(0, 1))?;
    let graph = &dataset.graph;
    let machine = machine(args)?;
    let as_it_is = under_spinner("counting the blocks and what is sent", args.output, || {
        PartitionStats::of("as it is".to_owned(), graph, &grid, &machine, args)
    })?;
    let mut results = Results::default();
    results
        .add("ranks", grid.ranks(), "Plan", grid.to_string())
        .add_hidden("partition", grid.scheme().to_string())
        .add_hidden("replication", grid.replication())
        .add_hidden("exchange", args.partition.exchange.to_string())
        .add_hidden("cuts", args.partition.cuts.to_string())
        .add_hidden("nodes", graph.n_rows())
        .add_hidden("edges", graph.nnz())
        .add_hidden("width", args.width);
    as_it_is.describe(&mut results);
    let compared = args.compare.map_or(Ok(Vec::new()), |kind| compared(graph, kind, &grid, &machine, args))?;
    if !compared.is_empty() {
        let all: Vec<&PartitionStats> = std::iter::once(&as_it_is).chain(&compared).collect();
        let parts: Vec<_> = compared.iter().map(PartitionStats::to_part).collect();
        results.add("compared", parts, "Compared", table(&all));
    }
    if let Some(path) = &args.plot {
        draw(path, std::iter::once(as_it_is).chain(compared))?;
        results.add("plot", path.display().to_string(), "Drawn to", path.display().to_string());
    }
    results.print(args.output.json);
    Ok(())
}

/// Balance, traffic and predicted time of one product, for one order of the nodes.
struct PartitionStats {
    order: String,
    blocks: Vec<Vec<u64>>,
    /// Non-zeros of the largest block over the mean.
    imbalance: f64,
    /// Work of the most loaded rank over the mean.
    rank_imbalance: f64,
    /// Bytes that each rank sends.
    sent: Vec<u64>,
    estimate: Estimate,
}

impl PartitionStats {
    fn of(
        order: String,
        graph: &Csr,
        grid: &ProcessGrid,
        machine: &Machine,
        args: &PartitionArgs,
    ) -> Result<Self, CliError> {
        let PartitionKind { cuts, stages, .. } = args.partition;
        let plan = BlockPlan::of_graph(grid, graph.indptr(), cuts)?.in_stages(stages.unwrap_or_default());
        let schedule = Schedule::new(&plan, graph, args.partition.exchange);
        let (blocks, step_nnz, width) = (block_nnz(graph, &plan.panels), plan.step_nnz(graph), args.width as usize);
        let volumes = plan.volumes(Some(&schedule), width, size_of::<f32>());
        let of_rank: Vec<u64> = step_nnz.iter().map(|steps| steps.iter().sum()).collect();
        let of_block: Vec<u64> = blocks.iter().flatten().copied().collect();
        Ok(Self {
            order,
            imbalance: imbalance(&of_block),
            rank_imbalance: imbalance(&of_rank),
            sent: volumes.iter().map(|volume| volume.sent).collect(),
            estimate: plan.estimate(machine, &step_nnz, Some(&schedule), width),
            blocks,
        })
    }

    fn describe(&self, results: &mut Results) {
        let Self { blocks, imbalance, rank_imbalance, sent, estimate, .. } = self;
        results
            .add("nnz_per_block", json!(blocks), "Non-zeros of blocks", shown(blocks))
            .add("imbalance", *imbalance, "Imbalance of blocks (max/mean)", format!("{imbalance:.3}"))
            .add("rank_imbalance", *rank_imbalance, "Load imbalance (max/mean)", format!("{rank_imbalance:.3}"))
            .add("bytes_sent_per_rank", json!(sent), "Sent by a rank (max)", readable_bytes(most(sent)))
            .add(
                "memory_per_rank",
                json!(estimate.memory),
                "Memory of a rank (max)",
                readable_bytes(most(&estimate.memory)),
            )
            .add("predicted_ms", 1e3 * estimate.seconds, "One product, predicted", shares(estimate));
    }

    /// The statistics as a JSON object inside a larger result.
    fn to_part(&self) -> serde_json::Value {
        let mut results = Results::default();
        results.add_hidden("order", self.order.as_str());
        self.describe(&mut results);
        results.to_part()
    }
}

fn most(values: &[u64]) -> u64 {
    values.iter().copied().max().unwrap_or(0)
}

/// Statistics after ordering the whole graph and, with several panels, after ordering inside each panel.
fn compared(
    graph: &Csr,
    kind: OrderKind,
    grid: &ProcessGrid,
    machine: &Machine,
    args: &PartitionArgs,
) -> Result<Vec<PartitionStats>, CliError> {
    let ordered = |blocks: usize| -> Result<PartitionStats, CliError> {
        let wanted = Wanted { kind, blocks, seed: 0, auto: Auto::here(blocks) };
        let found = wanted.find(graph, args.output)?;
        PartitionStats::of(found.name, &graph.permuted(&found.order), grid, machine, args)
    };
    let n_panels = BlockPlan::new(grid, graph.n_rows())?.panels.len();
    let blocks = match n_panels {
        1 => &[1][..],
        // An order of a single part is no order: only the panels are ordered.
        _ if kind == OrderKind::Parts => &[n_panels],
        _ => &[1, n_panels],
    };
    blocks.iter().map(|&blocks| ordered(blocks)).collect()
}

/// Table of orders, one line each.
fn table(all: &[&PartitionStats]) -> String {
    let row = |order: &str, [block, rank, sent, product]: [&str; 4]| {
        format!("{order:<26} {block:>15} {rank:>13} {sent:>11} {product:>11}")
    };
    let figures = |figures: &&PartitionStats| {
        let (block, rank) = (format!("{:.3}", figures.imbalance), format!("{:.3}", figures.rank_imbalance));
        let product = format!("{:.2} ms", 1e3 * figures.estimate.seconds);
        row(&figures.order, [&block, &rank, &readable_bytes(most(&figures.sent)), &product])
    };
    let head = row("order", ["blocks max/mean", "load max/mean", "sent", "one product"]);
    std::iter::once(head).chain(all.iter().map(figures)).collect::<Vec<_>>().join("\n")
}

fn draw(path: &Path, all: impl Iterator<Item = PartitionStats>) -> Result<(), CliError> {
    let panels: Vec<Panel> = all.map(|figures| Panel { title: figures.order, blocks: figures.blocks }).collect();
    paths::make_parents(path)?;
    Ok(file::write_file(path, |out| Ok(out.write_all(heat::draw(&panels).as_bytes())?))?)
}

/// Rates with which ranks compute and exchange.
fn machine(args: &PartitionArgs) -> Result<Machine, CliError> {
    let measure = || -> Result<f64, CliError> {
        let here = load_or_measure(&Host::here(), args.output)?;
        Ok(GATHER_SHARE * here.l3_read_gb_s_all)
    };
    let gather = args.gather.map_or_else(measure, Ok)?;
    let link = LinkRates { latency: 1e-6 * args.latency, bytes_per_second: 1e9 * args.link };
    Ok(Machine { sums_per_second: 1e9 * gather / size_of::<f32>() as f64, link, overlap: args.overlap })
}

/// Table of the blocks in thousands or millions, if they are few.
fn shown(blocks: &[Vec<u64>]) -> String {
    if blocks.len() > SHOWN_BLOCKS {
        return format!("{0} × {0} blocks; --json lists them", blocks.len());
    }
    let cell = |&nnz: &u64| format!("{:>8}", heat::short(nnz));
    let rows = blocks.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join(" "));
    rows.collect::<Vec<_>>().join("\n")
}

fn shares(estimate: &Estimate) -> String {
    let most = |seconds: &[f64]| 1e3 * seconds.iter().copied().fold(0.0, f64::max);
    format!(
        "{:.2} ms (products {:.2}, exchanges {:.2})",
        1e3 * estimate.seconds,
        most(&estimate.compute_seconds),
        most(&estimate.exchange_seconds)
    )
}
