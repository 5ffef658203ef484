//! Refused input, and the messages.

use crate::common::{SPECS, fitted, noise};
use girih_compress::{
    Aggregate, CodecSpec, CompressError, CompressedFeatures, ErrorReport, SampleOptions, draw_sample, fit,
    from_parameters,
};
use girih_graph_format::Matrix;

fn told<T: std::fmt::Debug>(result: Result<T, CompressError>, words: &[&str]) {
    let error = result.unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}: {words:?}");
}

#[test]
fn values_that_are_no_numbers_are_refused_by_every_codec() {
    let rows = noise(10, 300, 1);
    for spec in SPECS {
        let codec = fitted(spec, &rows);
        let mut code = vec![0; codec.row_bytes()];
        for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut row = rows.row(0).to_vec();
            row[290] = value;
            let refused = codec.encode_row(&row, &mut code).unwrap_err();
            assert_eq!((refused.column, refused.value.to_bits()), (290, value.to_bits()), "{spec}");
        }
    }
    let mut values = rows.data().to_vec();
    values[5 * 300 + 7] = f32::NAN;
    let rows = Matrix::new(10, 300, values).unwrap();
    for spec in ["topk:8", "topk-residual:8", "pca:2", "pq:2", "auto:100"] {
        told(fit(spec.parse().unwrap(), &rows, 0), &["row 5, column 7", "finite"]);
    }
}

#[test]
fn values_beyond_a_codec_are_refused_with_their_place() {
    let rows = noise(10, 300, 1);
    for (spec, value) in [("f16", 65520.0f32), ("bf16", f32::MAX), ("int8", f32::MAX / 3.0), ("int4", -f32::MAX)] {
        let codec = fitted(spec, &rows);
        let mut row = rows.row(0).to_vec();
        row[299] = value;
        let refused = codec.encode_row(&row, &mut vec![0; codec.row_bytes()]).unwrap_err();
        assert_eq!((refused.column, refused.value), (299, value), "{spec}");
    }
    // The upper limit of half precision lies between 65504 and 65520.
    let codec = fitted("f16", &rows);
    let mut row = rows.row(0).to_vec();
    row[0] = 65519.0;
    codec.encode_row(&row, &mut vec![0; 600]).unwrap();
    // Residual that overflows.
    let low = Matrix::new(2, 3, vec![-f32::MAX; 6]).unwrap();
    let codec = fit(CodecSpec::TopkResidual(1), &low, 0).unwrap();
    let refused = codec.encode_row(&[0.0, f32::MAX, 0.0], &mut [0; 2]).unwrap_err();
    assert_eq!((refused.column, refused.value), (1, f32::MAX));
}

#[test]
fn samples_and_settings_that_do_not_suit_are_refused() {
    for spec in ["topk:8", "topk-residual:8", "pca:2", "pq:2", "auto:100"] {
        told(fit(spec.parse().unwrap(), &noise(1, 300, 1), 0), &["1 rows", "at least 2"]);
    }
    let rows = noise(10, 30, 1);
    told(fit(CodecSpec::Topk(129), &rows, 0), &["129", "1 to 128"]);
    told(fit(CodecSpec::Topk(0), &rows, 0), &["1 to 128"]);
    told(fit(CodecSpec::Pca(31), &rows, 0), &["31 components of 30"]);
    told(fit(CodecSpec::Pq(31), &rows, 0), &["31 pieces of 30"]);
    told(fit(CodecSpec::Auto(2), &noise(3, 30, 1), 0), &["3 rows", "at least 4"]);
    told(fit(CodecSpec::F16, &Matrix::new(3, 0, Vec::new()).unwrap(), 0), &["0 features"]);
    let large = Matrix::new(4, 2, vec![f32::MAX, -f32::MAX, 1.0, 2.0, -f32::MAX, f32::MAX, 3.0, 4.0]).unwrap();
    told(fit(CodecSpec::Pca(1), &large, 0), &["scale"]);
    told(fit(CodecSpec::Pq(1), &large, 0), &["scale"]);
    // Two rows are a valid sample, even for codecs with more components than they have.
    fit(CodecSpec::Pca(30), &noise(2, 30, 1), 0).unwrap();
    fit(CodecSpec::Pq(30), &noise(2, 30, 1), 0).unwrap();
}

