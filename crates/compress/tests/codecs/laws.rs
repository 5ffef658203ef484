//! Laws of codecs: kept positions, decoded values, sizes and errors; threads, batches and aggregation do not change
//! results.

use crate::common::{SPECS, any_rows, fitted, noise, pool};
use girih_compress::{
    Aggregate, CodecSpec, CompressedFeatures, ErrorReport, FeatureCodec, GROUP, fit, from_parameters, mean_cosine,
};
use girih_graph_format::Matrix;
use proptest::prelude::*;

fn decoded(codec: &dyn FeatureCodec, row: &[f32]) -> Vec<f32> {
    let (mut code, mut out) = (vec![0; codec.row_bytes()], vec![f32::NAN; codec.width()]);
    codec.encode_row(row, &mut code).unwrap();
    codec.decode_row(&code, &mut out);
    out
}

/// Positions of a group in the order of the tie rule: by descending value, then ascending position.
fn order_of(group: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..group.len()).collect();
    order.sort_by(|&a, &b| group[b].partial_cmp(&group[a]).unwrap().then(a.cmp(&b)));
    order
}

/// Kept positions of a group, in the order of its code.
fn kept(group: &[f32], k: usize) -> Vec<usize> {
    let order = order_of(group);
    let (high, low) = (k.min(group.len().div_ceil(2)), k.min(group.len() / 2));
    order[..high].iter().chain(order.iter().rev().take(low)).copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_code_book_keeps_the_extremes_and_nothing_else(rows in any_rows(2..600), k in 1usize..=128) {
        let codec = fit(CodecSpec::Topk(k as u32), &rows, 0).unwrap();
        let row = rows.row(0);
        let mut code = vec![0; codec.row_bytes()];
        codec.encode_row(row, &mut code).unwrap();
        let expected: Vec<u8> = row.chunks(GROUP).flat_map(|group| kept(group, k)).map(|place| place as u8).collect();
        prop_assert_eq!(&code, &expected);

        let out = decoded(&*codec, row);
        let book: Vec<f32> = parameters(&*codec);
        let mut by_place = vec![0.0; row.len()];
        let mut at = 0;
        for (g, group) in row.chunks(GROUP).enumerate() {
            for place in kept(group, k) {
                by_place[g * GROUP + place] = book[at];
                at += 1;
            }
        }
        prop_assert_eq!(at, book.len());
        prop_assert_eq!(out, by_place);
    }

    #[test]
    fn a_code_book_is_the_mean_by_rank(rows in any_rows(2..600), k in 1usize..=128) {
        let codec = fit(CodecSpec::Topk(k as u32), &rows, 0).unwrap();
        let mut sums = vec![0.0f64; codec.row_bytes()];
        for r in 0..rows.n_rows() {
            let values = rows.row(r).chunks(GROUP).flat_map(|group| kept(group, k).into_iter().map(|place| group[place]));
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(value));
        }
        for (book, sum) in parameters(&*codec).iter().zip(sums) {
            let mean = sum / rows.n_rows() as f64;
            prop_assert!((f64::from(*book) - mean).abs() <= 1e-6 * mean.abs().max(1e-6), "{book} {mean}");
        }
    }

    #[test]
    fn parameters_make_the_same_codec(rows in any_rows(2..300)) {
        for spec in SPECS {
            let codec = fitted(spec, &rows);
            let again = from_parameters(codec.spec(), codec.width(), &codec.parameters()).unwrap();
            prop_assert_eq!(codec.spec(), again.spec());
            prop_assert_eq!(codec.parameters(), again.parameters());
            let (mut a, mut b) = (vec![0; codec.row_bytes()], vec![0; codec.row_bytes()]);
            codec.encode_row(rows.row(1), &mut a).unwrap();
            again.encode_row(rows.row(1), &mut b).unwrap();
            prop_assert_eq!(a, b);
            prop_assert_eq!(decoded(&*codec, rows.row(1)), decoded(&*again, rows.row(1)));
        }
    }

    #[test]
    fn aggregating_codes_is_aggregating_decoded_rows(rows in any_rows(2..300), seed in any::<u32>()) {
        let lists: Vec<Vec<u32>> = (0..40u32)
            .map(|v| (0..v % 9).map(|i| (seed.wrapping_mul(31) ^ (v * 40 + i)) % rows.n_rows() as u32).collect())
            .collect();
        let weights: Vec<Vec<f32>> =
            lists.iter().map(|list| list.iter().map(|&u| u as f32 * 0.25 - 1.0).collect()).collect();
        for spec in SPECS {
            let features = CompressedFeatures::encode(fitted(spec, &rows), &rows).unwrap();
            let width = features.width();
            let is_exact = !matches!(features.codec().spec(), CodecSpec::Pca(_) | CodecSpec::TopkResidual(_));
            // Up to 8 features of up to 100, in any order of additions.
            let close =
                |found: &[f32], expected: &[f64]| found.iter().zip(expected).all(|(&a, &b)| (f64::from(a) - b).abs() < 1e-3);
            let (mut sums, mut means) = (vec![9.0; lists.len() * width], vec![9.0; lists.len() * width]);
            let mut weighted = sums.clone();
            features.aggregate(Aggregate::Sum, |v| &lists[v], &mut sums).unwrap();
            features.aggregate(Aggregate::Mean, |v| &lists[v], &mut means).unwrap();
            features.aggregate_weighted(|v| &lists[v], |v| &weights[v], &mut weighted).unwrap();
            for (v, list) in lists.iter().enumerate() {
                let mut decoded = vec![0.0; list.len() * width];
                features.gather(list, &mut decoded).unwrap();
                let (mut sum, mut weighted_sum) = (vec![0.0f32; width], vec![0.0f64; width]);
                for (row, &weight) in decoded.chunks_exact(width).zip(&weights[v]) {
                    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                    let weighted = weighted_sum.iter_mut().zip(row);
                    weighted.for_each(|(sum, &value)| *sum += f64::from(value) * f64::from(weight));
                }
                let n = list.len().max(1) as f32;
                let here = v * width..(v + 1) * width;
                if is_exact {
                    prop_assert_eq!(&sums[here.clone()], &sum[..]);
                    let mean: Vec<f32> = sum.iter().map(|sum| sum / n).collect();
                    prop_assert_eq!(&means[here.clone()], &mean[..]);
                }
                let wide: Vec<f64> = sum.iter().map(|&value| f64::from(value)).collect();
                prop_assert!(close(&sums[here.clone()], &wide), "{spec} {v}");
                let wide: Vec<f64> = sum.iter().map(|&value| f64::from(value / n)).collect();
                prop_assert!(close(&means[here.clone()], &wide), "{spec} {v}");
                prop_assert!(close(&weighted[here], &weighted_sum), "{spec} {v}");
            }
        }
    }

    #[test]
    fn scalar_codecs_are_as_near_as_their_steps(rows in any_rows(2..300)) {
        for (spec, levels, group) in [("int8", 255.0, 256), ("int4", 15.0, 64)] {
            let out = decoded(&*fitted(spec, &rows), rows.row(0));
            for (values, out) in rows.row(0).chunks(group).zip(out.chunks(group)) {
                let (low, high) = values.iter().fold((f32::MAX, f32::MIN), |(l, h), &v| (l.min(v), h.max(v)));
                let bound = (high - low) / levels * 0.5 + 1e-5 * (high - low) + 1e-6 * high.abs().max(low.abs());
                for (value, out) in values.iter().zip(out) {
                    prop_assert!((value - out).abs() <= bound, "{spec}: {value} {out} {bound}");
                }
            }
        }
        for (spec, relative) in [("f16", 1.0 / 2048.0), ("bf16", 1.0 / 256.0)] {
            let out = decoded(&*fitted(spec, &rows), rows.row(0));
            for (value, out) in rows.row(0).iter().zip(out) {
                prop_assert!((value - out).abs() <= relative * value.abs() + 6e-8, "{spec}: {value} {out}");
            }
        }
    }
}

