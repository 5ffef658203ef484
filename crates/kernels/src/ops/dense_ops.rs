//! Operations on dense matrices, by cuBLAS and cuBLASLt (`gemm`), `cuda/passes.cu` and `cuda/rows.cu`.

use cudarc::driver::{LaunchConfig, PushKernelArg};
use girih_compute::{
    Activation, ActivationGrad, ComputeError, DenseOps, Dropout, Epilogue, EpilogueGrad, Fits, Function, Shape,
    Transpose,
};

use super::gemm::{Dense, has_long_rows};
use super::passes::{Strided, columns_of, fours_for, number};
use super::sparse::Direction;
use super::transpose::RowsOnDevice;
use crate::abi::{GELU, GELU_CUBE, GELU_SCALE, GatherIndex, RowSource, SIGMOID, UNITS_OF_THREAD};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::threads_for;
use crate::features::RowLaunch;
use crate::matrix::{CudaCsr, CudaIds, CudaMatrix, Groups};

const _: () = assert!(GELU_SCALE == Function::GELU_SCALE && GELU_CUBE == Function::GELU_CUBE);

impl DenseOps for Cuda {
    fn run_gemm(
        &self,
        _: Fits,
        (a, ta): (&CudaMatrix, Transpose),
        dropout: Option<Dropout>,
        (b, tb): (&CudaMatrix, Transpose),
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let depth = if ta == Transpose::No { a.shape.cols } else { a.shape.rows };
        if out.shape.is_empty() {
            return Ok(());
        }
        if depth == 0 {
            self.finish(None, &epilogue, epilogue.accumulate, out)?;
            return self.masked_result(epilogue.dropout, out);
        }
        let common = if a.dtype == b.dtype { a.dtype } else { self.precision };
        // Masks only zero elements. The product is scaled instead, so that kept bf16 elements are not rounded.
        let alpha = dropout.map_or(1.0, Dropout::scale);
        let (a, b) = (self.converted(a, dropout, common)?, self.converted(b, None, common)?);
        let dense = Dense { shape: out.shape, depth, transposes: (ta, tb), alpha, beta: 0.0 };
        self.multiply(dense, (a.get(), b.get()), &epilogue, out)
    }

    fn run_gemm_pair(
        &self,
        _: Fits,
        (x, w): (&CudaMatrix, &CudaMatrix),
        (y, v): (&CudaMatrix, &CudaMatrix),
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const NO: Transpose = Transpose::No;
        if has_long_rows(out.shape) {
            let alike = [w, y, v].iter().all(|matrix| matrix.dtype == x.dtype);
            let common = if alike { x.dtype } else { self.precision };
            let (x, w) = (self.converted(x, None, common)?, self.converted(w, None, common)?);
            let (y, v) = (self.converted(y, None, common)?, self.converted(v, None, common)?);
            let dense =
                Dense { shape: out.shape, depth: x.get().shape.cols, transposes: (NO, NO), alpha: 1.0, beta: 0.0 };
            if self.multiply_long_pair(dense, [(x.get(), w.get()), (y.get(), v.get())], &epilogue, out)? {
                return Ok(());
            }
        }
        let before = Epilogue { accumulate: epilogue.accumulate, ..Epilogue::default() };
        self.gemm((x, NO), None, (w, NO), before, out)?;
        self.gemm((y, NO), None, (v, NO), Epilogue { accumulate: true, ..epilogue }, out)
    }

    fn run_gemm_backward(
        &self,
        _: Fits,
        (a, ta): (&CudaMatrix, Transpose),
        (b, tb): (&CudaMatrix, Transpose),
        EpilogueGrad { slope, y, first, factors }: EpilogueGrad<'_, CudaMatrix>,
        out: &mut CudaMatrix,
        mut bias_grad: Option<&mut CudaMatrix>,
    ) -> Result<(), ComputeError> {
        let (dense, of_a, of_b) = self.plain_operands((a, ta), (b, tb), out.shape)?;
        let (operands, epilogue_grad) = ((of_a.get(), of_b.get()), EpilogueGrad { slope, y, first, factors });
        if self.multiply_long_backward(dense, operands, epilogue_grad, out, bias_grad.as_deref_mut())? {
            return Ok(());
        }
        self.gemm((a, ta), None, (b, tb), Epilogue::default(), out)?;
        if out.shape == y.shape {
            self.epilogue_backward(slope, y, out, bias_grad)?;
        } else {
            let mut some = self.uninitialized(out.shape, y.dtype)?;
            self.copy_block(out.shape, y, (0, first), &mut some, (0, 0))?;
            self.epilogue_backward(slope, &some, out, bias_grad)?;
        }
        factors.map_or(Ok(()), |factors| self.scale_rows_in_place(factors, out))
    }

