//! Stores as files: from `.npy` to a store and back, on any number of threads, after stops, with other processes.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{SPECS, fitted, noise, pool};
use girih_compress::{CompressedFeatures, GeneratedRows, Progress, RowSource, encode_to_file};
use girih_graph_format::file::{NpyRows, Verify, write_npy};
use girih_graph_format::{Csr, Matrix};

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_file_of_rows_becomes_the_same_store_as_rows_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (npy, store) = (folder.path().join("x.npy"), folder.path().join("x.girih"));
    let rows = noise(1500, 300, 1);
    write_npy(&npy, &[1500, 300], rows.data()).unwrap();
    let source = NpyRows::open(&npy).unwrap();
    for spec in SPECS {
        let mut written = Vec::new();
        for threads in [1, 3] {
            let told = AtomicU64::new(0);
            let progress = |progress: Progress| {
                told.fetch_max(progress.rows_done, Ordering::Relaxed);
                assert_eq!((progress.n_rows, progress.rows_resumed), (1500, 0));
                ControlFlow::Continue(())
            };
            let codec = fitted(spec, &rows);
            let encoded = pool(threads).install(|| encode_to_file(&store, &*codec, &source, &progress)).unwrap();
            assert_eq!((encoded.n_rows, told.into_inner()), (1500, 1500));
            assert_eq!(encoded.file_bytes, fs::metadata(&store).unwrap().len());
            written.push(fs::read(&store).unwrap());
        }
        assert!(written[0] == written[1], "{spec}: threads change the store");
        let features = CompressedFeatures::open(&store, Verify::Full).unwrap();
        let in_memory = CompressedFeatures::encode(fitted(spec, &rows), &rows).unwrap();
        assert_eq!(features.codec().spec(), in_memory.codec().spec());
        assert!(features.codes() == in_memory.codes(), "{spec}");
        let ids = [1499, 0, 17, 17];
        let (mut a, mut b) = (vec![0.0; 4 * 300], vec![0.0; 4 * 300]);
        features.gather(&ids, &mut a).unwrap();
        in_memory.gather(&ids, &mut b).unwrap();
        assert_eq!(a, b);
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// Sparse rows read as the equivalent dense rows, from any row on.
#[test]
fn sparse_features_are_their_dense_rows() {
    let sparse = Csr::new(3, 4, vec![0, 2, 2, 3], vec![1, 3, 0], Some(vec![2.0, -1.0, 5.0].into())).unwrap();
    let dense = Matrix::from_sparse(&sparse);
    assert_eq!((RowSource::n_rows(&sparse), sparse.width()), (3, 4));
    for first in 0..3 {
        let (mut found, mut expected) = (vec![9.0; (3 - first) * 4], vec![9.0; (3 - first) * 4]);
        sparse.read_rows(first, &mut found).unwrap();
        dense.read_rows(first, &mut expected).unwrap();
        assert_eq!(found, expected);
    }
    let pattern = sparse.with_values(None).unwrap();
    assert_ne!(sparse.fingerprint().unwrap(), pattern.fingerprint().unwrap());
}

#[test]
fn a_stopped_run_is_gone_on_from_and_leaves_the_old_store_until_then() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("x.girih");
    fs::write(&store, "what was there").unwrap();
    let source = GeneratedRows::new(20_000, 256, 1, |row, values| {
        values.iter_mut().enumerate().for_each(|(i, value)| *value = ((row * 31 + i * 17) % 1000) as f32);
    });
    let codec = fitted("topk:8", &noise(10, 256, 1));
    let stop = |progress: Progress| {
        if progress.rows_done > 9000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let error = encode_to_file(&store, &*codec, &source, &stop).unwrap_err();
    assert!(error.is_stopped() && error.to_string().contains("x.girih"), "{error}");
    assert_eq!(fs::read(&store).unwrap(), b"what was there");
    let temporary = folder.path().join(".girih-x.girih.part");
    let error = CompressedFeatures::open(&temporary, Verify::Structure).unwrap_err().to_string();
    assert!(error.contains("not complete"), "{error}");

    let encoded = encode_to_file(&store, &*codec, &source, &go_on).unwrap();
    assert!((9000..20_000).contains(&encoded.rows_resumed), "{encoded:?}");
    assert!(!temporary.exists());
    let features = CompressedFeatures::open(&store, Verify::Full).unwrap();
    let (mut row, mut code) = (vec![0.0; 256], vec![0; 16]);
    for i in (0..20_000).step_by(777) {
        source.read_rows(i, &mut row).unwrap();
        codec.encode_row(&row, &mut code).unwrap();
        assert_eq!(features.code(i), code);
    }
}

#[test]
fn two_runs_do_not_write_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("x.girih");
    let rows = noise(10, 30, 1);
    let held = fs::File::create(folder.path().join(".girih-x.girih.part")).unwrap();
    held.lock().unwrap();
    let error = encode_to_file(&store, &*fitted("f16", &rows), &rows, &go_on).unwrap_err().to_string();
    assert!(error.contains("another process"), "{error}");
    drop(held);
    encode_to_file(&store, &*fitted("f16", &rows), &rows, &go_on).unwrap();
}

