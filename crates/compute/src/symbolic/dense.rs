//! Dense products, and passes over dense matrices on a symbolic device.

use super::{Symbolic, SymbolicIds, SymbolicMatrix, cuda};
use crate::{
    Activation, ActivationGrad, ComputeError, DenseOps, Dropout, Dtype, Epilogue, EpilogueGrad, Fits, Function, Shape,
    Transpose,
};

impl DenseOps for Symbolic {
    fn run_gemm(
        &self,
        _: Fits,
        (a, ta): (&SymbolicMatrix, Transpose),
        dropout: Option<Dropout>,
        (b, _): (&SymbolicMatrix, Transpose),
        epilogue: Epilogue<'_, SymbolicMatrix>,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        let plain = epilogue.bias.is_none() && epilogue.activation == Activation::Identity;
        self.scratch(|| cuda::gemm((a, b), dropout, (plain, self.activations), out));
        let inner = if ta == Transpose::Yes { a.shape.rows } else { a.shape.cols };
        let bytes = a.n_bytes() + b.n_bytes() + out.n_bytes();
        let dtype = if a.dtype == b.dtype { a.dtype } else { self.activations };
        self.operation(bytes as f64, 2.0 * inner as f64 * out.shape.len() as f64, dtype);
        Ok(())
    }

    fn run_gemm_pair(
        &self,
        _: Fits,
        first: (&SymbolicMatrix, &SymbolicMatrix),
        second: (&SymbolicMatrix, &SymbolicMatrix),
        epilogue: Epilogue<'_, SymbolicMatrix>,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        let plain = epilogue.bias.is_none() && epilogue.activation == Activation::Identity;
        let pairs = [first, second];
        self.scratch(|| pairs.map(|pair| cuda::gemm(pair, None, (plain, self.activations), out)).iter().sum());
        let bytes = pairs.iter().map(|(x, w)| x.n_bytes() + w.n_bytes()).sum::<u64>() + out.n_bytes();
        let inner = first.0.shape.cols + second.0.shape.cols;
        let dtype = if first.0.dtype == first.1.dtype { first.0.dtype } else { self.activations };
        self.operation(bytes as f64, 2.0 * inner as f64 * out.shape.len() as f64, dtype);
        Ok(())
    }

    /// Counts as a plain product: the factors are applied while rows are stored.
    fn run_gemm_scaled(
        &self,
        fits: Fits,
        _factors: &SymbolicMatrix,
        a: (&SymbolicMatrix, Transpose),
        b: (&SymbolicMatrix, Transpose),
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.run_gemm(fits, a, None, b, Epilogue::default(), out)
    }

    /// Counts a product and three passes over its result. Columns of `y` are read in place, and the factors add
    /// nothing.
    fn run_gemm_backward(
        &self,
        fits: Fits,
        a: (&SymbolicMatrix, Transpose),
        b: (&SymbolicMatrix, Transpose),
        _way_back: EpilogueGrad<'_, SymbolicMatrix>,
        out: &mut SymbolicMatrix,
        _bias_grad: Option<&mut SymbolicMatrix>,
    ) -> Result<(), ComputeError> {
        self.run_gemm(fits, a, None, b, Epilogue::default(), out)?;
        self.scratch(|| cuda::columns(out.shape));
        self.pass(&[out, out, out]);
        Ok(())
    }

    fn run_epilogue_backward(
        &self,
        _: Fits,
        _slope: ActivationGrad,
        y: &SymbolicMatrix,
        grad: &mut SymbolicMatrix,
        _bias_grad: Option<&mut SymbolicMatrix>,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(grad.shape));
        self.pass(&[y, grad, grad]);
        Ok(())
    }

    fn run_dropout(
        &self,
        _: Fits,
        x: &SymbolicMatrix,
        _dropout: Dropout,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn dropout_in_place(&self, _dropout: Dropout, x: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[x, x]);
        Ok(())
    }

    fn run_convert(&self, _: Fits, x: &SymbolicMatrix, out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn run_add_scaled(
        &self,
        _: Fits,
        _factor: f32,
        x: &SymbolicMatrix,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, x, x]);
        Ok(())
    }

    fn run_gather_rows(
        &self,
        _: Fits,
        _x: &SymbolicMatrix,
        _ids: &SymbolicIds,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[out, out]);
        Ok(())
    }

    fn run_scatter_add_rows(
        &self,
        _: Fits,
        x: &SymbolicMatrix,
        _ids: &SymbolicIds,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::scatter(x.shape.rows));
        self.pass(&[x, x, x]);
        Ok(())
    }

    fn run_column_sums(&self, _: Fits, x: &SymbolicMatrix, _out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(x.shape));
        self.pass(&[x]);
        Ok(())
    }

    fn run_copy_block(
        &self,
        _: Fits,
        shape: Shape,
        x: &SymbolicMatrix,
        _from: (usize, usize),
        _out: &mut SymbolicMatrix,
        _to: (usize, usize),
    ) -> Result<(), ComputeError> {
        self.operation((2 * shape.len() * x.dtype.n_bytes()) as f64, 0.0, x.dtype);
        Ok(())
    }

    fn run_activate(
        &self,
        _: Fits,
        _activation: Activation,
        _bias: Option<&SymbolicMatrix>,
        x: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, x]);
        Ok(())
    }

    fn run_reshape(&self, _: Fits, x: &SymbolicMatrix, out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn run_apply(
        &self,
        _: Fits,
        _function: Function,
        x: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn run_apply_backward(
        &self,
        _: Fits,
        _function: Function,
        x: &SymbolicMatrix,
        grad: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, grad, grad]);
        Ok(())
    }

    fn run_unit_circle(&self, _: Fits, x: &SymbolicMatrix, out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn run_scale(
        &self,
        _: Fits,
        _factor: f32,
        x: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn run_scale_rows(
        &self,
        _: Fits,
        _factors: &SymbolicMatrix,
        (x, _): (&SymbolicMatrix, usize),
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        let read = out.shape.len() * x.dtype.n_bytes();
        self.operation((read as u64 + out.n_bytes()) as f64, 0.0, Dtype::F32);
        Ok(())
    }

    fn run_scale_rows_in_place(
        &self,
        _: Fits,
        _factors: &SymbolicMatrix,
        x: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, x]);
        Ok(())
    }
}
