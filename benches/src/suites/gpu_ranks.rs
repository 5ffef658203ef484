//! `gpu-ranks`: full training epochs of a GCN on one CUDA device and on several, by partition, exchange and node
//! order.
//!
//! An order covers the whole graph, divided by nodes and edges (`whole`), or stays inside the row blocks of the
//! partition (`inside`), so that every device keeps its share of edges. One device uses the order of the whole graph.
//! The last part of a name is the number of stages in which rows travel. A suffix `/rounded` means rows rounded to
//! bf16 for transport, and `/peer` rows copied from the memory of other devices. With `--timelines DIR`, every case
//! on several devices trains a few more epochs and writes their timeline there. It also reports the activity of the
//! busiest device in one epoch.
//!
//! Names of cases are `ORDER-WHERE/STORAGE/GPUS/PARTITION/EXCHANGE/STAGES`; `--way` selects them from PARTITION on.
//! Columns: `predicted_ms` is the planner's epoch, `bound_ms` the larger of computation and exchanges. Timelines add
//! `kernels_ms`, `exchanges_ms` and `both_ms` of the GPU that computed longest.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

use girih_comm::GpuTransport;
use girih_compute::Dtype;
use girih_datasets::Dataset;
use girih_kernels::{Cuda, Device, NcclRank, Timeline};
use girih_partition::{Cuts, Exchange, ProcessGrid, Scheme, Stages};
use girih_trainer::distributed::{RankJob, RankOptions, TrainJob};
use girih_trainer::{Control, Event, ModelConfig, Observer, Outcome, SessionOptions, TrainConfig};

use super::epochs::Epochs;
use super::gpu::{self, Order};
use super::gpu_fullbatch::{gcn, hidden};
use super::predicted::Predictions;
use super::setup::{DTYPES, Setup};
use super::several::Times;
use crate::timing::{Protocol, Summary};
use crate::{Case, Error, Goal, Report, graphs, occupancy};

/// Default number of layers.
const LAYERS: usize = 2;
/// Maximum number of devices to compare.
const GPUS_MAX: usize = 4;
/// Required speedup over one device: number of devices, speedup if an epoch on one device is long, and if it is short
/// (`None` for no requirement).
const TIMES_ONE: [(usize, f64, Option<f64>); 2] = [(2, 1.7, None), (4, 3.0, Some(2.3))];
/// Milliseconds of a short epoch.
const SHORT_MS: f64 = 12.0;
/// Time that a rank waits for another.
const DEADLINE: Duration = Duration::from_secs(60);
/// Epochs of a recorded training: some before steps are CUDA graphs, and a few after.
const TRACED: u64 = 6;