/// The temporary name is predictable: anyone who can write to the folder may put a link there.
#[cfg(unix)]
#[test]
fn a_planted_link_is_not_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let (store, victim) = (folder.path().join("x.girih"), folder.path().join("victim"));
    let rows = noise(10, 30, 1);
    for plant in [|a: &Path, b: &Path| std::os::unix::fs::symlink(a, b), |a: &Path, b: &Path| fs::hard_link(a, b)] {
        fs::write(&victim, "kept").unwrap();
        let planted = folder.path().join(".girih-x.girih.part");
        plant(&victim, &planted).unwrap();
        encode_to_file(&store, &*fitted("f16", &rows), &rows, &go_on).unwrap_err();
        assert_eq!(fs::read(&victim).unwrap(), b"kept");
        fs::remove_file(&planted).unwrap();
    }
    encode_to_file(&store, &*fitted("f16", &rows), &rows, &go_on).unwrap();
}

#[test]
fn places_that_are_no_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let rows = noise(10, 30, 1);
    let encode = |path| encode_to_file(path, &*fitted("f16", &rows), &rows, &go_on).unwrap_err().to_string();
    assert!(encode(folder.path()).contains("is a folder"));
    assert!(encode(&folder.path().join("none/x")).contains("none/x"));
    let missing = CompressedFeatures::open(&folder.path().join("x"), Verify::Full).unwrap_err().to_string();
    assert!(missing.contains('x'), "{missing}");
    CompressedFeatures::open(folder.path(), Verify::Full).unwrap_err();
}

/// Features encoded in memory are saved as the streaming encoder writes them, and rows are selected without decoding.
#[test]
fn features_in_memory_are_saved_as_the_encoder_would_and_taken_row_by_row() {
    let folder = tempfile::tempdir().unwrap();
    let rows = noise(3000, 300, 5);
    for spec in ["topk:4", "int4", "pca:6"] {
        let (streamed, saved) = (folder.path().join("streamed"), folder.path().join("saved"));
        let features = CompressedFeatures::fitted(spec.parse().unwrap(), &rows, 7).unwrap();
        encode_to_file(&streamed, features.codec(), &rows, &|_| ControlFlow::Continue(())).unwrap();
        features.save(&saved).unwrap();
        assert!(fs::read(&streamed).unwrap() == fs::read(&saved).unwrap(), "{spec}");
        assert_eq!(CompressedFeatures::open(&saved, Verify::Full).unwrap(), features);

        let picked = features.select(&[2999, 5, 5]).unwrap();
        let part = features.rows(5..8).rows(0..2);
        assert_eq!((picked.n_rows(), part.n_rows()), (3, 2));
        assert_eq!((picked.code(0), picked.code(1), picked.code(2)), (features.code(2999), part.code(0), part.code(0)));
        assert_eq!(part.code(1), features.code(6));
        let (mut decoded, mut gathered) = (vec![0.0; 600], vec![0.0; 600]);
        features.decode(5, &mut decoded);
        part.gather(&[0, 1], &mut gathered).unwrap();
        assert_eq!(decoded, gathered);
        assert_ne!(picked, part);
        let error = features.select(&[3000]).unwrap_err().to_string();
        assert!(error.contains("3000"), "{error}");
    }
}
