//! [`MappedFile`]: a file that is mapped for reading. The process knows all of its mapped files, so that a change of
//! one while it is in use is found ([`check_mapped_files`]), and an access beyond a file that was cut off is explained
//! ([`mapped_file_at`]).
//!
//! Mapped bytes can change at any time: their readers must index with checks. Where that is too slow, values are
//! copied first, and the copy is checked ([`Csr::in_memory`](crate::Csr::in_memory)).

use std::fs::{File, Metadata};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use memmap2::Mmap;

use crate::FormatError;

/// The bytes of a file, mapped for reading.
#[derive(Debug)]
pub struct MappedFile {
    // Dropped after the entry is cleared: see `Drop`.
    map: Mmap,
    entry: &'static Entry,
}

impl MappedFile {
    /// Maps a whole file.
    ///
    /// # Errors
    /// When the file cannot be read, or is no regular one.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let at = |e| FormatError::io(e).at(path);
        let file = File::open(path).map_err(at)?;
        let metadata = file.metadata().map_err(at)?;
        if !metadata.is_file() {
            return Err(FormatError::invalid("not a regular file").at(path));
        }
        // SAFETY: the map is read only through shared slices of plain bytes, of which any value is valid, and by code
        // that checks what it indexes by. Other processes may change the bytes; girih's writers replace files.
        let map = unsafe { Mmap::map(&file) }.map_err(at)?;
        let entry = Entry::of(path, &map, Version::of(&metadata));
        Ok(Self { map, entry })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        self.entry.clear();
    }
}

/// Identity of a state of a file: inode, size and time of modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    file: Option<(u64, u64)>,
    len: u64,
    modified: Option<SystemTime>,
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let file = {
            use std::os::unix::fs::MetadataExt;
            Some((metadata.dev(), metadata.ino()))
        };
        #[cfg(not(unix))]
        let file = None;
        Self { file, len: metadata.len(), modified: metadata.modified().ok() }
    }
}

/// State of a mapped file when it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not mapped any more; the entry can be used again.
    Free,
    /// In use, with the contents of this version.
    Mapped(Version),
    /// In use; another file has its name since, which has been told.
    Replaced,
}

/// A file that is or was mapped. Entries make a list that only grows, so that a signal handler can walk it.
#[derive(Debug)]
struct Entry {
    path: PathBuf,
    /// The path as messages have it.
    name: String,
    /// Range of addresses; empty when the file is not mapped.
    start: AtomicUsize,
    end: AtomicUsize,
    state: Mutex<State>,
    next: OnceLock<&'static Self>,
}

static FIRST: OnceLock<&'static Entry> = OnceLock::new();
/// Error of the first file that was found changed when it was unmapped.
static CHANGED: Mutex<Option<FormatError>> = Mutex::new(None);
/// Held while an entry is taken or added.
static TAKING: Mutex<()> = Mutex::new(());

/// A lock, whatever happened to the thread that held it: the values are whole at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Entry {
    /// The entry of a new map: one of the same path that is free, or else a new one at the end of the list.
    fn of(path: &Path, map: &Mmap, version: Version) -> &'static Self {
        let _taking = lock(&TAKING);
        let free = entries().find(|entry| entry.path == path && *lock(&entry.state) == State::Free);
        let entry = free.unwrap_or_else(|| Self::added(path));
        *lock(&entry.state) = State::Mapped(version);
        let start = map.as_ptr().addr();
        entry.start.store(start, Ordering::Relaxed);
        entry.end.store(start + map.len(), Ordering::Release);
        entry
    }

    /// A new entry at the end of the list. It is never freed; there is one for each path and map of it at a time.
    fn added(path: &Path) -> &'static Self {
        let entry: &'static Self = Box::leak(Box::new(Self {
            path: path.to_owned(),
            name: path.display().to_string(),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            state: Mutex::new(State::Free),
            next: OnceLock::new(),
        }));
        let end = entries().last().map_or(&FIRST, |last| &last.next);
        end.set(entry).unwrap_or_else(|_| unreachable!("entries are added one at a time"));
        entry
    }

    fn clear(&self) {
        if let Err(error) = self.check() {
            lock(&CHANGED).get_or_insert(error);
        }
        self.end.store(0, Ordering::Release);
        *lock(&self.state) = State::Free;
    }

    /// The version that is in use and the one that has its name now; `None` where the file is not in use, or has been
    /// told to be another.
    fn versions(&self) -> Option<(Version, Option<Version>)> {
        let State::Mapped(before) = *lock(&self.state) else { return None };
        Some((before, std::fs::metadata(&self.path).map(|metadata| Version::of(&metadata)).ok()))
    }

    /// Refuses a file that was changed in place.
    fn check(&self) -> Result<(), FormatError> {
        match self.versions() {
            Some((before, Some(now))) if now.file == before.file && now != before => Err(FormatError::invalid(
                "changed while it was in use: what was read since may be a mixture of before and after; run again, and \
                 let nothing write to this file meanwhile",
            )
            .at(&self.path)),
            _ => Ok(()),
        }
    }

    /// How the file is not the one of its name any more, told once.
    fn replaced(&self) -> Option<&'static str> {
        let (before, now) = self.versions()?;
        if now.is_some_and(|now| now.file == before.file) {
            return None;
        }
        *lock(&self.state) = State::Replaced;
        Some(if now.is_some() { "was replaced" } else { "was removed" })
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    std::iter::successors(FIRST.get().copied(), |entry| entry.next.get().copied())
}