/// Adds a case for one device, and those of two and four devices if present, for each storage type.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let n_gpus = n_gpus(report)?;
    let spec = setup.graph_or(graphs::FULL);
    let dataset = graphs::load(spec)?;
    report.graph = Some(graphs::describe(&dataset));
    let suite = Ranks { hidden: hidden(setup, spec), layers: setup.layers.unwrap_or(LAYERS), protocol: setup.protocol };
    let transports = setup.transports_or(&[GpuTransport::Nccl]);
    // The plans for four devices include those for two.
    let wanted = setup.ways_of(named_plans(GPUS_MAX, transports), |(name, _)| name)?;
    let mut predictions = Predictions::new(n_gpus.min(GPUS_MAX), transports)?;
    let mut by_storage = DTYPES.map(Times::of);
    for &kind in setup.orders_or(&gpu::ORDERS) {
        let whole = ordered(&dataset, &Order::find(kind, &dataset.graph)?)?;
        let mut alone = Vec::new();
        for (precision, times) in DTYPES.into_iter().zip(&mut by_storage) {
            let time = suite.on_one(&whole, precision)?;
            let case = times.note(1, Case::new(format!("{kind}/{}/1", precision.name()), time));
            report.add(case.with("x_one", 1.0))?;
            alone.push(time);
        }
        for n in [2, 4].into_iter().filter(|n| *n <= n_gpus) {
            let inside = ordered(&dataset, &Order::inside(kind, n, &dataset.graph)?)?;
            for (where_, dataset, cuts) in [("whole", &whole, Cuts::Weighted), ("inside", &inside, Cuts::Equal)] {
                for ((precision, one), times) in DTYPES.into_iter().zip(&alone).zip(&mut by_storage) {
                    let predicted = predictions.of(dataset, &suite.config(precision), (n, cuts))?;
                    let group = format!("{kind}-{where_}/{}/{n}", precision.name());
                    let all = named_plans(n, transports).into_iter().filter(|(_, (plan, _))| plan.suits(precision));
                    for (name, (sharing, transport)) in
                        all.filter(|plan| wanted.iter().any(|wanted| wanted.0 == plan.0))
                    {
                        let several = Several::new((n, cuts), sharing, (precision, transport))?;
                        let time = suite.on_several(dataset, &several)?;
                        let case = times.note(n, Case::new(format!("{group}/{name}"), time));
                        let case = case.with("x_one", one.median_s / time.median_s);
                        let like = if sharing.rounds() { format!("{group}/rounded") } else { group.clone() };
                        let mut case =
                            predictions.beside(case, &like, (transport, &predicted.estimate(&several.ranks)?));
                        if let Some(folder) = &setup.timelines {
                            case = suite.traced(dataset, &several, case, folder)?;
                        }
                        report.add(case)?;
                    }
                }
            }
        }
    }
    report.goals.extend(predictions.goals());
    report.goals.extend(by_storage.iter().flat_map(goals_beside_one));
    Ok(())
}

/// Goals for the fastest plan of each number of devices.
fn goals_beside_one(times: &Times) -> Vec<Goal> {
    let Some(one_ms) = times.fastest_ms(1) else { return Vec::new() };
    let wanted = |(n, long, short)| Some((n, if one_ms > SHORT_MS { long } else { short? }));
    TIMES_ONE.into_iter().filter_map(wanted).filter_map(|(n, wanted)| times.goal(n, wanted)).collect()
}

/// Division of the work over devices.
#[derive(Clone, Copy)]
struct Sharing {
    scheme: Scheme,
    exchange: Exchange,
    stages: Stages,
    chunks: usize,
    /// Type in which `f32` rows travel.
    wire: Dtype,
}

impl Sharing {
    /// Whole panels in one stage, and products in one chunk.
    fn plain(scheme: Scheme) -> Self {
        Self { scheme, exchange: Exchange::Dense, stages: Stages::Parts(1), chunks: 1, wire: Dtype::F32 }
    }

    /// Part of a case's name that describes the division.
    fn name(&self) -> String {
        let Self { scheme, exchange, stages, chunks, .. } = self;
        let chunked = if *chunks > 1 { format!("/{chunks}-chunks") } else { String::new() };
        let rounded = if self.rounds() { "/rounded" } else { "" };
        format!("{scheme}/{exchange}/{stages}{chunked}{rounded}")
    }

    /// Whether rows are rounded before transport, which changes results.
    fn rounds(&self) -> bool {
        self.wire == Dtype::Bf16
    }

    /// Whether the division applies to a storage type. Rows of bf16 travel as they are, so rounding only applies to
    /// `f32`.
    fn suits(&self, precision: Dtype) -> bool {
        !self.rounds() || precision == Dtype::F32
    }
}

/// Divisions to compare on `n` devices.
fn plans(n: usize) -> Vec<Sharing> {
    let rows = Sharing::plain(Scheme::OneD);
    let in_parts = |sharing, n| Sharing { stages: Stages::Parts(n), ..sharing };
    let lists = Sharing { exchange: Exchange::Rows, ..rows };
    // With two devices each gets the other's panel at once, so turns make no difference.
    let turns = (n > 2).then_some(Stages::Turns);
    let stages = [1, 2, 3, 4].map(Stages::Parts).into_iter().chain(turns);
    let both =
        [rows, lists].into_iter().flat_map(|sharing| stages.clone().map(move |stages| Sharing { stages, ..sharing }));
    let others = [Sharing { stages: Stages::Steps, ..rows }, Sharing { wire: Dtype::Bf16, ..rows }];
    let mut plans: Vec<Sharing> = both.chain(others).collect();
    if n == 4 {
        let followed = [Scheme::OneAndHalfD, Scheme::TwoD].map(Sharing::plain);
        plans
            .extend(followed.into_iter().flat_map(|plain| [plain, in_parts(plain, 4), Sharing { chunks: 4, ..plain }]));
    }
    plans
}

