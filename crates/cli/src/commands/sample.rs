//! `girih sample`: mini-batches of sampled neighbours, counted and timed.

use std::time::{Duration, Instant};

use girih_datasets::Dataset;
use girih_pipeline::Stage;
use girih_sampling::relabel::{NewNodes, Relabel, SampledEdges, ToBlockFast, to_block};
use girih_sampling::{
    Bias, Block, Columns, Loader, LoaderOptions, MiniBatch, NeighborOptions, NeighborSampler, Prefetched, SampleError,
    digest_of,
};

use super::load_required;
use crate::args::SampleArgs;
use crate::error::CliError;
use crate::output::{Results, under_spinner};

/// Makes all batches and describes them.
pub fn run(args: &SampleArgs) -> Result<(), CliError> {
    let sampler = NeighborSampler::new(args.fanout.clone(), options(args))?;
    let dataset = load_required(&args.data, &args.data.options(args.seed, 1))?;
    let sampler = if args.weighted { sampler.weighted(bias(&dataset)?) } else { sampler };
    let batch_size = args.batch_size as usize;
    let loader_options = LoaderOptions { batch_size, seed: args.seed, ..LoaderOptions::default() };
    let seeds = dataset.seeds();
    let (n_seeds, of) = (seeds.len(), dataset.training_nodes().map_or("nodes", |_| "training nodes"));
    let loader = Loader::new(&dataset.graph, sampler, seeds, loader_options)?;
    let n_threads = args.threads.map_or_else(rayon::current_num_threads, usize::from);
    let made = under_spinner("sampling", args.output, || -> Result<Vec<Made>, CliError> {
        let epochs = (0..args.epochs).map(|epoch| make(&loader, epoch, n_threads));
        Ok(epochs.collect::<Result<Vec<_>, _>>()?.concat())
    })?;
    let mut results = Results::default();
    results
        .add("data", dataset.name.as_str(), "Data", dataset.name.as_str())
        .add_hidden("nodes", dataset.n_nodes())
        .add_hidden("edges", dataset.n_edges())
        .add("seeds", n_seeds, "Seeds", format!("{n_seeds} {of}"))
        .add("fanout", args.fanout.to_string(), "Fan-out", args.fanout.to_string())
        .add("relabel", args.relabel.name(), "Relabelled", args.relabel.name())
        .add("threads", n_threads, "Threads", n_threads.to_string());
    describe(&made, n_threads, &mut results);
    results.print(args.output.json);
    Ok(())
}

fn options(args: &SampleArgs) -> NeighborOptions {
    NeighborOptions {
        replace: args.replace,
        expand: args.expand.into(),
        inputs: if args.global_inputs { Columns::Global } else { Columns::Local },
        relabel: args.relabel,
        ..NeighborOptions::default()
    }
}

/// The weights of edges, which there have to be.
fn bias(dataset: &Dataset) -> Result<Bias, CliError> {
    if dataset.graph.values().is_none() {
        let name = &dataset.name;
        return Err(CliError::Other(format!("edges of {name} have no weights to be drawn by; leave --weighted out")));
    }
    Ok(Bias::of(&dataset.graph)?)
}

/// What a batch came to.
#[derive(Clone, Copy, Debug)]
struct Made {
    n_edges: usize,
    n_inputs: usize,
    took: Duration,
    /// Of that, relabelling, where it is a step of its own.
    relabelling: Option<Duration>,
    digest: u64,
}

/// The batches of an epoch, in order, `n_threads` of them made at a time.
fn make(loader: &Loader<'_, NeighborSampler>, epoch: u32, n_threads: usize) -> Result<Vec<Made>, CliError> {
    let stage = Stage::new("sample").workers(n_threads).capacity(2 * n_threads);
    let relabel = loader.sampler().options().relabel;
    let describe = || {
        let mut relabelled = Relabelled::default();
        move |batch: Prefetched<'_>| {
            let relabelling = relabelled.time(loader.graph().n_rows(), &batch, relabel)?;
            let (n_edges, n_inputs) = (batch.n_edges(), batch.inputs().len());
            Ok(Made { n_edges, n_inputs, took: batch.took(), relabelling, digest: batch.digest() })
        }
    };
    std::thread::scope(|scope| {
        let made = loader.epoch(epoch).prefetch_with(stage, describe).start_in(scope)?;
        Ok(made.collect::<Result<_, _>>()?)
    })
}

