//! Types of nodes and edges in a data set.

use girih_graph_format::{Csr, NodeId, Permutation, PlacedRelation, TypedGraph};
use rayon::prelude::*;

use crate::DatasetError;

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
pub(super) fn add_to(typed: &TypedGraph, hash: &mut crc32fast::Hasher) {
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
}

/// Renumbers the nodes of every relation.
///
/// # Errors
/// When there are several node types: an order of all nodes mixes them.
pub(super) fn permuted(typed: &TypedGraph, order: &Permutation) -> Result<TypedGraph, DatasetError> {
    let schema = typed.schema();
    if schema.node_types().len() != 1 {
        return Err(DatasetError::invalid(format!(
            "an order of all nodes would mix the {} node types; leave the order out",
            schema.node_types().len()
        )));
    }
    let relations = typed.relations().par_iter().map(|relation| relation.permuted(order)).collect();
    Ok(TypedGraph::new(schema.clone(), relations)?)
}
