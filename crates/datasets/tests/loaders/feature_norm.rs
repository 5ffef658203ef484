//! Normalisation of the rows of features.

use girih_datasets::{FeatureNorm, Features, LoadOptions, load};
use girih_graph_format::file::NpzWriter;
use girih_graph_format::{Csr, Matrix};

fn rows(norm: FeatureNorm) -> Matrix {
    let matrix = Matrix::new(3, 2, vec![3.0, 4.0, 0.0, 0.0, 1.0, 0.0]).unwrap();
    let sparse = Csr::new(3, 2, vec![0, 2, 2, 3], vec![0, 1, 0], Some(vec![3.0, 4.0, 1.0].into())).unwrap();
    let Ok(Features::Dense(dense)) = norm.apply(Features::Dense(matrix)) else { panic!("dense stays dense") };
    let Ok(Features::Sparse(sparse)) = norm.apply(Features::Sparse(sparse)) else { panic!("sparse stays sparse") };
    assert_eq!(Matrix::from_sparse(&sparse), dense);
    dense
}

#[test]
fn rows_are_divided_by_their_sum_or_length() {
    assert_eq!(rows(FeatureNorm::None).data(), [3.0, 4.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(rows(FeatureNorm::Sum).data(), [3.0 / 7.0, 4.0 / 7.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(rows(FeatureNorm::Length).data(), [0.6, 0.8, 0.0, 0.0, 1.0, 0.0]);
    let root = 5f64.sqrt();
    assert_eq!(rows(FeatureNorm::RootLength).data(), [(3.0 / root) as f32, (4.0 / root) as f32, 0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn sums_of_values_of_both_signs_are_doubtful() {
    let home = tempfile::tempdir().unwrap();
    for (values, n_warned) in [([1.0f32, -0.9, 2.0, 2.0, 0.0, -1.0], 1), ([1.0, 0.9, 2.0, 2.0, 0.0, 1.0], 0)] {
        let path = home.path().join(format!("{n_warned}.npz"));
        NpzWriter::write_file(&path, |npz| {
            npz.array("x", &[3, 2], &values)?;
            npz.array("edge_index", &[2, 2], &[0i64, 1, 1, 2])
        })
        .unwrap();
        let warnings = |norm: FeatureNorm| {
            let options = LoadOptions { feature_norm: Some(norm), ..LoadOptions::default() };
            load(path.to_str().unwrap(), &options).unwrap().notes.warnings
        };
        let doubtful =
            |warning: &&String| warning.starts_with("rows of features with positive and negative values: 1;");
        assert_eq!(warnings(FeatureNorm::Sum).iter().filter(doubtful).count(), n_warned);
        assert_eq!(warnings(FeatureNorm::Length).iter().filter(doubtful).count(), 0);
    }
}
