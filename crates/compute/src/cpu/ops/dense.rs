//! Dense products, and passes over dense matrices on the CPU.

use crate::cpu::matrix::{as_f32, typed};
use crate::cpu::{Cpu, CpuIds, CpuMatrix, columns, elementwise, gemm, rows};
use crate::{Activation, ActivationGrad, ComputeError, DenseOps, Dropout, Epilogue, Memory, Shape, Transpose, checks};

impl DenseOps for Cpu {
    fn gemm(
        &self,
        (a, ta): (&CpuMatrix, Transpose),
        dropout: Option<Dropout>,
        (b, tb): (&CpuMatrix, Transpose),
        epilogue: Epilogue<'_, CpuMatrix>,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::gemm((a.shape(), ta), (b.shape(), tb), epilogue.bias.map(CpuMatrix::shape), out.shape())?;
        checks::mask("gemm", &epilogue)?;
        let a = gemm::LeftOperand { matrix: a, transpose: ta, dropout };
        gemm::multiply(&self.machine, a, (b, tb), &epilogue, out);
        Ok(())
    }

    fn epilogue_backward(
        &self,
        slope: ActivationGrad,
        y: &CpuMatrix,
        grad: &mut CpuMatrix,
        bias_grad: Option<&mut CpuMatrix>,
    ) -> Result<(), ComputeError> {
        checks::epilogue_backward(y.shape(), grad.shape(), bias_grad.as_deref().map(CpuMatrix::shape))?;
        let cols = y.shape().cols;
        let sums = match (slope.activation, &bias_grad) {
            (Activation::Identity, None) => return Ok(()),
            (Activation::Identity, Some(_)) => typed!(grad = grad.storage() => columns::sums(grad, cols)),
            (Activation::Relu, _) => {
                typed!(y = y.storage(), grad = grad.storage_mut() => columns::scale_backward(y, grad, cols,
                    #[inline(always)] |y| if y > 0.0 { slope.kept } else { 0.0 }))
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

    fn dropout(&self, x: &CpuMatrix, dropout: Dropout, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::same("dropout", x.shape(), out.shape())?;
        let (isa, first) = (self.machine.isa, dropout.first_element(x.shape().cols));
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::dropout(isa, dropout, first, x, out));
        Ok(())
    }

    fn dropout_in_place(&self, dropout: Dropout, x: &mut CpuMatrix) -> Result<(), ComputeError> {
        let (isa, first) = (self.machine.isa, dropout.first_element(x.shape().cols));
        typed!(x = x.storage_mut() => elementwise::dropout_in_place(isa, dropout, first, x));
        Ok(())
    }

    fn add_scaled(&self, factor: f32, x: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::add_scaled(x.shape(), out.shape())?;
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::add_scaled(factor, x, &mut out[..x.len()]));
        Ok(())
    }

    fn convert(&self, x: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::same("convert", x.shape(), out.shape())?;
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::convert(x, out));
        Ok(())
    }

    fn gather_rows(&self, x: &CpuMatrix, ids: &CpuIds, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::gather_rows(x.shape(), ids.range, out.shape())?;
        let cols = x.shape().cols;
        typed!(x = x.storage(), out = out.storage_mut() => rows::gather(x, cols, &ids.ids, out));
        Ok(())
    }

    fn scatter_add_rows(&self, x: &CpuMatrix, ids: &CpuIds, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::scatter_add_rows(x.shape(), ids.range, out.shape())?;
        let cols = x.shape().cols;
        typed!(x = x.storage(), out = out.storage_mut() => rows::scatter_add(x, cols, &ids.ids, out));
        Ok(())
    }

    fn column_sums(&self, x: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::column_sums(x.shape(), out.shape())?;
        out.write_all(&typed!(values = x.storage() => columns::sums(values, x.shape().cols)));
        Ok(())
    }

    fn copy_block(
        &self,
        shape: Shape,
        x: &CpuMatrix,
        from: (usize, usize),
        out: &mut CpuMatrix,
        to: (usize, usize),
    ) -> Result<(), ComputeError> {
        checks::copy_block(shape, x.shape(), from, out.shape(), to)?;
        let (x_cols, out_cols) = (x.shape().cols, out.shape().cols);
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::copy_block(
            shape,
            elementwise::BlockIn { values: &x[..], cols: x_cols, first: from },
            elementwise::BlockIn { values: &mut out[..], cols: out_cols, first: to },
        ));
        Ok(())
    }

    fn activate(
        &self,
        activation: Activation,
        bias: Option<&CpuMatrix>,
        x: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::activate(bias.map(CpuMatrix::shape), x.shape())?;
        let (bias, cols) = (bias.map(as_f32), x.shape().cols);
        typed!(x = x.storage_mut() => elementwise::activate(self.machine.isa, activation, bias.as_deref(), cols, x));
        Ok(())
    }

    fn scale(&self, factor: f32, x: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::same("scale", x.shape(), out.shape())?;
        typed!(x = x.storage(), out = out.storage_mut() => elementwise::scale(factor, x, out));
        Ok(())
    }

    fn scale_rows(
        &self,
        factors: &CpuMatrix,
        (x, first): (&CpuMatrix, usize),
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::scale_rows((factors.shape(), self.dtype(factors)), (x.shape(), first), out.shape())?;
        let (factors, x_cols, cols) = (as_f32(factors), x.shape().cols, out.shape().cols);
        typed!(x = x.storage(), out = out.storage_mut() =>
            elementwise::scale_rows(&factors, (x, x_cols, first), (out, cols)));
        Ok(())
    }

    fn scale_rows_in_place(&self, factors: &CpuMatrix, x: &mut CpuMatrix) -> Result<(), ComputeError> {
        let Shape { rows, cols } = x.shape();
        checks::row_factors("scale_rows_in_place", (factors.shape(), self.dtype(factors)), rows)?;
        let factors = as_f32(factors);
        typed!(x = x.storage_mut() => elementwise::scale_rows_in_place(&factors, (x, cols)));
        Ok(())
    }
}
