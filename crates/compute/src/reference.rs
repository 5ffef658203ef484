//! [`Reference`]: every operation directly from its definition, in `f64`, on one thread.
//!
//! Tests compare other backends with it. They also check gradients on it with finite differences: elements of a
//! [`RefMatrix`] can change by 10⁻⁶, which `f32` cannot resolve.

mod attention;
mod lstm;

use std::ops::Range;

use girih_graph_format::{Csr, Matrix};
use girih_random::Key;
use half::bf16;

use self::attention::Shares;
use crate::checks::{self, IdRange};
use crate::{
    Activation, ActivationGrad, AdamStep, AdamUpdate, Attention, AttentionGrads, Backend, ColumnMoments, ComputeError,
    Dropout, Dtype, Epilogue, GlobalIds, NO_COLUMN, SgdUpdate, Shape, SparseOperand, Transpose,
};

/// Reference backend, simple enough to be verified by reading.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// Dense row-major matrix of `f64`.
///
/// With [`Dtype::Bf16`], operations, [`set`](Self::set) and uploads round to bf16. With [`Dtype::F32`] nothing is
/// rounded, so that finite differences stay exact.
#[derive(Clone, Debug, PartialEq)]
pub struct RefMatrix {
    shape: Shape,
    dtype: Dtype,
    data: Vec<f64>,
}

impl RefMatrix {
    fn zeros(shape: Shape, dtype: Dtype) -> Self {
        Self { shape, dtype, data: vec![0.0; shape.len()] }
    }

    /// Shape of the matrix.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    fn kind(&self) -> checks::Kind {
        (self.shape, self.dtype)
    }

    /// Element at row `r`, column `c`.
    ///
    /// # Panics
    /// When there is no such element.
    #[must_use]
    pub fn get(&self, r: usize, c: usize) -> f64 {
        self.data[self.position(r, c)]
    }

    /// Overwrites the element at row `r`, column `c`, rounded to the storage type.
    ///
    /// # Panics
    /// When there is no such element.
    pub fn set(&mut self, r: usize, c: usize, value: f64) {
        let position = self.position(r, c);
        self.data[position] = self.rounded(value);
    }

    /// All elements, row by row.
    #[must_use]
    pub fn data(&self) -> &[f64] {
        &self.data
    }

    /// All elements, row by row, mutable. Values written here are not rounded.
    pub fn data_mut(&mut self) -> &mut [f64] {
        &mut self.data
    }

    fn position(&self, r: usize, c: usize) -> usize {
        let Shape { rows, cols } = self.shape;
        assert!(r < rows && c < cols, "element ({r}, {c}) of a {} matrix", self.shape);
        r * cols + c
    }

    fn rounded(&self, value: f64) -> f64 {
        match self.dtype {
            Dtype::F32 => value,
            Dtype::Bf16 => bf16::from_f32(value as f32).to_f64(),
        }
    }

    /// Overwrites every element with `f(row, column, old element)`.
    fn update(&mut self, mut f: impl FnMut(usize, usize, f64) -> f64) {
        for r in 0..self.shape.rows {
            for c in 0..self.shape.cols {
                self.set(r, c, f(r, c, self.get(r, c)));
            }
        }
    }

    /// Element `(r, c)` of the matrix, or of its transpose.
    fn read(&self, transpose: Transpose, r: usize, c: usize) -> f64 {
        match transpose {
            Transpose::No => self.get(r, c),
            Transpose::Yes => self.get(c, r),
        }
    }
}

/// Sparse matrix `L·A·R` as a list of its entries, row by row.
#[derive(Clone, Debug)]
pub struct RefSparse {
    shape: Shape,
    entries: Vec<Entry>,
    /// Offsets of the rows in `entries` (rows + 1 of them).
    indptr: Vec<usize>,
    names: Option<GlobalIds>,
}

/// Stored entry of `A`, with the product of its two scales.
#[derive(Clone, Copy, Debug)]
struct Entry {
    row: usize,
    col: usize,
    value: f64,
    scale: f64,
}

impl RefSparse {
    /// Positions of the entries of row `r`.
    fn row(&self, r: usize) -> Range<usize> {
        self.indptr[r]..self.indptr[r + 1]
    }

    /// Returns `op(L·A·R)·X` (`n_rows × x.cols`). `weights` (`nnz × heads`) replace the values if given.
    fn times(&self, transpose: Transpose, weights: Option<&RefMatrix>, x: &RefMatrix, n_rows: usize) -> RefMatrix {
        let mut product = RefMatrix::zeros(Shape::new(n_rows, x.shape.cols), Dtype::F32);
        for (e, entry) in self.entries.iter().enumerate() {
            let (to, from) = if transpose == Transpose::No { (entry.row, entry.col) } else { (entry.col, entry.row) };
            for c in 0..x.shape.cols {
                let weight = weights.map_or(entry.value, |weights| weights.get(e, c % weights.shape.cols));
                let value = entry.scale * weight;
                product.set(to, c, product.get(to, c) + value * x.get(from, c));
            }
        }
        product
    }
}

