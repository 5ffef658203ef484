//! `gpu-steps`: sampling a mini-batch and copying its rows to a CUDA device, step by step, as in paper D's tables.
//! Relabelling uses hash maps, bitmaps, a fused pass while edges are drawn, or the device. Rows of features come
//! through pageable memory, pinned memory, or chunks that overlap with copies, or are read in place. They are also
//! decoded from codes on the device.
//!
//! The three stages of training follow, each alone and then overlapped. An epoch should take little longer than the
//! slowest stage.
//!
//! A repetition is several batches, each complete before the next one starts, except where chunks overlap. Times are
//! per batch.
//!
//! Names of cases are `sampling/…`, `rows/…` (`in pieces beside copies` is staged, `in place` UVA), `codes/…` and
//! `stages/STORAGE/…`. `share_of_all` is the time of a stage over that of all overlapped.

use std::sync::Arc;
use std::time::Instant;

use girih_compress::{CodecSpec, CompressedFeatures};
use girih_compute::prelude::*;
use girih_compute::{Dtype, Shape};
use girih_datasets::{Dataset, Features};
use girih_features::{CacheShares, FeatureDevice, FeatureStore, HostReads, Placement};
use girih_graph_format::{Matrix, NodeId};
use girih_kernels::{Cuda, DeviceSampler, DeviceTopology};
use girih_sampling::relabel::Relabel;
use girih_sampling::{EpochPlan, LoaderOptions, MiniBatch, NeighborOptions, NeighborSampler, Sampler, SeedLoader};
use girih_trainer::distributed::GraphPlacement;
use girih_trainer::{CacheConfig, Observer, TrainConfig};

use super::epochs::Epochs;
use super::sampled::{tiers, train_on};
use super::setup::{DTYPES, Setup};
use super::{gpu, sage};
use crate::timing::{Contestant, Summary, compete};
use crate::transfer::{Gathered, Transfer};
use crate::{Case, Error, Goal, Report, graphs};

const GRAPH: &str = "synth:products";
const FAN_OUT: &str = "15,10,5";
const BATCH_SIZE: usize = 1024;
/// Batches of a repetition.
const N_BATCHES: usize = 12;
/// Required speedup of the last transfer method over pageable memory.
const TIMES_PAGEABLE: f64 = 2.0;
/// Codec of the decoded rows (paper B), and the share of the copy rate (read and written bytes) that decoding must
/// reach.
const CODEC: CodecSpec = CodecSpec::Topk(8);
const DECODED_SHARE: f64 = 0.6;
/// Minimum number of columns for that goal: a warp decodes one row, and rows of paper B have 768.
const DECODED_COLUMNS: usize = 512;
/// Maximum time of a batch, relative to its slowest stage.
const TIMES_SLOWEST: f64 = 1.15;

/// Adds a case for each step of sampling and of copying rows.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let cuda = gpu::open_device(report)?;
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let Some(Features::Dense(rows)) = &dataset.features else {
        return Err("gpu-steps brings dense features; name a graph that has some".into());
    };
    let batches = Batches::new(&dataset)?;
    let sampled = compete(setup.protocol, batches.samplers(&cuda)?)?;
    add(report, "sampling", &sampled, None)?;
    let bytes = batches.row_bytes(rows, Dtype::F32);
    let [staged, in_place] = [HostReads::Staged, HostReads::InPlace].map(|reads| far(&cuda, rows, Dtype::F32, reads));
    let (staged, in_place) = (staged?, in_place?);
    let shape = |dtype| (rows.n_cols(), dtype);
    let ways = vec![
        batches.whole(rows, Gathered::Pageable)?,
        batches.whole(rows, Gathered::Pinned)?,
        batches.read("in pieces beside copies", &cuda, (staged.as_ref(), false), shape(Dtype::F32))?,
        batches.read("in place", &cuda, (in_place.as_ref(), false), shape(Dtype::F32))?,
        batches.read("in pieces, but for the batch before", &cuda, (staged.as_ref(), true), shape(Dtype::F32))?,
        batches.read("in place, but for the batch before", &cuda, (in_place.as_ref(), true), shape(Dtype::F32))?,
    ];
    let brought = compete(setup.protocol, ways)?;
    add(report, "rows", &brought, Some(bytes))?;
    let [pageable, best] = [brought[0].1.median_s, brought[2].1.median_s];
    let what = format!("rows/{}: ms a batch, {TIMES_PAGEABLE} times as fast as {}", brought[2].0, brought[0].0);
    report.goals.push(Goal::at_most(what, 1e3 * best, 1e3 * pageable / TIMES_PAGEABLE));
    drop((staged, in_place));
    batches.decoded(setup, (&cuda, rows), report)?;
    DTYPES.iter().try_for_each(|&dtype| batches.stages(setup, (&cuda, rows, dtype), report))
}

