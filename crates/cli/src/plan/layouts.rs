//! Memory of mini-batch training on each of several GPUs, by placement of graph and features. Prints the table of
//! `girih train --batch … --gpus N --plan`, and refuses patches that do not fit.

use girih_datasets::Dataset;
use girih_machine::readable_bytes;
use girih_partition::Stages;
use girih_planner::{HardwareProfile, Planner};
use girih_trainer::distributed::{GraphPlacement, RankOptions, RankPlanner, SymbolicGraph};
use girih_trainer::{DataSizes, PlanDevice, TrainConfig, TrainError};
use serde_json::json;

use super::memory::{Session, remedies};
use super::one_device::begun;
use crate::args::OutputArgs;
use crate::context::device_memory::DeviceMemory;
use crate::error::CliError;

/// Remedies for any training session in which every GPU holds all data.
pub const ON_EACH: &str =
    "take fewer seeds or subgraphs a step (--batch-size, --subgraphs-per-step), more ranks, or GPUs with more memory";
/// Remedies for training in which each GPU holds a patch.
const IN_PATCHES: &str = "take fewer seeds a batch (--batch-size), more ranks, or GPUs with more memory";

/// GPU memory that a placement needs.
struct Planned {
    layout: GraphPlacement,
    needed_bytes: u64,
}

impl Planned {
    fn fits(&self, device_memory: &DeviceMemory) -> bool {
        self.needed_bytes <= device_memory.free
    }

    fn line(&self, device_memory: &DeviceMemory) -> String {
        let fits = if self.fits(device_memory) { "fits" } else { "too large" };
        format!("{:<14} {:>10}  {fits}", self.layout.name(), readable_bytes(self.needed_bytes))
    }
}

/// Prints the memory that each placement needs on each of the ranks' GPUs; trains nothing.
pub fn run(
    ranks: &RankOptions,
    device_memory: &DeviceMemory,
    (dataset, spec, config): (&Dataset, &str, &TrainConfig),
    output: OutputArgs,
) -> Result<(), CliError> {
    let n = ranks.grid.ranks();
    let replica = Session::of_replica(dataset, config, (n, n));
    let of_rank = config.of_one_rank(n);
    let plan = replica.plan(&of_rank)?;
    let mut layouts = vec![Planned { layout: GraphPlacement::Replicated, needed_bytes: replica.needed(&plan) }];
    // Stages as GPUs take them. Placements that the data cannot take are left out.
    if let Ok(cut) = LayoutPlanner::new(dataset, config) {
        let needed_bytes = |layout| cut.bytes(&RankOptions { stages: Stages::Parts(1), layout, ..*ranks });
        let planned = |layout| Some(Planned { layout, needed_bytes: needed_bytes(layout).ok()? });
        layouts.extend([GraphPlacement::SplitFeatures, GraphPlacement::Patches].into_iter().filter_map(planned));
    }
    // Local reads are faster than remote ones, so placements are tried in this order.
    let choice = layouts.iter().find(|planned| planned.fits(device_memory)).map(|planned| planned.layout);
    let plans: Vec<_> = layouts
        .iter()
        .map(|planned| {
            json!({
                "layout": planned.layout.name(),
                "needed_bytes": planned.needed_bytes,
                "fits": planned.fits(device_memory),
            })
        })
        .collect();
    let lines: Vec<String> = layouts.iter().map(|planned| planned.line(device_memory)).collect();
    let flags = |layout: GraphPlacement| format!("--gpus {n} --layout {}", layout.name());
    let mut results = begun(spec, config);
    results
        .add("ranks", n, "Ranks", n.to_string())
        .add("device", device_memory.device.clone(), "Each on", device_memory.device.clone())
        .add("available_bytes", device_memory.free, "Memory of each", readable_bytes(device_memory.free))
        .add("plans", json!(plans), "", lines.join("\n"))
        .add("choice", choice.map(GraphPlacement::name), "Choice", choice.map_or("none fits".to_owned(), flags));
    results.print(output.json);
    if choice.is_some() { Ok(()) } else { replica.check(device_memory, &plan, &of_rank, ON_EACH) }
}

/// Refuses patches that exceed `free` bytes of GPU memory, before any data are copied there.
pub fn check_patches(ranks: &RankOptions, free: u64, dataset: &Dataset, config: &TrainConfig) -> Result<(), CliError> {
    let needed = |config: &TrainConfig| LayoutPlanner::new(dataset, config)?.bytes(ranks);
    // A session that cannot be planned is not refused for its size.
    let Ok(bytes) = needed(config) else { return Ok(()) };
    if bytes <= free {
        return Ok(());
    }
    let fits = |config: &TrainConfig| needed(config).is_ok_and(|bytes| bytes <= free);
    Err(CliError::Other(format!(
        "training needs {} ({bytes} bytes) on each GPU with --layout {} over {} ranks, but {} ({free} bytes) are free; {}",
        readable_bytes(bytes),
        ranks.layout.name(),
        ranks.grid.ranks(),
        readable_bytes(free),
        remedies(config, fits, IN_PATCHES),
    )))
}

/// Data set and configuration for a dry run on partitioned data.
struct LayoutPlanner<'a> {
    config: &'a TrainConfig,
    sizes: DataSizes,
    graph: SymbolicGraph,
}

impl<'a> LayoutPlanner<'a> {
    fn new(dataset: &Dataset, config: &'a TrainConfig) -> Result<Self, TrainError> {
        let sizes = DataSizes::of(dataset);
        let graph = SymbolicGraph::of(&dataset.graph, config, &sizes)?;
        Ok(Self { config, sizes, graph })
    }

    /// Free bytes that the GPU of the most loaded rank needs.
    fn bytes(&self, ranks: &RankOptions) -> Result<u64, TrainError> {
        let Self { config, sizes: data, graph } = self;
        // Byte counts do not depend on the hardware profile.
        let (devices, network) = (&[PlanDevice::Gpu(None)], HardwareProfile::h200().hosts());
        let ranks_on_gpus = RankPlanner { config, data, graph, devices, network };
        Planner { ranks: ranks_on_gpus, free_bytes: None }.bytes_of_patches(ranks)
    }
}
