//! [`KernelError`]: errors of opening and using a device, and explanations of the driver's errors.

use std::path::{Path, PathBuf};

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// Reason why a device could not be opened, or the failure that it reported.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct KernelError(#[from] pub(crate) Kind);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Kind {
    #[error(
        "{purpose} ({file}) was not found: the system's loader does not know it, nor is it in {}{}; {remedy}, or use \
         {instead}",
        listed(places),
        noted(refused.as_deref())
    )]
    Missing {
        file: &'static str,
        purpose: &'static str,
        places: Vec<PathBuf>,
        /// Message of the loader about a file that it found and refused.
        refused: Option<String>,
        remedy: &'static str,
        /// Alternative that works without the library.
        instead: &'static str,
    },
    #[error(
        "NVIDIA's driver is too old: it is {driver}, but the code of {whose} needs one for CUDA {needed}{release}; update the \
         driver, or use --device cpu"
    )]
    OldDriver { driver: String, needed: String, whose: String, release: String },
    #[error("there is no CUDA device {ordinal}: {}; `girih doctor` lists them", there_are(*count, visible.as_deref()))]
    NoDevice { ordinal: usize, count: usize, visible: Option<String> },
    #[error(
        "{gpu} has compute capability {}.{}, and girih needs 8.0 (Ampere) or newer: use another GPU, or --device cpu",
        capability.0,
        capability.1
    )]
    OldGpu { gpu: String, capability: (i32, i32) },
    #[error(
        "{gpu} has compute capability {}.{}, which lacks the instructions of {block_kernel}; multiply blocks by {instead}",
        capability.0,
        capability.1
    )]
    BlockKernel { block_kernel: String, gpu: String, capability: (i32, i32), instead: String },
    #[error("{what}: {}", explain(source.0))]
    Driver { what: &'static str, source: DriverError },
    #[error("the kernels of {source_name} do not compile for {arch}:\n{log}")]
    Compile { source_name: &'static str, arch: String, log: String },
    #[error("cuBLAS: {0}")]
    Blas(String),
    #[error(
        "CUPTI does not record: {0}; another profiler may be running, or the system may forbid it: train without --timeline"
    )]
    Profiler(String),
}

impl KernelError {
    pub(crate) fn driver(what: &'static str) -> impl FnOnce(DriverError) -> Self {
        move |source| Kind::Driver { what, source }.into()
    }
}

fn listed(places: &[PathBuf]) -> String {
    places.iter().map(|place: &PathBuf| Path::display(place).to_string()).collect::<Vec<_>>().join(", ")
}

fn noted(refused: Option<&str>) -> String {
    refused.map_or_else(String::new, |refused| format!(" (the loader refuses {refused})"))
}

/// Text that lists the available devices, and the variable that may hide others.
fn there_are(count: usize, visible: Option<&str>) -> String {
    let devices = match count {
        0 => "there is none".to_owned(),
        1 => "the only one is cuda:0".to_owned(),
        _ => format!("there are cuda:0 to cuda:{}", count - 1),
    };
    match visible {
        Some(visible) => format!("{devices}, as CUDA_VISIBLE_DEVICES is `{visible}`"),
        None => devices,
    }
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

    #[test]
    fn messages_name_cause_and_remedy() {
        let missing = |file| Kind::Missing {
            file,
            purpose: "a library",
            places: vec!["/a".into(), "/b".into()],
            refused: Some("/a/x: too short".to_owned()),
            remedy: "install it",
            instead: "--device cpu",
        };
        let no_device =
            |count, visible: Option<&str>| Kind::NoDevice { ordinal: 7, count, visible: visible.map(str::to_owned) };
        let old_gpu = Kind::OldGpu { gpu: "Tesla T4".to_owned(), capability: (7, 5) };
        let block_kernel = Kind::BlockKernel {
            block_kernel: "wgmma".to_owned(),
            gpu: "A100".to_owned(),
            capability: (8, 0),
            instead: "mma".to_owned(),
        };
        let cases = [
            (
                missing("libx.so.1"),
                "a library (libx.so.1) was not found: the system's loader does not know it, nor is it in /a, /b (the loader \
                 refuses /a/x: too short); install it, or use --device cpu",
            ),
            (no_device(1, None), "there is no CUDA device 7: the only one is cuda:0; `girih doctor` lists them"),
            (
                no_device(3, Some("0,1,2")),
                "there is no CUDA device 7: there are cuda:0 to cuda:2, as CUDA_VISIBLE_DEVICES is `0,1,2`; `girih doctor` \
                 lists them",
            ),
            (no_device(0, None), "there is no CUDA device 7: there is none; `girih doctor` lists them"),
            (
                old_gpu,
                "Tesla T4 has compute capability 7.5, and girih needs 8.0 (Ampere) or newer: use another GPU, or --device cpu",
            ),
            (
                block_kernel,
                "A100 has compute capability 8.0, which lacks the instructions of wgmma; multiply blocks by mma",
            ),
            (
                Kind::Profiler("busy".to_owned()),
                "CUPTI does not record: busy; another profiler may be running, or the system may forbid it: train without \
                 --timeline",
            ),
        ];
        for (kind, message) in cases {
            assert_eq!(KernelError::from(kind).to_string(), message);
        }
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
