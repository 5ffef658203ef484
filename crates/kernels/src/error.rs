//! [`KernelError`]: errors of opening and using a device.

use std::path::{Path, PathBuf};

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

use crate::driver::{CudaVersion, Driver, explain};
use crate::ops::BlockKernel;

/// Reason why a device could not be opened, or the failure that it reported.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct KernelError(#[from] Kind);

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
    OldDriver { driver: Driver, needed: CudaVersion, whose: String, release: String },
    #[error("there is no CUDA device {ordinal}: {}; `girih doctor` lists them", there_are(*count, visible.as_deref()))]
    NoDevice { ordinal: usize, count: usize, visible: Option<String> },
    #[error(
        "{card} has compute capability {}.{}, and girih needs 8.0 (Ampere) or newer: use another GPU, or --device cpu",
        capability.0,
        capability.1
    )]
    OldCard { card: String, capability: (i32, i32) },
    #[error(
        "{card} has compute capability {}.{}, which lacks the instructions of {block_kernel}; multiply blocks by {instead}",
        capability.0,
        capability.1
    )]
    BlockKernel { block_kernel: BlockKernel, card: String, capability: (i32, i32), instead: BlockKernel },
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

    /// Whether there is no NVIDIA GPU at all, or no driver for one; users need not repair anything then.
    #[must_use]
    pub fn is_no_card(&self) -> bool {
        match &self.0 {
            Kind::Missing { file, .. } => *file == crate::libraries::DRIVER.file,
            Kind::Driver { source, .. } => source.0 == CUresult::CUDA_ERROR_NO_DEVICE,
            Kind::NoDevice { count, .. } => *count == 0,
            _ => false,
        }
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
        let old_card = Kind::OldCard { card: "Tesla T4".to_owned(), capability: (7, 5) };
        let block_kernel = Kind::BlockKernel {
            block_kernel: BlockKernel::Wgmma,
            card: "A100".to_owned(),
            capability: (8, 0),
            instead: BlockKernel::Mma,
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
                old_card,
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
    fn a_machine_without_cards_is_not_a_broken_one() {
        let failed = |code| KernelError::from(Kind::Driver { what: "start", source: DriverError(code) });
        assert!(failed(CUresult::CUDA_ERROR_NO_DEVICE).is_no_card());
        assert!(!failed(CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH).is_no_card());
    }
}
