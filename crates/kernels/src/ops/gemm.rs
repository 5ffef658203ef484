//! Dense products by cuBLAS and cuBLASLt, with epilogues by `cuda/gemm.cu`.

use std::ffi::c_void;
use std::ptr;

use cudarc::cublas::{result, sys};
use cudarc::driver::{DevicePtr, PushKernelArg};
use girih_compute::{Activation, ComputeError, DenseOps, Dropout, Dtype, Epilogue, Shape, Transpose};

use super::passes::{NULL, number};
use crate::blas::describe;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::{DenseLibraries, threads_for};
use crate::lt::{Lt, Operands, Product, alignment};
use crate::matrix::CudaMatrix;

/// Rows, or summed rows, from which a product has a long side.
pub(super) const LONG: usize = 1 << 14;

/// Whether a result has enough rows for a product with a long side.
pub(super) fn has_long_rows(shape: Shape) -> bool {
    shape.rows >= LONG
}

/// `out = alpha · op(A)·op(B) + beta · out`, row-major.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dense {
    /// Rows and columns of `out`.
    pub(super) shape: Shape,
    /// Length of the summed dimension.
    pub(super) depth: usize,
    pub(super) transposes: (Transpose, Transpose),
    pub(super) alpha: f32,
    pub(super) beta: f32,
}

impl Dense {
    /// Product for column-major libraries: rows of a matrix are columns of its transpose, and `(A·B)ᵀ = Bᵀ·Aᵀ`. A
    /// number for each column becomes one for each row.
    fn by_columns(self, a: Address, b: Address, out: Address) -> Product {
        let Self { shape: Shape { rows, cols }, depth, transposes: (ta, tb), .. } = self;
        let [rows, cols, depth] = [cols, rows, depth].map(|n| n as u64);
        let transposed = [tb, ta].map(|transpose| transpose == Transpose::Yes);
        let pitches = [b, a, out].map(|matrix| matrix.pitch as u64);
        let alignment = alignment(&[a.at, b.at, out.at]);
        let (operands, out, has_bias) = (a.dtype, out.dtype, false);
        Product { rows, cols, depth, transposed, pitches, operands, out, has_bias, alignment }
    }
}

/// Address, element type and pitch of a dense matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub(super) at: u64,
    pub(super) dtype: Dtype,
    pub(super) pitch: usize,
}

impl Address {
    /// Address of the rows from `first` on.
    pub(super) fn at_row(self, first: usize) -> Self {
        Self { at: self.at + (first * self.pitch * self.dtype.n_bytes()) as u64, ..self }
    }
}

