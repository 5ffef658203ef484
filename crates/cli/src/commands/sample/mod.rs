//! `girih sample`: counts and times mini-batches as training makes them, in one process or on ranks.

mod ranks;
mod relabelled;
mod source;
mod tiers;
mod timed;
mod typed;

use std::time::Duration;

use girih_datasets::{Dataset, LoadOptions, TypedData};
use girih_graph_format::TimedRows;
use girih_sampling::digest_of;
use girih_trainer::{BatchConfig, TimeConfig};

use crate::args::{SampleArgs, read_times};
use crate::context::data::load_with_warnings;
use crate::error::CliError;
use crate::output::{Results, median_ms, under_spinner};
use ranks::Sharing;
use source::{BatchStats, Source};
use timed::TimedSource;
use typed::{TypeCounts, TypedSource, describe_types};

/// Samples all batches and describes them; with `--plan`, places the rows that they read.
pub fn run(args: &SampleArgs) -> Result<(), CliError> {
    check_ranks(args)?;
    let config = args.batch_config();
    config.check()?;
    if let Some((flag, kind)) = args.flag_of_other_batches() {
        let found = config.kind.name();
        return Err(CliError::Usage(format!("{flag} is for {kind} batches; leave it out for {found} batches")));
    }
    let time = args.time_config();
    let options = LoadOptions { times: read_times(&time), ..args.data.options(args.seed, 1) };
    let dataset = load_with_warnings(&args.data, &options)?;
    if let Some(timed) = &dataset.timed {
        return run_in_time(args, &config, (&dataset, timed), &time);
    }
    if let Some(typed) = &dataset.typed {
        return run_on_types(args, &config, (&dataset, typed));
    }
    if !config.fanout_by_type.is_empty() {
        let name = &dataset.name;
        return Err(CliError::Usage(format!(
            "--fanout names types of edges, but {name} has none; give one number a hop, such as 15,10"
        )));
    }
    if args.ranks.ranks.is_some() {
        return run_on_ranks(args, &config, dataset);
    }
    if args.tiers.plan {
        return tiers::run(args, &config, &dataset);
    }
    let n_threads = args.threads.map_or_else(rayon::current_num_threads, usize::from);
    let source = Source::new(args, &config, &dataset)?;
    let made = under_spinner("sampling", args.output, || source.make(args.epochs, n_threads))?;
    let mut results = described(&dataset, &config);
    describe_source(&source, &dataset, &mut results);
    results.add("threads", n_threads, "Threads", n_threads.to_string());
    describe(&made, made.len(), n_threads, &mut results);
    results.print(args.output.json);
    Ok(())
}

/// Samples all batches of a typed graph, and describes them by type.
fn run_on_types(
    args: &SampleArgs,
    config: &BatchConfig,
    (dataset, typed): (&Dataset, &TypedData),
) -> Result<(), CliError> {
    let n_threads = args.threads.map_or_else(rayon::current_num_threads, usize::from);
    let source = TypedSource::new(args, config, (dataset, typed))?;
    let made = under_spinner("sampling", args.output, || source.make(args.epochs, n_threads))?;
    let mut results = described(dataset, config);
    source.describe(dataset, &mut results);
    results.add("threads", n_threads, "Threads", n_threads.to_string());
    let stats: Vec<BatchStats> = made.iter().map(TypeCounts::stats).collect();
    describe(&stats, stats.len(), n_threads, &mut results);
    describe_types(&made, typed.graph.schema(), &mut results);
    results.print(args.output.json);
    Ok(())
}

/// Samples all edges of a graph with times in their order, and describes the batches.
fn run_in_time(
    args: &SampleArgs,
    config: &BatchConfig,
    (dataset, timed): (&Dataset, &TimedRows),
    time: &TimeConfig,
) -> Result<(), CliError> {
    let n_threads = args.threads.map_or_else(rayon::current_num_threads, usize::from);
    let source = TimedSource::new(args, config, (dataset, timed), time)?;
    let made = under_spinner("sampling", args.output, || source.make(args.epochs, n_threads))?;
    let mut results = described(dataset, config);
    source.describe(&mut results);
    results.add("threads", n_threads, "Threads", n_threads.to_string());
    describe(&made, made.len(), n_threads, &mut results);
    results.print(args.output.json);
    Ok(())
}

/// Refuses flags that ranks do not support. clap cannot express this: it would accept a flag that requires another
/// one together with a flag that conflicts with that one.
fn check_ranks(args: &SampleArgs) -> Result<(), CliError> {
    let flags = [
        (args.threads.is_some(), "--threads has no effect with --ranks, each of which samples one batch at a time"),
        (args.tiers.plan, "--plan counts what one process samples"),
    ];
    match flags.iter().find(|(is_given, _)| *is_given && args.ranks.ranks.is_some()) {
        None => Ok(()),
        Some((_, why)) => Err(CliError::Usage(format!("{why}; leave it or --ranks out"))),
    }
}

