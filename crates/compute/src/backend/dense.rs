//! [`DenseOps`]: dense products, epilogues, and passes over dense matrices.

use crate::checks::{self, Checked};
use crate::{Activation, ActivationGrad, ComputeError, Dropout, Dtype, Epilogue, Function, Memory, Shape, Transpose};

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
    checked! {
        /// Dense product with a fused epilogue: `out = epilogue(op(A)·op(B))`. `op(A)` is `n × k`, `op(B)` is `k × d`,
        /// `out` is `n × d`, and the bias is `1 × d`. With `dropout`, the stored `A` is masked before the product.
        ///
        /// Operands may be `NN`, `NT` or `TN`; `TT` is refused.
        ///
        /// # Errors
        /// On shapes that do not fit, and for `TT`.
        fn gemm, run_gemm(
            &self,
            a: (&Self::Matrix, Transpose),
            dropout: Option<Dropout>,
            b: (&Self::Matrix, Transpose),
            epilogue: Epilogue<'_, Self::Matrix>,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_gemm(self, a, b, epilogue.bias, out)?;
            checks::mask("gemm", &epilogue)
        }

        /// Backward pass of an epilogue, in place: `grad ⊙= slope(y)`, where `y` is the result of the epilogue. `y` and
        /// `grad` are `n × d`. `bias_grad` (`1 × d`), if given, is overwritten with the column sums of the new `grad`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn epilogue_backward, run_epilogue_backward(
            &self,
            slope: ActivationGrad,
            y: &Self::Matrix,
            grad: &mut Self::Matrix,
            bias_grad: Option<&mut Self::Matrix>,
        ) -> Result<(), ComputeError> {
            checks::expect("epilogue_backward", "grad", self.shape(grad), self.shape(y))?;
            check_bias_grad(self, bias_grad.as_deref(), y)
        }

        /// Dropout: `out = mask ⊙ x`, both `n × d`. Applied to the gradient instead of `x`, it is its own backward
        /// pass.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn dropout, run_dropout(
            &self,
            x: &Self::Matrix,
            dropout: Dropout,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            checks::expect("dropout", "out", self.shape(out), self.shape(x))
        }

        /// Conversion: `out = x`, rounded to the storage type of `out`. Both are `n × d`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn convert, run_convert(&self, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError> {
            checks::expect("convert", "out", self.shape(out), self.shape(x))
        }

        /// Scaled addition: `out += factor · x`. `out` is `n × d` and `x` is `m × d` with `m ≤ n`; if `m < n`, only the
        /// first `m` rows of `out` change.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn add_scaled, run_add_scaled(
            &self,
            factor: f32,
            x: &Self::Matrix,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            let (of_x, of_out) = (self.shape(x), self.shape(out));
            checks::expect("add_scaled", "out", of_out, Shape::new(of_out.rows.max(of_x.rows), of_x.cols))
        }

        /// Gathers rows: row `i` of `out` (`ids.len() × d`) becomes row `ids[i]` of `x` (`n × d`).
        ///
        /// # Errors
        /// On shapes that do not fit, or an id out of range.
        fn gather_rows, run_gather_rows(
            &self,
            x: &Self::Matrix,
            ids: &Self::Ids,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            checks::gather_rows(self.shape(x), self.id_range(ids), self.shape(out))
        }

        /// Adds row `i` of `x` (`ids.len() × d`) to row `ids[i]` of `out` (`n × d`), in the order of the ids. This is
        /// the backward pass of [`gather_rows`](Self::gather_rows).
        ///
        /// # Errors
        /// On shapes that do not fit, or an id out of range.
        fn scatter_add_rows, run_scatter_add_rows(
            &self,
            x: &Self::Matrix,
            ids: &Self::Ids,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "scatter_add_rows";
            let (range, of_out) = (self.id_range(ids), self.shape(out));
            checks::expect(OPERATION, "x", self.shape(x), Shape::new(range.len, of_out.cols))?;
            range.within(OPERATION, of_out.rows)
        }

        /// Column sums: `out` (`1 × d`) becomes the sum of the rows of `x` (`n × d`).
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn column_sums, run_column_sums(&self, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError> {
            checks::expect("column_sums", "out", self.shape(out), Shape::new(1, self.shape(x).cols))
        }

        /// Copies a block of `shape` from `x` to `out`. `from` and `to` are the row and column of its first element in
        /// `x` and `out`.
        ///
        /// # Errors
        /// When a block does not lie inside its matrix.
        fn copy_block, run_copy_block(
            &self,
            shape: Shape,
            x: &Self::Matrix,
            from: (usize, usize),
            out: &mut Self::Matrix,
            to: (usize, usize),
        ) -> Result<(), ComputeError> {
            check_block(shape, ("x", self.shape(x), from))?;
            check_block(shape, ("out", self.shape(out), to))
        }

        /// Bias and activation in place: `x = activation(x + bias)`, with `x` `n × d` and `bias` `1 × d`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn activate, run_activate(
            &self,
            activation: Activation,
            bias: Option<&Self::Matrix>,
            x: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            let expected = Shape::new(1, self.shape(x).cols);
            checks::expect_given("activate", "bias", bias.map(|bias| self.shape(bias)), expected)
        }

        /// Element-wise function: `out = f(x)`, both `n × d`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn apply, run_apply(
            &self,
            function: Function,
            x: &Self::Matrix,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            checks::expect("apply", "out", self.shape(out), self.shape(x))
        }

        /// Backward pass of [`apply`](Self::apply), in place: `grad = f'(x) ⊙ grad`, both `n × d`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn apply_backward, run_apply_backward(
            &self,
            function: Function,
            x: &Self::Matrix,
            grad: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            checks::expect("apply", "grad", self.shape(grad), self.shape(x))
        }

        /// Unit complex numbers of angles in radians: the first `d` columns of `out` (`n × 2d`) become the cosines of `x`
        /// (`n × d`), and the others its sines. By default the host computes them.
        ///
        /// # Errors
        /// On shapes that do not fit, or when memory does not suffice.
        fn unit_circle, run_unit_circle(&self, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError> {
            let Shape { rows, cols } = self.shape(x);
            checks::expect("unit_circle", "out", self.shape(out), Shape::new(rows, 2 * cols))
        } else {
            let angles = self.download(x)?;
            let row = |row: usize| {
                let angles = angles.row(row);
                angles.iter().map(|angle| angle.cos()).chain(angles.iter().map(|angle| angle.sin()))
            };
            self.write_made(&mut || (0..angles.n_rows()).flat_map(row).collect(), out)
        }

        /// Scaled copy: `out = factor · x`, both `n × d`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn scale, run_scale(&self, factor: f32, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError> {
            checks::expect("scale", "out", self.shape(out), self.shape(x))
        }

        /// Scales rows: `out = diag(factors)·X`, with `factors` `n × 1` of `f32` and `out` `n × w`. `X` is the `w`
        /// columns of `x` (`n × d`) from the given first column on, bounded as in
        /// [`spmm_columns`](crate::SparseOps::spmm_columns).
        ///
        /// # Errors
        /// On shapes, columns or storage that do not fit.
        fn scale_rows, run_scale_rows(
            &self,
            factors: &Self::Matrix,
            x: (&Self::Matrix, usize),
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "scale_rows";
            let (Shape { rows, cols }, of_out, first) = (self.shape(x.0), self.shape(out), x.1);
            checks::expect(OPERATION, "out", of_out, Shape::new(rows, of_out.cols))?;
            checks::columns(OPERATION, first..first + of_out.cols, cols)?;
            check_factors(self, OPERATION, factors, rows)
        }

        /// Scales rows in place: `X = diag(factors)·X`, with `factors` `n × 1` of `f32` and `X` `n × d`.
        ///
        /// # Errors
        /// On shapes or storage that do not fit.
        fn scale_rows_in_place, run_scale_rows_in_place(
            &self,
            factors: &Self::Matrix,
            x: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_factors(self, "scale_rows_in_place", factors, self.shape(x).rows)
        }
    }

    /// Dropout in place: `x ⊙= mask`, with `x` `n × d`.
    ///
    /// # Errors
    /// When the device fails.
    fn dropout_in_place(&self, dropout: Dropout, x: &mut Self::Matrix) -> Result<(), ComputeError>;

    checked! {
        /// Sum of two dense products with a fused epilogue: `out = epilogue(X·W + Y·V)`, for the pairs `(X, W)` and
        /// `(Y, V)`. `X` is `n × k`, `W` is `k × d`, `Y` is `n × l`, `V` is `l × d`, and `out` is `n × d`. It equals the
        /// product of the concatenation `[X ‖ Y]`, which is not stored.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn gemm_pair, run_gemm_pair(
            &self,
            first: (&Self::Matrix, &Self::Matrix),
            second: (&Self::Matrix, &Self::Matrix),
            epilogue: Epilogue<'_, Self::Matrix>,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            for (x, w) in [first, second] {
                check_gemm(self, (x, Transpose::No), (w, Transpose::No), epilogue.bias, out)?;
            }
            checks::mask("gemm", &epilogue)
        } else {
            let no = Transpose::No;
            let before = Epilogue { accumulate: epilogue.accumulate, ..Epilogue::default() };
            self.gemm((first.0, no), None, (first.1, no), before, out)?;
            self.gemm((second.0, no), None, (second.1, no), Epilogue { accumulate: true, ..epilogue }, out)
        }

        /// Dense product followed by the backward pass of an epilogue: `G = (op(A)·op(B)) ⊙ slope(Y)` and
        /// `out = diag(factors)·G`. `op(A)` is `n × k`, `op(B)` is `k × w`, `out` is `n × w`, and `factors` is `n × 1`.
        /// `Y` is the `w` columns of `y` (`n × d`) from `first` on, bounded as in
        /// [`spmm_columns`](crate::SparseOps::spmm_columns). `bias_grad` (`1 × w`), if given, is overwritten with the
        /// column sums of `G`.
        ///
        /// # Errors
        /// On shapes, columns or storage that do not fit.
        fn gemm_backward, run_gemm_backward(
            &self,
            a: (&Self::Matrix, Transpose),
            b: (&Self::Matrix, Transpose),
            epilogue_grad: EpilogueGrad<'_, Self::Matrix>,
            out: &mut Self::Matrix,
            bias_grad: Option<&mut Self::Matrix>,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "gemm_backward";
            let EpilogueGrad { y, first, factors, .. } = epilogue_grad;
            let (of_y, of_out) = (self.shape(y), self.shape(out));
            checks::expect(OPERATION, "out", of_out, Shape::new(of_y.rows, of_out.cols))?;
            checks::columns(OPERATION, first..first + of_out.cols, of_y.cols)?;
            factors.map_or(Ok(()), |factors| check_factors(self, OPERATION, factors, of_y.rows))?;
            check_gemm(self, a, b, None, out)?;
            check_bias_grad(self, bias_grad.as_deref(), out)
        } else {
            let (EpilogueGrad { slope, y, first, factors }, shape) = (epilogue_grad, self.shape(out));
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

        /// Elements in row-major order as a matrix of another shape: rows of one are blocks of columns of the other. `x` is
        /// `n × k·d` and `out` is `n·k × d`, or the other way round.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn reshape, run_reshape(&self, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError> {
            let (of_x, of_out) = (self.shape(x), self.shape(out));
            let (narrow, wide) = if of_x.cols < of_out.cols { (of_x, of_out) } else { (of_out, of_x) };
            if of_x.len() == of_out.len() && wide.cols.is_multiple_of(narrow.cols.max(1)) {
                Ok(())
            } else {
                let what = format!("x is {of_x} and out {of_out}; rows of one are blocks of columns of the other");
                Err(ComputeError::argument("reshape", what))
            }
        } else {
            let (of_x, of_out) = (self.shape(x), self.shape(out));
            let width = of_x.cols.min(of_out.cols);
            for block in 0..of_x.len() / width.max(1) {
                let place = |cols: usize| (block / (cols / width), block % (cols / width) * width);
                self.copy_block(Shape::new(1, width), x, place(of_x.cols), out, place(of_out.cols))?;
            }
            Ok(())
        }

        /// Dense product with scaled rows: `out = diag(factors)·op(A)·op(B)`. `op(A)` is `n × k`, `op(B)` is `k × d`,
        /// `out` is `n × d`, and `factors` is `n × 1` of `f32`.
        ///
        /// # Errors
        /// On shapes or storage that do not fit.
        fn gemm_scaled, run_gemm_scaled(
            &self,
            factors: &Self::Matrix,
            a: (&Self::Matrix, Transpose),
            b: (&Self::Matrix, Transpose),
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_factors(self, "gemm_scaled", factors, self.shape(out).rows)?;
            check_gemm(self, a, b, None, out)
        } else {
            self.gemm(a, None, b, Epilogue::default(), out)?;
            self.scale_rows_in_place(factors, out)
        }
    }
}

