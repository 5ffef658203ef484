//! Edge lists as data sets: the graph of a text file.

use std::path::Path;
use std::sync::Arc;

use girih_compress::CompressedFeatures;
use girih_graph_format::file::{
    Array, EdgeList, EdgeListOptions, Verify, count_table_rows, read_edge_list, sparse_npz_rows,
};
use girih_graph_format::{Coo, Duplicates, NodeId, TimedRows, Times};

use crate::edges::{directed_as, goes_both_ways, to_graph};
use crate::file_kind::{ending, stem};
use crate::{Dataset, DatasetError, LoadOptions};

/// Loads a list. Every edge is stored in both directions, unless the file or the options declare it directed.
///
/// # Errors
/// As [`read_edge_list`], and when there are more nodes than rows of features.
pub(crate) fn load(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let list = read(path, options)?;
    let edges = from_first(list.edges, options.ids_from.unwrap_or(0)).map_err(|e| e.at(path))?;
    of_list(stem(path), EdgeList { edges, ..list }, options).map_err(|e| e.at(path))
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
    let read = |n_nodes| {
        let LoadOptions { columns, bipartite, times, edge_features: features, .. } = options.clone();
        let read = EdgeListOptions { n_nodes, columns, bipartite, times, features, ..EdgeListOptions::default() };
        read_edge_list(path, &read)
    };
    let Some(features) = options.features.as_deref() else { return Ok(read(None)?) };
    let first = options.ids_from.unwrap_or(0) as usize;
    let n_nodes = n_rows(features)? + first;
    read(Some(n_nodes)).map_err(|error| match read(None) {
        // A list that reads well by itself has more nodes: the user has to decide which of the two files is wrong.
        Ok(list) if first == 0 && list.edges.n_rows() == n_nodes + 1 && !names_first(&list.edges) => {
            DatasetError::invalid(format!(
                "{error}; {} has a row for each of these, and no edge names node 0: where ids count from 1, give \
                 --ids-from 1",
                features.display()
            ))
        }
        Ok(_) => DatasetError::invalid(format!("{error}; {} has a row for each of these", features.display())),
        Err(_) => error.into(),
    })
}

fn names_first(edges: &Coo) -> bool {
    edges.rows().contains(&0) || edges.cols().contains(&0)
}

fn n_rows(features: &Path) -> Result<usize, DatasetError> {
    Ok(match ending(features).as_str() {
        "codes" => CompressedFeatures::open(features, Verify::Structure)?.n_rows(),
        "npz" => sparse_npz_rows(features)?,
        "csv" | "tsv" | "txt" => count_table_rows(features)?,
        _ => Array::map(features)?.expect_2d()?.0,
    })
}

/// Renumbers the nodes of edges from `first` to 0.
fn from_first(edges: Coo, first: u32) -> Result<Coo, DatasetError> {
    if first == 0 {
        return Ok(edges);
    }
    let shifted = |ids: &[NodeId]| -> Result<Vec<NodeId>, DatasetError> {
        let less = |&id: &NodeId| id.checked_sub(first);
        ids.iter().map(less).collect::<Option<_>>().ok_or_else(|| {
            DatasetError::invalid(format!(
                "an edge names node 0, and ids count from {first} by --ids-from; leave that out"
            ))
        })
    };
    let n = edges.n_rows().saturating_sub(first as usize);
    Ok(Coo::new(n, n, shifted(edges.rows())?, shifted(edges.cols())?, edges.values().map(<[f32]>::to_vec))?)
}
