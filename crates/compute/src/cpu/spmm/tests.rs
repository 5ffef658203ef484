//! Tests of sparse products against dense `f64` loops, on every instruction set. Small caches make for many panels.

use girih_graph_format::{Csr, Scales, TileMatrix};
use girih_machine::{Cache, Hierarchy};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use rayon::ThreadPoolBuilder;

use super::tiles::multiply_tiles;
use super::*;
use crate::cpu::element::Element;
use crate::cpu::matrix::as_f32;
use crate::cpu::simd::Isa;
use crate::{Activation, Dtype, Shape, SparseOperand};

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

/// Values with few bits, so that `f64` sums are exact and only the storage causes errors.
fn value(seed: usize) -> f32 {
    (seed.wrapping_mul(2_654_435_761) >> 7 & 0x3f) as f32 / 16.0 - 2.0
}

fn matrix(rows: usize, cols: usize, dtype: Dtype, seed: usize) -> CpuMatrix {
    let mut matrix = CpuMatrix::zeros(Shape::new(rows, cols), dtype);
    let values: Vec<f32> = (0..rows * cols).map(|i| value(i + seed)).collect();
    matrix.write_all(&values);
    matrix
}

fn vector(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| value(i + seed) / 2.0).collect()
}

/// Hierarchy of one cache, in which any number of passes pays off.
fn caching(bytes: u64) -> Hierarchy {
    Hierarchy { caches: vec![Cache { bytes, gb_s: 1e3 }], memory_gb_s: 1.0, entry_ns: 0.0, row_ns: 0.0 }
}

impl Case {
    fn run(&self, machine: &Machine) -> CpuMatrix {
        let operand =
            SparseOperand { csr: &self.csr, scales: self.scales.clone(), symmetric: self.symmetric, names: None };
        let sparse = CpuSparse::new(&operand).unwrap();
        let mut out = self.out.clone();
        multiply(machine, (&sparse, self.transpose), self.weights.as_ref(), &self.x, &self.epilogue(), &mut out);
        out
    }

