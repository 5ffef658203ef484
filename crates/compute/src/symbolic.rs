//! [`Symbolic`]: a backend that counts bytes, operations and seconds, and computes nothing.
//!
//! A dry run of a training step on it predicts the step's memory and time. Matrices have shapes but no elements. Each
//! operation adds the bytes that it would move and the arithmetic that it would do. The plan thus follows the real
//! run operation for operation.

mod clock;
mod cuda;
mod rates;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use girih_graph_format::{Csr, Matrix};
use girih_random::Key;

use crate::{
    Activation, ActivationGrad, AdamStep, AdamUpdate, Attention, AttentionGrads, Backend, ColumnMoments, ComputeError,
    Dropout, Dtype, Epilogue, EpilogueGrad, NO_COLUMN, SgdUpdate, Shape, SparseOperand, Transpose,
};

pub use clock::SymbolicClock;
use rates::Speed;
pub use rates::{BlockKind, BlockSeconds, ByDtype, EntrySeconds, GpuRates, Rates};

/// Accumulated cost of the operations of a symbolic device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Bytes of the live matrices.
    pub live_bytes: u64,
    /// Peak of the live bytes, including scratch memory of operations.
    pub peak_bytes: u64,
    /// Bytes moved by operations.
    pub moved_bytes: f64,
    /// Floating-point operations.
    pub flops: f64,
    /// Simulated seconds of all operations, one after the other. With ranks, they include the device's waits for
    /// exchanges.
    pub seconds: f64,
    /// Simulated seconds of the operations alone, without waits.
    pub computed_seconds: f64,
    /// Part of `computed_seconds` in products with sparse matrices.
    pub product_seconds: f64,
    /// Seconds of exchanges with other ranks, including the part that overlaps operations.
    pub exchange_seconds: f64,
}

/// Symbolic device: matrices have only shapes, and operations add to counts.
#[derive(Debug)]
pub struct Symbolic {
    speed: Speed,
    /// If true, counts allocations of a CUDA device besides matrices. The CPU's scratch memory is small and not
    /// counted.
    cuda: bool,
    /// Storage type of per-node results.
    activations: Dtype,
    cost: Arc<Mutex<Cost>>,
}

/// Symbolic dense matrix: a shape, whose bytes count as live until it is dropped.
#[derive(Debug)]
pub struct SymbolicMatrix {
    shape: Shape,
    dtype: Dtype,
    /// Allocated bytes: those of the elements and, on a CUDA device, of the padding between rows.
    allocated: u64,
    cost: Arc<Mutex<Cost>>,
}

/// Symbolic sparse matrix: a shape and a number of entries. Its bytes count as live until it is dropped.
#[derive(Debug)]
pub struct SymbolicSparse {
    shape: Shape,
    nnz: usize,
    weighted: bool,
    symmetric: bool,
    kind: BlockKind,
    /// Stands for the arrays, to count their bytes.
    _arrays: SymbolicMatrix,
    /// Stands for the arrays of the transpose, created at first use.
    transpose: OnceLock<SymbolicMatrix>,
    /// Stands for the dense blocks of the matrix and of its transpose, created by the first product that searches for
    /// them.
    tiles: [OnceLock<SymbolicMatrix>; 2],
}

impl SymbolicSparse {
    /// The matrix, marked as a block of this kind.
    #[must_use]
    pub fn of_kind(self, kind: BlockKind) -> Self {
        Self { kind, ..self }
    }
}

impl Symbolic {
    /// Symbolic CPU with the given rates.
    #[must_use]
    pub fn new(rates: Rates) -> Self {
        Self { speed: Speed::Processor(rates), cuda: false, activations: Dtype::F32, cost: Arc::default() }
    }

    /// Symbolic CUDA device that stores per-node results as `activations`. Without rates, only memory counts and all
    /// seconds are zero.
    #[must_use]
    pub fn cuda(activations: Dtype, rates: Option<GpuRates>) -> Self {
        let speed = rates.map_or(Speed::Unknown, Speed::Card);
        Self { speed, cuda: true, activations, cost: Arc::default() }
    }

