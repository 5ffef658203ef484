//! NVIDIA's driver: its version, the version it must have, and explanations of its errors.

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
        Err(Kind::OldDriver { driver: self.clone(), needed, whose: whose.to_owned(), release }.into())
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

/// Explanation of a driver error and its remedy; only its name where that suffices.
pub(crate) fn explain(code: CUresult) -> String {
    use CUresult as C;
    let what = match code {
        C::CUDA_ERROR_NO_DEVICE => return no_device(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref()),
        C::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "the driver's library and its kernel module are of different versions; restart the machine"
        }
        C::CUDA_ERROR_STUB_LIBRARY => {
            "the loader finds the toolkit's stub instead of the driver's library; take `stubs` out of LD_LIBRARY_PATH"
        }
        C::CUDA_ERROR_SYSTEM_NOT_READY => "the system is not ready; check that nvidia-fabricmanager runs",
        C::CUDA_ERROR_DEVICE_UNAVAILABLE => "another process has the GPU to itself; wait for it, or use another GPU",
        C::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "the driver is older than the compiler of kernels (libnvrtc); update the driver, or install an older libnvrtc"
        }
        C::CUDA_ERROR_OUT_OF_MEMORY => {
            "the GPU's memory is full; --precision bf16, a smaller --hidden or --device cpu may help"
        }
        C::CUDA_ERROR_ECC_UNCORRECTABLE => {
            "the GPU's memory failed and its contents are lost; look at `nvidia-smi -q -d ECC`, and have the GPU reset \
             before it is used again"
        }
        C::CUDA_ERROR_NVLINK_UNCORRECTABLE => {
            "the link between GPUs failed and its data are lost; look at `nvidia-smi nvlink -e`, and have the GPUs \
             reset before they are used again"
        }
        C::CUDA_ERROR_LAUNCH_TIMEOUT => {
            "the display of the GPU stopped a kernel that took too long; use a GPU without a display, or a smaller graph"
        }
        C::CUDA_ERROR_ILLEGAL_ADDRESS
        | C::CUDA_ERROR_MISALIGNED_ADDRESS
        | C::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | C::CUDA_ERROR_INVALID_PC
        | C::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | C::CUDA_ERROR_HARDWARE_STACK_ERROR
        | C::CUDA_ERROR_ASSERT
        | C::CUDA_ERROR_LAUNCH_FAILED => {
            "a kernel of this operation, or of one shortly before it, failed, and this process cannot use the GPU any more; \
             start again, with --device cpu if it happens again, and report it as an error of girih"
        }
        _ => return format!("{code:?}"),
    };
    format!("{what} ({code:?})")
}

/// Text of [`explain`] where there is no device; `visible` is the value of `CUDA_VISIBLE_DEVICES`.
fn no_device(visible: Option<&str>) -> String {
    let what = match visible {
        Some(visible) => format!("no NVIDIA GPU is visible: CUDA_VISIBLE_DEVICES is `{visible}`"),
        None => "there is no NVIDIA GPU, or this user or container may not use it; `nvidia-smi` lists what there is"
            .to_owned(),
    };
    format!("{what} ({:?})", CUresult::CUDA_ERROR_NO_DEVICE)
}

#[cfg(test)]
mod tests {
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
    fn errors_keep_the_name_that_the_web_knows() {
        use CUresult as C;
        for code in [C::CUDA_ERROR_ILLEGAL_ADDRESS, C::CUDA_ERROR_NO_DEVICE, C::CUDA_ERROR_INVALID_VALUE] {
            assert!(explain(code).contains(&format!("{code:?}")));
        }
    }

    #[test]
    fn errors_say_what_happened_and_what_helps() {
        use CUresult as C;
        let expected = [
            (
                C::CUDA_ERROR_DEVICE_UNAVAILABLE,
                "another process has the GPU to itself; wait for it, or use another GPU",
            ),
            (
                C::CUDA_ERROR_OUT_OF_MEMORY,
                "the GPU's memory is full; --precision bf16, a smaller --hidden or --device cpu may help",
            ),
            (
                C::CUDA_ERROR_ECC_UNCORRECTABLE,
                "the GPU's memory failed and its contents are lost; look at `nvidia-smi -q -d ECC`, and have the GPU reset \
                 before it is used again",
            ),
            (
                C::CUDA_ERROR_NVLINK_UNCORRECTABLE,
                "the link between GPUs failed and its data are lost; look at `nvidia-smi nvlink -e`, and have the GPUs reset \
                 before they are used again",
            ),
            (
                C::CUDA_ERROR_LAUNCH_TIMEOUT,
                "the display of the GPU stopped a kernel that took too long; use a GPU without a display, or a smaller graph",
            ),
            (
                C::CUDA_ERROR_ILLEGAL_ADDRESS,
                "a kernel of this operation, or of one shortly before it, failed, and this process cannot use the GPU any \
                 more; start again, with --device cpu if it happens again, and report it as an error of girih",
            ),
        ];
        for (code, what) in expected {
            assert_eq!(explain(code), format!("{what} ({code:?})"));
        }
        assert_eq!(
            no_device(Some("7")),
            "no NVIDIA GPU is visible: CUDA_VISIBLE_DEVICES is `7` (CUDA_ERROR_NO_DEVICE)"
        );
        assert_eq!(
            no_device(None),
            "there is no NVIDIA GPU, or this user or container may not use it; `nvidia-smi` lists what there is \
             (CUDA_ERROR_NO_DEVICE)"
        );
    }
}
