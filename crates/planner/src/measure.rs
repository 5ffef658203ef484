//! [`HardwareProfile`] measured on the GPUs at hand.

mod exchanges;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use girih_comm::GpuTransport;
use girih_compute::prelude::*;
use girih_compute::{
    BlockKind, BlockSeconds, ByDtype, ComputeError, Dtype, EntrySeconds, Epilogue, GpuRates, Shape, SparseOperand,
    Transpose,
};
use girih_datasets::{Dataset, Features, Labels, Split};
use girih_graph_format::{Csr, Matrix, NodeId, Norm};
use girih_kernels::{Cuda, Device, Driver};
use girih_partition::{BlockPlan, Cuts, ProcessGrid, Scheme, block_nnz};
use girih_trainer::{
    BatchConfig, Control, DataSizes, Event, ModelConfig, ModelKind, Plan, PlanDevice, SessionOptions, TaskKind,
    TrainConfig,
};

use self::exchanges::links;
use crate::kept::load_or_measure;
use crate::{HardwareProfile, PlannerError, SessionRates};

/// Number of measurements of each quantity. The shortest counts, since other programs may run too.
const REPEATS: usize = 5;
/// Rate of the dense products of layers, as a share of the rate of a single large one.
const DENSE_SHARE: f64 = 0.65;
/// Network whose epochs measure the rate of passes over matrices, which is below the rate of a copy: number of nodes,
/// width of features, number of classes, number of epochs.
const NODES: usize = 1 << 19;
const FEATURES: usize = 128;
const CLASSES: usize = 16;
const EPOCHS: u64 = 20;
/// Range in which the rate of passes is searched, as shares of the GPU's copy rate.
const STREAM_SHARES: (f64, f64) = (0.2, 1.0);
/// Range in which the speed of a session relative to the usual rates is searched.
const SPEEDS: (f64, f64) = (0.5, 2.0);
/// Limit in bytes on the host features of a session without edges.
const HOST_BYTES: usize = 1 << 30;
/// Rows of a small and of a large exchange, of [`COLUMNS`] columns: 1 KiB and 64 MiB.
const ROWS: [usize; 2] = [1, 1 << 16];
const COLUMNS: usize = 256;
/// Safety margin on the planned times of NCCL. On four H100, NCCL took up to 1.12 times the planned time, and copies
/// up to 1.06 times.
const NCCL_DOUBT: f64 = 1.2;
/// Divisor of the free memory: a measured product may take one part of so many.
const FREE_SHARE: usize = 3;

/// Returns the profile of at least one GPU, whose rows `transport` carries. It is measured for the first such GPUs
/// and then kept on disk. The launch time within CUDA graphs cannot be measured by single operations, and is that of
/// the H200.
///
/// # Errors
/// When a GPU fails.
pub fn figures(gpus: &[Cuda], transport: GpuTransport) -> Result<HardwareProfile, PlannerError> {
    let name = gpus[0].device().name();
    kept_figures((&name, gpus.len()), transport, || measured((&name, gpus), transport))
}

/// Returns the transport of full batches between the first `n` GPUs of this process; `first` is one of them. It is
/// the one with the shorter all-gather of panels, including the loss of overlapped products and a [safety
/// margin](with_safety_margin) in favour of copies. NCCL is chosen where GPUs cannot read each other's memory, or
/// copies fail. As in [`figures`], it is measured once for such GPUs. `open` returns the GPUs for each measurement,
/// and each of them joins ranks once.
///
/// # Errors
/// When GPUs cannot be opened, or NCCL fails on them.
pub fn transport(
    (first, n): (&Cuda, usize),
    open: impl Fn() -> Result<Vec<Cuda>, PlannerError>,
) -> Result<GpuTransport, PlannerError> {
    if !transports(n)?.contains(&GpuTransport::Peer) {
        return Ok(GpuTransport::Nccl);
    }
    let name = first.device().name();
    let seconds = |transport: GpuTransport| -> Result<f64, PlannerError> {
        let found = kept_figures((&name, n), transport, || measured((&name, &open()?), transport))?;
        Ok(with_safety_margin(Some(transport), found.panel_seconds(n, ROWS[1] * COLUMNS * size_of::<f32>())))
    };
    let sent = seconds(GpuTransport::Nccl)?;
    match seconds(GpuTransport::Peer) {
        Ok(copied) if copied < sent => Ok(GpuTransport::Peer),
        Ok(_) => Ok(GpuTransport::Nccl),
        Err(error) => {
            tracing::warn!("rows are sent by NCCL, because copies between GPUs fail: {error}");
            Ok(GpuTransport::Nccl)
        }
    }
}