    /// Clock of the device, advanced by its operations.
    #[must_use]
    pub fn clock(&self) -> SymbolicClock {
        SymbolicClock(Arc::clone(&self.cost))
    }

    /// Cost of all operations so far.
    #[must_use]
    pub fn cost(&self) -> Cost {
        *self.cost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Row stride in bytes of a dense matrix with `cols` columns.
    #[must_use]
    pub fn stride(&self, cols: usize, dtype: Dtype) -> usize {
        let pitch = if self.cuda { cuda::pitch(cols) } else { cols };
        pitch * dtype.n_bytes()
    }

    /// Allocates a symbolic dense matrix.
    #[must_use]
    pub fn matrix(&self, shape: Shape, dtype: Dtype) -> SymbolicMatrix {
        // A plan may exceed the memory of any machine.
        let allocated = (shape.rows as u64).saturating_mul(self.stride(shape.cols, dtype) as u64);
        let matrix = SymbolicMatrix { shape, dtype, allocated, cost: Arc::clone(&self.cost) };
        update(&self.cost, |cost| {
            cost.live_bytes = cost.live_bytes.saturating_add(allocated);
            cost.peak_bytes = cost.peak_bytes.max(cost.live_bytes);
        });
        matrix
    }

    /// Allocates a symbolic dense matrix and counts its upload from the host.
    #[must_use]
    pub fn uploaded(&self, shape: Shape, dtype: Dtype) -> SymbolicMatrix {
        let matrix = self.matrix(shape, dtype);
        self.scratch(|| cuda::upload(shape, dtype));
        matrix
    }

    /// Allocates a symbolic sparse matrix. If it is not `symmetric`, its transpose is stored as well.
    #[must_use]
    pub fn sparse(&self, shape: Shape, nnz: usize, weighted: bool, symmetric: bool) -> SymbolicSparse {
        let words = if self.cuda {
            cuda::forward(shape, nnz, weighted).div_ceil(size_of::<u32>())
        } else {
            let words_per_entry = if weighted { 2 } else { 1 };
            let copies = if symmetric { 1 } else { 2 };
            (nnz * words_per_entry + 2 * (shape.rows + 1) + shape.rows + shape.cols) * copies
        };
        let arrays = self.matrix(Shape::new(words, 1), Dtype::F32);
        SymbolicSparse {
            shape,
            nnz,
            weighted,
            symmetric,
            kind: BlockKind::Whole,
            _arrays: arrays,
            transpose: OnceLock::new(),
            tiles: Default::default(),
        }
    }

    /// Counts `bytes` of scratch memory of one operation, on a CUDA device only.
    fn scratch(&self, bytes: impl FnOnce() -> usize) {
        if self.cuda {
            update(&self.cost, |cost| {
                cost.peak_bytes = cost.peak_bytes.max(cost.live_bytes.saturating_add(bytes() as u64));
            });
        }
    }

    /// Allocates the transpose at its first use, on a CUDA device only. A symmetric matrix is its own transpose,
    /// unless other weights replace its values.
    fn need_transpose(&self, a: &SymbolicSparse, other_weights: bool) {
        if self.cuda && (other_weights || !a.symmetric) {
            let words = || Shape::new(cuda::transpose(a).div_ceil(size_of::<u32>()), 1);
            a.transpose.get_or_init(|| self.matrix(words(), Dtype::F32));
        }
    }

    /// Counts an operation that moves `bytes` in order and computes `flops` on operands of `dtype`.
    fn operation(&self, bytes: f64, flops: f64, dtype: Dtype) {
        self.charge(bytes, flops, self.speed.operation(bytes, flops, dtype));
    }

    fn charge(&self, bytes: f64, flops: f64, seconds: f64) {
        update(&self.cost, |cost| {
            cost.moved_bytes += bytes;
            cost.flops += flops;
            cost.seconds += seconds;
            cost.computed_seconds += seconds;
        });
    }

    /// Allocates the dense blocks that a sparse product searches for on a CUDA device, once for each direction.
    fn need_tiles(&self, a: &SymbolicSparse, transposed: bool) {
        if self.cuda && !a.weighted {
            let transposed = transposed && !a.symmetric;
            let shape = if transposed { Shape::new(a.shape.cols, a.shape.rows) } else { a.shape };
            a.tiles[usize::from(transposed)].get_or_init(|| {
                let search = || cuda::tiles(shape, a.nnz) + cuda::tile_search(shape, a.nnz);
                self.scratch(|| search().max(cuda::tile_measurement(a.nnz)));
                self.matrix(Shape::new(cuda::tiles(shape, a.nnz).div_ceil(size_of::<u32>()), 1), Dtype::F32)
            });
        }
    }

    /// Counts a sparse product with `x`. Its result has `rows` rows of `dtype` and, if `adds`, is added to the old
    /// contents.
    fn sparse_product(&self, a: &SymbolicSparse, x: &SymbolicMatrix, (rows, dtype): (usize, Dtype), adds: bool) {
        let gathered = (a.nnz * x.row_bytes()) as f64;
        let flops = 2.0 * a.nnz as f64 * x.shape.cols as f64;
        self.scratch(|| cuda::product(Shape::new(rows, x.shape.rows), a.nnz, x.shape.cols, [x.dtype, dtype]));
        let written = (rows * x.shape.cols * dtype.n_bytes()) as u64;
        let [of_operand, of_result] = [a.kind.operand_passes(), BlockKind::result_passes(adds)].map(|n| n as u64);
        let streamed = (of_operand * x.n_bytes() + of_result * written) as f64;
        let seconds = self.speed.gather(a.kind, a.nnz as f64, x.shape.cols, x.dtype)
            + self.speed.operation(streamed, 0.0, x.dtype);
        self.charge(gathered + streamed, flops, seconds);
        update(&self.cost, |cost| cost.product_seconds += seconds);
    }

    /// Counts the gather of `n` rows, in random order, from each of the `gathered` matrices.
    fn gather(&self, n: usize, gathered: &[&SymbolicMatrix]) {
        for x in gathered {
            let seconds = self.speed.gather(BlockKind::Whole, n as f64, x.shape.cols, x.dtype);
            self.charge((n * x.row_bytes()) as f64, 0.0, seconds);
        }
    }

    /// Counts an operation that reads or writes each listed matrix once.
    fn pass(&self, matrices: &[&SymbolicMatrix]) {
        self.operation(matrices.iter().map(|m| m.n_bytes() as f64).sum(), 0.0, Dtype::F32);
    }
}

fn update(cost: &Mutex<Cost>, change: impl FnOnce(&mut Cost)) {
    change(&mut cost.lock().unwrap_or_else(PoisonError::into_inner));
}

impl SymbolicMatrix {
    /// Shape of the matrix.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of bytes of an element.
    #[must_use]
    pub fn element_bytes(&self) -> usize {
        self.dtype.n_bytes()
    }

