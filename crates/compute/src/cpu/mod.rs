//! [`Cpu`]: backend on all cores of the machine, through rayon's current pool.
//!
//! This file checks operands and passes typed slices to the modules that compute:
//!
//! - `spmm`, `gemm`: products, which take most of the time; `panels`, `schedule`, `sparse` and `simd` serve them.
//! - `elementwise`, `columns`, `rows`, `top_k`, `loss`, `bpr`, `optim`: memory-bound passes over matrices.
//! - `segment_max`, `segment_lstm`: aggregations other than sums, over the same patterns.
//! - `matrix`, `element`, `chunks`: storage, its element types, and chunks of fixed size, so that results do not
//!   depend on the number of threads.

mod attention;
mod bpr;
mod chunks;
mod columns;
mod element;
mod elementwise;
mod entries;
mod epilogue;
mod exp;
mod gemm;
mod heads;
mod loss;
mod machine;
mod mask;
mod matrix;
mod normalize;
mod optim;
mod panels;
mod prefetch;
mod rows;
mod schedule;
mod scratch;
mod segment_lstm;
mod segment_max;
mod simd;
mod sparse;
mod spmm;
#[cfg(test)]
mod tests;
mod top_k;

use girih_graph_format::{Csr, Matrix};
use girih_random::Key;

use self::element::{Element, as_f32, typed};
use self::machine::Machine;
pub use self::matrix::CpuMatrix;
pub use self::sparse::CpuSparse;
pub use self::spmm::CpuTiles;
use crate::checks::{self, IdRange};
use crate::{
    Activation, ActivationGrad, AdamStep, AdamUpdate, Attention, AttentionGrads, Backend, ColumnMoments, ComputeError,
    Dropout, Dtype, Epilogue, SgdUpdate, Shape, SparseOperand, Transpose,
};

/// CPU backend.
#[derive(Debug)]
pub struct Cpu {
    machine: Machine,
}

impl Cpu {
    /// Creates the backend, and detects instruction set and cache sizes.
    #[must_use]
    pub fn new() -> Self {
        Self { machine: Machine::detect() }
    }

    /// Creates the backend, with `storage` as the type of gathered rows for `f32` operands of sparse products. With
    /// [`Dtype::Bf16`], each row times its right factor is rounded once, on its way into a panel. Half the bytes then
    /// travel from cache and memory. Sums, results and all other operations stay `f32`. Operands stored as bf16 are
    /// always gathered as bf16.
    #[must_use]
    pub fn gathering(mut self, storage: Dtype) -> Self {
        self.machine.gathered = storage;
        self
    }

    /// Name of the vector instruction set that the kernels use.
    #[must_use]
    pub fn instruction_set(&self) -> &'static str {
        self.machine.isa.name()
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

/// List of 32-bit integers in main memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuIds {
    ids: Vec<u32>,
    range: IdRange,
}

impl Backend for Cpu {
    type Matrix = CpuMatrix;
    type Sparse = CpuSparse;
    type Ids = CpuIds;
    type Recording = ();

    fn name(&self) -> String {
        "cpu".to_owned()
    }

    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<CpuMatrix, ComputeError> {
        checks::allocation(shape, dtype.n_bytes())?;
        Ok(CpuMatrix::zeros(shape, dtype))
    }

    fn resize(&self, matrix: &mut CpuMatrix, shape: Shape) -> bool {
        matrix.resize(shape)
    }

    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<CpuMatrix, ComputeError> {
        if dtype == Dtype::F32 {
            return Ok(CpuMatrix::shared(host));
        }
        let mut matrix = self.zeros(Shape::new(host.n_rows(), host.n_cols()), dtype)?;
        matrix.write_all(host.data());
        Ok(matrix)
    }

    fn download(&self, matrix: &CpuMatrix) -> Result<Matrix, ComputeError> {
        let Shape { rows, cols } = matrix.shape();
        let mut values = vec![0.0; rows * cols];
        typed!(x = matrix.storage() => elementwise::convert(x, &mut values));
        Matrix::new(rows, cols, values).map_err(|error| ComputeError::argument("download", error.to_string()))
    }

    fn write(&self, host: &Matrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::same("write", Shape::new(host.n_rows(), host.n_cols()), out.shape())?;
        out.write_all(host.data());
        Ok(())
    }

    fn write_rows(&self, fill: &(dyn Fn(usize, &mut [f32]) + Sync), out: &mut CpuMatrix) -> Result<(), ComputeError> {
        out.write_rows(fill);
        Ok(())
    }

    fn upload_sparse(&self, operand: &SparseOperand<'_>) -> Result<CpuSparse, ComputeError> {
        checks::sparse(operand)?;
        CpuSparse::new(operand)
    }

