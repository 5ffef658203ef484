//! Checks that a training session fits into the memory of a CUDA device.

use girih_compute::{Dtype, Rates};
use girih_datasets::Dataset;
use girih_machine::memory::Free;
use girih_machine::readable_bytes;
use girih_planner::EXCHANGE_BYTES;
use girih_trainer::{DataSizes, ModelConfig, Plan, RowsOnDevice, TrainConfig, TrainError};

use crate::context::device_memory::DeviceMemory;
use crate::error::CliError;

/// Remedy if one GPU is too small.
pub const ON_ONE: &str = "take --device cpu, or a GPU with more memory";

/// Training session on a CUDA device, as the planner needs it.
#[derive(Clone, Debug)]
pub struct Session {
    /// Sizes of the data.
    pub sizes: DataSizes,
    /// Rows that feature and topology caches put on the device, if known.
    pub rows: Option<RowsOnDevice>,
    /// Bytes in use besides the planned ones.
    pub reserved: u64,
}

impl Session {
    /// Session on loaded data, on one device.
    pub fn of(dataset: &Dataset, config: &TrainConfig) -> Self {
        Self::of_replica(dataset, config, (1, 1))
    }

    /// Session on one of `n_ranks` ranks that each hold all data. The `n_devices` devices of this process share
    /// caches.
    pub fn of_replica(dataset: &Dataset, config: &TrainConfig, (n_ranks, n_devices): (usize, usize)) -> Self {
        let rows = || RowsOnDevice::of(dataset, config, n_devices).ok();
        // Settings that cannot be planned are refused by training itself.
        let rows = if config.tiers.is_default() { None } else { rows() };
        let reserved = if n_ranks > 1 { EXCHANGE_BYTES } else { 0 };
        Self { sizes: DataSizes::of(dataset), rows, reserved }
    }

    /// Memory plan of the session.
    pub fn plan(&self, config: &TrainConfig) -> Result<Plan, TrainError> {
        match self.rows {
            Some(rows) => Plan::on_cuda_with(config, &self.sizes, rows),
            None => Plan::on_cuda(config, &self.sizes),
        }
    }

    /// Free bytes that the session needs.
    pub fn needed(&self, plan: &Plan) -> u64 {
        plan.device_bytes() + self.reserved
    }

    /// Refuses a session that does not fit. The error lists settings that fit, then the remedy `last`.
    pub fn check(
        &self,
        device_memory: &DeviceMemory,
        plan: &Plan,
        config: &TrainConfig,
        last: &str,
    ) -> Result<(), CliError> {
        let needed = self.needed(plan);
        if needed <= device_memory.free {
            return Ok(());
        }
        Err(CliError::Other(format!(
            "training needs {} ({needed} bytes), but {} has {} ({} bytes) free; {}",
            readable_bytes(needed),
            device_memory.device,
            readable_bytes(device_memory.free),
            device_memory.free,
            remedies(
                config,
                |config| self.plan(config).is_ok_and(|plan| self.needed(&plan) <= device_memory.free),
                last
            )
        )))
    }
}

/// Refuses a session on the CPU whose parameters and activations exceed the free main memory, before any allocation.
/// Features are already in memory, or in mapped files, and are not counted. The graph counts only if it has to be
/// copied into memory.
pub fn check_host(dataset: &Dataset, config: &TrainConfig) -> Result<(), CliError> {
    Free::now().map_or(Ok(()), |free| check_host_with(free, dataset, config))
}

/// As [`check_host`], with the free memory given.
pub fn check_host_with(
    Free { bytes: free, limit }: Free,
    dataset: &Dataset,
    config: &TrainConfig,
) -> Result<(), CliError> {
    let copied = copied_graph(dataset, config);
    if is_small(dataset, config, copied, free) {
        return Ok(());
    }
    let last = "free memory, raise the limit, or use a machine with more memory";
    if copied > free {
        return Err(CliError::Other(format!(
            "training on the full graph needs a copy of its {} edges in main memory, {}, and {limit} has {} free; train on \
             mini-batches (--batch neighbor), or {last}",
            dataset.n_edges(),
            readable_bytes(copied),
            readable_bytes(free)
        )));
    }
    let sizes = DataSizes::of(dataset);
    // Byte counts do not depend on rates.
    let rates = Rates { stream_bytes: 1.0, gather_bytes: 1.0, flops: 1.0 };
    let needed =
        |config: &TrainConfig| Plan::new(config, &sizes, rates).map(|plan| plan.peak_bytes - plan.input_bytes + copied);
    // A session that cannot be planned cannot be trained either; training reports why.
    let Ok(bytes) = needed(config) else { return Ok(()) };
    if bytes <= free {
        return Ok(());
    }
    let fits = |config: &TrainConfig| needed(config).is_ok_and(|bytes| bytes <= free);
    let beside = if copied > 0 { "with a copy of the graph's file" } else { "beside graph and features" };
    Err(CliError::Other(format!(
        "training needs {} of main memory {beside}, and {limit} has {} free; {}",
        readable_bytes(bytes),
        readable_bytes(free),
        remedies(config, fits, last)
    )))
}

/// Bytes of the graph that training copies into main memory. Full batches copy a graph that is mapped from a file;
/// mini-batches are sampled from the file.
pub fn copied_graph(dataset: &Dataset, config: &TrainConfig) -> u64 {
    if dataset.graph.is_mapped() && !config.batch.is_sampled() { dataset.graph.n_bytes() } else { 0 }
}

/// Whether a session is so small, compared with the free memory, that no plan is needed. A plan visits all edges.
fn is_small(dataset: &Dataset, config: &TrainConfig, copied: u64, free: u64) -> bool {
    /// Number of matrices of a layer: activations, gradients, operands and temporaries, or a parameter with its
    /// moments.
    const MATRICES: usize = 16;
    let width =
        config.model.hidden.saturating_mul(config.model.heads.max(config.model.out_heads)).max(dataset.n_classes());
    let rows = [dataset.n_nodes(), dataset.n_features(), width].into_iter().max().unwrap_or(0);
    let layers = config.model.layers.saturating_add(1).saturating_mul(MATRICES);
    let elements = rows.saturating_mul(width).saturating_mul(layers);
    (elements.saturating_mul(size_of::<f32>()) as u64).saturating_add(copied) < free / 2
}

/// Settings that would fit, the smallest change first; the general remedy `last` comes at the end.
pub fn remedies(config: &TrainConfig, fits: impl Fn(&TrainConfig) -> bool, last: &str) -> String {
    let bf16 = TrainConfig { precision: Dtype::Bf16, ..config.clone() };
    let narrower = |config: &TrainConfig| {
        let mut narrower = config.clone();
        while narrower.model.hidden > 1 {
            narrower.model = ModelConfig { hidden: narrower.model.hidden / 2, ..narrower.model };
            if fits(&narrower) {
                return Some(narrower.model.hidden);
            }
        }
        None
    };
    let mut remedies = Vec::new();
    if config.precision == Dtype::F32 && fits(&bf16) {
        remedies.push("--precision bf16 fits".to_owned());
    }
    if let Some(hidden) = narrower(config) {
        remedies.push(format!("--hidden {hidden} fits"));
    } else if let Some(hidden) = narrower(&bf16).filter(|_| remedies.is_empty()) {
        remedies.push(format!("--precision bf16 with --hidden {hidden} fits"));
    }
    if remedies.is_empty() {
        return format!("no --hidden is small enough: {last}");
    }
    format!("{}; else {last}", remedies.join(", "))
}
