//! Search for CUDA's libraries: first by the system's loader, then in the folders that installers and Python
//! environments use.
//!
//! cudarc asks the loader for names like `libnvrtc.so.13`. The loader answers with a library of that name which the
//! process has loaded already, from any path. So libraries that the loader does not find by itself are loaded by
//! their path first, and never unloaded.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use libloading::Library as Loaded;

use crate::error::{KernelError, Kind};

/// A library that is loaded at run time.
pub(crate) struct Library {
    /// File name by which the loader knows the library.
    pub(crate) file: &'static str,
    pub(crate) purpose: &'static str,
    remedy: &'static str,
    /// Alternative that works without the library.
    instead: &'static str,
    /// Prefixes of file names of libraries that it opens itself; the loader may not find these either.
    opens: &'static [&'static str],
    /// Folders besides the loader's; `*` matches anything.
    folders: fn(&Environment<'_>) -> Vec<PathBuf>,
    /// Whether cudarc finds the library.
    present: unsafe fn() -> bool,
    /// Lets cudarc load the library and keep it; panics if the library is not present.
    keep: unsafe fn() -> &'static Loaded,
}

/// NVIDIA's driver.
pub(crate) const DRIVER: Library = Library {
    file: "libcuda.so.1",
    purpose: "NVIDIA's driver",
    remedy: "install NVIDIA's driver (in a container: start it with the host's, as `docker run --gpus all` does)",
    instead: CPU,
    opens: &[],
    folders: |_| DRIVER_FOLDERS.map(PathBuf::from).to_vec(),
    present: cudarc::driver::sys::is_culib_present,
    keep: cudarc::driver::sys::culib,
};

/// Run-time compiler of kernels (NVRTC).
pub(crate) const COMPILER: Library = Library {
    file: "libnvrtc.so.13",
    purpose: "CUDA's compiler of kernels",
    remedy: "install CUDA 13, or `pip install 'nvidia-cuda-nvrtc>=13,<14'` in an active virtual environment, or set \
             LD_LIBRARY_PATH to where it is",
    instead: CPU,
    opens: &["libnvrtc-builtins.so.13"],
    folders: toolkit_folders,
    present: cudarc::nvrtc::sys::is_culib_present,
    keep: cudarc::nvrtc::sys::culib,
};

/// Dense products (cuBLAS).
pub(crate) const BLAS: Library = Library {
    file: "libcublas.so.13",
    purpose: "CUDA's dense products",
    remedy: "install CUDA 13, or `pip install 'nvidia-cublas>=13,<14'` in an active virtual environment, or set \
             LD_LIBRARY_PATH to where it is",
    instead: CPU,
    opens: &["libcublasLt.so.13"],
    folders: toolkit_folders,
    present: cudarc::cublas::sys::is_culib_present,
    keep: cudarc::cublas::sys::culib,
};

/// Collectives and messages between GPUs (NCCL).
pub(crate) const NCCL: Library = Library {
    file: "libnccl.so.2",
    purpose: "NCCL, for several GPUs",
    remedy: "install NCCL 2, or `pip install nvidia-nccl-cu13` in an active virtual environment, or set LD_LIBRARY_PATH to \
             where it is",
    instead: "one GPU",
    opens: &[],
    folders: toolkit_folders,
    present: nccl_is_present,
    keep: nccl,
};

/// Profiling library that records device activity (CUPTI).
pub(crate) const PROFILER: Library = Library {
    file: "libcupti.so.13",
    purpose: "CUDA's profiling library, for timelines",
    remedy: "install CUDA 13 with its profiling tools, or `pip install 'nvidia-cuda-cupti>=13,<14'` in an active virtual environment, or \
             set LD_LIBRARY_PATH to where it is",
    instead: "no --timeline",
    opens: &[],
    folders: profiler_folders,
    present: cudarc::cupti::sys::is_culib_present,
    keep: cudarc::cupti::sys::culib,
};

/// Folders where the Windows subsystem for Linux and Kubernetes put the driver.
const DRIVER_FOLDERS: [&str; 2] = ["/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"];

/// Option that needs no library of CUDA.
const CPU: &str = "--device cpu";

/// Lookup of an environment variable.
type Environment<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