impl Cuda {
    /// Product without a mask, and its operands in one type.
    pub(super) fn plain_operands<'a>(
        &self,
        (a, ta): (&'a CudaMatrix, Transpose),
        (b, tb): (&'a CudaMatrix, Transpose),
        shape: Shape,
    ) -> Result<(Dense, Operand<'a>, Operand<'a>), ComputeError> {
        let depth = if ta == Transpose::No { a.shape.cols } else { a.shape.rows };
        let common = if a.dtype == b.dtype { a.dtype } else { self.precision };
        let dense = Dense { shape, depth, transposes: (ta, tb), alpha: 1.0, beta: 0.0 };
        Ok((dense, self.converted(a, None, common)?, self.converted(b, None, common)?))
    }

    pub(super) fn masked_result(&self, dropout: Option<Dropout>, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        dropout.map_or(Ok(()), |dropout| self.dropout_in_place(dropout, out))
    }

    /// Multiplies operands of one type, with the epilogue.
    pub(super) fn multiply(
        &self,
        dense: Dense,
        (a, b): (&CudaMatrix, &CudaMatrix),
        epilogue: &Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if self.multiply_long(dense, (a, b), epilogue, out)? {
            return Ok(());
        }
        self.multiply_by_libraries(dense, (a, b), &Epilogue { dropout: None, ..*epilogue }, out)?;
        self.masked_result(epilogue.dropout, out)
    }

    /// Multiplies by cuBLAS or cuBLASLt, with an epilogue without a mask.
    fn multiply_by_libraries(
        &self,
        dense: Dense,
        (a, b): (&CudaMatrix, &CudaMatrix),
        epilogue: &Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if [self.precision, a.dtype, out.dtype] == [Dtype::Bf16; 3] && epilogue.activation != Activation::Identity {
            // A pass over bf16 reads half the bytes of one over f32; the sum is rounded before its activation.
            let sum = Epilogue { activation: Activation::Identity, ..*epilogue };
            self.multiply_by_libraries(dense, (a, b), &sum, out)?;
            return self.activate(epilogue.activation, None, out);
        }
        if let Some(bias) = epilogue.bias.filter(|bias| self.precision == out.dtype && bias.dtype != out.dtype) {
            // A bias of the result's type is added in one pass.
            let mut rounded = self.uninitialized(bias.shape, out.dtype)?;
            self.convert(bias, &mut rounded)?;
            let rounded = Epilogue { bias: Some(&rounded), ..*epilogue };
            return self.multiply_by_libraries(dense, (a, b), &rounded, out);
        }
        let plain = epilogue.bias.is_none() && epilogue.activation == Activation::Identity;
        let in_place = Dense { beta: if epilogue.accumulate { 1.0 } else { 0.0 }, ..dense };
        let is_linear = epilogue.activation == Activation::Identity;
        // A sum in f32 is not rounded before its activation.
        let suits = is_linear || out.dtype == Dtype::F32;
        if suits && self.multiply_by_lt(in_place, (a, b), epilogue.bias, out)? {
            return if is_linear { Ok(()) } else { self.activate(epilogue.activation, None, out) };
        }
        // cuBLAS sums in f32 and rounds to bf16 only where the operands are bf16, too.
        if out.dtype == Dtype::F32 || (plain && a.dtype == Dtype::Bf16) {
            // SAFETY: the shapes were checked, and all three matrices live until the product is on the stream.
            unsafe { self.dense("gemm", in_place, self.address(a), self.address(b), self.address(out)) }?;
            return if plain { Ok(()) } else { self.finish(None, epilogue, true, out) };
        }
        let product = self.uninitialized(out.shape, Dtype::F32)?;
        // SAFETY: as above.
        unsafe { self.dense("gemm", dense, self.address(a), self.address(b), self.address(&product)) }?;
        self.finish(Some(&product), epilogue, epilogue.accumulate, out)
    }

    /// Multiplies and adds a bias in one pass. Returns `false` and does nothing where cuBLASLt does not offer it.
    fn multiply_by_lt(
        &self,
        dense: Dense,
        (a, b): (&CudaMatrix, &CudaMatrix),
        bias: Option<&CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<bool, ComputeError> {
        let Some(lt) = &self.dense_libraries("gemm")?.lt else { return Ok(false) };
        // The types must be those that cuBLAS takes, and the bias of the result's type. In bf16 sums are rounded
        // before the bias is added.
        let rounds = out.dtype == Dtype::Bf16;
        let suits = bias.is_none_or(|bias| bias.dtype == out.dtype && !(rounds && self.precision == Dtype::F32));
        if !suits || (rounds && a.dtype == Dtype::F32) {
            return Ok(false);
        }
        let addresses = [self.address(a), self.address(b), self.address(out)];
        // SAFETY: shapes and types are those of the matrices, which were checked and live until the product is on the
        // stream; `out` is borrowed alone, and every matrix has an allocation of its own.
        unsafe { self.put_on_lt(lt, dense, addresses, bias.map(|bias| self.address(bias).at)) }
    }

    /// Puts a product on the stream, with the address of a bias. Returns `false` and does nothing where cuBLASLt does not
    /// offer it.
    ///
    /// # Safety
    /// As [`dense`](Self::dense); a bias has a number for each column, of the result's type.
    unsafe fn put_on_lt(
        &self,
        lt: &Lt,
        dense: Dense,
        [a, b, out]: [Address; 3],
        bias: Option<u64>,
    ) -> Result<bool, ComputeError> {
        self.device.stream.context().bind_to_thread().map_err(Self::failed("gemm"))?;
        let operands = Operands { a: b.at, b: a.at, bias: bias.unwrap_or(0), out: out.at };
        let product = Product { has_bias: bias.is_some(), ..dense.by_columns(a, b, out) };
        // SAFETY: the caller vouches.
        let done = unsafe { lt.multiply(product, (dense.alpha, dense.beta), operands) };
        done.map_err(|error| ComputeError::device("gemm", format!("cuBLASLt: {error}")))
    }

    /// Puts a product of rows of matrices on the stream, by cuBLASLt or cuBLAS. The result is in f32 if the operands are.
    ///
    /// # Safety
    /// As [`dense`](Self::dense).
    pub(super) unsafe fn dense_rows(
        &self,
        operation: &'static str,
        dense: Dense,
        addresses @ [a, b, out]: [Address; 3],
    ) -> Result<(), ComputeError> {
        if let Some(lt) = &self.dense_libraries(operation)?.lt {
            // SAFETY: the caller vouches.
            if unsafe { self.put_on_lt(lt, dense, addresses, None) }? {
                return Ok(());
            }
        }
        // SAFETY: as above.
        unsafe { self.dense(operation, dense, a, b, out) }
    }

    /// Operand for cuBLAS: the matrix itself, or a copy that is masked or of another type.
    pub(super) fn converted<'a>(
        &self,
        x: &'a CudaMatrix,
        dropout: Option<Dropout>,
        dtype: Dtype,
    ) -> Result<Operand<'a>, ComputeError> {
        if dropout.is_none() && x.dtype == dtype {
            return Ok(Operand::Same(x));
        }
        let mut copy = self.uninitialized(x.shape, dtype)?;
        match dropout {
            Some(dropout) => self.dropout_unscaled(x, dropout, &mut copy)?,
            None => self.convert(x, &mut copy)?,
        }
        Ok(Operand::Copy(copy))
    }

