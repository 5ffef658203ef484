//! `--tier-memory`: divides device memory between training, features and topology, once and before any rank starts.

use girih_datasets::{Dataset, LoadOptions, load};
use girih_features::MemoryBudget;
use girih_machine::{Machine, readable_bytes};
use girih_planner::EXCHANGE_BYTES;
use girih_trainer::{CachePlan, Combination, DataSizes, TrainConfig};
use serde_json::{Value, json};

use super::facts::of_share;
use crate::args::{Device, DeviceArgs, TierMemory, TrainArgs};
use crate::context::combination::execution;
use crate::context::device::{Chosen, choose};
use crate::context::device_memory::DeviceMemory;
use crate::context::gpus::device_memory_of_ranks;
use crate::context::reading;
use crate::context::world::LaunchContext;
use crate::error::CliError;
use crate::plan::memory::{ON_ONE, Session};
use crate::plan::one_device;

/// Request to divide device memory.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    memory: TierMemory,
    /// Number of devices of this process, which share one cache.
    n_devices: usize,
    /// Bytes of each device that are not for training.
    reserved: u64,
}

impl Asked {
    /// Request of the arguments; `None` without `--tier-memory`.
    ///
    /// # Errors
    /// When memory cannot be divided for such batches or ranks.
    pub fn of(args: &TrainArgs, place: &LaunchContext, config: &TrainConfig) -> Result<Option<Self>, CliError> {
        let Some(memory) = args.settings.tiers.tier_memory else { return Ok(None) };
        CachePlan::check(config)?;
        let given = args.ranks.ranks.or(args.ranks.gpus).map(usize::from);
        let n_ranks = given.unwrap_or(1);
        execution(&Combination {
            n_ranks: given.or(args.layout.map(|_| n_ranks)),
            placement: args.layout.map(Into::into),
            ..CachePlan::combination(config)
        })?;
        if memory == TierMemory::Auto {
            place.refuse_several(
                "--tier-memory auto is for one process: give --tier-memory a size, like 80GB, instead of auto",
            )?;
        }
        let is_alone = matches!(place, LaunchContext::Alone);
        let reserved = if is_alone && n_ranks == 1 { 0 } else { EXCHANGE_BYTES };
        Ok(Some(Self { memory, n_devices: if is_alone { n_ranks } else { 1 }, reserved }))
    }

    /// Free memory of the devices here: the smallest of several.
    ///
    /// # Errors
    /// When the first device is a CPU, or another one cannot be opened.
    pub fn device_memory_here(
        &self,
        first: &Chosen,
        device: &DeviceArgs,
        config: &TrainConfig,
    ) -> Result<DeviceMemory, CliError> {
        device_memory_of_ranks(first, device, self.n_devices, config.precision)?.ok_or_else(|| on_cpu(config))
    }

    /// Divides the memory of devices that are present.
    ///
    /// # Errors
    /// When the memory does not suffice, or is not available.
    pub fn on_devices(
        &self,
        device_memory: &DeviceMemory,
        dataset: &Dataset,
        config: &TrainConfig,
    ) -> Result<Divided, CliError> {
        let bytes = match self.memory {
            TierMemory::Size(bytes) => bytes,
            TierMemory::Auto => device_memory.free,
        };
        let divided = self.divided((bytes, Machine::here().memory_bytes), dataset, config)?;
        let config = divided.config(config);
        divided.session.check(device_memory, &divided.session.plan(&config)?, &config, ON_ONE)?;
        Ok(divided)
    }

