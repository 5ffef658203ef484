//! Output that appears whole or not at all: written beside its place, flushed to disk, renamed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, TempDir};

use crate::FormatError;

/// Large enough that small writes of numbers cost little.
const WRITE_BUFFER: usize = 1 << 18;

/// Writes a file through `write`; whatever stood at `path`, or where that leads as a link, stays until the new file is
/// complete and on disk.
///
/// # Errors
/// When there is something that is no regular file, the file cannot be written, or with the error of `write`; `path` is
/// then as it was.
pub fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let at = |e| FormatError::io(e).at(path);
    let real = &real_path(path).map_err(at)?;
    if real.exists() && !real.is_file() {
        return Err(FormatError::invalid("exists and is no regular file; choose another name").at(path));
    }
    // The kind alone: the message would name the temporary file, which nobody asked for.
    let create = || builder(0o666).tempfile_in(parent(real));
    let (temporary, _unfinished) = Unfinished::begin(create).map_err(|e| at(e.kind().into()))?;
    let mut out = BufWriter::with_capacity(WRITE_BUFFER, temporary.as_file().try_clone().map_err(at)?);
    write(&mut out).map_err(|e| e.at(path))?;
    out.flush().map_err(at)?;
    temporary.as_file().sync_all().map_err(at)?;
    temporary.persist(real).map_err(|e| at(e.error))?;
    sync_folder(parent(real)).map_err(at)
}

/// A folder being filled beside its place; [`NewFolder::commit`] moves it there, dropping it removes it.
#[derive(Debug)]
pub struct NewFolder {
    target: PathBuf,
    temporary: TempDir,
    _unfinished: Unfinished,
}

impl NewFolder {
    /// Starts a folder that will stand at `target`. What is there may be replaced when it does not exist, is an
    /// empty folder, or is a folder for which `may_replace` holds.
    ///
    /// # Errors
    /// When something else is at `target`, or its parent cannot be written.
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
        let (temporary, unfinished) = Unfinished::begin(create).map_err(|e| at(e.kind().into()))?;
        Ok(Self { target, temporary, _unfinished: unfinished })
    }

    /// Where to write meanwhile.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// Where the folder will stand.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Flushes the folder and moves it to its place. A folder that it replaces is renamed first and removed last: a
    /// crash between leaves one of the two complete, at worst under its temporary name.
    ///
    /// # Errors
    /// When the folder cannot be moved; the old one is then put back, or stays under a name that the error tells.
    pub fn commit(self) -> Result<(), FormatError> {
        let at = |e| FormatError::io(e).at(&self.target);
        sync_folder(self.temporary.path()).map_err(at)?;
        let old = {
            // Whoever removes what is unfinished has done so before, or finds it finished.
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

    /// Moves the folder to its place; the old one, which is removed when it is dropped.
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

/// What is being written beside its place by any thread of the process.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn unfinished() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // A set of paths is whole whenever a thread panics.
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what [`write_file`] and [`NewFolder`] are writing, and calls `end`, which is to end the process: whatever
/// would begin or finish meanwhile waits. What is complete stays.
pub fn remove_unfinished(end: impl FnOnce()) {
    let unfinished = unfinished();
    for path in unfinished.iter() {
        // Whatever cannot be removed lies there as after a crash.
        let _ = if path.is_dir() { remove_folder(path) } else { fs::remove_file(path) };
    }
    end();
}

/// How often a folder is emptied that files still come to.
const REMOVALS_MAX: u32 = 100;

/// Removes a folder in which other threads may be creating files. It gets another name first, under which nobody looks
/// for it: only files whose creation had begun still come to it, and are removed when it was not empty. Where open
/// files keep a system from renaming it, it is removed as it is.
fn remove_folder(path: &Path) -> std::io::Result<()> {
    let aside = path.with_extension("removed");
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

/// A temporary path that is listed as long as this lives.
#[derive(Debug)]
struct Unfinished(PathBuf);

impl Unfinished {
    /// Creates something temporary and lists it, so that there is no moment at which it is there and not listed.
    fn begin<T: AsRef<Path>>(create: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<(T, Self)> {
        let mut unfinished = unfinished();
        let temporary = create()?;
        let listed = Self::list(&mut unfinished, temporary.as_ref());
        Ok((temporary, listed))
    }

    fn list(unfinished: &mut BTreeSet<PathBuf>, path: &Path) -> Self {
        unfinished.insert(path.to_owned());
        Self(path.to_owned())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        unfinished().remove(&self.0);
    }
}

/// Temporary names: hidden, and recognisable when a crash leaves one behind. `mode` is what any program would ask for,
/// less the umask; the default of temporary files is for their owner alone.
fn builder(mode: u32) -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".girih-").suffix(".tmp");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    builder
}

/// Where a link leads, so that what is written comes to lie there; any other path as it is.
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

    /// As when a signal comes while a graph is written, array by array.
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
