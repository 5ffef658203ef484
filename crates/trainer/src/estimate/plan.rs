//! [`Plan`]: memory and time of a training session, predicted before anything is loaded onto a device.
//!
//! A dry run executes one step and one evaluation on a [`Symbolic`] backend, with the code that will train.

use std::sync::Arc;

use girih_comm::Traffic;
use girih_compute::{GpuRates, Rates, Symbolic};

use super::minibatch::{PlannedRows, RowsOnDevice};
use super::sizes::DataSizes;
use crate::TrainError;
use crate::config::{CacheConfig, GraphPlacement, TrainConfig};
use crate::tape::Graph;
use crate::tape::ranks::Ranks;

/// Bytes of a CUDA device that its software takes: the workspace of cuBLAS (up to 32 MiB) and the kernels' code.
const DEVICE_SOFTWARE_BYTES: u64 = 128 << 20;
/// Inverse of the largest share of a CUDA device's memory that fragmentation leaves unused.
const ALLOCATOR_LOSS_SHARE: u64 = 20;

/// Memory and time of a training session. Bytes are those of matrices, without code and allocator overhead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Bytes of graph and features on the device, including results that are computed once.
    pub input_bytes: u64,
    /// Bytes of parameters, gradients and optimiser state.
    pub parameter_bytes: u64,
    /// Peak bytes over the first steps and the first evaluation.
    pub peak_bytes: u64,
    /// Peak bytes before the first evaluation, which reads the full graph.
    pub step_peak_bytes: u64,
    /// Bytes of host memory for rows of hidden layers in layer-wise inference.
    pub host_layer_bytes: u64,
    /// Seconds of computation before the first epoch.
    pub prepare_seconds: f64,
    /// Seconds of the training steps of an epoch.
    pub epoch_seconds: f64,
    /// Seconds of an epoch spent in operations; the rest waits for other ranks.
    pub computed_seconds: f64,
    /// Seconds of an epoch spent in products with sparse matrices.
    pub product_seconds: f64,
    /// Seconds of exchanges with other ranks in an epoch. Products may overlap them.
    pub exchange_seconds: f64,
    /// Bytes of matrices exchanged with other ranks in an epoch.
    pub exchanged: Traffic,
    /// Seconds of an evaluation.
    pub evaluate_seconds: f64,
    /// Seconds of all epochs of all runs, if patience never runs out.
    pub total_seconds: f64,
    /// Whether the first aggregation is computed once, before the first epoch.
    pub aggregates_once: bool,
}

/// Device that a session is planned for.
#[expect(clippy::large_enum_variant, reason = "there is one, which is copied")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlanDevice {
    /// A CPU, with the main memory.
    Cpu(Rates),
    /// A CUDA device. Without rates, only bytes are planned, and seconds are zero.
    Gpu(Option<GpuRates>),
}

impl PlanDevice {
    /// Symbolic device that training with `config` would use.
    pub(crate) fn symbolic(&self, config: &TrainConfig) -> Symbolic {
        match self {
            Self::Cpu(rates) => Symbolic::new(*rates),
            Self::Gpu(rates) => Symbolic::cuda(config.precision, *rates),
        }
    }

    /// Whether the device computes in host memory.
    pub(crate) fn is_main_memory(&self) -> bool {
        matches!(self, Self::Cpu(_))
    }
}

/// Share of the work that one of several ranks has.
pub(crate) struct Share {
    /// This rank and its world.
    pub(crate) ranks: Arc<Ranks<Symbolic>>,
    /// This rank's blocks of the adjacency, if the model reads it.
    pub(crate) graph: Option<Graph<Symbolic>>,
    /// Placement of graph and features over ranks, for mini-batches.
    pub(crate) layout: GraphPlacement,
}

impl Plan {
    /// Plan of `config` for data of the given sizes, on a CPU with the given rates.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn new(config: &TrainConfig, data: &DataSizes, rates: Rates) -> Result<Self, TrainError> {
        Self::on_device(config, data, PlanDevice::Cpu(rates))
    }

    /// As [`new`](Self::new), but on a CUDA device of unknown speed: only bytes are planned, and seconds are zero.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn on_cuda(config: &TrainConfig, data: &DataSizes) -> Result<Self, TrainError> {
        Self::on_device(config, data, PlanDevice::Gpu(None))
    }

    /// As [`new`](Self::new), but on any device.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn on_device(config: &TrainConfig, data: &DataSizes, device: PlanDevice) -> Result<Self, TrainError> {
        Self::on((&device.symbolic(config), device), config, (data, PlannedRows::UpperBound), None)
    }

    /// As [`on_cuda`](Self::on_cuda), but for a device that holds the given rows of the adjacency, instead of the
    /// longest possible ones.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn on_cuda_with(config: &TrainConfig, data: &DataSizes, rows: RowsOnDevice) -> Result<Self, TrainError> {
        let device = PlanDevice::Gpu(None);
        Self::on((&device.symbolic(config), device), config, (data, PlannedRows::These(rows)), None)
    }

    /// Plan of sampled training on a CUDA device without its cache: without rows of features and adjacency, their
    /// indptr and the lists of row positions. The cache settings of the configuration do not matter.
    ///
    /// # Errors
    /// When the configuration is refused, or has no batches that use the cache.
    pub fn beside_rows(config: &TrainConfig, data: &DataSizes) -> Result<Self, TrainError> {
        let config = &TrainConfig { tiers: CacheConfig::on_host(), ..config.clone() };
        let device = PlanDevice::Gpu(None);
        Self::on((&device.symbolic(config), device), config, (data, PlannedRows::Elsewhere), None)
    }

    /// Bytes that must be free on a CUDA device before the first upload: the peak, a share for fragmentation, and the
    /// device's software (workspace of dense products, kernels' code).
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.peak_bytes + self.peak_bytes / ALLOCATOR_LOSS_SHARE + DEVICE_SOFTWARE_BYTES
    }

    /// Bytes that additional permanent matrices may take, so that the plan fits so many [bytes of a
    /// device](Self::device_bytes); `None` if the plan alone does not fit.
    #[must_use]
    pub fn bytes_left(&self, device_bytes: u64) -> Option<u64> {
        let bytes = device_bytes.checked_sub(DEVICE_SOFTWARE_BYTES)?;
        // The largest `peak` with `peak + peak / share <= bytes`.
        let (whole, rest) = (bytes / (ALLOCATOR_LOSS_SHARE + 1), bytes % (ALLOCATOR_LOSS_SHARE + 1));
        let peak = whole * ALLOCATOR_LOSS_SHARE + rest.min(ALLOCATOR_LOSS_SHARE - 1);
        peak.checked_sub(self.peak_bytes)
    }
}
