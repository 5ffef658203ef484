//! [`Pca`]: coefficients of the principal components of a sample.
//!
//! A randomised range finder finds the components (Halko, Martinsson and Tropp, SIAM Review 53(2), 2011, algorithms
//! 4.4 and 5.1). It multiplies the sample by random vectors, makes the result orthonormal, with [`POWER_STEPS`] steps
//! of subspace iteration, and ends with a small singular value decomposition. faer's partial decomposition (a
//! restarted Lanczos method) may return fewer components than requested for a flat spectrum, as that of noise is;
//! this method does not.
//!
//! A coefficient is stored as `f16` after division by the standard deviation of the first component's coefficients.
//! So the range of features does not matter, and twice as many components fit as with `f32`. One scale serves all:
//! half precision keeps eleven bits of coefficients down to 2⁻¹⁴ of it, and smaller ones hardly count.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::matmul::matmul;
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::linalg::{householder, qr::no_pivoting::factor as qr};
use faer::{Accum, Conj, Mat, MatRef, Par, Spec};
use girih_graph_format::Matrix;
use girih_random::{Key, purpose};
use half::f16;

use crate::codec::{assert_lengths, check_finite, floats_to_bytes};
use crate::sample::{Draws, mean_row};
use crate::{CodecSpec, CompressError, FeatureCodec, Refused};

/// Number of random vectors beyond the number of components, and of steps of subspace iteration, both from Halko et
/// al., section 9.
const OVERSAMPLING: usize = 8;
const POWER_STEPS: usize = 2;
/// Largest magnitude of a feature: sums of the squares of a whole sample stay within `f32`.
const MAGNITUDE_MAX: f32 = 1e14;

/// Coefficients of principal components in half precision; they are summed before conversion to features.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pca {
    width: usize,
    n_components: usize,
    /// Parameters: the mean, the standard deviation of the first component's coefficients over the sample, the
    /// components.
    floats: Vec<f32>,
    /// Components times the deviation, component after component: the order in which decoding reads.
    scaled: Vec<f32>,
    /// Components divided by the deviation, feature after feature: the order in which encoding reads.
    projection: Vec<f32>,
}

impl Pca {
    /// Refuses more components than there are features.
    pub(crate) fn check(n_components: usize, width: usize) -> Result<(), CompressError> {
        if n_components > width {
            return Err(CompressError::invalid(format!(
                "codec pca:{n_components}: {n_components} components of {width} features; give at most {width}"
            )));
        }
        Ok(())
    }

    /// Fits the components to a sample of finite rows.
    pub(crate) fn fit(n_components: usize, sample: &Matrix, seed: u64) -> Result<Self, CompressError> {
        let (n_rows, width) = (sample.n_rows(), sample.n_cols());
        Self::check(n_components, width)?;
        let mean = mean_row(sample);
        let centred = Mat::from_fn(n_rows, width, |i, j| sample.row(i)[j] - mean[j]);
        if centred.col_iter().any(|column| column.iter().any(|value| value.abs() > MAGNITUDE_MAX)) {
            return Err(CompressError::invalid(format!(
                "codec pca:{n_components}: features so far from their mean that squares are beyond float32; scale them"
            )));
        }
        let (components, singular) = principal_components(centred.as_ref(), n_components, seed)?;

        let deviation = singular / (n_rows as f32).sqrt();
        let mut floats = mean;
        floats.push(if deviation > 0.0 { deviation } else { 1.0 });
        // A sample of few rows has fewer components than requested; the others have coefficients of zero.
        let value = |c: usize, j: usize| if c < components.ncols() { components[(j, c)] } else { 0.0 };
        floats.extend((0..n_components).flat_map(|c| (0..width).map(move |j| value(c, j))));
        Ok(Self::from_floats(n_components, width, floats))
    }

    /// Number of parameters.
    pub(crate) fn n_floats(n_components: usize, width: usize) -> usize {
        width + 1 + n_components * width
    }

    /// Makes a codec from [`Pca::n_floats`] parameters.
    pub(crate) fn from_floats(n_components: usize, width: usize, floats: Vec<f32>) -> Self {
        let (scale, components) = (floats[width], &floats[width + 1..]);
        let scaled = components.iter().map(|part| part * scale).collect();
        let places = (0..width).flat_map(|j| (0..n_components).map(move |c| (c, j)));
        let projection = places.map(|(c, j)| components[c * width + j] / scale).collect();
        Self { width, n_components, floats, scaled, projection }
    }

    /// Mean row of the sample.
    fn mean(&self) -> &[f32] {
        &self.floats[..self.width]
    }
}

impl FeatureCodec for Pca {
    fn spec(&self) -> CodecSpec {
        CodecSpec::Pca(self.n_components as u32)
    }

    fn width(&self) -> usize {
        self.width
    }

    fn row_bytes(&self) -> usize {
        2 * self.n_components
    }

    fn encode_row(&self, row: &[f32], code: &mut [u8]) -> Result<(), Refused> {
        assert_lengths(self, row.len(), code.len());
        check_finite(row)?;
        let mut coefficients = vec![0.0; self.n_components];
        let projection = self.projection.chunks_exact(self.n_components);
        for ((value, mean), projection) in row.iter().zip(self.mean()).zip(projection) {
            let value = value - mean;
            coefficients.iter_mut().zip(projection).for_each(|(sum, part)| *sum += value * part);
        }
        for (coefficient, code) in coefficients.into_iter().zip(code.chunks_exact_mut(2)) {
            let half = f16::from_f32(coefficient);
            if !half.is_finite() {
                let (column, value) = largest(row);
                let expected = "the row is 65504 deviations from the sample's mean, scale or drop it";
                return Err(Refused { column, value, expected });
            }
            code.copy_from_slice(&half.to_le_bytes());
        }
        Ok(())
    }

