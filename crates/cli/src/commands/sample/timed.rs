//! Batches of a graph with times: all edges in their order, as questions about the edges before them.

use std::time::Instant;

use girih_datasets::Dataset;
use girih_graph_format::{TimedEdge, TimedRows};
use girih_sampling::{DrawKey, TimedBatch, TimedOptions, TimedSampler, TimedSeed};
use girih_trainer::{BatchConfig, BatchKind, DEFAULT_FANOUT, TimeConfig};

use super::source::{BatchStats, flag_of_plain_graphs, made_by_threads};
use crate::args::SampleArgs;
use crate::error::CliError;
use crate::output::Results;

/// Sampler of a graph with times, with its seeds.
pub(super) struct TimedSource<'a> {
    rows: &'a TimedRows,
    sampler: TimedSampler,
    edges: Vec<TimedEdge>,
    /// Number of edges of a batch, each of which is two seeds.
    batch_size: usize,
    seed: u64,
}

impl<'a> TimedSource<'a> {
    /// Sampler of a data set, as the arguments request.
    ///
    /// # Errors
    /// When batches are of another kind, a flag is for graphs without times, or the time settings do not fit the data.
    pub(super) fn new(
        args: &SampleArgs,
        config: &BatchConfig,
        (dataset, rows): (&Dataset, &'a TimedRows),
        time: &TimeConfig,
    ) -> Result<Self, CliError> {
        check_flags(args, config, &dataset.name)?;
        let options = TimedOptions {
            rule: time.rule(rows.tick())?,
            replace: args.replace,
            expand: args.expand.map(Into::into).unwrap_or_default(),
            edge_ids: false,
        };
        let fan_out = config.fan_out(config.n_hops().unwrap_or(DEFAULT_FANOUT.len()))?;
        let (sampler, batch_size) = (TimedSampler::new(fan_out, options)?, args.batch_size());
        Ok(Self { rows, sampler, edges: rows.edges_in_time(), batch_size, seed: args.seed })
    }

    /// Samples the batches of `n_epochs` epochs, in order, `n_threads` of them at a time.
    ///
    /// # Errors
    /// When the sampler refuses.
    pub(super) fn make(&self, n_epochs: u32, n_threads: usize) -> Result<Vec<BatchStats>, CliError> {
        let (n_batches, mut made) = (self.edges.len().div_ceil(self.batch_size), Vec::new());
        for epoch in 0..n_epochs {
            let make = move || {
                let (mut batch, mut seeds) = (TimedBatch::default(), Vec::new());
                move |at: usize| {
                    let edges = &self.edges[at * self.batch_size..];
                    seeds.clear();
                    seeds.extend(edges.iter().take(self.batch_size).flat_map(|edge| {
                        [edge.source, edge.destination].map(|node| TimedSeed { node, time: edge.time })
                    }));
                    let start = Instant::now();
                    self.sampler.sample_into(
                        self.rows,
                        &seeds,
                        DrawKey::new(self.seed, epoch, at as u32),
                        &mut batch,
                    )?;
                    Ok(BatchStats {
                        took: start.elapsed(),
                        n_edges: batch.blocks.n_edges(),
                        n_inputs: batch.blocks.inputs().len(),
                        n_from_before: None,
                        relabelling: None,
                        digest: batch.digest(),
                    })
                }
            };
            made.extend(made_by_threads(0..n_batches, n_threads, make)?);
        }
        Ok(made)
    }

    /// Adds the rows that are known before sampling.
    pub(super) fn describe(&self, results: &mut Results) {
        let (n_seeds, tick) = (2 * self.edges.len(), self.rows.tick());
        let (first, last) = self.rows.span().unwrap_or_default();
        let span = [first, last].map(|time| tick.show(time));
        results
            .add("times", span.to_vec(), "Times", span.join(" to "))
            .add("seeds", n_seeds, "Seeds", format!("{n_seeds}: both ends of each edge, at its time"))
            .add("fanout", self.sampler.fan_out().to_string(), "Fan-out", self.sampler.fan_out().to_string());
    }
}

/// Refuses flags that are for graphs without times.
fn check_flags(args: &SampleArgs, config: &BatchConfig, name: &str) -> Result<(), CliError> {
    if config.kind != BatchKind::Neighbor {
        let kind = config.kind.name();
        return Err(CliError::Usage(format!("{kind} batches are not sampled in time; give --batch neighbor")));
    }
    match flag_of_plain_graphs(args, "times", "--weighted draws from graphs without times") {
        None => Ok(()),
        Some(why) => Err(CliError::Usage(format!("{name} is sampled in time, and {why}; leave it out"))),
    }
}