    fn upload_ids(&self, ids: &[u32]) -> Result<CpuIds, ComputeError> {
        Ok(CpuIds { ids: ids.to_vec(), range: IdRange::of(ids) })
    }

    fn shape(&self, matrix: &CpuMatrix) -> Shape {
        matrix.shape()
    }

    fn dtype(&self, matrix: &CpuMatrix) -> Dtype {
        matrix.dtype()
    }

    fn sparse_shape(&self, sparse: &CpuSparse) -> Shape {
        sparse.shape()
    }

    fn nnz(&self, sparse: &CpuSparse) -> usize {
        sparse.nnz()
    }

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

    fn spmm(
        &self,
        (a, ta): (&CpuSparse, Transpose),
        weights: Option<&CpuMatrix>,
        x: &CpuMatrix,
        epilogue: Epilogue<'_, CpuMatrix>,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (weights_shape, bias_shape) = (weights.map(CpuMatrix::shape), epilogue.bias.map(CpuMatrix::shape));
        checks::spmm((a.shape(), ta), a.nnz(), weights_shape, x.shape(), bias_shape, out.shape())?;
        checks::mask("spmm", &epilogue)?;
        spmm::multiply(&self.machine, (a, ta), weights, x, &epilogue, out);
        Ok(())
    }

    fn spmm_columns(
        &self,
        (a, ta): (&CpuSparse, Transpose),
        x: &CpuMatrix,
        epilogue: Epilogue<'_, CpuMatrix>,
        (out, first): (&mut CpuMatrix, usize),
    ) -> Result<(), ComputeError> {
        let bias_shape = epilogue.bias.map(CpuMatrix::shape);
        checks::spmm_columns((a.shape(), ta), x.shape(), bias_shape, (out.shape(), first))?;
        checks::mask("spmm_columns", &epilogue)?;
        spmm::multiply_columns(&self.machine, (a, ta), x, &epilogue, (out, first));
        Ok(())
    }