    fn decode_row(&self, code: &[u8], row: &mut [f32]) {
        assert_lengths(self, row.len(), code.len());
        let mut sum = vec![0.0; self.n_components];
        self.add_scaled(code, 1.0, &mut sum);
        self.finish_sum(&sum, 1.0, row);
    }

    fn sum_width(&self) -> usize {
        self.n_components
    }

    fn add_scaled(&self, code: &[u8], weight: f32, sum: &mut [f32]) {
        assert_eq!((sum.len(), code.len()), (self.sum_width(), self.row_bytes()), "a sum and a code");
        let coefficients = code.chunks_exact(2).map(|bytes| f16::from_le_bytes([bytes[0], bytes[1]]).to_f32());
        sum.iter_mut().zip(coefficients).for_each(|(sum, coefficient)| *sum += weight * coefficient);
    }

    fn finish_sum(&self, sum: &[f32], weight: f32, out: &mut [f32]) {
        out.iter_mut().zip(self.mean()).for_each(|(out, mean)| *out = weight * mean);
        for (coefficient, component) in sum.iter().zip(self.scaled.chunks_exact(self.width)) {
            out.iter_mut().zip(component).for_each(|(out, part)| *out += coefficient * part);
        }
    }

    fn parameters(&self) -> Vec<u8> {
        floats_to_bytes(&self.floats)
    }
}

/// Position and value of the feature of largest magnitude, for an error.
fn largest(row: &[f32]) -> (usize, f32) {
    row.iter().copied().enumerate().fold((0, 0.0f32), |max, new| if new.1.abs() > max.1.abs() { new } else { max })
}

/// Up to `n_components` right singular vectors of the centred sample, as columns, and the largest singular value.
/// Runs on one thread, so that results do not depend on the number of threads.
fn principal_components(
    centred: MatRef<'_, f32>,
    n_components: usize,
    seed: u64,
) -> Result<(Mat<f32>, f32), CompressError> {
    let (n_rows, width) = centred.shape();
    let n_vectors = (n_components + OVERSAMPLING).min(width).min(n_rows);
    let key = Draws::Components.of(Key::new(seed, purpose::COMPRESSION));
    let mut stream = key.stream(0, 0);
    let random = Mat::from_fn(width, n_vectors, |_, _| stream.normal());

    let mut range = orthonormal(product(centred, random.as_ref()));
    for _ in 0..POWER_STEPS {
        let rows = orthonormal(product(centred.transpose(), range.as_ref()));
        range = orthonormal(product(centred, rows.as_ref()));
    }
    let small = product(range.transpose(), centred);
    let (vectors, largest) = right_singular(small.as_ref())?;
    Ok((vectors.subcols(0, n_components.min(n_vectors)).to_owned(), largest))
}

fn product(a: MatRef<'_, f32>, b: MatRef<'_, f32>) -> Mat<f32> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    matmul(out.as_mut(), Accum::Replace, a, b, 1.0, Par::Seq);
    out
}

/// Orthonormal factor of a tall matrix.
fn orthonormal(mut matrix: Mat<f32>) -> Mat<f32> {
    let (m, n) = matrix.shape();
    let block = qr::recommended_block_size::<f32>(m, n);
    let mut coefficients = Mat::zeros(block, n);
    let params = Spec::default();
    let mut memory = MemBuffer::new(qr::qr_in_place_scratch::<f32>(m, n, block, Par::Seq, params));
    qr::qr_in_place(matrix.as_mut(), coefficients.as_mut(), Par::Seq, MemStack::new(&mut memory), params);

    let mut out = Mat::identity(m, n);
    let mut memory =
        MemBuffer::new(householder::apply_block_householder_sequence_on_the_left_in_place_scratch::<f32>(m, block, n));
    householder::apply_block_householder_sequence_on_the_left_in_place_with_conj(
        matrix.as_ref(),
        coefficients.as_ref(),
        Conj::No,
        out.as_mut(),
        Par::Seq,
        MemStack::new(&mut memory),
    );
    out
}

/// Right singular vectors, as columns by descending singular value, and the largest singular value.
fn right_singular(wide: MatRef<'_, f32>) -> Result<(Mat<f32>, f32), CompressError> {
    let (m, n) = wide.shape();
    let size = m.min(n);
    let mut vectors = Mat::zeros(n, size);
    let mut values = Diag::zeros(size);
    let (none, thin) = (ComputeSvdVectors::No, ComputeSvdVectors::Thin);
    let mut memory = MemBuffer::new(svd_scratch::<f32>(m, n, none, thin, Par::Seq, Spec::default()));
    let stack = MemStack::new(&mut memory);
    svd(wide, values.as_mut(), None, Some(vectors.as_mut()), Par::Seq, stack, Spec::default()).map_err(|_| {
        CompressError::invalid(
            "codec pca: the sample's decomposition did not converge; scale the features if they are very small",
        )
    })?;
    let largest = values.column_vector()[0];
    Ok((vectors, largest))
}