    fn run_gemm_scaled(
        &self,
        _: Fits,
        factors: &CudaMatrix,
        (a, ta): (&CudaMatrix, Transpose),
        (b, tb): (&CudaMatrix, Transpose),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (dense, of_a, of_b) = self.plain_operands((a, ta), (b, tb), out.shape)?;
        if self.multiply_long_scaled(dense, (of_a.get(), of_b.get()), factors, out)? {
            return Ok(());
        }
        self.gemm((a, ta), None, (b, tb), Epilogue::default(), out)?;
        self.scale_rows_in_place(factors, out)
    }

    fn run_epilogue_backward(
        &self,
        _: Fits,
        slope: ActivationGrad,
        y: &CudaMatrix,
        grad: &mut CudaMatrix,
        bias_grad: Option<&mut CudaMatrix>,
    ) -> Result<(), ComputeError> {
        match (slope.activation, bias_grad) {
            (Activation::Identity, None) => Ok(()),
            (Activation::Identity, Some(bias_grad)) => self.column_sums(grad, bias_grad),
            (_, None) => self.activation_backward(slope, y, grad),
            (_, Some(bias_grad)) => self.activation_backward_sums(slope, y, grad, bias_grad),
        }
    }

    fn run_dropout(&self, _: Fits, x: &CudaMatrix, dropout: Dropout, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.masked(x, self.mask(dropout, x.shape.cols)?, out)
    }

    fn dropout_in_place(&self, dropout: Dropout, x: &mut CudaMatrix) -> Result<(), ComputeError> {
        let mask = self.mask(dropout, x.shape.cols)?;
        // SAFETY: `x` is ours to write, and one thread reads and then writes each element.
        unsafe { self.mask_elements("dropout_in_place", x, mask, x) }
    }

    fn run_convert(&self, _: Fits, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.pass("convert", "convert", x, None, out)
    }

    fn run_add_scaled(&self, _: Fits, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.pass("add_scaled", "add_scaled", x, Some(factor), out)
    }

    fn run_gather_rows(
        &self,
        _: Fits,
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
        unsafe { launch.launch(columns_of(out.shape)) }.map(drop).map_err(Self::failed("gather_rows"))
    }