/// Returns the planned time with the safety margin of its transport, for comparisons of transports. NCCL's kernels
/// take SMs from products. Products of narrow rows need all SMs, so they lose more than the measurement on wide rows
/// shows (a third at 16 columns, a seventh at 64 and more).
#[must_use]
pub fn with_safety_margin(transport: Option<GpuTransport>, planned: f64) -> f64 {
    planned * if transport == Some(GpuTransport::Nccl) { NCCL_DOUBT } else { 1.0 }
}

/// Transports that can carry rows between the first `n` GPUs of this process: NCCL, and copies where all GPUs can
/// read each other's memory.
///
/// # Errors
/// When the GPUs cannot be queried.
pub fn transports(n: usize) -> Result<Vec<GpuTransport>, PlannerError> {
    let all_read = n > 1 && !links_of_gpus(n)?.contains(&None);
    Ok(if all_read { GpuTransport::ALL.to_vec() } else { vec![GpuTransport::Nccl] })
}

/// Links between the first `n` GPUs of this process.
fn links_of_gpus(n: usize) -> Result<Vec<Option<i32>>, PlannerError> {
    Device::links(n).map_err(|error| PlannerError::Measure(error.to_string()))
}

/// [`HardwareProfile`] of `n` GPUs of a kind with such links, measured for the first of them and then kept on disk.
fn kept_figures(
    (name, n): (&str, usize),
    transport: GpuTransport,
    measure: impl FnOnce() -> Result<HardwareProfile, PlannerError>,
) -> Result<HardwareProfile, PlannerError> {
    let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
    links_of_gpus(n)?.into_iter().for_each(|link| *kinds.entry(link).or_default() += 1);
    load_or_measure(&format!("{name}, {n} of them, links {kinds:?}, {transport}, {}", software()?), measure)
}

/// Versions of software that measurements depend on.
fn software() -> Result<String, PlannerError> {
    let Driver { release, cuda, .. } = Driver::load().map_err(|error| PlannerError::Measure(error.to_string()))?;
    Ok(format!("driver {} {cuda}, girih {}", release.unwrap_or_default(), env!("CARGO_PKG_VERSION")))
}

/// Measures the profile of the given GPUs now.
fn measured((name, gpus): (&str, &[Cuda]), transport: GpuTransport) -> Result<HardwareProfile, PlannerError> {
    let known = HardwareProfile::h200();
    // Measured before the GPUs become ranks.
    let gpu = kept_gpu(&gpus[0])?;
    let (links, slowdown) = if gpus.len() > 1 { links(gpus, transport)? } else { (known.links, known.slowdown) };
    tracing::debug!("{} GPUs by {transport}: products beside exchanges lose {slowdown:.3}, {links:?}", gpus.len());
    let name = format!("{name}{}", if gpus.len() > 1 { ", links measured" } else { ", links built in" });
    Ok(HardwareProfile { name, gpu, links, slowdown })
}

/// Rates of the operations of a kind of GPU, measured once and kept on disk. They hold for all transports and numbers
/// of GPUs.
fn kept_gpu(cuda: &Cuda) -> Result<GpuRates, PlannerError> {
    let measure = || gpu_rates(cuda, HardwareProfile::h200().gpu);
    load_or_measure(&format!("{}, a GPU, {}", cuda.device().name(), software()?), measure)
}

