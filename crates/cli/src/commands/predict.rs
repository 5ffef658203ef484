//! `girih predict`: writes the predictions of a trained model for a data set.

mod table;

use std::ops::Range;
use std::path::Path;

use girih_compute::NO_COLUMN;
use girih_datasets::{DataSource, NewNodes};
use girih_graph_format::{Matrix, file};
use girih_trainer::{ExecutionPlan, TOP_K};

use self::table::{Table, separator_of};
use super::embed;
use crate::args::PredictArgs;
use crate::context::trained::{Loaded, together};
use crate::error::CliError;
use crate::paths;
use crate::scores::argmax;

/// Writes the predictions of the best checkpoint for every node.
pub fn run(args: &PredictArgs) -> Result<(), CliError> {
    together(&args.ranks, |world, ranks| {
        if world.is_primary() {
            paths::check(&args.out)?;
        }
        let loaded = Loaded::new(&args.data, &args.checkpoint, (&args.device, &args.ranks), None, (world, ranks))?;
        let plan = loaded.engine()?;
        if let (ExecutionPlan::Recommend | ExecutionPlan::Links, Some(_)) = (&plan, &args.nodes) {
            return Err(CliError::Usage("--nodes is for classifiers of nodes; leave it out".to_owned()));
        }
        match plan {
            ExecutionPlan::Triples => {
                let message = "girih predict writes one answer for each node, and triples ask for many: girih evaluate scores \
                               them, and girih embed writes the rows of entities";
                return Err(CliError::Usage(message.to_owned()));
            }
            ExecutionPlan::Recommend | ExecutionPlan::Links if separator_of(&args.out).is_some() => {
                return Err(CliError::Usage("tables are for classes of nodes; give --out FILE.npy".to_owned()));
            }
            ExecutionPlan::Recommend => return predict_items(loaded, args),
            ExecutionPlan::Links => return predict_links(loaded, args),
            _ => {}
        }
        let (loaded, n_known) = match &args.nodes {
            Some(path) => with_new_nodes(loaded, path)?,
            None => (loaded, 0),
        };
        let (is_primary, trained) = (loaded.is_primary, loaded.checkpoint.progress.data.clone());
        let wanted = wanted(&loaded.data, n_known);
        let n_nodes = wanted.len();
        let table =
            separator_of(&args.out).map(|separator| Table::of(&loaded.data, separator, (n_known, &wanted), &trained));
        let mut predictions = Predictions::of(args.logits, trained.multi_label);
        let mut n_passed = 0;
        let applied = loaded.apply(Some(&mut |logits| {
            let place = |row: usize| row.saturating_sub(n_passed).min(logits.n_rows());
            predictions.take(&logits.row_slice(place(wanted.start)..place(wanted.end)));
            n_passed += logits.n_rows();
        }))?;
        if !is_primary {
            return Ok(());
        }
        paths::make_parents(&args.out)?;
        match table {
            Some(table) => table.write(&args.out, &predictions)?,
            None => predictions.write(&args.out, (n_nodes, trained.n_classes))?,
        }
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

/// Rows of nodes to write: the new nodes, which come last, or the nodes of the target type, or all nodes.
fn wanted(data: &DataSource, n_known: usize) -> Range<usize> {
    match data {
        DataSource::Loaded(dataset) if n_known == 0 => dataset.target_ids(),
        _ => n_known..data.outline().n_nodes,
    }
}

/// Adds the nodes of a file to the data. Also returns the number of nodes before.
fn with_new_nodes(loaded: Loaded, path: &Path) -> Result<(Loaded, usize), CliError> {
    if let Some(rule) = loaded.checkpoint.progress.config.features_from.filter(|rule| rule.knows_nodes()) {
        return Err(CliError::Other(format!(
            "--nodes is not possible: features from {rule} have a row for each node of the graph, and none for new ones; \
             train with --features-from degree"
        )));
    }
    if loaded.checkpoint.progress.config.model.kind.reads_relations() {
        return Err(CliError::Other(
            "--nodes is not possible: edges of new nodes have no types; leave it out".to_owned(),
        ));
    }
    let dataset = loaded.data.into_dataset()?;
    let new = NewNodes::read(path)?.normalized(dataset.feature_norm).map_err(|error| error.at(path))?;
    if !new.is_symmetric() && dataset.graph.is_symmetric() {
        tracing::warn!(
            "{}: the graph has every edge in both directions, and these edges go one way; give both, if they are meant",
            path.display()
        );
    }
    let n_known = dataset.n_nodes();
    let data = dataset.with_new_nodes(&new).map_err(|error| error.at(path))?.into();
    Ok((Loaded { data, ..loaded }, n_known))
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
            Self::Classes(all) => all.extend((0..logits.n_rows()).map(|v| argmax(logits.row(v)) as i64)),
        }
    }

    fn n_nodes(&self, n_classes: usize) -> usize {
        match self {
            Self::Logits(all) => all.len() / n_classes.max(1),
            Self::Labels(all) => all.len() / n_classes.max(1),
            Self::Classes(all) => all.len(),
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

/// Writes the embedding of every node.
fn predict_links(loaded: Loaded, args: &PredictArgs) -> Result<(), CliError> {
    if args.logits {
        let message = "a link predictor has no logits: leave --logits out, and the embeddings of the nodes are written";
        return Err(CliError::Other(message.to_owned()));
    }
    let results = loaded.describe();
    embed::write(results, &loaded.embed()?.embeddings, (&args.out, args.output))
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
