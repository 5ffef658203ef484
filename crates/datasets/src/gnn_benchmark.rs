//! The `.npz` files of gnn-benchmark (Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018).
//!
//! ```text
//! adj_data  adj_indices  adj_indptr  adj_shape      adjacency, CSR; directed as shipped
//! attr_data attr_indices attr_indptr attr_shape     features, CSR; or one dense array `attr_matrix`
//! labels                                            one integer per node
//! ```
//! Other members, such as `class_names` (pickled objects), are never read. As `PyG` does: weights and self loops are
//! dropped, edges are stored in both directions, features become zeros and ones, and all nodes stay. The paper keeps
//! the largest connected component only (section 3); so splits are drawn from its nodes, and the others are neither
//! trained on nor tested.

use girih_graph_format::file::{Npz, sparse_from_npz};
use girih_graph_format::{Csr, NodeId};

use crate::{
    Components, Dataset, DatasetError, FeatureNorm, Features, Labels, LoadOptions, SplitRule, UNLABELLED, arrays,
};

/// Loads an open archive; splits are drawn by [`SplitRule::GNN_BENCHMARK`].
///
/// # Errors
/// When members are missing, damaged or contradict each other, or a class has too few nodes for the split.
pub(crate) fn load(npz: &mut Npz, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let origin = npz.origin().to_owned();
    let graph = adjacency(npz, options.symmetrize.unwrap_or(true))?;
    let norm = options.feature_norm.unwrap_or(FeatureNorm::RootLength);
    let features = norm.apply(features(npz)?).map_err(|e| e.at(&origin))?;
    let labels = arrays::labels(npz.array("labels")?)?;
    let eligible = labels_of_largest_component(&graph, &labels);
    let splits = SplitRule::GNN_BENCHMARK.draw_many(&eligible, options.seed, options.n_drawn());
    let dataset = splits.and_then(|splits| Dataset::new(name, graph, Some(features), Some(labels), splits));
    dataset.map_err(|e| e.at(&origin))
}

/// The labels of the nodes that splits are drawn from; the others count as unlabelled.
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

fn adjacency(npz: &mut Npz, symmetrize: bool) -> Result<Csr, DatasetError> {
    let graph = sparse_from_npz(npz, "adj_")?.with_values(None)?.without_self_loops();
    if !graph.is_square() {
        return Err(
            DatasetError::invalid(format!("an adjacency of {} × {}", graph.n_rows(), graph.n_cols())).at(npz.origin())
        );
    }
    Ok(if symmetrize { graph.symmetrized() } else { graph })
}

fn features(npz: &mut Npz) -> Result<Features, DatasetError> {
    if let Some(array) = npz.try_array("attr_matrix")? {
        return Ok(Features::Dense(array.into_matrix()?));
    }
    let stored = sparse_from_npz(npz, "attr_")?;
    let is_bag_of_words = stored.values().is_none_or(|values| values.iter().all(|&v| v > 0.0));
    let features = if is_bag_of_words { stored.with_values(None)? } else { stored };
    Ok(Features::Sparse(features))
}