    fn n_bytes(&self) -> u64 {
        (self.shape.len() * self.dtype.n_bytes()) as u64
    }

    fn row_bytes(&self) -> usize {
        self.shape.cols * self.dtype.n_bytes()
    }
}

impl Drop for SymbolicMatrix {
    fn drop(&mut self) {
        let bytes = self.allocated;
        update(&self.cost, |cost| cost.live_bytes = cost.live_bytes.saturating_sub(bytes));
    }
}

impl Backend for Symbolic {
    type Matrix = SymbolicMatrix;
    type Sparse = SymbolicSparse;
    type Ids = SymbolicMatrix;
    type Recording = ();

    fn name(&self) -> String {
        "plan".to_owned()
    }

    fn activations(&self) -> Dtype {
        self.activations
    }

    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<SymbolicMatrix, ComputeError> {
        Ok(self.matrix(shape, dtype))
    }

    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<SymbolicMatrix, ComputeError> {
        Ok(self.uploaded(Shape::new(host.n_rows(), host.n_cols()), dtype))
    }

    fn upload_made(
        &self,
        shape: Shape,
        dtype: Dtype,
        _make: &mut dyn FnMut() -> Vec<f32>,
    ) -> Result<SymbolicMatrix, ComputeError> {
        Ok(self.uploaded(shape, dtype))
    }

