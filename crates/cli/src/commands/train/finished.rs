//! [`Finished`]: training that is done, and its result for people, programs and files.

use girih_trainer::distributed::RankOptions;
use girih_trainer::{ExecutionPlan, Outcome, TrainConfig};

use super::arrangement::{carrier, layout_of};
use super::division::Divided;
use super::end::End;
use super::facts::Facts;
use super::outputs::OutputFolder;
use crate::args::TrainArgs;
use crate::curves::Curves;
use crate::error::CliError;
use crate::messages;
use crate::output::Results;
use crate::page::ranks::RankLoads;
use crate::page::report::Report;
use crate::scores::NodeScore;
use crate::shell;

/// Training that is done, with the contents of its result.
pub struct Finished<'a> {
    /// Description of the session.
    pub facts: &'a Facts,
    /// Configuration that was trained.
    pub config: &'a TrainConfig,
    /// Options of the ranks; `None` without ranks.
    pub ranks: Option<&'a RankOptions>,
    /// Division of the adjacency over the ranks, for the page.
    pub loads: Option<&'a RankLoads>,
    /// Engine that ran.
    pub engine: ExecutionPlan,
    /// Name of the node order.
    pub order: &'a str,
    /// Cache plan, if it was asked for.
    pub divided: Option<&'a Divided>,
    /// Outcome of all runs.
    pub outcome: &'a Outcome,
    /// Curves of this session and earlier ones.
    pub curves: &'a Curves,
    /// Peak bytes allocated on any one GPU; zero on CPUs.
    pub peak_device_bytes: u64,
    /// Score of classified nodes that chose the epoch.
    pub score: NodeScore,
    /// How the session ended.
    pub end: &'a End,
}

impl Finished<'_> {
    /// Writes the result to the folder, if any, and prints it with the next steps.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn report(&self, args: &TrainArgs, outputs: Option<&OutputFolder>) -> Result<(), CliError> {
        let &Self { facts, config, outcome, curves, end, .. } = self;
        let mut results = facts.results(config, outcome, curves, self.peak_device_bytes);
        add_arrangement(&mut results, self.ranks, self.engine, self.order);
        results.add_hidden("epochs_trained", outcome.times.len()).add_hidden("continue", end.command());
        if let Some(divided) = self.divided {
            results.add_hidden("division", divided.to_json());
        }
        if let Some(outputs) = outputs {
            outputs.finish(&Report {
                title: &facts.title(),
                results: &results,
                data: facts.of_data(),
                origin: facts.of_session(),
                command: &shell::line(&std::env::args_os().collect::<Vec<_>>()),
                curves: (curves, self.score),
                runs: &outcome.runs,
                test: outcome.test.as_ref(),
                times: &outcome.times,
                tiers: &outcome.tiers,
                ranks: self.loads,
                settings: config,
            })?;
        }
        results.print(args.output.json);
        if let Some(line) = end.line(args, config, &outcome.runs) {
            messages::note(args.output, line);
        } else {
            print_next_steps(args, outputs);
        }
        Ok(())
    }
}

/// Adds the partition over ranks and the node order; people see them if they are not the defaults.
fn add_arrangement(results: &mut Results, ranks: Option<&RankOptions>, engine: ExecutionPlan, order: &str) {
    match ranks {
        None => results.add_hidden("ranks", 1),
        Some(RankOptions { grid, .. }) if engine == ExecutionPlan::Replicas => {
            results.add("ranks", grid.ranks(), "Ranks", format!("{}, each with all of the graph", grid.ranks()))
        }
        Some(ranks @ RankOptions { grid, exchange, cuts, stages, chunks, wire, layout, .. }) => results
            .add(
                "ranks",
                grid.ranks(),
                "Ranks",
                format!("{grid}, exchange {exchange}{}{}", carrier(ranks), layout_of(*layout, engine)),
            )
            .add_hidden("partition", grid.scheme().to_string())
            .add_hidden("replication", grid.replication())
            .add_hidden("exchange", exchange.to_string())
            .add_hidden("cuts", cuts.to_string())
            .add_hidden("stages", stages.to_string())
            .add_hidden("chunks", *chunks)
            .add_hidden("wire", wire.name()),
    };
    if let Some(ranks) = ranks.filter(|_| engine != ExecutionPlan::Partitioned) {
        results.add_hidden("layout", ranks.layout.name());
    }
    if let Some(transport) = ranks.and_then(|ranks| ranks.transport) {
        results.add_hidden("transport", transport.to_string());
    }
    match order {
        "none" => results.add_hidden("reorder", order),
        _ => results.add("reorder", order, "Order of nodes", order),
    };
}

/// Prints where the results are, or what to try next.
fn print_next_steps(args: &TrainArgs, outputs: Option<&OutputFolder>) {
    let line = if let Some(outputs) = outputs {
        format!(
            "\nwritten to {}: report.html, config.toml, metrics.jsonl, metrics.csv, checkpoints",
            outputs.path().display()
        )
    } else if args.data.data.is_none() && args.config.is_none() {
        "\nnext: girih train PATH for your own graph, --model sage or mlp to compare, --runs 5 for a deviation,\n      \
         --out DIR to keep checkpoints and curves; `girih train --help` lists everything"
            .to_owned()
    } else {
        return;
    };
    messages::note(args.output, line);
}