/// List of 32-bit integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefIds {
    ids: Vec<u32>,
    range: IdRange,
}

impl RefIds {
    /// The integers.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
}

/// Computes `out = epilogue(result)`.
fn apply_epilogue(epilogue: &Epilogue<'_, RefMatrix>, out: &mut RefMatrix, result: impl Fn(usize, usize) -> f64) {
    apply_to_columns(epilogue, (out, 0..usize::MAX), result);
}

/// As [`apply_epilogue`], but for the given columns of `out`; the others stay.
fn apply_to_columns(
    epilogue: &Epilogue<'_, RefMatrix>,
    (out, columns): (&mut RefMatrix, Range<usize>),
    result: impl Fn(usize, usize) -> f64,
) {
    let cols = out.shape.cols;
    out.update(|r, c, old| {
        if !columns.contains(&c) {
            return old;
        }
        let kept = if epilogue.accumulate { old } else { 0.0 };
        let sum = result(r, c) + kept + epilogue.bias.map_or(0.0, |bias| bias.get(0, c));
        let mask = epilogue
            .dropout
            .map_or(1.0, |dropout| f64::from(dropout.factor(dropout.first_element(cols) + r * cols + c)));
        mask * activated(epilogue.activation, sum)
    });
}

fn activated(activation: Activation, x: f64) -> f64 {
    match activation {
        // `max` would turn NaN into zero.
        Activation::Relu if x < 0.0 => 0.0,
        Activation::Elu if x < 0.0 => x.exp_m1(),
        Activation::Identity | Activation::Relu | Activation::Elu => x,
    }
}

/// Derivative of an epilogue at its result `y`.
fn derivative(slope: ActivationGrad, y: f64) -> f64 {
    match slope.activation {
        Activation::Identity => 1.0,
        Activation::Relu if y > 0.0 => f64::from(slope.kept),
        Activation::Relu => 0.0,
        Activation::Elu if y > 0.0 => 1.0,
        Activation::Elu => y + 1.0,
    }
}

/// Index of the largest element of a row, the first one of equals.
fn largest(x: &RefMatrix, row: usize) -> u32 {
    (1..x.shape.cols).fold(0, |best, c| if x.get(row, c) > x.get(row, best) { c } else { best }) as u32
}

/// Cross-entropy of one row of logits against `class`, and its gradient.
fn softmax_row(logits: &[f64], class: usize) -> (f64, Vec<f64>) {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|z| (z - max).exp()).sum();
    let loss = max + sum.ln() - logits[class];
    let grad = logits.iter().enumerate().map(|(c, z)| (z - max).exp() / sum - f64::from(u8::from(c == class)));
    (loss, grad.collect())
}

/// Cross-entropy of `sigmoid(z)` against `target`, and its gradient.
fn sigmoid_element(z: f64, target: f64) -> (f64, f64) {
    let loss = z.max(0.0) - z * target + (-z.abs()).exp().ln_1p();
    (loss, 1.0 / (1.0 + (-z).exp()) - target)
}

impl Backend for Reference {
    type Matrix = RefMatrix;
    type Sparse = RefSparse;
    type Ids = RefIds;
    type Recording = ();

    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<RefMatrix, ComputeError> {
        checks::allocation(shape, size_of::<f64>())?;
        Ok(RefMatrix::zeros(shape, dtype))
    }

    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<RefMatrix, ComputeError> {
        let mut matrix = RefMatrix::zeros(Shape::new(host.n_rows(), host.n_cols()), dtype);
        self.write(host, &mut matrix)?;
        Ok(matrix)
    }

    fn download(&self, matrix: &RefMatrix) -> Result<Matrix, ComputeError> {
        let values: Vec<f32> = matrix.data.iter().map(|&v| v as f32).collect();
        Matrix::new(matrix.shape.rows, matrix.shape.cols, values)
            .map_err(|error| ComputeError::argument("download", error.to_string()))
    }

    fn write(&self, host: &Matrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::same("write", Shape::new(host.n_rows(), host.n_cols()), out.shape)?;
        out.update(|r, c, _| f64::from(host.row(r)[c]));
        Ok(())
    }

    fn upload_sparse(&self, operand: &SparseOperand<'_>) -> Result<RefSparse, ComputeError> {
        checks::sparse(operand)?;
        let SparseOperand { csr, scales, names, .. } = operand;
        let shape = Shape::new(csr.n_rows(), csr.n_cols());
        let (left, right) = (scales.left.as_deref(), scales.right.as_deref());
        let factor = |scale: Option<&[f32]>, i: usize| scale.map_or(1.0, |scale| f64::from(scale[i]));
        let entries = (0..shape.rows).flat_map(|row| {
            csr.row_entries(row).map(move |(col, value)| {
                let col = col as usize;
                Entry { row, col, value: f64::from(value), scale: factor(left, row) * factor(right, col) }
            })
        });
        let indptr = csr.indptr().iter().map(|&offset| offset as usize).collect();
        Ok(RefSparse { shape, entries: entries.collect(), indptr, names: names.clone() })
    }