    fn epilogue(&self) -> Epilogue<'_, CpuMatrix> {
        Epilogue { accumulate: self.accumulate, bias: self.bias.as_ref(), activation: self.activation, dropout: None }
    }

    /// Expected result and, for each element, the sum of absolute values, the unit of errors.
    fn expected(&self) -> Vec<(f64, f64)> {
        let width = self.x.shape().cols;
        let (x, old) = (as_f32(&self.x), as_f32(&self.out));
        let mut sums: Vec<(f64, f64)> = vec![(0.0, 0.0); old.len()];
        let factor = |scales: &Option<Vec<f32>>, i: usize| scales.as_ref().map_or(1.0, |s| f64::from(s[i]));
        for row in 0..self.csr.n_rows() {
            for e in self.csr.row_range(row) {
                let column = self.csr.indices()[e] as usize;
                let weight = match &self.weights {
                    Some(weights) => as_f32(weights)[e],
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
            let bias = self.bias.as_ref().map_or(0.0, |b| f64::from(as_f32(b)[i % width]));
            *sum += old + bias;
            *size += old.abs() + bias.abs();
            if self.activation == Activation::Relu {
                *sum = sum.max(0.0);
            }
        }
        sums
    }

    fn check(&self, machine: &Machine) {
        self.check_result(machine, &self.run(machine));
    }

    fn check_result(&self, machine: &Machine, out: &CpuMatrix) {
        // The relative error of rounding to bf16 is 2⁻⁹. Operands are rounded once after scaling, results once.
        let bf16 = [self.x.dtype(), self.out.dtype(), machine.gathered].contains(&Dtype::Bf16);
        let tolerance = if bf16 { 2.0 / 256.0 } else { 1e-6 };
        for (i, (&found, (expected, size))) in as_f32(out).iter().zip(self.expected()).enumerate() {
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

fn any_dtype() -> impl Strategy<Value = Dtype> {
    prop_oneof![Just(Dtype::F32), Just(Dtype::Bf16)]
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
            weights: weighted.then(|| matrix(csr.nnz(), 1, Dtype::F32, 77)),
            x: matrix(from, width, x_dtype, 1),
            bias: biased.then(|| matrix(1, width, Dtype::F32, 3)),
            accumulate,
            activation: if relu { Activation::Relu } else { Activation::Identity },
            out: matrix(to, width, out_dtype, 13),
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
        for isa in Isa::all() {
            case.check(&Machine { gathered, ..Machine::new(isa, caching(cache)) });
        }
    }

    /// `f32` rows that are rounded on their way into a panel equal those of an operand stored as bf16. The values of
    /// these cases are exact in bf16.
    #[test]
    fn gathering_bf16_is_storing_bf16(case in any_case(0..=200), cache in prop_oneof![Just(0u64), 0u64..1 << 14]) {
        let machine = Machine { gathered: Dtype::Bf16, ..Machine::new(Isa::detect(), caching(cache)) };
        let on = |dtype| {
            let mut x = CpuMatrix::zeros(case.x.shape(), dtype);
            x.write_all(&as_f32(&case.x));
            as_f32(&Case { x, ..case.clone() }.run(&machine)).iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        prop_assert_eq!(on(Dtype::F32), on(Dtype::Bf16));
    }
}

#[test]
fn every_width_agrees_with_dense_loops() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for width in 1..=200 {
        let case = any_case(width..=width).new_tree(&mut runner).unwrap().current();
        for isa in Isa::all() {
            case.check(&Machine::new(isa, caching(32 << 20)));
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
        x: matrix(n, 41, dtype, 1),
        bias: Some(matrix(1, 41, Dtype::F32, 3)),
        accumulate: true,
        activation: Activation::Identity,
        out: matrix(n, 41, Dtype::F32, 8),
    }
}

#[test]
fn hubs_agree_with_dense_loops_on_any_number_of_threads() {
    for (transpose, dtype) in [(Transpose::No, Dtype::F32), (Transpose::Yes, Dtype::F32), (Transpose::No, Dtype::Bf16)]
    {
        let case = star_case(transpose, dtype);
        let machine = Machine::detect();
        case.check(&machine);
        let on = |threads| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            as_f32(&pool.install(|| case.run(&machine))).iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        let one = on(1);
        assert!(one == on(2) && one == on(3), "{transpose:?} {dtype:?}");
    }
}

#[test]
fn weights_need_not_be_symmetric_where_the_pattern_is() {
    let csr = Csr::new(2, 2, vec![0, 1, 2], vec![1, 0], None).unwrap();
    let weights = matrix(2, 1, Dtype::F32, 40);
    assert_ne!(as_f32(&weights)[0], as_f32(&weights)[1]);
    let case = Case {
        csr,
        scales: Scales::default(),
        symmetric: true,
        transpose: Transpose::Yes,
        weights: Some(weights),
        x: matrix(2, 3, Dtype::F32, 1),
        bias: None,
        accumulate: false,
        activation: Activation::Identity,
        out: matrix(2, 3, Dtype::F32, 2),
    };
    case.check(&Machine::detect());
}

#[test]
fn not_a_number_reaches_the_result() {
    let mut x = matrix(2, 20, Dtype::F32, 1);
    let Storage::F32(values) = x.storage_mut() else { unreachable!("made as f32") };
    values[25] = f32::NAN;
    let csr = Csr::new(2, 2, vec![0, 1, 2], vec![1, 0], None).unwrap();
    let sparse =
        CpuSparse::new(&SparseOperand { csr: &csr, scales: Scales::default(), symmetric: true, names: None }).unwrap();
    let mut out = matrix(2, 20, Dtype::Bf16, 2);
    let epilogue = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
    multiply(&Machine::detect(), (&sparse, Transpose::No), None, &x, &epilogue, &mut out);
    let Storage::Bf16(out) = out.storage() else { unreachable!("made as bf16") };
    let positions: Vec<usize> = (0..40).filter(|&i| Element::to_f32(out[i]).is_nan()).collect();
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
        let (rows, cols, width) = (case.csr.n_rows(), case.csr.n_cols(), case.x.shape().cols);
        let case = Case {
            weights: None,
            transpose: Transpose::No,
            x: matrix(cols, width, case.x.dtype(), 1),
            out: matrix(rows, width, case.out.dtype(), 13),
            ..case
        };
        let tiles = TileMatrix::from_csr(&case.csr, density).unwrap();
        let machine = Machine { gathered, ..Machine::new(Isa::detect(), caching(cache)) };
        let mut out = case.out.clone();
        let tiles = CpuTiles::new(tiles, case.scales.clone());
        multiply_tiles(&machine, &tiles, &case.x, &case.epilogue(), &mut out);
        case.check_result(&machine, &out);
    }
}