#[test]
fn parameters_that_do_not_fit_are_refused() {
    for spec in SPECS {
        let codec = fitted(spec, &noise(10, 30, 1));
        let parameters = codec.parameters();
        let longer: Vec<u8> = parameters.iter().copied().chain([0]).collect();
        assert!(from_parameters(codec.spec(), 30, &longer).unwrap_err().is_corrupt(), "{spec}");
        if !parameters.is_empty() {
            assert!(from_parameters(codec.spec(), 30, &parameters[..parameters.len() - 4]).is_err(), "{spec}");
            let mut infinite = parameters.clone();
            infinite[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
            told(from_parameters(codec.spec(), 30, &infinite), &["parameter 0", "inf"]);
        }
    }
    assert!(from_parameters(CodecSpec::Auto(9), 30, &[]).is_err());
    assert!(from_parameters(CodecSpec::F16, 0, &[]).is_err());
}

#[test]
fn codes_that_name_no_column_are_found() {
    let encoded = |width| {
        let rows = noise(10, width, 1);
        CompressedFeatures::fitted(CodecSpec::Topk(2), &rows, 0).unwrap()
    };
    for (width, last, is_sound) in
        [(30, 29, true), (30, 30, false), (300, 43, true), (300, 44, false), (256, 255, true)]
    {
        let all = encoded(width);
        all.check_codes().unwrap();
        let mut codes = all.codes().to_vec();
        let row_bytes = all.codec().row_bytes();
        codes[7 * row_bytes - 1] = last;
        let changed = all.of_codes(codes).unwrap().check_codes();
        assert_eq!(changed.is_ok(), is_sound, "{width} features, column {last}");
        if !is_sound {
            told(changed, &["row 6"]);
        }
    }
}

#[test]
fn rows_and_nodes_have_to_fit() {
    let rows = noise(10, 30, 1);
    let features = CompressedFeatures::encode(fitted("topk:2", &rows), &rows).unwrap();
    features.check_nodes(10).unwrap();
    told(features.check_nodes(11), &["10 rows", "11 nodes"]);
    let mut out = vec![0.0; 60];
    told(features.gather(&[3, 10], &mut out), &["node 10", "10 rows"]);
    told(features.aggregate(Aggregate::Sum, |_| &[u32::MAX], &mut out), &["node 4294967295"]);
    told(CompressedFeatures::encode(fitted("f16", &rows), &noise(2, 31, 1)), &["31 features", "30"]);
    told(ErrorReport::measure(features.codec(), &noise(2, 31, 1)), &["31 features", "30"]);
}

#[test]
fn a_sample_is_what_was_asked_for() {
    let rows = noise(100, 5, 1);
    let sample = draw_sample(&rows, SampleOptions { n_rows: 20, seed: 3 }).unwrap();
    assert_eq!((sample.n_rows(), sample.n_cols()), (20, 5));
    let is_row = |row: &[f32]| rows.data().chunks(5).any(|other| other == row);
    assert!(sample.data().chunks(5).all(is_row));
    assert_eq!(draw_sample(&rows, SampleOptions { n_rows: 1000, seed: 3 }).unwrap(), rows);
    assert_ne!(draw_sample(&rows, SampleOptions { n_rows: 20, seed: 4 }).unwrap(), sample);
}

/// Fitting refuses a book whose decoded features would be infinite: a mean and a value of the book that add up beyond
/// `f32`.
#[test]
fn a_book_whose_rows_would_be_infinite_is_refused() {
    let large = Matrix::new(4, 3, vec![3e38, 1.0, 0.0, 3e38, 1.0, -3e38, 3e38, 0.0, 0.0, 2e38, 2.0, -3e38]).unwrap();
    let error = fit(CodecSpec::TopkResidual(1), &large, 0).unwrap_err().to_string();
    assert!(error.contains("beyond float32"), "{error}");
    fit(CodecSpec::Topk(1), &large, 0).unwrap();
}