    fn upload_ids(&self, ids: &[u32]) -> Result<RefIds, ComputeError> {
        Ok(RefIds { ids: ids.to_vec(), range: IdRange::of(ids) })
    }

    fn shape(&self, matrix: &RefMatrix) -> Shape {
        matrix.shape
    }

    fn dtype(&self, matrix: &RefMatrix) -> Dtype {
        matrix.dtype
    }

    fn sparse_shape(&self, sparse: &RefSparse) -> Shape {
        sparse.shape
    }

    fn nnz(&self, sparse: &RefSparse) -> usize {
        sparse.entries.len()
    }

    fn gemm(
        &self,
        (a, ta): (&RefMatrix, Transpose),
        dropout: Option<Dropout>,
        (b, tb): (&RefMatrix, Transpose),
        epilogue: Epilogue<'_, RefMatrix>,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        checks::gemm((a.shape, ta), (b.shape, tb), epilogue.bias.map(RefMatrix::shape), out.shape)?;
        checks::mask("gemm", &epilogue)?;
        let mut masked = RefMatrix { dtype: Dtype::F32, ..a.clone() };
        if let Some(dropout) = dropout {
            self.dropout_in_place(dropout, &mut masked)?;
        }
        let depth = if ta == Transpose::No { a.shape.cols } else { a.shape.rows };
        apply_epilogue(&epilogue, out, |r, c| (0..depth).map(|k| masked.read(ta, r, k) * b.read(tb, k, c)).sum());
        Ok(())
    }

    fn spmm(
        &self,
        (a, ta): (&RefSparse, Transpose),
        weights: Option<&RefMatrix>,
        x: &RefMatrix,
        epilogue: Epilogue<'_, RefMatrix>,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let (weights_shape, bias_shape) = (weights.map(RefMatrix::shape), epilogue.bias.map(RefMatrix::shape));
        checks::spmm((a.shape, ta), a.entries.len(), weights_shape, x.shape, bias_shape, out.shape)?;
        checks::mask("spmm", &epilogue)?;
        let product = a.times(ta, weights, x, out.shape.rows);
        apply_epilogue(&epilogue, out, |r, c| product.get(r, c));
        Ok(())
    }

    fn spmm_columns(
        &self,
        (a, ta): (&RefSparse, Transpose),
        x: &RefMatrix,
        epilogue: Epilogue<'_, RefMatrix>,
        (out, first): (&mut RefMatrix, usize),
    ) -> Result<(), ComputeError> {
        let bias_shape = epilogue.bias.map(RefMatrix::shape);
        checks::spmm_columns((a.shape, ta), x.shape, bias_shape, (out.shape, first))?;
        checks::mask("spmm_columns", &epilogue)?;
        let product = a.times(ta, None, x, out.shape.rows);
        let columns = first..first + x.shape.cols;
        apply_to_columns(&epilogue, (out, columns), |r, c| product.get(r, c - first));
        Ok(())
    }

    fn epilogue_backward(
        &self,
        slope: ActivationGrad,
        y: &RefMatrix,
        grad: &mut RefMatrix,
        bias_grad: Option<&mut RefMatrix>,
    ) -> Result<(), ComputeError> {
        checks::epilogue_backward(y.shape, grad.shape, bias_grad.as_deref().map(RefMatrix::shape))?;
        grad.update(|r, c, g| g * derivative(slope, y.get(r, c)));
        bias_grad.map_or(Ok(()), |bias_grad| self.column_sums(grad, bias_grad))
    }

    fn dropout(&self, x: &RefMatrix, dropout: Dropout, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::same("dropout", x.shape, out.shape)?;
        let first = dropout.first_element(x.shape.cols);
        out.update(|r, c, _| x.get(r, c) * f64::from(dropout.factor(first + x.position(r, c))));
        Ok(())
    }

    fn dropout_in_place(&self, dropout: Dropout, x: &mut RefMatrix) -> Result<(), ComputeError> {
        let (cols, first) = (x.shape.cols, dropout.first_element(x.shape.cols));
        x.update(|r, c, value| value * f64::from(dropout.factor(first + r * cols + c)));
        Ok(())
    }

    fn add_scaled(&self, factor: f32, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::add_scaled(x.shape, out.shape)?;
        out.update(|r, c, old| if r < x.shape.rows { old + f64::from(factor) * x.get(r, c) } else { old });
        Ok(())
    }

