//! `girih evaluate --ogb`: scores as the evaluators of the Open Graph Benchmark print them.

use std::sync::Arc;

use girih_datasets::{Benchmark, BenchmarkMetric, HeldOutEdges};
use girih_graph_format::Matrix;
use girih_trainer::{ExecutionPlan, Scores, hits_of_edges, ranks_of_edges};
use serde_json::{Map, Value};

use crate::args::OutputArgs;
use crate::context::trained::Loaded;
use crate::error::CliError;
use crate::output::Results;

/// Scores of one part, by the evaluator's names.
type Named = Vec<(String, f64)>;

/// Prints the benchmark's metric on the parts of its split.
pub fn evaluate(loaded: Loaded, output: OutputArgs) -> Result<(), CliError> {
    let benchmark = Benchmark::of(&loaded.data).map_err(|error| CliError::Usage(format!("--ogb: {error}")))?;
    let predicts_links = match loaded.engine()? {
        ExecutionPlan::Links => true,
        ExecutionPlan::Recommend => {
            return Err(CliError::Usage("--ogb is not for recommenders; leave it out".to_owned()));
        }
        ExecutionPlan::Triples => {
            return Err(CliError::Usage("--ogb is not for triples; leave it out".to_owned()));
        }
        _ => false,
    };
    match (benchmark.scores_edges(), predicts_links) {
        (true, true) => of_links(benchmark, loaded, output),
        (false, false) => of_nodes(benchmark, loaded, output),
        (true, false) => Err(CliError::Other(format!(
            "{} scores links, and the model classifies nodes; train with --task links",
            benchmark.name
        ))),
        (false, true) => Err(CliError::Other(format!(
            "{} scores classes of nodes, and the model predicts links; train with --task nodes",
            benchmark.name
        ))),
    }
}

fn of_nodes(benchmark: Benchmark, loaded: Loaded, output: OutputArgs) -> Result<(), CliError> {
    let is_primary = loaded.is_primary;
    let applied = loaded.apply(None)?;
    let Scores { train_accuracy, val_accuracy, test_accuracy, val_roc_auc, test_roc_auc, .. } = applied.scores;
    let parts = match benchmark.metric {
        BenchmarkMetric::RocAuc => vec![("valid", "rocauc", val_roc_auc), ("test", "rocauc", test_roc_auc)],
        _ => vec![("train", "acc", train_accuracy), ("valid", "acc", val_accuracy), ("test", "acc", test_accuracy)],
    };
    // Scores on samples are without training nodes.
    let parts = parts.into_iter().filter(|(part, _, score)| *part != "train" || score.is_some());
    let scored = parts.map(|(part, metric, score)| match score {
        Some(score) => Ok((part, vec![(metric.to_owned(), score)])),
        None => Err(undefined(benchmark, part)),
    });
    let scored = scored.collect::<Result<Vec<_>, _>>()?;
    if is_primary {
        print(benchmark, applied.description, scored, output);
    }
    Ok(())
}

fn of_links(benchmark: Benchmark, loaded: Loaded, output: OutputArgs) -> Result<(), CliError> {
    let results = loaded.describe();
    let split = loaded.data.edge_split().map(Arc::clone).expect("a benchmark of links has a split of edges");
    let embeddings = loaded.embed()?.embeddings;
    let score = |part, held_out: &HeldOutEdges| {
        let named = of_edges(benchmark.metric, &embeddings, held_out)?;
        Ok::<_, CliError>((part, named.ok_or_else(|| undefined(benchmark, part))?))
    };
    let scored = vec![score("valid", &split.val)?, score("test", &split.test)?];
    print(benchmark, results, scored, output);
    Ok(())
}

/// Scores of held-out edges; `None` without edges.
fn of_edges(metric: BenchmarkMetric, embeddings: &Matrix, part: &HeldOutEdges) -> Result<Option<Named>, CliError> {
    if let BenchmarkMetric::Hits(k) = metric {
        return Ok(hits_of_edges(k, embeddings, part)?.map(|hits| vec![(format!("hits@{k}"), hits)]));
    }
    let ranks = ranks_of_edges(embeddings, part)?;
    if ranks.is_empty() {
        return Ok(None);
    }
    let mean = |of: &dyn Fn(f64) -> f64| ranks.iter().map(|&rank| of(rank)).sum::<f64>() / ranks.len() as f64;
    let hits = |k: f64| mean(&|rank| f64::from(u8::from(rank <= k)));
    let hits = [1, 3, 10].map(|k| (format!("hits@{k}_list"), hits(f64::from(k))));
    Ok(Some(hits.into_iter().chain([("mrr_list".to_owned(), mean(&f64::recip))]).collect()))
}

fn undefined(benchmark: Benchmark, part: &str) -> CliError {
    CliError::Other(format!("{}: the split has nothing to score in its part {part}", benchmark.name))
}

/// Prints a dictionary of Python for each part.
fn print(benchmark: Benchmark, mut results: Results, parts: Vec<(&'static str, Named)>, output: OutputArgs) {
    results.add("ogb", benchmark.name, "Benchmark", benchmark.name);
    for (part, named) in parts {
        let shown: Vec<String> = named.iter().map(|(name, score)| format!("'{name}': {score:?}")).collect();
        let values: Map<String, Value> = named.into_iter().map(|(name, score)| (name, score.into())).collect();
        results.add(part, Value::Object(values), part, format!("{{{}}}", shown.join(", ")));
    }
    results.print(output.json);
}
