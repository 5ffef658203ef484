//! Graphs in mapped files, and in memory of other owners: code that indexes without checks takes a checked copy.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use girih_graph_format::file::{Folder, FolderWriter, Verify};
use girih_graph_format::{Buffer, Csr, Matrix};

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

/// Array of another owner, which notices its end.
struct Lender<T> {
    values: Vec<T>,
    ended: Arc<Mutex<usize>>,
}

impl<T> AsRef<[T]> for Lender<T> {
    fn as_ref(&self) -> &[T] {
        &self.values
    }
}

impl<T> Drop for Lender<T> {
    fn drop(&mut self) {
        *self.ended.lock().unwrap() += 1;
    }
}

#[test]
fn values_of_another_owner_are_not_copied_and_live_as_long_as_a_buffer_of_them() {
    let ended = Arc::new(Mutex::new(0));
    let n_ended = || *ended.lock().unwrap();
    let values: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let first = values.as_ptr();
    let lent = Buffer::from_owner(Lender { values, ended: Arc::clone(&ended) });
    assert_eq!((lent.as_ptr(), lent.len()), (first, 12));
    assert!(!lent.is_owned() && !lent.is_mapped());
    let part = lent.slice(4..8).slice(1..3);
    let (bits, copy) = (part.clone().reinterpreted::<u32>(), part.in_memory());
    assert_eq!(bits.as_ptr().cast(), part.as_ptr());
    assert!(copy.is_owned() && copy == part && copy.as_ptr() != part.as_ptr());

    let rows = Matrix::new(3, 4, lent).unwrap();
    assert_eq!(rows.row(1).as_ptr(), first.wrapping_add(4), "a matrix shares the values");
    drop((rows, part));
    assert_eq!((n_ended(), bits[..].to_vec()), (0, vec![5f32.to_bits(), 6f32.to_bits()]));
    let mut own = bits.clone();
    own.make_mut()[0] = 7;
    assert_eq!((bits[0], own[0], own.into_vec().len()), (5f32.to_bits(), 7, 2), "changes are made to a copy");
    drop(bits);
    assert_eq!(n_ended(), 1);
}

#[test]
fn a_graph_of_lent_arrays_is_copied_for_code_without_checks() {
    let ended = Arc::new(Mutex::new(0));
    let indices = Lender { values: ring(100).indices().to_vec(), ended: Arc::clone(&ended) };
    let lent = Csr::new(100, 100, ring(100).indptr().to_vec(), Buffer::from_owner(indices), None).unwrap();
    assert!(lent == ring(100) && !lent.is_mapped());
    let copy = lent.in_memory().unwrap();
    assert_ne!(copy.indices().as_ptr(), lent.indices().as_ptr());
    std::thread::spawn(move || drop(lent)).join().unwrap();
    assert!(copy == ring(100) && *ended.lock().unwrap() == 1);
    let empty = Buffer::<u64>::from_owner(Vec::new());
    assert!(empty.is_empty() && empty.into_vec().is_empty());
}
