//! [`Symbolic`]: a backend that counts bytes, operations and seconds, and computes nothing.
//!
//! A dry run of a training step on it predicts the step's memory and time. Matrices have shapes but no elements. Each
//! operation adds the bytes that it would move and the arithmetic that it would do. The plan thus follows the real
//! run operation for operation.

mod attention;
mod clock;
mod cuda;
mod dense;
mod loss;
mod memory;
mod norm;
mod optim;
mod rates;
mod relation;
mod segment;
mod sparse;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::checks::IdRange;
use crate::scratch::pitch;
use crate::{Backend, Dtype, Shape};

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

/// Symbolic list of ids: their number and largest value, and bytes that count as live until it is dropped.
#[derive(Debug)]
pub struct SymbolicIds {
    range: IdRange,
    /// Stands for the ids, to count their bytes.
    list: SymbolicMatrix,
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

    /// The matrix with `n` columns, of which its entries name some: for operands that are read in place. Its bytes are
    /// the same.
    #[must_use]
    pub fn with_columns(self, n: usize) -> Self {
        Self { shape: Shape::new(self.shape.rows, n), ..self }
    }
}

impl Symbolic {
    /// Symbolic CPU with the given rates.
    #[must_use]
    pub fn new(rates: Rates) -> Self {
        Self { speed: Speed::Cpu(rates), cuda: false, activations: Dtype::F32, cost: Arc::default() }
    }

    /// Symbolic CUDA device that stores per-node results as `activations`. Without rates, only memory counts and all
    /// seconds are zero.
    #[must_use]
    pub fn cuda(activations: Dtype, rates: Option<GpuRates>) -> Self {
        let speed = rates.map_or(Speed::Unknown, Speed::Gpu);
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
        let pitch = if self.cuda { pitch(cols) } else { cols };
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

    /// Allocates a symbolic list of `len` ids, whose values are not known and pass every check.
    #[must_use]
    pub fn ids(&self, len: usize) -> SymbolicIds {
        SymbolicIds { range: IdRange { len, end: 0 }, list: self.matrix(Shape::new(len, 1), Dtype::F32) }
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
    type Recording = ();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::{Epilogue, Transpose};

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
    fn plans_allocate_no_values() {
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
