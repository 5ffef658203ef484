//! `girih partition`: how ranks would share a product with a graph, before a rank runs.

use std::io::Write as _;

use girih_graph_format::{Csr, file};
use girih_machine::{Machine as Host, readable_bytes};
use girih_partition::{BlockPlan, Estimate, LinkRates, Machine, ProcessGrid, Schedule, block_nnz, imbalance};
use girih_reorder::OrderKind;
use serde_json::json;

use super::plan::GATHER_SHARE;
use super::{doctor, load_required};
use crate::args::{PartitionArgs, PartitionKind};
use crate::error::CliError;
use crate::output::Results;
use crate::plots::heat::{self, Panel};

/// Blocks a side that are still shown to people.
const SHOWN_BLOCKS: usize = 8;

/// Prints the plan: blocks, bytes, memory and time of one product.
pub fn run(args: &PartitionArgs) -> Result<(), CliError> {
    let PartitionKind { partition, replication, exchange } = args.partition;
    let grid = ProcessGrid::new(partition, usize::from(args.ranks), replication)?;
    let dataset = load_required(&args.data, &args.data.options(0, 1))?;
    let graph = &dataset.graph;
    let plan = BlockPlan::new(&grid, graph.n_rows())?;
    let schedule = Schedule::new(&plan, graph, exchange);
    let (blocks, step_nnz, width) = (block_nnz(graph, &plan.panels), plan.step_nnz(graph), args.width as usize);
    let volumes = plan.volumes(Some(&schedule), width, size_of::<f32>());
    let estimate = plan.estimate(&machine(args)?, &step_nnz, Some(&schedule), width);

    let of_rank: Vec<u64> = step_nnz.iter().map(|steps| steps.iter().sum()).collect();
    let of_block: Vec<u64> = blocks.iter().flatten().copied().collect();
    let sent: Vec<u64> = volumes.iter().map(|volume| volume.sent).collect();
    let (ranks, blocks_imbalance) = (imbalance(&of_rank), imbalance(&of_block));
    let most = |values: &[u64]| values.iter().copied().max().unwrap_or(0);
    let mut results = Results::default();
    results
        .add("ranks", grid.ranks(), "Plan", grid.to_string())
        .add_hidden("partition", partition.to_string())
        .add_hidden("replication", replication)
        .add_hidden("exchange", exchange.to_string())
        .add_hidden("nodes", graph.n_rows())
        .add_hidden("edges", graph.nnz())
        .add_hidden("width", width)
        .add("nnz_per_block", json!(blocks), "Non-zeros of blocks", shown(&blocks))
        .add("imbalance", blocks_imbalance, "Largest block over the mean", format!("{blocks_imbalance:.3}"))
        .add("rank_imbalance", ranks, "Most work over the mean", format!("{ranks:.3}"))
        .add("bytes_sent_per_rank", json!(sent), "Sent by a rank, at most", readable_bytes(most(&sent)))
        .add(
            "memory_per_rank",
            json!(estimate.memory),
            "Memory of a rank, at most",
            readable_bytes(most(&estimate.memory)),
        )
        .add("predicted_ms", 1e3 * estimate.seconds, "One product, predicted", shares(&estimate));
    if let Some(path) = &args.plot {
        let mut panels = vec![Panel { title: "as it is".to_owned(), blocks }];
        if let Some(kind) = args.compare {
            panels.extend(compared(graph, kind, &plan)?);
        }
        let svg = heat::draw(&panels);
        file::write_file(path, |out| Ok(out.write_all(svg.as_bytes())?))?;
        results.add("plot", path.display().to_string(), "Drawn to", path.display().to_string());
    }
    results.print(args.output.json);
    Ok(())
}

/// The blocks after ordering the whole graph, and after ordering inside each panel.
fn compared(graph: &Csr, kind: OrderKind, plan: &BlockPlan) -> Result<[Panel; 2], CliError> {
    let ordered = |blocks: usize| -> Result<Panel, CliError> {
        let order = kind.order(blocks, 0);
        let renamed = graph.permuted(&order.order(graph)?);
        Ok(Panel { title: order.name(), blocks: block_nnz(&renamed, &plan.panels) })
    };
    Ok([ordered(1)?, ordered(plan.panels.len())?])
}

/// What ranks compute and exchange with.
fn machine(args: &PartitionArgs) -> Result<Machine, CliError> {
    let gather = match args.gather {
        Some(gather) => gather,
        None => GATHER_SHARE * doctor::measure(&Host::here())?.l3_read_gb_s_all / f64::from(args.ranks),
    };
    for (flag, value) in [("--link", args.link), ("--gather", gather)] {
        if !(value > 0.0 && value.is_finite()) {
            return Err(CliError::Other(format!("{flag} is {value}; it is a positive number of GB/s")));
        }
    }
    let link = LinkRates { latency: 1e-6 * args.latency, bytes_per_second: 1e9 * args.link };
    Ok(Machine { sums_per_second: 1e9 * gather / size_of::<f32>() as f64, link, overlap: args.overlap })
}

/// Blocks as a table of millions or thousands, where they are few.
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
