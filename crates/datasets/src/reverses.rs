//! Reverse relations: those that the data has are found, and others added.

use girih_graph_format::{Csr, EdgeType, Notes, Schema, TypedGraph};
use rayon::prelude::*;

use crate::{DatasetError, ReverseEdges};

/// Reverse relations as the option says. Without it, relations that have the edges of another one in the other direction
/// become its reverse, and all others get one.
///
/// # Errors
/// When `--reverse add` or `merge` would add what is there, or a relation has the name of a reverse that is to be added.
pub(crate) fn with_option(
    graph: TypedGraph,
    option: Option<ReverseEdges>,
    notes: &mut Notes,
) -> Result<TypedGraph, DatasetError> {
    match option {
        Some(ReverseEdges::No) => Ok(graph),
        Some(ReverseEdges::Add) => {
            refuse_given(&graph, ReverseEdges::Add)?;
            added(&graph, |_| true, notes)
        }
        Some(ReverseEdges::Merge) => {
            refuse_given(&graph, ReverseEdges::Merge)?;
            let graph = merged(&graph, notes)?;
            added(&graph, |number| !is_inside(graph.schema(), number), notes)
        }
        None => {
            let graph = paired(graph, notes)?;
            // A relation inside a type whose edges go both ways has its reverse in itself.
            let is_symmetric = |number: usize| {
                let relation = &graph.relations()[number];
                is_inside(graph.schema(), number) && relation.nnz() > 0 && relation.is_symmetric()
            };
            added(&graph, |number| !is_symmetric(number), notes)
        }
    }
}

/// As [`with_option`], but each relation gets a reverse unless the option says otherwise: relations that have the edges of
/// another one in the other direction are no reverses.
///
/// # Errors
/// As [`with_option`].
pub(crate) fn of_all(
    graph: TypedGraph,
    option: Option<ReverseEdges>,
    notes: &mut Notes,
) -> Result<TypedGraph, DatasetError> {
    match option {
        None | Some(ReverseEdges::Add) => added(&graph, |_| true, notes),
        given => with_option(graph, given, notes),
    }
}

/// Whether a relation joins nodes of one type.
pub(crate) fn is_inside(schema: &Schema, number: usize) -> bool {
    let of = &schema.edge_types()[number];
    of.source == of.destination
}

/// Graph whose relations inside one type have each edge in both directions.
fn merged(graph: &TypedGraph, notes: &mut Notes) -> Result<TypedGraph, DatasetError> {
    let schema = graph.schema().clone();
    let merge = |(number, relation): (usize, &Csr)| {
        if is_inside(&schema, number) { relation.symmetrized() } else { relation.clone() }
    };
    let relations: Vec<Csr> = graph.relations().par_iter().enumerate().map(merge).collect();
    let grew = |(before, after): (&Csr, &Csr)| after.nnz() - before.nnz();
    let added: Vec<usize> = graph.relations().iter().zip(&relations).map(grew).filter(|&n| n > 0).collect();
    let (n_types, n_edges) = (added.len(), added.iter().sum::<usize>());
    if n_types > 0 {
        let noun = if n_types == 1 { "relation inside a type has" } else { "relations inside a type have" };
        let edges = if n_edges == 1 { "edge" } else { "edges" };
        let text =
            format!("{n_types} {noun} each edge in both directions, with {n_edges} {edges} more (--reverse merge)");
        notes.make_up("merged_relations", text, &[("relations", n_types as u64), ("edges", n_edges as u64)]);
    }
    Ok(TypedGraph::new(schema, relations)?)
}

/// Refuses to add reverses to data that has some.
fn refuse_given(graph: &TypedGraph, option: ReverseEdges) -> Result<(), DatasetError> {
    let schema = graph.schema();
    let stated = schema.edge_types().iter().enumerate().find_map(|(number, of)| Some((of.reverse_of?, number)));
    let Some((forward, reverse)) = stated.or_else(|| pairs(graph).first().copied()) else { return Ok(()) };
    Err(DatasetError::invalid(format!(
        "{} has the edges of {} in the other direction, and --reverse {option} would add them again; leave --reverse out, or \
         give --reverse no",
        schema.edge_name(reverse),
        schema.edge_name(forward)
    )))
}

/// Relations without a stated reverse of which one has the edges of the other in the other direction: forward, reverse.
fn pairs(graph: &TypedGraph) -> Vec<(usize, usize)> {
    let (schema, relations) = (graph.schema(), graph.relations());
    let types = schema.edge_types();
    let mut is_paired: Vec<bool> = (0..types.len()).map(|number| schema.has_reverse(number)).collect();
    let mut pairs = Vec::new();
    for one in 0..types.len() {
        if is_paired[one] || relations[one].nnz() == 0 {
            continue;
        }
        let (ends, n_edges) = ((types[one].destination, types[one].source), relations[one].nnz());
        let may_be_reverse = |&other: &usize| {
            !is_paired[other]
                && (types[other].source, types[other].destination) == ends
                && relations[other].nnz() == n_edges
        };
        // Relations are large: one is transposed only if there is another to compare it with.
        let mut others = (one + 1..types.len()).filter(may_be_reverse).peekable();
        let transposed = others.peek().map(|_| relations[one].transposed());
        if let Some(other) = others.find(|&other| transposed.as_ref() == Some(&relations[other])) {
            (is_paired[one], is_paired[other]) = (true, true);
            let names_first = types[one].relation == types[other].reverse_name();
            pairs.push(if names_first { (other, one) } else { (one, other) });
        }
    }
    pairs
}

/// Graph in which relations that are the reverse of another one say so.
fn paired(graph: TypedGraph, notes: &mut Notes) -> Result<TypedGraph, DatasetError> {
    let pairs = pairs(&graph);
    let Some(&(forward, reverse)) = pairs.first() else { return Ok(graph) };
    let schema = graph.schema();
    let names = (schema.edge_name(reverse), schema.edge_name(forward));
    let others = if pairs.len() == 1 { String::new() } else { format!(", and {} more pairs", pairs.len() - 1) };
    let text = format!("{} is the reverse of {}, as it has the same edges{others}", names.0, names.1);
    notes.make_up("paired_relations", text, &[("relations", pairs.len() as u64)]);
    let mut edge_types: Vec<EdgeType> = schema.edge_types().to_vec();
    pairs.iter().for_each(|&(forward, reverse)| edge_types[reverse].reverse_of = Some(forward));
    Ok(TypedGraph::new(Schema::new(schema.node_types().to_vec(), edge_types)?, graph.relations().to_vec())?)
}

/// Graph with the reverse of each relation that needs one and has none.
fn added(graph: &TypedGraph, needs: impl Fn(usize) -> bool, notes: &mut Notes) -> Result<TypedGraph, DatasetError> {
    let with = graph.with_reverses_of(needs)?;
    let count = |graph: &TypedGraph| (graph.relations().len(), graph.n_edges());
    let ((n_before, edges_before), (n_after, edges_after)) = (count(graph), count(&with));
    let (n_types, n_edges) = (n_after - n_before, edges_after - edges_before);
    if n_types > 0 {
        let noun = if n_types == 1 { "relation is" } else { "relations are" };
        let text = format!("{n_types} reverse {noun} added, with {n_edges} edges (--reverse no leaves them out)");
        notes.make_up("reverse_relations", text, &[("relations", n_types as u64), ("edges", n_edges as u64)]);
    }
    Ok(with)
}
