//! Dense products, and passes over dense matrices on the CPU.

use crate::cpu::matrix::{as_f32, typed};
use crate::cpu::{Cpu, CpuIds, CpuMatrix, columns, elementwise, functions, gemm, rows};
use crate::{Activation, ActivationGrad, ComputeError, DenseOps, Dropout, Epilogue, Fits, Function, Shape, Transpose};

impl DenseOps for Cpu {
    fn run_gemm(
        &self,
        _: Fits,
        (a, ta): (&CpuMatrix, Transpose),
        dropout: Option<Dropout>,
        (b, tb): (&CpuMatrix, Transpose),
        epilogue: Epilogue<'_, CpuMatrix>,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let a = gemm::LeftOperand { matrix: a, transpose: ta, dropout };
        gemm::multiply(&self.machine, a, (b, tb), &epilogue, out);
        Ok(())
    }

    fn run_epilogue_backward(
        &self,
        _: Fits,
        slope: ActivationGrad,
        y: &CpuMatrix,
        grad: &mut CpuMatrix,
        bias_grad: Option<&mut CpuMatrix>,
    ) -> Result<(), ComputeError> {
        let (cols, kept) = (y.shape().cols, slope.kept);
        let sums = match (slope.activation, &bias_grad) {
            (Activation::Identity, None) => return Ok(()),
            (Activation::Identity, Some(_)) => typed!(grad = grad.storage() => columns::sums(grad, cols)),
            (Activation::Relu, _) => {
                typed!(y = y.storage(), grad = grad.storage_mut() => columns::scale_backward(y, grad, cols,
                    #[inline(always)] move |y| if y > 0.0 { kept } else { 0.0 }))
            }
            (Activation::Elu, _) => {
                typed!(y = y.storage(), grad = grad.storage_mut() => columns::scale_backward(y, grad, cols,
                    #[inline(always)] |y| if y > 0.0 { 1.0 } else { y + 1.0 }))
            }
        };
        if let Some(bias_grad) = bias_grad {
            bias_grad.write_all(&sums);
        }
        Ok(())
    }

    fn run_dropout(&self, _: Fits, x: &CpuMatrix, dropout: Dropout, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        let (isa, first) = (self.machine.isa, dropout.first_element(x.shape().cols));
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::dropout(isa, dropout, first, x, out));
        Ok(())
    }

    fn dropout_in_place(&self, dropout: Dropout, x: &mut CpuMatrix) -> Result<(), ComputeError> {
        let (isa, first) = (self.machine.isa, dropout.first_element(x.shape().cols));
        typed!(x = x.storage_mut() => elementwise::dropout_in_place(isa, dropout, first, x));
        Ok(())
    }

    fn run_add_scaled(&self, _: Fits, factor: f32, x: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::add_scaled(factor, x, &mut out[..x.len()]));
        Ok(())
    }

    fn run_convert(&self, _: Fits, x: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::convert(x, out));
        Ok(())
    }

    fn run_gather_rows(&self, _: Fits, x: &CpuMatrix, ids: &CpuIds, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        let cols = x.shape().cols;
        typed!(x = x.storage(), out = out.storage_mut() => rows::gather(x, cols, &ids.ids, out));
        Ok(())
    }

    fn run_scatter_add_rows(
        &self,
        _: Fits,
        x: &CpuMatrix,
        ids: &CpuIds,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let cols = x.shape().cols;
        typed!(x = x.storage(), out = out.storage_mut() => rows::scatter_add(x, cols, &ids.ids, out));
        Ok(())
    }

    fn run_column_sums(&self, _: Fits, x: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        out.write_all(&typed!(values = x.storage() => columns::sums(values, x.shape().cols)));
        Ok(())
    }

    fn run_copy_block(
        &self,
        _: Fits,
        shape: Shape,
        x: &CpuMatrix,
        from: (usize, usize),
        out: &mut CpuMatrix,
        to: (usize, usize),
    ) -> Result<(), ComputeError> {
        let (x_cols, out_cols) = (x.shape().cols, out.shape().cols);
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::copy_block(
            shape,
            elementwise::BlockIn { values: &x[..], cols: x_cols, first: from },
            elementwise::BlockIn { values: &mut out[..], cols: out_cols, first: to },
        ));
        Ok(())
    }

    fn run_activate(
        &self,
        _: Fits,
        activation: Activation,
        bias: Option<&CpuMatrix>,
        x: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (bias, cols) = (bias.map(as_f32), x.shape().cols);
        typed!(x = x.storage_mut() => elementwise::activate(self.machine.isa, activation, bias.as_deref(), cols, x));
        Ok(())
    }

    fn run_apply(&self, _: Fits, function: Function, x: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        typed!(x = x.storage(), out = out.storage_mut() => functions::apply(self.machine.isa, function, x, out));
        Ok(())
    }

    fn run_apply_backward(
        &self,
        _: Fits,
        function: Function,
        x: &CpuMatrix,
        grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        typed!(x = x.storage(), grad = grad.storage_mut() =>
            functions::apply_backward(self.machine.isa, function, x, grad));
        Ok(())
    }

    fn run_reshape(&self, _: Fits, x: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::convert(x, out));
        Ok(())
    }

    fn run_scale(&self, _: Fits, factor: f32, x: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::scale(factor, x, out));
        Ok(())
    }

    fn run_scale_rows(
        &self,
        _: Fits,
        factors: &CpuMatrix,
        (x, first): (&CpuMatrix, usize),
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (factors, x_cols, cols) = (as_f32(factors), x.shape().cols, out.shape().cols);
        typed!(x = x.storage(), out = out.storage_mut() =>
            elementwise::scale_rows(&factors, (x, x_cols, first), (out, cols)));
        Ok(())
    }

    fn run_scale_rows_in_place(&self, _: Fits, factors: &CpuMatrix, x: &mut CpuMatrix) -> Result<(), ComputeError> {
        let (factors, cols) = (as_f32(factors), x.shape().cols);
        typed!(x = x.storage_mut() => elementwise::scale_rows_in_place(&factors, (x, cols)));
        Ok(())
    }
}
