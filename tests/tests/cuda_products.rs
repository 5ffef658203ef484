//! Compares sparse products on a CUDA device, with every block kernel, with sums in `f64`. Without a device the tests
//! report that and pass, unless `GIRIH_REQUIRE_GPU` is set.

use girih_compute::prelude::*;
use girih_compute::testing::piece;
use girih_compute::{Activation, Dropout, Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Csr, Matrix, Norm, Scales};
use girih_kernels::{BlockKernel, Cuda, CudaSparse, Device, Tiling};
use girih_random::Key;

/// First device, once for each of its block kernels.
fn cudas(tiling: Tiling) -> Vec<(BlockKernel, Cuda)> {
    let with = |kernel| match Device::open(0) {
        Ok(device) => match Cuda::new(device).tiling(tiling).multiplying_blocks_by(kernel) {
            Ok(cuda) => Some((kernel, cuda)),
            Err(error) => {
                println!("without {kernel}: {error}");
                None
            }
        },
        Err(error) if std::env::var_os("GIRIH_REQUIRE_GPU").is_some() => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    };
    [BlockKernel::Wgmma, BlockKernel::Mma, BlockKernel::Paper].into_iter().filter_map(with).collect()
}

/// Rows and columns of the graph, not a multiple of any kernel's tile.
const N_NODES: usize = 2999;

/// Symmetric graph with dense blocks: groups of 150 nodes, of which every third pair is joined. There are also random
/// edges, and one node that is adjacent to all.
fn graph() -> Csr {
    let mut stream = Key::new(7, 1).stream(0, 0);
    let mut rows = vec![std::collections::BTreeSet::new(); N_NODES];
    let mut join = |a: usize, b: usize| {
        rows[a].insert(b as u32);
        rows[b].insert(a as u32);
    };
    for a in 0..N_NODES {
        join(a, 17);
        for b in a / 150 * 150..a {
            if stream.below(3) == 0 {
                join(a, b);
            }
        }
        for _ in 0..4 {
            join(a, stream.below(N_NODES as u64) as usize);
        }
    }
    let mut indptr = vec![0];
    indptr.extend(rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    }));
    let indices: Vec<u32> = rows.into_iter().flatten().collect();
    Csr::new(N_NODES, N_NODES, indptr, indices, None).expect("a graph")
}

fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut stream = Key::new(seed, 2).stream(0, 0);
    // Magnitudes that differ by orders of magnitude between columns, as those of gradients do.
    let values: Vec<f32> = (0..rows * cols).map(|i| stream.normal() * 10f32.powi((i % cols % 7) as i32 - 5)).collect();
    Matrix::new(rows, cols, values).expect("a matrix")
}

/// Bias that is small relative to the sums, so that it does not hide their errors.
fn small_bias(width: usize) -> Matrix {
    let values: Vec<f32> = random(1, width, 3).data().iter().map(|value| value / 128.0).collect();
    Matrix::new(1, width, values).expect("a matrix")
}

/// `relu(L·A·R·X + b)` in `f64`.
fn reference(csr: &Csr, scales: &Scales, x: &Matrix, bias: &[f32]) -> Vec<f64> {
    let factor = |of: &Option<Vec<f32>>, i: usize| of.as_ref().map_or(1.0, |of| f64::from(of[i]));
    let mut out = Vec::with_capacity(csr.n_rows() * x.n_cols());
    for v in 0..csr.n_rows() {
        let mut sums = vec![0.0; x.n_cols()];
        for &u in csr.row(v) {
            let right = factor(&scales.right, u as usize);
            sums.iter_mut().zip(x.row(u as usize)).for_each(|(sum, &x)| *sum += right * f64::from(x));
        }
        let left = factor(&scales.left, v);
        out.extend(sums.iter().zip(bias).map(|(sum, &b)| (left * sum + f64::from(b)).max(0.0)));
    }
    out
}

/// `‖found - expected‖ / ‖expected‖`; NaN if one side is NaN and the other is not.
fn relative_error(found: &Matrix, expected: &[f64]) -> f64 {
    let (mut distance, mut length) = (0.0, 0.0);
    for (&found, &expected) in found.data().iter().zip(expected) {
        distance += (f64::from(found) - expected).powi(2);
        length += expected.powi(2);
    }
    (distance / length).sqrt()
}

fn multiply(cuda: &Cuda, csr: &Csr, scales: &Scales, x: &Matrix, bias: &Matrix, dtype: Dtype) -> Matrix {
    let operand = SparseOperand { csr, scales: scales.clone(), symmetric: true, names: None };
    let a = cuda.upload_sparse(&operand).expect("memory");
    product(cuda, &a, (x, bias), None, dtype)
}

/// `mask ⊙ relu(A·X + b)`.
fn product(
    cuda: &Cuda,
    a: &CudaSparse,
    (x, bias): (&Matrix, &Matrix),
    dropout: Option<Dropout>,
    dtype: Dtype,
) -> Matrix {
    let (x, bias) = (cuda.upload(x, dtype).expect("memory"), cuda.upload(bias, Dtype::F32).expect("memory"));
    let mut out = cuda.zeros(Shape::new(cuda.sparse_shape(a).rows, cuda.shape(&x).cols), dtype).expect("memory");
    let epilogue = Epilogue { bias: Some(&bias), activation: Activation::Relu, accumulate: false, dropout };
    cuda.spmm((a, Transpose::No), None, &x, epilogue, &mut out).expect("a product");
    cuda.download(&out).expect("memory")
}