    fn run_scatter_add_rows(
        &self,
        _: Fits,
        x: &CudaMatrix,
        ids: &CudaIds,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "scatter_add_rows";
        if x.shape.is_empty() {
            return Ok(());
        }
        if out.shape.rows <= ROWS_OF_AN_ID * ids.range.len {
            let positions = self.positions_of_rows(OPERATION, ids, out.shape.rows)?;
            if positions.shape.rows == out.shape.rows {
                let by_row = Direction::of_pattern(positions);
                return self.product(OPERATION, by_row, None, x, &Epilogue::accumulate(), out);
            }
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
        unsafe { launch.launch(columns_of(Shape::new(groups.n, x.shape.cols))) }
            .map(drop)
            .map_err(Self::failed(OPERATION))
    }

    fn run_column_sums(&self, _: Fits, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        const OPERATION: &str = "column_sums";
        let in_fours = x.pitch().is_multiple_of(4);
        let name = if in_fours { "column_sums_of_fours" } else { "column_sums" };
        let kernel = self.kernel(OPERATION, Source::PASSES, name, &[("X", x.dtype), ("Y", x.dtype)])?;
        let launch = |rows: &u64, cols: &u64, partials: &mut Buffer<f32>, config: LaunchConfig| {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&x.data).arg(rows).arg(cols).arg(partials);
            // SAFETY: `x` is rows × cols of the type that the kernel was compiled for, or of vectors of four,
            // aligned, and `out` is as wide; `partials` has space for one sum of each column and block.
            unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(OPERATION))
        };
        if in_fours {
            return self.reduction_in_fours(OPERATION, x.padded(), out, launch);
        }
        self.column_reduction(OPERATION, x.shape, [out], launch)
    }

    fn run_copy_block(
        &self,
        _: Fits,
        shape: Shape,
        x: &CudaMatrix,
        from: (usize, usize),
        out: &mut CudaMatrix,
        to: (usize, usize),
    ) -> Result<(), ComputeError> {
        if shape.is_empty() {
            return Ok(());
        }
        let place = |matrix: &CudaMatrix, (row, col): (usize, usize)| Strided {
            at: self.pointer(Some(&matrix.data)),
            start: (row * matrix.pitch() + col) as u64,
            pitch: matrix.pitch() as u64,
            dtype: matrix.dtype,
        };
        // SAFETY: the block lies inside both matrices, and `out` is ours to write.
        unsafe { self.copy_rows("copy_block", shape, place(x, from), place(out, to)) }
    }

    fn run_activate(
        &self,
        _: Fits,
        activation: Activation,
        bias: Option<&CudaMatrix>,
        x: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if x.shape.is_empty() || (activation, bias.is_none()) == (Activation::Identity, true) {
            return Ok(());
        }
        let activation = number(activation);
        let Some(bias) = bias else {
            let types = [("X", x.dtype), ("Y", x.dtype)];
            let kernel = self.kernel("activate", Source::PASSES, "activate_all", &types)?;
            let (n, config) = (x.len() as u64, fours_for(x));
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&mut x.data).arg(&n).arg(&activation);
            // SAFETY: `x` holds `n` elements of the type that the kernel was compiled for.
            unsafe { launch.launch(config) }.map_err(Self::failed("activate"))?;
            return Ok(());
        };
        let kernel = self.kernel("activate", Source::PASSES, "activate", &[("X", bias.dtype), ("Y", x.dtype)])?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&bias.data).arg(&mut x.data).arg(&rows).arg(&cols).arg(&activation);
        // SAFETY: `x` is rows × cols and `bias` one row of `cols`, of the types that the kernel was compiled for.
        unsafe { launch.launch(columns_of(x.shape)) }.map(drop).map_err(Self::failed("activate"))
    }

    fn run_apply(&self, _: Fits, function: Function, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.apply_kernel("apply", function, x, out)
    }

    fn run_apply_backward(
        &self,
        _: Fits,
        function: Function,
        x: &CudaMatrix,
        grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        self.apply_kernel("apply_backward", function, x, grad)
    }

    fn run_scale(&self, _: Fits, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.pass("scale", "scale", x, Some(factor), out)
    }

    fn run_scale_rows(
        &self,
        _: Fits,
        factors: &CudaMatrix,
        (x, first): (&CudaMatrix, usize),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let from = self.pointer(Some(&x.data)) + (first * x.dtype.n_bytes()) as u64;
        // SAFETY: columns begin and end where rows may, so that as many as lie from row to row of the result lie
        // inside those of `x`; there is a factor for each row, and `out` is ours to write.
        unsafe { self.scale_rows_from("scale_rows", factors, (from, x.dtype, x.pitch()), out) }
    }

    fn run_scale_rows_in_place(&self, _: Fits, factors: &CudaMatrix, x: &mut CudaMatrix) -> Result<(), ComputeError> {
        const OPERATION: &str = "scale_rows_in_place";
        let from = (self.pointer(Some(&x.data)), x.dtype, x.pitch());
        // SAFETY: a matrix with a factor for each row, which is ours to write; one thread reads and then writes each
        // element.
        unsafe { self.scale_rows_from(OPERATION, factors, from, x) }
    }
}

impl Cuda {
    /// Launches a kernel of an element-wise function, named as its operation.
    fn apply_kernel(
        &self,
        operation: &'static str,
        function: Function,
        x: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if x.shape.is_empty() {
            return Ok(());
        }
        let function = match function {
            Function::Gelu => GELU,
            Function::Sigmoid => SIGMOID,
        };
        let kernel = self.kernel(operation, Source::PASSES, operation, &[("X", x.dtype), ("Y", out.dtype)])?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&mut out.data).arg(&rows).arg(&cols).arg(&function);
        // SAFETY: both matrices are rows × cols, of the types that the kernel was compiled for.
        unsafe { launch.launch(columns_of(x.shape)) }.map(drop).map_err(Self::failed(operation))
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

    /// Positions of each row in a list of ids, ascending, as rows of a matrix; of the number of rows that was asked for
    /// first.
    fn positions_of_rows<'a>(
        &self,
        operation: &'static str,
        ids: &'a CudaIds,
        n_rows: usize,
    ) -> Result<&'a CudaCsr, ComputeError> {
        if ids.derived.positions.get().is_none() {
            let (nnz, indices) = (ids.range.len, &ids.ids);
            let rows = RowsOnDevice { shape: Shape::new(nnz, n_rows), nnz, indptr: None, indices, values: None };
            let _ = ids.derived.positions.set(self.transposed_on_device(operation, &rows)?);
        }
        Ok(ids.derived.positions.get().expect("just set"))
    }
}

/// Most rows for each listed id for which the device lists the positions of each row: it passes over all rows.
const ROWS_OF_AN_ID: usize = 8;

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
