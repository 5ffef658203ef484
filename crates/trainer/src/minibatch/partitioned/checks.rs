//! Refusal of data that does not work with patches.

use crate::TrainError;

/// Refuses data that cannot be partitioned into patches.
///
/// # Errors
/// When features are sparse.
pub(crate) fn check_patches_of(has_sparse_features: bool) -> Result<(), TrainError> {
    if has_sparse_features {
        return Err(TrainError::invalid(
            "the features are sparse, and ranks exchange dense or compressed rows only: give --codec topk:8, or --layout \
             replicated",
        ));
    }
    Ok(())
}
