//! The `.npz` files of the heterophilous graphs (Platonov et al., "A critical look at the evaluation of GNNs under
//! heterophily", ICLR 2023), such as Tolokers.
//!
//! ```text
//! node_features  n × width        edges                                m × 2, every pair once
//! node_labels    n                train_masks  val_masks  test_masks   splits × n, true where a node takes part
//! ```

use girih_graph_format::file::{Array, Npz};
use girih_graph_format::{Coo, Csr, Duplicates, NodeId, Notes};

use crate::edges::{directed_as, to_graph, without_loops};
use crate::inventory::Inventory;
use crate::{Dataset, DatasetError, Features, LoadOptions, Split, labels};

/// Members that the loader reads.
const MEMBERS: [&str; 6] =
    ["node_features.npy", "node_labels.npy", "edges.npy", "train_masks.npy", "val_masks.npy", "test_masks.npy"];

/// Loads an open archive with the split sets that it ships.
///
/// # Errors
/// When members are missing, damaged or contradict each other.
pub(crate) fn load(npz: &mut Npz, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let origin = npz.origin().to_owned();
    read(npz, name, options).map_err(|e| e.at(&origin))
}

fn read(npz: &mut Npz, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let mut notes = Notes::default();
    let features = npz.array("node_features")?.into_matrix()?;
    let n_nodes = features.n_rows();
    let feature_norm = options.feature_norm.unwrap_or_default();
    let features = feature_norm.apply(Features::Dense(features))?;
    let graph = adjacency(npz.array("edges")?, n_nodes, options, &mut notes)?;
    let graph = directed_as(graph, options, true, &mut notes);
    let labels = labels::as_published(npz.array("node_labels")?)?;
    let splits = splits(npz, n_nodes)?;
    Inventory::note_others(npz.members().iter().cloned(), |name| MEMBERS.contains(&name), &mut notes);
    Ok(Dataset { notes, feature_norm, ..Dataset::new(name, graph, Some(features), Some(labels), splits)? })
}

/// Whether an archive has the members of this format.
pub(crate) fn recognizes(npz: &Npz) -> bool {
    npz.contains("node_features") && npz.contains("edges")
}

fn adjacency(edges: Array, n_nodes: usize, options: &LoadOptions, notes: &mut Notes) -> Result<Csr, DatasetError> {
    let origin = edges.origin().to_owned();
    let (_, n_ends) = edges.expect_2d()?;
    if n_ends != 2 {
        return Err(DatasetError::invalid(format!("edges with {n_ends} ends; two are expected")).at(&origin));
    }
    let ends = edges.into_ids()?;
    let (pairs, _) = ends.as_chunks::<2>();
    let (sources, destinations): (Vec<NodeId>, Vec<NodeId>) = pairs.iter().map(|&[u, v]| (u, v)).unzip();
    let coo = Coo::new(n_nodes, n_nodes, destinations, sources, None).map_err(|e| e.at(&origin))?;
    let graph = to_graph(&coo, options, Duplicates::Merge, notes).map_err(|e| e.at(&origin))?;
    Ok(without_loops(&graph, notes))
}

fn splits(npz: &mut Npz, n_nodes: usize) -> Result<Vec<Split>, DatasetError> {
    let train = masks(npz.array("train_masks")?, n_nodes)?;
    let val = masks(npz.array("val_masks")?, n_nodes)?;
    let test = masks(npz.array("test_masks")?, n_nodes)?;
    if train.len() != val.len() || train.len() != test.len() {
        return Err(DatasetError::invalid(format!(
            "{} train masks, {} val masks and {} test masks; each split needs one of each",
            train.len(),
            val.len(),
            test.len()
        ))
        .at(npz.origin()));
    }
    let parts = train.into_iter().zip(val).zip(test);
    Ok(parts.map(|((train, val), test)| Split { train, val, test }).collect())
}

/// Nodes of every mask, one mask per row.
fn masks(array: Array, n_nodes: usize) -> Result<Vec<Vec<NodeId>>, DatasetError> {
    let origin = array.origin().to_owned();
    let (_, width) = array.expect_2d()?;
    if width != n_nodes {
        return Err(DatasetError::invalid(format!("split masks of {width} nodes; the graph has {n_nodes}")).at(&origin));
    }
    let chosen = array.into_bools()?;
    let nodes = |mask: &[bool]| (0..n_nodes).filter(|&v| mask[v]).map(|v| v as NodeId).collect();
    Ok(chosen.chunks_exact(n_nodes.max(1)).map(nodes).collect())
}
