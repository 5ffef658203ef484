//! Needs of suites: a device, memory, real data, and Python modules of their peers.

use clap::ValueEnum;
use girih_kernels::Device;
use girih_machine::Machine;
use serde::{Deserialize, Serialize};

use super::{Setup, Suite, lightgcn};
use crate::whole::missing_modules;

/// Kind of device that suites run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// CPU suites, and plans.
    Cpu,
    /// GPU suites.
    Cuda,
}

impl DeviceKind {
    /// Name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

/// Bytes of host memory that the full graph of `gpu-large` takes.
const LARGE_BYTES: u64 = 75_000_000_000;

impl Suite {
    /// Suites of a device, without `gpu-sampled`, which repeats two of them.
    pub fn of_device(device: DeviceKind) -> impl Iterator<Item = Self> {
        let fits = move |suite: &Self| (device == DeviceKind::Cuda) == suite.is_for_gpus();
        Self::value_variants().iter().copied().filter(fits).filter(|suite| *suite != Self::GpuSampled)
    }

    fn is_for_gpus(self) -> bool {
        self.name().starts_with("gpu-")
    }

    /// Reason why the suite cannot run on this machine, if there is one.
    #[must_use]
    pub fn obstacle(self, setup: &Setup) -> Option<String> {
        if self.is_for_gpus()
            && let Err(error) = Device::open(0)
        {
            return Some(error.to_string());
        }
        match self {
            Self::Lightgcn => lightgcn::spec(setup).err().map(|error| error.to_string()),
            Self::GpuLarge if !setup.small => {
                let bytes = Machine::here().memory_bytes?;
                let is_short = bytes < LARGE_BYTES;
                is_short.then(|| {
                    format!("it takes {} GB of memory, here are {}", LARGE_BYTES / 1_000_000_000, bytes / 1_000_000_000)
                })
            }
            _ => None,
        }
    }

    /// Reason why the suite runs without the peer that was asked for, if there is one.
    #[must_use]
    pub fn missing_peer(self, setup: &Setup) -> Option<String> {
        let python = setup.peer.as_deref()?;
        match missing_modules(python, self.peer_modules()) {
            Ok(missing) if missing.is_empty() => None,
            Ok(missing) => {
                let names: Vec<String> = missing.into_iter().collect();
                Some(format!("{} has no {}", python.display(), names.join(", ")))
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Python modules that the suite's peer imports; empty without a peer.
    fn peer_modules(self) -> &'static [&'static str] {
        match self {
            Self::Spmm | Self::Fullbatch | Self::Sampling | Self::Minibatch => &["torch", "dgl"],
            Self::Attention => &["torch", "dgl", "torch_geometric"],
            Self::Lightgcn | Self::GpuFullbatch => &["torch"],
            Self::GpuMinibatch => &["torch", "torch_geometric"],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn devices_share_all_suites() {
        let n = [DeviceKind::Cpu, DeviceKind::Cuda].map(|device| Suite::of_device(device).count());
        assert_eq!(n.iter().sum::<usize>(), Suite::value_variants().len() - 1);
        assert!(Suite::of_device(DeviceKind::Cpu).any(|suite| suite == Suite::Scaling), "plans need no GPU");
    }

    #[test]
    fn missing_peers_and_data_are_reasons() {
        let setup = Setup { peer: Some(PathBuf::from("no-such-python")), ..Setup::default() };
        assert!(Suite::Spmm.missing_peer(&setup).unwrap().starts_with("no-such-python: "));
        assert_eq!(Suite::Spmm.missing_peer(&Setup::default()), None);
        assert_eq!(Suite::Gemm.obstacle(&setup), None);
    }
}