/// Feature store of rows in host memory alone.
fn far(cuda: &Cuda, rows: &Matrix, dtype: Dtype, reads: HostReads) -> Result<Box<dyn FeatureStore<Cuda>>, Error> {
    let placement = Placement::of_shares(&ids(rows.n_rows()), CacheShares::default(), 1);
    let far = cuda.host_features(rows, dtype, (&placement, reads))?;
    Ok(far.ok_or("the device has memory of its own")?.reader)
}

/// Adds the cases of a table, each with its speedup over the first one.
fn add(report: &mut Report, table: &str, results: &[(String, Summary)], bytes: Option<f64>) -> Result<(), Error> {
    let first = results[0].1.median_s;
    for (name, time) in results {
        let mut case = Case::new(format!("{table}/{name}"), *time).with("x_first", first / time.median_s);
        if let Some(bytes) = bytes {
            case = case.with("gb_s", bytes / time.median_s / 1e9);
        }
        report.add(case)?;
    }
    Ok(())
}

/// Ids of all nodes.
fn ids(n: usize) -> Vec<NodeId> {
    (0..n as NodeId).collect()
}

/// Batches to sample, and the nodes whose rows they read.
struct Batches<'d> {
    dataset: &'d Dataset,
    seeds: Vec<NodeId>,
    inputs: Vec<Vec<NodeId>>,
}

impl<'d> Batches<'d> {
    fn new(dataset: &'d Dataset) -> Result<Self, Error> {
        let mut batches = Self { dataset, seeds: dataset.seeds(), inputs: Vec::new() };
        let loader = batches.loader(Relabel::default())?;
        let plan = loader.plan(0);
        let sample = |at| Ok(loader.sampler().sample(&dataset.graph, plan.seeds(at), plan.key(at))?.inputs().to_vec());
        let inputs = (0..N_BATCHES.min(plan.n_batches())).map(sample).collect::<Result<_, Error>>()?;
        batches.inputs = inputs;
        Ok(batches)
    }

    /// Mean bytes of the rows that a batch reads.
    fn row_bytes(&self, rows: &Matrix, dtype: Dtype) -> f64 {
        let n_rows = self.inputs.iter().map(Vec::len).sum::<usize>();
        (n_rows * rows.n_cols() * dtype.n_bytes()) as f64 / self.inputs.len() as f64
    }

