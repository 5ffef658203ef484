//! Output that appears whole or not at all: written to a temporary path, flushed to disk, renamed.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, TempDir};

use crate::FormatError;

/// Buffer size in bytes; large enough that small writes of numbers cost little.
const WRITE_BUFFER: usize = 1 << 18;

/// Writes a file through `write`. The old file at `path`, or at the target of a link there, stays until the new file
/// is complete and on disk.
///
/// # Errors
/// When `path` is not a regular file, the file cannot be written, or with the error of `write`; `path` is then
/// unchanged.
pub fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let at = |e| FormatError::io(e).at(path);
    let real = &real_path(path).map_err(at)?;
    if real.exists() && !real.is_file() {
        return Err(FormatError::invalid("exists and is no regular file; choose another name").at(path));
    }
    // The kind of the error alone: the message would name the temporary file, which the user did not ask for.
    let create = || builder(0o666).tempfile_in(parent(real));
    let (temporary, _unfinished) = Unfinished::begin(parent(real), create).map_err(|e| at(e.kind().into()))?;
    let mut out = BufWriter::with_capacity(WRITE_BUFFER, temporary.as_file().try_clone().map_err(at)?);
    write(&mut out).map_err(|e| e.at(path))?;
    out.flush().map_err(at)?;
    temporary.as_file().sync_all().map_err(at)?;
    let temporary = temporary.into_temp_path();
    fs::rename(&temporary, real).map_err(at)?;
    // The file has its final name: nothing is left to remove.
    let _ = temporary.keep();
    sync_folder(parent(real)).map_err(at)
}

/// Folder that is filled under a temporary path; [`NewFolder::commit`] moves it to its target, and dropping it
/// removes it.
#[derive(Debug)]
pub struct NewFolder {
    target: PathBuf,
    temporary: TempDir,
    _unfinished: Unfinished,
}

impl NewFolder {
    /// Starts a folder for `target`. The target may be absent, an empty folder, or a folder for which `may_replace`
    /// holds.
    ///
    /// # Errors
    /// When `target` is anything else, or its parent cannot be written.
    pub fn create(target: &Path, may_replace: impl FnOnce(&Path) -> bool) -> Result<Self, FormatError> {
        let at = |e| FormatError::io(e).at(target);
        if target.exists() {
            let replaceable = target.is_dir() && (is_empty(target).map_err(at)? || may_replace(target));
            if !replaceable {
                let message = "exists and is not a folder of girih's alone; choose another name or remove it";
                return Err(FormatError::invalid(message).at(target));
            }
        }
        let target = real_path(target).map_err(at)?;
        let create = || builder(0o777).tempdir_in(parent(&target));
        let (temporary, unfinished) = Unfinished::begin(parent(&target), create).map_err(|e| at(e.kind().into()))?;
        Ok(Self { target, temporary, _unfinished: unfinished })
    }

    /// Temporary path to write to.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// Final path of the folder.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Flushes the folder and moves it to its target. A replaced folder is renamed first and removed last. So a crash
    /// leaves one of the two complete, at worst under its temporary name.
    ///
    /// # Errors
    /// When the folder cannot be moved. The old one is then put back, or keeps the name that the error states.
    pub fn commit(self) -> Result<(), FormatError> {
        let at = |e| FormatError::io(e).at(&self.target);
        sync_folder(self.temporary.path()).map_err(at)?;
        let old = {
            // The thread that removes unfinished output has done so before, or finds this folder finished.
            let mut unfinished = unfinished();
            if !self.temporary.path().exists() {
                return Err(at(std::io::ErrorKind::Interrupted.into()));
            }
            let old = self.replace()?;
            unfinished.remove(self.temporary.path());
            old.map(|aside| {
                let listed = Unfinished::list(&mut unfinished, aside.path());
                (aside, listed)
            })
        };
        drop(old);
        sync_folder(parent(&self.target)).map_err(at)
    }

