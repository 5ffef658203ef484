//! [`AttentionOps`]: attention over the entries of a sparse pattern.

use super::relation::check_runs;
use crate::checks::{self, Checked};
use crate::{ComputeError, Dropout, Memory, Shape};

/// Attention over the entries of a sparse pattern, with one or more heads.
///
/// Heads are interleaved: of `width = heads · d` columns, column `k · heads + h` belongs to head `h`. One vector of
/// coefficients therefore serves every group of `heads` columns. For an entry `(i, j)` and a head `h`,
///
/// ```text
/// score   e = leaky(destination[i, h] + source[j, h])                          without `vector` (GAT)
///         e = Σ_k vector[c] · leaky(destination[i, c] + source[j, c])          with it, c = k · heads + h (GATv2)
/// share   α = softmax of e over the entries of row i
/// result  out[i, c] = Σ_j mask(i, j, h) · α · values[j, c]
/// ```
/// Here `leaky(x) = x` for positive `x` and `slope · x` otherwise; [`Dropout::entry_factor`] is the mask. Values and
/// scales of the sparse matrix are ignored. Rows without entries become zero. Sources: Veličković et al., ICLR 2018;
/// Brody et al., ICLR 2022.
pub struct Attention<'a, B: Memory + ?Sized> {
    /// Sparsity pattern (`n × m`): row `i` attends to the columns of its entries.
    pub graph: &'a B::Sparse,
    /// Number of heads. The width of `values` must be a multiple of it.
    pub heads: usize,
    /// Slope of the leaky ReLU below zero.
    pub slope: f32,
    /// Dropout of the attention coefficients, after the softmax.
    pub dropout: Option<Dropout>,
    /// Scores of the destinations (`n × heads`); with `vector`, features of the destinations (`n × width`).
    pub destination: &'a B::Matrix,
    /// Scores of the sources (`m × heads`); with `vector`, features of the sources (`m × width`).
    pub source: &'a B::Matrix,
    /// Score vector of GATv2 (`1 × width`); `None` for GAT.
    pub vector: Option<&'a B::Matrix>,
    /// Values of the sources (`m × width`), summed by the attention coefficients.
    pub values: &'a B::Matrix,
}

/// Gradients of an [`Attention`]. Each has the shape of its operand and is overwritten.
pub struct AttentionGrads<'a, M> {
    /// Gradient of [`Attention::destination`].
    pub destination: &'a mut M,
    /// Gradient of [`Attention::source`].
    pub source: &'a mut M,
    /// Gradient of [`Attention::vector`]; present exactly if the vector is.
    pub vector: Option<&'a mut M>,
    /// Gradient of [`Attention::values`].
    pub values: &'a mut M,
}

/// Softmax over the entries of rows, scores of heads, and fused attention with its backward pass.
pub trait AttentionOps: Memory {
    checked! {
        /// Softmax in place over the entries of each row of the pattern of `a`, for each column of `scores`
        /// (`nnz × heads`).
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn segment_softmax, run_segment_softmax(
            &self,
            a: &Self::Sparse,
            scores: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            let found = self.shape(scores);
            checks::expect("segment_softmax", "scores", found, Shape::new(self.nnz(a), found.cols))
        }

        /// Backward pass of [`segment_softmax`](Self::segment_softmax), in place: `grad = shares ⊙ (grad - Σ shares ⊙
        /// grad)`, with the sum over the entries of each row. `shares` is the result of the softmax; it and `grad` are
        /// `nnz × heads`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn segment_softmax_backward, run_segment_softmax_backward(
            &self,
            a: &Self::Sparse,
            shares: &Self::Matrix,
            grad: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            let found = self.shape(shares);
            checks::expect("segment_softmax", "scores", found, Shape::new(self.nnz(a), found.cols))?;
            checks::expect("segment_softmax", "grad", self.shape(grad), found)
        }

        /// Dot products of rows with a vector, per head: `out[i, h] = Σ_k x[i, c]·vectors[r, c]` with `c = k · heads + h`,
        /// for the rows `i` of run `r`. `runs` lists the first row of each run, and behind them the number of rows. `x` is
        /// `n × (heads·d)`, `vectors` is `R × (heads·d)`, and `out` is `n × heads`.
        ///
        /// # Errors
        /// On shapes or runs that do not fit.
        fn head_dots, run_head_dots(
            &self,
            runs: &[usize],
            x: &Self::Matrix,
            vectors: &Self::Matrix,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_head_dots(self, runs, x, vectors, out)
        }

