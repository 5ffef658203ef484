//! Tests of dense products against `f64` loops.

use std::ops::Range;

use girih_compute::cpu::CpuMatrix;
use girih_compute::prelude::*;
use girih_compute::{Activation, Dropout, Dtype, Epilogue, Shape, Transpose};
use girih_random::Key;
use proptest::prelude::*;
use rayon::ThreadPoolBuilder;

use crate::matrices::{CPU, any_dtype, bits, matrix, values};

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
    fn run(&self) -> CpuMatrix {
        let mut out = self.out.clone();
        let epilogue = Epilogue {
            accumulate: self.accumulate,
            bias: self.bias.as_ref(),
            activation: self.activation,
            dropout: None,
        };
        let (a, b) = ((&self.a, self.transpose_a), (&self.b, self.transpose_b));
        CPU.gemm(a, self.dropout, b, epilogue, &mut out).unwrap();
        out
    }

    /// Elements of `A` after dropout, as the product reads them.
    fn masked_a(&self) -> Vec<f64> {
        let mask = |e: usize| self.dropout.map_or(1.0, |d| f64::from(d.factor(e)));
        values(&self.a).iter().enumerate().map(|(e, &a)| f64::from(a) * mask(e)).collect()
    }

    fn check(&self) {
        let (a, b) = (self.masked_a(), values(&self.b));
        let position = |matrix: &CpuMatrix, transpose: Transpose, row: usize, column: usize| {
            let (row, column) = if transpose == Transpose::Yes { (column, row) } else { (row, column) };
            row * CPU.shape(matrix).cols + column
        };
        let inner = if self.transpose_a == Transpose::Yes { CPU.shape(&self.a).rows } else { CPU.shape(&self.a).cols };
        let (found, old) = (self.run(), values(&self.out));
        let bias = self.bias.as_ref().map(values);
        // The rounding errors of a sum add up like a random walk.
        let rounding = f64::from(f32::EPSILON) / 2.0 * (16.0 + 2.0 * (inner as f64).sqrt());
        let tolerance = if CPU.dtype(&self.out) == Dtype::Bf16 { 1.0 / 256.0 } else { rounding };
        for (i, &found) in values(&found).iter().enumerate() {
            let (row, column) = (i / CPU.shape(&self.out).cols, i % CPU.shape(&self.out).cols);
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

/// Shape of the stored matrix that is read as `shape`.
fn stored(shape: Shape, transpose: Transpose) -> Shape {
    if transpose == Transpose::Yes { Shape::new(shape.cols, shape.rows) } else { shape }
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
            a: matrix(stored(Shape::new(n_rows, n_inner), transposes.0), dtypes.0, 1),
            transpose_a: transposes.0,
            dropout: p.map(|p| Dropout::new(p, Key::new(5, 2))),
            b: matrix(stored(Shape::new(n_inner, n_cols), transposes.1), dtypes.1, 2),
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
        case.check();
    }

    #[test]
    fn tall_products_agree_with_loops(case in any_case(0..20, 0..3000)) {
        case.check();
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads(case in any_case(0..40, 0..3000)) {
        let on = |threads| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            bits(&pool.install(|| case.run()))
        };
        let one = on(1);
        prop_assert!(one == on(2) && one == on(3));
    }
}