/// Divisions with each transport, and their parts of case names.
fn named_plans(n: usize, transports: &[GpuTransport]) -> Vec<(String, (Sharing, GpuTransport))> {
    let by_each = |sharing: Sharing| {
        transports.iter().map(move |&by| (format!("{}{}", sharing.name(), suffix(by)), (sharing, by)))
    };
    plans(n).into_iter().flat_map(by_each).collect()
}

/// Suffix of a case's name for the transport.
fn suffix(transport: GpuTransport) -> &'static str {
    match transport {
        GpuTransport::Nccl => "",
        GpuTransport::Peer => "/peer",
    }
}

/// Process grid of `n` devices; in 1.5D, two devices hold the same rows.
fn grid(n: usize, scheme: Scheme) -> Result<ProcessGrid, Error> {
    Ok(ProcessGrid::new(scheme, n, if scheme == Scheme::OneAndHalfD { 2 } else { 1 })?)
}

/// Data in a node order.
fn ordered(dataset: &Dataset, order: &Order) -> Result<Dataset, Error> {
    Ok(match &order.permutation {
        Some(permutation) => dataset.clone().permuted(permutation)?,
        None => dataset.clone(),
    })
}

/// Number of devices; records the first one.
fn n_gpus(report: &mut Report) -> Result<usize, Error> {
    drop(gpu::open_device(report)?);
    Ok((1..).find(|&ordinal| Device::open(ordinal).is_err()).unwrap_or(1))
}

/// Opens a device as training does.
fn open(ordinal: usize, precision: Dtype) -> Result<Cuda, Error> {
    Ok(Cuda::new(Device::open(ordinal)?).storing(precision))
}

struct Ranks {
    hidden: usize,
    layers: usize,
    protocol: Protocol,
}

impl Ranks {
    fn config(&self, precision: Dtype) -> TrainConfig {
        let config = gcn(self.hidden, precision, true, self.protocol);
        TrainConfig { model: ModelConfig { layers: self.layers, ..config.model }, ..config }
    }

    fn on_one(&self, dataset: &Dataset, precision: Dtype) -> Result<Summary, Error> {
        let config = self.config(precision);
        Ok(Epochs::time(&open(0, precision)?, dataset.clone(), &config, self.protocol, &mut [])?.epoch())
    }

    fn on_several(&self, dataset: &Dataset, several: &Several) -> Result<Summary, Error> {
        let config = self.config(several.precision);
        Ok(Epochs::of(self.protocol, &mut [], |observe| several.train(dataset, &config, observe))?.epoch())
    }

    /// Trains a few more epochs and writes their timeline to `folder`, named by the case. Adds the activity of the
    /// device that computed longest in one epoch.
    fn traced(&self, dataset: &Dataset, several: &Several, case: Case, folder: &Path) -> Result<Case, Error> {
        let timeline = Timeline::begin()?;
        let config = TrainConfig { epochs: TRACED, eval_every: TRACED, ..self.config(several.precision) };
        let mut failure = None;
        several.train(dataset, &config, &mut |event| {
            let marked = match event {
                Event::Epoch { report, .. } => timeline.mark(&format!("epoch {}", report.epoch)),
                _ => timeline.mark("before"),
            };
            marked.map_or_else(
                |error| {
                    failure = Some(error);
                    Control::Stop
                },
                |()| Control::Continue,
            )
        })?;
        let trace = timeline.finish()?;
        if let Some(error) = failure {
            return Err(error.into());
        }
        fs::create_dir_all(folder)?;
        trace.write_json(BufWriter::new(File::create(
            folder.join(case.name.replace('/', "-")).with_extension("json"),
        )?))?;
        let gpus = occupancy::of_epoch(&trace);
        let Some(busiest) = gpus.into_iter().max_by(|a, b| a.kernels.total_cmp(&b.kernels)) else { return Ok(case) };
        Ok(case
            .with("traced_ms", 1e3 * busiest.epoch)
            .with("kernels_ms", 1e3 * busiest.kernels)
            .with("exchanges_ms", 1e3 * busiest.exchanges)
            .with("both_ms", 1e3 * busiest.both))
    }
}

