//! [`fit`]: choice of the codec that a [`CodecSpec`] names, fitted to a sample or made from its parameters.

use girih_graph_format::Matrix;

use crate::half::Half;
use crate::pca::Pca;
use crate::pq::ProductQuantizer;
use crate::quantized::Quantized;
use crate::topk::{TopkCodebook, ties};
use crate::{CodecSpec, CompressError, FeatureCodec, auto};

/// Fits a codec to a sample of rows; `seed` is the random seed of the codec's draws. Warns, by `tracing`, when a code
/// book is requested and values tie in most groups, as in bags of words.
///
/// # Errors
/// When the setting does not suit the width, a codec that learns gets fewer than two rows, or a value is not finite.
pub fn fit(spec: CodecSpec, sample: &Matrix, seed: u64) -> Result<Box<dyn FeatureCodec>, CompressError> {
    let codec = learn(spec, sample, seed)?;
    if let Some(warning) = ties::warning(spec, sample) {
        tracing::warn!("{warning}");
    }
    Ok(codec)
}

/// As [`fit`], but without a warning.
pub(crate) fn learn(spec: CodecSpec, sample: &Matrix, seed: u64) -> Result<Box<dyn FeatureCodec>, CompressError> {
    spec.check()?;
    let width = sample.n_cols();
    check_width(width)?;
    if spec.needs_sample() {
        if sample.n_rows() < 2 {
            return Err(CompressError::invalid(format!(
                "codec {spec} learns from a sample of {} rows; it needs at least 2",
                sample.n_rows()
            )));
        }
        sample.check_finite()?;
    }
    Ok(match spec {
        CodecSpec::Topk(_) | CodecSpec::TopkResidual(_) => Box::new(TopkCodebook::fit(spec, sample)?),
        CodecSpec::F16 | CodecSpec::Bf16 => Box::new(Half::new(spec, width)),
        CodecSpec::Int8 | CodecSpec::Int4 => Box::new(Quantized::new(spec, width)),
        CodecSpec::Pca(components) => Box::new(Pca::fit(components as usize, sample, seed)?),
        CodecSpec::Pq(pieces) => Box::new(ProductQuantizer::fit(pieces as usize, sample, seed)?),
        CodecSpec::Auto(row_bytes) => auto::choose(row_bytes as usize, sample, seed)?,
    })
}

/// Makes the codec that had these [`parameters`](FeatureCodec::parameters).
///
/// # Errors
/// When the parameters do not belong to a codec of this spec and width.
pub fn from_parameters(
    spec: CodecSpec,
    width: usize,
    parameters: &[u8],
) -> Result<Box<dyn FeatureCodec>, CompressError> {
    spec.check()?;
    check_width(width)?;
    let floats = |expected: usize| floats_from_bytes(parameters, expected, spec);
    Ok(match spec {
        CodecSpec::Topk(_) | CodecSpec::TopkResidual(_) => {
            Box::new(TopkCodebook::from_floats(spec, width, floats(TopkCodebook::n_floats(spec, width))?))
        }
        CodecSpec::F16 | CodecSpec::Bf16 => {
            floats(0)?;
            Box::new(Half::new(spec, width))
        }
        CodecSpec::Int8 | CodecSpec::Int4 => {
            floats(0)?;
            Box::new(Quantized::new(spec, width))
        }
        CodecSpec::Pca(components) => {
            let n_components = components as usize;
            Pca::check(n_components, width)?;
            Box::new(Pca::from_floats(n_components, width, floats(Pca::n_floats(n_components, width))?))
        }
        CodecSpec::Pq(pieces) => {
            let n_pieces = pieces as usize;
            ProductQuantizer::check(n_pieces, width)?;
            Box::new(ProductQuantizer::from_floats(n_pieces, width, &floats(ProductQuantizer::n_floats(width))?))
        }
        CodecSpec::Auto(_) => {
            return Err(CompressError::corrupt(format!("{spec} is a rule for choosing, and no codec that has a code")));
        }
    })
}

/// Refuses rows without features, or with too many.
fn check_width(width: usize) -> Result<(), CompressError> {
    match u32::try_from(width) {
        Ok(1..) => Ok(()),
        _ => Err(CompressError::invalid(format!("rows of {width} features; expected 1 to {}", u32::MAX))),
    }
}

/// Decodes parameters from bytes: `expected` finite numbers.
fn floats_from_bytes(bytes: &[u8], expected: usize, spec: CodecSpec) -> Result<Vec<f32>, CompressError> {
    if expected.checked_mul(size_of::<f32>()) != Some(bytes.len()) {
        return Err(CompressError::corrupt(format!(
            "codec {spec} has {} bytes of parameters, expected {expected} numbers of 4 bytes",
            bytes.len()
        )));
    }
    let floats: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    match floats.iter().position(|value| !value.is_finite()) {
        None => Ok(floats),
        Some(at) => Err(CompressError::corrupt(format!("parameter {at} of codec {spec} is {}", floats[at]))),
    }
}
