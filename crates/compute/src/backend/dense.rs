//! [`DenseOps`]: dense products, epilogues, and passes over dense matrices.

use crate::{Activation, ActivationGrad, ComputeError, Dropout, Epilogue, Memory, Shape, Transpose, checks};

/// Operands that [`gemm_backward`](DenseOps::gemm_backward) needs for the backward pass of an [`Epilogue`].
#[derive(Debug)]
pub struct EpilogueGrad<'a, M> {
    /// Derivative of the epilogue.
    pub slope: ActivationGrad,
    /// Result of the epilogue (`n × d`).
    pub y: &'a M,
    /// Index of the first column of `y` that the gradient covers.
    pub first: usize,
    /// Per-row scale (`n × 1`, `f32`), applied after the gradient of the epilogue. `None` scales nothing.
    pub factors: Option<&'a M>,
}

impl<'a, M> EpilogueGrad<'a, M> {
    /// Backward pass over all columns of `y`, without row factors.
    #[must_use]
    pub fn new(slope: ActivationGrad, y: &'a M) -> Self {
        Self { slope, y, first: 0, factors: None }
    }
}

/// Dense products, and elementwise, row-wise and column-wise passes over dense matrices.
pub trait DenseOps: Memory {
    /// Dense product with a fused epilogue: `out = epilogue(op(A)·op(B))`. `op(A)` is `n × k`, `op(B)` is `k × d`,
    /// `out` is `n × d`, and the bias is `1 × d`. With `dropout`, the stored `A` is masked before the product.
    ///
    /// Operands may be `NN`, `NT` or `TN`; `TT` is refused.
    ///
    /// # Errors
    /// On shapes that do not fit, and for `TT`.
    fn gemm(
        &self,
        a: (&Self::Matrix, Transpose),
        dropout: Option<Dropout>,
        b: (&Self::Matrix, Transpose),
        epilogue: Epilogue<'_, Self::Matrix>,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Sum of two dense products with a fused epilogue: `out = epilogue(X·W + Y·V)`, for the pairs `(X, W)` and
    /// `(Y, V)`. `X` is `n × k`, `W` is `k × d`, `Y` is `n × l`, `V` is `l × d`, and `out` is `n × d`. It equals the
    /// product of the concatenation `[X ‖ Y]`, which is not stored.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn gemm_pair(
        &self,
        first: (&Self::Matrix, &Self::Matrix),
        second: (&Self::Matrix, &Self::Matrix),
        epilogue: Epilogue<'_, Self::Matrix>,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError> {
        let no = Transpose::No;
        let before = Epilogue { accumulate: epilogue.accumulate, ..Epilogue::default() };
        self.gemm((first.0, no), None, (first.1, no), before, out)?;
        self.gemm((second.0, no), None, (second.1, no), Epilogue { accumulate: true, ..epilogue }, out)
    }

