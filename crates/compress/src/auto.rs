//! `auto:BYTES`: the codec with the least error within a budget.
//!
//! Every codec takes the largest setting that fits the budget. It learns from three quarters of the sample and is
//! measured on the rest, so that a codec cannot win by memorising the sample. The best codec then learns from the
//! whole sample.

use girih_graph_format::Matrix;
use girih_random::{Key, purpose};

use crate::fit::learn;
use crate::groups::{GROUP, topk_row_bytes};
use crate::sample::{Draws, draw_rows};
use crate::{CodecSpec, CompressError, ErrorReport, FeatureCodec};

/// Chooses the codec of least relative error on held-out rows; ties go to the first in the order of [`candidates`].
pub(crate) fn choose(row_bytes: usize, sample: &Matrix, seed: u64) -> Result<Box<dyn FeatureCodec>, CompressError> {
    let candidates = candidates(row_bytes, sample.n_cols());
    let (learnt, held_out) = split(sample, seed)?;
    let mut best: Option<(CodecSpec, f64)> = None;
    for spec in candidates {
        // Skips a candidate that cannot hold these features, such as f16 with large ones.
        let Ok(codec) = learn(spec, &learnt, seed) else { continue };
        let Ok(report) = ErrorReport::measure(&*codec, &held_out) else { continue };
        if best.is_none_or(|(_, error)| report.relative_error < error) {
            best = Some((spec, report.relative_error));
        }
    }
    match best {
        Some((spec, _)) => learn(spec, sample, seed),
        None => Err(CompressError::invalid(format!(
            "codec auto:{row_bytes}: no codec holds these {} features in {row_bytes} bytes a row; give more bytes, or scale \
             the features if they are very large",
            sample.n_cols()
        ))),
    }
}

/// Codecs whose codes have at most `row_bytes` bytes, each with its largest setting, in order of decoding cost.
fn candidates(row_bytes: usize, width: usize) -> Vec<CodecSpec> {
    let k = largest_k(row_bytes, width);
    let learning = [
        (k, CodecSpec::Topk as fn(u32) -> CodecSpec),
        (k, CodecSpec::TopkResidual),
        (row_bytes.min(width), CodecSpec::Pq),
        ((row_bytes / 2).min(width), CodecSpec::Pca),
    ];
    let fixed = [CodecSpec::F16, CodecSpec::Bf16, CodecSpec::Int8, CodecSpec::Int4];
    let fixed = fixed.into_iter().filter(|spec| spec.row_bytes(width) <= row_bytes);
    let learning = learning.into_iter().filter(|&(n, _)| n > 0).map(|(n, spec)| spec(n as u32));
    fixed.chain(learning).filter(|spec| spec.check().is_ok()).collect()
}

/// Largest `k` of a code book within the budget, at most half a group; 0 if there is none.
fn largest_k(row_bytes: usize, width: usize) -> usize {
    (1..=GROUP / 2).rev().find(|&k| topk_row_bytes(width, k) <= row_bytes).unwrap_or(0)
}

/// Splits the rows into three quarters to learn from, and the rest.
fn split(sample: &Matrix, seed: u64) -> Result<(Matrix, Matrix), CompressError> {
    let n_rows = sample.n_rows();
    if n_rows < 4 {
        return Err(CompressError::invalid(format!(
            "codec auto compares codecs on a part of the sample, which has {n_rows} rows; it needs at least 4"
        )));
    }
    let held_out = draw_rows(n_rows, n_rows / 4, Draws::HeldOut.of(Key::new(seed, purpose::COMPRESSION)));
    let mut is_held_out = vec![false; n_rows];
    held_out.iter().for_each(|&row| is_held_out[row] = true);
    let learnt: Vec<usize> = (0..n_rows).filter(|&row| !is_held_out[row]).collect();
    Ok((rows_of(sample, &learnt)?, rows_of(sample, &held_out)?))
}

fn rows_of(sample: &Matrix, rows: &[usize]) -> Result<Matrix, CompressError> {
    let values: Vec<f32> = rows.iter().flat_map(|&row| sample.row(row).iter().copied()).collect();
    Ok(Matrix::new(rows.len(), sample.n_cols(), values)?)
}
