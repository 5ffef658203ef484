//! Compares dense products with one long side on a CUDA device with sums in `f64`. Without a device the tests report
//! that and pass, unless `GIRIH_REQUIRE_GPU` is set.

use girih_compute::prelude::*;
use girih_compute::testing::piece;
use girih_compute::{Activation, ActivationGrad, Dropout, Dtype, Epilogue, EpilogueGrad, Shape, Transpose};
use girih_graph_format::Matrix;
use girih_kernels::{Cuda, CudaMatrix};
use girih_random::Key;

/// Long dimension: more than all thread blocks of a product process at once, and not a multiple of a tile.
const LONG: usize = 40_011;

fn cuda(precision: Dtype) -> Option<Cuda> {
    girih_tests::cuda().map(|cuda| cuda.storing(precision))
}

/// Normal numbers, rounded for storage as bf16, so that references use the same operands.
fn random(shape: Shape, seed: u64, dtype: Dtype) -> Matrix {
    let mut stream = Key::new(seed, 3).stream(0, 0);
    let rounded = |x: f32| if dtype == Dtype::Bf16 { f32::from_bits(x.to_bits() & 0xffff_0000) } else { x };
    let values: Vec<f32> = (0..shape.len()).map(|_| rounded(stream.normal())).collect();
    Matrix::new(shape.rows, shape.cols, values).expect("a matrix")
}

/// Dropout mask of a row range of a larger matrix, from row 3.
fn mask(p: f32, seed: u64) -> Dropout {
    Dropout::new(p, Key::new(seed, 5)).from_row(3)
}

fn zeros(shape: Shape) -> Matrix {
    Matrix::new(shape.rows, shape.cols, vec![0.0; shape.len()]).expect("a matrix")
}

/// `⟨row i of op(A), column j of op(B)⟩`, and the sum of the absolute values of its terms.
fn dot(a: &Matrix, ta: Transpose, b: &Matrix, tb: Transpose, (i, j): (usize, usize)) -> (f64, f64) {
    let depth = if ta == Transpose::No { a.n_cols() } else { a.n_rows() };
    let (mut sum, mut sizes) = (0.0, 0.0);
    for k in 0..depth {
        let x = if ta == Transpose::No { a.row(i)[k] } else { a.row(k)[i] };
        let y = if tb == Transpose::No { b.row(k)[j] } else { b.row(j)[k] };
        let term = f64::from(x) * f64::from(y);
        sum += term;
        sizes += term.abs();
    }
    (sum, sizes)
}

/// Settings of a product.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Rows, columns and summed dimension.
    dimensions: [usize; 3],
    transposes: (Transpose, Transpose),
    activation: Activation,
    has_bias: bool,
    accumulate: bool,
    dropout: Option<Dropout>,
    /// Storage types of the operands and of the result.
    dtypes: [Dtype; 2],
}

impl Case {
    /// Compares some elements of the product with sums in `f64`, relative to the sizes of their terms.
    fn check(self, cuda: &Cuda, seed: u64) {
        let ([rows, cols, depth], (ta, tb), [dtype, out_dtype]) = (self.dimensions, self.transposes, self.dtypes);
        let stored =
            |t: Transpose, rows, cols| if t == Transpose::No { Shape::new(rows, cols) } else { Shape::new(cols, rows) };
        let (a, b) = (random(stored(ta, rows, depth), seed, dtype), random(stored(tb, depth, cols), seed + 1, dtype));
        let bias = random(Shape::new(1, cols), seed + 2, Dtype::F32);
        let before = random(Shape::new(rows, cols), seed + 3, out_dtype);
        let upload = |matrix: &Matrix, dtype| cuda.upload(matrix, dtype).expect("memory");
        let (on_device, bias_on_device) = ((upload(&a, dtype), upload(&b, dtype)), upload(&bias, Dtype::F32));
        let multiply = || {
            let epilogue = Epilogue {
                bias: self.has_bias.then_some(&bias_on_device),
                activation: self.activation,
                accumulate: self.accumulate,
                dropout: self.dropout,
            };
            let mut out = upload(&before, out_dtype);
            cuda.gemm((&on_device.0, ta), None, (&on_device.1, tb), epilogue, &mut out).expect("a product");
            cuda.download(&out).expect("memory")
        };
        let found = multiply();
        assert!(found.data() == multiply().data(), "{self:?}: not the same bits again");
        let mut stream = Key::new(seed, 4).stream(0, 0);
        let corners = [(0, 0), (rows - 1, cols - 1), (rows - 1, 0), (0, cols - 1)];
        let somewhere = (0..60).map(|_| (stream.below(rows as u64) as usize, stream.below(cols as u64) as usize));
        for (i, j) in corners.into_iter().chain(somewhere) {
            let (mut sum, mut sizes) = dot(&a, ta, &b, tb, (i, j));
            for (term, counts) in [(before.row(i)[j], self.accumulate), (bias.data()[j], self.has_bias)] {
                sum += if counts { f64::from(term) } else { 0.0 };
                sizes += if counts { f64::from(term.abs()) } else { 0.0 };
            }
            let expected = match self.activation {
                Activation::Identity => sum,
                Activation::Relu => sum.max(0.0),
                Activation::Elu => {
                    if sum < 0.0 {
                        sum.exp_m1()
                    } else {
                        sum
                    }
                }
            };
            let factor = |dropout: Dropout| dropout.factor(dropout.first_element(cols) + i * cols + j);
            let expected = expected * self.dropout.map_or(1.0, |dropout| f64::from(factor(dropout)));
            let found = f64::from(found.row(i)[j]);
            let rounding = if out_dtype == Dtype::Bf16 { 5e-3 * expected.abs() } else { 0.0 };
            let bound = 3e-7 * sizes.max(1.0) + rounding;
            assert!((found - expected).abs() <= bound, "{self:?}: ({i}, {j}) is {found}, not {expected} ± {bound}");
        }
    }
}