/// Checks the operands of `out = op(A)·op(B)`, and that the bias is one row as wide as `out`.
fn check_gemm<B: Memory + ?Sized>(
    device: &B,
    a: (&B::Matrix, Transpose),
    b: (&B::Matrix, Transpose),
    bias: Option<&B::Matrix>,
    out: &B::Matrix,
) -> Checked {
    const OPERATION: &str = "gemm";
    if (a.1, b.1) == (Transpose::Yes, Transpose::Yes) {
        let what = "both operands are transposed; exchange them and transpose the result";
        return Err(ComputeError::argument(OPERATION, what));
    }
    let [left, right] = [a, b].map(|(matrix, transpose)| checks::read(device.shape(matrix), transpose));
    checks::expect(OPERATION, "op(b)", right, Shape::new(left.cols, right.cols))?;
    checks::expect(OPERATION, "out", device.shape(out), Shape::new(left.rows, right.cols))?;
    checks::expect_given(OPERATION, "bias", bias.map(|bias| device.shape(bias)), Shape::new(1, right.cols))
}

/// Checks that the gradient of a bias is one row as wide as `y`.
fn check_bias_grad<B: Memory + ?Sized>(device: &B, bias_grad: Option<&B::Matrix>, y: &B::Matrix) -> Checked {
    let (found, expected) = (bias_grad.map(|bias_grad| device.shape(bias_grad)), Shape::new(1, device.shape(y).cols));
    checks::expect_given("epilogue_backward", "bias_grad", found, expected)
}

/// Checks that `factors` is `n_rows × 1` of `f32`.
fn check_factors<B: Memory + ?Sized>(
    device: &B,
    operation: &'static str,
    factors: &B::Matrix,
    n_rows: usize,
) -> Checked {
    checks::expect(operation, "factors", device.shape(factors), Shape::new(n_rows, 1))?;
    match device.dtype(factors) {
        Dtype::F32 => Ok(()),
        dtype => {
            let what = format!("factors are stored as {}; store them as f32", dtype.name());
            Err(ComputeError::argument(operation, what))
        }
    }
}

/// Checks that a block of `shape` at `(row, col)` lies inside the matrix `name` of shape `whole`.
fn check_block(shape: Shape, (name, whole, (row, col)): (&'static str, Shape, (usize, usize))) -> Checked {
    let fits = |start: usize, n: usize, end: usize| start.checked_add(n).is_some_and(|last| last <= end);
    if fits(row, shape.rows, whole.rows) && fits(col, shape.cols, whole.cols) {
        return Ok(());
    }
    let what = format!("a block of {shape} at ({row}, {col}) does not lie inside {name}, which is {whole}");
    Err(ComputeError::argument("copy_block", what))
}
