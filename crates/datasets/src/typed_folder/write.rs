//! Writing typed data to a folder.

use girih_graph_format::file::FolderWriter;
use girih_graph_format::{Csr, FormatError};

use super::names::to_lines;
use super::section::{EDGE_TYPES, NODE_TYPES, SECTION, Sections};
use crate::folder_arrays::split_array;
use crate::folder_labels::label_array;
use crate::{Dataset, DatasetError, Features, TypedData};

/// Adds the arrays and sections of typed data to a folder.
///
/// # Errors
/// When writing fails.
pub(crate) fn write(folder: &mut FolderWriter, dataset: &Dataset, typed: &TypedData) -> Result<(), DatasetError> {
    for (number, relation) in typed.graph.relations().iter().enumerate() {
        write_csr(folder, &format!("e{number}_"), relation)?;
    }
    let types = typed.graph.schema().node_types();
    for number in 0..types.len() {
        if let Some(features) = dataset.features_of_type(number) {
            write_features(folder, number, features)?;
        }
    }
    let (target, ids) = (typed.target, typed.target_ids());
    if let Some(labels) = &dataset.labels {
        label_array(folder, &format!("n{target}_labels"), &labels.row_slice(ids.clone()))?;
    }
    for (i, split) in dataset.splits.iter().enumerate() {
        for (part, nodes) in split.row_slice(ids.clone()).parts() {
            folder.array(&format!("n{target}_{}", split_array(i, part)), &[nodes.len()], nodes)?;
        }
    }
    let names = (0..types.len()).map(|number| write_names(folder, dataset, typed, number));
    let names = names.collect::<Result<Vec<_>, FormatError>>()?;
    let sections = Sections::of(dataset, typed, &names);
    folder.section(SECTION, &sections.typed)?;
    folder.section(NODE_TYPES, &sections.nodes)?;
    Ok(folder.section(EDGE_TYPES, &sections.edges)?)
}

/// Writes offsets, columns and values of a matrix; offsets and columns are signed, as `NumPy` indexes with them.
fn write_csr(folder: &mut FolderWriter, prefix: &str, csr: &Csr) -> Result<(), FormatError> {
    let indptr: &[i64] = bytemuck::cast_slice(csr.indptr());
    folder.array(&format!("{prefix}indptr"), &[indptr.len()], indptr)?;
    folder.array::<i32>(&format!("{prefix}indices"), &[csr.nnz()], bytemuck::cast_slice(csr.indices()))?;
    match csr.values() {
        Some(values) => folder.array(&format!("{prefix}values"), &[csr.nnz()], values),
        None => Ok(()),
    }
}

fn write_features(folder: &mut FolderWriter, number: usize, features: &Features) -> Result<(), DatasetError> {
    let name = format!("n{number}_features");
    match features {
        Features::Dense(matrix) => folder.array(&name, &[matrix.n_rows(), matrix.n_cols()], matrix.data())?,
        // A store has its own checksums, and is not an array.
        Features::Compressed(features) => features.save(&folder.path_of(&format!("{name}.codes")))?,
        Features::Sparse(csr) => write_csr(folder, &format!("{name}_"), csr)?,
    }
    Ok(())
}

/// Writes the names of a type's nodes, if nodes have names; returns the checksum of the file.
fn write_names(
    folder: &FolderWriter,
    dataset: &Dataset,
    typed: &TypedData,
    number: usize,
) -> Result<Option<u32>, FormatError> {
    let Some(names) = &dataset.names else { return Ok(None) };
    let schema = typed.graph.schema();
    let (first, n_nodes) = (schema.first(number), schema.node_types()[number].n_nodes);
    let text = to_lines((first..first + n_nodes).map(|node| names.nodes.get(node)));
    folder.text(&format!("n{number}_names.txt"), &text)?;
    Ok(Some(crc32fast::hash(text.as_bytes())))
}
