//! Tests of sparse products against dense `f64` loops, on every instruction set. Small caches make for many panels.

use girih_compute::cpu::CpuMatrix;
use girih_compute::prelude::*;
use girih_compute::testing::cpus;
use girih_compute::{Activation, Cpu, Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Csr, Scales, TileMatrix};
use girih_machine::{Cache, Hierarchy};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use rayon::ThreadPoolBuilder;

use crate::matrices::{CPU, any_dtype, bits, matrix, of_values, value, values};

/// Sparse product with its options.
#[derive(Clone, Debug)]
struct Case {
    csr: Csr,
    scales: Scales,
    symmetric: bool,
    transpose: Transpose,
    weights: Option<CpuMatrix>,
    x: CpuMatrix,
    bias: Option<CpuMatrix>,
    accumulate: bool,
    activation: Activation,
    out: CpuMatrix,
}

fn vector(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| value(i + seed) / 2.0).collect()
}

/// Hierarchy of one cache, in which any number of passes pays off.
fn caching(bytes: u64) -> Hierarchy {
    Hierarchy { caches: vec![Cache { bytes, gb_s: 1e3 }], memory_gb_s: 1.0, entry_ns: 0.0, row_ns: 0.0 }
}

/// Backend of the best instruction set, with one cache.
fn best(cache_bytes: u64) -> Cpu {
    cpus(&caching(cache_bytes)).next().expect("every machine has an instruction set")
}

impl Case {
    fn run(&self, cpu: &Cpu) -> CpuMatrix {
        let operand =
            SparseOperand { csr: &self.csr, scales: self.scales.clone(), symmetric: self.symmetric, names: None };
        let sparse = cpu.upload_sparse(&operand).unwrap();
        let mut out = self.out.clone();
        cpu.spmm((&sparse, self.transpose), self.weights.as_ref(), &self.x, self.epilogue(), &mut out).unwrap();
        out
    }

    fn epilogue(&self) -> Epilogue<'_, CpuMatrix> {
        Epilogue { accumulate: self.accumulate, bias: self.bias.as_ref(), activation: self.activation, dropout: None }
    }

    /// Expected result and, for each element, the sum of absolute values, the unit of errors.
    fn expected(&self) -> Vec<(f64, f64)> {
        let width = CPU.shape(&self.x).cols;
        let (x, old) = (values(&self.x), values(&self.out));
        let mut sums: Vec<(f64, f64)> = vec![(0.0, 0.0); old.len()];
        let factor = |scales: &Option<Vec<f32>>, i: usize| scales.as_ref().map_or(1.0, |s| f64::from(s[i]));
        for row in 0..self.csr.n_rows() {
            for e in self.csr.row_range(row) {
                let column = self.csr.indices()[e] as usize;
                let weight = match &self.weights {
                    Some(weights) => values(weights)[e],
                    None => self.csr.values().map_or(1.0, |v| v[e]),
                };
                let weight = f64::from(weight) * factor(&self.scales.left, row) * factor(&self.scales.right, column);
                let (to, from) = if self.transpose == Transpose::Yes { (column, row) } else { (row, column) };
                for c in 0..width {
                    let term = weight * f64::from(x[from * width + c]);
                    sums[to * width + c].0 += term;
                    sums[to * width + c].1 += term.abs();
                }
            }
        }
        for (i, (sum, size)) in sums.iter_mut().enumerate() {
            let old = if self.accumulate { f64::from(old[i]) } else { 0.0 };
            let bias = self.bias.as_ref().map_or(0.0, |b| f64::from(values(b)[i % width]));
            *sum += old + bias;
            *size += old.abs() + bias.abs();
            if self.activation == Activation::Relu {
                *sum = sum.max(0.0);
            }
        }
        sums
    }

    /// Checks the product of a backend that gathers `f32` operands as `gathered`.
    fn check(&self, cpu: Cpu, gathered: Dtype) {
        self.check_result(&self.run(&cpu.gathering(gathered)), gathered);
    }

    fn check_result(&self, out: &CpuMatrix, gathered: Dtype) {
        // The relative error of rounding to bf16 is 2⁻⁹. Operands are rounded once after scaling, results once.
        let bf16 = [CPU.dtype(&self.x), CPU.dtype(&self.out), gathered].contains(&Dtype::Bf16);
        let tolerance = if bf16 { 2.0 / 256.0 } else { 1e-6 };
        for (i, (&found, (expected, size))) in values(out).iter().zip(self.expected()).enumerate() {
            let error = (f64::from(found) - expected).abs();
            assert!(error <= tolerance * size + 1e-30, "element {i}: found {found}, expected {expected}, {self:?}");
        }
    }
}