/// Returns the shortest of [`REPEATS`] measurements, after one warm-up.
fn shortest(mut measure: impl FnMut() -> Result<f64, ComputeError>) -> Result<f64, ComputeError> {
    measure()?;
    (0..REPEATS).try_fold(f64::INFINITY, |best, _| Ok(best.min(measure()?)))
}

/// Measures the rates of a GPU's operations; times of sparse products and of launches are taken from `known`.
fn gpu_rates(cuda: &Cuda, known: GpuRates) -> Result<GpuRates, PlannerError> {
    let ByDtype { f32, bf16 } = flops(cuda)?;
    let flops = ByDtype { f32: DENSE_SHARE * f32, bf16: DENSE_SHARE * bf16 };
    let copied_bytes = 1e9 * cuda.copy_gb_s()?;
    let classes = (0..NODES).map(|node| (node % CLASSES) as u32).collect();
    let labels = Labels::Single { n_classes: CLASSES, classes };
    let (config, dataset) = (without_graph(cuda.activations()), without_edges(FEATURES, labels)?);
    let with = |share: f64| GpuRates { stream_bytes: share * copied_bytes, flops, ..known };
    let share = fitted(cuda, (&config, dataset), STREAM_SHARES, with)?;
    tracing::debug!("passes reach {share:.3} of copies");
    Ok(with(share))
}

/// Measures the rates of a GPU for a session that `n_ranks` share: on each rank's blocks of the graph by rows, with
/// nodes cut as `cuts` says, and on as many rows as a rank has.
///
/// # Errors
/// When the GPU fails, or there are fewer nodes than ranks.
pub fn session(
    cuda: &Cuda,
    (dataset, config): (&Dataset, &TrainConfig),
    has_bf16: bool,
    (n_ranks, cuts): (usize, Cuts),
) -> Result<SessionRates, PlannerError> {
    let widths = widths(dataset, config);
    let entries = entries(cuda, &dataset.graph, (&widths, has_bf16), (n_ranks, cuts))?;
    let speed = speed(cuda, (dataset, config), entries[0], n_ranks).unwrap_or_else(|error| {
        tracing::warn!("plans take usual rates, because the session cannot be measured without edges: {error}");
        1.0
    });
    Ok(SessionRates { entries, speed })
}