    /// Moves the folder to its target; returns the old one, which is removed on drop.
    fn replace(&self) -> Result<Option<TempDir>, FormatError> {
        let at = |e| FormatError::io(e).at(&self.target);
        if !self.target.exists() {
            return fs::rename(self.temporary.path(), &self.target).map(|()| None).map_err(at);
        }
        let aside = builder(0o777).tempdir_in(parent(&self.target)).map_err(at)?;
        let old = aside.path().join("old");
        fs::rename(&self.target, &old).map_err(at)?;
        let Err(error) = fs::rename(self.temporary.path(), &self.target) else { return Ok(Some(aside)) };
        if fs::rename(&old, &self.target).is_ok() {
            return Err(at(error));
        }
        let kept = aside.keep().join("old");
        let message = format!("cannot be replaced ({error}); what stood there is {}", kept.display());
        Err(FormatError::invalid(message).at(&self.target))
    }
}

/// Temporary paths that threads of the process are writing.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn unfinished() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // The set of paths is valid even if a thread panicked.
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the output that [`write_file`] and [`NewFolder`] are writing, and calls `end`, which should end the
/// process. Threads that would begin or finish output meanwhile wait. Complete output stays.
pub fn remove_unfinished(end: impl FnOnce()) {
    let unfinished = unfinished();
    for path in unfinished.iter() {
        // A path that cannot be removed is left behind, as after a crash.
        let _ = if path.is_dir() { remove_folder(path) } else { fs::remove_file(path) };
    }
    end();
}

/// Number of attempts to empty a folder into which files are still being created.
const REMOVALS_MAX: u32 = 100;

/// Removes a folder in which other threads may be creating files. It is renamed first, so that only files whose
/// creation had begun still arrive. The removal is repeated if the folder was not empty. Where open files keep a
/// system from renaming it, it is removed under its own name.
fn remove_folder(path: &Path) -> std::io::Result<()> {
    let aside = path.with_extension(&REMOVED_SUFFIX[1..]);
    let folder = if fs::rename(path, &aside).is_ok() { &aside } else { path };
    let is_filled = |error: &std::io::Error| error.kind() == std::io::ErrorKind::DirectoryNotEmpty;
    for _ in 1..REMOVALS_MAX {
        match fs::remove_dir_all(folder) {
            Err(error) if is_filled(&error) => {}
            outcome => return outcome,
        }
    }
    fs::remove_dir_all(folder)
}

/// Temporary path that is listed, and locked, for the lifetime of this value.
#[derive(Debug)]
struct Unfinished {
    path: PathBuf,
    /// Lock that tells other processes that this one is writing there.
    _lock: Option<File>,
}

impl Unfinished {
    /// Creates a temporary file or folder in `folder`, and lists it in one step, so that it never exists unlisted.
    /// First, leftovers of killed processes in `folder` are removed.
    fn begin<T: AsRef<Path>>(folder: &Path, create: impl Fn() -> std::io::Result<T>) -> std::io::Result<(T, Self)> {
        remove_abandoned(folder);
        let mut unfinished = unfinished();
        loop {
            let temporary = create()?;
            let path = temporary.as_ref().to_owned();
            // Another process may have removed it as abandoned before it was locked. Some file systems have no locks.
            let (is_taken, lock) = match File::open(&path) {
                Err(error) => (error.kind() == std::io::ErrorKind::NotFound, None),
                Ok(file) => match file.try_lock() {
                    Ok(()) => (!path.exists(), Some(file)),
                    Err(error) => (matches!(error, TryLockError::WouldBlock), None),
                },
            };
            if is_taken {
                continue;
            }
            unfinished.insert(path.clone());
            return Ok((temporary, Self { path, _lock: lock }));
        }
    }

    fn list(unfinished: &mut BTreeSet<PathBuf>, path: &Path) -> Self {
        unfinished.insert(path.to_owned());
        Self { path: path.to_owned(), _lock: None }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        unfinished().remove(&self.path);
    }
}

