//! Numbers that a few bytes declare do not cause allocations: they are refused with the file and the number.

use girih_datasets::{LoadOptions, load};
use girih_fuzz_targets::{Counting, Form, Input, peak_during};
use girih_graph_format::file::{NpzWriter, write_npy};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory limit for reading a few hundred bytes.
const MOST: usize = 4 << 20;

/// Message of a refused path, whose reading takes little memory.
fn refusal(path: &std::path::Path) -> String {
    let (result, peak) = peak_during(|| load(&path.to_string_lossy(), &LoadOptions::default()));
    let message = result.expect_err("a number that nothing bears out").to_string();
    let peak = peak.expect("memory is counted");
    assert!(peak <= MOST, "{peak} bytes of memory before: {message}");
    assert!(message.contains(&*path.to_string_lossy()), "no file is named: {message}");
    message
}

#[test]
fn numbers_in_text_are_borne_out_by_edges() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, text, told) in [
        (
            "a.csv",
            "# girih: nodes 2000000000\n0 1\n",
            "line 1: 2000000000 nodes are stated, but there are only 1 edges",
        ),
        ("a.csv", "# girih: nodes 2000000000\n", "2000000000 nodes"),
        ("a.csv", "# girih: shape 3 2000000000\n0 1\n", "2000000000 nodes"),
        ("a.csv", "% asym unweighted\n% 1 2000000000 2000000000\n1 2\n", "line 2: 2000000000 nodes"),
        ("a.csv", "% bip unweighted\n% 1 9 2000000000\n1 2\n", "2000000000 nodes"),
        ("a.csv", "0 16777216\n", "the largest id is 16777216"),
        ("a.csv", "0 1099511627776\n", "1099511627776"),
        ("a.csv", "user,item\n0,2000000000\n", "2000000000"),
        ("a.mtx", "%%MatrixMarket matrix coordinate real general\n2000000000 2000000000 1\n1 1 1\n", "2000000000 rows"),
        ("a.mtx", "%%MatrixMarket matrix coordinate real general\n9 9 4000000000000\n1 1 1\n", "4000000000000"),
        ("a.mtx", "%%MatrixMarket matrix array real general\n2000000000 2000000000\n1\n", "line 2"),
        ("a.graph", "2000000000 1\n2\n1\n", "2000000000 nodes"),
        ("a.graph", "2 4000000000000000000\n2\n1\n", "4000000000000000000"),
    ] {
        let path = Input::one(name, text.as_bytes()).write(&scratch.path().join("x"), Form::Any).unwrap();
        let message = refusal(&path);
        assert!(message.contains(told), "{text:?}: {message}");
    }
    let users = Input::folder(&[("train.txt", b"0 0\n2000000000 1\n"), ("test.txt", b"0 1\n")]);
    let message = refusal(&users.write(&scratch.path().join("x"), Form::Folder).unwrap());
    assert!(message.contains("2000000000"), "{message}");
}

#[test]
fn numbers_in_arrays_are_borne_out_by_edges() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    write_npy(&folder.join("edge_index.npy"), &[2, 1], &[0i64, 1]).unwrap();
    write_npy(&folder.join("num_nodes.npy"), &[], &[2_000_000_000i64]).unwrap();
    let message = refusal(folder);
    assert!(message.contains("2000000000 nodes are declared, but there are only 1 edges"), "{message}");

    let path = folder.join("a.npz");
    for (name, shape) in [("coo", [2_000_000_000i64, 2_000_000_000]), ("csc", [2_000_000_000, 1])] {
        NpzWriter::write_file(&path, |npz| {
            npz.ascii("format", name)?;
            npz.array("shape", &[2], &shape)?;
            npz.array("data", &[1], &[1.0f32])?;
            npz.array("row", &[1], &[0i32])?;
            npz.array("col", &[1], &[0i32])?;
            npz.array("indptr", &[2], &[0i32, 1])?;
            npz.array("indices", &[1], &[0i32])
        })
        .unwrap();
        assert!(refusal(&path).contains("2000000000 rows"));
    }
}

/// An archive member declares 100 MB but holds 100 kB of noise: memory use follows the actual bytes.
#[test]
fn members_of_archives_take_memory_as_they_unpack() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a.npz");
    let noise: Vec<u32> = (0..25_000u32).map(|i| i.wrapping_mul(2_654_435_761).rotate_left(i % 31)).collect();
    NpzWriter::write_file(&path, |npz| npz.array("indptr", &[noise.len()], &noise)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let size = (128 + 4 * noise.len() as u32).to_le_bytes();
    let places: Vec<usize> = (0..bytes.len() - 4).filter(|&at| bytes[at..at + 4] == size).collect();
    assert!(!places.is_empty(), "the archive states the size of its member");
    places.iter().for_each(|&at| bytes[at..at + 4].copy_from_slice(&100_000_000u32.to_le_bytes()));
    let (result, peak) = peak_during(|| {
        girih_graph_format::file::Npz::from_bytes(&path, bytes.clone()).and_then(|mut npz| npz.member("indptr.npy"))
    });
    let message = result.expect_err("a size that is not true").to_string();
    let peak = peak.expect("memory is counted");
    assert!(peak <= MOST, "{peak} bytes of memory before: {message}");
}
