//! Assignment of GPUs to ranks, and the memory that each rank has.

use girih_compute::Dtype;
use girih_kernels::Cuda;

use super::device::{Chosen, open};
use super::device_memory::DeviceMemory;
use crate::args::{Device, DeviceArgs, RankArgs};
use crate::error::CliError;

/// Device of this process, the first one if it has several. Ranks run on CPUs unless CUDA devices are requested. A
/// process that a launcher started takes the device numbered `local_rank`. If several ranks share a device, it takes
/// that of its group.
pub fn device_of(args: &DeviceArgs, ranks: &RankArgs, local_rank: Option<usize>) -> Result<DeviceArgs, CliError> {
    let on = |device| Ok(DeviceArgs { device, ranks_per_gpu: ranks.ranks_per_gpu, ..*args });
    let usage = |message: String| Err(CliError::Usage(message));
    if ranks.ranks_per_gpu > 1 && (local_rank.is_none() || !matches!(args.device, Device::Cuda(_))) {
        return usage(
            "--ranks-per-gpu is for processes on CUDA devices: start them with `girih launch --nproc N -- train … --device cuda --ranks-per-gpu R`, or leave it out"
                .to_owned(),
        );
    }
    if ranks.gpus.is_some() {
        return match args.device {
            _ if local_rank.is_some() => usage(
                "a process that a launcher started has one device; give --device cuda instead of --gpus".to_owned(),
            ),
            Device::Auto | Device::Cuda(0) => on(Device::Cuda(0)),
            Device::Cpu => {
                usage("--gpus asks for CUDA devices, and --device cpu for the CPU: leave one of them out".to_owned())
            }
            Device::Cuda(_) => usage(FIRST.to_owned()),
        };
    }
    match (args.device, local_rank) {
        (Device::Cuda(0), Some(local_rank)) => on(Device::Cuda(local_rank / usize::from(ranks.ranks_per_gpu))),
        (Device::Cuda(1..), Some(_)) => usage(FIRST.to_owned()),
        (Device::Cuda(1..), None) if ranks.ranks.is_some() => usage(FIRST.to_owned()),
        (Device::Auto, _) if local_rank.is_some() || ranks.ranks.is_some() => on(Device::Cpu),
        (device, _) => on(device),
    }
}

/// Refusal of a first device other than number 0.
const FIRST: &str =
    "ranks use the CUDA devices from number 0 on: give --device cuda, and choose devices with CUDA_VISIBLE_DEVICES";

/// The first device and its successors, one for each rank.
pub fn gpus(first: Cuda, device: &DeviceArgs, n_ranks: usize, precision: Dtype) -> Result<Vec<Cuda>, CliError> {
    std::iter::once(Ok(first)).chain(others(device, n_ranks, precision)).collect()
}

/// Devices after the first one.
pub fn others(
    device: &DeviceArgs,
    n_ranks: usize,
    precision: Dtype,
) -> impl Iterator<Item = Result<Cuda, CliError>> + '_ {
    (1..n_ranks).map(move |ordinal| {
        open(ordinal, device, precision)
            .map_err(|error| CliError::Other(format!("{n_ranks} ranks want a device each, but {error}")))
    })
}

/// Memory of the GPUs of the `n_ranks` ranks of this process, of which `first` is the first. It is the smallest
/// of theirs, divided by the ranks that share a GPU. `None` for the CPU, whose memory the operating system
/// extends.
pub fn device_memory_of_ranks(
    first: &Chosen,
    device: &DeviceArgs,
    n_ranks: usize,
    precision: Dtype,
) -> Result<Option<DeviceMemory>, CliError> {
    let Some(first) = first.device_memory()? else { return Ok(None) };
    let mut rooms = others(device, n_ranks, precision).map(|gpu| DeviceMemory::of(&gpu?));
    rooms
        .try_fold(first, |least, device_memory| {
            device_memory.map(|device_memory| if device_memory.free < least.free { device_memory } else { least })
        })
        .map(|least| Some(least.shared_by(device.ranks_per_gpu)))
}
