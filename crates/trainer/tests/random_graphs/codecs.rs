//! Feature codecs: errors of decoded rows against plain definitions, files of codes, and sums over codes.

use std::ops::ControlFlow;
use std::path::Path;

use girih_compress::{Aggregate, CodecSpec, CompressedFeatures, FeatureCodec, GROUP, encode_to_file, fit};
use girih_graph_format::Matrix;
use girih_graph_format::file::Verify;

use crate::campaign::for_each_seed;
use crate::graphs::{Draws, SmallGraph};

#[test]
fn decoded_rows_are_as_near_as_their_codec_says() {
    let folder = tempfile::tempdir().unwrap();
    for_each_seed("codecs", 30, |seed| check(seed, folder.path()));
}

/// Rows of random size: normal values, or values with ties, zeros, a common offset, or beyond the range of some
/// codecs.
fn rows(draws: &mut Draws) -> Matrix {
    let n = draws.between(2, 24);
    let width =
        if draws.one_in(4) { draws.one_of(&[63, 64, 65, 255, 256, 257, 300, 513]) } else { draws.between(1, 40) };
    let kind = draws.below(8);
    let mut value = |column: usize| match kind {
        0 => draws.normal(),
        1 => draws.below(5) as f32 - 2.0,
        2 => [0.0, draws.normal()][draws.below(2)],
        3 => draws.normal() * 1e-6,
        4 => draws.normal() * 1e4,
        5 => draws.normal() * 1e-40,
        6 => draws.normal() + 1000.0 * column as f32,
        _ => draws.normal() * 1e38,
    };
    let values: Vec<f32> = (0..n * width).map(|at| value(at % width)).collect();
    Matrix::new(n, width, values.into_iter().map(|x| if x.is_finite() { x } else { f32::MAX }).collect::<Vec<_>>())
        .unwrap()
}

fn specs(draws: &mut Draws, n: usize, width: usize) -> Vec<CodecSpec> {
    let few = |draws: &mut Draws| draws.between(1, width.min(12)) as u32;
    let mut specs = vec![
        CodecSpec::Topk(draws.one_of(&[1, 2, 8, 128])),
        CodecSpec::TopkResidual(draws.one_of(&[1, 3, 8, 128])),
        CodecSpec::F16,
        CodecSpec::Bf16,
        CodecSpec::Int8,
        CodecSpec::Int4,
        CodecSpec::Pca(few(draws)),
        CodecSpec::Pq(few(draws)),
    ];
    // The codec trains on one part of the rows and compares on another.
    if n >= 4 {
        specs.push(CodecSpec::Auto(draws.between(2 * width, 4 * width + 40) as u32));
    }
    specs
}

fn check(seed: u64, folder: &Path) {
    let draws = &mut Draws::new(seed, 10);
    let rows = rows(draws);
    let graph = SmallGraph::new(draws);
    let largest = rows.data().iter().fold(0.0f32, |most, x| most.max(x.abs()));
    for spec in specs(draws, rows.n_rows(), rows.n_cols()) {
        let encoded = fit(spec, &rows, seed).and_then(|codec| CompressedFeatures::encode(codec, &rows));
        let features = match encoded {
            Ok(features) => features,
            Err(error) => {
                // Codecs may refuse only values whose codes or squares overflow.
                let limit = if spec == CodecSpec::F16 { 65_504.0 } else { 1e14 };
                assert!(largest > limit, "{spec} refuses values up to {largest}: {error}");
                continue;
            }
        };
        assert!(features.codec().row_bytes() <= spec.row_bytes(rows.n_cols()), "{spec}");
        check_rows(&features, &rows);
        check_store(&features, &rows, folder);
        if largest < 1e10 {
            check_sums(&features, &graph);
        }
    }
}

fn decoded(features: &CompressedFeatures) -> Matrix {
    let mut values = vec![f32::NAN; features.n_rows() * features.width()];
    features.decode(0, &mut values);
    Matrix::new(features.n_rows(), features.width(), values).unwrap()
}