        /// Backward pass of [`head_dots`](Self::head_dots), with `grad` `n × heads`:
        /// `x_grad[i, c] += grad[i, h]·vectors[r, c]`, if `x_grad` (shaped like `x`) is given. Row `r` of `vector_grads`
        /// (shaped like `vectors`) is overwritten with `Σ_i grad[i, h]·x[i, c]`, over the rows of the run.
        ///
        /// # Errors
        /// On shapes or runs that do not fit.
        fn head_dots_backward, run_head_dots_backward(
            &self,
            runs: &[usize],
            operands: (&Self::Matrix, &Self::Matrix),
            grad: &Self::Matrix,
            x_grad: Option<&mut Self::Matrix>,
            vector_grads: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "head_dots";
            let (x, vectors) = operands;
            check_head_dots(self, runs, x, vectors, grad)?;
            checks::expect(OPERATION, "vector_grads", self.shape(vector_grads), self.shape(vectors))?;
            let x_grad_shape = x_grad.as_deref().map(|x_grad| self.shape(x_grad));
            checks::expect_given(OPERATION, "x_grad", x_grad_shape, self.shape(x))
        }

        /// Attention over a pattern (`n × m`), into `out` (`n × width`). `log_sums` (`n × heads`) receives the
        /// logarithm of the softmax's denominator. The backward pass recomputes the coefficients from it, so that no
        /// array of `nnz` elements is stored.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn attention, run_attention(
            &self,
            attention: &Attention<'_, Self>,
            out: &mut Self::Matrix,
            log_sums: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_attention(self, attention, out, log_sums)
        }

        /// Backward pass of [`attention`](Self::attention), given its results `out` (`n × width`) and `log_sums`
        /// (`n × heads`). `grad` (`n × width`) is the gradient of `out`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn attention_backward, run_attention_backward(
            &self,
            attention: &Attention<'_, Self>,
            results: (&Self::Matrix, &Self::Matrix),
            grad: &Self::Matrix,
            grads: AttentionGrads<'_, Self::Matrix>,
        ) -> Result<(), ComputeError> {
            check_attention(self, attention, results.0, results.1)?;
            check_grads(self, attention, (results.0, grad), &grads)
        }
    }
}

/// Checks the operands of [`AttentionOps::head_dots`].
fn check_head_dots<B: Memory + ?Sized>(
    device: &B,
    runs: &[usize],
    x: &B::Matrix,
    vectors: &B::Matrix,
    out: &B::Matrix,
) -> Checked {
    const OPERATION: &str = "head_dots";
    let (Shape { rows, cols }, heads) = (device.shape(x), device.shape(out).cols);
    check_runs(OPERATION, (runs, rows), ("vectors", device.shape(vectors)), cols)?;
    checks::expect(OPERATION, "out", device.shape(out), Shape::new(rows, heads))?;
    checks::heads(OPERATION, heads, cols)
}

/// Checks the operands of an attention and its results.
fn check_attention<B: Memory + ?Sized>(
    device: &B,
    attention: &Attention<'_, B>,
    out: &B::Matrix,
    log_sums: &B::Matrix,
) -> Checked {
    const OPERATION: &str = "attention";
    let Attention { graph, heads, destination, source, vector, values, .. } = *attention;
    let (Shape { rows, cols }, width) = (device.sparse_shape(graph), device.shape(values).cols);
    checks::expect(OPERATION, "values", device.shape(values), Shape::new(cols, width))?;
    checks::heads(OPERATION, heads, width)?;
    let score_width = if vector.is_some() { width } else { heads };
    checks::expect(OPERATION, "destination", device.shape(destination), Shape::new(rows, score_width))?;
    checks::expect(OPERATION, "source", device.shape(source), Shape::new(cols, score_width))?;
    checks::expect_given(OPERATION, "vector", vector.map(|vector| device.shape(vector)), Shape::new(1, width))?;
    checks::expect(OPERATION, "out", device.shape(out), Shape::new(rows, width))?;
    checks::expect(OPERATION, "log_sums", device.shape(log_sums), Shape::new(rows, heads))
}

/// Checks that each gradient is shaped like its operand or, for `grad`, like the result `out`.
fn check_grads<B: Memory + ?Sized>(
    device: &B,
    attention: &Attention<'_, B>,
    (out, grad): (&B::Matrix, &B::Matrix),
    grads: &AttentionGrads<'_, B::Matrix>,
) -> Checked {
    let like = |name, found: &B::Matrix, operand: &B::Matrix| {
        checks::expect("attention", name, device.shape(found), device.shape(operand))
    };
    like("grad", grad, out)?;
    like("gradient of the destination", grads.destination, attention.destination)?;
    like("gradient of the source", grads.source, attention.source)?;
    match (attention.vector, &grads.vector) {
        (Some(vector), Some(grad)) => like("gradient of the vector", grad, vector)?,
        (None, None) => {}
        _ => return Err(ComputeError::argument("attention", "a vector and its gradient come together or not at all")),
    }
    like("gradient of the values", grads.values, attention.values)
}
