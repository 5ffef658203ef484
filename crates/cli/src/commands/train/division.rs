//! `--tier-memory`: divides device memory between training, features and topology, once and before any rank starts.

use girih_datasets::{Dataset, LoadOptions, load};
use girih_features::Room as TierRoom;
use girih_machine::{Machine, readable_bytes};
use girih_planner::EXCHANGE_BYTES;
use girih_trainer::distributed::GraphPlacement;
use girih_trainer::{CacheConfig, CachePlan, DataSizes, TrainConfig};
use serde_json::{Value, json};

use super::facts::of_share;
use crate::args::{Device, DeviceArgs, TierMemory, TrainArgs};
use crate::commands::device::{Chosen, choose};
use crate::commands::memory::{ON_ONE, Room, Session};
use crate::commands::plan;
use crate::commands::ranks::LaunchContext;
use crate::commands::reading;
use crate::error::CliError;

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
        let layout = args.layout.map_or(GraphPlacement::Replicated, GraphPlacement::from);
        if layout != GraphPlacement::Replicated {
            return Err(CliError::Usage(format!(
                "--tier-memory cannot be combined with --layout {}, where each rank holds its own rows: leave one of them out",
                layout.name()
            )));
        }
        if memory == TierMemory::Auto {
            place.refuse_several(
                "--tier-memory auto is for one process: give --tier-memory a size, like 80GB, instead of auto",
            )?;
        }
        let n_ranks = args.ranks.ranks.or(args.ranks.gpus).map_or(1, usize::from);
        let is_alone = matches!(place, LaunchContext::Alone);
        let reserved = if is_alone && n_ranks == 1 { 0 } else { EXCHANGE_BYTES };
        Ok(Some(Self { memory, n_devices: if is_alone { n_ranks } else { 1 }, reserved }))
    }

    /// Free memory of the devices here: the smallest of several.
    ///
    /// # Errors
    /// When the first device is a CPU, or another one cannot be opened.
    pub fn room_here(&self, first: &Chosen, device: &DeviceArgs, config: &TrainConfig) -> Result<Room, CliError> {
        Room::of_ranks(first, device, self.n_devices, config.precision)?
            .ok_or_else(|| CacheConfig::refused_by_processors().into())
    }

    /// Divides the memory of devices that are present.
    ///
    /// # Errors
    /// When the memory does not suffice, or is not available.
    pub fn on_devices(&self, room: &Room, dataset: &Dataset, config: &TrainConfig) -> Result<Divided, CliError> {
        let bytes = match self.memory {
            TierMemory::Size(bytes) => bytes,
            TierMemory::Auto => room.free,
        };
        let divided = self.divided((bytes, Machine::here().memory_bytes), dataset, config)?;
        let config = divided.config(config);
        room.check(&divided.session, &divided.session.plan(&config)?, &config, ON_ONE)?;
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
            return Err(CacheConfig::refused_by_processors().into());
        }
        let given = |flag, free| Room { device: format!("a CUDA device as given by {flag}"), free };
        let (room, bytes, host_bytes) = match (self.memory, args.memory) {
            (TierMemory::Size(bytes), None) => (given("--tier-memory", bytes), bytes, None),
            (TierMemory::Size(bytes), Some(memory)) => (given("--memory", memory), bytes, None),
            (TierMemory::Auto, Some(memory)) => (given("--memory", memory), memory, None),
            (TierMemory::Auto, None) => {
                let room = self.room_of_plan(device, config)?;
                (room.clone(), room.free, Machine::here().memory_bytes)
            }
        };
        let dataset = load(spec, options)?;
        reading::warn_of(&dataset.notes);
        let divided = self.divided((bytes, host_bytes), &dataset, config)?;
        let mut results = plan::begun(spec, config);
        results.add("division", divided.to_json(), "Division", divided.lines().join("\n"));
        plan::on_cuda(&room, &divided.config(config), &divided.session, results, args.output)
    }

    fn room_of_plan(&self, device: &DeviceArgs, config: &TrainConfig) -> Result<Room, CliError> {
        match choose(device, config.precision)? {
            Chosen::Cpu(_) => Err(CliError::Other(
                "--tier-memory auto is what is free on a CUDA device, and there is none here; give a size, like 80GB"
                    .to_owned(),
            )),
            first @ Chosen::Cuda(_) => self.room_here(&first, device, config),
        }
    }

    /// Divides this many bytes of each device and of the host.
    fn divided(
        &self,
        (card_bytes, host_bytes): (u64, Option<u64>),
        dataset: &Dataset,
        config: &TrainConfig,
    ) -> Result<Divided, CliError> {
        let room = TierRoom { n_cards: self.n_devices, card_bytes, host_bytes };
        let division = CachePlan::new(dataset, config, room, self.reserved)?;
        let (sizes, rows) = (DataSizes::of(dataset), Some(division.rows));
        Ok(Divided { card_bytes, division, session: Session { sizes, rows, reserved: self.reserved } })
    }
}

/// Division of memory, with the session that follows from it.
pub struct Divided {
    card_bytes: u64,
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
            readable(&self.card_bytes),
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
            "memory_bytes": self.card_bytes,
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