    fn spmm_in_place(&self, (a, ta): (&CpuSparse, Transpose), x: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::spmm((a.shape(), ta), a.nnz(), None, x.shape(), None, x.shape())?;
        spmm::multiply_in_place(&self.machine, (a, ta), x);
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

    fn softmax_cross_entropy(
        &self,
        logits: &CpuMatrix,
        classes: &CpuIds,
        rows: &CpuIds,
        grad: Option<&mut CpuMatrix>,
        loss: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let grad_shape = grad.as_deref().map(CpuMatrix::shape);
        checks::softmax_cross_entropy(logits.shape(), classes.ids.len(), rows.range, grad_shape, loss.shape())?;
        checks::classes(&classes.ids, &rows.ids, logits.shape().cols)?;
        let counts = loss::multiplicities(&rows.ids, logits.shape().rows);
        let (isa, classes, counts) = (self.machine.isa, &classes.ids[..], &counts[..]);
        let mean = match grad {
            None => {
                typed!(z = logits.storage() => loss::softmax_cross_entropy::<_, f32>(isa, z, classes, counts, None))
            }
            Some(grad) => typed!(z = logits.storage(), grad = grad.storage_mut() =>
                loss::softmax_cross_entropy(isa, z, classes, counts, Some(grad))),
        };
        loss.write_all(&[mean as f32]);
        Ok(())
    }

    fn sigmoid_cross_entropy(
        &self,
        logits: &CpuMatrix,
        targets: &CpuMatrix,
        rows: &CpuIds,
        grad: Option<&mut CpuMatrix>,
        loss: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let grad_shape = grad.as_deref().map(CpuMatrix::shape);
        checks::sigmoid_cross_entropy(logits.shape(), targets.shape(), rows.range, grad_shape, loss.shape())?;
        let counts = &loss::multiplicities(&rows.ids, logits.shape().rows)[..];
        let (isa, z, targets) = (self.machine.isa, logits.storage(), targets.storage());
        let mean = match grad {
            None => typed!(z = z, t = targets => loss::sigmoid_cross_entropy::<_, _, f32>(isa, z, t, counts, None)),
            Some(grad) => typed!(z = z, t = targets, grad = grad.storage_mut() =>
                loss::sigmoid_cross_entropy(isa, z, t, counts, Some(grad))),
        };
        loss.write_all(&[mean as f32]);
        Ok(())
    }

    fn argmax_rows(&self, x: &CpuMatrix) -> Result<Vec<u32>, ComputeError> {
        checks::argmax_rows(x.shape())?;
        Ok(typed!(values = x.storage() => rows::argmax(values, x.shape().cols)))
    }

    fn count_correct(&self, x: &CpuMatrix, classes: &CpuIds, rows: &CpuIds) -> Result<u64, ComputeError> {
        checks::count_correct(x.shape(), classes.ids.len(), rows.range)?;
        let cols = x.shape().cols;
        Ok(typed!(values = x.storage() => rows::count_correct(values, cols, &classes.ids, &rows.ids)))
    }

    fn adam(&self, step: AdamStep, updates: &mut [AdamUpdate<'_, CpuMatrix>]) -> Result<(), ComputeError> {
        for AdamUpdate { param, grad, first, second, .. } in &*updates {
            checks::adam(step.step, param.kind(), grad.kind(), first.kind(), second.kind())?;
        }
        updates.iter_mut().for_each(|update| optim::adam(step, update));
        Ok(())
    }

    fn sgd(&self, lr: f32, momentum: f32, updates: &mut [SgdUpdate<'_, CpuMatrix>]) -> Result<(), ComputeError> {
        for SgdUpdate { param, grad, velocity, .. } in &*updates {
            checks::sgd(param.kind(), grad.kind(), velocity.kind())?;
        }
        updates.iter_mut().for_each(|update| optim::sgd(lr, momentum, update));
        Ok(())
    }

    fn sddmm(&self, a: &CpuSparse, x: &CpuMatrix, y: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::sddmm(a.shape(), a.nnz(), x.shape(), y.shape(), out.shape())?;
        let (direction, width, heads) = (a.direction(Transpose::No, false), x.shape().cols, out.shape().cols);
        out.write_with(|out| entries::sddmm(direction, &as_f32(x), &as_f32(y), width, heads, out));
        Ok(())
    }

    fn segment_softmax(&self, a: &CpuSparse, scores: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::segment_softmax(a.nnz(), scores.shape(), None)?;
        let (direction, heads) = (a.direction(Transpose::No, false), scores.shape().cols);
        scores.write_with(|scores| entries::softmax(direction, heads, scores));
        Ok(())
    }

    fn segment_softmax_backward(
        &self,
        a: &CpuSparse,
        shares: &CpuMatrix,
        grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::segment_softmax(a.nnz(), shares.shape(), Some(grad.shape()))?;
        let (direction, heads) = (a.direction(Transpose::No, false), shares.shape().cols);
        grad.write_with(|grad| entries::softmax_backward(direction, heads, &as_f32(shares), grad));
        Ok(())
    }

    fn head_dots(&self, x: &CpuMatrix, vector: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::head_dots(x.shape(), vector.shape(), out.shape())?;
        let heads = out.shape().cols;
        out.write_with(|out| heads::dots(&as_f32(x), &as_f32(vector), heads, out));
        Ok(())
    }

    fn head_dots_backward(
        &self,
        x: &CpuMatrix,
        vector: &CpuMatrix,
        grad: &CpuMatrix,
        x_grad: Option<&mut CpuMatrix>,
        vector_grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let x_grad_shape = x_grad.as_deref().map(CpuMatrix::shape);
        checks::head_dots_backward(x.shape(), vector.shape(), grad.shape(), x_grad_shape, vector_grad.shape())?;
        let (heads, width, grad) = (grad.shape().cols, x.shape().cols, as_f32(grad));
        vector_grad.write_all(&heads::vector_grad(&as_f32(x), &grad, heads, width));
        if let Some(x_grad) = x_grad {
            x_grad.write_with(|x_grad| heads::add_outer(&as_f32(vector), &grad, heads, x_grad));
        }
        Ok(())
    }

    fn attention(
        &self,
        attention: &Attention<'_, Self>,
        out: &mut CpuMatrix,
        log_sums: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::attention(&attention::shapes(attention), out.shape(), log_sums.shape())?;
        attention::forward(&self.machine, attention, out, log_sums);
        Ok(())
    }

    fn attention_backward(
        &self,
        attention: &Attention<'_, Self>,
        (out, log_sums): (&CpuMatrix, &CpuMatrix),
        grad: &CpuMatrix,
        grads: AttentionGrads<'_, CpuMatrix>,
    ) -> Result<(), ComputeError> {
        let vector_shape = grads.vector.as_deref().map(CpuMatrix::shape);
        let grad_shapes = checks::AttentionGradShapes {
            destination: grads.destination.shape(),
            source: grads.source.shape(),
            vector: vector_shape,
            values: grads.values.shape(),
        };
        let results = (out.shape(), log_sums.shape());
        checks::attention_backward(&attention::shapes(attention), results, grad.shape(), grad_shapes)?;
        attention::backward(&self.machine, attention, (out, log_sums), grad, grads);
        Ok(())
    }

    fn normalize_rows(
        &self,
        eps: f32,
        x: &CpuMatrix,
        (gain, bias): (&CpuMatrix, &CpuMatrix),
        out: &mut CpuMatrix,
        moments: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::per_column("normalize_rows", x.shape(), &[("gain", gain.shape()), ("bias", bias.shape())])?;
        checks::normalize_rows(x.shape(), out.shape(), moments.shape())?;
        let (cols, x, gain, bias) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(bias));
        let operand = normalize::Operand { x: &x, cols, gain: &gain };
        out.write_with(|out| moments.write_with(|moments| normalize::rows(operand, &bias, eps, out, moments)));
        Ok(())
    }

    fn normalize_rows_backward(
        &self,
        x: &CpuMatrix,
        gain: &CpuMatrix,
        moments: &CpuMatrix,
        grad: &mut CpuMatrix,
        (gain_grad, bias_grad): (&mut CpuMatrix, &mut CpuMatrix),
    ) -> Result<(), ComputeError> {
        let rows = [("gain", gain.shape()), ("gain_grad", gain_grad.shape()), ("bias_grad", bias_grad.shape())];
        checks::per_column("normalize_rows_backward", x.shape(), &rows)?;
        checks::normalize_rows(x.shape(), grad.shape(), moments.shape())?;
        let (cols, x, gain, moments) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(moments));
        let operand = normalize::Operand { x: &x, cols, gain: &gain };
        grad.write_with(|grad| {
            let [of_gain, of_bias] = normalize::rows_backward(operand, &moments, grad);
            gain_grad.write_all(&of_gain);
            bias_grad.write_all(&of_bias);
        });
        Ok(())
    }

    fn column_squares(&self, x: &CpuMatrix, means: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::per_column("column_squares", x.shape(), &[("means", means.shape()), ("out", out.shape())])?;
        out.write_all(&normalize::squares(&as_f32(x), &as_f32(means)));
        Ok(())
    }

    fn normalize_columns(
        &self,
        moments: ColumnMoments<'_, CpuMatrix>,
        x: &CpuMatrix,
        (gain, bias): (&CpuMatrix, &CpuMatrix),
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let rows = [("gain", gain.shape()), ("bias", bias.shape())];
        checks::per_column("normalize_columns", x.shape(), &[&moments.shapes(self)[..], &rows].concat())?;
        checks::same("normalize_columns", x.shape(), out.shape())?;
        let (cols, x, gain, bias) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(bias));
        let (means, variances) = (as_f32(moments.means), as_f32(moments.variances));
        let norm = normalize::ColumnNorm::new(&means, &variances, moments.eps);
        out.write_with(|out| norm.apply(normalize::Operand { x: &x, cols, gain: &gain }, &bias, out));
        Ok(())
    }