#[test]
fn rows_of_nodes_times_weights() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let Some(cuda) = cuda(dtype) else { return };
        for (seed, (cols, depth)) in
            [(8, 8), (16, 100), (41, 128), (47, 64), (48, 9), (64, 602), (128, 50), (200, 33), (256, 47), (256, 602)]
                .into_iter()
                .enumerate()
        {
            for (tb, activation) in piece([(Transpose::No, Activation::Relu), (Transpose::Yes, Activation::Identity)]) {
                let case = Case {
                    dimensions: [LONG, cols, depth],
                    transposes: (Transpose::No, tb),
                    activation,
                    has_bias: activation == Activation::Relu,
                    accumulate: seed % 3 == 1,
                    dropout: (activation == Activation::Relu && seed % 4 > 0).then(|| mask(0.4, seed as u64)),
                    dtypes: [dtype, if seed % 2 == 0 { dtype } else { Dtype::F32 }],
                };
                case.check(&cuda, 10 * seed as u64);
            }
        }
    }
}

/// Sum of two products in one pass: some elements against sums in `f64`, relative to the sizes of their terms.
#[test]
fn two_products_are_added() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let Some(cuda) = cuda(dtype) else { return };
        for (seed, (n_rows, cols, depths)) in piece(
            [
                (LONG, 256, [100, 100]),
                (LONG, 64, [9, 602]),
                (LONG, 47, [64, 33]),
                (LONG, 128, [128, 8]),
                (300, 32, [40, 20]),
            ]
            .into_iter()
            .enumerate(),
        ) {
            let seed = 100 * seed as u64;
            let operands = depths.map(|depth| {
                let draw = |shape, seed| random(shape, seed, dtype);
                (
                    draw(Shape::new(n_rows, depth), seed + depth as u64),
                    draw(Shape::new(depth, cols), seed + depth as u64 + 1),
                )
            });
            let (bias, before) =
                (random(Shape::new(1, cols), seed, Dtype::F32), random(Shape::new(n_rows, cols), seed, dtype));
            let upload = |matrix: &Matrix, dtype| cuda.upload(matrix, dtype).expect("memory");
            // Weights are stored as f32.
            let on_device = operands.each_ref().map(|(x, w)| (upload(x, dtype), upload(w, Dtype::F32)));
            let bias_on_device = upload(&bias, Dtype::F32);
            for accumulate in [false, true] {
                let activation = Activation::Relu;
                let epilogue = Epilogue { bias: Some(&bias_on_device), activation, accumulate, dropout: None };
                let mut out = upload(&before, dtype);
                let [first, second] = on_device.each_ref().map(|(x, w)| (x, w));
                cuda.gemm_pair(first, second, epilogue, &mut out).expect("two products");
                let found = cuda.download(&out).expect("memory");
                for at in 0..200 {
                    let (i, j) = ((at * 7919 + at) % n_rows, (at * 31) % cols);
                    let terms = operands.each_ref().map(|(x, w)| dot(x, Transpose::No, w, Transpose::No, (i, j)));
                    let kept = if accumulate { f64::from(before.row(i)[j]) } else { 0.0 };
                    let sum = terms.iter().map(|term| term.0).sum::<f64>() + f64::from(bias.data()[j]) + kept;
                    let sizes =
                        terms.iter().map(|term| term.1).sum::<f64>() + f64::from(bias.data()[j].abs()) + kept.abs();
                    let expected = sum.max(0.0);
                    // Short products are computed one after the other, and rounded between them.
                    let rounding = if dtype == Dtype::Bf16 { 5e-3 * (expected + sizes * 0.5) } else { 0.0 };
                    let bound = 3e-7 * sizes.max(1.0) + rounding;
                    let found = f64::from(found.row(i)[j]);
                    assert!(
                        (found - expected).abs() <= bound,
                        "{dtype:?} {depths:?} ({i}, {j}): {found}, not {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn sums_over_nodes() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let Some(cuda) = cuda(dtype) else { return };
        let shapes = [(8, 8), (100, 64), (128, 47), (602, 41), (33, 200), (602, 256), (65, 100)];
        for (seed, (rows, cols)) in piece(shapes.into_iter().enumerate()) {
            let case = Case {
                dimensions: [rows, cols, LONG],
                transposes: (Transpose::Yes, Transpose::No),
                activation: Activation::Identity,
                has_bias: false,
                accumulate: seed % 2 == 1,
                dropout: None,
                dtypes: [dtype, Dtype::F32],
            };
            case.check(&cuda, 10 * seed as u64);
        }
    }
}

#[test]
fn gradients_go_back_through_an_activation_with_the_product() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let Some(cuda) = cuda(dtype) else { return };
        for (seed, (cols, depth)) in
            [(64, 47), (16, 8), (33, 41), (128, 128), (200, 16), (256, 300)].into_iter().enumerate()
        {
            for (activation, dropout) in piece([(Activation::Relu, Some(mask(0.3, 1))), (Activation::Elu, None)]) {
                through(&cuda, (cols, depth), ActivationGrad::of(activation, dropout), seed as u64, dtype);
            }
        }
    }
}