/// Widths at which products of a session are timed, in columns, ascending: the usual widths, and those of its
/// features, hidden rows and scores. Interpolation between the usual widths underestimates narrow rows that are no
/// power of two.
fn widths(dataset: &Dataset, config: &TrainConfig) -> Vec<usize> {
    let widest = EntrySeconds::WIDTHS[EntrySeconds::WIDTHS.len() - 1];
    let n_classes = dataset.labels.as_ref().map_or(0, Labels::n_classes);
    let own =
        [dataset.n_features(), config.model.hidden, n_classes].into_iter().filter(|cols| (1..widest).contains(cols));
    EntrySeconds::WIDTHS.into_iter().chain(own).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Measures the speed of a session relative to the rates of the GPU (1.0: as fast). It trains without edges, on as
/// many nodes as a rank has and in the shapes of the session, so that products with the adjacency are left out.
/// Returns 1 for sessions without full batches of dense features.
fn speed(
    cuda: &Cuda,
    (dataset, config): (&Dataset, &TrainConfig),
    entries: ByDtype<BlockSeconds>,
    n_ranks: usize,
) -> Result<f64, PlannerError> {
    let is_full = config.task == TaskKind::Nodes && config.batch == BatchConfig::default();
    let (Some(Features::Dense(_)), Some(labels), true) = (&dataset.features, &dataset.labels, is_full) else {
        return Ok(1.0);
    };
    let gpu = GpuRates { entries, ..kept_gpu(cuda)? };
    let (free, _) = cuda.device().memory().map_err(|error| PlannerError::Measure(error.to_string()))?;
    let most = HOST_BYTES / (dataset.n_features().max(1) * size_of::<f32>());
    let mut n_nodes = dataset.n_nodes().div_ceil(n_ranks).min(most);
    let sizes = DataSizes { n_edges: 0, n_edges_at_once: 0, ..DataSizes::of(dataset) };
    let of = |n_nodes: usize| DataSizes { n_nodes, n_train: n_nodes, n_scored: n_nodes, ..sizes.clone() };
    let usual = TrainConfig { epochs: EPOCHS, eval_every: EPOCHS, patience: None, runs: 1, ..config.clone() };
    while n_nodes > 1 && Plan::on_cuda(&usual, &of(n_nodes))?.device_bytes() > free as u64 {
        n_nodes /= 2;
    }
    let nodes: Vec<NodeId> = (0..n_nodes as NodeId).collect();
    let some = without_edges(dataset.n_features(), labels.of_nodes(&nodes))?;
    let speed = fitted(cuda, (&usual, some), SPEEDS, |speed| gpu.times(speed))?;
    tracing::debug!("{n_nodes} nodes without edges: {speed:.3} times as fast as usual");
    Ok(speed)
}

/// Searches `range` for the argument of `rates` at which the planned epoch takes as long as the measured one. Rates
/// grow with the argument.
fn fitted(
    cuda: &Cuda,
    (config, dataset): (&TrainConfig, Dataset),
    range: (f64, f64),
    rates: impl Fn(f64) -> GpuRates,
) -> Result<f64, PlannerError> {
    let sizes = DataSizes::of(&dataset);
    let measured = epoch_seconds(cuda, config, dataset)?;
    let planned = |at: f64| -> Result<f64, PlannerError> {
        Ok(Plan::on_device(config, &sizes, PlanDevice::Gpu(Some(rates(at))))?.epoch_seconds)
    };
    where_it_takes(measured, range, planned)
}

/// Configuration of a network of two layers that reads no graph.
fn without_graph(precision: Dtype) -> TrainConfig {
    let usual = TrainConfig::for_model(ModelKind::Mlp);
    let model = ModelConfig { layers: 2, hidden: FEATURES, ..usual.model };
    TrainConfig { model, precision, epochs: EPOCHS, eval_every: EPOCHS, ..usual }
}

/// Data set without edges: nodes with these labels and features of the given width. All labelled nodes train.
fn without_edges(n_features: usize, labels: Labels) -> Result<Dataset, PlannerError> {
    let (failed, n) = (|error: String| PlannerError::Measure(error), labels.n_nodes());
    let graph = Csr::empty(n, n).map_err(|error| failed(error.to_string()))?;
    let features = Matrix::new(n, n_features, vec![0.5; n * n_features]).expect("as many values");
    let train = (0..n as NodeId).filter(|&node| labels.is_labelled(node)).collect();
    let split = Split { train, val: Vec::new(), test: Vec::new() };
    Dataset::new("nodes", graph, Some(Features::Dense(features)), Some(labels), vec![split])
        .map_err(|error| failed(error.to_string()))
}

/// Seconds of the shortest epoch of a training run.
fn epoch_seconds(cuda: &Cuda, config: &TrainConfig, dataset: Dataset) -> Result<f64, PlannerError> {
    let mut shortest = f64::INFINITY;
    let mut observe = |event: Event<'_>| {
        if let Event::Epoch { report, .. } = event {
            shortest = shortest.min(report.times.steps.as_secs_f64());
        }
        Control::Continue
    };
    girih_trainer::train(cuda, dataset, config, &SessionOptions::default(), &mut observe)?;
    Ok(shortest)
}

/// Searches a range by bisection for the argument at which `planned` returns the measured seconds. `planned`
/// decreases.
fn where_it_takes(
    measured: f64,
    (mut low, mut high): (f64, f64),
    planned: impl Fn(f64) -> Result<f64, PlannerError>,
) -> Result<f64, PlannerError> {
    /// Number of halvings of the range.
    const STEPS: usize = 30;
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if planned(middle)? > measured { low = middle } else { high = middle }
    }
    Ok(low)
}

