//! Batches of typed graphs: counts by type, beside those of all batches.

use std::time::Instant;

use girih_datasets::{Dataset, TypedData};
use girih_graph_format::{NodeId, Schema};
use girih_sampling::{EpochPlan, LoaderOptions, TypedBatch, TypedOptions, TypedSampler};
use girih_trainer::{BatchConfig, BatchKind, DEFAULT_FANOUT};
use serde_json::Value;

use super::source::{BatchStats, flag_of_plain_graphs, made_by_threads};
use crate::args::SampleArgs;
use crate::error::CliError;
use crate::output::Results;

/// Sampler of a typed graph, with its seeds.
pub(super) struct TypedSource<'a> {
    typed: &'a TypedData,
    sampler: TypedSampler,
    /// Seeds by their ids inside the target type.
    seeds: Vec<NodeId>,
    options: LoaderOptions,
    /// Fan-out as it was given.
    fan_out: String,
}

/// Counts of a batch by type.
pub(super) struct TypeCounts {
    stats: BatchStats,
    /// Input nodes of each node type.
    nodes: Vec<usize>,
    /// Edges of each edge type, of all hops.
    edges: Vec<usize>,
}

impl<'a> TypedSource<'a> {
    /// Sampler of a data set, as the arguments request.
    ///
    /// # Errors
    /// When batches are of another kind, a flag is for graphs without types, or the fan-out does not fit the graph.
    pub(super) fn new(
        args: &SampleArgs,
        config: &BatchConfig,
        (dataset, typed): (&Dataset, &'a TypedData),
    ) -> Result<Self, CliError> {
        check_flags(args, config, &dataset.name)?;
        let schema = typed.graph.schema();
        let rules = config.fan_out_rules(config.n_hops().unwrap_or(DEFAULT_FANOUT.len()))?;
        let fan_out = rules.of_schema(schema)?;
        if fan_out.is_closed(schema, typed.target) {
            let target = &schema.node_types()[typed.target].name;
            return Err(CliError::Usage(format!(
                "--fanout follows no edge type into {target}, so that batches have their seeds alone; give one of them \
                 neighbors"
            )));
        }
        let first = schema.first(typed.target) as NodeId;
        let all = || typed.target_ids().map(|node| node as NodeId).collect();
        let seeds: Vec<NodeId> = dataset.training_nodes().map_or_else(all, <[NodeId]>::to_vec);
        let options = TypedOptions {
            replace: args.replace,
            expand: args.expand.map(Into::into).unwrap_or_default(),
            edge_ids: false,
        };
        Ok(Self {
            typed,
            sampler: TypedSampler::new(fan_out, options),
            seeds: seeds.into_iter().map(|seed| seed - first).collect(),
            options: LoaderOptions { batch_size: args.batch_size(), seed: args.seed, ..LoaderOptions::default() },
            fan_out: rules.to_string(),
        })
    }

    /// Samples the batches of `n_epochs` epochs, in order, `n_threads` of them at a time.
    ///
    /// # Errors
    /// When the sampler refuses.
    pub(super) fn make(&self, n_epochs: u32, n_threads: usize) -> Result<Vec<TypeCounts>, CliError> {
        let Self { typed, sampler, .. } = self;
        let mut made = Vec::new();
        for epoch in 0..n_epochs {
            let plan = EpochPlan::new(self.seeds.clone(), self.options, epoch);
            let plan = &plan;
            let make = move || {
                let mut batch = TypedBatch::default();
                move |at: usize| {
                    let start = Instant::now();
                    sampler.sample_into(&typed.graph, &[(typed.target, plan.seeds(at))], plan.key(at), &mut batch)?;
                    let took = start.elapsed();
                    Ok(TypeCounts::of(&batch, took))
                }
            };
            made.extend(made_by_threads(0..plan.n_batches(), n_threads, make)?);
        }
        Ok(made)
    }

    /// Adds the rows that are known before sampling.
    pub(super) fn describe(&self, dataset: &Dataset, results: &mut Results) {
        let schema = self.typed.graph.schema();
        let (n_seeds, target) = (self.seeds.len(), &schema.node_types()[self.typed.target].name);
        let of = dataset.training_nodes().map_or_else(|| target.clone(), |_| format!("{target} nodes for training"));
        results
            .add("types", schema.to_string(), "Types", schema.to_string())
            .add("seeds", n_seeds, "Seeds", format!("{n_seeds} {of}"))
            .add("fanout", self.fan_out.as_str(), "Fan-out", self.fan_out.as_str());
    }
}

impl TypeCounts {
    fn of(batch: &TypedBatch, took: std::time::Duration) -> Self {
        let nodes: Vec<usize> = batch.nodes.iter().map(Vec::len).collect();
        let n_types = batch.blocks.first().map_or(0, |block| block.relations.len());
        let of_type = |number: usize| batch.blocks.iter().map(|block| block.relations[number].indices.len()).sum();
        let stats = BatchStats {
            n_edges: batch.n_edges(),
            n_inputs: nodes.iter().sum(),
            n_from_before: None,
            took,
            relabelling: None,
            digest: batch.digest(),
        };
        Self { stats, nodes, edges: (0..n_types).map(of_type).collect() }
    }

    /// Counts without types.
    pub(super) fn stats(&self) -> BatchStats {
        self.stats
    }
}

/// Adds the mean numbers of input nodes and edges of each type.
pub(super) fn describe_types(made: &[TypeCounts], schema: &Schema, results: &mut Results) {
    let mean = |of: &dyn Fn(&TypeCounts) -> usize| made.iter().map(of).sum::<usize>() as f64 / made.len().max(1) as f64;
    let names = schema.node_types().iter().map(|of| of.name.clone());
    let nodes = names.enumerate().map(|(number, name)| (name, mean(&|made| made.nodes[number])));
    let (nodes, shown_nodes) = listed(nodes);
    let edges = (0..schema.edge_types().len()).map(|r| (schema.edge_name(r), mean(&|made| made.edges[r])));
    let (edges, shown_edges) = listed(edges);
    results.add("nodes_per_type", nodes, "Inputs by type", shown_nodes).add(
        "edges_per_type",
        edges,
        "Edges by type",
        shown_edges,
    );
}

/// Means by name, as a JSON object and as lines.
fn listed(means: impl Iterator<Item = (String, f64)>) -> (Value, String) {
    let means: Vec<(String, f64)> = means.collect();
    let lines: Vec<String> = means.iter().map(|(name, mean)| format!("{name} {mean:.0}")).collect();
    (Value::Object(means.into_iter().map(|(name, mean)| (name, mean.into())).collect()), lines.join("\n"))
}

/// Refuses flags that are for graphs without types.
fn check_flags(args: &SampleArgs, config: &BatchConfig, name: &str) -> Result<(), CliError> {
    if config.kind != BatchKind::Neighbor {
        let kind = config.kind.name();
        return Err(CliError::Usage(format!(
            "{name} has types of edges, and {kind} batches have none; give --batch neighbor"
        )));
    }
    let weighted = "--weighted needs edge weights, which edges with types do not have";
    match flag_of_plain_graphs(args, "types", weighted) {
        None => Ok(()),
        Some(why) => Err(CliError::Usage(format!("{name} has types of edges, and {why}; leave it out"))),
    }
}