    /// Prints the plan of a session with the division, on devices that need not be present; trains nothing.
    ///
    /// # Errors
    /// When the memory does not suffice.
    pub fn plan(
        &self,
        args: &TrainArgs,
        (spec, options, config): (&str, &LoadOptions, &TrainConfig),
        device: &DeviceArgs,
    ) -> Result<(), CliError> {
        if device.device == Device::Cpu {
            return Err(on_cpu(config));
        }
        let given = |flag, free| DeviceMemory { device: format!("a CUDA device as given by {flag}"), free };
        let (device_memory, bytes, host_bytes) = match (self.memory, args.memory) {
            (TierMemory::Size(bytes), None) => (given("--tier-memory", bytes), bytes, None),
            (TierMemory::Size(bytes), Some(memory)) => (given("--memory", memory), bytes, None),
            (TierMemory::Auto, Some(memory)) => (given("--memory", memory), memory, None),
            (TierMemory::Auto, None) => {
                let device_memory = self.device_memory_of_plan(device, config)?;
                (device_memory.clone(), device_memory.free, Machine::here().memory_bytes)
            }
        };
        let dataset = load(spec, options)?;
        reading::warn_of(&dataset.notes);
        let divided = self.divided((bytes, host_bytes), &dataset, config)?;
        let mut results = one_device::begun(spec, config);
        results.add("division", divided.to_json(), "Division", divided.lines().join("\n"));
        one_device::on_cuda(&device_memory, &divided.config(config), &divided.session, results, args.output)
    }

    fn device_memory_of_plan(&self, device: &DeviceArgs, config: &TrainConfig) -> Result<DeviceMemory, CliError> {
        match choose(device, config.precision)? {
            Chosen::Cpu(_) => Err(CliError::Other(
                "--tier-memory auto is what is free on a CUDA device, and there is none here; give a size, like 80GB"
                    .to_owned(),
            )),
            first @ Chosen::Cuda(_) => self.device_memory_here(&first, device, config),
        }
    }

    /// Divides this many bytes of each device and of the host.
    fn divided(
        &self,
        (gpu_bytes, host_bytes): (u64, Option<u64>),
        dataset: &Dataset,
        config: &TrainConfig,
    ) -> Result<Divided, CliError> {
        let budget = MemoryBudget { n_gpus: self.n_devices, gpu_bytes, host_bytes };
        let division = CachePlan::new(dataset, config, budget, self.reserved)?;
        let (sizes, rows) = (DataSizes::of(dataset), Some(division.rows));
        Ok(Divided { gpu_bytes, division, session: Session { sizes, rows, reserved: self.reserved } })
    }
}

/// Refusal of a cache on a CPU.
fn on_cpu(config: &TrainConfig) -> CliError {
    let refused = execution(&CachePlan::combination(config).on_device(false));
    refused.expect_err("a CPU has no cache of topology")
}

/// Division of memory, with the session that follows from it.
pub struct Divided {
    gpu_bytes: u64,
    division: CachePlan,
    session: Session,
}

impl Divided {
    /// Configuration with the cache shares of the division.
    pub fn config(&self, config: &TrainConfig) -> TrainConfig {
        TrainConfig { tiers: self.division.tiers, ..config.clone() }
    }

    /// Description for people.
    pub fn lines(&self) -> Vec<String> {
        let CachePlan { tiers, shares, training_bytes, topology_bytes, feature_bytes, host_bytes, .. } = &self.division;
        let readable = |bytes: &u64| readable_bytes(*bytes);
        let memory = format!(
            "of {} of a device {} for training, {} for neighbors, {} for features; {} of the host",
            readable(&self.gpu_bytes),
            readable(training_bytes),
            readable(topology_bytes),
            readable(feature_bytes),
            readable(host_bytes)
        );
        let flag =
            |name: &str, shares| Option::map(shares, |shares: girih_features::CacheShares| format!("{name} {shares}"));
        let flags = [flag("--feature-cache", tiers.features), flag("--topology-cache", tiers.topology)];
        let flags = flags.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let shared = if flags.is_empty() { "every device has all".to_owned() } else { format!("as by {flags}") };
        let expected = shares.iter().map(|share| format!("{} expected", of_share(share)));
        [memory, shared].into_iter().chain(expected).collect()
    }

    /// Description for programs.
    pub fn to_json(&self) -> Value {
        let CachePlan {
            tiers, shares, needed_bytes, training_bytes, topology_bytes, feature_bytes, host_bytes, ..
        } = &self.division;
        json!({
            "memory_bytes": self.gpu_bytes,
            "needed_bytes": needed_bytes,
            "training_bytes": training_bytes,
            "topology_bytes": topology_bytes,
            "feature_bytes": feature_bytes,
            "host_bytes": host_bytes,
            "config": tiers,
            "expected": shares,
        })
    }
}
