//! Backend that `--device` selects.

use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype};
use girih_kernels::{Cuda, KernelError, Tiling};

use super::device_memory::DeviceMemory;
use crate::args::{Device, DeviceArgs};
use crate::error::CliError;

/// Backend that is selected at run time. [`on_backend`] runs generic code on it.
pub enum Chosen {
    Cpu(Cpu),
    Cuda(Box<Cuda>),
}

/// Evaluates an expression with the selected backend.
macro_rules! on_backend {
    ($chosen:expr, $backend:ident => $work:expr) => {
        match $chosen {
            $crate::context::device::Chosen::Cpu($backend) => $work,
            $crate::context::device::Chosen::Cuda($backend) => {
                let $backend = &**$backend;
                $work
            }
        }
    };
}
pub(crate) use on_backend;

impl Chosen {
    /// Name of the backend in results.
    pub fn name(&self) -> String {
        on_backend!(self, backend => backend.name())
    }

    /// Memory that the computation must fit into. `None` for the CPU, whose memory the operating system extends.
    pub fn device_memory(&self) -> Result<Option<DeviceMemory>, CliError> {
        let Self::Cuda(cuda) = self else { return Ok(None) };
        DeviceMemory::of(cuda).map(Some)
    }

    /// Peak bytes allocated on a device with memory of its own; zero for the CPU.
    pub fn peak_bytes(&self) -> Result<u64, CliError> {
        let Self::Cuda(cuda) = self else { return Ok(0) };
        peak_bytes_of(std::slice::from_ref(&**cuda))
    }
}

/// Peak bytes allocated on any one of the GPUs.
pub fn peak_bytes_of(gpus: &[Cuda]) -> Result<u64, CliError> {
    let mut peak = 0;
    for cuda in gpus {
        peak = cuda.device().peak_bytes().map_err(|error| CliError::Other(error.to_string()))?.max(peak);
    }
    Ok(peak)
}

/// Opens the backend that the flags select; `auto` takes the first CUDA device, if there is one. `precision` is the
/// storage type of gathered rows on a CPU, and of all rows of nodes on a GPU.
pub fn choose(args: &DeviceArgs, precision: Dtype) -> Result<Chosen, CliError> {
    let blocks = args.density_threshold;
    let cpu = || match blocks {
        Tiling::Auto => Ok(Chosen::Cpu(Cpu::new().gathering(precision))),
        _ => {
            Err(CliError::Other("--density-threshold is for CUDA devices: leave it out, or take --device cuda".into()))
        }
    };
    let cuda = |ordinal| open(ordinal, args, precision).map(|cuda| Chosen::Cuda(Box::new(cuda)));
    match args.device {
        Device::Cpu => cpu(),
        Device::Cuda(ordinal) => cuda(ordinal).map_err(|error| CliError::Other(error.to_string())),
        Device::Auto => cuda(0).or_else(|error| {
            // Without a GPU, the fallback is expected; with one, it must not be silent.
            if error.is_no_gpu() {
                tracing::debug!("on the CPU: {error}");
            } else {
                tracing::warn!("computing on the CPU, because {error}");
            }
            cpu()
        }),
    }
}

/// Opens a CUDA device with the flags' settings.
pub fn open(ordinal: usize, args: &DeviceArgs, precision: Dtype) -> Result<Cuda, KernelError> {
    let device = girih_kernels::Device::open(ordinal)?;
    Ok(Cuda::new(device).storing(precision).tiling(args.density_threshold))
}

/// Starts the threads for all computation; one per core if no number is given. Called once, before any computation:
/// a pool that starts by itself panics where it cannot.
///
/// # Errors
/// When the threads cannot be started.
pub fn start_threads(threads: Option<u16>) -> Result<(), CliError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.map_or(0, usize::from)).build_global();
    let number = threads.map_or("one thread per core".to_owned(), |n| format!("{n} threads"));
    pool.map_err(|e| {
        CliError::Other(format!("cannot start {number}: {e}; give fewer --threads, or raise ulimit -u or -v"))
    })
}