    /// `out = activation(product + (keep ? out : 0) + bias)`; without `product`, the product is in `out` already.
    pub(super) fn finish(
        &self,
        product: Option<&CudaMatrix>,
        epilogue: &Epilogue<'_, CudaMatrix>,
        keep: bool,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let types = [("X", epilogue.bias.map_or(Dtype::F32, |bias| bias.dtype)), ("Y", out.dtype)];
        let kernel = self.kernel("gemm", Source::GEMM, "epilogue", &types)?;
        let (n, cols) = (out.len() as u64, out.pitch() as u64);
        let (keep, activation) = (u32::from(keep), number(epilogue.activation));
        let mut launch = self.device.stream.launch_builder(&kernel);
        for operand in [product, epilogue.bias] {
            match operand {
                Some(operand) => launch.arg(&operand.data),
                None => launch.arg(&NULL),
            };
        }
        launch.arg(&mut out.data).arg(&n).arg(&cols).arg(&keep).arg(&activation);
        // SAFETY: `out` and the product, in f32, hold `n` elements, and the bias one row of `cols`, padding counted, of
        // the types that the kernel was compiled for.
        unsafe { launch.launch(threads_for(n as usize)) }.map(drop).map_err(Self::failed("gemm"))
    }

    fn dense_libraries(&self, operation: &'static str) -> Result<&DenseLibraries, ComputeError> {
        self.device.dense_libraries().map_err(|error| ComputeError::device(operation, error.to_string()))
    }

    /// Address of a matrix; valid as long as it lives.
    pub(super) fn address(&self, matrix: &CudaMatrix) -> Address {
        let at = matrix.data.device_ptr(&self.device.stream).0;
        Address { at, dtype: matrix.dtype, pitch: matrix.pitch() }
    }

