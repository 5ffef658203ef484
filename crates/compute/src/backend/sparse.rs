//! [`SparseOps`]: products with sparse matrices.

use crate::{ComputeError, Epilogue, Memory, Shape, Transpose, checks};

/// Products of sparse matrices with dense ones, and sampled dense-dense products.
pub trait SparseOps: Memory {
    checked! {
        /// Sparse product with a fused epilogue: `out = epilogue(op(L·A·R)·X)`. `op(A)` is `n × k`, `X` is `k × d`,
        /// `out` is `n × d`, and the bias is `1 × d`. `weights` (`nnz × heads`, in the order of the untransposed
        /// entries) replace the values of `A` if given. With several heads, each weight multiplies the columns of its
        /// head, interleaved as in [`Attention`](crate::Attention).
        ///
        /// For an `X` stored as bf16, a backend may round `R·X` to bf16 again. A backend may offer the same for `f32`,
        /// see [`Cpu::gathering`](crate::Cpu::gathering).
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn spmm, run_spmm(
            &self,
            a: (&Self::Sparse, Transpose),
            weights: Option<&Self::Matrix>,
            x: &Self::Matrix,
            epilogue: Epilogue<'_, Self::Matrix>,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            let [weights_shape, bias] = [weights, epilogue.bias].map(|matrix| matrix.map(|matrix| self.shape(matrix)));
            let of_a = (self.sparse_shape(a.0), a.1);
            checks::spmm(of_a, self.nnz(a.0), weights_shape, self.shape(x), bias, self.shape(out))?;
            checks::mask("spmm", &epilogue)
        }

        /// As [`spmm`](Self::spmm), but into consecutive columns of `out`, from the given first column on; the other
        /// columns stay. `X` is `k × w` and `out` is `n × d` with `w ≤ d`. Bias (`1 × d`) and dropout are those of the
        /// whole result. The columns begin and end at multiples of [`COLUMNS`](crate::checks::COLUMNS), or with the
        /// result.
        ///
        /// # Errors
        /// On shapes or columns that do not fit.
        fn spmm_columns, run_spmm_columns(
            &self,
            a: (&Self::Sparse, Transpose),
            x: &Self::Matrix,
            epilogue: Epilogue<'_, Self::Matrix>,
            out: (&mut Self::Matrix, usize),
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "spmm_columns";
            let (left, of_x, of_out) = (checks::read(self.sparse_shape(a.0), a.1), self.shape(x), self.shape(out.0));
            checks::expect(OPERATION, "x", of_x, Shape::new(left.cols, of_x.cols))?;
            checks::expect(OPERATION, "out", of_out, Shape::new(left.rows, of_out.cols))?;
            checks::columns(OPERATION, out.1..out.1 + of_x.cols, of_out.cols)?;
            let bias = epilogue.bias.map(|bias| self.shape(bias));
            checks::expect_given(OPERATION, "bias", bias, Shape::new(1, of_out.cols))?;
            checks::mask(OPERATION, &epilogue)
        }

        /// Sampled dense-dense product: `out[e, h] = l[i] · r[j] · Σ_k x[i, c]·y[j, c]` with `c = k · heads + h`, for
        /// each entry `e = (i, j)` of `L·A·R` (`n × m`). `x` is `n × (heads·d)`, `y` is `m × (heads·d)`, and `out` is
        /// `nnz × heads`. The values of `A` are ignored. The result is the gradient of the weights of a sparse product.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn sddmm, run_sddmm(
            &self,
            a: &Self::Sparse,
            x: &Self::Matrix,
            y: &Self::Matrix,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "sddmm";
            let (of_a, width, heads) = (self.sparse_shape(a), self.shape(x).cols, self.shape(out).cols);
            checks::expect(OPERATION, "x", self.shape(x), Shape::new(of_a.rows, width))?;
            checks::expect(OPERATION, "y", self.shape(y), Shape::new(of_a.cols, width))?;
            checks::expect(OPERATION, "out", self.shape(out), Shape::new(self.nnz(a), heads))?;
            checks::heads(OPERATION, heads, width)
        }
    }

    checked! {
        /// Sparse product in place: `X = op(L·A·R)·X`, with `A` `n × n` and `X` `n × d`. A device that can do so needs no
        /// second copy of a large `X`; the default allocates one.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn spmm_in_place, run_spmm_in_place(
            &self,
            a: (&Self::Sparse, Transpose),
            x: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            let shape = self.shape(x);
            checks::spmm((self.sparse_shape(a.0), a.1), self.nnz(a.0), None, shape, None, shape)
        } else {
            let mut out = self.zeros(self.shape(x), self.dtype(x))?;
            self.spmm(a, None, x, Epilogue::default(), &mut out)?;
            *x = out;
            Ok(())
        }
    }
}
