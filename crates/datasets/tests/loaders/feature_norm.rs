//! Normalisation of the rows of features.

use girih_datasets::{FeatureNorm, Features};
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
