//! The `.npz` files of the heterophilous graphs (Platonov et al., "A critical look at the evaluation of GNNs under
//! heterophily", ICLR 2023), such as Tolokers.
//!
//! ```text
//! node_features  n × width        edges                                m × 2, every pair once
//! node_labels    n                train_masks  val_masks  test_masks   splits × n, true where a node takes part
//! ```

use girih_graph_format::file::{Array, Npz};
use girih_graph_format::{Coo, Csr, Duplicates, NodeId};

use crate::{Dataset, DatasetError, Features, LoadOptions, Split, arrays};

/// Loads an open archive with the split sets that it ships.
///
/// # Errors
/// When members are missing, damaged or contradict each other.
pub(crate) fn load(npz: &mut Npz, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let origin = npz.origin().to_owned();
    let features = npz.array("node_features")?.into_matrix()?;
    let n_nodes = features.n_rows();
    let features = options.feature_norm.unwrap_or_default().apply(Features::Dense(features));
    let features = features.map_err(|e| e.at(&origin))?;
    let graph = adjacency(npz.array("edges")?, n_nodes)?;
    let graph = if options.symmetrize.unwrap_or(true) { graph.symmetrized() } else { graph };
    let labels = arrays::labels(npz.array("node_labels")?)?;
    let splits = splits(npz, n_nodes)?;
    Dataset::new(name, graph, Some(features), Some(labels), splits).map_err(|e| e.at(&origin))
}

/// Whether an archive has the members of this format.
pub(crate) fn recognizes(npz: &Npz) -> bool {
    npz.contains("node_features") && npz.contains("edges")
}

fn adjacency(edges: Array, n_nodes: usize) -> Result<Csr, DatasetError> {
    let origin = edges.origin().to_owned();
    let (_, n_ends) = edges.expect_2d()?;
    if n_ends != 2 {
        return Err(DatasetError::invalid(format!("edges with {n_ends} ends; two are expected")).at(&origin));
    }
    let ends = edges.into_ids()?;
    let (pairs, _) = ends.as_chunks::<2>();
    let (sources, destinations): (Vec<NodeId>, Vec<NodeId>) = pairs.iter().map(|&[u, v]| (u, v)).unzip();
    let coo = Coo::new(n_nodes, n_nodes, destinations, sources, None).map_err(|e| e.at(&origin))?;
    Ok(coo.to_csr(Duplicates::Merge)?.without_self_loops())
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

/// The nodes of every mask, one mask a row.
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