/// Compares a product fused with the gradient of an activation with the product and a separate pass. Also compares
/// sums of its columns with sums in `f64`.
fn through(cuda: &Cuda, (cols, depth): (usize, usize), slope: ActivationGrad, seed: u64, dtype: Dtype) {
    let upload = |shape, seed| cuda.upload(&random(shape, seed, dtype), dtype).expect("memory");
    let (grad, weight) = (upload(Shape::new(LONG, depth), seed), upload(Shape::new(cols, depth), seed + 1));
    let y = upload(Shape::new(LONG, cols), seed + 2);
    let zeros = |shape, dtype| cuda.zeros(shape, dtype).expect("memory");
    let (mut expected, mut found) = (zeros(Shape::new(LONG, cols), Dtype::F32), zeros(Shape::new(LONG, cols), dtype));
    let mut sums = zeros(Shape::new(1, cols), Dtype::F32);
    let (a, b) = ((&grad, Transpose::No), (&weight, Transpose::Yes));
    cuda.gemm(a, None, b, Epilogue::default(), &mut expected).expect("a product");
    cuda.epilogue_backward(slope, &y, &mut expected, None).expect("a pass");
    cuda.gemm_backward(a, b, EpilogueGrad::new(slope, &y), &mut found, Some(&mut sums)).expect("a product");
    let [expected, found, sums] = [&expected, &found, &sums].map(|matrix| cuda.download(matrix).expect("memory"));
    let rounding = if dtype == Dtype::Bf16 { 4e-3 } else { 1e-6 };
    let mut of_columns = vec![(0.0, 0.0); cols];
    for row in 0..LONG {
        for (j, (&found, &expected)) in found.row(row).iter().zip(expected.row(row)).enumerate() {
            let bound = rounding * expected.abs().max(1.0);
            assert!((found - expected).abs() <= bound, "{slope:?} {dtype:?}: ({row}, {j}) is {found}, not {expected}");
            of_columns[j].0 += f64::from(found);
            of_columns[j].1 += f64::from(found.abs());
        }
    }
    for (j, (sum, sizes)) in of_columns.into_iter().enumerate() {
        let found = f64::from(sums.data()[j]);
        assert!((found - sum).abs() <= 1e-6 * sizes, "{slope:?} {dtype:?}: column {j} sums to {found}, not {sum}");
    }
}

