//! Rows of `.npy` files that are read some at a time.

use std::fs;

use girih_graph_format::file::{Array, NpyRows, write_npy};
use half::f16;

/// Rows read in any parts equal those of the whole array, for each type.
#[test]
fn rows_are_those_of_the_array() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let (n_rows, width) = (50, 431);
    let values: Vec<f32> = (0..n_rows * width).map(|i| (i % 2039) as f32 - 1000.0).collect();
    let check = || {
        let (rows, whole) = (NpyRows::open(&path).unwrap(), Array::read(&path).unwrap().into_matrix().unwrap());
        assert_eq!((rows.n_rows(), rows.width()), (n_rows, width));
        for (first, n) in [(0, n_rows), (7, 1), (13, 37), (50, 0)] {
            let mut read = vec![0.0; n * width];
            rows.read(first, &mut read).unwrap();
            assert_eq!(read, whole.data()[first * width..(first + n) * width]);
        }
    };
    write_npy(&path, &[n_rows, width], &values).unwrap();
    check();
    write_npy(&path, &[n_rows, width], &values.iter().map(|&v| f64::from(v) + 1e-9).collect::<Vec<_>>()).unwrap();
    check();
    write_npy(&path, &[n_rows, width], &values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>()).unwrap();
    check();
}

#[test]
fn arrays_other_than_float_matrices_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let refused = |told: &str| {
        let error = NpyRows::open(&path).unwrap_err().to_string();
        assert!(error.contains("x.npy") && error.contains(told), "{error}");
    };
    write_npy(&path, &[6], &[1.0f32; 6]).unwrap();
    refused("expected rows and columns");
    write_npy(&path, &[2, 3], &[1i64; 6]).unwrap();
    refused("expected float16, float32 or float64");
    write_npy(&path, &[2, 3], &[1.0f32; 6]).unwrap();
    let bytes = fs::read(&path).unwrap();
    for len in 0..bytes.len() {
        fs::write(&path, &bytes[..len]).unwrap();
        refused("");
    }
    let text = String::from_utf8_lossy(&bytes).replace("False", "True ").into_bytes();
    fs::write(&path, &text[text.len() - bytes.len()..]).unwrap();
    NpyRows::open(&path).unwrap_err();
    fs::remove_file(&path).unwrap();
    refused("");
}

#[test]
fn a_double_beyond_float32_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let mut values = vec![0.0; 300 * 100];
    values[299 * 100 + 42] = 1e300;
    write_npy(&path, &[300, 100], &values).unwrap();
    let mut read = vec![0.0; values.len()];
    let error = NpyRows::open(&path).unwrap().read(0, &mut read).unwrap_err().to_string();
    assert!(error.contains("row 299, column 42") && error.contains("beyond float32"), "{error}");
}

#[test]
fn a_file_that_changes_has_another_fingerprint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    write_npy(&path, &[2, 3], &[1.0f32; 6]).unwrap();
    let before = NpyRows::open(&path).unwrap().fingerprint().unwrap();
    assert_eq!(NpyRows::open(&path).unwrap().fingerprint().unwrap(), before);
    write_npy(&path, &[3, 3], &[1.0f32; 9]).unwrap();
    assert_ne!(NpyRows::open(&path).unwrap().fingerprint().unwrap(), before);
}
