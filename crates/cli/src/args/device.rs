//! Flags for devices.

use clap::Args;
use girih_kernels::Tiling;

use super::any_case;

/// Where computation happens.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Device: auto, cpu, cuda or cuda:N
    ///
    /// Auto is the fastest that is here; cuda:N is the N-th CUDA device, from 0.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = parse_device)]
    pub device: Device,
    /// Density from which a CUDA device multiplies 256 × 64 tiles with tensor cores
    ///
    /// Share of the tile's entries that are non-zero, like 0.05; auto, or never.
    #[arg(long, value_name = "SHARE", default_value = "auto", value_parser = any_case::<Tiling>)]
    pub density_threshold: Tiling,
    /// CPU threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Processes that share each CUDA device, as `--ranks-per-gpu` of the flags for ranks says; set where the device is
    /// chosen.
    #[arg(skip = 1_u16)]
    pub ranks_per_gpu: u16,
}

/// Device to compute on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The fastest device that is present.
    Auto,
    /// Cores of the CPU.
    Cpu,
    /// CUDA device with this number, from 0.
    Cuda(usize),
}

fn parse_device(text: &str) -> Result<Device, String> {
    let text = text.to_ascii_lowercase();
    let ordinal = text.strip_prefix("cuda:").map(str::parse);
    match (&*text, ordinal) {
        ("auto", _) => Ok(Device::Auto),
        ("cpu", _) => Ok(Device::Cpu),
        ("cuda", _) => Ok(Device::Cuda(0)),
        (_, Some(Ok(ordinal))) => Ok(Device::Cuda(ordinal)),
        _ => Err("expected auto, cpu, cuda or cuda:N".to_owned()),
    }
}
