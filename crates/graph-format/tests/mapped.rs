//! Graphs in mapped files: code that indexes without checks takes a checked copy.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use girih_graph_format::Csr;
use girih_graph_format::file::{Folder, FolderWriter, Verify};

fn ring(n: u32) -> Csr {
    let indptr: Vec<u64> = (0..=u64::from(n)).collect();
    let indices: Vec<u32> = (0..n).map(|v| (v + 1) % n).collect();
    Csr::new(n as usize, n as usize, indptr, indices, None).unwrap()
}

/// Lock that runs one test at a time: the list of mapped files belongs to the process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn mapped_ring(folder: &Path) -> Csr {
    let mut writer = FolderWriter::create(folder).unwrap();
    writer.graph(&ring(5000)).unwrap();
    writer.finish().unwrap();
    Folder::open(folder, Verify::Full).unwrap().graph().unwrap()
}

/// Overwrites the last bytes of a file in place.
fn overwrite(path: &Path, bytes: &[u8]) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::End(-(bytes.len() as i64))).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn a_copy_in_memory_is_the_same_and_does_not_change_with_the_file() {
    let (_alone, home) = (alone(), tempfile::tempdir().unwrap());
    let folder = home.path().join("ring");
    let mapped = mapped_ring(&folder);
    let copy = mapped.in_memory().unwrap();
    assert!(mapped.is_mapped() && !copy.is_mapped() && copy == ring(5000));
    overwrite(&folder.join("indices.npy"), &[0xff; 8]);
    assert!(copy == ring(5000) && mapped.indices()[4999] == u32::MAX);
    let error = mapped.in_memory().unwrap_err().to_string();
    assert!(error.contains("row 4998") && error.contains("has changed while it was read"), "{error}");
    assert!(copy.in_memory().unwrap() == copy);
}

#[test]
fn offsets_that_changed_are_refused() {
    let (_alone, home) = (alone(), tempfile::tempdir().unwrap());
    let folder = home.path().join("ring");
    let mapped = mapped_ring(&folder);
    assert_eq!(mapped.indptr_in_memory().unwrap()[..], ring(5000).indptr()[..]);
    overwrite(&folder.join("indptr.npy"), &u64::MAX.to_le_bytes());
    let error = mapped.indptr_in_memory().unwrap_err().to_string();
    assert!(error.contains("has changed while it was read"), "{error}");
}

/// Derived graphs never have an invalid column.
#[test]
#[should_panic(expected = "a column is out of range")]
fn a_graph_made_of_columns_that_changed_is_not_made() {
    let (_alone, home) = (alone(), tempfile::tempdir().unwrap());
    let folder = home.path().join("ring");
    let mapped = mapped_ring(&folder);
    overwrite(&folder.join("indices.npy"), &[0xff; 8]);
    let _ = mapped.with_self_loops();
}
