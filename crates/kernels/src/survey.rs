//! [`Survey`]: the parts of CUDA on this machine.

use std::path::PathBuf;

use crate::KernelError;
use crate::compile::compiler_version;
use crate::device::{check_capability, count, name_of, open_context};
use crate::driver::Driver;
use crate::libraries::{BLAS, COMPILER, Library, NCCL, PROFILER, nccl_version};

/// Found parts of CUDA, and the reasons why others are missing. A device can be opened if no part is an error.
#[derive(Debug)]
pub struct Survey {
    /// Driver of the machine.
    pub driver: Result<Driver, KernelError>,
    /// Libraries besides the driver.
    pub libraries: Vec<FoundLibrary>,
    /// GPUs by ordinal; empty if the driver is an error.
    pub gpus: Vec<Result<Gpu, KernelError>>,
}

/// Library that devices need, or that several devices need together.
#[derive(Debug)]
pub struct FoundLibrary {
    /// File name of the library.
    pub file: &'static str,
    /// Purpose of the library.
    pub purpose: &'static str,
    /// Whether a single device cannot train without it.
    pub is_needed: bool,
    /// Version, for libraries that have one of their own, and path.
    pub found: Result<String, KernelError>,
}

/// GPU of this machine.
#[derive(Debug)]
pub struct Gpu {
    /// Ordinal: 0 for `cuda:0`.
    pub ordinal: usize,
    /// Name of the GPU.
    pub name: String,
    /// Compute capability: major and minor number.
    pub capability: (i32, i32),
    /// Bytes of memory: free and total.
    pub memory: (usize, usize),
    /// Reason why the GPU cannot be used; `None` if it can.
    pub refused: Option<KernelError>,
}

impl Survey {
    /// Surveys this machine.
    #[must_use]
    pub fn here() -> Self {
        let compiler = COMPILER.load().map(|path| (compiler_version(), path));
        let driver = Driver::load().and_then(|driver| {
            if let Ok((version, _)) = &compiler {
                driver.check(*version, &format!("libnvrtc {version}"))?;
            }
            Ok(driver)
        });
        let gpus = driver.as_ref().map_or_else(|_| Vec::new(), |_| gpus());
        let found = |library: &Library, is_needed, found| {
            let Library { file, purpose, .. } = *library;
            FoundLibrary { file, purpose, is_needed, found }
        };
        let compiler = compiler.map(|(version, path)| format!("{version}, {}", shown(path)));
        let nccl = NCCL.load().map(|path| match nccl_version() {
            Some(version) => format!("{version}, {}", shown(path)),
            None => shown(path),
        });
        let libraries = vec![
            found(&COMPILER, true, compiler),
            found(&BLAS, true, BLAS.load().map(shown)),
            found(&NCCL, false, nccl),
            found(&PROFILER, false, PROFILER.load().map(shown)),
        ];
        Self { driver, libraries, gpus }
    }
}

fn gpus() -> Vec<Result<Gpu, KernelError>> {
    match count() {
        Ok(count) => (0..count).map(gpu).collect(),
        Err(error) => vec![Err(error)],
    }
}

fn gpu(ordinal: usize) -> Result<Gpu, KernelError> {
    let context = open_context(ordinal)?;
    let asked = "cannot ask the CUDA device";
    let (name, capability) = (name_of(&context), context.compute_capability().map_err(KernelError::driver(asked))?);
    let memory = context.mem_get_info().map_err(KernelError::driver(asked))?;
    let refused = check_capability(&name, capability).err();
    Ok(Gpu { ordinal, name, capability, memory, refused })
}

fn shown(path: Option<PathBuf>) -> String {
    path.map_or_else(|| "found by the system's loader".to_owned(), |path| path.display().to_string())
}