impl Library {
    /// File name by which the loader finds the library once it is loaded.
    pub(crate) fn file(&self) -> &'static str {
        self.file
    }

    /// Loads the library so that cudarc finds it. Returns its path, if the system tells.
    ///
    /// # Errors
    /// When it is in no folder, or cannot be loaded from there.
    pub(crate) fn load(&self) -> Result<Option<PathBuf>, KernelError> {
        self.load_given(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn load_given(&self, environment: &Environment<'_>) -> Result<Option<PathBuf>, KernelError> {
        // SAFETY: this looks for the library, whose initialisers need nothing of the process, and calls nothing in
        // it.
        let present = || unsafe { (self.present)() };
        if !present() {
            let places = (self.folders)(environment);
            let refused = self.load_from(&places);
            if !present() {
                return Err(self.missing(places, refused));
            }
        }
        // SAFETY: as above.
        let _ = unsafe { (self.keep)() };
        Ok(loaded_from(self.file))
    }

    /// Error of a library that is in none of `places`.
    fn missing(&self, places: Vec<PathBuf>, refused: Option<String>) -> KernelError {
        let Self { file, purpose, remedy, instead, .. } = *self;
        Kind::Missing { file, purpose, places, refused, remedy, instead }.into()
    }

    /// Loads the library from the first folder that has it. Returns the loader's message if none could be loaded.
    fn load_from(&self, patterns: &[PathBuf]) -> Option<String> {
        let mut refused = None;
        for folder in patterns.iter().flat_map(|pattern| expand(pattern)) {
            let path = folder.join(self.file);
            if !path.exists() {
                continue;
            }
            for needed in self.opens.iter().flat_map(|prefix| files_in(&folder, prefix)) {
                // If a failure here matters, the library itself does not load.
                let _ = keep_loaded(&needed);
            }
            match keep_loaded(&path) {
                Ok(()) => return None,
                Err(message) => refused = Some(message),
            }
        }
        refused
    }
}

/// Whether the loader finds NCCL; cudarc would look for file names that NVIDIA does not use.
fn nccl_is_present() -> bool {
    // SAFETY: its initialisers need nothing of the process, and nothing is called.
    unsafe { Loaded::new(NCCL.file) }.is_ok()
}

/// Loads NCCL for the rest of the process's life.
fn nccl() -> &'static Loaded {
    // SAFETY: as above.
    Box::leak(Box::new(unsafe { Loaded::new(NCCL.file) }.expect("NCCL is present")))
}

/// Version of the loaded NCCL, like `2.27.7`; `None` if the library does not tell.
pub(crate) fn nccl_version() -> Option<String> {
    type GetVersion = unsafe extern "C" fn(*mut i32) -> i32;
    // SAFETY: as above.
    let library = unsafe { Loaded::new(NCCL.file) }.ok()?;
    let mut code = 0;
    // SAFETY: the function has this type in all versions since 2.4, and writes the number that it is given.
    let status = unsafe { library.get::<GetVersion>(b"ncclGetVersion\0").ok()?(&raw mut code) };
    (status == 0).then(|| format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100))
}

/// Loads a library for the rest of the process's life.
fn keep_loaded(path: &Path) -> Result<(), String> {
    // SAFETY: these are CUDA's libraries, whose initialisers need nothing of the process; nothing is called here.
    let loaded = unsafe { Loaded::new(path) }.map_err(|error| format!("{}: {error}", path.display()))?;
    std::mem::forget(loaded);
    Ok(())
}

/// Folders of [`toolkit_folders`], and those of the profiling library.
fn profiler_folders(environment: &Environment<'_>) -> Vec<PathBuf> {
    let mut folders = toolkit_folders(environment);
    let own: Vec<PathBuf> = folders
        .iter()
        .filter(|folder| folder.ends_with("lib64"))
        .map(|folder| folder.with_file_name("extras").join("CUPTI/lib64"))
        .collect();
    folders.extend(own);
    folders
}