fn check_rows(features: &CompressedFeatures, rows: &Matrix) {
    let (codec, out) = (features.codec(), decoded(features));
    let what = codec.spec();
    assert!(out.data().iter().all(|x| x.is_finite()), "{what}");
    for r in 0..rows.n_rows() {
        let (row, out) = (rows.row(r), out.row(r));
        match what {
            CodecSpec::F16 => {
                assert!(row.iter().zip(out).all(|(&x, &y)| f64::from(y) == rounded(x, 10, -24)), "{what}");
            }
            CodecSpec::Bf16 => {
                assert!(row.iter().zip(out).all(|(&x, &y)| f64::from(y) == rounded(x, 7, -133)), "{what}");
            }
            CodecSpec::Int8 => check_levels(row, out, 256, 255.0),
            CodecSpec::Int4 => check_levels(row, out, 64, 15.0),
            CodecSpec::Topk(k) => check_book(codec, (row, None), out, k as usize),
            CodecSpec::TopkResidual(k) => {
                let book = floats(codec);
                let mean = &book[book.len() - row.len()..];
                check_book(codec, (row, Some(mean)), out, k as usize);
            }
            CodecSpec::Pca(_) => {}
            CodecSpec::Pq(pieces) => check_centroids(codec, row, out, pieces as usize),
            CodecSpec::Auto(_) => panic!("auto is no codec"),
        }
    }
    if let CodecSpec::Pca(n) = what {
        check_components(rows, &out, n as usize);
    }
}

/// Nearest number with `bits` bits after the leading one, ties to even. The step is at least `2^least`.
fn rounded(value: f32, bits: i32, least: i32) -> f64 {
    let value = f64::from(value);
    if value == 0.0 {
        return value;
    }
    let step = 2f64.powi((value.abs().log2().floor() as i32 - bits).max(least));
    (value / step).round_ties_even() * step
}

/// Checks uniform levels between the extremes of a group: the error is at most half a step, plus `f32` rounding.
fn check_levels(row: &[f32], out: &[f32], group: usize, levels: f64) {
    for (row, out) in row.chunks(group).zip(out.chunks(group)) {
        let (low, high) =
            row.iter().fold((f64::MAX, f64::MIN), |(low, high), &x| (low.min(x.into()), high.max(x.into())));
        let rounding = 1e-6 * low.abs().max(high.abs()) + 256.0 * f64::from(f32::from_bits(1));
        let bound = 0.5 * (high - low) / levels + rounding;
        for (&x, &y) in row.iter().zip(out) {
            assert!((f64::from(x) - f64::from(y)).abs() <= bound, "{x} became {y}, with a bound of {bound}");
        }
    }
}

