//! Rows and codecs, shared by the tests of this crate.

use std::ops::Range;

use girih_compress::{FeatureCodec, fit};
use girih_graph_format::Matrix;
use girih_random::{Key, purpose};
use proptest::collection::vec;
use proptest::prelude::*;

/// Every codec, with settings that suit any width.
pub const SPECS: [&str; 9] = ["topk:8", "topk:128", "topk-residual:8", "f16", "bf16", "int8", "int4", "pca:2", "pq:2"];

pub fn fitted(spec: &str, sample: &Matrix) -> Box<dyn FeatureCodec> {
    fit(spec.parse().unwrap(), sample, 1).unwrap()
}

/// Normal noise.
pub fn noise(n_rows: usize, width: usize, seed: u64) -> Matrix {
    let mut stream = Key::new(seed, purpose::GENERATOR).stream(0, 0);
    Matrix::new(n_rows, width, (0..n_rows * width).map(|_| stream.normal()).collect::<Vec<_>>()).unwrap()
}

/// A few rows of smooth values, with many ties, or mostly zero.
pub fn any_rows(widths: Range<usize>) -> impl Strategy<Value = Matrix> {
    let value = prop_oneof![
        Just((-100.0f32..100.0).boxed()),
        Just((-3i8..3).prop_map(f32::from).boxed()),
        Just(prop_oneof![9 => Just(0.0f32), 1 => -2.0f32..2.0].boxed())
    ];
    (2usize..12, widths, value).prop_flat_map(|(n_rows, width, value)| {
        vec(value, n_rows * width).prop_map(move |values| Matrix::new(n_rows, width, values).unwrap())
    })
}

pub fn pool(n_threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap()
}
