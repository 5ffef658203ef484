//! Checks of data before training: nodes, features, labels and split.

use girih_datasets::{Dataset, FeaturesFrom, Labels, Outline};
use girih_graph_format::{Notes, Schema};
use girih_partition::counted;

use super::features::NodeFeatures;
use crate::TrainError;
use crate::config::{Metric, ModelKind, TrainConfig, joined};
use crate::layers::LayerTypes;
use crate::models::InputSpec;

/// Data set with everything that training needs.
pub(crate) struct Trainable {
    /// Data set without its features and labels.
    pub(crate) dataset: Dataset,
    /// Features, or the rule that generates them.
    pub(crate) features: NodeFeatures,
    /// Labels of all nodes.
    pub(crate) labels: Labels,
}

impl Trainable {
    /// Takes features and labels out of a data set that node classification can be trained on.
    ///
    /// # Errors
    /// When data or metric do not suit node classification.
    pub(crate) fn check(
        mut dataset: Dataset,
        config: &TrainConfig,
        input_spec: &InputSpec,
    ) -> Result<Self, TrainError> {
        let outline = dataset.outline();
        let reads_relations = input_spec.relations.is_some();
        check_trainable(&outline, config, reads_relations)?;
        let features = match reads_relations {
            true => NodeFeatures::take_any(&mut dataset, config.seed)?,
            false => NodeFeatures::take(&mut dataset, None, config.seed)?,
        };
        let labels = dataset.labels.take().expect("checked");
        Ok(Self { dataset, features, labels })
    }
}

/// Refuses data that node classification cannot be trained on, and metrics that do not suit it.
///
/// A model that reads relations needs no features, and only such a model reads data with types.
pub(crate) fn check_trainable(
    outline: &Outline,
    config: &TrainConfig,
    reads_relations: bool,
) -> Result<(), TrainError> {
    if outline.triples.is_some() && outline.n_classes == 0 {
        return Err(missing(outline, "classes of nodes, but triples", "train it with --task triples"));
    }
    if reads_relations {
        check_nodes(outline)?;
    } else {
        check_untyped(outline, config.model.name())?;
        check_features(outline)?;
    }
    if outline.n_classes == 0 {
        return Err(missing(
            outline,
            "labels",
            "training needs a class for each node: give --labels FILE.npy, or --task links",
        ));
    }
    if outline.splits.is_empty() {
        return Err(missing(
            outline,
            "split",
            "training needs training, validation and test nodes; ask for a random split",
        ));
    }
    if config.metric == Metric::RocAuc && !outline.multi_label && outline.n_classes != 2 {
        return Err(TrainError::invalid(format!(
            "{} has {} classes; ROC-AUC is defined for two classes, or for several labels a node: give --metric accuracy",
            outline.name, outline.n_classes
        )));
    }
    Ok(())
}

/// Error for a data set that lacks `what`, with a remedy.
fn missing(outline: &Outline, what: &str, remedy: &str) -> TrainError {
    TrainError::invalid(format!("{} has no {what}; {remedy}", outline.name))
}

/// Refuses data with types for a model or task, named in messages, that does not read them.
pub(crate) fn check_untyped(outline: &Outline, reader: &str) -> Result<(), TrainError> {
    if outline.schema.is_none() {
        return Ok(());
    }
    let typed = ModelKind::ALL.into_iter().filter(|kind| kind.reads_relations()).map(ModelKind::name);
    Err(TrainError::invalid(format!(
        "{} has {} types of edges, which {reader} does not read; give --model {}, and --task nodes",
        outline.name,
        outline.relations.relations.len(),
        joined(typed, "or")
    )))
}

/// Types of nodes and edges that a model of relations does not read: no layer of it gets from them to the target.
#[must_use]
pub fn unread_types(config: &TrainConfig, outline: &Outline) -> Notes {
    let mut notes = Notes::default();
    let sizes = &outline.relations;
    let Some(schema) = &outline.schema else { return notes };
    if sizes.node_types.len() < 2 || !config.model.kind.reads_relations() || config.model.layers == 0 {
        return notes;
    }
    if let Some(why) = unread_neighbors(config, schema, outline.target) {
        notes.leave_out("all edges", why);
    }
    let first = LayerTypes::of(sizes, Some(outline.target), config.model.layers).swap_remove(0);
    let nodes = (0..sizes.node_types.len()).filter(|of| !first.sources.contains(of));
    let edges = (0..sizes.relations.len()).filter(|of| !first.relations.contains(of));
    let nodes: Vec<&str> = nodes.map(|of| &schema.node_types()[of].name[..]).collect();
    let edges: Vec<String> = edges.map(|of| schema.edge_name(of)).collect();
    let layers = counted(config.model.layers, "layer");
    let why = format!("they do not reach {} within {layers}", schema.node_types()[outline.target].name);
    if !nodes.is_empty() {
        notes.leave_out(format!("the node types {}", joined(nodes, "and")), &why[..]);
    }
    if !edges.is_empty() {
        notes.leave_out(format!("the edge types {}", joined(edges, "and")), why);
    }
    notes
}

/// Why the mini-batches of a configuration read no neighbors, if that is so.
fn unread_neighbors(config: &TrainConfig, schema: &Schema, target: usize) -> Option<String> {
    let fan_out = config.batch.typed_fan_out(schema, config.model.layers).ok()?;
    let is_closed = config.batch.is_sampled() && fan_out.is_closed(schema, target);
    is_closed.then(|| format!("--fanout follows no edge type into {}", schema.node_types()[target].name))
}

/// Refuses data without nodes, data of users and items, and data without features.
pub(crate) fn check_features(outline: &Outline) -> Result<(), TrainError> {
    check_nodes(outline)?;
    if outline.n_features == 0 {
        let remedy = format!(
            "training needs a row of numbers for each node: give --features FILE.npy, or have them made by \
             --features-from {}",
            FeaturesFrom::VALUES
        );
        return Err(missing(outline, "features", &remedy));
    }
    Ok(())
}

/// Refuses data without nodes, and data of users and items.
fn check_nodes(outline: &Outline) -> Result<(), TrainError> {
    if outline.n_nodes == 0 {
        return Err(missing(outline, "nodes", "there is nothing to train on"));
    }
    if outline.n_users.is_some() {
        let what = "features or classes, but users and items";
        return Err(missing(outline, what, "train it with --model lightgcn"));
    }
    Ok(())
}