    /// Returns zeros, since there are no values.
    fn download(&self, matrix: &SymbolicMatrix) -> Result<Matrix, ComputeError> {
        let Shape { rows, cols } = matrix.shape;
        Matrix::new(rows, cols, vec![0.0; rows * cols]).map_err(|e| ComputeError::argument("download", e.to_string()))
    }

    fn write(&self, _host: &Matrix, _out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        Ok(())
    }

    fn write_made(&self, _make: &mut dyn FnMut() -> Vec<f32>, _out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        Ok(())
    }

    fn write_rows(
        &self,
        _fill: &(dyn Fn(usize, &mut [f32]) + Sync),
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::upload(out.shape, out.dtype));
        self.pass(&[out]);
        Ok(())
    }

    fn upload_sparse(&self, operand: &SparseOperand<'_>) -> Result<SymbolicSparse, ComputeError> {
        let csr = operand.csr;
        let shape = Shape::new(csr.n_rows(), csr.n_cols());
        Ok(self.sparse(shape, csr.nnz(), csr.values().is_some(), operand.symmetric))
    }

    fn upload_ids(&self, ids: &[u32]) -> Result<SymbolicMatrix, ComputeError> {
        Ok(self.matrix(Shape::new(ids.len(), 1), Dtype::F32))
    }

    fn shape(&self, matrix: &SymbolicMatrix) -> Shape {
        matrix.shape
    }

    fn dtype(&self, matrix: &SymbolicMatrix) -> Dtype {
        matrix.dtype
    }

    fn sparse_shape(&self, sparse: &SymbolicSparse) -> Shape {
        sparse.shape
    }

    fn nnz(&self, sparse: &SymbolicSparse) -> usize {
        sparse.nnz
    }

    fn gemm(
        &self,
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

    fn gemm_pair(
        &self,
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
    fn gemm_scaled(
        &self,
        _factors: &SymbolicMatrix,
        a: (&SymbolicMatrix, Transpose),
        b: (&SymbolicMatrix, Transpose),
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.gemm(a, None, b, Epilogue::default(), out)
    }

    /// Counts a product and three passes over its result. Columns of `y` are read in place, and the factors add
    /// nothing.
    fn gemm_backward(
        &self,
        a: (&SymbolicMatrix, Transpose),
        b: (&SymbolicMatrix, Transpose),
        _way_back: EpilogueGrad<'_, SymbolicMatrix>,
        out: &mut SymbolicMatrix,
        _bias_grad: Option<&mut SymbolicMatrix>,
    ) -> Result<(), ComputeError> {
        self.gemm(a, None, b, Epilogue::default(), out)?;
        self.scratch(|| cuda::columns(out.shape));
        self.pass(&[out, out, out]);
        Ok(())
    }

    fn spmm(
        &self,
        (a, ta): (&SymbolicSparse, Transpose),
        weights: Option<&SymbolicMatrix>,
        x: &SymbolicMatrix,
        epilogue: Epilogue<'_, SymbolicMatrix>,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        if ta == Transpose::Yes {
            self.need_transpose(a, weights.is_some());
        }
        if weights.is_none() {
            self.need_tiles(a, ta == Transpose::Yes);
        }
        self.sparse_product(a, x, (out.shape.rows, out.dtype), epilogue.accumulate);
        Ok(())
    }

    fn spmm_columns(
        &self,
        (a, ta): (&SymbolicSparse, Transpose),
        x: &SymbolicMatrix,
        epilogue: Epilogue<'_, SymbolicMatrix>,
        (out, _): (&mut SymbolicMatrix, usize),
    ) -> Result<(), ComputeError> {
        self.spmm((a, ta), None, x, epilogue, out)
    }

    fn spmm_in_place(&self, (a, ta): (&SymbolicSparse, Transpose), x: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        if ta == Transpose::Yes {
            self.need_transpose(a, false);
        }
        self.need_tiles(a, ta == Transpose::Yes);
        // A device that cannot multiply in place holds a second matrix during the product.
        self.scratch(|| {
            x.n_bytes() as usize
                + cuda::product(Shape::new(x.shape.rows, x.shape.rows), a.nnz, x.shape.cols, [x.dtype; 2])
        });
        self.sparse_product(a, x, (x.shape.rows, x.dtype), false);
        Ok(())
    }

    fn epilogue_backward(
        &self,
        _slope: ActivationGrad,
        y: &SymbolicMatrix,
        grad: &mut SymbolicMatrix,
        _bias_grad: Option<&mut SymbolicMatrix>,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(grad.shape));
        self.pass(&[y, grad, grad]);
        Ok(())
    }

