//! `.npz`: a zip archive of `.npy` members, stored or deflated; and any other zip archive that holds one.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Cursor, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::array::{Array, Element};
use super::mapped::MappedFile;
use super::npy;
use super::sniff::{Sniffed, check_binary};
use super::unpack::{Budget, fill};
use crate::FormatError;

/// Largest number of bytes that a member may declare.
const MAX_MEMBER: u64 = 1 << 40;
/// Largest compression ratio of deflate; a member that claims a larger one is damaged or hostile.
const MAX_DEFLATE_RATIO: u64 = 1032;

/// Open archive.
pub struct Npz {
    origin: PathBuf,
    archive: ZipArchive<Cursor<Bytes>>,
    members: Vec<String>,
    n_bytes: u64,
    /// Memory budget of the whole archive, including archives inside.
    budget: Budget,
    /// Members that the budget has paid for.
    unpacked: HashSet<String>,
}

/// The archive's bytes, mapped or owned.
#[derive(Clone)]
struct Bytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl Npz {
    /// Opens an archive; members are read on request.
    ///
    /// # Errors
    /// When the file cannot be read or is not a zip archive.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        Self::new(path, &Bytes(Arc::new(MappedFile::open(path)?)), Budget::of_free_memory())
    }

    /// Opens an archive in memory; errors name `origin`.
    ///
    /// # Errors
    /// When the bytes are not a zip archive.
    pub fn from_bytes(origin: &Path, bytes: Vec<u8>) -> Result<Self, FormatError> {
        Self::new(origin, &Bytes(Arc::new(bytes)), Budget::of_free_memory())
    }

    fn new(origin: &Path, bytes: &Bytes, budget: Budget) -> Result<Self, FormatError> {
        let n_bytes = bytes.as_ref().len() as u64;
        let archive = ZipArchive::new(Cursor::new(bytes.clone())).map_err(|e| {
            let other = check_binary(bytes.as_ref(), "a zip archive", Sniffed::Zip);
            other.err().unwrap_or_else(|| zip_error(&e)).at(origin)
        })?;
        let names: Result<Vec<String>, ZipError> = archive.file_names().map(|n| n.map(|n| n.into_owned())).collect();
        let members = names.map_err(|e| zip_error(&e).at(origin))?;
        Ok(Self { origin: origin.to_owned(), archive, members, n_bytes, budget, unpacked: HashSet::new() })
    }

    /// Path of the file that errors name.
    #[must_use]
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// Names of all arrays, without their `.npy`, in the archive's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().filter_map(|m| m.strip_suffix(".npy"))
    }

    /// Names of all members, as the archive has them.
    #[must_use]
    pub fn members(&self) -> &[String] {
        &self.members
    }

    /// Whether an array of this name exists.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.names().any(|n| n == name)
    }

    /// Reads the array saved as `name`.
    ///
    /// # Errors
    /// When it does not exist (the message lists the existing ones) or is damaged, or as [`Array::read`].
    pub fn array(&mut self, name: &str) -> Result<Array, FormatError> {
        if !self.contains(name) {
            let names: Vec<&str> = self.names().collect();
            let message = format!("no array {name:?}; the archive holds {}", names.join(", "));
            return Err(FormatError::invalid(message).at(&self.origin));
        }
        let member = format!("{name}.npy");
        let bytes = self.member(&member)?;
        Array::from_bytes(&self.origin.join(member), &bytes)
    }

    /// Reads the array saved as `name`, if it exists.
    ///
    /// # Errors
    /// When it is damaged, or as [`Array::read`].
    pub fn try_array(&mut self, name: &str) -> Result<Option<Array>, FormatError> {
        if self.contains(name) { self.array(name).map(Some) } else { Ok(None) }
    }

    /// Opens the archive that is the member `name` of this one.
    ///
    /// # Errors
    /// As [`Npz::member`], or when the member is not a zip archive.
    pub fn inner(&mut self, name: &str) -> Result<Self, FormatError> {
        let bytes = self.member(name)?;
        Self::new(&self.origin.join(name), &Bytes(Arc::new(bytes)), self.budget)
    }

    /// Reads the bytes of the member `name` (its full name), and verifies size and checksum.
    ///
    /// # Errors
    /// When the member does not exist, or is damaged.
    pub fn member(&mut self, name: &str) -> Result<Vec<u8>, FormatError> {
        let origin = self.origin.join(name);
        self.read_member(name).map_err(|e| e.at(&origin))
    }

    fn read_member(&mut self, name: &str) -> Result<Vec<u8>, FormatError> {
        let file = self.archive.by_name(name).map_err(|e| zip_error(&e))?;
        let declared = file.size();
        let possible = file.compressed_size().min(self.n_bytes).saturating_mul(MAX_DEFLATE_RATIO);
        if declared > possible.min(MAX_MEMBER) {
            return Err(FormatError::corrupt(format!(
                "the member declares {declared} bytes, but its {} compressed bytes cannot hold so many",
                file.compressed_size()
            )));
        }
        // A second read of a member replaces its first copy.
        if self.unpacked.insert(name.to_owned()) {
            let remedy = "save its arrays as .npy, which need not fit into memory, or read it where there is more";
            self.budget.take(declared, remedy)?;
        }
        let mut bytes = Vec::new();
        // One byte more than declared, so that the reader sees the end of the member and compares its checksum.
        fill(file, &mut bytes, usize::try_from(declared).unwrap_or(usize::MAX).saturating_add(1))?;
        if bytes.len() as u64 != declared {
            let message = format!("the member declares {declared} bytes and holds {} or more", bytes.len());
            return Err(FormatError::corrupt(message));
        }
        Ok(bytes)
    }
}