fn any_csr(rows: std::ops::Range<usize>) -> impl Strategy<Value = Csr> {
    (rows.clone(), rows, any::<u64>(), 0u64..8, any::<bool>()).prop_map(|(n_rows, n_cols, seed, density, weighted)| {
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in 0..n_rows {
            for column in 0..n_cols {
                let hash = (seed ^ (row * 7919 + column) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                // Every third row is empty.
                if row % 3 != 2 && hash >> 61 < density {
                    indices.push(column as u32);
                    values.push(value(hash as usize));
                }
            }
            indptr.push(indices.len() as u64);
        }
        Csr::new(n_rows, n_cols, indptr, indices, weighted.then(|| values.into())).unwrap()
    })
}

prop_compose! {
    fn any_case(width: std::ops::RangeInclusive<usize>)(
        csr in any_csr(0..70),
        width in width,
        scaled in any::<[bool; 2]>(),
        flags in any::<[bool; 5]>(),
        x_dtype in any_dtype(),
        out_dtype in any_dtype(),
    ) -> Case {
        let [transposed, weighted, biased, accumulate, relu] = flags;
        let (to, from) = if transposed { (csr.n_cols(), csr.n_rows()) } else { (csr.n_rows(), csr.n_cols()) };
        let left = scaled[0].then(|| vector(csr.n_rows(), 5));
        let right = scaled[1].then(|| vector(csr.n_cols(), 9));
        Case {
            scales: Scales { left, right },
            symmetric: false,
            transpose: if transposed { Transpose::Yes } else { Transpose::No },
            weights: weighted.then(|| matrix(Shape::new(csr.nnz(), 1), Dtype::F32, 77)),
            x: matrix(Shape::new(from, width), x_dtype, 1),
            bias: biased.then(|| matrix(Shape::new(1, width), Dtype::F32, 3)),
            accumulate,
            activation: if relu { Activation::Relu } else { Activation::Identity },
            out: matrix(Shape::new(to, width), out_dtype, 13),
            csr,
        }
    }
}

proptest! {
    #[test]
    fn products_agree_with_dense_loops(
        case in any_case(0..=200),
        cache in prop_oneof![Just(0u64), 0u64..1 << 14],
        gathered in any_dtype(),
    ) {
        for cpu in cpus(&caching(cache)) {
            case.check(cpu, gathered);
        }
    }

    /// `f32` rows that are rounded on their way into a panel equal those of an operand stored as bf16. The values of
    /// these cases are exact in bf16.
    #[test]
    fn gathering_bf16_is_storing_bf16(case in any_case(0..=200), cache in prop_oneof![Just(0u64), 0u64..1 << 14]) {
        let cpu = best(cache).gathering(Dtype::Bf16);
        let on = |dtype| {
            let x = of_values(cpu.shape(&case.x), dtype, values(&case.x));
            bits(&Case { x, ..case.clone() }.run(&cpu))
        };
        prop_assert_eq!(on(Dtype::F32), on(Dtype::Bf16));
    }
}

#[test]
fn every_width_agrees_with_dense_loops() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for width in 1..=200 {
        let case = any_case(width..=width).new_tree(&mut runner).unwrap().current();
        for cpu in cpus(&caching(32 << 20)) {
            case.check(cpu, Dtype::F32);
        }
    }
}

/// Star graph: row 0 has `n` entries, every other row one.
fn star(n: usize) -> Csr {
    let indptr: Vec<u64> = std::iter::once(0).chain((0..n as u64).map(|i| n as u64 + i)).collect();
    let indices: Vec<u32> = (0..n as u32).chain((1..n).map(|_| 0)).collect();
    Csr::new(n, n, indptr, indices, None).unwrap()
}

