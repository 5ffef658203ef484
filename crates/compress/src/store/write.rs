//! [`encode_to_file`]: encodes a source of rows into a store, in parallel, in bounded memory, resumable.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use girih_graph_format::file::write_file;
use rayon::prelude::*;

use super::layout::{Layout, u32_at};
use super::work_file::WorkFile;
use crate::{CompressError, CompressedFeatures, FeatureCodec, RowSource};

/// Largest number of features of a chunk, unless one row has more. It is small, because every thread holds a chunk's
/// codes in memory.
const CHUNK_VALUES: usize = 1 << 18;
/// Number of values that are read and encoded at a time: with their codes they stay in a core's own cache.
const PIECE_VALUES: usize = 1 << 16;

/// Progress of encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of rows in the store.
    pub rows_done: u64,
    /// Number of these rows that an earlier, interrupted run had encoded.
    pub rows_resumed: u64,
    /// Number of all rows.
    pub n_rows: u64,
}

/// Summary of a written store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Number of rows in the store.
    pub n_rows: u64,
    /// Number of these rows that an earlier, interrupted run had encoded.
    pub rows_resumed: u64,
    /// Size of the store in bytes.
    pub file_bytes: u64,
}

/// Encodes all rows of `source` into a store at `path`, which appears when it is complete and on disk; an old file
/// stays until then. All threads of rayon's pool take part, each with less than 2 MiB of its own unless a row has
/// more. The bytes do not depend on the number of threads.
///
/// Meanwhile the rows are in `.girih-NAME.part` in the folder of `path`. That file stays when the call fails or the
/// process is killed, and the next call with an equal source and codec resumes it. With another source or codec, it
/// starts again.
///
/// `progress` is called after every chunk of about a megabyte of features, from any thread; if it breaks, encoding
/// stops.
///
/// # Errors
/// When a row cannot be read or is refused by the codec, widths differ, the disk is full
/// ([`CompressError::is_storage_full`]), another process writes the same store, or `progress` breaks
/// ([`CompressError::is_stopped`]).
pub fn encode_to_file(
    path: &Path,
    codec: &dyn FeatureCodec,
    source: &dyn RowSource,
    progress: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<Encoded, CompressError> {
    let at = |e| CompressError::io(e).at(path);
    if path.is_dir() {
        return Err(CompressError::invalid("is a folder; name a file for the store").at(path));
    }
    let temporary = temporary_of(path)?;
    let file = open_locked(&temporary, path)?;
    let encoded = encode_into(&file, codec, source, CHUNK_VALUES, progress).map_err(|e| e.at(path))?;
    fs::rename(&temporary, path).map_err(at)?;
    sync_folder(path).map_err(at)?;
    Ok(encoded)
}

impl CompressedFeatures {
    /// Writes a store at `path`, with bytes equal to those of [`encode_to_file`]; it appears when it is complete and
    /// on disk.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), CompressError> {
        let layout = Layout::new(self.codec(), self.n_rows(), CHUNK_VALUES).map_err(|e| e.at(path))?;
        let row_bytes = layout.row_bytes;
        let crc = |chunk: usize| {
            let rows = layout.rows_of(chunk);
            crc32fast::hash(&self.codes()[rows.start * row_bytes..rows.end * row_bytes])
        };
        let crcs: Vec<u32> = (0..layout.n_chunks()).into_par_iter().map(crc).collect();
        let mut table: Vec<u8> = crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect();
        table.resize(layout.table_bytes(), 0);
        Ok(write_file(path, |out| {
            out.write_all(&layout.finished_header(crc32fast::hash(&table)))?;
            out.write_all(&table)?;
            Ok(out.write_all(self.codes())?)
        })?)
    }
}

/// Path of an incomplete store for `path`.
fn temporary_of(path: &Path) -> Result<PathBuf, CompressError> {
    let name = path.file_name().ok_or_else(|| CompressError::invalid("is no name of a file").at(path))?;
    let mut temporary = std::ffi::OsString::from(".girih-");
    temporary.push(name);
    temporary.push(".part");
    Ok(path.with_file_name(temporary))
}

/// Opens the file to write, locked for this process. Errors name the store, which is the path that the user knows.
fn open_locked(temporary: &Path, path: &Path) -> Result<File, CompressError> {
    let at = |e| CompressError::io(e).at(path);
    let in_use = || CompressError::invalid("another process is writing this store; wait for it or stop it").at(path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // Others know the name: a link that they made there is not followed.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nix::fcntl::OFlag::O_NOFOLLOW.bits());
    let file = options.open(temporary).map_err(at)?;
    if !is_own(&file.metadata().map_err(at)?) {
        let message = format!("{} is another user's, or no file of its own; remove it", temporary.display());
        return Err(CompressError::invalid(message).at(path));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use()),
        Err(TryLockError::Error(error)) => return Err(at(error)),
    }
    // Between the two calls another process may have completed the store: then this is the file with its final name.
    if is_same_file(&file, temporary) { Ok(file) } else { Err(in_use()) }
}

/// Whether a file is a regular one of this user, with a single name.
#[cfg(unix)]
fn is_own(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    metadata.is_file() && metadata.nlink() == 1 && metadata.uid() == nix::unistd::geteuid().as_raw()
}

#[cfg(not(unix))]
fn is_own(metadata: &fs::Metadata) -> bool {
    metadata.is_file()
}

#[cfg(unix)]
fn is_same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(a), Ok(b)) if identity(&a) == identity(&b))
}

