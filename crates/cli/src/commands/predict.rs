//! `girih predict`: writes the predictions of a trained model for a data set.

use std::path::Path;

use girih_compute::NO_COLUMN;
use girih_graph_format::{Matrix, file};
use girih_trainer::{ExecutionPlan, TOP_K};

use crate::args::PredictArgs;
use crate::context::trained::{Loaded, together};
use crate::error::CliError;
use crate::paths;

/// Writes the predictions of the best checkpoint for every node.
pub fn run(args: &PredictArgs) -> Result<(), CliError> {
    together(&args.ranks, |world, ranks| {
        if world.is_primary() {
            paths::check(&args.out)?;
        }
        let loaded = Loaded::new(&args.data, &args.checkpoint, (&args.device, &args.ranks), None, (world, ranks))?;
        match loaded.engine()? {
            ExecutionPlan::Recommend => return predict_items(loaded, args),
            ExecutionPlan::Links => return predict_links(loaded, args),
            _ => {}
        }
        let (is_primary, n_nodes, trained) =
            (loaded.is_primary, loaded.data.outline().n_nodes, loaded.checkpoint.progress.data.clone());
        let mut predictions = Predictions::of(args.logits, trained.multi_label);
        let applied = loaded.apply(Some(&mut |logits| predictions.take(logits)))?;
        if !is_primary {
            return Ok(());
        }
        paths::make_parents(&args.out)?;
        predictions.write(&args.out, (n_nodes, trained.n_classes))?;
        let (mut results, kind, out) = (applied.description, predictions.kind(), args.out.display().to_string());
        results.add("nodes", n_nodes, "Nodes", n_nodes.to_string()).add("kind", kind, "Values", kind).add(
            "out",
            out.as_str(),
            "Written to",
            out.as_str(),
        );
        results.print(args.output.json);
        Ok(())
    })
}

/// Predictions to write, in the order of nodes.
enum Predictions {
    Logits(Vec<f32>),
    /// With several labels a node: 1 for each label whose probability exceeds 0.5.
    Labels(Vec<u8>),
    Classes(Vec<i64>),
}

impl Predictions {
    fn of(logits: bool, multi_label: bool) -> Self {
        match (logits, multi_label) {
            (true, _) => Self::Logits(Vec::new()),
            (false, true) => Self::Labels(Vec::new()),
            (false, false) => Self::Classes(Vec::new()),
        }
    }

    /// Takes the logits of the next nodes.
    fn take(&mut self, logits: &Matrix) {
        match self {
            Self::Logits(all) => all.extend_from_slice(logits.data()),
            Self::Labels(all) => all.extend(logits.data().iter().map(|&logit| u8::from(logit > 0.0))),
            Self::Classes(all) => all.extend((0..logits.n_rows()).map(|v| argmax(logits.row(v)))),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Logits(_) => "logits",
            Self::Labels(_) => "labels",
            Self::Classes(_) => "classes",
        }
    }

    fn write(&self, path: &Path, (n_nodes, n_classes): (usize, usize)) -> Result<(), CliError> {
        match self {
            Self::Logits(values) => file::write_npy(path, &[n_nodes, n_classes], values)?,
            Self::Labels(values) => file::write_npy(path, &[n_nodes, n_classes], values)?,
            Self::Classes(values) => file::write_npy(path, &[n_nodes], values)?,
        }
        Ok(())
    }
}

/// Position of the largest value; the first one of equal values.
fn argmax(row: &[f32]) -> i64 {
    let mut best = 0;
    for (i, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = i;
        }
    }
    best as i64
}

/// Writes the embedding of every node.
fn predict_links(loaded: Loaded, args: &PredictArgs) -> Result<(), CliError> {
    if args.logits {
        let message = "a link predictor has no logits: leave --logits out, and the embeddings of the nodes are written";
        return Err(CliError::Other(message.to_owned()));
    }
    let mut results = loaded.describe();
    let embeddings = loaded.embed()?.embeddings;
    paths::make_parents(&args.out)?;
    let (n_rows, n_cols) = (embeddings.n_rows(), embeddings.n_cols());
    file::write_npy(&args.out, &[n_rows, n_cols], embeddings.data())?;
    let out = args.out.display().to_string();
    results
        .add("nodes", n_rows, "Nodes", n_rows.to_string())
        .add("kind", "embeddings", "Values", format!("embeddings of {n_cols} columns"))
        .add("out", out.as_str(), "Written to", out.as_str());
    results.print(args.output.json);
    Ok(())
}

/// Writes the top-ranked items of every user, best first; -1 fills rows with fewer items.
fn predict_items(loaded: Loaded, args: &PredictArgs) -> Result<(), CliError> {
    if args.logits {
        let message = "a recommender has no logits: leave --logits out, and the top items of each user are written";
        return Err(CliError::Other(message.to_owned()));
    }
    let (mut results, is_primary) = (loaded.describe(), loaded.is_primary);
    let recommendations = loaded.recommend()?;
    if !is_primary {
        return Ok(());
    }
    let item = |&item: &u32| if item == NO_COLUMN { -1 } else { i64::from(item) };
    let items: Vec<i64> = recommendations.items.iter().map(item).collect();
    paths::make_parents(&args.out)?;
    file::write_npy(&args.out, &[recommendations.n_users, TOP_K], &items)?;
    let out = args.out.display().to_string();
    results
        .add("users", recommendations.n_users, "Users", recommendations.n_users.to_string())
        .add("kind", "items", "Values", format!("{TOP_K} items per user"))
        .add("out", out.as_str(), "Written to", out.as_str());
    results.print(args.output.json);
    Ok(())
}
