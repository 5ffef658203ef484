//! [`TypedData`]: types of nodes and edges in a data set.

use std::ops::Range;

use girih_graph_format::{Csr, NodeId, Permutation, PlacedRelation, TypedGraph};
use rayon::prelude::*;

use super::features::{Features, add_features};
use super::labels::{Labels, UNLABELLED};
use super::split::Split;
use crate::DatasetError;

/// Graph with types, and what its node types have.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedData {
    /// Types, and the relation of each edge type.
    pub graph: TypedGraph,
    /// Features of each node type, if there are several. Those of a single type are
    /// [`Dataset::features`](crate::Dataset::features).
    pub features: Vec<TypeFeatures>,
    /// Number of the node type whose nodes have labels and splits.
    pub target: usize,
}

/// Features of a node type.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeFeatures {
    /// None: models learn rows as wide as their layers.
    None,
    /// A row for each node of the type.
    Given(Features),
    /// Learned rows; `None` stands for the width of the model's layers.
    Learned(Option<usize>),
}

/// Width of the features of a node type, before rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeWidth {
    /// No features.
    None,
    /// Width of rows that the data has.
    Given(usize),
    /// Width of learned rows; `None` stands for that of the model's layers.
    Learned(Option<usize>),
}

impl TypeFeatures {
    /// Rows that the data has.
    #[must_use]
    pub fn given(&self) -> Option<&Features> {
        if let Self::Given(features) = self { Some(features) } else { None }
    }

    /// Width of the features.
    #[must_use]
    pub fn width(&self) -> TypeWidth {
        match self {
            Self::None => TypeWidth::None,
            Self::Given(features) => TypeWidth::Given(features.width()),
            Self::Learned(width) => TypeWidth::Learned(*width),
        }
    }
}

impl TypedData {
    /// Types without features, with the first node type as the target.
    #[must_use]
    pub fn of_graph(graph: TypedGraph) -> Self {
        let n_types = graph.schema().node_types().len();
        let features = if n_types == 1 { Vec::new() } else { vec![TypeFeatures::None; n_types] };
        Self { graph, features, target: 0 }
    }

    /// Whether there is more than one node type.
    #[must_use]
    pub fn has_several_types(&self) -> bool {
        self.graph.schema().node_types().len() > 1
    }

    /// Global ids of the nodes of the target type.
    #[must_use]
    pub fn target_ids(&self) -> Range<usize> {
        let schema = self.graph.schema();
        let first = schema.first(self.target);
        first..first + schema.node_types()[self.target].n_nodes
    }

    /// Checks the target, and that features have a finite row for each node of their type.
    pub(super) fn check(&self) -> Result<(), DatasetError> {
        let types = self.graph.schema().node_types();
        if self.target >= types.len() {
            let (target, n) = (self.target, types.len());
            return Err(DatasetError::invalid(format!("the target is node type {target}, but there are {n}")));
        }
        let expected = if types.len() == 1 { 0 } else { types.len() };
        if self.features.len() != expected {
            let (found, n) = (self.features.len(), types.len());
            return Err(DatasetError::invalid(format!("{found} features of types for {n} node types, not {expected}")));
        }
        for (of, features) in types.iter().zip(&self.features) {
            if let Some(rows) = features.given() {
                rows.validate(of.n_nodes)
                    .map_err(|error| DatasetError::invalid(format!("type {}: {error}", of.name)))?;
            }
        }
        Ok(())
    }
}