fn zip_error(error: &ZipError) -> FormatError {
    match error {
        ZipError::UnsupportedArchive(_) | ZipError::CompressionMethodNotSupported(_) | ZipError::InvalidPassword => {
            FormatError::invalid(format!("{error}; members must be stored or deflated, without a password"))
        }
        ZipError::FileNotFound => FormatError::invalid("no such member in the archive"),
        _ => FormatError::corrupt(format!("not a readable zip archive: {error}")),
    }
}

/// Writer of an archive of arrays, as `numpy.savez_compressed`; equal arrays give equal bytes.
pub struct NpzWriter<W: Write + Seek> {
    zip: ZipWriter<Sink<W>>,
}

impl NpzWriter<BufWriter<File>> {
    /// Writes an archive through `fill`; the file appears whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written, or with the error of `fill`.
    pub fn write_file(
        path: &Path,
        fill: impl FnOnce(&mut NpzWriter<&mut BufWriter<File>>) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        super::write_file(path, |out| {
            let mut writer = NpzWriter::new(out);
            fill(&mut writer)?;
            writer.finish()
        })
    }
}

impl<W: Write + Seek> NpzWriter<W> {
    /// Makes a writer of an archive to `out`.
    pub fn new(out: W) -> Self {
        Self { zip: ZipWriter::new(Sink { out, position: 0, failure: None }) }
    }

    /// Adds an array.
    ///
    /// # Errors
    /// When writing fails or the name is taken.
    ///
    /// # Panics
    /// When the product of `shape` is not the number of values.
    pub fn array<T: Element>(&mut self, name: &str, shape: &[usize], values: &[T]) -> Result<(), FormatError> {
        self.start(name, size_of_val(values))?;
        Ok(npy::write_array(&mut self.zip, shape, values)?)
    }

    /// Adds an array of one dimension whose values are made in parts, so that it is never in memory as a whole.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn array_of<T: Element>(
        &mut self,
        name: &str,
        values: impl ExactSizeIterator<Item = T>,
    ) -> Result<(), FormatError> {
        self.start(name, values.len() * size_of::<T>())?;
        Ok(npy::write_values(&mut self.zip, values)?)
    }

    /// Adds a single ASCII string, as `numpy.array(b"…")`.
    ///
    /// # Errors
    /// When writing fails or the name is taken.
    pub fn ascii(&mut self, name: &str, text: &str) -> Result<(), FormatError> {
        self.start(name, text.len())?;
        self.zip.write_all(&npy::header_bytes(&format!("|S{}", text.len()), &[]))?;
        Ok(self.zip.write_all(text.as_bytes())?)
    }

    fn start(&mut self, name: &str, n_bytes: usize) -> Result<(), FormatError> {
        let options = SimpleFileOptions::DEFAULT
            .compression_method(CompressionMethod::Deflated)
            .large_file(n_bytes as u64 >= u64::from(u32::MAX) / 2);
        self.zip
            .start_file(format!("{name}.npy"), options)
            .map_err(|e| FormatError::invalid(format!("member {name:?}: {e}")))
    }

    /// Completes the archive.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(self) -> Result<(), FormatError> {
        let sink = self.zip.finish().map_err(|e| FormatError::io(e.into()))?;
        sink.failure.map_or(Ok(()), |error| Err(FormatError::io(error)))
    }
}

/// Output that keeps the first failure, and discards all later writes. A dropped `ZipWriter` completes its archive,
/// also after a failure, and then panics over positions that do not fit.
struct Sink<W> {
    out: W,
    position: u64,
    failure: Option<io::Error>,
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &self.failure {
            Some(_) => bytes.len(),
            None => match self.out.write(bytes) {
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    self.failure = Some(error);
                    bytes.len()
                }
            },
        };
        self.position += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failure.is_none() {
            self.failure = self.out.flush().err();
        }
        Ok(())
    }
}

impl<W: Seek> Seek for Sink<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if self.failure.is_none() {
            match self.out.seek(to) {
                Ok(position) => {
                    self.position = position;
                    return Ok(position);
                }
                Err(error) => self.failure = Some(error),
            }
        }
        self.position = match to {
            SeekFrom::Start(position) => position,
            SeekFrom::Current(offset) | SeekFrom::End(offset) => self.position.saturating_add_signed(offset),
        };
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Disk with a given capacity in bytes.
    struct Disk(Cursor<Vec<u8>>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let has_room = self.0.position() as usize + bytes.len() <= self.1;
            if has_room { self.0.write(bytes) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn an_archive_on_a_full_disk_is_an_error_wherever_it_is_full() {
        let write = |room: usize| {
            let mut out = NpzWriter::new(Disk(Cursor::default(), room));
            let values: Vec<u32> = (0..1000).map(|i| i * i).collect();
            out.array("a", &[1000], &values).and_then(|()| out.array("b", &[1000], &values))?;
            out.finish()
        };
        let enough = (0..20_000).step_by(50).find(|&room| write(room).is_ok()).expect("it fits");
        for room in (0..enough - 50).step_by(37) {
            let error = write(room).unwrap_err().to_string();
            assert!(error.contains("space") || error.contains("full"), "{room}: {error}");
        }
    }
}