    /// Backward pass of an epilogue, in place: `grad ⊙= slope(y)`, where `y` is the result of the epilogue. `y` and
    /// `grad` are `n × d`. `bias_grad` (`1 × d`), if given, is overwritten with the column sums of the new `grad`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn epilogue_backward(
        &self,
        slope: ActivationGrad,
        y: &Self::Matrix,
        grad: &mut Self::Matrix,
        bias_grad: Option<&mut Self::Matrix>,
    ) -> Result<(), ComputeError>;

    /// Dense product followed by the backward pass of an epilogue: `G = (op(A)·op(B)) ⊙ slope(Y)` and
    /// `out = diag(factors)·G`. `op(A)` is `n × k`, `op(B)` is `k × w`, `out` is `n × w`, and `factors` is `n × 1`.
    /// `Y` is the `w` columns of `y` (`n × d`) from `first` on, bounded as in
    /// [`spmm_columns`](crate::SparseOps::spmm_columns). `bias_grad` (`1 × w`), if given, is overwritten with the
    /// column sums of `G`.
    ///
    /// # Errors
    /// On shapes, columns or storage that do not fit.
    fn gemm_backward(
        &self,
        a: (&Self::Matrix, Transpose),
        b: (&Self::Matrix, Transpose),
        EpilogueGrad { slope, y, first, factors }: EpilogueGrad<'_, Self::Matrix>,
        out: &mut Self::Matrix,
        bias_grad: Option<&mut Self::Matrix>,
    ) -> Result<(), ComputeError> {
        let shape = self.shape(out);
        let of_factors = factors.map(|factors| (self.shape(factors), self.dtype(factors)));
        checks::gemm_backward((self.shape(y), first), of_factors, shape)?;
        self.gemm(a, None, b, Epilogue::default(), out)?;
        if shape == self.shape(y) {
            self.epilogue_backward(slope, y, out, bias_grad)?;
        } else {
            let mut some = self.zeros(shape, self.dtype(y))?;
            self.copy_block(shape, y, (0, first), &mut some, (0, 0))?;
            self.epilogue_backward(slope, &some, out, bias_grad)?;
        }
        factors.map_or(Ok(()), |factors| self.scale_rows_in_place(factors, out))
    }

    /// Dense product with scaled rows: `out = diag(factors)·op(A)·op(B)`. `op(A)` is `n × k`, `op(B)` is `k × d`,
    /// `out` is `n × d`, and `factors` is `n × 1` of `f32`.
    ///
    /// # Errors
    /// On shapes or storage that do not fit.
    fn gemm_scaled(
        &self,
        factors: &Self::Matrix,
        a: (&Self::Matrix, Transpose),
        b: (&Self::Matrix, Transpose),
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError> {
        checks::row_factors("gemm_scaled", (self.shape(factors), self.dtype(factors)), self.shape(out).rows)?;
        self.gemm(a, None, b, Epilogue::default(), out)?;
        self.scale_rows_in_place(factors, out)
    }

    /// Dropout: `out = mask ⊙ x`, both `n × d`. Applied to the gradient instead of `x`, it is its own backward pass.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn dropout(&self, x: &Self::Matrix, dropout: Dropout, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Dropout in place: `x ⊙= mask`, with `x` `n × d`.
    ///
    /// # Errors
    /// When the device fails.
    fn dropout_in_place(&self, dropout: Dropout, x: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Conversion: `out = x`, rounded to the storage type of `out`. Both are `n × d`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn convert(&self, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Scaled addition: `out += factor · x`. `out` is `n × d` and `x` is `m × d` with `m ≤ n`; if `m < n`, only the
    /// first `m` rows of `out` change.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn add_scaled(&self, factor: f32, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Gathers rows: row `i` of `out` (`ids.len() × d`) becomes row `ids[i]` of `x` (`n × d`).
    ///
    /// # Errors
    /// On shapes that do not fit, or an id out of range.
    fn gather_rows(&self, x: &Self::Matrix, ids: &Self::Ids, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Adds row `i` of `x` (`ids.len() × d`) to row `ids[i]` of `out` (`n × d`), in the order of the ids. This is the
    /// backward pass of [`gather_rows`](Self::gather_rows).
    ///
    /// # Errors
    /// On shapes that do not fit, or an id out of range.
    fn scatter_add_rows(&self, x: &Self::Matrix, ids: &Self::Ids, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Column sums: `out` (`1 × d`) becomes the sum of the rows of `x` (`n × d`).
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn column_sums(&self, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Copies a block of `shape` from `x` to `out`. `from` and `to` are the row and column of its first element in
    /// `x` and `out`.
    ///
    /// # Errors
    /// When a block does not lie inside its matrix.
    fn copy_block(
        &self,
        shape: Shape,
        x: &Self::Matrix,
        from: (usize, usize),
        out: &mut Self::Matrix,
        to: (usize, usize),
    ) -> Result<(), ComputeError>;

    /// Bias and activation in place: `x = activation(x + bias)`, with `x` `n × d` and `bias` `1 × d`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn activate(
        &self,
        activation: Activation,
        bias: Option<&Self::Matrix>,
        x: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Scaled copy: `out = factor · x`, both `n × d`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn scale(&self, factor: f32, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Scales rows: `out = diag(factors)·X`, with `factors` `n × 1` of `f32` and `out` `n × w`. `X` is the `w`
    /// columns of `x` (`n × d`) from the given first column on, bounded as in
    /// [`spmm_columns`](crate::SparseOps::spmm_columns).
    ///
    /// # Errors
    /// On shapes, columns or storage that do not fit.
    fn scale_rows(
        &self,
        factors: &Self::Matrix,
        x: (&Self::Matrix, usize),
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Scales rows in place: `X = diag(factors)·X`, with `factors` `n × 1` of `f32` and `X` `n × d`.
    ///
    /// # Errors
    /// On shapes or storage that do not fit.
    fn scale_rows_in_place(&self, factors: &Self::Matrix, x: &mut Self::Matrix) -> Result<(), ComputeError>;
}
