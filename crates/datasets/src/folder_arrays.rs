//! Arrays that plain and typed folders share: features, splits, and the notes of what is not read.

use girih_graph_format::file::Folder;
use girih_graph_format::{Csr, NodeId, Notes};

use crate::feature_file::open_matrix;
use crate::inventory::{Inventory, reason};
use crate::{DatasetError, Features, LoadOptions, Split};

/// Parts of a split, as their arrays are named.
pub(crate) const PARTS: [&str; 3] = ["train", "val", "test"];

/// Name of the array that holds a part of a split.
pub(crate) fn split_array(i: usize, part: &str) -> String {
    format!("split{i}_{part}")
}

/// Dense features of an array. The options say whether its values are checked.
pub(crate) fn read_dense(folder: &Folder, name: &str, options: &LoadOptions) -> Result<Features, DatasetError> {
    if folder.contains(name) {
        return open_matrix(&folder.file_of(name), options);
    }
    Ok(Features::Dense(folder.array(name)?.into_matrix()?))
}

/// Sparse features of the arrays `name_indptr`, `name_indices` and, if it exists, `name_values`.
pub(crate) fn read_sparse(
    folder: &Folder,
    name: &str,
    (n_rows, n_cols): (usize, usize),
) -> Result<Features, DatasetError> {
    let indptr = folder.array(&format!("{name}_indptr"))?.into_offsets()?;
    let indices = folder.array(&format!("{name}_indices"))?.into_ids()?;
    let values = folder.try_array(&format!("{name}_values"))?.map(|array| array.into_f32()).transpose()?;
    Ok(Features::Sparse(Csr::new(n_rows, n_cols, indptr, indices, values)?))
}

/// Splits of the arrays `{prefix}split0_train`, `{prefix}split0_val` and so on.
pub(crate) fn read_splits(folder: &Folder, prefix: &str, n_splits: usize) -> Result<Vec<Split>, DatasetError> {
    let part = |i: usize, part: &str| -> Result<Vec<NodeId>, DatasetError> {
        Ok(folder.array(&format!("{prefix}{}", split_array(i, part)))?.into_ids()?.into_vec())
    };
    let split = |i| Ok(Split { train: part(i, PARTS[0])?, val: part(i, PARTS[1])?, test: part(i, PARTS[2])? });
    (0..n_splits).map(split).collect()
}

/// Whether an array, named without a prefix, is a part of one of the splits.
pub(crate) fn is_split_array(name: &str, n_splits: usize) -> bool {
    let Some((i, part)) = name.strip_prefix("split").and_then(|rest| rest.split_once('_')) else { return false };
    PARTS.contains(&part) && i.parse::<usize>().is_ok_and(|i| i < n_splits)
}

/// Notes the files of a folder that are left, and the sections of its manifest that are not known.
pub(crate) fn note_unread(folder: &Folder, files: &Inventory, known_sections: &[&str], notes: &mut Notes) {
    for file in files.left() {
        let listed = file.strip_suffix(".npy").is_some_and(|name| folder.contains(name));
        let why = if listed { "no section of girih.toml names it" } else { reason(file) };
        notes.leave_out(file, if why.is_empty() { "girih.toml does not list it" } else { why });
    }
    for section in folder.section_names().filter(|name| !known_sections.contains(name)) {
        notes.leave_out(format!("girih.toml: [{section}]"), "unknown section");
    }
}