/// Folders where installers of CUDA and the active Python environment put its libraries.
fn toolkit_folders(environment: &Environment<'_>) -> Vec<PathBuf> {
    let roots = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(|name| environment(name).map(PathBuf::from));
    let roots = roots.chain([PathBuf::from("/usr/local/cuda")]);
    let arch = std::env::consts::ARCH;
    let mut folders: Vec<PathBuf> =
        roots.flat_map(|root| [root.join("lib64"), root.join(format!("targets/{arch}-linux/lib"))]).collect();
    let python = environment("VIRTUAL_ENV").map(PathBuf::from);
    folders.extend(python.map(|root| root.join("lib/python*/site-packages/nvidia/*/lib")));
    let mut seen = BTreeSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

/// Folders that match a pattern; a component may end in `*`.
fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::new()];
    for component in pattern.components() {
        let prefix = match component {
            Component::Normal(name) => name.to_str().and_then(|name| name.strip_suffix('*')),
            _ => None,
        };
        folders = match prefix {
            None => folders.into_iter().map(|folder| folder.join(component)).collect(),
            Some(prefix) => folders.iter().flat_map(|folder| files_in(folder, prefix)).collect(),
        };
    }
    folders
}

/// Paths in a folder whose names begin with `prefix`, sorted.
fn files_in(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)));
    let mut paths: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// File that a loaded library came from. For `libx.so.13`, any version of `libx.so` counts.
fn loaded_from(file: &str) -> Option<PathBuf> {
    let stem = file.find(".so").map_or(file, |at| &file[..at + ".so".len()]);
    file_among(&fs::read_to_string("/proc/self/maps").ok()?, stem)
}

/// First file in a process's memory map whose name begins with `prefix`.
fn file_among(maps: &str, prefix: &str) -> Option<PathBuf> {
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let named = |path: &&Path| path.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.starts_with(prefix));
    paths.filter(named).map(Path::to_owned).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_those_of_the_environment() {
        let environment = |name: &str| match name {
            "CUDA_HOME" | "CUDA_PATH" => Some("/sdk/cuda".into()),
            "VIRTUAL_ENV" => Some("/venv".into()),
            _ => None,
        };
        let folders = toolkit_folders(&environment);
        let count = |folder: &str| folders.iter().filter(|found| **found == Path::new(folder)).count();
        assert_eq!(count("/sdk/cuda/lib64"), 1, "what two variables name is searched once");
        assert_eq!(count("/usr/local/cuda/lib64"), 1);
        assert_eq!(count("/venv/lib/python*/site-packages/nvidia/*/lib"), 1);
        assert_eq!(toolkit_folders(&|_| None).len(), 2, "the usual folder is searched in any case");
        assert!(profiler_folders(&environment).contains(&"/sdk/cuda/extras/CUPTI/lib64".into()));
    }

    #[test]
    fn stars_stand_for_anything() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["python3.12/nvidia/cublas/lib", "python3.12/nvidia/cu13/lib", "other/nvidia/x/lib"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let found = expand(&root.path().join("python*/nvidia/*/lib"));
        let expected = ["python3.12/nvidia/cu13/lib", "python3.12/nvidia/cublas/lib"];
        assert_eq!(found, expected.map(|folder| root.path().join(folder)));
        assert!(expand(&root.path().join("none*/lib")).is_empty());
    }

    #[test]
    fn libraries_are_found_in_the_map_of_memory() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 12   /sdk/cuda lib/libcublasLt.so.13.0.0\n\
                    7f02-7f03 r-xp 00000000 08:01 13   /sdk/cuda lib/libcublas.so.13.0.0\n7f04-7f05 rw-p 0 0 0\n";
        assert_eq!(file_among(maps, "libcublas.so"), Some("/sdk/cuda lib/libcublas.so.13.0.0".into()));
        assert_eq!(file_among(maps, "libnvrtc.so"), None);
    }

    #[test]
    fn a_library_that_is_not_there_is_named_with_a_remedy() {
        assert_eq!(
            NCCL.missing(vec!["/sdk/lib".into()], None).to_string(),
            "NCCL, for several GPUs (libnccl.so.2) was not found: the system's loader does not know it, nor is it in /sdk/lib; \
             install NCCL 2, or `pip install nvidia-nccl-cu13` in an active virtual environment, or set LD_LIBRARY_PATH to \
             where it is, or use one GPU"
        );
    }

    #[test]
    fn a_file_that_is_no_library_is_named_with_what_the_loader_says() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(BLAS.file), "not a library").unwrap();
        let said = BLAS.load_from(&[root.path().to_owned()]).expect("the loader refuses it");
        assert!(said.contains(root.path().to_str().unwrap()), "{said}");
    }
}