/// Relabels what was sampled once more, to time it.
#[derive(Default)]
struct Relabelled {
    fast: ToBlockFast,
    edges: SampledEdges,
    block: Block,
}

impl Relabelled {
    /// How long the blocks of a batch take; `None` where ids are found while edges are drawn, or stay global.
    fn time(&mut self, n_nodes: usize, batch: &MiniBatch, relabel: Relabel) -> Result<Option<Duration>, SampleError> {
        let is_fast = match relabel {
            Relabel::ToBlock => false,
            Relabel::ToBlockFast => true,
            Relabel::Fused | Relabel::Rank => return Ok(None),
        };
        if is_fast {
            self.fast.begin(n_nodes, batch.seeds())?;
        }
        let mut took = Duration::ZERO;
        for block in batch.blocks.iter().rev().filter(|block| block.columns == Columns::Local) {
            self.list(block);
            let start = Instant::now();
            if is_fast {
                self.fast.block_into(&self.edges, &mut self.block)?;
            } else {
                self.block = to_block(&self.edges, block.destinations(), NewNodes::Ascending)?;
            }
            took += start.elapsed();
        }
        Ok(Some(took))
    }

    /// The edges of a block in global ids.
    fn list(&mut self, block: &Block) {
        self.edges.clear();
        for (row, &destination) in block.destinations().iter().enumerate() {
            let columns = block.row(row);
            self.edges.destinations.extend(std::iter::repeat_n(destination, columns.len()));
            self.edges.sources.extend(columns.iter().map(|&column| block.node_of_column(column)));
        }
    }
}

fn describe(made: &[Made], n_threads: usize, results: &mut Results) {
    let n = made.len();
    let mean = |count: fn(&Made) -> usize| made.iter().map(count).sum::<usize>() as f64 / n.max(1) as f64;
    let (n_edges, n_inputs) = (mean(|made| made.n_edges), mean(|made| made.n_inputs));
    let batch_ms = median_ms(made.iter().map(|made| Some(made.took)));
    let relabel_ms = median_ms(made.iter().map(|made| made.relabelling));
    let sample_ms = median_ms(made.iter().map(|made| Some(made.took.saturating_sub(made.relabelling?))));
    // Threads work side by side; what they do between batches, such as digests, is not sampling.
    let seconds = made.iter().map(|made| made.took).sum::<Duration>().as_secs_f64() / n_threads.min(n.max(1)) as f64;
    let edges_per_s = if seconds > 0.0 { n_edges * n as f64 / seconds } else { 0.0 };
    let digest = digest_of(&made.iter().map(|made| made.digest).collect::<Vec<_>>());
    let ms = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!("{ms:.3} ms"));
    results
        .add("batches", n, "Batches", n.to_string())
        .add("edges_per_batch", n_edges, "Edges a batch", format!("{n_edges:.0}"))
        .add("inputs_per_batch", n_inputs, "Input nodes a batch", format!("{n_inputs:.0}"))
        .add("batch_ms_median", batch_ms, "A batch, median", ms(batch_ms))
        .add("sample_ms_median", sample_ms, "  of that drawing", ms(sample_ms))
        .add("relabel_ms_median", relabel_ms, "  of that relabelling", ms(relabel_ms))
        .add("edges_per_s", edges_per_s, "Edges a second", format!("{:.1} million", edges_per_s / 1e6))
        .add("digest", format!("{digest:016x}"), "Digest of all batches", format!("{digest:016x}"));
}

/// `None` where there are no times.
fn median_ms(times: impl Iterator<Item = Option<Duration>>) -> Option<f64> {
    let mut times: Vec<Duration> = times.flatten().collect();
    times.sort_unstable();
    times.get(times.len() / 2).map(|time| 1e3 * time.as_secs_f64())
}