/// Devices that train together.
struct Several {
    ranks: RankOptions,
    precision: Dtype,
}

impl Several {
    fn new(
        (n, cuts): (usize, Cuts),
        Sharing { scheme, exchange, stages, chunks, wire }: Sharing,
        (precision, transport): (Dtype, GpuTransport),
    ) -> Result<Self, Error> {
        let ranks =
            RankOptions { cuts, stages, chunks, wire, ..RankOptions::new(grid(n, scheme)?, exchange, DEADLINE) };
        Ok(Self { ranks: RankOptions { transport: Some(transport), ..ranks }, precision })
    }

    fn train(&self, dataset: &Dataset, config: &TrainConfig, observe: &mut Observer<'_>) -> Result<Outcome, Error> {
        // A device joins ranks only once, so devices are opened here.
        let gpus: Vec<Cuda> =
            (0..self.ranks.grid.ranks()).map(|ordinal| open(ordinal, self.precision)).collect::<Result<_, Error>>()?;
        let connect =
            |cuda: &Cuda, world| NcclRank::connect(cuda, world, DEADLINE, self.ranks.transport.unwrap_or_default());
        let session = SessionOptions::default();
        Ok(TrainJob::new(dataset.clone(), config, &self.ranks, &session, observe).on_devices(&gpus, connect)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_devices_make_grids_that_two_do_not() {
        assert!(plans(2).iter().all(|sharing| sharing.scheme == Scheme::OneD));
        let names = |n| -> Vec<String> { named_plans(n, &GpuTransport::ALL).into_iter().map(|plan| plan.0).collect() };
        assert!(names(2).iter().all(|name| names(4).contains(name)), "{:?}", names(2));
        for sharing in plans(4) {
            assert!(grid(4, sharing.scheme).is_ok());
        }
    }

    #[test]
    fn rows_of_bf16_travel_in_one_way() {
        let of = |precision| plans(2).iter().filter(|plan| plan.suits(precision)).count();
        assert_eq!(of(Dtype::F32), of(Dtype::Bf16) + 1);
    }

    #[test]
    fn goals_are_for_the_fastest_of_each_number_of_devices() {
        let goals = |ways: &[(usize, f64)]| {
            let mut times = Times::of(Dtype::F32);
            for &(n, ms) in ways {
                times.note(n, Case::new("a way", Summary::of(&[ms / 1e3])));
            }
            goals_beside_one(&times)
        };
        let found = |ways: &[(usize, f64)]| -> Vec<(f64, bool)> {
            goals(ways).iter().map(|goal| (goal.found.round(), goal.is_met)).collect()
        };
        let (long, short) = ([(1, 100.0), (1, 90.0), (2, 60.0), (4, 29.0), (4, 40.0)], [(1, 6.0), (2, 5.0), (4, 2.0)]);
        assert_eq!(found(&long), [(60.0, false), (29.0, true)]);
        assert_eq!(found(&short), [(2.0, true)]);
        assert!(goals(&[]).is_empty());
    }

    #[test]
    fn networks_are_as_deep_as_told() {
        let ranks = Ranks { hidden: 32, layers: 4, protocol: Protocol::default() };
        assert_eq!((ranks.config(Dtype::Bf16).model.layers, ranks.config(Dtype::Bf16).model.hidden), (4, 32));
    }
}
