//! Splits of edges in girih's own folder.

use girih_graph_format::NodeId;
use girih_graph_format::file::{Folder, FolderWriter};

use crate::DatasetError;
use crate::dataset::{Edge, EdgeSplit, HeldOutEdges, Negatives};

/// Names of the arrays: edges of each part (n × 2), and negative pairs (m × 2) or destinations (n × k) of held-out
/// parts.
const ARRAYS: [&str; 7] = [
    "edges_train",
    "edges_val",
    "edges_test",
    "negatives_val",
    "negatives_test",
    "negative_destinations_val",
    "negative_destinations_test",
];

/// Whether an array belongs to a split of edges.
pub(crate) fn is_edge_array(name: &str) -> bool {
    ARRAYS.contains(&name)
}

/// Writes a split of edges.
pub(crate) fn write(folder: &mut FolderWriter, split: &EdgeSplit) -> Result<(), DatasetError> {
    let mut pairs = |name: String, pairs: &[Edge]| folder.array(&name, &[pairs.len(), 2], pairs.as_flattened());
    pairs("edges_train".to_owned(), &split.train)?;
    for (part, held_out) in split.held_out() {
        pairs(format!("edges_{part}"), &held_out.edges)?;
        if let Negatives::Shared(negatives) = &held_out.negatives {
            pairs(format!("negatives_{part}"), negatives)?;
        }
    }
    for (part, held_out) in split.held_out() {
        if let Negatives::PerEdge { n, destinations } = &held_out.negatives {
            let shape = [held_out.edges.len(), *n];
            folder.array(&format!("negative_destinations_{part}"), &shape, destinations)?;
        }
    }
    Ok(())
}

/// Reads a split of edges, which is not checked.
pub(crate) fn read(folder: &Folder) -> Result<EdgeSplit, DatasetError> {
    let held_out = |part: &str| {
        let destinations = format!("negative_destinations_{part}");
        let negatives = if folder.contains(&destinations) {
            let (n, destinations) = table(folder, &destinations)?;
            Negatives::PerEdge { n, destinations }
        } else {
            Negatives::Shared(pairs(folder, &format!("negatives_{part}"))?)
        };
        Ok::<_, DatasetError>(HeldOutEdges { edges: pairs(folder, &format!("edges_{part}"))?, negatives })
    };
    Ok(EdgeSplit { train: pairs(folder, "edges_train")?, val: held_out("val")?, test: held_out("test")? })
}

/// Number of columns of an array, and its ids.
fn table(folder: &Folder, name: &str) -> Result<(usize, Vec<NodeId>), DatasetError> {
    let array = folder.array(name)?;
    let &[_, n_cols] = array.shape() else {
        let n_dims = array.shape().len();
        let message = format!("an array of {n_dims} dimensions; a split of edges has two");
        return Err(DatasetError::corrupt(message).at(array.origin()));
    };
    Ok((n_cols, array.into_ids()?.into_vec()))
}

fn pairs(folder: &Folder, name: &str) -> Result<Vec<Edge>, DatasetError> {
    match table(folder, name)? {
        (2, ids) => Ok(ids.as_chunks().0.to_vec()),
        (n_cols, _) => {
            Err(DatasetError::corrupt(format!("{n_cols} columns; an edge is two nodes")).at(&folder.file_of(name)))
        }
    }
}
