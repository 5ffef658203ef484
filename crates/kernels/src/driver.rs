//! NVIDIA's driver: its version, and the version it must have.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use cudarc::driver::sys::{self, CUresult};

use crate::error::{KernelError, Kind};
use crate::libraries;

/// Oldest driver that is accepted: the first calls use functions of this version.
const OLDEST: CudaVersion = CudaVersion { major: 13, minor: 0 };

/// First Linux release of the [`OLDEST`] driver.
const OLDEST_RELEASE: &str = "580.65.06";

/// Version of CUDA, as drivers and compilers state it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    /// Major number; a change requires programs to be rebuilt.
    pub major: i32,
    /// Minor number; it changes the instructions that code may contain.
    pub minor: i32,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Driver of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Release of the driver, like `580.65.06`, where the system tells.
    pub release: Option<String>,
    /// Newest CUDA version whose code the driver accepts.
    pub cuda: CudaVersion,
    /// Path of its library, where the system tells.
    pub path: Option<PathBuf>,
}

impl Driver {
    /// Loads the driver and initialises it.
    ///
    /// # Errors
    /// When there is none, it is too old for any kernel, or it does not start.
    pub fn load() -> Result<Self, KernelError> {
        let path = libraries::DRIVER.load()?;
        let mut version = 0;
        // SAFETY: the driver is loaded, the pointer is to a live number, and this call is allowed before
        // initialisation.
        let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) };
        asked.result().map_err(KernelError::driver("cannot ask the CUDA driver for its version"))?;
        let cuda = CudaVersion { major: version / 1000, minor: version % 1000 / 10 };
        let driver = Self { release: release(), cuda, path };
        driver.check(OLDEST, "girih")?;
        cudarc::driver::result::init().map_err(KernelError::driver("the CUDA driver does not start"))?;
        Ok(driver)
    }

    /// Fails if the driver is older than the version that the code of `whose` needs.
    ///
    /// # Errors
    /// When the driver is older than that.
    pub(crate) fn check(&self, needed: CudaVersion, whose: &str) -> Result<(), KernelError> {
        if self.cuda >= needed {
            return Ok(());
        }
        let release = if needed == OLDEST {
            format!(" ({OLDEST_RELEASE} or newer)")
        } else {
            " (`nvidia-smi` names what a driver is for)".to_owned()
        };
        let (driver, needed) = (self.to_string(), needed.to_string());
        Err(Kind::OldDriver { driver, needed, whose: whose.to_owned(), release }.into())
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(release) = &self.release {
            write!(f, "{release}, ")?;
        }
        write!(f, "for CUDA {} and older", self.cuda)
    }
}

impl KernelError {
    /// Whether there is no NVIDIA GPU at all, or no driver for one; users need not repair anything then.
    #[must_use]
    pub fn is_no_gpu(&self) -> bool {
        match &self.0 {
            Kind::Missing { file, .. } => *file == libraries::DRIVER.file,
            Kind::Driver { source, .. } => source.0 == CUresult::CUDA_ERROR_NO_DEVICE,
            Kind::NoDevice { count, .. } => *count == 0,
            _ => false,
        }
    }
}

/// Version of the driver's kernel module.
fn release() -> Option<String> {
    release_in(&fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// First word of numbers with dots between them, in a line like
/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06 …`.
fn release_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use cudarc::driver::DriverError;

    use super::*;

    fn driver(release: Option<&str>, major: i32, minor: i32) -> Driver {
        Driver { release: release.map(str::to_owned), cuda: CudaVersion { major, minor }, path: None }
    }

    #[test]
    fn the_release_is_the_kernel_modules() {
        let closed =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC 12.2.0\n";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n";
        assert_eq!(release_in(closed).as_deref(), Some("535.183.01"));
        assert_eq!(release_in(open).as_deref(), Some("580.65.06"));
        assert_eq!(release_in(""), None);
    }

    #[test]
    fn an_old_driver_is_named_with_both_versions() {
        let message = driver(Some("535.183.01"), 12, 2).check(OLDEST, "girih").unwrap_err().to_string();
        for part in ["535.183.01", "CUDA 12.2", "CUDA 13.0", OLDEST_RELEASE, "--device cpu"] {
            assert!(message.contains(part), "no {part}: {message}");
        }
        let newer = CudaVersion { major: 13, minor: 2 };
        let message = driver(None, 13, 0).check(newer, "libnvrtc 13.2").unwrap_err().to_string();
        for part in ["CUDA 13.0", "CUDA 13.2", "libnvrtc 13.2"] {
            assert!(message.contains(part), "no {part}: {message}");
        }
        assert!(driver(None, 13, 2).check(newer, "libnvrtc 13.2").is_ok());
        assert!(driver(None, 14, 0).check(newer, "libnvrtc 13.2").is_ok());
    }

    #[test]
    fn a_machine_without_gpus_is_not_a_broken_one() {
        let failed = |code| KernelError::from(Kind::Driver { what: "start", source: DriverError(code) });
        assert!(failed(CUresult::CUDA_ERROR_NO_DEVICE).is_no_gpu());
        assert!(!failed(CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH).is_no_gpu());
    }
}
