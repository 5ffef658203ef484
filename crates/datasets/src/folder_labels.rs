//! Labels in girih's own folder.

use girih_graph_format::Matrix;
use girih_graph_format::file::{Array, FolderWriter};
use serde::{Deserialize, Serialize};

use crate::{DatasetError, Labels, UNLABELLED};

/// Kind of labels in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LabelKind {
    None,
    Single,
    Multi,
}

impl LabelKind {
    /// Kind of some labels.
    pub(crate) fn of(labels: Option<&Labels>) -> Self {
        match labels {
            None => Self::None,
            Some(Labels::Single { .. }) => Self::Single,
            Some(Labels::Multi { .. }) => Self::Multi,
        }
    }
}

/// Writes labels as the array of a name.
pub(crate) fn label_array(folder: &mut FolderWriter, name: &str, labels: &Labels) -> Result<(), DatasetError> {
    match labels {
        Labels::Single { classes, .. } => {
            let signed: Vec<i32> = classes.iter().map(|&c| if c == UNLABELLED { -1 } else { c as i32 }).collect();
            folder.array(name, &[signed.len()], &signed)?;
        }
        Labels::Multi { n_classes, targets } => {
            let bits: Vec<u8> = targets.data().iter().map(|&t| u8::from(t != 0.0)).collect();
            folder.array(name, &[targets.n_rows(), *n_classes], &bits)?;
        }
    }
    Ok(())
}

/// Converts an array to labels of a kind.
pub(crate) fn labels_of_kind(array: Array, kind: LabelKind, n_classes: usize) -> Result<Labels, DatasetError> {
    if kind == LabelKind::Multi {
        let targets: Matrix = array.into_matrix()?;
        return Ok(Labels::Multi { n_classes, targets });
    }
    let classes = array.into_i64()?.iter().map(|&c| u32::try_from(c).unwrap_or(UNLABELLED)).collect();
    Ok(Labels::Single { n_classes, classes })
}