/// Compares a column slice of a gradient, and a product, both with row scales, with the unscaled results and a
/// separate pass.
#[test]
fn rows_are_stored_times_their_factors() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let Some(cuda) = cuda(dtype) else { return };
        for (seed, (n_rows, width, first, cols, depth)) in piece(
            [
                (LONG, 256, 128, 128, 256),
                (LONG, 256, 0, 128, 47),
                (LONG, 296, 256, 40, 100),
                (LONG, 47, 0, 47, 128),
                (LONG, 200, 64, 136, 33),
                (300, 64, 32, 32, 16),
            ]
            .into_iter()
            .enumerate(),
        ) {
            let draw = |rows, cols, seed| random(Shape::new(rows, cols), seed, dtype);
            let upload = |matrix: &Matrix, dtype| cuda.upload(matrix, dtype).expect("memory");
            let zeros = |rows, cols| cuda.zeros(Shape::new(rows, cols), dtype).expect("memory");
            let seed = 10 * seed as u64;
            let factors = upload(&draw(n_rows, 1, seed), Dtype::F32);
            let y = draw(n_rows, width, seed + 1);
            let some: Vec<f32> = (0..n_rows).flat_map(|row| y.row(row)[first..first + cols].to_vec()).collect();
            let some = upload(&Matrix::new(n_rows, cols, some).expect("a matrix"), dtype);
            let (y, x) = (upload(&y, dtype), upload(&draw(n_rows, depth, seed + 2), dtype));
            // Weights are stored as f32.
            let weight = upload(&draw(cols, depth, seed + 3), Dtype::F32);
            let (a, b) = ((&x, Transpose::No), (&weight, Transpose::Yes));
            let beside = |found: &CudaMatrix, plain: &CudaMatrix, what: &str| {
                let mut expected = cuda.zeros(Shape::new(n_rows, cols), Dtype::F32).expect("memory");
                cuda.scale_rows(&factors, (plain, 0), &mut expected).expect("a pass");
                let [found, expected] = [found, &expected].map(|matrix| cuda.download(matrix).expect("memory"));
                // The reference products were rounded before.
                let rounding = if dtype == Dtype::Bf16 { 1e-2 } else { 1e-6 };
                for (at, (found, expected)) in found.data().iter().zip(expected.data()).enumerate() {
                    let bound = rounding * expected.abs().max(1e-3);
                    assert!((found - expected).abs() <= bound, "{what}, {dtype:?}, {at}: {found}, not {expected}");
                }
            };

            let (mut plain, mut found) = (zeros(n_rows, cols), zeros(n_rows, cols));
            cuda.gemm(a, None, b, Epilogue::default(), &mut plain).expect("a product");
            cuda.gemm_scaled(&factors, a, b, &mut found).expect("a product");
            beside(&found, &plain, "a product");

            let slope = ActivationGrad::of(Activation::Relu, Some(mask(0.3, 1)));
            let sums = || cuda.zeros(Shape::new(1, cols), Dtype::F32).expect("memory");
            let (mut plain_sums, mut found_sums) = (sums(), sums());
            let way_back = EpilogueGrad::new(slope, &some);
            cuda.gemm_backward(a, b, way_back, &mut plain, Some(&mut plain_sums)).expect("a product");
            let way_back = EpilogueGrad { slope, y: &y, first, factors: Some(&factors) };
            cuda.gemm_backward(a, b, way_back, &mut found, Some(&mut found_sums)).expect("a product");
            beside(&found, &plain, "a gradient");
            let [plain_sums, found_sums] =
                [&plain_sums, &found_sums].map(|matrix| cuda.download(matrix).expect("memory"));
            assert_eq!(plain_sums, found_sums, "{dtype:?}, columns {first} and {cols} of {width}");
        }
    }
}

#[test]
fn what_is_no_number_stays_in_its_row() {
    for (dtype, cols) in piece([(Dtype::F32, 47), (Dtype::F32, 128), (Dtype::Bf16, 47)]) {
        let Some(cuda) = cuda(dtype) else { return };
        let mut values = random(Shape::new(LONG, 33), 1, dtype).data().to_vec();
        values[777 * 33 + 5] = f32::NAN;
        values[39_000 * 33 + 32] = f32::INFINITY;
        let a = Matrix::new(LONG, 33, values).expect("a matrix");
        let weight = random(Shape::new(33, cols), 2, dtype);
        let (x, weight) = (cuda.upload(&a, dtype).expect("memory"), cuda.upload(&weight, dtype).expect("memory"));
        let mut out = cuda.upload(&zeros(Shape::new(LONG, cols)), dtype).expect("memory");
        let epilogue = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
        cuda.gemm((&x, Transpose::No), None, (&weight, Transpose::No), epilogue, &mut out).expect("a product");
        let found = cuda.download(&out).expect("memory");
        for row in 0..LONG {
            let lost = found.row(row).iter().filter(|value| !value.is_finite()).count();
            match row {
                777 => assert!(found.row(row).iter().all(|value| value.is_nan()), "{dtype:?}: {:?}", found.row(row)),
                39_000 => assert!(lost > 0, "{dtype:?}: {:?}", found.row(row)),
                _ => assert_eq!(lost, 0, "{dtype:?}: row {row} is {:?}", found.row(row)),
            }
        }
    }
}