    /// Puts a product with `f32` sums on the stream. No dimension may be zero.
    ///
    /// # Safety
    /// The addresses are those of matrices of the shapes that `dense` names, `a` and `b` of one type. The matrices
    /// live until all work is done that was put on the stream before they are freed. `out` may be written, and
    /// overlaps neither.
    pub(super) unsafe fn dense(
        &self,
        operation: &'static str,
        dense: Dense,
        a: Address,
        b: Address,
        out: Address,
    ) -> Result<(), ComputeError> {
        let Dense { shape: Shape { rows, cols }, depth, transposes: (ta, tb), alpha, beta } = dense;
        let int = |n: usize| {
            let large = |_| ComputeError::argument(operation, format!("cuBLAS takes no matrix with a side of {n}"));
            i32::try_from(n).map_err(large)
        };
        let (m, n, k) = (int(cols)?, int(rows)?, int(depth)?);
        let blas = &self.dense_libraries(operation)?.blas;
        let [lda, ldb, ldc] = [int(a.pitch)?, int(b.pitch)?, int(out.pitch)?];
        self.device.stream.context().bind_to_thread().map_err(Self::failed(operation))?;
        // cuBLAS reads columns: rows of a matrix are columns of its transpose, and (A·B)ᵀ = Bᵀ·Aᵀ.
        // SAFETY: the caller vouches for the matrices; alpha and beta are numbers on the host and are read before the
        // call returns.
        let outcome = unsafe {
            result::gemm_ex(
                *blas.handle(),
                flag(tb),
                flag(ta),
                m,
                n,
                k,
                ptr::from_ref(&alpha).cast(),
                b.at as *const c_void,
                data_type(b.dtype),
                ldb,
                a.at as *const c_void,
                data_type(a.dtype),
                lda,
                ptr::from_ref(&beta).cast(),
                out.at as *mut c_void,
                data_type(out.dtype),
                ldc,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        outcome.map_err(|error| ComputeError::device(operation, format!("cuBLAS: {}", describe(error))))
    }
}

/// Operand, or a converted copy of it.
pub(super) enum Operand<'a> {
    Same(&'a CudaMatrix),
    Copy(CudaMatrix),
}

impl Operand<'_> {
    pub(super) fn get(&self) -> &CudaMatrix {
        match self {
            Self::Same(matrix) => matrix,
            Self::Copy(matrix) => matrix,
        }
    }
}

fn flag(transpose: Transpose) -> sys::cublasOperation_t {
    match transpose {
        Transpose::No => sys::cublasOperation_t::CUBLAS_OP_N,
        Transpose::Yes => sys::cublasOperation_t::CUBLAS_OP_T,
    }
}

fn data_type(dtype: Dtype) -> sys::cudaDataType {
    match dtype {
        Dtype::F32 => sys::cudaDataType::CUDA_R_32F,
        Dtype::Bf16 => sys::cudaDataType::CUDA_R_16BF,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_by_columns_multiply_the_other_way_round() {
        let (shape, depth, alpha, beta) = (Shape::new(2, 3), 5, 1.0, 0.0);
        let by_columns = |ta, tb| {
            let dense = Dense { shape, depth, transposes: (ta, tb), alpha, beta };
            let address = |pitch| Address { at: 0, dtype: Dtype::F32, pitch };
            let Product { rows, cols, depth, transposed, pitches, .. } =
                dense.by_columns(address(6), address(7), address(8));
            assert_eq!(pitches, [7, 6, 8]);
            ((rows, cols, depth), transposed)
        };
        assert_eq!(by_columns(Transpose::No, Transpose::No), ((3, 2, 5), [false, false]));
        assert_eq!(by_columns(Transpose::Yes, Transpose::No), ((3, 2, 5), [false, true]));
        assert_eq!(by_columns(Transpose::No, Transpose::Yes), ((3, 2, 5), [true, false]));
    }
}
