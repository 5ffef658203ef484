//! Tests of dense products against `f64` loops.

use girih_random::Key;
use proptest::prelude::*;
use rayon::ThreadPoolBuilder;

use super::*;
use crate::checks::read;
use crate::{Activation, Dtype};

fn matrix(shape: Shape, dtype: Dtype, seed: usize) -> CpuMatrix {
    let mut matrix = CpuMatrix::zeros(shape, dtype);
    let value = |i: usize| ((i + seed).wrapping_mul(2_654_435_761) >> 7 & 0x3f) as f32 / 16.0 - 2.0;
    matrix.write_all(&(0..shape.len()).map(value).collect::<Vec<_>>());
    matrix
}

/// Dense product with its options.
#[derive(Debug)]
struct Case {
    a: CpuMatrix,
    transpose_a: Transpose,
    dropout: Option<Dropout>,
    b: CpuMatrix,
    transpose_b: Transpose,
    bias: Option<CpuMatrix>,
    accumulate: bool,
    activation: Activation,
    out: CpuMatrix,
}

impl Case {
    fn run(&self, machine: &Machine) -> CpuMatrix {
        let mut out = self.out.clone();
        let epilogue = Epilogue {
            accumulate: self.accumulate,
            bias: self.bias.as_ref(),
            activation: self.activation,
            dropout: None,
        };
        let a = LeftOperand { matrix: &self.a, transpose: self.transpose_a, dropout: self.dropout };
        multiply(machine, a, (&self.b, self.transpose_b), &epilogue, &mut out);
        out
    }

    /// Elements of `A` after dropout, as the product reads them.
    fn masked_a(&self) -> Vec<f64> {
        let mask = |e: usize| self.dropout.map_or(1.0, |d| f64::from(d.factor(e)));
        as_f32(&self.a).iter().enumerate().map(|(e, &a)| f64::from(a) * mask(e)).collect()
    }

    fn check(&self, machine: &Machine) {
        let (a, b) = (self.masked_a(), as_f32(&self.b));
        let position = |matrix: &CpuMatrix, transpose: Transpose, row: usize, column: usize| {
            let (row, column) = if transpose == Transpose::Yes { (column, row) } else { (row, column) };
            row * matrix.shape().cols + column
        };
        let inner = if self.transpose_a == Transpose::Yes { self.a.shape().rows } else { self.a.shape().cols };
        let (found, old) = (self.run(machine), as_f32(&self.out));
        let bias = self.bias.as_ref().map(as_f32);
        // The rounding errors of a sum add up like a random walk.
        let rounding = f64::from(f32::EPSILON) / 2.0 * (16.0 + 2.0 * (inner as f64).sqrt());
        let tolerance = if self.out.dtype() == Dtype::Bf16 { 1.0 / 256.0 } else { rounding };
        for (i, &found) in as_f32(&found).iter().enumerate() {
            let (row, column) = (i / self.out.shape().cols, i % self.out.shape().cols);
            let (mut sum, mut size) = (0.0, 0.0);
            for k in 0..inner {
                let b = b[position(&self.b, self.transpose_b, k, column)];
                let term = a[position(&self.a, self.transpose_a, row, k)] * f64::from(b);
                sum += term;
                size += term.abs();
            }
            let old = if self.accumulate { f64::from(old[i]) } else { 0.0 };
            let bias = bias.as_ref().map_or(0.0, |bias| f64::from(bias[column]));
            sum += old + bias;
            size += old.abs() + bias.abs();
            if self.activation == Activation::Relu {
                sum = f64::max(sum, 0.0);
            }
            let error = (f64::from(found) - sum).abs();
            assert!(error <= tolerance * size, "({row}, {column}): found {found}, expected {sum}, {self:?}");
        }
    }
}

fn any_dtype() -> impl Strategy<Value = Dtype> {
    prop_oneof![Just(Dtype::F32), Just(Dtype::Bf16)]
}

prop_compose! {
    fn any_case(rows: Range<usize>, inner: Range<usize>)(
        n_rows in rows,
        n_inner in inner,
        n_cols in 0usize..70,
        transposes in prop_oneof![
            Just((Transpose::No, Transpose::No)), Just((Transpose::No, Transpose::Yes)),
            Just((Transpose::Yes, Transpose::No)),
        ],
        dtypes in (any_dtype(), any_dtype(), any_dtype()),
        p in prop::option::of(0.0f32..0.9),
        (biased, accumulate, relu) in any::<(bool, bool, bool)>(),
    ) -> Case {
        Case {
            a: matrix(read(Shape::new(n_rows, n_inner), transposes.0), dtypes.0, 1),
            transpose_a: transposes.0,
            dropout: p.map(|p| Dropout::new(p, Key::new(5, 2))),
            b: matrix(read(Shape::new(n_inner, n_cols), transposes.1), dtypes.1, 2),
            transpose_b: transposes.1,
            bias: biased.then(|| matrix(Shape::new(1, n_cols), Dtype::F32, 3)),
            accumulate,
            activation: if relu { Activation::Relu } else { Activation::Identity },
            out: matrix(Shape::new(n_rows, n_cols), dtypes.2, 4),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn products_agree_with_loops(case in any_case(0..300, 0..70)) {
        case.check(&Machine::detect());
    }

    #[test]
    fn tall_products_agree_with_loops(case in any_case(0..20, 0..3000)) {
        case.check(&Machine::detect());
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads(case in any_case(0..40, 0..3000)) {
        let machine = Machine::detect();
        let on = |threads| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            as_f32(&pool.install(|| case.run(&machine))).iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        let one = on(1);
        prop_assert!(one == on(2) && one == on(3));
    }
}

#[test]
fn strips_and_blocks_depend_on_shapes_alone() {
    assert_eq!(n_strips(232_965, 602 * 128), 64);
    assert_eq!(n_strips(100, 64), 1);
    assert_eq!(n_strips(1 << 20, 1 << 23), 2, "partial results are bounded");
    assert_eq!(block_rows(232_965, 602), 435);
    assert_eq!(block_rows(2_708, 16), 170);
}

#[test]
#[should_panic(expected = "not offered")]
fn two_transposes_are_refused() {
    let square = matrix(Shape::new(2, 2), Dtype::F32, 0);
    let (mut out, yes) = (square.clone(), Transpose::Yes);
    let a = LeftOperand { matrix: &square, transpose: yes, dropout: None };
    multiply(&Machine::detect(), a, (&square, yes), &Epilogue::default(), &mut out);
}
