//! Faults: a kill at every byte, a full disk, every truncation, every flipped bit, another source in between.

use std::io;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use girih_compress::testing::{Layout, WorkFile, encode_into};
use girih_compress::{
    CompressError, CompressedFeatures, Encoded, FeatureCodec, GeneratedRows, Progress, RowSource, fit,
};
use girih_graph_format::file::Verify;
use girih_graph_format::{Buffer, Matrix};

/// File in memory that accepts a number of bytes and then fails, possibly in the middle of a write.
struct FaultyFile {
    bytes: Mutex<Vec<u8>>,
    room: AtomicUsize,
}

impl FaultyFile {
    fn new(bytes: Vec<u8>, room: usize) -> Self {
        Self { bytes: Mutex::new(bytes), room: AtomicUsize::new(room) }
    }

    fn sound(bytes: Vec<u8>) -> Self {
        Self::new(bytes, usize::MAX)
    }

    fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_inner().unwrap()
    }
}

impl WorkFile for FaultyFile {
    fn n_bytes(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let stored = self.bytes.lock().unwrap();
        let stored = stored.get(offset as usize..offset as usize + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(stored);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut stored = self.bytes.lock().unwrap();
        let room = self.room.load(Ordering::Relaxed);
        let n = bytes.len().min(room);
        self.room.store(room - n, Ordering::Relaxed);
        stored[offset as usize..offset as usize + n].copy_from_slice(&bytes[..n]);
        if n < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

const WIDTH: usize = 300;
const N_ROWS: usize = 11;
/// Four rows per chunk.
const CHUNK_VALUES: usize = 4 * WIDTH;

fn source(seed: u64) -> impl RowSource {
    GeneratedRows::new(N_ROWS, WIDTH, seed, move |row, values| {
        let value = |i: usize| ((i * 7919 + row * 104_729 + seed as usize * 31) % 1009) as f32;
        values.iter_mut().enumerate().for_each(|(i, out)| *out = value(i));
    })
}

/// Codec with small codes, so that a store has few bytes and each can be tried.
fn codec() -> Box<dyn FeatureCodec> {
    let sample = Matrix::new(2, WIDTH, (0..2 * WIDTH).map(|i| (i % 17) as f32).collect::<Vec<_>>()).unwrap();
    fit("topk:1".parse().unwrap(), &sample, 0).unwrap()
}

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn encode(file: &FaultyFile, seed: u64) -> Result<Encoded, CompressError> {
    encode_into(file, &*codec(), &source(seed), CHUNK_VALUES, &go_on)
}

fn open(bytes: &[u8]) -> Result<CompressedFeatures, CompressError> {
    CompressedFeatures::from_bytes(bytes.to_vec().into(), Verify::Full)
}

/// Store that an undisturbed run writes.
fn store(seed: u64) -> Vec<u8> {
    let file = FaultyFile::sound(Vec::new());
    encode(&file, seed).unwrap();
    file.into_bytes()
}

fn layout() -> Layout {
    Layout::new(&*codec(), N_ROWS, CHUNK_VALUES).unwrap()
}

#[test]
fn a_store_has_chunks_and_rows_as_its_layout_says() {
    let (bytes, layout) = (store(1), layout());
    assert_eq!((layout.chunk_rows, layout.n_chunks()), (4, 3));
    assert_eq!(bytes.len() as u64, layout.file_bytes());
    let features = open(&bytes).unwrap();
    let mut row = vec![0.0; WIDTH];
    let mut code = vec![0; layout.row_bytes];
    for i in 0..N_ROWS {
        source(1).read_rows(i, &mut row).unwrap();
        codec().encode_row(&row, &mut code).unwrap();
        assert_eq!(features.code(i), code);
    }
}

#[test]
fn a_kill_at_any_byte_leaves_no_store_and_the_next_run_completes_it() {
    let (expected, layout) = (store(1), layout());
    let written = expected.len() - layout.table_bytes() + 4 * layout.n_chunks() + layout.header_bytes();
    for room in 0..written {
        let file = FaultyFile::new(Vec::new(), room);
        let error = encode(&file, 1).unwrap_err();
        assert!(error.is_storage_full(), "{error}");
        let torn = file.into_bytes();
        assert!(open(&torn).is_err(), "a store after {room} bytes");

        let file = FaultyFile::sound(torn);
        encode(&file, 1).unwrap();
        assert_eq!(file.into_bytes(), expected, "killed after {room} bytes");
    }
    let file = FaultyFile::new(Vec::new(), written);
    encode(&file, 1).unwrap();
}

#[test]
fn only_finished_chunks_are_kept() {
    let expected = store(1);
    let layout = layout();
    // State of a killed run in which one chunk was never written, and another one torn.
    let unfinished = || {
        let mut bytes = expected.clone();
        bytes[..layout.header_bytes()].copy_from_slice(&layout.unfinished_header(1));
        bytes
    };
    let resumed = |bytes: Vec<u8>, seed: u64| {
        let file = FaultyFile::sound(bytes);
        let encoded = encode(&file, seed).unwrap();
        assert_eq!(file.into_bytes(), store(seed));
        encoded.rows_resumed
    };
    assert_eq!(resumed(unfinished(), 1), 11);

    let mut torn = unfinished();
    let (first, second) = (layout.table_offset(0) as usize, layout.code_offset(4) as usize);
    torn[first..first + 4].fill(0);
    torn[second + 5] ^= 1;
    assert_eq!(resumed(torn, 1), 3);

    // A run with another source, or a file of another size, starts again.
    assert_eq!(resumed(unfinished(), 2), 0);
    assert_eq!(resumed(unfinished()[..expected.len() - 1].to_vec(), 1), 0);
    assert_eq!(resumed(expected.clone(), 1), 0);
}

#[test]
fn a_stop_is_an_error_of_its_own_and_is_gone_on_from() {
    let file = FaultyFile::sound(Vec::new());
    let stop = |_: Progress| ControlFlow::Break(());
    let error = encode_into(&file, &*codec(), &source(1), CHUNK_VALUES, &stop).unwrap_err();
    assert!(error.is_stopped() && !error.is_corrupt(), "{error}");
    assert!(encode(&file, 1).unwrap().rows_resumed >= 3);
}

/// Store of 40 bytes of codes: four for the full group of each row, four for the short one.
fn small_store() -> Vec<u8> {
    let rows = GeneratedRows::new(5, WIDTH, 0, |row, values| {
        values.iter_mut().enumerate().for_each(|(i, value)| *value = ((i * 13 + row * 7) % 101) as f32);
    });
    let sample = Matrix::new(5, WIDTH, (0..5 * WIDTH).map(|i| (i % 101) as f32).collect::<Vec<_>>()).unwrap();
    let codec = fit("topk:2".parse().unwrap(), &sample, 0).unwrap();
    let file = FaultyFile::sound(Vec::new());
    encode_into(&file, &*codec, &rows, CHUNK_VALUES, &go_on).unwrap();
    file.into_bytes()
}

#[test]
fn every_truncation_is_refused() {
    let bytes = small_store();
    open(&bytes).unwrap();
    for len in 0..bytes.len() {
        let error = CompressedFeatures::from_bytes(bytes[..len].to_vec().into(), Verify::Structure).unwrap_err();
        assert!(error.is_corrupt(), "{len}: {error}");
    }
    let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
    assert!(open(&longer).unwrap_err().is_corrupt());
}

#[test]
fn every_flipped_bit_is_found() {
    let mut bytes = small_store();
    for bit in 0..8 * bytes.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(open(&bytes).is_err(), "bit {bit} of byte {}", bit / 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    open(&bytes).unwrap();
}

#[test]
fn a_flipped_bit_of_a_code_gives_a_wrong_row_and_no_panic_where_checksums_are_left_out() {
    let bytes = small_store();
    let codes = bytes.len() - 5 * 8;
    for bit in 8 * codes..8 * bytes.len() {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let features = CompressedFeatures::from_bytes(Buffer::from(bytes), Verify::Structure).unwrap();
        features.gather(&[0, 1, 2, 3, 4], &mut vec![0.0; 5 * WIDTH]).unwrap();
    }
}

#[test]
fn other_versions_and_unfinished_stores_are_named() {
    let mut bytes = small_store();
    assert_eq!(bytes[8..12], [1, 0, 0, 0]);
    bytes[8] = 2;
    let error = open(&bytes).unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("version 1"), "{error}");

    let mut unfinished = store(1);
    unfinished[..layout().header_bytes()].copy_from_slice(&layout().unfinished_header(1));
    let error = open(&unfinished).unwrap_err().to_string();
    assert!(error.contains("not complete"), "{error}");
}

#[test]
fn other_widths_and_bad_values_are_refused_with_their_place() {
    let narrow = GeneratedRows::new(3, 5, 0, |_, values| values.fill(0.0));
    let file = || FaultyFile::sound(Vec::new());
    let error = encode_into(&file(), &*codec(), &narrow, CHUNK_VALUES, &go_on).unwrap_err().to_string();
    assert!(error.contains("5 features") && error.contains("300"), "{error}");

    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let bad = GeneratedRows::new(N_ROWS, WIDTH, 0, |row, values| {
            values.fill(0.0);
            if row == 9 {
                values[123] = value;
            }
        });
        let error = encode_into(&file(), &*codec(), &bad, CHUNK_VALUES, &go_on).unwrap_err().to_string();
        assert!(error.contains("row 9, column 123"), "{error}");
    }
}

#[test]
fn no_rows_make_a_store_of_no_rows() {
    let none = GeneratedRows::new(0, WIDTH, 0, |_, _| {});
    let file = FaultyFile::sound(Vec::new());
    encode_into(&file, &*codec(), &none, CHUNK_VALUES, &go_on).unwrap();
    assert_eq!(open(&file.into_bytes()).unwrap().n_rows(), 0);
}
