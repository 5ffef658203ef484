//! Ids grouped by the rows that they name, for `cuda/rows.cu`.

use girih_compute::ComputeError;

use crate::cuda::Cuda;
use crate::matrix::{CudaIds, Groups};

impl Cuda {
    /// Positions grouped by equal ids, computed on first use.
    pub(super) fn groups<'a>(&self, operation: &'static str, ids: &'a CudaIds) -> Result<&'a Groups, ComputeError> {
        let known = &ids.derived.groups;
        if known.get().is_none() {
            let (starts, positions) = grouped(&self.ids_on_host(operation, ids)?);
            let upload = |list: &[u64]| self.upload_list(operation, list);
            let groups = Groups { n: starts.len() - 1, starts: upload(&starts)?, positions: upload(&positions)? };
            let _ = known.set(groups);
        }
        Ok(known.get().expect("just set"))
    }
}

/// Starts and positions of [`Groups`].
fn grouped(ids: &[u32]) -> (Vec<u64>, Vec<u64>) {
    // Pairs are distinct, so the faster unstable sort yields a unique order.
    let mut pairs: Vec<(u32, u64)> = ids.iter().enumerate().map(|(position, &id)| (id, position as u64)).collect();
    pairs.sort_unstable();
    let mut starts = vec![0];
    let mut end = 0;
    for same in pairs.chunk_by(|a, b| a.0 == b.0) {
        end += same.len() as u64;
        starts.push(end);
    }
    (starts, pairs.into_iter().map(|(_, position)| position).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ids_keep_their_order() {
        let (starts, positions) = grouped(&[5, 0, 5, 2, 0, 5]);
        assert_eq!(starts, [0, 2, 3, 6]);
        assert_eq!(positions, [1, 4, 3, 0, 2, 5]);
    }
}