    fn loader(&self, relabel: Relabel) -> Result<SeedLoader<'d, NeighborSampler>, Error> {
        let sampler =
            NeighborSampler::new(FAN_OUT.parse()?, NeighborOptions { relabel, ..NeighborOptions::default() })?;
        let options = LoaderOptions { batch_size: BATCH_SIZE, ..LoaderOptions::default() };
        Ok(SeedLoader::new(&self.dataset.graph, sampler, self.seeds.clone(), options)?)
    }

    /// Contestants: every relabelling on one CPU thread, and the device.
    fn samplers<'b>(&'b self, cuda: &'b Cuda) -> Result<Vec<Contestant<'b>>, Error> {
        let mut samplers = Vec::new();
        for relabel in Relabel::ALL {
            let loader = self.loader(relabel)?;
            let (plan, mut batch) = (loader.plan(0), MiniBatch::default());
            samplers.push(self.contestant(format!("{relabel}, one thread"), plan, move |seeds, key| {
                Ok(loader.sampler().sample_into(&self.dataset.graph, seeds, key, &mut batch)?)
            }));
        }
        samplers.push(self.on_device("on the device", cuda, true)?);
        Ok(samplers)
    }

    /// Contestant that samples all batches on the device, with synchronisation after each batch or at the end.
    fn on_device<'b>(&'b self, name: &str, cuda: &'b Cuda, waits_for_each: bool) -> Result<Contestant<'b>, Error> {
        let graph = self.dataset.graph.clone().with_values(None)?;
        let topology = Arc::new(DeviceTopology::on_device(cuda, &graph)?);
        let loader = self.loader(Relabel::default())?;
        let mut device = DeviceSampler::new(cuda, topology, &graph, loader.sampler(), BATCH_SIZE)?;
        let plan = loader.plan(0);
        device.presample(cuda, (0..self.inputs.len()).map(|at| (plan.seeds(at), plan.key(at))))?;
        let (mut batch, mut n_left) = (device.batch(cuda)?, 0);
        Ok(self.contestant(name.to_owned(), plan, move |seeds, key| {
            device.sample_into(cuda, seeds, key, &mut batch)?;
            n_left = if n_left == 0 { self.inputs.len() } else { n_left } - 1;
            if waits_for_each || n_left == 0 { Ok(cuda.synchronize()?) } else { Ok(()) }
        }))
    }

    /// Adds a case per storage type for rows decoded from codes on the device.
    fn decoded(&self, setup: &Setup, (cuda, rows): (&Cuda, &Matrix), report: &mut Report) -> Result<(), Error> {
        let codes = CompressedFeatures::fitted(CODEC, rows, 0)?;
        let copied = 1e9 * report.device.as_ref().map_or(0.0, |device| device.copy_gb_s);
        for dtype in DTYPES {
            let reader = cuda.code_rows(&codes, dtype, None)?.ok_or("a device with memory of its own")?;
            let name = format!("codes/{CODEC} to {}", dtype.name());
            let contestant = self.read(&name, cuda, (reader.as_ref(), false), (rows.n_cols(), dtype))?;
            let bytes = self.row_bytes(rows, dtype);
            for (name, time) in compete(setup.protocol, vec![contestant])? {
                let rate = bytes / time.median_s;
                let case = Case::new(name.clone(), time).with("gb_s", rate / 1e9);
                report.add(case.with("share_of_copies", rate / copied))?;
                if rows.n_cols() >= DECODED_COLUMNS {
                    let what = format!("{name}: ms a batch, rows at {DECODED_SHARE} of the rate of copies");
                    let most = bytes / (DECODED_SHARE * copied);
                    report.goals.push(Goal::at_most(what, 1e3 * time.median_s, 1e3 * most));
                }
            }
        }
        Ok(())
    }

    /// Adds a case for each stage of training alone, with features on the host, and for all stages together.
    fn stages(
        &self,
        setup: &Setup,
        (cuda, rows, dtype): (&Cuda, &Matrix, Dtype),
        report: &mut Report,
    ) -> Result<(), Error> {
        let on_host = far(cuda, rows, dtype, HostReads::InPlace)?;
        let sampler = self.on_device("sampler", cuda, false)?;
        let loader = self.read("loader", cuda, (on_host.as_ref(), true), (rows.n_cols(), dtype))?;
        let mut alone = compete(setup.protocol, vec![sampler, loader])?;
        drop(on_host);
        let n_batches = self.seeds.len().div_ceil(BATCH_SIZE).max(1) as f64;
        let train = |features: Option<(f64, f64)>| -> Result<Summary, Error> {
            let epochs = (setup.protocol.warm_up + setup.protocol.repeats) as u64;
            let host_reads = if features.is_some() { HostReads::InPlace } else { HostReads::default() };
            let tiers = CacheConfig { host_reads, ..tiers(features, None) };
            let plain = sage::config(setup.hidden.unwrap_or(sage::HIDDEN), BATCH_SIZE);
            let config = TrainConfig { precision: dtype, tiers, epochs, eval_every: epochs, ..plain };
            let train = |observe: &mut Observer<'_>| {
                train_on((1, GraphPlacement::default(), None), self.dataset, &config, observe)
            };
            Ok(Epochs::of(setup.protocol, &mut [], train)?.epoch().scaled(1.0 / n_batches))
        };
        // With all data on the device there is no loading stage, and sampling takes a small part.
        alone.push(("trainer".to_owned(), train(None)?));
        let (all, slowest) =
            (train(Some((0.0, 0.0)))?, alone.iter().map(|(_, time)| time.median_s).fold(0.0, f64::max));
        let group = format!("stages/{}", dtype.name());
        for (name, time) in &alone {
            let case = Case::new(format!("{group}/{name} alone"), *time);
            report.add(case.with("share_of_all", time.median_s / all.median_s))?;
        }
        report.add(Case::new(format!("{group}/all"), all).with("x_slowest", all.median_s / slowest))?;
        let what = format!("{group}/all: ms a batch, {TIMES_SLOWEST} times the slowest stage");
        report.goals.push(Goal::at_most(what, 1e3 * all.median_s, 1e3 * slowest * TIMES_SLOWEST));
        Ok(())
    }

    /// Contestant that samples all batches.
    fn contestant<'b>(
        &'b self,
        name: String,
        plan: EpochPlan,
        mut sample: impl FnMut(&[NodeId], girih_sampling::DrawKey) -> Result<(), Error> + 'b,
    ) -> Contestant<'b> {
        Contestant::timed(name, move || {
            let start = Instant::now();
            (0..self.inputs.len()).try_for_each(|at| sample(plan.seeds(at), plan.key(at)))?;
            Ok(start.elapsed().as_secs_f64() / self.inputs.len() as f64)
        })
    }

    /// Contestant that copies the rows of all batches as common loaders do.
    fn whole<'b>(&'b self, rows: &'b Matrix, gathered: Gathered) -> Result<Contestant<'b>, Error> {
        let largest = self.inputs.iter().map(Vec::len).max().unwrap_or(0);
        let mut transfer = Transfer::new(rows, gathered, largest)?;
        let name = if gathered == Gathered::Pageable {
            "gathered, then copied"
        } else {
            "gathered in pinned memory, then copied"
        };
        Ok(Contestant::timed(name, move || {
            let start = Instant::now();
            self.inputs.iter().try_for_each(|nodes| transfer.bring(nodes))?;
            Ok(start.elapsed().as_secs_f64() / self.inputs.len() as f64)
        }))
    }

    /// Contestant in which the device reads the rows of all batches; each gather starts before the previous one ends.
    /// If requested, rows of the previous batch are reused.
    fn read<'b>(
        &'b self,
        name: &str,
        cuda: &'b Cuda,
        (reader, takes_from_before): (&'b dyn FeatureStore<Cuda>, bool),
        (n_columns, dtype): (usize, Dtype),
    ) -> Result<Contestant<'b>, Error> {
        let ids = self.inputs.iter().map(|nodes| cuda.upload_ids(nodes)).collect::<Result<Vec<_>, _>>()?;
        let out = |nodes: &Vec<NodeId>| cuda.zeros(Shape::new(nodes.len(), n_columns), dtype);
        let mut outs = self.inputs.iter().map(out).collect::<Result<Vec<_>, _>>()?;
        Ok(Contestant::timed(name, move || {
            cuda.synchronize()?;
            let start = Instant::now();
            let mut last = None;
            for at in 0..ids.len() {
                let (done, next) = outs.split_at_mut(at);
                let before = done.last().filter(|_| takes_from_before).map(|rows| (&ids[at - 1], rows));
                if let Some(last) = last.replace(reader.gather_async(cuda, &ids[at], before, &mut next[0])?) {
                    last.wait()?;
                }
            }
            last.map_or(Ok(()), |last| last.wait())?;
            cuda.synchronize()?;
            Ok(start.elapsed().as_secs_f64() / self.inputs.len() as f64)
        }))
    }
}
