//! `cuda/rows.cu`: gathers and scatters of rows by id.

use cudarc::driver::{LaunchConfig, PushKernelArg};
use girih_compute::{ComputeError, Shape};

use super::passes::columns_of;
use crate::abi::{GatherIndex, RowSource, UNITS_OF_THREAD};
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::threads_for;
use crate::features::RowLaunch;
use crate::matrix::{CudaIds, CudaMatrix, Groups};

impl Cuda {
    /// [`DenseOps::gather_rows`](girih_compute::DenseOps::gather_rows).
    pub(crate) fn run_gather_rows(
        &self,
        x: &CudaMatrix,
        ids: &CudaIds,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if out.shape.is_empty() {
            return Ok(());
        }
        if x.dtype == out.dtype {
            let row_bytes = (x.pitch() * x.dtype.n_bytes()) as u64;
            let rows = RowSource::at(self.pointer(Some(&x.data)), row_bytes);
            let units = (out.len() * out.dtype.n_bytes()).div_ceil(16 * UNITS_OF_THREAD);
            let LaunchConfig { grid_dim: (blocks, ..), block_dim: (threads, ..), .. } = threads_for(units);
            let launch = RowLaunch::copying(self, "gather_rows", x.dtype)?;
            let (names, to) = (GatherIndex::of(self.pointer(Some(&ids.ids))), self.pointer(Some(&out.data)));
            let (stream, n) = (&self.device.stream, out.shape.rows as u64);
            // SAFETY: there is an id for each row of `out`, each names a row of `x`, and both are stored alike.
            let launched = unsafe { launch.put(stream, (blocks, threads), rows, names, (to, n)) };
            return launched.map_err(Self::failed("gather_rows"));
        }
        let kernel = self.kernel("gather_rows", Source::ROWS, "gather_rows", &[("X", x.dtype), ("Y", out.dtype)])?;
        let (rows, cols) = (out.shape.rows as u64, out.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&ids.ids).arg(&mut out.data).arg(&rows).arg(&cols);
        // SAFETY: there is an id for each row of `out`, each names a row of `x`, both have `cols` columns, and the
        // types are those that the kernel was compiled for.
        unsafe { launch.launch(columns_of(out.shape)) }.map_err(Self::failed("gather_rows"))?;
        Ok(())
    }

    /// [`DenseOps::scatter_add_rows`](girih_compute::DenseOps::scatter_add_rows).
    pub(crate) fn run_scatter_add_rows(
        &self,
        x: &CudaMatrix,
        ids: &CudaIds,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "scatter_add_rows";
        if x.shape.is_empty() {
            return Ok(());
        }
        let groups = self.groups(OPERATION, ids)?;
        let kernel = self.kernel(OPERATION, Source::ROWS, OPERATION, &[("X", x.dtype), ("Y", out.dtype)])?;
        let (rows, cols) = (groups.n as u64, x.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&ids.ids).arg(&groups.starts).arg(&groups.positions);
        launch.arg(&mut out.data).arg(&rows).arg(&cols);
        // SAFETY: `starts` cuts `positions`, which are rows of `x` and ids, into groups that are not empty; ids are
        // rows of `out`, each of one group only; both matrices have `cols` columns and the types that the kernel was
        // compiled for.
        unsafe { launch.launch(columns_of(Shape::new(groups.n, x.shape.cols))) }.map_err(Self::failed(OPERATION))?;
        Ok(())
    }

    /// Positions grouped by equal ids, computed on first use.
    fn groups<'a>(&self, operation: &'static str, ids: &'a CudaIds) -> Result<&'a Groups, ComputeError> {
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