/// Floating-point operations per second of a layer's product with its weight.
fn flops(cuda: &Cuda) -> Result<ByDtype<f64>, ComputeError> {
    const SHAPE: (usize, usize, usize) = (1 << 18, 512, 256);
    let (rows, inner, cols) = SHAPE;
    let of = |dtype: Dtype| -> Result<f64, ComputeError> {
        let (a, b) = (cuda.zeros(Shape::new(rows, inner), dtype)?, cuda.zeros(Shape::new(inner, cols), dtype)?);
        let mut out = cuda.zeros(Shape::new(rows, cols), dtype)?;
        let mut product = || cuda.gemm((&a, Transpose::No), None, (&b, Transpose::No), Epilogue::default(), &mut out);
        let seconds = shortest(|| cuda.elapsed(&mut product))?;
        Ok(2.0 * (rows * inner * cols) as f64 / seconds)
    };
    Ok(ByDtype { f32: of(Dtype::F32)?, bf16: of(Dtype::Bf16)? })
}

/// Seconds per entry of `graph` in sparse products at some widths: as one GPU multiplies, and as each of `n_ranks`
/// that hold panels of rows does. Measures all rows, or as many as fit into free memory. bf16 operands are measured
/// only if the session has any, stored or sent as bf16.
///
/// # Errors
/// When the GPU fails, or there are fewer nodes than ranks.
fn entries(
    cuda: &Cuda,
    graph: &Csr,
    at: (&[usize], bool),
    (n_ranks, cuts): (usize, Cuts),
) -> Result<Vec<ByDtype<BlockSeconds>>, PlannerError> {
    let of = |csr: &Csr, kind: BlockKind| entries_of(cuda, csr, kind, at);
    let whole = of(graph, BlockKind::Whole)?;
    if n_ranks == 1 {
        return Ok(vec![by_dtype(|dtype| BlockSeconds::alike(whole.of(dtype)))]);
    }
    let by_rows = ProcessGrid::new(Scheme::OneD, n_ranks, 1)?;
    let panels = BlockPlan::of_graph(&by_rows, graph.indptr(), cuts)?.panels;
    let nnz = block_nnz(graph, &panels);
    let of_panel = |(rank, panel): (usize, &Range<usize>)| -> Result<ByDtype<BlockSeconds>, PlannerError> {
        let own = of(&block(graph, panel, panel), BlockKind::Own)?;
        let others = graph.row_slice(panel.clone()).filtered(|_, column| !panel.contains(&(column as usize)));
        let others = of(&others, BlockKind::Others)?;
        let single = match n_ranks > 2 {
            true => of(&block(graph, panel, &panels[fullest(rank, &nnz[rank])]), BlockKind::Single)?,
            false => others,
        };
        Ok(by_dtype(|dtype| {
            let [whole, own, others, single] = [whole, own, others, single].map(|seconds| seconds.of(dtype));
            BlockSeconds { whole, own, others, single }
        }))
    };
    panels.iter().enumerate().map(of_panel).collect()
}

/// Block of a graph by rows and columns.
fn block(graph: &Csr, rows: &Range<usize>, columns: &Range<usize>) -> Csr {
    graph.block(rows.clone(), columns.clone()).expect("rows and columns of the graph")
}

/// Index of the block with the most entries in a row of blocks, other than the own one. A block without entries gives
/// no timing.
fn fullest(own: usize, nnz: &[u64]) -> usize {
    (0..nnz.len()).filter(|&other| other != own).max_by_key(|&other| nnz[other]).expect("other panels")
}

/// One value for each type of elements.
fn by_dtype<T>(of: impl Fn(Dtype) -> T) -> ByDtype<T> {
    ByDtype { f32: of(Dtype::F32), bf16: of(Dtype::Bf16) }
}