/// Compares all mapped files with what they were when they were mapped: by inode, size and time of modification.
/// Training does so after every epoch, before a checkpoint is written, and programs at their end.
///
/// # Errors
/// At the first file that was changed in place, naming it: what was read from it is not to be trusted.
pub fn check_mapped_files() -> Result<(), FormatError> {
    entries().try_for_each(Entry::check)
}

/// As [`check_mapped_files`], at the end of a program: also of files that are not mapped any more. A file that was
/// already unmapped is told once.
///
/// # Errors
/// As [`check_mapped_files`].
pub fn check_files_at_end() -> Result<(), FormatError> {
    check_mapped_files()?;
    lock(&CHANGED).take().map_or(Ok(()), Err)
}

/// Warnings of mapped files whose name belongs to another file since, or to none; each is returned once. They are in use
/// as they were.
pub fn replaced_files() -> Vec<String> {
    let told = |entry: &Entry| {
        let what = entry.replaced()?;
        Some(format!("{} {what} while it was in use; its old contents are used until the end", entry.name))
    };
    entries().filter_map(told).collect()
}

/// The path of the file that is mapped at an address. Takes no lock and allocates nothing: a handler of SIGBUS may call
/// it.
#[must_use]
pub fn mapped_file_at(address: usize) -> Option<&'static str> {
    entries()
        .find(|entry| {
            let end = entry.end.load(Ordering::Acquire).next_multiple_of(PAGE_MAX);
            (entry.start.load(Ordering::Relaxed)..end).contains(&address)
        })
        .map(|entry| entry.name.as_str())
}

/// A map ends with its last page, of at most this size.
const PAGE_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Files of the other tests of this process are not changed.
    fn changed(path: &Path) -> Option<String> {
        let name = path.display().to_string();
        let entry = entries().find(|entry| entry.name == name).expect("a mapped file");
        entry.check().err().map(|error| error.to_string()).or_else(|| entry.replaced().map(str::to_owned))
    }

    #[test]
    fn changes_are_found_by_size_and_time_and_a_new_file_is_told_once() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.npy");
        fs::write(&path, [1u8; 100]).unwrap();
        let map = MappedFile::open(&path).unwrap();
        assert_eq!(changed(&path), None);
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, [2u8; 100]).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(before + std::time::Duration::from_secs(1))
            .unwrap();
        let message = changed(&path).unwrap();
        assert!(message.contains("a.npy: changed while it was in use"), "{message}");
        assert!(check_mapped_files().is_err());
        drop(map);
        assert_eq!(changed(&path), None, "nothing is in use any more");
        assert!(check_files_at_end().is_err());

        let map = MappedFile::open(&path).unwrap();
        fs::write(home.path().join("b.npy"), [3u8; 100]).unwrap();
        fs::rename(home.path().join("b.npy"), &path).unwrap();
        assert_eq!(changed(&path).as_deref(), Some("was replaced"));
        assert_eq!((changed(&path), map[0]), (None, 2), "told once, and still what it was");
        let entries_before = entries().count();
        drop(map);
        let map = MappedFile::open(&path).unwrap();
        assert_eq!((entries().count(), map[0]), (entries_before, 3), "the entry is used again");
        fs::remove_file(&path).unwrap();
        assert_eq!(changed(&path).as_deref(), Some("was removed"));
    }

    #[test]
    fn an_address_names_its_file_as_long_as_that_is_mapped() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("c.npy");
        fs::write(&path, [1u8; 5000]).unwrap();
        let map = MappedFile::open(&path).unwrap();
        let address = map.as_ptr().addr();
        assert_eq!(mapped_file_at(address + 4999), path.to_str());
        drop(map);
        assert_eq!(mapped_file_at(address), None);
        assert_eq!(mapped_file_at(0), None);
    }
}
