//! [`MappedFile`]: a file that is mapped for reading. The process keeps a list of its mapped files. So it finds a
//! file that changes while in use ([`check_mapped_files`]), and can explain an access beyond a truncated file
//! ([`mapped_file_at`]).
//!
//! Mapped bytes can change at any time, so code that reads them must index with checks. Where that is too slow,
//! values are copied first, and the copy is checked ([`Csr::in_memory`](crate::Csr::in_memory)).

use std::fs::{File, Metadata};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use memmap2::Mmap;

use crate::FormatError;

/// Bytes of a file, mapped for reading.
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
    /// When the file cannot be read, or is not a regular file.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let at = |e| FormatError::io(e).at(path);
        let file = File::open(path).map_err(at)?;
        let metadata = file.metadata().map_err(at)?;
        if !metadata.is_file() {
            return Err(FormatError::invalid("not a regular file").at(path));
        }
        // SAFETY: the map is read only through shared slices of plain bytes, for which any value is valid. Code that
        // indexes by them checks its indices. Other processes may change the bytes; girih's writers replace files
        // instead.
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

/// State of a mapped file when it was last checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not mapped any more; the entry can be reused.
    Free,
    /// In use, with the contents of this version.
    Mapped(Version),
    /// In use; another file has taken its name, which was reported.
    Replaced,
}

/// File that is or was mapped. Entries form a list that only grows, so that a signal handler can traverse it.
#[derive(Debug)]
struct Entry {
    path: PathBuf,
    /// Path as text for messages.
    name: String,
    /// Range of addresses; empty when the file is not mapped.
    start: AtomicUsize,
    end: AtomicUsize,
    state: Mutex<State>,
    next: OnceLock<&'static Self>,
}

static FIRST: OnceLock<&'static Entry> = OnceLock::new();
/// Error of the first file that was found changed on unmapping.
static CHANGED: Mutex<Option<FormatError>> = Mutex::new(None);
/// Lock held while an entry is taken or added.
static TAKING: Mutex<()> = Mutex::new(());

/// Locks a mutex and ignores poisoning: the values are valid at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Entry {
    /// Takes the entry of a new map: a free one of an equal path, or else a new one at the end of the list.
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

    /// Appends a new entry to the list. It is never freed; there is one per path and concurrent map of it.
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

    /// The version in use and the one that has its name now; `None` where the file is not in use, or was reported as
    /// replaced.
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

    /// Reason why the file of this name is another one now; reported once.
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

/// Compares all mapped files with their state when they were mapped: by inode, size and time of modification.
/// Training calls it after every epoch and before a checkpoint is written, and programs call it at their end.
///
/// # Errors
/// At the first file that was changed in place, naming it: data read from it is unreliable.
pub fn check_mapped_files() -> Result<(), FormatError> {
    entries().try_for_each(Entry::check)
}

/// As [`check_mapped_files`], but also for files that are not mapped any more, at the end of a program. A file that
/// was already unmapped is reported once.
///
/// # Errors
/// As [`check_mapped_files`].
pub fn check_files_at_end() -> Result<(), FormatError> {
    check_mapped_files()?;
    lock(&CHANGED).take().map_or(Ok(()), Err)
}

/// Warnings about mapped files whose name now belongs to another file, or to none; each is returned once. The process
/// keeps using the old contents.
pub fn replaced_files() -> Vec<String> {
    let told = |entry: &Entry| {
        let what = entry.replaced()?;
        Some(format!("{} {what} while it was in use; its old contents are used until the end", entry.name))
    };
    entries().filter_map(told).collect()
}

/// Path of the file that is mapped at an address. Takes no lock and allocates nothing, so that a handler of SIGBUS
/// may call it.
#[must_use]
pub fn mapped_file_at(address: usize) -> Option<&'static str> {
    entries()
        .find(|entry| {
            let end = entry.end.load(Ordering::Acquire).next_multiple_of(PAGE_MAX);
            (entry.start.load(Ordering::Relaxed)..end).contains(&address)
        })
        .map(|entry| entry.name.as_str())
}

/// Upper bound of a page size: a map extends to the end of its last page.
const PAGE_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Filters by path, so that files of the other tests of this process do not count.
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