/// Checks that labels and splits are those of the target's nodes, and features those of types, if there are several.
pub(super) fn check_target(
    typed: &TypedData,
    labels: Option<&Labels>,
    splits: &[Split],
    has_features_of_all: bool,
) -> Result<(), DatasetError> {
    if !typed.has_several_types() {
        return Ok(());
    }
    if has_features_of_all {
        let message = "features of all nodes, but there are several node types; features belong to types";
        return Err(DatasetError::invalid(message));
    }
    let (ids, name) = (typed.target_ids(), &typed.graph.schema().node_types()[typed.target].name);
    let other = |node: &NodeId| !ids.contains(&(*node as usize));
    let nodes = splits.iter().flat_map(|split| split.parts()).flat_map(|(_, nodes)| nodes);
    if let Some(node) = nodes.into_iter().find(|node| other(node)) {
        return Err(DatasetError::invalid(format!("node {node} of a split is none of the target, {name}")));
    }
    let labelled = match labels {
        Some(Labels::Single { classes, .. }) => {
            (0..classes.len() as NodeId).find(|node| other(node) && classes[*node as usize] != UNLABELLED)
        }
        Some(Labels::Multi { targets, .. }) => {
            let has_label = |node: NodeId| targets.row(node as usize).iter().any(|&target| target != 0.0);
            (0..targets.n_rows() as NodeId).find(|node| other(node) && has_label(*node))
        }
        None => None,
    };
    match labelled {
        Some(node) => Err(DatasetError::invalid(format!("node {node} has a label, but is none of the target, {name}"))),
        None => Ok(()),
    }
}

/// Checks that `graph` is the union of all relations.
pub(super) fn check_union(typed: &TypedGraph, graph: &Csr) -> Result<(), DatasetError> {
    let (found, expected) = (graph.n_rows(), typed.n_nodes());
    if found != expected {
        let message = format!("the types have {expected} nodes together, and the graph has {found}");
        return Err(DatasetError::invalid(message));
    }
    if graph.values().is_some() {
        return Err(DatasetError::invalid(
            "edges with types have no weights, but the graph has; leave the weights out",
        ));
    }
    let schema = typed.schema();
    for (number, of) in schema.node_types().iter().enumerate() {
        let first = schema.first(number);
        let into: Vec<PlacedRelation<'_>> = typed.placed_relations().filter(|of| of.destination == number).collect();
        let differs = |v: &usize| {
            let sources = into.iter().map(|of| (of.adjacency.row(*v), of.first_source as NodeId));
            let mut row: Vec<NodeId> = sources.flat_map(|(row, first)| row.iter().map(move |u| first + u)).collect();
            row.sort_unstable();
            row.dedup();
            row != graph.row(first + v)
        };
        if let Some(v) = (0..of.n_nodes).into_par_iter().find_first(differs) {
            return Err(DatasetError::invalid(format!(
                "the edges of node {} in the graph are not those of its relations; the graph is their union",
                first + v
            )));
        }
    }
    Ok(())
}

/// Adds names of types and edges of all relations to a hash.
pub(super) fn add_to(data: &TypedData, hash: &mut crc32fast::Hasher) {
    let typed = &data.graph;
    let mut add_name = |name: &str, number: usize| {
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update(&(number as u64).to_le_bytes());
    };
    let schema = typed.schema();
    schema.node_types().iter().for_each(|of| add_name(&of.name, of.n_nodes));
    for (number, edges) in schema.edge_types().iter().enumerate() {
        add_name(&schema.edge_name(number), edges.reverse_of.map_or(0, |of| of + 1));
    }
    for relation in typed.relations() {
        hash.update(bytemuck::cast_slice(relation.indptr()));
        hash.update(bytemuck::cast_slice(relation.indices()));
    }
    if data.has_several_types() {
        hash.update(&(data.target as u64).to_le_bytes());
    }
    for features in &data.features {
        match features {
            TypeFeatures::None => hash.update(&[0]),
            TypeFeatures::Given(features) => add_features(features, hash),
            TypeFeatures::Learned(width) => hash.update(&(width.map_or(0, |width| width + 1) as u64).to_le_bytes()),
        }
    }
}

/// Renumbers the nodes of every relation.
///
/// # Errors
/// When there are several node types: an order of all nodes mixes them.
pub(super) fn permuted(data: &TypedData, order: &Permutation) -> Result<TypedData, DatasetError> {
    let typed = &data.graph;
    let schema = typed.schema();
    if schema.node_types().len() != 1 {
        return Err(DatasetError::invalid(format!(
            "an order of all nodes would mix the {} node types; leave the order out",
            schema.node_types().len()
        )));
    }
    let relations = typed.relations().par_iter().map(|relation| relation.permuted(order)).collect();
    Ok(TypedData { graph: TypedGraph::new(schema.clone(), relations)?, ..data.clone() })
}