    fn convert(&self, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::same("convert", x.shape, out.shape)?;
        out.update(|r, c, _| x.get(r, c));
        Ok(())
    }

    fn gather_rows(&self, x: &RefMatrix, ids: &RefIds, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::gather_rows(x.shape, ids.range, out.shape)?;
        out.update(|r, c, _| x.get(ids.ids[r] as usize, c));
        Ok(())
    }

    fn scatter_add_rows(&self, x: &RefMatrix, ids: &RefIds, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::scatter_add_rows(x.shape, ids.range, out.shape)?;
        let mut sums = RefMatrix { dtype: Dtype::F32, ..out.clone() };
        for (r, &id) in ids.ids.iter().enumerate() {
            for c in 0..x.shape.cols {
                sums.set(id as usize, c, sums.get(id as usize, c) + x.get(r, c));
            }
        }
        out.update(|r, c, _| sums.get(r, c));
        Ok(())
    }

    fn column_sums(&self, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::column_sums(x.shape, out.shape)?;
        out.update(|_, c, _| (0..x.shape.rows).map(|r| x.get(r, c)).sum());
        Ok(())
    }

    fn softmax_cross_entropy(
        &self,
        logits: &RefMatrix,
        classes: &RefIds,
        rows: &RefIds,
        grad: Option<&mut RefMatrix>,
        loss: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let grad_shape = grad.as_deref().map(RefMatrix::shape);
        checks::softmax_cross_entropy(logits.shape, classes.ids.len(), rows.range, grad_shape, loss.shape)?;
        checks::classes(&classes.ids, &rows.ids, logits.shape.cols)?;
        let (mut total, mut gradient) = (0.0, RefMatrix::zeros(logits.shape, Dtype::F32));
        let n = rows.ids.len() as f64;
        for &row in &rows.ids {
            let row = row as usize;
            let values: Vec<f64> = (0..logits.shape.cols).map(|c| logits.get(row, c)).collect();
            let (row_loss, row_grad) = softmax_row(&values, classes.ids[row] as usize);
            total += row_loss / n;
            for (c, g) in row_grad.into_iter().enumerate() {
                gradient.set(row, c, gradient.get(row, c) + g / n);
            }
        }
        loss.set(0, 0, total);
        if let Some(grad) = grad {
            grad.update(|r, c, _| gradient.get(r, c));
        }
        Ok(())
    }

    fn sigmoid_cross_entropy(
        &self,
        logits: &RefMatrix,
        targets: &RefMatrix,
        rows: &RefIds,
        grad: Option<&mut RefMatrix>,
        loss: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let grad_shape = grad.as_deref().map(RefMatrix::shape);
        checks::sigmoid_cross_entropy(logits.shape, targets.shape, rows.range, grad_shape, loss.shape)?;
        let (mut total, mut gradient) = (0.0, RefMatrix::zeros(logits.shape, Dtype::F32));
        let n = (rows.ids.len() * logits.shape.cols) as f64;
        for &row in &rows.ids {
            let row = row as usize;
            for c in 0..logits.shape.cols {
                let (element_loss, g) = sigmoid_element(logits.get(row, c), targets.get(row, c));
                total += element_loss / n;
                gradient.set(row, c, gradient.get(row, c) + g / n);
            }
        }
        loss.set(0, 0, total);
        if let Some(grad) = grad {
            grad.update(|r, c, _| gradient.get(r, c));
        }
        Ok(())
    }

    fn argmax_rows(&self, x: &RefMatrix) -> Result<Vec<u32>, ComputeError> {
        checks::argmax_rows(x.shape)?;
        Ok((0..x.shape.rows).map(|r| largest(x, r)).collect())
    }

    fn count_correct(&self, x: &RefMatrix, classes: &RefIds, rows: &RefIds) -> Result<u64, ComputeError> {
        checks::count_correct(x.shape, classes.ids.len(), rows.range)?;
        let is_correct = |&&row: &&u32| largest(x, row as usize) == classes.ids[row as usize];
        Ok(rows.ids.iter().filter(is_correct).count() as u64)
    }