    fn dropout(&self, x: &SymbolicMatrix, _dropout: Dropout, out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn dropout_in_place(&self, _dropout: Dropout, x: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[x, x]);
        Ok(())
    }

    fn convert(&self, x: &SymbolicMatrix, out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn add_scaled(&self, _factor: f32, x: &SymbolicMatrix, _out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[x, x, x]);
        Ok(())
    }

    fn gather_rows(
        &self,
        _x: &SymbolicMatrix,
        _ids: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[out, out]);
        Ok(())
    }

    fn scatter_add_rows(
        &self,
        x: &SymbolicMatrix,
        _ids: &SymbolicMatrix,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::scatter(x.shape.rows));
        self.pass(&[x, x, x]);
        Ok(())
    }

    fn column_sums(&self, x: &SymbolicMatrix, _out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(x.shape));
        self.pass(&[x]);
        Ok(())
    }

    fn softmax_cross_entropy(
        &self,
        logits: &SymbolicMatrix,
        _classes: &SymbolicMatrix,
        _rows: &SymbolicMatrix,
        grad: Option<&mut SymbolicMatrix>,
        _loss: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| logits.shape.rows * size_of::<u32>());
        self.pass(&[logits]);
        if let Some(grad) = grad {
            self.pass(&[grad]);
        }
        Ok(())
    }

    fn sigmoid_cross_entropy(
        &self,
        logits: &SymbolicMatrix,
        targets: &SymbolicMatrix,
        _rows: &SymbolicMatrix,
        grad: Option<&mut SymbolicMatrix>,
        _loss: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[logits, targets]);
        if let Some(grad) = grad {
            self.pass(&[grad]);
        }
        Ok(())
    }

    /// Returns zeros, since there are no values to compare.
    fn argmax_rows(&self, x: &SymbolicMatrix) -> Result<Vec<u32>, ComputeError> {
        self.scratch(|| x.shape.rows * size_of::<u32>());
        self.pass(&[x]);
        Ok(vec![0; x.shape.rows])
    }

    /// Returns zero, since there are no values to compare.
    fn count_correct(
        &self,
        x: &SymbolicMatrix,
        _classes: &SymbolicMatrix,
        _rows: &SymbolicMatrix,
    ) -> Result<u64, ComputeError> {
        self.pass(&[x]);
        Ok(0)
    }

    fn adam(&self, _step: AdamStep, updates: &mut [AdamUpdate<'_, SymbolicMatrix>]) -> Result<(), ComputeError> {
        for AdamUpdate { param, grad, first, second, .. } in updates {
            self.pass(&[grad, first, first, second, second, param, param]);
        }
        Ok(())
    }

    fn sgd(&self, _lr: f32, _momentum: f32, updates: &mut [SgdUpdate<'_, SymbolicMatrix>]) -> Result<(), ComputeError> {
        for SgdUpdate { param, grad, velocity, .. } in updates {
            self.pass(&[grad, velocity, velocity, param, param]);
        }
        Ok(())
    }

    fn sddmm(
        &self,
        a: &SymbolicSparse,
        x: &SymbolicMatrix,
        y: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.gather(a.nnz, &[y]);
        self.pass(&[x, out]);
        Ok(())
    }

    fn segment_softmax(&self, _a: &SymbolicSparse, scores: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[scores, scores]);
        Ok(())
    }

    fn segment_softmax_backward(
        &self,
        _a: &SymbolicSparse,
        shares: &SymbolicMatrix,
        grad: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[shares, grad, grad]);
        Ok(())
    }

    fn head_dots(
        &self,
        x: &SymbolicMatrix,
        _vector: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn head_dots_backward(
        &self,
        x: &SymbolicMatrix,
        _vector: &SymbolicMatrix,
        grad: &SymbolicMatrix,
        x_grad: Option<&mut SymbolicMatrix>,
        _vector_grad: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(x.shape));
        self.pass(&[x, grad]);
        if let Some(x_grad) = x_grad {
            self.pass(&[x_grad, x_grad]);
        }
        Ok(())
    }

    fn attention(
        &self,
        attention: &Attention<'_, Self>,
        out: &mut SymbolicMatrix,
        log_sums: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| {
            let Shape { rows, cols } = attention.values.shape;
            cuda::attention(attention.graph.nnz, attention.heads, cols, rows)
        });
        self.gather(attention.graph.nnz, &[attention.source, attention.values]);
        self.pass(&[attention.destination, out, log_sums]);
        Ok(())
    }

    /// Counts one pass over the pattern and one over its transpose.
    fn attention_backward(
        &self,
        attention: &Attention<'_, Self>,
        (out, log_sums): (&SymbolicMatrix, &SymbolicMatrix),
        grad: &SymbolicMatrix,
        grads: AttentionGrads<'_, SymbolicMatrix>,
    ) -> Result<(), ComputeError> {
        let nnz = attention.graph.nnz;
        self.need_transpose(attention.graph, true);
        self.scratch(|| cuda::attention_backward(nnz, attention.heads, grad.shape));
        self.gather(nnz, &[attention.source, attention.values, attention.destination, grad, log_sums]);
        self.pass(&[out, grad, grads.destination, grads.source, grads.values]);
        Ok(())
    }

    fn normalize_rows(
        &self,
        _eps: f32,
        x: &SymbolicMatrix,
        _gain_and_bias: (&SymbolicMatrix, &SymbolicMatrix),
        out: &mut SymbolicMatrix,
        moments: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| moments.shape.len() * size_of::<f32>());
        self.pass(&[x, out]);
        Ok(())
    }

    fn normalize_rows_backward(
        &self,
        x: &SymbolicMatrix,
        _gain: &SymbolicMatrix,
        moments: &SymbolicMatrix,
        grad: &mut SymbolicMatrix,
        _grads: (&mut SymbolicMatrix, &mut SymbolicMatrix),
    ) -> Result<(), ComputeError> {
        self.scratch(|| moments.shape.len() * size_of::<f32>() + cuda::columns(x.shape));
        self.pass(&[x, grad, grad]);
        Ok(())
    }

    fn column_squares(
        &self,
        x: &SymbolicMatrix,
        _means: &SymbolicMatrix,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(x.shape));
        self.pass(&[x]);
        Ok(())
    }

    fn normalize_columns(
        &self,
        _moments: ColumnMoments<'_, SymbolicMatrix>,
        x: &SymbolicMatrix,
        _gain_and_bias: (&SymbolicMatrix, &SymbolicMatrix),
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn normalized_products(
        &self,
        _moments: ColumnMoments<'_, SymbolicMatrix>,
        x: &SymbolicMatrix,
        grad: &SymbolicMatrix,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(x.shape));
        self.pass(&[x, grad]);
        Ok(())
    }

    fn normalize_columns_backward(
        &self,
        _moments: ColumnMoments<'_, SymbolicMatrix>,
        x: &SymbolicMatrix,
        _gain: &SymbolicMatrix,
        _means: (&SymbolicMatrix, &SymbolicMatrix),
        grad: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, grad, grad]);
        Ok(())
    }

    fn copy_block(
        &self,
        shape: Shape,
        x: &SymbolicMatrix,
        _from: (usize, usize),
        _out: &mut SymbolicMatrix,
        _to: (usize, usize),
    ) -> Result<(), ComputeError> {
        self.operation((2 * shape.len() * x.dtype.n_bytes()) as f64, 0.0, x.dtype);
        Ok(())
    }

    fn activate(
        &self,
        _activation: Activation,
        _bias: Option<&SymbolicMatrix>,
        x: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, x]);
        Ok(())
    }

    fn set_zero(&self, out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[out]);
        Ok(())
    }

    fn scale(&self, _factor: f32, x: &SymbolicMatrix, out: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn scale_rows(
        &self,
        _factors: &SymbolicMatrix,
        (x, _): (&SymbolicMatrix, usize),
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        let read = out.shape.len() * x.dtype.n_bytes();
        self.operation((read as u64 + out.n_bytes()) as f64, 0.0, Dtype::F32);
        Ok(())
    }

    fn scale_rows_in_place(&self, _factors: &SymbolicMatrix, x: &mut SymbolicMatrix) -> Result<(), ComputeError> {
        self.pass(&[x, x]);
        Ok(())
    }

    fn bpr_loss(
        &self,
        triples: &SymbolicMatrix,
        grad: Option<&mut SymbolicMatrix>,
        _loss: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[triples]);
        grad.iter().for_each(|grad| self.pass(&[grad]));
        Ok(())
    }

    fn l2_penalty(
        &self,
        _weight: f32,
        x: &SymbolicMatrix,
        grad: Option<&mut SymbolicMatrix>,
        _loss: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x]);
        grad.iter().for_each(|grad| self.pass(&[grad]));
        Ok(())
    }

    /// Returns [`NO_COLUMN`] everywhere, since there are no values to compare.
    fn top_k_rows(&self, x: &SymbolicMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        self.scratch(|| cuda::top_k(x.shape, k, excluded));
        self.pass(&[x]);
        Ok(vec![NO_COLUMN; x.shape.rows * k])
    }

    fn zero_ids(&self, len: usize) -> Result<SymbolicMatrix, ComputeError> {
        Ok(self.matrix(Shape::new(len, 1), Dtype::F32))
    }

    fn segment_max(
        &self,
        a: &SymbolicSparse,
        x: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
        winners: Option<&mut SymbolicMatrix>,
    ) -> Result<(), ComputeError> {
        self.gather(a.nnz, &[x]);
        self.pass(&[out]);
        if let Some(winners) = winners {
            self.pass(&[winners]);
        }
        Ok(())
    }

    fn segment_max_backward(
        &self,
        a: &SymbolicSparse,
        winners: &SymbolicMatrix,
        grad: &SymbolicMatrix,
        x_grad: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.need_transpose(a, false);
        self.gather(a.nnz, &[grad, winners]);
        self.pass(&[x_grad]);
        Ok(())
    }

    fn segment_lstm(
        &self,
        (a, _): (&SymbolicSparse, Option<Key>),
        inputs: &SymbolicMatrix,
        weight: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::lstm(a, inputs, weight));
        self.gather(a.nnz, &[inputs]);
        self.operation(out.n_bytes() as f64, 2.0 * (a.nnz * weight.shape.len()) as f64, inputs.dtype);
        Ok(())
    }

    fn segment_lstm_backward(
        &self,
        (a, _): (&SymbolicSparse, Option<Key>),
        (inputs, weight): (&SymbolicMatrix, &SymbolicMatrix),
        grad: &SymbolicMatrix,
        (inputs_grad, _): (&mut SymbolicMatrix, &mut SymbolicMatrix),
    ) -> Result<(), ComputeError> {
        self.need_transpose(a, true);
        self.scratch(|| cuda::lstm_backward(a, inputs, weight));
        // The forward pass again, then one product for the states and one for the weight. Gradients of gates are
        // added to those of their inputs.
        self.gather(2 * a.nnz, &[inputs]);
        let bytes = (grad.n_bytes() + inputs_grad.n_bytes()) as f64;
        self.operation(bytes, 6.0 * (a.nnz * weight.shape.len()) as f64, inputs.dtype);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates { stream_bytes: 1e9, gather_bytes: 2e9, flops: 1e10 };

    #[test]
    fn the_peak_counts_what_is_alive_at_once() {
        let symbolic = Symbolic::new(RATES);
        let first = symbolic.matrix(Shape::new(100, 10), Dtype::F32);
        drop(symbolic.matrix(Shape::new(50, 10), Dtype::Bf16));
        drop(first);
        let second = symbolic.matrix(Shape::new(10, 10), Dtype::F32);
        assert_eq!(symbolic.cost().peak_bytes, 4000 + 1000);
        assert_eq!(symbolic.cost().live_bytes, second.n_bytes());
    }

    #[test]
    fn a_cuda_device_makes_a_transpose_once_and_scratch_memory_for_a_while() {
        let (symbolic, shape) = (Symbolic::cuda(Dtype::F32, None), Shape::new(100, 100));
        let (x, mut out) =
            (symbolic.matrix(Shape::new(100, 8), Dtype::F32), symbolic.matrix(Shape::new(100, 8), Dtype::F32));
        for (symmetric, other_weights, transposes) in [(true, false, 0), (true, true, 1), (false, false, 1)] {
            let a = symbolic.sparse(shape, 5000, false, symmetric);
            let weights = symbolic.matrix(Shape::new(5000, 1), Dtype::F32);
            let before = symbolic.cost().live_bytes;
            for _ in 0..2 {
                let weights = Some(&weights).filter(|_| other_weights);
                symbolic.spmm((&a, Transpose::Yes), weights, &x, Epilogue::default(), &mut out).unwrap();
            }
            let made = symbolic.cost().live_bytes - before;
            assert_eq!(made.div_ceil(cuda::transpose(&a) as u64), transposes, "symmetric {symmetric}, {other_weights}");
            assert!(
                symbolic.cost().peak_bytes
                    >= symbolic.cost().live_bytes + cuda::product(shape, 5000, 8, [Dtype::F32; 2]) as u64
            );
        }
        assert_eq!(symbolic.cost().seconds, 0.0, "time is not predicted");
    }

    #[test]
    fn a_dense_product_is_bound_by_what_takes_longer() {
        let symbolic = Symbolic::new(RATES);
        let a = symbolic.matrix(Shape::new(1000, 100), Dtype::F32);
        let b = symbolic.matrix(Shape::new(100, 50), Dtype::F32);
        let mut out = symbolic.matrix(Shape::new(1000, 50), Dtype::F32);
        symbolic.gemm((&a, Transpose::No), None, (&b, Transpose::No), Epilogue::default(), &mut out).unwrap();
        assert!((symbolic.cost().flops - 1e7).abs() < 1.0);
        assert!((symbolic.cost().seconds - 1e-3).abs() < 1e-9, "arithmetic decides here: {}", symbolic.cost().seconds);
    }

    /// A plan may exceed the memory of any machine: `make` is not called, and the byte count saturates.
    #[test]
    fn what_is_planned_is_not_made() {
        let symbolic = Symbolic::cuda(Dtype::F32, None);
        let shape = Shape::new(1 << 30, 1 << 30);
        let mut made = || -> Vec<f32> { panic!("a plan makes no values") };
        let mut all = Vec::new();
        for _ in 0..5 {
            let mut matrix = symbolic.upload_made(shape, Dtype::F32, &mut made).unwrap();
            symbolic.write_made(&mut made, &mut matrix).unwrap();
            all.push(matrix);
        }
        assert_eq!(symbolic.cost().peak_bytes, u64::MAX);
    }

    #[test]
    fn values_that_are_made_are_those_that_are_uploaded() {
        let (cpu, shape) = (crate::Cpu::new(), Shape::new(2, 3));
        let values = || (0..6).map(|i| i as f32).collect::<Vec<_>>();
        let mut matrix = cpu.upload_made(shape, Dtype::F32, &mut || values()).unwrap();
        assert_eq!(cpu.download(&matrix).unwrap().data(), values());
        cpu.write_made(&mut || vec![7.0; 6], &mut matrix).unwrap();
        assert_eq!(cpu.download(&matrix).unwrap().data(), [7.0; 6]);
        assert!(cpu.upload_made(shape, Dtype::F32, &mut || vec![0.0; 5]).is_err());
    }
}
