//! The `.npz` files of gnn-benchmark (Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018), and those of
//! Nettack in the same form.
//!
//! ```text
//! adj_data  adj_indices  adj_indptr  adj_shape      adjacency, CSR; directed as shipped
//! attr_data attr_indices attr_indptr attr_shape     features, CSR; or one dense array `attr_matrix`; may be missing
//! labels                                            one integer per node
//! ```
//! Other members, such as `class_names` (pickled objects), are never read, and the notes name them. As in `PyG`,
//! weights and self loops are dropped, edges are stored in both directions, features become zeros and ones, and all
//! nodes stay. The paper keeps the largest connected component only (section 3). So splits are drawn from its nodes,
//! and the others are neither trained on nor tested.

use girih_graph_format::file::{Npz, sparse_from_npz};
use girih_graph_format::{Csr, Duplicates, NodeId, Notes};

use crate::edges::{directed_as, refuse_duplicates_option, without_loops};
use crate::inventory::Inventory;
use crate::splits::drawn_by;
use crate::{
    Components, Dataset, DatasetError, FeatureNorm, Features, Labels, LoadOptions, SplitRule, UNLABELLED, labels,
};

/// Loads an open archive. Splits are drawn by [`SplitRule::GNN_BENCHMARK`]; none are drawn where a class is too
/// small.
///
/// # Errors
/// When members are missing, damaged or contradict each other.
pub(crate) fn load(npz: &mut Npz, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let origin = npz.origin().to_owned();
    read(npz, name, options).map_err(|e| e.at(&origin))
}

fn read(npz: &mut Npz, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    refuse_duplicates_option(options, "gnn-benchmark archives have edges without weights, each once")?;
    let mut notes = Notes::default();
    let graph = adjacency(npz, options, &mut notes)?;
    let norm = options.feature_norm.unwrap_or(FeatureNorm::RootLength);
    let features = features(npz)?.map(|features| norm.apply(features)).transpose()?;
    let labels = labels::as_published(npz.array("labels")?)?;
    Inventory::note_others(npz.members().iter().cloned(), is_used, &mut notes);
    let eligible = labels_of_largest_component(&graph, &labels);
    let splits = drawn_by(SplitRule::GNN_BENCHMARK, &eligible, options, &mut notes);
    Ok(Dataset { notes, feature_norm: norm, ..Dataset::new(name, graph, features, Some(labels), splits)? })
}

fn is_used(member: &str) -> bool {
    let array = member.strip_suffix(".npy").unwrap_or_default();
    let is_part = |part: &str| matches!(part, "data" | "indices" | "indptr" | "shape" | "matrix");
    array == "labels" || array.strip_prefix("adj_").or_else(|| array.strip_prefix("attr_")).is_some_and(is_part)
}

/// Labels of the nodes that splits are drawn from; the others count as unlabelled.
fn labels_of_largest_component(graph: &Csr, labels: &Labels) -> Labels {
    let Labels::Single { n_classes, classes } = labels else { return labels.clone() };
    if classes.len() != graph.n_rows() {
        return labels.clone();
    }
    let components = Components::of(graph);
    let keep = |(v, &class): (usize, &u32)| if components.in_largest(v as NodeId) { class } else { UNLABELLED };
    Labels::Single { n_classes: *n_classes, classes: classes.iter().enumerate().map(keep).collect() }
}

/// Whether an archive has the members of this format.
pub(crate) fn recognizes(npz: &Npz) -> bool {
    npz.contains("adj_indptr") && npz.contains("labels")
}

fn adjacency(npz: &mut Npz, options: &LoadOptions, notes: &mut Notes) -> Result<Csr, DatasetError> {
    let stored = sparse_from_npz(npz, "adj_", Duplicates::Merge)?.0;
    if !stored.is_square() {
        return Err(DatasetError::invalid(format!("an adjacency of {} × {}", stored.n_rows(), stored.n_cols())));
    }
    if stored.values().is_some() {
        notes.leave_out("adj_data", "weights, which the published loaders drop");
    }
    let graph = without_loops(&stored.with_values(None)?, notes);
    Ok(directed_as(graph, options, true, notes))
}

fn features(npz: &mut Npz) -> Result<Option<Features>, DatasetError> {
    if let Some(array) = npz.try_array("attr_matrix")? {
        return Ok(Some(Features::Dense(array.into_matrix()?)));
    }
    if !npz.contains("attr_indptr") {
        return Ok(None);
    }
    let stored = sparse_from_npz(npz, "attr_", Duplicates::Sum)?.0;
    let is_bag_of_words = stored.values().is_none_or(|values| values.iter().all(|&v| v > 0.0));
    let features = if is_bag_of_words { stored.with_values(None)? } else { stored };
    Ok(Some(Features::Sparse(features)))
}