#[cfg(not(unix))]
fn is_same_file(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Makes the rename durable; only Unix can open a folder to flush it.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Encodes into a file that may hold results of an earlier run; on return, the file is a complete store.
///
/// # Errors
/// When the source cannot be read or has another width, a value is not finite, the file fails, or `progress` stops.
pub fn encode_into(
    file: &dyn WorkFile,
    codec: &dyn FeatureCodec,
    source: &dyn RowSource,
    chunk_values: usize,
    progress: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<Encoded, CompressError> {
    if source.width() != codec.width() {
        return Err(CompressError::invalid(format!(
            "rows of {} features for a codec fitted to {}; fit it to these rows",
            source.width(),
            codec.width()
        )));
    }
    let layout = Layout::new(codec, source.n_rows(), chunk_values)?;
    let resumes = start(file, &layout, source.fingerprint()?)?;
    let (done, resumed) = (AtomicU64::new(0), AtomicU64::new(0));
    let writer = Writer { file, codec, source, layout: &layout };

    (0..layout.n_chunks()).into_par_iter().try_for_each_init(Buffers::default, |buffers, chunk| {
        let rows = layout.rows_of(chunk).len() as u64;
        if resumes && writer.is_done(chunk, buffers)? {
            resumed.fetch_add(rows, Ordering::Relaxed);
        } else {
            writer.encode(chunk, buffers)?;
        }
        let rows_done = done.fetch_add(rows, Ordering::Relaxed) + rows;
        let rows_resumed = resumed.load(Ordering::Relaxed);
        let told = progress(Progress { rows_done, rows_resumed, n_rows: layout.n_rows as u64 });
        if told.is_break() { Err(CompressError::stopped()) } else { Ok(()) }
    })?;

    finish(file, &layout)?;
    let rows_resumed = resumed.into_inner();
    Ok(Encoded { n_rows: layout.n_rows as u64, rows_resumed, file_bytes: layout.file_bytes() })
}

/// Makes `file` an unfinished store; returns whether it already was this one.
fn start(file: &dyn WorkFile, layout: &Layout, fingerprint: u64) -> Result<bool, CompressError> {
    let header = layout.unfinished_header(fingerprint);
    if file.n_bytes().map_err(CompressError::io)? == layout.file_bytes() {
        let mut found = vec![0; header.len()];
        file.read_at(&mut found, 0).map_err(CompressError::io)?;
        if found == header {
            return Ok(true);
        }
    }
    // The file is truncated first, so that checksums of another run are gone before the header is this run's.
    let begin = || {
        file.set_len(0)?;
        file.set_len(layout.file_bytes())?;
        file.sync()?;
        file.write_at(&header, 0)
    };
    begin().map_err(CompressError::io)?;
    Ok(false)
}

/// Makes an unfinished store a complete one. Every step is on disk before the next.
fn finish(file: &dyn WorkFile, layout: &Layout) -> Result<(), CompressError> {
    let finish = || {
        file.sync()?;
        let mut table = vec![0; layout.table_bytes()];
        file.read_at(&mut table, layout.table_offset(0))?;
        file.write_at(&layout.finished_header(crc32fast::hash(&table)), 0)?;
        file.sync()
    };
    finish().map_err(CompressError::io)
}

/// State shared by all threads.
struct Writer<'a> {
    file: &'a dyn WorkFile,
    codec: &'a dyn FeatureCodec,
    source: &'a dyn RowSource,
    layout: &'a Layout,
}

/// Buffers of a thread.
#[derive(Default)]
struct Buffers {
    rows: Vec<f32>,
    codes: Vec<u8>,
}

impl Writer<'_> {
    /// Whether an earlier run wrote a whole chunk.
    fn is_done(&self, chunk: usize, buffers: &mut Buffers) -> Result<bool, CompressError> {
        let rows = self.layout.rows_of(chunk);
        let mut stored = [0; size_of::<u32>()];
        self.file.read_at(&mut stored, self.layout.table_offset(chunk)).map_err(CompressError::io)?;
        let crc = u32_at(&stored, 0);
        if crc == 0 {
            // Not written yet, or a checksum that happens to be zero: the chunk is then encoded again, which is
            // harmless.
            return Ok(false);
        }
        buffers.codes.resize(rows.len() * self.layout.row_bytes, 0);
        self.file.read_at(&mut buffers.codes, self.layout.code_offset(rows.start)).map_err(CompressError::io)?;
        Ok(crc32fast::hash(&buffers.codes) == crc)
    }

    /// Encodes a chunk, writes it, and then its checksum.
    fn encode(&self, chunk: usize, buffers: &mut Buffers) -> Result<(), CompressError> {
        let Layout { width, row_bytes, .. } = *self.layout;
        let rows = self.layout.rows_of(chunk);
        let piece_rows = (PIECE_VALUES / width).max(1);
        buffers.codes.resize(rows.len() * row_bytes, 0);
        let firsts = rows.clone().step_by(piece_rows);
        for (first, codes) in firsts.zip(buffers.codes.chunks_mut(piece_rows * row_bytes)) {
            buffers.rows.resize(codes.len() / row_bytes * width, 0.0);
            self.source.read_rows(first, &mut buffers.rows)?;
            self.codec.encode_rows(first, &buffers.rows, codes)?;
        }
        let crc = crc32fast::hash(&buffers.codes);
        let write = || {
            self.file.write_at(&buffers.codes, self.layout.code_offset(rows.start))?;
            self.file.write_at(&crc.to_le_bytes(), self.layout.table_offset(chunk))
        };
        write().map_err(CompressError::io)
    }
}
