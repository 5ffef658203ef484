//! Conversion of listed edges to a graph: treatment of parallel edges, and stored directions.

use girih_graph_format::{Coo, Csr, Duplicates, FormatError, Notes};

use crate::{DatasetError, LoadOptions};

/// Makes the graph of listed edges. The options decide on parallel edges, or else the convention of the format; their
/// number goes into the notes.
///
/// # Errors
/// As [`Coo::to_csr`].
pub(crate) fn to_graph(
    edges: &Coo,
    options: &LoadOptions,
    default: Duplicates,
    notes: &mut Notes,
) -> Result<Csr, FormatError> {
    let rule = options.duplicates.unwrap_or(default);
    let graph = edges.to_csr(rule).map_err(|error| match options.duplicates {
        Some(_) => error,
        None => with_remedy(&error, rule),
    })?;
    rule.note(edges.len() - graph.nnz(), edges.values().is_some(), notes);
    Ok(graph)
}

fn with_remedy(error: &FormatError, rule: Duplicates) -> FormatError {
    if rule == Duplicates::Refuse {
        FormatError::invalid(format!("{error}; --duplicates sum, merge or keep reads them all the same"))
    } else {
        FormatError::invalid(error.to_string())
    }
}

/// Whether edges are stored in both directions, by the options or else by the format's convention.
pub(crate) fn goes_both_ways(options: &LoadOptions, default: bool) -> bool {
    options.symmetrize.unwrap_or(default)
}

/// Stores every edge in both directions, if the options or else the format's convention ask for it. The number of
/// added edges goes into the notes.
pub(crate) fn directed_as(graph: Csr, options: &LoadOptions, default: bool, notes: &mut Notes) -> Csr {
    if !goes_both_ways(options, default) || !graph.is_square() {
        return graph;
    }
    let n_before = graph.nnz();
    let graph = graph.symmetrized();
    let n_added = graph.nnz() - n_before;
    if n_added > 0 {
        let noun = if n_added == 1 { "reverse edge is" } else { "reverse edges are" };
        let text = format!("{n_added} {noun} added (--symmetrize false leaves the edges as they are)");
        notes.make_up("symmetrized_edges", text, &[("edges", n_added as u64)]);
    }
    graph
}

/// Refuses the option on parallel edges, for formats that cannot have any.
///
/// # Errors
/// When the option is given.
pub(crate) fn refuse_duplicates_option(options: &LoadOptions, why: &str) -> Result<(), DatasetError> {
    match options.duplicates {
        None => Ok(()),
        Some(_) => Err(DatasetError::invalid(format!("--duplicates has no effect here: {why}; leave it out"))),
    }
}

/// Drops self loops, and notes their number.
pub(crate) fn without_loops(stored: &Csr, notes: &mut Notes) -> Csr {
    let graph = stored.without_self_loops();
    let n_loops = stored.nnz() - graph.nnz();
    if n_loops > 0 {
        let text = format!("{n_loops} self loops are dropped, as the published loaders do");
        notes.make_up("dropped_self_loops", text, &[("edges", n_loops as u64)]);
    }
    graph
}
