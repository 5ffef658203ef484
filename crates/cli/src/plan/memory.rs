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
#[derive(Clone, Copy, Debug)]
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
fn check_host_with(Free { bytes: free, limit }: Free, dataset: &Dataset, config: &TrainConfig) -> Result<(), CliError> {
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
fn copied_graph(dataset: &Dataset, config: &TrainConfig) -> u64 {
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

#[cfg(test)]
mod tests {
    use girih_datasets::{LoadOptions, load};
    use girih_graph_format::Csr;
    use girih_machine::memory::Limit;
    use girih_trainer::{BatchConfig, BatchKind};

    use super::*;

    const SIZES: DataSizes = DataSizes {
        n_nodes: 1_000_000,
        n_edges: 20_000_000,
        n_edges_at_once: 0,
        weighted: false,
        symmetric: true,
        n_features: 100,
        feature_nnz: None,
        code_bytes: None,
        has_code_book: false,
        n_classes: 40,
        multi_label: false,
        n_train: 500_000,
        n_scored: 1_000_000,
        interactions: None,
    };

    const SESSION: Session = Session { sizes: SIZES, rows: None, reserved: 0 };

    /// Only full batches copy a mapped graph, and a copy larger than the free memory is refused.
    #[test]
    fn copies_of_mapped_graphs_are_counted() {
        let graph = Csr::new(100, 100, (0..=100).collect::<Vec<u64>>(), vec![0u32; 100], None).unwrap();
        let owned = Dataset::new("small", graph, None, None, Vec::new()).unwrap();
        let home = tempfile::tempdir().unwrap();
        owned.save(&home.path().join("small")).unwrap();
        let options = LoadOptions::default();
        let mapped = load(home.path().join("small").to_str().unwrap(), &options).unwrap();
        let full = TrainConfig::default();
        let batch = BatchConfig { kind: BatchKind::Neighbor, ..BatchConfig::default() };
        let sampled = TrainConfig { batch, ..full.clone() };
        assert_eq!(copied_graph(&owned, &full), 0);
        assert_eq!(copied_graph(&mapped, &sampled), 0);
        assert_eq!(copied_graph(&mapped, &full), owned.graph.n_bytes());
        let free = |bytes| Free { bytes, limit: Limit::Machine };
        let refused = check_host_with(free(1000), &mapped, &full).unwrap_err().to_string();
        assert!(refused.contains("a copy of its 100 edges") && refused.contains("--batch neighbor"), "{refused}");
        check_host_with(free(1 << 40), &mapped, &full).unwrap();
    }

    fn config() -> TrainConfig {
        let model = ModelConfig { hidden: 512, ..ModelConfig::default() };
        TrainConfig { model, ..TrainConfig::default() }
    }

    fn needed(config: &TrainConfig) -> u64 {
        Plan::on_cuda(config, &SIZES).unwrap().device_bytes()
    }

    fn refused(free: u64) -> String {
        let device_memory = DeviceMemory { device: "Some card".to_owned(), free };
        SESSION.check(&device_memory, &SESSION.plan(&config()).unwrap(), &config(), ON_ONE).unwrap_err().to_string()
    }

    #[test]
    fn a_plan_that_fits_is_not_refused() {
        let (config, plan) = (config(), SESSION.plan(&config()).unwrap());
        let device_memory = |free| DeviceMemory { device: "Some card".to_owned(), free };
        assert!(SESSION.check(&device_memory(plan.device_bytes()), &plan, &config, ON_ONE).is_ok());
        assert!(SESSION.check(&device_memory(plan.device_bytes() - 1), &plan, &config, ON_ONE).is_err());
    }

    #[test]
    fn a_refusal_names_bytes_and_what_would_fit() {
        let (all, half) = (needed(&config()), needed(&TrainConfig { precision: Dtype::Bf16, ..config() }));
        assert!(half < all);
        let message = refused(all - 1);
        for part in [&*format!("{all} bytes"), &format!("{} bytes", all - 1), "Some card", "--precision bf16 fits"] {
            assert!(message.contains(part), "no {part}: {message}");
        }
        let narrow = refused(half - 1);
        assert!(!narrow.contains("--precision bf16 fits") && narrow.contains("--hidden "), "{narrow}");
        assert!(narrow.contains("--device cpu"), "{narrow}");
        let hopeless = refused(1 << 20);
        assert!(!hopeless.contains(" fits") && hopeless.contains("--device cpu"), "{hopeless}");
    }

    #[test]
    fn the_width_that_is_named_fits() {
        let free = needed(&config()) / 2;
        let message = refused(free);
        let hidden = message.split("--hidden ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let model = ModelConfig { hidden: hidden.parse().unwrap(), ..config().model };
        assert!(needed(&TrainConfig { model, ..config() }) <= free, "{message}");
    }
}