/// Samples all batches on ranks, and describes the batches and the traffic.
fn run_on_ranks(args: &SampleArgs, config: &BatchConfig, dataset: Dataset) -> Result<(), CliError> {
    let mut results = described(&dataset, config);
    let sharing = Sharing::new(args, config, dataset)?;
    let ((n_seeds, n_ranks), fan_out) = (sharing.sizes(), sharing.fan_out().to_string());
    results.add("seeds", n_seeds, "Seeds", n_seeds.to_string()).add(
        "fanout",
        fan_out.as_str(),
        "Fan-out",
        fan_out.as_str(),
    );
    sharing.describe(&mut results);
    let shared = under_spinner("sampling", args.output, || sharing.make())?;
    describe(&shared.made, shared.n_batches, n_ranks, &mut results);
    shared.describe(&mut results);
    results.print(args.output.json);
    Ok(())
}

/// Rows that are known before sampling.
fn described(dataset: &Dataset, config: &BatchConfig) -> Results {
    let mut results = Results::default();
    results
        .add("data", dataset.name.as_str(), "Data", dataset.name.as_str())
        .add_hidden("nodes", dataset.n_nodes())
        .add_hidden("edges", dataset.n_edges())
        .add("batch", config.kind.name(), "Batches are of", config.kind.name());
    results
}

/// Adds the rows of batches with seeds; subgraphs have none.
fn describe_source(source: &Source<'_>, dataset: &Dataset, results: &mut Results) {
    let Source::Seeds { n_seeds, fan_out, relabel, .. } = source else { return };
    let of = dataset.training_nodes().map_or("nodes", |_| "training nodes");
    results.add("seeds", *n_seeds, "Seeds", format!("{n_seeds} {of}")).add(
        "fanout",
        fan_out.to_string(),
        "Fan-out",
        fan_out.to_string(),
    );
    if let Some(relabel) = relabel {
        results.add("relabel", relabel.name(), "Relabelled", relabel.name());
    }
}

/// Describes batches, each sampled as a whole or in several parts. `n` is the number of batches.
fn describe(made: &[BatchStats], n: usize, n_threads: usize, results: &mut Results) {
    let mean = |count: fn(&BatchStats) -> usize| made.iter().map(count).sum::<usize>() as f64 / n.max(1) as f64;
    let (n_edges, n_inputs) = (mean(|made| made.n_edges), mean(|made| made.n_inputs));
    let batch_ms = median_ms(made.iter().map(|made| made.took));
    let relabel_ms = median_ms(made.iter().filter_map(|made| made.relabelling));
    let sample_ms = median_ms(made.iter().filter_map(|made| Some(made.took.saturating_sub(made.relabelling?))));
    // Threads work in parallel. Time between batches, such as for digests, does not count as sampling.
    let seconds =
        made.iter().map(|made| made.took).sum::<Duration>().as_secs_f64() / n_threads.min(made.len().max(1)) as f64;
    let edges_per_s = if seconds > 0.0 { n_edges * n as f64 / seconds } else { 0.0 };
    let digest = digest_of(&made.iter().map(|made| made.digest).collect::<Vec<_>>());
    let ms = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!("{ms:.3} ms"));
    results
        .add("batches", n, "Batches", n.to_string())
        .add("edges_per_batch", n_edges, "Edges a batch", format!("{n_edges:.0}"))
        .add("inputs_per_batch", n_inputs, "Input nodes a batch", format!("{n_inputs:.0}"));
    if let Some(share) = share_from_before(made) {
        let shown = format!("{:.1} %", 1e2 * share);
        results.add("inputs_of_batch_before", share, "  of which the batch before has", shown);
    }
    results
        .add("batch_ms_median", batch_ms, "A batch, median", ms(batch_ms))
        .add("sample_ms_median", sample_ms, "  of that drawing", ms(sample_ms))
        .add("relabel_ms_median", relabel_ms, "  of that relabelling", ms(relabel_ms))
        .add("edges_per_s", edges_per_s, "Edges a second", format!("{:.1} million", edges_per_s / 1e6))
        .add("digest", format!("{digest:016x}"), "Digest of all batches", format!("{digest:016x}"));
}

/// Share of input nodes that the previous batch of the epoch also has, over all batches but the first. Their rows
/// need not be sent again.
fn share_from_before(made: &[BatchStats]) -> Option<f64> {
    let followers = || made.iter().filter_map(|made| Some((made.n_from_before?, made.n_inputs)));
    let (n_met, n_inputs) = followers().fold((0, 0), |(met, all), (n, of)| (met + n, all + of));
    (n_inputs > 0).then(|| n_met as f64 / n_inputs as f64)
}