fn star_case(transpose: Transpose, dtype: Dtype) -> Case {
    let n = 100_000;
    Case {
        csr: star(n),
        scales: Scales { left: Some(vector(n, 2)), right: Some(vector(n, 4)) },
        symmetric: false,
        transpose,
        weights: None,
        x: matrix(Shape::new(n, 41), dtype, 1),
        bias: Some(matrix(Shape::new(1, 41), Dtype::F32, 3)),
        accumulate: true,
        activation: Activation::Identity,
        out: matrix(Shape::new(n, 41), Dtype::F32, 8),
    }
}

#[test]
fn hubs_agree_with_dense_loops_on_any_number_of_threads() {
    for (transpose, dtype) in [(Transpose::No, Dtype::F32), (Transpose::Yes, Dtype::F32), (Transpose::No, Dtype::Bf16)]
    {
        let case = star_case(transpose, dtype);
        case.check(Cpu::new(), Dtype::F32);
        let on = |threads| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            bits(&pool.install(|| case.run(&CPU)))
        };
        let one = on(1);
        assert!(one == on(2) && one == on(3), "{transpose:?} {dtype:?}");
    }
}

#[test]
fn weights_need_not_be_symmetric_where_the_pattern_is() {
    let csr = Csr::new(2, 2, vec![0, 1, 2], vec![1, 0], None).unwrap();
    let weights = matrix(Shape::new(2, 1), Dtype::F32, 40);
    assert_ne!(values(&weights)[0], values(&weights)[1]);
    let case = Case {
        csr,
        scales: Scales::default(),
        symmetric: true,
        transpose: Transpose::Yes,
        weights: Some(weights),
        x: matrix(Shape::new(2, 3), Dtype::F32, 1),
        bias: None,
        accumulate: false,
        activation: Activation::Identity,
        out: matrix(Shape::new(2, 3), Dtype::F32, 2),
    };
    case.check(Cpu::new(), Dtype::F32);
}

#[test]
fn not_a_number_reaches_the_result() {
    let mut elements = values(&matrix(Shape::new(2, 20), Dtype::F32, 1));
    elements[25] = f32::NAN;
    let (cpu, x) = (Cpu::new(), of_values(Shape::new(2, 20), Dtype::F32, elements));
    let csr = Csr::new(2, 2, vec![0, 1, 2], vec![1, 0], None).unwrap();
    let operand = SparseOperand { csr: &csr, scales: Scales::default(), symmetric: true, names: None };
    let sparse = cpu.upload_sparse(&operand).unwrap();
    let mut out = matrix(Shape::new(2, 20), Dtype::Bf16, 2);
    let epilogue = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
    cpu.spmm((&sparse, Transpose::No), None, &x, epilogue, &mut out).unwrap();
    let positions: Vec<usize> = (0..40).filter(|&i| values(&out)[i].is_nan()).collect();
    assert_eq!(positions, [5]);
}

proptest! {
    #[test]
    fn tiles_agree_with_dense_loops(
        case in any_case(0..=70),
        density in 0.0f64..0.5,
        cache in prop_oneof![Just(0u64), 0u64..1 << 14],
        gathered in any_dtype(),
    ) {
        let cpu = best(cache).gathering(gathered);
        let (rows, cols, width) = (case.csr.n_rows(), case.csr.n_cols(), cpu.shape(&case.x).cols);
        let case = Case {
            weights: None,
            transpose: Transpose::No,
            x: matrix(Shape::new(cols, width), cpu.dtype(&case.x), 1),
            out: matrix(Shape::new(rows, width), cpu.dtype(&case.out), 13),
            ..case
        };
        let tiles = TileMatrix::from_csr(&case.csr, density).unwrap();
        let mut out = case.out.clone();
        let tiles = cpu.upload_tiles(tiles, case.scales.clone()).unwrap();
        cpu.spmm_tiles(&tiles, &case.x, &case.epilogue(), &mut out).unwrap();
        case.check_result(&out, gathered);
    }
}
