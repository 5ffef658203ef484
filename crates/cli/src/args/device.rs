//! Flags for devices.

use clap::Args;
use girih_kernels::Tiling;

/// Where computation happens.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Device to compute on: auto (the fastest that is there), cpu, cuda, or cuda:N for the N-th CUDA device
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = parse_device)]
    pub device: Device,
    /// Which 256 × 64 blocks of the adjacency a CUDA device multiplies with tensor cores: those in which at least this
    /// share of places is taken, like 0.05; none with never
    #[arg(long, value_name = "SHARE", default_value = "auto")]
    pub density_threshold: Tiling,
    /// Threads to compute with [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Processes that share each CUDA device, as `--ranks-per-gpu` of the flags for ranks says; set where the device is
    /// chosen.
    #[arg(skip = 1_u16)]
    pub ranks_per_gpu: u16,
}

/// A device to compute on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The fastest that is there.
    Auto,
    /// The processor's cores.
    Cpu,
    /// A CUDA device, by its number.
    Cuda(usize),
}

fn parse_device(text: &str) -> Result<Device, String> {
    let ordinal = text.strip_prefix("cuda:").map(str::parse);
    match (text, ordinal) {
        ("auto", _) => Ok(Device::Auto),
        ("cpu", _) => Ok(Device::Cpu),
        ("cuda", _) => Ok(Device::Cuda(0)),
        (_, Some(Ok(ordinal))) => Ok(Device::Cuda(ordinal)),
        _ => Err("expected auto, cpu, cuda or cuda:N".to_owned()),
    }
}
