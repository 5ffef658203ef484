//! Rules and hash of the features of edges.

use girih_graph_format::{EdgeFeatures, TimedRows};

use crate::DatasetError;

/// Checks that each timed edge has a row.
///
/// # Errors
/// When there are no timed edges, or more or fewer than rows.
pub(super) fn check(features: Option<&EdgeFeatures>, timed: Option<&TimedRows>) -> Result<(), DatasetError> {
    let Some(features) = features else { return Ok(()) };
    let Some(timed) = timed else {
        return Err(DatasetError::invalid("features of edges belong to edges with times, and this data has none"));
    };
    let (n_rows, n_edges) = (features.n_edges(), timed.n_edges());
    if n_rows != n_edges {
        return Err(DatasetError::invalid(format!(
            "{n_rows} rows of features for {n_edges} edges with times; each edge needs one row"
        )));
    }
    Ok(())
}

/// Adds names and values to a hash, and the edge of each entry of the rows.
pub(super) fn add_to(features: &EdgeFeatures, timed: Option<&TimedRows>, hash: &mut crc32fast::Hasher) {
    for name in features.names() {
        hash.update(name.as_bytes());
        hash.update(&[0]);
    }
    hash.update(bytemuck::cast_slice(features.values()));
    for v in 0..timed.map_or(0, TimedRows::n_nodes) {
        hash.update(bytemuck::cast_slice(timed.map_or(&[][..], |timed| timed.row(v).edges)));
    }
}
