//! [`ErrorReport`]: errors of decoded rows, relative to the encoded ones.

use girih_graph_format::Matrix;
use rayon::prelude::*;

use crate::{CompressError, FeatureCodec, RowSource};

/// Errors of a codec over some rows, such as a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorReport {
    /// Number of rows compared.
    pub n_rows: usize,
    /// Mean over rows of the cosine between a row and its decoded code. The cosine is one for two rows of zeros, and
    /// zero for a row of zeros and another one.
    pub cosine_mean: f64,
    /// Norm of all errors over the norm of all features; zero where both are zero.
    pub relative_error: f64,
    /// Largest absolute error of a feature.
    pub error_max: f64,
}

/// Number of rows per block; results of blocks are added in order, so that they do not depend on threads.
const BLOCK_ROWS: usize = 64;

/// Sums over rows.
#[derive(Clone, Copy, Default)]
struct Sums {
    cosine: f64,
    error_squared: f64,
    norm_squared: f64,
    error_max: f64,
}

impl ErrorReport {
    /// Encodes and decodes `rows`, and measures the errors.
    ///
    /// # Errors
    /// When the width differs from the codec's, or the codec refuses a value.
    pub fn measure(codec: &dyn FeatureCodec, rows: &Matrix) -> Result<Self, CompressError> {
        let width = codec.width();
        if rows.n_cols() != width {
            return Err(CompressError::invalid(format!(
                "rows of {} features for a codec fitted to {width}",
                rows.n_cols()
            )));
        }
        let blocks: Vec<Sums> = rows
            .data()
            .par_chunks(BLOCK_ROWS * width)
            .enumerate()
            .map(|(block, rows)| block_sums(codec, block * BLOCK_ROWS, rows))
            .collect::<Result<_, _>>()?;
        let total = blocks.iter().fold(Sums::default(), |a, b| Sums {
            cosine: a.cosine + b.cosine,
            error_squared: a.error_squared + b.error_squared,
            norm_squared: a.norm_squared + b.norm_squared,
            error_max: a.error_max.max(b.error_max),
        });
        let relative = (total.error_squared / total.norm_squared).sqrt();
        Ok(Self {
            n_rows: rows.n_rows(),
            cosine_mean: total.cosine / rows.n_rows().max(1) as f64,
            relative_error: if total.error_squared == 0.0 { 0.0 } else { relative },
            error_max: total.error_max,
        })
    }
}

fn block_sums(codec: &dyn FeatureCodec, first_row: usize, rows: &[f32]) -> Result<Sums, CompressError> {
    let (mut code, mut decoded) = (vec![0; codec.row_bytes()], vec![0.0; codec.width()]);
    let mut sums = Sums::default();
    for (i, row) in rows.chunks_exact(codec.width()).enumerate() {
        codec.encode_row(row, &mut code).map_err(|refused| refused.of_row(first_row + i))?;
        codec.decode_row(&code, &mut decoded);
        sums.add_row(row, &decoded);
    }
    Ok(sums)
}

impl Sums {
    fn add_row(&mut self, row: &[f32], decoded: &[f32]) {
        for (&x, &y) in row.iter().zip(decoded) {
            let (x, y) = (f64::from(x), f64::from(y));
            self.norm_squared += x * x;
            self.error_squared += (x - y) * (x - y);
            self.error_max = self.error_max.max((x - y).abs());
        }
        self.cosine += cosine(row, decoded);
    }
}

/// Cosine of the angle between two rows: one for two rows of zeros, zero for a row of zeros and another one.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let (mut dot, mut norm_a, mut norm_b) = (0.0, 0.0, 0.0);
    for (&x, &y) in a.iter().zip(b) {
        let (x, y) = (f64::from(x), f64::from(y));
        dot += x * y;
        norm_a += x * x;
        norm_b += y * y;
    }
    match (norm_a == 0.0, norm_b == 0.0) {
        (true, true) => 1.0,
        (false, false) => dot / (norm_a.sqrt() * norm_b.sqrt()),
        _ => 0.0,
    }
}

/// Mean over rows of the cosine between a row of `a` and that of `b`, as in [`ErrorReport::cosine_mean`]; one if
/// there are no rows.
///
/// # Errors
/// When the two have different numbers of rows or columns, or cannot be read.
pub fn mean_cosine(a: &dyn RowSource, b: &dyn RowSource) -> Result<f64, CompressError> {
    let (n_rows, width) = (a.n_rows(), a.width());
    if (n_rows, width) != (b.n_rows(), b.width()) {
        let (other_rows, other_width) = (b.n_rows(), b.width());
        return Err(CompressError::invalid(format!(
            "rows of {width} features of {n_rows} nodes against {other_width} of {other_rows}; compare rows of the same nodes"
        )));
    }
    let n_blocks = n_rows.div_ceil(BLOCK_ROWS);
    let block = |block: usize| {
        let rows = block * BLOCK_ROWS..((block + 1) * BLOCK_ROWS).min(n_rows);
        let (mut of_a, mut of_b) = (vec![0.0; rows.len() * width], vec![0.0; rows.len() * width]);
        a.read_rows(rows.start, &mut of_a)?;
        b.read_rows(rows.start, &mut of_b)?;
        let pairs = of_a.chunks_exact(width.max(1)).zip(of_b.chunks_exact(width.max(1)));
        Ok(pairs.map(|(a, b)| cosine(a, b)).sum::<f64>())
    };
    let sums = (0..n_blocks).into_par_iter().map(block).collect::<Result<Vec<f64>, CompressError>>()?;
    Ok(if n_rows == 0 { 1.0 } else { sums.iter().sum::<f64>() / n_rows as f64 })
}
