//! [`Survey`]: what there is of CUDA on this machine, piece by piece.

use std::path::PathBuf;

use crate::KernelError;
use crate::compile::compiler_version;
use crate::device::{check_capability, count, name_of, open_context};
use crate::driver::Driver;
use crate::libraries::{BLAS, COMPILER, Library, NCCL, PROFILER, nccl_version};

/// What was found, and why the rest was not. Where nothing is an error, a device can be opened.
#[derive(Debug)]
pub struct Survey {
    /// The driver.
    pub driver: Result<Driver, KernelError>,
    /// The libraries besides the driver.
    pub libraries: Vec<FoundLibrary>,
    /// The cards, by their numbers; none where the driver is an error.
    pub cards: Vec<Result<Card, KernelError>>,
}

/// A library that devices need, or several of them together.
#[derive(Debug)]
pub struct FoundLibrary {
    /// The name of its file.
    pub file: &'static str,
    /// What it is needed for.
    pub purpose: &'static str,
    /// Whether a single device cannot train without it.
    pub is_needed: bool,
    /// Its version, where it has one of its own, and where it is.
    pub found: Result<String, KernelError>,
}

/// A card.
#[derive(Debug)]
pub struct Card {
    /// Its number: that of `cuda:0` is 0.
    pub ordinal: usize,
    /// What it is called.
    pub name: String,
    /// Major and minor number of what it can compute.
    pub capability: (i32, i32),
    /// Bytes of memory: free, and in all.
    pub memory: (usize, usize),
    /// Why it cannot be used, if so.
    pub refused: Option<KernelError>,
}

impl Survey {
    /// Looks at this machine.
    #[must_use]
    pub fn here() -> Self {
        let compiler = COMPILER.load().map(|path| (compiler_version(), path));
        let driver = Driver::load().and_then(|driver| {
            if let Ok((version, _)) = &compiler {
                driver.check(*version, &format!("libnvrtc {version}"))?;
            }
            Ok(driver)
        });
        let cards = driver.as_ref().map_or_else(|_| Vec::new(), |_| cards());
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
        Self { driver, libraries, cards }
    }
}

fn cards() -> Vec<Result<Card, KernelError>> {
    match count() {
        Ok(count) => (0..count).map(card).collect(),
        Err(error) => vec![Err(error)],
    }
}

fn card(ordinal: usize) -> Result<Card, KernelError> {
    let context = open_context(ordinal)?;
    let asked = "cannot ask the CUDA device";
    let (name, capability) = (name_of(&context), context.compute_capability().map_err(KernelError::driver(asked))?);
    let memory = context.mem_get_info().map_err(KernelError::driver(asked))?;
    let refused = check_capability(&name, capability).err();
    Ok(Card { ordinal, name, capability, memory, refused })
}

fn shown(path: Option<PathBuf>) -> String {
    path.map_or_else(|| "found by the system's loader".to_owned(), |path| path.display().to_string())
}
