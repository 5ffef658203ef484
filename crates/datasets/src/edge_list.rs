//! Edge lists as data sets: the graph of a text file.

use std::path::Path;
use std::sync::Arc;

use girih_compress::CompressedFeatures;
use girih_graph_format::file::{
    Array, EdgeList, EdgeListOptions, Verify, count_table_rows, read_edge_list, sparse_npz_rows,
};
use girih_graph_format::{Duplicates, NodeId, Notes, TimedRows, Times};

use crate::edges::{directed_as, goes_both_ways, to_graph};
use crate::file_kind::{ending, stem};
use crate::{Dataset, DatasetError, LoadOptions};

/// Loads a list. Every edge is stored in both directions, unless the file or the options declare it directed.
///
/// # Errors
/// As [`read_edge_list`], and when there are more nodes than rows of features.
pub(crate) fn load(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    of_list(stem(path), read(path, options)?, options).map_err(|e| e.at(path))
}

/// Data set of a list whose ids count from 0.
///
/// # Errors
/// When parallel edges are refused, or the list breaks a rule of data sets.
pub(crate) fn of_list(name: String, list: EdgeList, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let EdgeList { edges, directed, times, features, mut notes, .. } = list;
    // A repeated pair without weights states one edge twice; weights of one edge in several lines add up.
    let default = if edges.values().is_some() { Duplicates::Sum } else { Duplicates::Merge };
    let graph = to_graph(&edges, options, default, &mut notes)?;
    let is_undirected = directed != Some(true);
    let graph = directed_as(graph, options, is_undirected, &mut notes);
    let both_ways = goes_both_ways(options, is_undirected);
    // Rows of features are those of the list, as are the numbers of timed edges.
    let in_time = |times: &Times| TimedRows::new(graph.n_rows(), edges.cols(), edges.rows(), times, both_ways);
    let timed = times.as_ref().map(in_time).transpose()?.map(Arc::new);
    let dataset = Dataset::new(name, graph, None, None, Vec::new())?;
    Ok(Dataset { notes, timed, edge_features: features.map(Arc::new), ..dataset })
}

/// Edges of a list; rows of features, if given, set the number of nodes.
fn read(path: &Path, options: &LoadOptions) -> Result<EdgeList, DatasetError> {
    let read = |n_nodes, ids_from| {
        let LoadOptions { columns, bipartite, times, edge_features: features, .. } = options.clone();
        let read = EdgeListOptions { n_nodes, columns, bipartite, times, features, ids_from, ..Default::default() };
        read_edge_list(path, &read)
    };
    let reads = |n_nodes, ids_from| read(n_nodes, ids_from).is_ok();
    let features = options.features.as_deref();
    let n_nodes = features.map(n_rows).transpose()?;
    read(n_nodes, options.ids_from).map_err(|error| match (options.ids_from, features.map(Path::display)) {
        (Some(first), _) if first > 0 && reads(n_nodes, None) => {
            DatasetError::invalid(format!("{error}; ids count from {first} by --ids-from: leave that out"))
        }
        (None, Some(features)) if reads(n_nodes, Some(1)) => DatasetError::invalid(format!(
            "{error}; {features} has a row for each of these, and no edge names node 0: where ids count from 1, give \
             --ids-from 1"
        )),
        // A list that reads well by itself has more nodes: the user has to decide which of the two files is wrong.
        (ids_from, Some(features)) if reads(None, ids_from) => {
            DatasetError::invalid(format!("{error}; {features} has a row for each of these"))
        }
        _ => error.into(),
    })
}

fn n_rows(features: &Path) -> Result<usize, DatasetError> {
    Ok(match ending(features).as_str() {
        "codes" => CompressedFeatures::open(features, Verify::Structure)?.n_rows(),
        "npz" => sparse_npz_rows(features)?,
        "csv" | "tsv" | "txt" => count_table_rows(features)?,
        _ => Array::map(features)?.expect_2d()?.0,
    })
}

/// Smallest id in the file that `notes` tell of, if all nodes are numbered alike there; 0 for two sides.
pub(crate) fn first_id(notes: &Notes) -> usize {
    match (count(notes, "sides"), count(notes, "shifted_ids")) {
        (None, Some(first)) => first,
        _ => 0,
    }
}

/// First number of a note of this kind.
fn count(notes: &Notes, kind: &str) -> Option<usize> {
    let made = notes.made_up.iter().find(|made| made.kind == kind)?;
    made.counts.first().map(|&(_, count)| count as usize)
}

/// Adds a hint to an error about `n_rows` rows of a file, if the first node, or that of each side, has no edges and is
/// one too many.
pub(crate) fn with_hint(error: DatasetError, dataset: &Dataset, n_rows: usize) -> DatasetError {
    let Dataset { graph, notes, .. } = dataset;
    let n_left = count(notes, "sides");
    let firsts: Vec<usize> = [0].into_iter().chain(n_left).collect();
    let is_free = |&node: &usize| {
        node < graph.n_rows() && graph.degree(node) == 0 && !graph.indices().contains(&(node as NodeId))
    };
    let is_shifted = count(notes, "shifted_ids").is_some();
    if is_shifted || n_rows + firsts.len() != graph.n_rows() || !firsts.iter().all(is_free) {
        return error;
    }
    let told = match n_left {
        None => "node 0 has no edges".to_owned(),
        Some(n_left) => format!("the nodes 0 and {n_left}, the first ones of both sides, have no edges"),
    };
    DatasetError::invalid(format!("{error}; {told}: where ids count from 1, give --ids-from 1"))
}
