//! `girih sample --plan`: placement of topology and features for sampled training.

use girih_datasets::{Dataset, Features};
use girih_features::{
    Cut, MemoryBudget, PRESAMPLED_EPOCH, Planner, Rates, RowPlacement, Storage, TierPlan, TierUse, Visits,
};
use girih_machine::readable_bytes;
use girih_partition::Patches;
use girih_planner::H200_BYTES;
use girih_sampling::{FanOut, LoaderOptions, NeighborSampler, SeedLoader};
use girih_trainer::{BatchConfig, BatchKind, DEFAULT_FANOUT, DataSizes, ModelConfig, ModelKind, Plan, TrainConfig};
use serde_json::{Value, json};

use super::source::{bias, neighbor_options};
use crate::args::{CodecChoice, SampleArgs};
use crate::error::CliError;
use crate::output::{Results, under_spinner};

/// Maximum number of presampled batches, and of batches of the first epoch that hit rates are measured on.
const BATCHES: usize = 32;
/// Hidden columns of the network assumed for the training memory, unless that is given.
const HIDDEN: usize = 256;

/// Computes and prints the plan; trains nothing.
pub(super) fn run(args: &SampleArgs, config: &BatchConfig, dataset: &Dataset) -> Result<(), CliError> {
    if config.kind != BatchKind::Neighbor {
        let found = config.kind.name();
        return Err(CliError::Usage(format!("--plan is for neighbor batches, and these are {found} batches")));
    }
    let n_threads = args.threads.map_or_else(rayon::current_num_threads, usize::from);
    let fan_out = config.fan_out(config.n_hops().unwrap_or(DEFAULT_FANOUT.len()))?;
    let loader = loader(args, &fan_out, dataset)?;
    let counted = |epoch| Visits::of(&loader, epoch, BATCHES, n_threads);
    let (presampled, held_out) =
        under_spinner("sampling", args.output, || Ok::<_, CliError>((counted(PRESAMPLED_EPOCH)?, counted(0)?)))?;
    let tiers = &args.tiers;
    let frequencies = under_spinner("finding what is hot", args.output, || {
        tiers.hotness.frequencies(&dataset.graph, &dataset.seeds(), &presampled)
    });
    let n_gpus = usize::from(tiers.gpus);
    let cut =
        |n| -> Result<Cut, CliError> { Ok(Cut::new(&dataset.graph, Patches::weighted(dataset.graph.indptr(), n)?)?) };
    let cut = (n_gpus > 1).then(|| cut(n_gpus)).transpose()?;
    let training_bytes = match tiers.training_memory {
        Some(bytes) => bytes,
        None => training_bytes(args, config, &fan_out, dataset)?,
    };
    let planner = Planner {
        indptr: dataset.graph.indptr(),
        weighted: args.weighted,
        feature_bytes: row_bytes(dataset, tiers.codec)?,
        frequencies: &frequencies,
        reads: presampled.per_batch(),
        n_hops: fan_out.hops().len(),
        cut: cut.as_ref(),
        budget: MemoryBudget { n_gpus, gpu_bytes: tiers.memory.unwrap_or(H200_BYTES), host_bytes: tiers.host_memory },
        training_bytes,
        storage: Storage::Once,
        rates: Rates::h200(),
    };
    let plan = planner.plan(tiers.cache_share)?;
    describe(args, dataset, &planner, &plan, &held_out).print(args.output.json);
    Ok(())
}

/// Loader of the batches of training; each batch lists the nodes that it reads.
fn loader<'g>(
    args: &SampleArgs,
    fan_out: &FanOut,
    dataset: &'g Dataset,
) -> Result<SeedLoader<'g, NeighborSampler>, CliError> {
    let sampler = NeighborSampler::new(fan_out.clone(), neighbor_options(args))?;
    let sampler = if args.weighted { sampler.weighted(bias(dataset)?) } else { sampler };
    let options = LoaderOptions { batch_size: args.batch_size(), seed: args.seed, ..LoaderOptions::default() };
    Ok(SeedLoader::new(&dataset.graph, sampler, dataset.seeds(), options)?)
}

/// GPU memory that training needs besides topology and features.
fn training_bytes(
    args: &SampleArgs,
    batch: &BatchConfig,
    fan_out: &FanOut,
    dataset: &Dataset,
) -> Result<u64, CliError> {
    let (of_sage, n_layers) = (TrainConfig::for_model(ModelKind::Sage), fan_out.hops().len());
    let config = TrainConfig {
        model: ModelConfig { layers: n_layers, hidden: HIDDEN, ..of_sage.model },
        // Batches are largest without replacement, which is how devices draw.
        batch: BatchConfig { replace: false, ..batch.clone() },
        batch_size: Some(args.batch_size()),
        ..of_sage
    };
    let sizes = DataSizes::of(dataset);
    let n_train = dataset.training_nodes().map_or(sizes.n_nodes, <[_]>::len);
    let at_least_one = |n: usize| n.max(1);
    let sizes = DataSizes {
        n_train,
        n_scored: sizes.n_scored.max(n_train),
        n_classes: at_least_one(sizes.n_classes),
        n_features: at_least_one(sizes.n_features),
        ..sizes
    };
    Ok(Plan::beside_rows(&config, &sizes)?.device_bytes())
}