/// Folders that were searched for leftovers of killed processes.
static SEARCHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes temporary files and folders of dead processes, which no process has locked. Each folder is searched once.
fn remove_abandoned(folder: &Path) {
    if !SEARCHED.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned()) {
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| is_temporary(&entry.file_name().to_string_lossy())) {
        let path = entry.path();
        // Opening a pipe would wait for its other end, and a link points elsewhere.
        let Ok(kind) = entry.file_type().map(|kind| (kind.is_file(), kind.is_dir())) else { continue };
        if kind == (false, false) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        if file.try_lock().is_err() {
            continue;
        }
        // A path that cannot be removed belongs to another user.
        let _ = if kind.1 { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}

const TEMPORARY_PREFIX: &str = ".girih-";
const TEMPORARY_SUFFIX: &str = ".tmp";
const REMOVED_SUFFIX: &str = ".removed";
/// Number of random letters and digits of a temporary name.
const RANDOM_LENGTH: usize = 12;

/// Whether a name is one that [`builder`] or [`remove_folder`] gives.
fn is_temporary(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(TEMPORARY_PREFIX) else { return false };
    let random = rest.strip_suffix(TEMPORARY_SUFFIX).or_else(|| rest.strip_suffix(REMOVED_SUFFIX));
    random
        .is_some_and(|random| random.len() == RANDOM_LENGTH && random.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Builder of temporary names: hidden, and recognisable when a crash leaves one behind. `mode` is the usual mode
/// before the umask; the default mode of temporary files admits only the owner.
fn builder(mode: u32) -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(TEMPORARY_PREFIX).suffix(TEMPORARY_SUFFIX).rand_bytes(RANDOM_LENGTH);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    builder
}

/// Target of a link, so that output replaces the target; any other path is returned unchanged.
fn real_path(path: &Path) -> std::io::Result<PathBuf> {
    if path.is_symlink() && path.exists() { fs::canonicalize(path) } else { Ok(path.to_owned()) }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn is_empty(folder: &Path) -> std::io::Result<bool> {
    Ok(fs::read_dir(folder)?.next().is_none())
}

/// Makes renames inside `folder` durable; only Unix can open a folder to flush it.
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporaries_of_killed_processes_are_removed_and_others_stay() {
        let work = tempfile::tempdir().unwrap();
        let named = |name: &str| work.path().join(name);
        fs::write(named(".girih-0123456789ab.tmp"), "left").unwrap();
        fs::create_dir(named(".girih-abcdefabcdef.removed")).unwrap();
        fs::write(named(".girih-abcdefabcdef.removed").join("a"), "left").unwrap();
        let others = [".girih-features.codes.tmp", ".girih-0123456789a.tmp", "girih-0123456789ab.tmp", "data.npy"];
        others.iter().for_each(|name| fs::write(named(name), "not ours to remove").unwrap());
        let writing = builder(0o666).tempfile_in(work.path()).unwrap();
        writing.as_file().try_lock().unwrap();
        let linked = named(".girih-llllllllllll.tmp");
        #[cfg(unix)]
        std::os::unix::fs::symlink(named("data.npy"), &linked).unwrap();
        write_file(&named("new"), |out| Ok(out.write_all(b"new")?)).unwrap();
        let names: BTreeSet<_> = fs::read_dir(work.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        let mut expected: BTreeSet<_> = others.iter().map(std::ffi::OsString::from).collect();
        expected.extend(["new".into(), writing.path().file_name().unwrap().to_owned()]);
        if cfg!(unix) {
            expected.insert(linked.file_name().unwrap().to_owned());
        }
        assert_eq!(names, expected);
    }

    /// Simulates a signal while a graph is written, array by array.
    #[test]
    fn a_folder_that_others_fill_is_removed() {
        const N_FILES: u32 = 100_000;
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join(".girih-folder.tmp");
        let create = |i: &u32| File::create(folder.join(i.to_string())).is_ok();
        let fill = || (0..N_FILES).take_while(create).count() as u32;
        for _ in 0..20 {
            fs::create_dir(&folder).unwrap();
            std::thread::scope(|scope| {
                let filler = scope.spawn(fill);
                while is_empty(&folder).unwrap() {}
                remove_folder(&folder).unwrap();
                assert!(filler.join().unwrap() < N_FILES, "it ended before the folder was removed");
            });
            assert!(is_empty(work.path()).unwrap());
        }
    }
}
