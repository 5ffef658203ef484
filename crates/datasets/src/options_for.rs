//! Options that have no meaning for a format: they are refused by name.

use crate::file_kind::FileKind;
use crate::recognize::Format;
use crate::{DatasetError, LoadOptions};

/// Refuses options of files that generated data does not read.
pub(crate) fn refuse_for_generated(options: &LoadOptions) -> Result<(), DatasetError> {
    let has_labels = options.labels.is_some();
    let given = [
        (options.columns.is_some(), "--columns is for edge lists and triples"),
        (options.bipartite.is_some(), "--bipartite is for edge lists"),
        (options.ids_from.is_some(), "--ids-from is for edge lists"),
        (options.labels_from.is_some() && !has_labels, "--labels-from is for labels of files"),
        (options.multi_label.is_some() && !has_labels, "--multi-label is for labels of files"),
    ];
    match given.into_iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, what)) => Err(DatasetError::invalid(format!("{what}, and this data is generated; leave it out"))),
    }
}

/// Refuses options of edge lists for other formats.
pub(crate) fn refuse_list_options(format: Format, options: &LoadOptions) -> Result<(), DatasetError> {
    if format == Format::File(FileKind::EdgeList) {
        return Ok(());
    }
    let has_edge_features = format == Format::MovieLens;
    let given = [
        (!options.edge_features.is_empty() && !has_edge_features, "--edge-features"),
        (options.columns.is_some() && format != Format::Triples, "--columns"),
        (options.bipartite.is_some(), "--bipartite"),
        (options.ids_from.is_some(), "--ids-from"),
    ];
    match given.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, "--ids-from")) if format == Format::MovieLens => Err(DatasetError::invalid(
            "--ids-from is for edge lists; ids of MovieLens always count from 1, on each side; leave it out",
        )),
        None => Ok(()),
        Some((_, flag)) => {
            Err(DatasetError::invalid(format!("{flag} is for edge lists, and this is none; leave it out")))
        }
    }
}

/// Flags of typed data that have a meaning for a format. `None` where its contents decide.
pub(crate) fn typed_flags(format: Format) -> Option<&'static [&'static str]> {
    match format {
        Format::RdfFolder | Format::File(FileKind::NTriples) => Some(&RDF_FLAGS),
        Format::IdPairs => Some(&["--reverse", "--target", "--type-names"]),
        Format::Triples => Some(&["--reverse"]),
        Format::OgbTyped | Format::Mag240m | Format::Igb => Some(&["--reverse", "--target"]),
        Format::Girih | Format::ArrayFolder | Format::File(FileKind::Npz | FileKind::Zip | FileKind::Tensors) => None,
        _ => Some(&[]),
    }
}

/// Flags of typed data for N-Triples.
const RDF_FLAGS: [&str; 8] =
    ["--literals", "--node-types", "--reverse", "--train", "--val", "--test", "--label-columns", "--val-share"];