/// Bytes of a row of features as stored. Sparse features are stored dense, because rows are read one by one.
fn row_bytes(dataset: &Dataset, codec: Option<CodecChoice>) -> Result<u64, CliError> {
    let width = dataset.n_features();
    let bytes = match (&dataset.features, codec.and_then(CodecChoice::codec)) {
        (None, _) => 0,
        (Some(Features::Compressed(features)), codec) => {
            let (stored, bytes) = (features.codec().spec(), features.codec().row_bytes());
            if let Some(codec) = codec.filter(|codec| !codec.accepts(stored, bytes)) {
                return Err(CliError::Usage(format!(
                    "the features are compressed by {stored} already; leave --codec {codec} out"
                )));
            }
            bytes
        }
        (Some(_), Some(codec)) => codec.row_bytes(width),
        (Some(_), None) => size_of::<f32>() * width,
    };
    Ok(bytes as u64)
}

fn describe(
    args: &SampleArgs,
    dataset: &Dataset,
    planner: &Planner<'_>,
    plan: &TierPlan,
    held_out: &Visits,
) -> Results {
    let (budget, hotness) = (planner.budget, args.tiers.hotness.name());
    let parts = [("topology", &plan.topology, &held_out.rows), ("features", &plan.features, &held_out.features)];
    let lines: Vec<Line<'_>> =
        parts.into_iter().flat_map(|(name, part, counts)| lines(name, part, &part.measured(counts))).collect();
    let mut results = Results::default();
    let name = dataset.name.as_str();
    results
        .add("data", name, "Data", name)
        .add_hidden("nodes", dataset.n_nodes())
        .add_hidden("edges", dataset.n_edges())
        .add("gpus", budget.n_gpus, "CUDA devices", budget.n_gpus.to_string())
        .add("memory_bytes", budget.gpu_bytes, "Memory of each", readable_bytes(budget.gpu_bytes))
        .add("training_bytes", planner.training_bytes, "  of that training", readable_bytes(planner.training_bytes))
        .add("topology_bytes", plan.topology.gpu_bytes, "  of that topology", readable_bytes(plan.topology.gpu_bytes))
        .add("feature_bytes", plan.features.gpu_bytes, "  of that features", readable_bytes(plan.features.gpu_bytes));
    let host_bytes = plan.topology.host_bytes + plan.features.host_bytes;
    let layout = match (planner.cut.filter(|_| plan.in_patches), plan.topology.tiers.len()) {
        (Some(cut), _) => format!("in patches, {:.1} % of edges cross them", 100.0 * cut.crossing()),
        (None, 1) => "in one place".to_owned(),
        (None, _) => "hot rows on every device".to_owned(),
    };
    results
        .add("host_bytes", host_bytes, "Host memory", readable_bytes(host_bytes))
        .add("hotness", hotness, "Hotness", hotness)
        .add("in_patches", plan.in_patches, "Topology", layout)
        .add("row_bytes", planner.feature_bytes, "A row of features", readable_bytes(planner.feature_bytes))
        .add("inputs_per_batch", planner.reads.features, "Rows a batch", format!("{:.0}", planner.reads.features))
        .add("predicted_ms", 1e3 * plan.seconds, "Reads of a batch", format!("{:.3} ms", 1e3 * plan.seconds))
        .add("exchange_ms", 1e3 * plan.topology.exchange_seconds, "  of that exchanges of ids", exchange(plan))
        .add("tiers", lines.iter().map(Line::to_json).collect::<Vec<_>>(), "", "\n".to_owned() + &table(&lines));
    results
}

fn exchange(plan: &TierPlan) -> String {
    if plan.in_patches { format!("{:.3} ms", 1e3 * plan.topology.exchange_seconds) } else { String::new() }
}

/// Row of the table: one tier of topology or features.
struct Line<'a> {
    part: &'static str,
    used: &'a TierUse,
    measured: f64,
}

fn lines<'a>(part: &'static str, placed: &'a RowPlacement, measured: &[f64]) -> Vec<Line<'a>> {
    let line = |(used, &measured): (&'a TierUse, &f64)| Line { part, used, measured };
    placed.tiers.iter().zip(measured).map(line).collect()
}

impl Line<'_> {
    fn to_json(&self) -> Value {
        json!({
            "part": self.part,
            "tier": self.used.tier.name(),
            "bytes": self.used.bytes,
            "nodes": self.used.n_nodes,
            "expected_hits": self.used.expected,
            "measured_hits": self.measured,
            "predicted_ms": 1e3 * self.used.seconds,
        })
    }
}

/// Table of tiers, one line each.
fn table(lines: &[Line<'_>]) -> String {
    let row = |cells: [&str; 7]| {
        let [part, tier, bytes, nodes, expected, measured, ms] = cells;
        format!("{part:<9} {tier:<11} {bytes:>10} {nodes:>12} {expected:>9} {measured:>9} {ms:>11}")
    };
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let of = |line: &Line<'_>| {
        row([
            line.part,
            line.used.tier.name(),
            &readable_bytes(line.used.bytes),
            &line.used.n_nodes.to_string(),
            &percent(line.used.expected),
            &percent(line.measured),
            &format!("{:.3} ms", 1e3 * line.used.seconds),
        ])
    };
    let head = row(["", "tier", "bytes", "nodes", "expected", "measured", "a batch"]);
    std::iter::once(head).chain(lines.iter().map(of)).collect::<Vec<_>>().join("\n")
}
