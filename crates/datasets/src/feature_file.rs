//! Files of features: a store of codes, which is mapped, and a matrix, which is mapped or encoded.

use std::path::Path;

use girih_compress::CompressedFeatures;
use girih_graph_format::file::{Array, NpyRows, Verify};
use girih_machine::memory::Free;

use crate::memory::check_widened;
use crate::{DatasetError, Features, LoadOptions};

/// File of compressed features in a folder of data; they replace the other features of the folder.
pub const FEATURE_STORE: &str = "features.codes";

/// Maps the compressed features at a path, for a graph of `n_nodes` nodes.
pub(crate) fn open_store(path: &Path, n_nodes: usize, verify: Verify) -> Result<Features, DatasetError> {
    let features = CompressedFeatures::open(path, verify)?;
    features.check_nodes(n_nodes).map_err(|e| e.at(path))?;
    Ok(Features::Compressed(features))
}

/// Opens the matrix of features at a path: mapped, or encoded row by row if the options name a codec.
pub(crate) fn open_matrix(path: &Path, options: &LoadOptions) -> Result<Features, DatasetError> {
    let Some(codec) = options.codec else {
        let array = Array::map(path)?;
        check_widened(array.values(), Free::now()).map_err(|e| e.at(path))?;
        return Ok(Features::Dense(array.into_matrix()?));
    };
    let rows = NpyRows::open(path)?;
    let features = CompressedFeatures::fitted(codec, &rows, options.seed).map_err(|e| e.at(path))?;
    Ok(Features::Compressed(features))
}