/// Seconds per entry of a matrix that is multiplied as blocks of `kind` are.
fn entries_of(
    cuda: &Cuda,
    csr: &Csr,
    kind: BlockKind,
    (widths, has_bf16): (&[usize], bool),
) -> Result<ByDtype<EntrySeconds>, PlannerError> {
    let (free, _) = cuda.device().memory().map_err(|error| PlannerError::Measure(error.to_string()))?;
    let fitting = part_that_fits(csr, free / FREE_SHARE);
    let csr = fitting.as_ref().unwrap_or(csr);
    // With scales of columns, so that passes over the operand are as in training on one GPU.
    let norm = if kind == BlockKind::Whole { Norm::Symmetric } else { Norm::None };
    let operand = SparseOperand { csr, scales: csr.scales(norm), symmetric: false, names: None };
    let matrix = cuda.upload_sparse(&operand)?;
    let copied_bytes = 1e9 * cuda.copy_gb_s()?;
    let (rows, operand_rows) = (csr.n_rows(), csr.n_cols());
    // Results of the blocks of others are accumulated onto the result of the own block.
    let accumulate = matches!(kind, BlockKind::Others | BlockKind::Single);
    let passed_over = kind.operand_passes() * operand_rows + BlockKind::result_passes(accumulate) * rows;
    let at = |cols: usize, dtype: Dtype| -> Result<f64, ComputeError> {
        let x = cuda.zeros(Shape::new(operand_rows, cols), dtype)?;
        let mut out = cuda.zeros(Shape::new(rows, cols), dtype)?;
        let epilogue = || Epilogue { accumulate, ..Epilogue::default() };
        let mut product = || cuda.spmm((&matrix, Transpose::No), None, &x, epilogue(), &mut out);
        let seconds = shortest(|| cuda.elapsed(&mut product))?;
        Ok(entry_seconds(seconds, csr.nnz(), (passed_over * cols * dtype.n_bytes()) as f64 / copied_bytes))
    };
    let of = |dtype: Dtype| -> Result<EntrySeconds, ComputeError> {
        let times = widths.iter().map(|&cols| Ok((cols, at(cols, dtype)?)));
        Ok(EntrySeconds::at_widths(times.collect::<Result<Vec<_>, ComputeError>>()?))
    };
    let f32 = of(Dtype::F32)?;
    let entries = ByDtype { f32, bf16: if has_bf16 { of(Dtype::Bf16)? } else { f32 } };
    tracing::debug!("entries of {kind:?} ({rows} rows, {} entries): {entries:?}", csr.nnz());
    Ok(entries)
}

/// Seconds per entry of a product with `nnz` entries that takes `seconds`. `passes` is the time of the passes over
/// operand and result ([`BlockKind::operand_passes`]), in seconds at the GPU's copy rate, and is subtracted.
///
/// At least a tenth of the product's time is attributed to the entries.
#[must_use]
pub fn entry_seconds(seconds: f64, nnz: usize, passes: f64) -> f64 {
    (seconds - passes).max(0.1 * seconds) / nnz.max(1) as f64
}

/// Block of as many rows from the middle of a graph as fit with operand and result into `bytes`; `None` if all rows
/// fit.
fn part_that_fits(graph: &Csr, bytes: usize) -> Option<Csr> {
    let widest = EntrySeconds::WIDTHS[EntrySeconds::WIDTHS.len() - 1] * size_of::<f32>();
    let (n, all) = (graph.n_rows(), 2 * widest * (graph.n_rows() + graph.n_cols()) + 16 * graph.nnz());
    if all <= bytes || n == 0 {
        return None;
    }
    let operand = 2 * widest * graph.n_cols();
    let of_rows = (all - operand).max(1);
    let n_rows = ((n as u128 * bytes.saturating_sub(operand) as u128 / of_rows as u128) as usize).clamp(1, n);
    let first = (n - n_rows) / 2;
    Some(graph.block(first..first + n_rows, 0..graph.n_cols()).expect("rows of the graph"))
}