/// The book, or all parameters, as numbers.
fn parameters(codec: &dyn FeatureCodec) -> Vec<f32> {
    codec.parameters().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn sizes_are_those_of_the_formula() {
    let bytes = |spec: &str, width: usize| fitted(spec, &noise(2, width, 1)).row_bytes();
    for k in 1..=128 {
        assert_eq!(bytes(&format!("topk:{k}"), 256), 2 * k);
        // 256 × 4 bytes become 2k.
        assert_eq!(4.0 * 768.0 / bytes(&format!("topk:{k}"), 768) as f64, 512.0 / k as f64);
        assert_eq!(bytes(&format!("topk-residual:{k}"), 602), 4 * k + (2 * k).min(90));
    }
    assert_eq!(bytes("topk:8", 602), 48);
    assert_eq!((4.0 * 602.0f64 / 48.0 * 10.0).round(), 502.0);
    assert_eq!(bytes("topk:8", 5), 5);
    assert_eq!([bytes("f16", 602), bytes("bf16", 602)], [1204, 1204]);
    assert_eq!([bytes("int8", 602), bytes("int4", 602)], [602 + 3 * 8, 301 + 10 * 8]);
    assert_eq!([bytes("pca:16", 602), bytes("pq:48", 602)], [32, 48]);
}

#[test]
fn short_groups_keep_everything_once() {
    for n in 1..40 {
        let rows = noise(30, 256 + n, 3);
        let codec = fit(CodecSpec::Topk(20), &rows, 0).unwrap();
        let mut code = vec![0; codec.row_bytes()];
        codec.encode_row(rows.row(0), &mut code).unwrap();
        assert_eq!(code.len(), 40 + n);
        let mut short = code[40..].to_vec();
        short.sort_unstable();
        assert_eq!(short, (0..n as u8).collect::<Vec<_>>());
    }
}

#[test]
fn the_residual_variant_has_the_mean_where_nothing_is_kept() {
    let rows = noise(200, 300, 5);
    let shifted: Vec<f32> = rows.data().iter().enumerate().map(|(i, v)| v + (i % 300 % 7) as f32 * 10.0).collect();
    let rows = Matrix::new(200, 300, shifted).unwrap();
    let codec = fit(CodecSpec::TopkResidual(4), &rows, 0).unwrap();
    let out = decoded(&*codec, rows.row(0));
    let mean = |j: usize| (0..200).map(|r| f64::from(rows.row(r)[j])).sum::<f64>() / 200.0;
    let at_mean = (0..300).filter(|&j| (f64::from(out[j]) - mean(j)).abs() < 1e-4).count();
    assert_eq!(at_mean, 300 - 16);
    let error = |spec| ErrorReport::measure(&*fit(spec, &rows, 0).unwrap(), &rows).unwrap().relative_error;
    assert!(error(CodecSpec::TopkResidual(4)) < 0.1 && error(CodecSpec::Topk(4)) > 0.5);
}

#[test]
fn threads_and_batches_change_no_byte() {
    let rows = noise(1000, 333, 7);
    for spec in SPECS {
        let encode = |threads: usize| {
            pool(threads).install(|| {
                let codec = fitted(spec, &rows);
                (codec.parameters(), CompressedFeatures::encode(codec, &rows).unwrap().codes().to_vec())
            })
        };
        let (parameters, codes) = encode(1);
        assert_eq!(encode(3), (parameters, codes.clone()), "{spec}");
        let codec = fitted(spec, &rows);
        for batch in [1, 7, 1000] {
            let mut batched = vec![0; codes.len()];
            let rows = rows.data().chunks(batch * 333).zip(batched.chunks_mut(batch * codec.row_bytes()));
            rows.for_each(|(rows, codes)| codec.encode_rows(0, rows, codes).unwrap());
            assert!(batched == codes, "{spec} in batches of {batch}");
        }
    }
}

/// Two components recover rows on a plane; centroids recover rows of as many kinds.
#[test]
fn peers_find_what_they_are_made_for() {
    let plane: Vec<f32> = (0..500)
        .flat_map(|r| {
            let (a, b) = ((r as f32 * 0.37).sin() * 5.0, (r as f32 * 0.73).cos());
            (0..60).map(move |j| 3.0 + a * (j as f32 * 0.1).sin() + b * (j as f32 * 0.3).cos())
        })
        .collect();
    let plane = Matrix::new(500, 60, plane).unwrap();
    let report = ErrorReport::measure(&*fitted("pca:2", &plane), &plane).unwrap();
    assert!(report.relative_error < 1e-3, "{report:?}");
    let report = ErrorReport::measure(&*fitted("pca:1", &plane), &plane).unwrap();
    assert!(report.relative_error > 1e-2, "{report:?}");

    let kinds = noise(100, 48, 2);
    let rows: Vec<f32> = (0..2000).flat_map(|r| kinds.row(r * 7 % 100).to_vec()).collect();
    let rows = Matrix::new(2000, 48, rows).unwrap();
    let report = ErrorReport::measure(&*fitted("pq:4", &rows), &rows).unwrap();
    assert!(report.relative_error < 1e-5, "{report:?}");
}

#[test]
fn components_are_those_of_an_exact_decomposition() {
    // A descending spectrum in random directions: the residual after r components is known.
    let rows = noise(2000, 100, 11);
    let scaled: Vec<f32> = rows.data().iter().enumerate().map(|(i, v)| v * 0.9f32.powi((i % 100) as i32)).collect();
    let rows = Matrix::new(2000, 100, scaled).unwrap();
    let report = ErrorReport::measure(&*fitted("pca:20", &rows), &rows).unwrap();
    // The variances of the columns are 0.81^j; 20 of them keep all but 0.81^20.
    let expected = 0.81f64.powi(20).sqrt();
    assert!((report.relative_error / expected - 1.0).abs() < 0.05, "{report:?} {expected}");
}

#[test]
fn auto_takes_the_least_error_within_its_budget() {
    let rows = noise(400, 128, 9);
    for budget in [5, 16, 40, 130, 160, 256, 300] {
        let codec = fit(CodecSpec::Auto(budget), &rows, 0).unwrap();
        assert!(codec.row_bytes() <= budget as usize, "{budget}: {}", codec.spec());
        assert!(!matches!(codec.spec(), CodecSpec::Auto(_)));
    }
    assert_eq!(fit(CodecSpec::Auto(160), &rows, 0).unwrap().spec(), CodecSpec::Int8);
    // One non-zero value: a code book is exact.
    let sparse: Vec<f32> = (0..400 * 256).map(|i| if i % 256 == i / 256 * 37 % 256 { 9.0 } else { 0.0 }).collect();
    let sparse = Matrix::new(400, 256, sparse).unwrap();
    assert!(matches!(fit(CodecSpec::Auto(4), &sparse, 0).unwrap().spec(), CodecSpec::Topk(2)));
}

#[test]
fn reports_have_known_values() {
    let rows = Matrix::new(3, 2, vec![3.0, 4.0, 0.0, 0.0, 1.0, 0.0]).unwrap();
    let book = fit(CodecSpec::Topk(1), &rows, 0).unwrap();
    assert_eq!(parameters(&*book), [5.0 / 3.0, 1.0]);
    let report = ErrorReport::measure(&*book, &rows).unwrap();
    assert_eq!(report.n_rows, 3);
    // Decoded: (1, 5/3), (5/3, 1), (5/3, 1).
    let norm = (1.0 + 25.0 / 9.0f64).sqrt();
    let cosine = ((3.0 + 20.0 / 3.0) / (5.0 * norm) + 0.0 + 5.0 / 3.0 / norm) / 3.0;
    assert!((report.cosine_mean - cosine).abs() < 1e-6, "{report:?} {cosine}");
    assert!((report.error_max - 7.0 / 3.0).abs() < 1e-6, "{report:?}");
    let exact = ErrorReport::measure(&*fit(CodecSpec::F16, &rows, 0).unwrap(), &rows).unwrap();
    assert_eq!(exact, ErrorReport { n_rows: 3, cosine_mean: 1.0, relative_error: 0.0, error_max: 0.0 });
}

/// Rows of lower rank than the requested components: the remainder is rounding noise, and must not be amplified.
#[test]
fn components_that_are_not_there_do_no_harm() {
    let rows: Vec<f32> = (0..40).flat_map(|r| (0..30).map(move |j| (r % 2) as f32 * j as f32 + 5.0)).collect();
    let rows = Matrix::new(40, 30, rows).unwrap();
    let report = ErrorReport::measure(&*fitted("pca:9", &rows), &rows).unwrap();
    assert!(report.relative_error < 1e-3, "{report:?}");
    let equal = Matrix::new(4, 30, vec![5.0; 120]).unwrap();
    assert_eq!(ErrorReport::measure(&*fitted("pca:9", &equal), &equal).unwrap().error_max, 0.0);
}

#[test]
fn a_code_has_the_bytes_that_its_spec_says_before_anything_is_fitted() {
    let rows = noise(300, 300, 3);
    for spec in SPECS {
        let spec: CodecSpec = spec.parse().unwrap();
        let codec = fit(spec, &rows, 0).unwrap();
        let exact = !matches!(spec, CodecSpec::Auto(_));
        assert!(spec.accepts(codec.spec(), codec.row_bytes()), "{spec}");
        assert!(if exact {
            codec.row_bytes() == spec.row_bytes(300)
        } else {
            codec.row_bytes() <= spec.row_bytes(300)
        });
    }
    assert!(!CodecSpec::Topk(8).accepts(CodecSpec::Topk(4), 8));
    assert!(!CodecSpec::Auto(8).accepts(CodecSpec::Topk(8), 16));
}

#[test]
fn the_mean_cosine_of_decoded_rows_is_that_of_the_report() {
    let rows = noise(333, 300, 3);
    let features = CompressedFeatures::fitted(CodecSpec::Topk(8), &rows, 0).unwrap();
    let report = ErrorReport::measure(features.codec(), &rows).unwrap();
    let mean = mean_cosine(&rows, &features).unwrap();
    assert!((mean - report.cosine_mean).abs() < 1e-12 && mean < 1.0, "{mean}");
    assert!((mean_cosine(&features, &features).unwrap() - 1.0).abs() < 1e-12);
    mean_cosine(&rows, &noise(332, 300, 3)).unwrap_err();
}