fn floats(codec: &dyn FeatureCodec) -> Vec<f32> {
    codec.parameters().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Checks that the extremes of each group decode to values of the code book, and other values to the mean or zero.
fn check_book(codec: &dyn FeatureCodec, (row, mean): (&[f32], Option<&[f32]>), out: &[f32], k: usize) {
    let mut book = floats(codec).into_iter();
    for (g, group) in row.chunks(GROUP).enumerate() {
        let mean = |i: usize| mean.map_or(0.0, |mean| mean[g * GROUP + i]);
        let value = |i: usize| group[i] - mean(i);
        let mut order: Vec<usize> = (0..group.len()).collect();
        order.sort_by(|&a, &b| value(b).partial_cmp(&value(a)).unwrap().then(a.cmp(&b)));
        let (high, low) = (k.min(group.len().div_ceil(2)), k.min(group.len() / 2));
        let mut expected: Vec<f32> = (0..group.len()).map(mean).collect();
        for &i in order[..high].iter().chain(order.iter().rev().take(low)) {
            expected[i] += book.next().unwrap();
        }
        assert_eq!(&out[g * GROUP..g * GROUP + group.len()], expected, "{}", codec.spec());
    }
}

/// Checks that every subvector decodes to a centroid, and that no other centroid is clearly nearer.
fn check_centroids(codec: &dyn FeatureCodec, row: &[f32], out: &[f32], pieces: usize) {
    let (centroids, width) = (floats(codec), row.len());
    for piece in 0..pieces {
        let columns = piece * width / pieces..(piece + 1) * width / pieces;
        let all = &centroids[256 * columns.start..256 * columns.end];
        let distance = |a: &[f32]| -> f64 {
            a.iter().zip(&row[columns.clone()]).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum()
        };
        let found = &out[columns.clone()];
        assert!(all.chunks_exact(columns.len()).any(|centroid| centroid == found), "piece {piece} is no centroid");
        let least = all.chunks_exact(columns.len()).map(distance).fold(f64::INFINITY, f64::min);
        // Scores are `|c|² / 2 - x·c` in `f32`. Their rounding error is relative to squares of values.
        let squares: f64 = found.iter().chain(&row[columns.clone()]).map(|&x| f64::from(x).powi(2)).sum();
        let rounding = 2e-5 * squares + 1e-36;
        assert!(distance(found) <= least + rounding, "piece {piece}: {} where {least} is there", distance(found));
    }
}

/// Checks that a projection to some components is not farther from the rows than their mean.
fn check_components(rows: &Matrix, out: &Matrix, n_components: usize) {
    let (n, width) = (rows.n_rows(), rows.n_cols());
    let mean: Vec<f64> =
        (0..width).map(|k| (0..n).map(|r| f64::from(rows.row(r)[k])).sum::<f64>() / n as f64).collect();
    let squares = |of: &dyn Fn(usize, usize) -> f64| -> f64 {
        (0..n).flat_map(|r| (0..width).map(move |k| (r, k))).map(|(r, k)| of(r, k).powi(2)).sum()
    };
    let spread = squares(&|r, k| f64::from(rows.row(r)[k]) - mean[k]);
    let left = squares(&|r, k| f64::from(rows.row(r)[k]) - f64::from(out.row(r)[k]));
    let magnitude = squares(&|r, k| f64::from(rows.row(r)[k]));
    let rounding = 1e-5 * spread + 1e-11 * magnitude + 1e-60;
    assert!(left <= spread + rounding, "{left} is left of {spread}");
    // With as many components as columns or rows, only the coefficients' rounding error is left.
    if n_components >= width.min(n) {
        assert!(left <= rounding, "{left} is left of {spread} by {n_components} components of {n} × {width}");
    }
}

/// Checks that a file holds the codes in memory, and decodes to equal rows, all at once or by id.
fn check_store(features: &CompressedFeatures, rows: &Matrix, folder: &Path) {
    let (saved, streamed) = (folder.join("saved.codes"), folder.join("streamed.codes"));
    features.save(&saved).unwrap();
    encode_to_file(&streamed, features.codec(), rows, &|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(std::fs::read(&saved).unwrap(), std::fs::read(&streamed).unwrap());
    let read = CompressedFeatures::open(&saved, Verify::Full).unwrap();
    assert_eq!((read.codec().spec(), read.codes()), (features.codec().spec(), features.codes()));
    let out = decoded(&read);
    assert_eq!(out, decoded(features));
    let ids: Vec<u32> = (0..rows.n_rows() as u32).rev().step_by(2).collect();
    let mut gathered = vec![f32::NAN; ids.len() * rows.n_cols()];
    read.gather(&ids, &mut gathered).unwrap();
    let selected = decoded(&read.select(&ids).unwrap());
    for (i, &id) in ids.iter().enumerate() {
        let expected = out.row(id as usize);
        assert_eq!(&gathered[i * rows.n_cols()..(i + 1) * rows.n_cols()], expected);
        assert_eq!(selected.row(i), expected);
    }
    std::fs::remove_file(&streamed).unwrap();
}

/// Checks that sums over neighbors, computed from codes, equal sums of decoded rows.
fn check_sums(features: &CompressedFeatures, graph: &SmallGraph) {
    let (rows, width) = (decoded(features), features.width());
    let lists: Vec<Vec<u32>> =
        (0..graph.n).map(|v| graph.csr.row(v).iter().map(|&u| u % features.n_rows() as u32).collect()).collect();
    for aggregate in [Aggregate::Sum, Aggregate::Mean] {
        let mut out = vec![f32::NAN; graph.n * width];
        features.aggregate(aggregate, |v| &lists[v], &mut out).unwrap();
        for (v, list) in lists.iter().enumerate() {
            let n = if aggregate == Aggregate::Mean { list.len().max(1) as f64 } else { 1.0 };
            for k in 0..width {
                let terms = list.iter().map(|&u| f64::from(rows.row(u as usize)[k]));
                let (sum, magnitude) = terms.fold((0.0, 0.0), |(sum, all), x| (sum + x, all + x.abs()));
                let found = f64::from(out[v * width + k]);
                // Codecs that sum in a transformed space round the common part together with each row's own part.
                let largest = rows.data().iter().fold(0.0f64, |most, &x| most.max(f64::from(x).abs()));
                let rounding = 1e-5 * (magnitude + largest * list.len() as f64) / n + 1e-36;
                assert!((found - sum / n).abs() <= rounding, "{}: {found}, {}", features.codec().spec(), sum / n);
            }
        }
    }
}