/// Widths that are multiples of what kernels compute at once, and others; narrow and wide ones.
const WIDTHS: [usize; 10] = [8, 16, 47, 48, 64, 72, 100, 128, 200, 256];

#[test]
fn products_by_blocks_are_as_exact_as_their_storage() {
    let csr = graph();
    for tiling in [Tiling::From(0.0), Tiling::From(0.02), Tiling::From(0.2), Tiling::Never] {
        for (kernel, cuda) in cudas(tiling) {
            for width in piece(WIDTHS) {
                check_products(&cuda, &csr, width, &format!("{tiling:?} by {kernel}"));
            }
        }
    }
}

/// Checks products with and without scales, in both storage types. Relative errors stay below a bound in `f32`, and
/// below the rounding error in bf16.
fn check_products(cuda: &Cuda, csr: &Csr, width: usize, how: &str) {
    let (x, bias) = (random(N_NODES, width, width as u64), small_bias(width));
    for scales in [csr.scales(Norm::Symmetric), Scales { left: None, right: None }] {
        let expected = reference(csr, &scales, &x, bias.data());
        for (dtype, bound) in [(Dtype::F32, 5e-6), (Dtype::Bf16, 5e-3)] {
            let found = multiply(cuda, csr, &scales, &x, &bias, dtype);
            let error = relative_error(&found, &expected);
            assert!(error < bound, "{how}, width {width}, {dtype:?}: {error}");
            let again = multiply(cuda, csr, &scales, &x, &bias, dtype);
            assert!(found.data() == again.data(), "{how}, width {width}, {dtype:?}: not the same bits again");
        }
    }
}

#[test]
fn results_are_masked_as_they_are_made() {
    let csr = graph();
    // Kept values are doubled, so the point of rounding does not matter.
    let dropout = Dropout::new(0.5, Key::new(7, 5)).from_row(3);
    let scales = csr.scales(Norm::Symmetric);
    for tiling in [Tiling::From(0.02), Tiling::Never] {
        for (kernel, cuda) in cudas(tiling) {
            let operand = SparseOperand { csr: &csr, scales: scales.clone(), symmetric: true, names: None };
            let a = cuda.upload_sparse(&operand).expect("memory");
            for (width, dtype) in piece([8, 47, 64, 100].into_iter().flat_map(|w| [(w, Dtype::F32), (w, Dtype::Bf16)]))
            {
                let (x, bias) = (random(N_NODES, width, width as u64), small_bias(width));
                let whole = product(&cuda, &a, (&x, &bias), None, dtype);
                let masked = product(&cuda, &a, (&x, &bias), Some(dropout), dtype);
                let first = dropout.first_element(width);
                let expected = whole.data().iter().enumerate().map(|(e, &value)| dropout.factor(first + e) * value);
                let same = masked.data().iter().zip(expected).all(|(&found, expected)| found == expected);
                assert!(same, "{tiling:?} by {kernel}, width {width}, {dtype:?}");
            }
        }
    }
}

#[test]
fn what_is_no_number_reaches_neighbors_alone() {
    let csr = graph();
    let scales = Scales { left: None, right: None };
    let (mut values, lost) = (random(N_NODES, 48, 5).data().to_vec(), 1234);
    values[lost * 48 + 3] = f32::NAN;
    values[lost * 48 + 40] = f32::INFINITY;
    let (x, bias) = (Matrix::new(N_NODES, 48, values).expect("a matrix"), small_bias(48));
    for (kernel, cuda) in cudas(Tiling::From(0.0)) {
        for dtype in piece([Dtype::F32, Dtype::Bf16]) {
            let found = multiply(&cuda, &csr, &scales, &x, &bias, dtype);
            for v in 0..N_NODES {
                let reached = csr.row(v).contains(&(lost as u32));
                for (column, &value) in found.row(v).iter().enumerate() {
                    let expected = match column {
                        3 => value.is_nan() == reached,
                        40 => (value == f32::INFINITY) == reached,
                        _ => value.is_finite(),
                    };
                    assert!(expected, "{kernel}, {dtype:?}: row {v}, column {column} is {value}, reached: {reached}");
                }
            }
        }
    }
}

#[test]
fn a_number_far_larger_than_the_sample_is_summed_all_the_same() {
    // Wide enough that some elements are not inspected before values are split into halves.
    let (csr, width, large) = (graph(), 1408, 1e12_f32);
    let scales = Scales { left: None, right: None };
    let (mut values, outlier) = (random(N_NODES, width, 6).data().to_vec(), 1000 * width + 700);
    assert!(outlier / 128 % 16 != 0, "in a run that is not looked at");
    values[outlier] = large;
    let (x, bias) = (Matrix::new(N_NODES, width, values).expect("a matrix"), small_bias(width));
    let expected = reference(&csr, &scales, &x, bias.data());
    for (kernel, cuda) in cudas(Tiling::From(0.0)) {
        let found = multiply(&cuda, &csr, &scales, &x, &bias, Dtype::F32);
        let (mut distance, mut length) = (0.0, 0.0);
        for (i, (&found, &expected)) in found.data().iter().zip(&expected).enumerate() {
            if expected > f64::from(large) / 2.0 {
                assert!(csr.row(i / width).contains(&1000) && i % width == 700, "element {i} is {expected}");
                let near = (f64::from(found) - expected).abs() < 1e-6 * expected;
                assert!(near, "{kernel}, element {i}: {found}, expected {expected}");
            } else {
                distance += (f64::from(found) - expected).powi(2);
                length += expected.powi(2);
            }
        }
        let error = (distance / length).sqrt();
        assert!(error < 5e-6, "{kernel}, elsewhere: {error}");
    }
}