    fn adam(&self, step: AdamStep, updates: &mut [AdamUpdate<'_, RefMatrix>]) -> Result<(), ComputeError> {
        for AdamUpdate { param, grad, first, second, .. } in &*updates {
            checks::adam(step.step, param.kind(), grad.kind(), first.kind(), second.kind())?;
        }
        let [lr, beta1, beta2, eps] = [step.lr, step.beta1, step.beta2, step.eps].map(f64::from);
        let (correction1, correction2) = (1.0 - beta1.powf(step.step as f64), 1.0 - beta2.powf(step.step as f64));
        for AdamUpdate { param, grad, first, second, weight_decay } in updates {
            let decay = f64::from(*weight_decay);
            let (direct, through_gradient) = if step.decoupled { (lr * decay, 0.0) } else { (0.0, decay) };
            let gradient = |r, c, weight: f64| grad.get(r, c) + through_gradient * weight;
            first.update(|r, c, m| beta1 * m + (1.0 - beta1) * gradient(r, c, param.get(r, c)));
            second.update(|r, c, v| beta2 * v + (1.0 - beta2) * gradient(r, c, param.get(r, c)).powi(2));
            param.update(|r, c, weight| {
                let (m, v) = (first.get(r, c) / correction1, second.get(r, c) / correction2);
                weight - direct * weight - lr * m / (v.sqrt() + eps)
            });
        }
        Ok(())
    }

    fn sgd(&self, lr: f32, momentum: f32, updates: &mut [SgdUpdate<'_, RefMatrix>]) -> Result<(), ComputeError> {
        for SgdUpdate { param, grad, velocity, .. } in &*updates {
            checks::sgd(param.kind(), grad.kind(), velocity.kind())?;
        }
        for SgdUpdate { param, grad, velocity, weight_decay } in updates {
            let [lr, momentum, decay] = [lr, momentum, *weight_decay].map(f64::from);
            velocity.update(|r, c, v| momentum * v + grad.get(r, c) + decay * param.get(r, c));
            param.update(|r, c, weight| weight - lr * velocity.get(r, c));
        }
        Ok(())
    }

    fn sddmm(&self, a: &RefSparse, x: &RefMatrix, y: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::sddmm(a.shape, a.entries.len(), x.shape, y.shape, out.shape)?;
        let (heads, width) = (out.shape.cols, x.shape.cols);
        out.update(|e, h, _| {
            let Entry { row, col, scale, .. } = a.entries[e];
            scale * (h..width).step_by(heads).map(|c| x.get(row, c) * y.get(col, c)).sum::<f64>()
        });
        Ok(())
    }

    fn segment_softmax(&self, a: &RefSparse, scores: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::segment_softmax(a.entries.len(), scores.shape, None)?;
        let old = scores.clone();
        scores.update(|e, h, score| {
            let of_row = || a.row(a.entries[e].row).map(|e| old.get(e, h));
            let max = of_row().fold(f64::NEG_INFINITY, f64::max);
            (score - max).exp() / of_row().map(|score| (score - max).exp()).sum::<f64>()
        });
        Ok(())
    }

    fn segment_softmax_backward(
        &self,
        a: &RefSparse,
        shares: &RefMatrix,
        grad: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        checks::segment_softmax(a.entries.len(), shares.shape, Some(grad.shape))?;
        let old = grad.clone();
        grad.update(|e, h, g| {
            let mean: f64 = a.row(a.entries[e].row).map(|e| shares.get(e, h) * old.get(e, h)).sum();
            shares.get(e, h) * (g - mean)
        });
        Ok(())
    }

    fn head_dots(&self, x: &RefMatrix, vector: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::head_dots(x.shape, vector.shape, out.shape)?;
        let (heads, width) = (out.shape.cols, x.shape.cols);
        out.update(|r, h, _| (h..width).step_by(heads).map(|c| x.get(r, c) * vector.get(0, c)).sum());
        Ok(())
    }

    fn head_dots_backward(
        &self,
        x: &RefMatrix,
        vector: &RefMatrix,
        grad: &RefMatrix,
        x_grad: Option<&mut RefMatrix>,
        vector_grad: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let x_grad_shape = x_grad.as_deref().map(RefMatrix::shape);
        checks::head_dots_backward(x.shape, vector.shape, grad.shape, x_grad_shape, vector_grad.shape)?;
        let heads = grad.shape.cols;
        vector_grad.update(|_, c, _| (0..x.shape.rows).map(|r| grad.get(r, c % heads) * x.get(r, c)).sum());
        if let Some(x_grad) = x_grad {
            x_grad.update(|r, c, old| old + grad.get(r, c % heads) * vector.get(0, c));
        }
        Ok(())
    }

    fn attention(
        &self,
        attention: &Attention<'_, Self>,
        out: &mut RefMatrix,
        log_sums: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        checks::attention(&attention::shapes(attention), out.shape, log_sums.shape)?;
        let shares = Shares::of(attention);
        let (graph, heads) = (attention.graph, attention.heads);
        out.update(|r, c, _| {
            let term = |e: usize| shares.masked(e, c % heads) * attention.values.get(graph.entries[e].col, c);
            graph.row(r).map(term).sum()
        });
        log_sums.update(|r, h, _| match graph.row(r) {
            entries if entries.is_empty() => 0.0,
            entries => entries.map(|e| shares.scores.get(e, h).exp()).sum::<f64>().ln(),
        });
        Ok(())
    }

    fn attention_backward(
        &self,
        attention: &Attention<'_, Self>,
        results: (&RefMatrix, &RefMatrix),
        grad: &RefMatrix,
        grads: AttentionGrads<'_, RefMatrix>,
    ) -> Result<(), ComputeError> {
        let shapes = attention::shapes(attention);
        let vector_shape = grads.vector.as_deref().map(RefMatrix::shape);
        let grad_shapes = checks::AttentionGradShapes {
            destination: grads.destination.shape,
            source: grads.source.shape,
            vector: vector_shape,
            values: grads.values.shape,
        };
        checks::attention_backward(&shapes, (results.0.shape, results.1.shape), grad.shape, grad_shapes)?;
        Shares::of(attention).backward(attention, grad, grads)
    }

    fn normalize_rows(
        &self,
        eps: f32,
        x: &RefMatrix,
        (gain, bias): (&RefMatrix, &RefMatrix),
        out: &mut RefMatrix,
        moments: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        checks::per_column("normalize_rows", x.shape, &[("gain", gain.shape), ("bias", bias.shape)])?;
        checks::normalize_rows(x.shape, out.shape, moments.shape)?;
        let n = x.shape.cols as f64;
        for r in 0..x.shape.rows {
            let values = || (0..x.shape.cols).map(|c| x.get(r, c));
            let mean = values().sum::<f64>() / n;
            let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
            moments.set(r, 0, mean);
            moments.set(r, 1, 1.0 / (variance + f64::from(eps)).sqrt());
        }
        out.update(|r, c, _| hat_in_row(x, moments, r, c) * gain.get(0, c) + bias.get(0, c));
        Ok(())
    }

    fn normalize_rows_backward(
        &self,
        x: &RefMatrix,
        gain: &RefMatrix,
        moments: &RefMatrix,
        grad: &mut RefMatrix,
        (gain_grad, bias_grad): (&mut RefMatrix, &mut RefMatrix),
    ) -> Result<(), ComputeError> {
        let rows = [("gain", gain.shape), ("gain_grad", gain_grad.shape), ("bias_grad", bias_grad.shape)];
        checks::per_column("normalize_rows_backward", x.shape, &rows)?;
        checks::normalize_rows(x.shape, grad.shape, moments.shape)?;
        let old = grad.clone();
        let hat = |r, c| hat_in_row(x, moments, r, c);
        gain_grad.update(|_, c, _| (0..x.shape.rows).map(|r| old.get(r, c) * hat(r, c)).sum());
        bias_grad.update(|_, c, _| (0..x.shape.rows).map(|r| old.get(r, c)).sum());
        let scaled = |r, c| old.get(r, c) * gain.get(0, c);
        let mean = |r, f: &dyn Fn(usize) -> f64| {
            (0..x.shape.cols).map(|c| scaled(r, c) * f(c)).sum::<f64>() / x.shape.cols as f64
        };
        grad.update(|r, c, _| {
            let (shift, slope) = (mean(r, &|_| 1.0), mean(r, &|c| hat(r, c)));
            moments.get(r, 1) * (scaled(r, c) - shift - hat(r, c) * slope)
        });
        Ok(())
    }

    fn column_squares(&self, x: &RefMatrix, means: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::per_column("column_squares", x.shape, &[("means", means.shape), ("out", out.shape)])?;
        out.update(|_, c, _| (0..x.shape.rows).map(|r| (x.get(r, c) - means.get(0, c)).powi(2)).sum());
        Ok(())
    }

    fn normalize_columns(
        &self,
        moments: ColumnMoments<'_, RefMatrix>,
        x: &RefMatrix,
        (gain, bias): (&RefMatrix, &RefMatrix),
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let rows = [("gain", gain.shape), ("bias", bias.shape)];
        checks::per_column("normalize_columns", x.shape, &[&moments.shapes(self)[..], &rows].concat())?;
        checks::same("normalize_columns", x.shape, out.shape)?;
        out.update(|r, c, _| hat_in_column(&moments, x, r, c) * gain.get(0, c) + bias.get(0, c));
        Ok(())
    }

    fn normalized_products(
        &self,
        moments: ColumnMoments<'_, RefMatrix>,
        x: &RefMatrix,
        grad: &RefMatrix,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let rows = [("out", out.shape)];
        checks::per_column("normalized_products", x.shape, &[&moments.shapes(self)[..], &rows].concat())?;
        checks::same("normalized_products", x.shape, grad.shape)?;
        out.update(|_, c, _| (0..x.shape.rows).map(|r| grad.get(r, c) * hat_in_column(&moments, x, r, c)).sum());
        Ok(())
    }

    fn normalize_columns_backward(
        &self,
        moments: ColumnMoments<'_, RefMatrix>,
        x: &RefMatrix,
        gain: &RefMatrix,
        (shift, slope): (&RefMatrix, &RefMatrix),
        grad: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let rows = [("gain", gain.shape), ("mean of grad", shift.shape), ("mean of products", slope.shape)];
        let operation = "normalize_columns_backward";
        checks::per_column(operation, x.shape, &[&moments.shapes(self)[..], &rows].concat())?;
        checks::same(operation, x.shape, grad.shape)?;
        grad.update(|r, c, grad| {
            let centred = grad - shift.get(0, c) - hat_in_column(&moments, x, r, c) * slope.get(0, c);
            gain.get(0, c) * rstd(&moments, c) * centred
        });
        Ok(())
    }

    fn copy_block(
        &self,
        shape: Shape,
        x: &RefMatrix,
        from: (usize, usize),
        out: &mut RefMatrix,
        to: (usize, usize),
    ) -> Result<(), ComputeError> {
        checks::copy_block(shape, x.shape, from, out.shape, to)?;
        let inside =
            |r: usize, c: usize| (to.0..to.0 + shape.rows).contains(&r) && (to.1..to.1 + shape.cols).contains(&c);
        out.update(|r, c, old| if inside(r, c) { x.get(r - to.0 + from.0, c - to.1 + from.1) } else { old });
        Ok(())
    }

    fn activate(
        &self,
        activation: Activation,
        bias: Option<&RefMatrix>,
        x: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        checks::activate(bias.map(RefMatrix::shape), x.shape)?;
        x.update(|_, c, value| activated(activation, value + bias.map_or(0.0, |bias| bias.get(0, c))));
        Ok(())
    }

    fn set_zero(&self, out: &mut RefMatrix) -> Result<(), ComputeError> {
        out.update(|_, _, _| 0.0);
        Ok(())
    }

    fn scale(&self, factor: f32, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::same("scale", x.shape, out.shape)?;
        out.update(|r, c, _| f64::from(factor) * x.get(r, c));
        Ok(())
    }

    fn scale_rows(
        &self,
        factors: &RefMatrix,
        (x, first): (&RefMatrix, usize),
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        checks::scale_rows((factors.shape, self.dtype(factors)), (x.shape, first), out.shape)?;
        out.update(|r, c, _| factors.get(r, 0) * x.get(r, first + c));
        Ok(())
    }

    fn scale_rows_in_place(&self, factors: &RefMatrix, x: &mut RefMatrix) -> Result<(), ComputeError> {
        checks::row_factors("scale_rows_in_place", (factors.shape, self.dtype(factors)), x.shape.rows)?;
        x.update(|r, _, value| factors.get(r, 0) * value);
        Ok(())
    }

    fn bpr_loss(
        &self,
        triples: &RefMatrix,
        grad: Option<&mut RefMatrix>,
        loss: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        checks::bpr_loss(triples.shape, grad.as_deref().map(RefMatrix::shape), loss.shape)?;
        let n_triples = triples.shape.rows / 3;
        let (mut total, mut gradient) = (0.0, RefMatrix::zeros(triples.shape, Dtype::F32));
        for user in 0..n_triples {
            let (met, other) = (n_triples + user, 2 * n_triples + user);
            let ahead: f64 = (0..triples.shape.cols)
                .map(|c| triples.get(user, c) * (triples.get(met, c) - triples.get(other, c)))
                .sum();
            // log(1 + exp(-ahead)) is the cross-entropy of sigmoid(ahead) against one.
            let (triple_loss, g) = sigmoid_element(ahead, 1.0);
            total += triple_loss / n_triples as f64;
            let g = g / n_triples as f64;
            for c in 0..triples.shape.cols {
                gradient.set(user, c, g * (triples.get(met, c) - triples.get(other, c)));
                gradient.set(met, c, g * triples.get(user, c));
                gradient.set(other, c, -g * triples.get(user, c));
            }
        }
        loss.set(0, 0, total);
        if let Some(grad) = grad {
            grad.update(|r, c, _| gradient.get(r, c));
        }
        Ok(())
    }

    fn l2_penalty(
        &self,
        weight: f32,
        x: &RefMatrix,
        grad: Option<&mut RefMatrix>,
        loss: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        checks::l2_penalty(x.shape, grad.as_deref().map(RefMatrix::shape), loss.shape)?;
        let squares: f64 = x.data.iter().map(|v| v * v).sum();
        loss.set(0, 0, loss.get(0, 0) + f64::from(weight) / 2.0 * squares);
        grad.map_or(Ok(()), |grad| self.scale(weight, x, grad))
    }

    fn top_k_rows(&self, x: &RefMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        checks::top_k_rows(x.shape, Shape::new(excluded.n_rows(), excluded.n_cols()))?;
        let mut found = Vec::with_capacity(x.shape.rows * k);
        for r in 0..x.shape.rows {
            let may_be_named = |&c: &u32| !excluded.row(r).contains(&c) && x.get(r, c as usize) > f64::NEG_INFINITY;
            let mut columns: Vec<u32> = (0..x.shape.cols as u32).filter(may_be_named).collect();
            // The sort keeps equals in the order of their columns; zeros of both signs are equal.
            let descending = |&a: &u32, &b: &u32| x.get(r, b as usize).partial_cmp(&x.get(r, a as usize));
            columns.sort_by(|a, b| descending(a, b).expect("NaN is passed over"));
            columns.resize(columns.len().max(k), NO_COLUMN);
            found.extend(&columns[..k]);
        }
        Ok(found)
    }

    fn zero_ids(&self, len: usize) -> Result<RefIds, ComputeError> {
        checks::allocation(Shape::new(len, 1), size_of::<u32>())?;
        self.upload_ids(&vec![0; len])
    }

    fn segment_max(
        &self,
        a: &RefSparse,
        x: &RefMatrix,
        out: &mut RefMatrix,
        winners: Option<&mut RefIds>,
    ) -> Result<(), ComputeError> {
        let n_winners = winners.as_deref().map(|winners| winners.ids.len());
        checks::segment_max("segment_max", a.shape, x.shape, out.shape, n_winners)?;
        let larger = |old: f64, new: f64| !old.is_nan() && (new > old || new.is_nan());
        let mut found: Vec<Option<usize>> = vec![None; out.shape.len()];
        for entry in &a.entries {
            for c in 0..x.shape.cols {
                let winner = &mut found[entry.row * x.shape.cols + c];
                if winner.is_none_or(|winner| larger(x.get(winner, c), x.get(entry.col, c))) {
                    *winner = Some(entry.col);
                }
            }
        }
        out.update(|r, c, _| found[r * x.shape.cols + c].map_or(0.0, |winner| x.get(winner, c)));
        if let Some(winners) = winners {
            let ids: Vec<u32> = found.into_iter().map(|winner| winner.unwrap_or(0) as u32).collect();
            *winners = self.upload_ids(&ids)?;
        }
        Ok(())
    }

    fn segment_max_backward(
        &self,
        a: &RefSparse,
        winners: &RefIds,
        grad: &RefMatrix,
        x_grad: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        checks::segment_max("segment_max_backward", a.shape, x_grad.shape, grad.shape, Some(winners.ids.len()))?;
        let mut sums = RefMatrix::zeros(x_grad.shape, Dtype::F32);
        for entry in &a.entries {
            for c in 0..grad.shape.cols {
                if winners.ids[grad.position(entry.row, c)] as usize == entry.col {
                    sums.set(entry.col, c, sums.get(entry.col, c) + grad.get(entry.row, c));
                }
            }
        }
        x_grad.update(|r, c, _| sums.get(r, c));
        Ok(())
    }

    fn segment_lstm(
        &self,
        (a, order): (&RefSparse, Option<Key>),
        inputs: &RefMatrix,
        weight: &RefMatrix,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        checks::segment_lstm("segment_lstm", a.shape, inputs.shape, weight.shape, out.shape)?;
        let states: Vec<Vec<f64>> =
            lstm::sequences(a, order).map(|sequence| lstm::last_state(&sequence, inputs, weight)).collect();
        out.update(|r, c, _| states[r][c]);
        Ok(())
    }

    fn segment_lstm_backward(
        &self,
        (a, order): (&RefSparse, Option<Key>),
        (inputs, weight): (&RefMatrix, &RefMatrix),
        grad: &RefMatrix,
        (inputs_grad, weight_grad): (&mut RefMatrix, &mut RefMatrix),
    ) -> Result<(), ComputeError> {
        let (operands, grads) = ((inputs.shape, weight.shape), (inputs_grad.shape, weight_grad.shape));
        checks::segment_lstm_backward(a.shape, operands, grad.shape, grads)?;
        let mut sums = (RefMatrix::zeros(inputs.shape, Dtype::F32), RefMatrix::zeros(weight.shape, Dtype::F32));
        for (row, sequence) in lstm::sequences(a, order).enumerate() {
            let row_grad = (0..grad.shape.cols).map(|c| grad.get(row, c)).collect();
            lstm::add_gradients(&sequence, (inputs, weight), row_grad, &mut sums);
        }
        inputs_grad.update(|r, c, _| sums.0.get(r, c));
        weight_grad.update(|r, c, _| sums.1.get(r, c));
        Ok(())
    }
}

/// `x̂` by the moments of its row.
fn hat_in_row(x: &RefMatrix, moments: &RefMatrix, r: usize, c: usize) -> f64 {
    (x.get(r, c) - moments.get(r, 0)) * moments.get(r, 1)
}

/// `x̂` by the moments of its column.
fn hat_in_column(moments: &ColumnMoments<'_, RefMatrix>, x: &RefMatrix, r: usize, c: usize) -> f64 {
    (x.get(r, c) - moments.means.get(0, c)) * rstd(moments, c)
}

fn rstd(moments: &ColumnMoments<'_, RefMatrix>, c: usize) -> f64 {
    1.0 / (moments.variances.get(0, c) + f64::from(moments.eps)).sqrt()
}