    fn normalized_products(
        &self,
        moments: ColumnMoments<'_, CpuMatrix>,
        x: &CpuMatrix,
        grad: &CpuMatrix,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let rows = [("out", out.shape())];
        checks::per_column("normalized_products", x.shape(), &[&moments.shapes(self)[..], &rows].concat())?;
        checks::same("normalized_products", x.shape(), grad.shape())?;
        let (means, variances) = (as_f32(moments.means), as_f32(moments.variances));
        let norm = normalize::ColumnNorm::new(&means, &variances, moments.eps);
        out.write_all(&norm.products(&as_f32(x), x.shape().cols, &as_f32(grad)));
        Ok(())
    }

    fn normalize_columns_backward(
        &self,
        moments: ColumnMoments<'_, CpuMatrix>,
        x: &CpuMatrix,
        gain: &CpuMatrix,
        (shift, slope): (&CpuMatrix, &CpuMatrix),
        grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let rows = [("gain", gain.shape()), ("mean of grad", shift.shape()), ("mean of products", slope.shape())];
        let operation = "normalize_columns_backward";
        checks::per_column(operation, x.shape(), &[&moments.shapes(self)[..], &rows].concat())?;
        checks::same(operation, x.shape(), grad.shape())?;
        let (cols, x, gain, shift, slope) = (x.shape().cols, as_f32(x), as_f32(gain), as_f32(shift), as_f32(slope));
        let (means, variances) = (as_f32(moments.means), as_f32(moments.variances));
        let norm = normalize::ColumnNorm::new(&means, &variances, moments.eps);
        let operand = normalize::Operand { x: &x, cols, gain: &gain };
        grad.write_with(|grad| norm.backward(operand, [&shift, &slope], grad));
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

    fn set_zero(&self, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        typed!(out = out.storage_mut() => elementwise::set_zero(out));
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

    fn bpr_loss(
        &self,
        triples: &CpuMatrix,
        grad: Option<&mut CpuMatrix>,
        loss: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::bpr_loss(triples.shape(), grad.as_deref().map(CpuMatrix::shape), loss.shape())?;
        let n_triples = triples.shape().rows / 3;
        let mean = match grad {
            None => typed!(rows = triples.storage() => bpr::loss(rows, n_triples)),
            Some(grad) => typed!(rows = triples.storage(), grad = grad.storage_mut() =>
                bpr::loss_with_grad(rows, n_triples, grad)),
        };
        loss.write_all(&[mean as f32]);
        Ok(())
    }

    fn l2_penalty(
        &self,
        weight: f32,
        x: &CpuMatrix,
        grad: Option<&mut CpuMatrix>,
        loss: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::l2_penalty(x.shape(), grad.as_deref().map(CpuMatrix::shape), loss.shape())?;
        let squares = typed!(x = x.storage() => elementwise::sum_of_squares(x));
        let before = typed!(loss = loss.storage() => f64::from(loss[0].to_f32()));
        loss.write_all(&[(before + f64::from(weight) / 2.0 * squares) as f32]);
        grad.map_or(Ok(()), |grad| self.scale(weight, x, grad))
    }

    fn top_k_rows(&self, x: &CpuMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        checks::top_k_rows(x.shape(), Shape::new(excluded.n_rows(), excluded.n_cols()))?;
        Ok(typed!(values = x.storage() => top_k::rows(values, x.shape().cols, k, excluded)))
    }

    fn zero_ids(&self, len: usize) -> Result<CpuIds, ComputeError> {
        checks::allocation(Shape::new(len, 1), size_of::<u32>())?;
        Ok(CpuIds { ids: vec![0; len], range: IdRange { len, end: u64::from(len > 0) } })
    }

    fn segment_max(
        &self,
        a: &CpuSparse,
        x: &CpuMatrix,
        out: &mut CpuMatrix,
        winners: Option<&mut CpuIds>,
    ) -> Result<(), ComputeError> {
        let n_winners = winners.as_deref().map(|winners| winners.ids.len());
        checks::segment_max("segment_max", a.shape(), x.shape(), out.shape(), n_winners)?;
        let (direction, cols) = (a.direction(Transpose::No, false), x.shape().cols);
        let winners = winners.map(|winners| {
            winners.range.end = x.shape().rows as u64;
            &mut winners.ids[..]
        });
        typed!(x = x.storage(), out = out.storage_mut() => segment_max::forward(direction, x, cols, out, winners));
        Ok(())
    }

    fn segment_max_backward(
        &self,
        a: &CpuSparse,
        winners: &CpuIds,
        grad: &CpuMatrix,
        x_grad: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let n_winners = Some(winners.ids.len());
        checks::segment_max("segment_max_backward", a.shape(), x_grad.shape(), grad.shape(), n_winners)?;
        let (direction, winners, cols) = (a.direction(Transpose::Yes, false), &winners.ids[..], grad.shape().cols);
        typed!(grad = grad.storage(), out = x_grad.storage_mut() =>
            segment_max::backward(direction, winners, grad, cols, out));
        Ok(())
    }

    fn segment_lstm(
        &self,
        (a, order): (&CpuSparse, Option<Key>),
        inputs: &CpuMatrix,
        weight: &CpuMatrix,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        checks::segment_lstm("segment_lstm", a.shape(), inputs.shape(), weight.shape(), out.shape())?;
        let pattern = (a.direction(Transpose::No, false).csr, a.names());
        segment_lstm::forward(&self.machine, (pattern, order), inputs, weight, out);
        Ok(())
    }

    fn segment_lstm_backward(
        &self,
        (a, order): (&CpuSparse, Option<Key>),
        (inputs, weight): (&CpuMatrix, &CpuMatrix),
        grad: &CpuMatrix,
        (inputs_grad, weight_grad): (&mut CpuMatrix, &mut CpuMatrix),
    ) -> Result<(), ComputeError> {
        let (operands, grads) = ((inputs.shape(), weight.shape()), (inputs_grad.shape(), weight_grad.shape()));
        checks::segment_lstm_backward(a.shape(), operands, grad.shape(), grads)?;
        let pattern = (a.direction(Transpose::No, false).csr, a.names());
        let grads = segment_lstm::Grads { inputs: inputs_grad, weight: weight_grad };
        segment_lstm::backward(&self.machine, (pattern, order), (inputs, weight), grad, grads);
        Ok(())
    }
}
