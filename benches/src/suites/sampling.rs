//! `sampling`: mini-batches of sampled neighbours, by how they are relabelled and by how many threads, as in paper D's table
//! (classic, two bitmaps, fused) and beside DGL's sampler.
//!
//! A repetition is some batches of 1000 seeds each, one after the other on one thread or side by side on all; times are those
//! of a batch. DGL uses its threads inside a batch.

use std::cell::RefCell;
use std::path::Path;
use std::time::Instant;

use girih_datasets::Dataset;
use girih_graph_format::file::FolderWriter;
use girih_graph_format::{Csr, NodeId};
use girih_sampling::relabel::Relabel;
use girih_sampling::{
    EpochPlan, FanOut, Loader, LoaderOptions, MiniBatch, NeighborOptions, NeighborSampler, SampleError, Sampler,
};

use super::Setup;
use crate::peer::Peer;
use crate::timing::{Contestant, Summary, compete};
use crate::{Case, Error, Goal, Report, graphs};

const GRAPH: &str = "synth:reddit,degree=98";
const FAN_OUTS: [&str; 2] = ["15,10,5", "25,10,10"];
const BATCH_SIZE: usize = 1000;
/// Batches of a repetition.
const BATCHES: usize = 8;
/// How DGL can sample: ids of 32 bits hop by hop, or of 64 bits with its fused operator.
const DGL_IDS: [&str; 2] = ["int32", "int64"];

/// How many times faster than the classic way each way to relabel has to be, on one thread.
const TIMES_CLASSIC: [(Relabel, f64); 3] = [(Relabel::ToBlockFast, 1.6), (Relabel::Fused, 2.0), (Relabel::Rank, 5.0)];
/// How many times faster than the fastest peer girih has to be by default, on one thread and on all.
const TIMES_PEER: [f64; 2] = [8.0, 15.0];

/// Adds a case for each fan-out, way to relabel and number of threads; DGL takes turns with them.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let seeds = seeds(&dataset);
    let mut peer = setup.peer.as_deref().map(|python| start_peer(python, &dataset.graph, &seeds)).transpose()?;
    for fan_out in FAN_OUTS {
        let arms = Arms::new(&dataset.graph, &seeds, fan_out)?;
        let results = compete(setup.protocol, arms.contestants(peer.as_mut().map(RefCell::new).as_ref()))?;
        arms.add(&results, report)?;
    }
    Ok(())
}

/// The training nodes of the first split, or all nodes.
fn seeds(dataset: &Dataset) -> Vec<NodeId> {
    let train = dataset.splits.first().map(|split| split.train.to_vec());
    train.unwrap_or_else(|| (0..dataset.n_nodes() as NodeId).collect())
}

fn start_peer(python: &Path, graph: &Csr, seeds: &[NodeId]) -> Result<Peer, Error> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("data");
    let mut writer = FolderWriter::create(&path)?;
    writer.graph(&graph.clone().with_values(None)?)?;
    writer.array("seeds", &[seeds.len()], seeds)?;
    writer.finish()?;
    // The script has read everything when it is ready, so that the folder may go.
    Peer::start(python, "dgl_sampling.py", &[path.as_os_str()])
}

/// What is compared for one fan-out: each way to relabel on one thread, then the default on all.
struct Arms<'a> {
    graph: &'a Csr,
    plan: EpochPlan,
    fan_out: &'static str,
    samplers: Vec<NeighborSampler>,
    n_threads: usize,
}

impl<'a> Arms<'a> {
    fn new(graph: &'a Csr, seeds: &[NodeId], fan_out: &'static str) -> Result<Self, Error> {
        let hops: FanOut = fan_out.parse()?;
        let sampler =
            |relabel| NeighborSampler::new(hops.clone(), NeighborOptions { relabel, ..NeighborOptions::default() });
        let samplers = Relabel::ALL.into_iter().map(sampler).collect::<Result<_, _>>()?;
        let options = LoaderOptions { batch_size: BATCH_SIZE, ..LoaderOptions::default() };
        let loader = Loader::new(graph, sampler(Relabel::default())?, seeds.to_vec(), options)?;
        Ok(Self { graph, plan: loader.plan(0), fan_out, samplers, n_threads: rayon::current_num_threads() })
    }

    /// One thread and every way to relabel, all threads and the default, and the peer.
    fn contestants<'b>(&'b self, peer: Option<&'b RefCell<&'b mut Peer>>) -> Vec<Contestant<'b>> {
        let name = |what: &str, threads: usize| format!("{}/{what}/{threads} threads", self.fan_out);
        let mut contestants: Vec<Contestant<'b>> = Vec::new();
        for (relabel, sampler) in Relabel::ALL.into_iter().zip(&self.samplers) {
            contestants.push(self.contestant(name(relabel.name(), 1), sampler, 1));
        }
        let fastest = &self.samplers[Relabel::ALL.iter().position(|&way| way == Relabel::default()).unwrap_or(0)];
        contestants.push(self.contestant(name(Relabel::default().name(), self.n_threads), fastest, self.n_threads));
        for ids in peer.iter().flat_map(|_| DGL_IDS) {
            let Some(peer) = peer else { break };
            let (mut first, fan_out) = (0, self.fan_out);
            let name = name(&format!("{} {ids}", peer.borrow().name()), self.n_threads);
            contestants.push(Contestant::timed(name, move || {
                let question = format!("{fan_out} {BATCH_SIZE} {BATCHES} {first} {ids}");
                first += BATCHES * BATCH_SIZE;
                Ok(peer.borrow_mut().ask(&question)? / BATCHES as f64)
            }));
        }
        contestants
    }

    /// Other batches in each repetition, made in memory that is kept.
    fn contestant<'b>(&'b self, name: String, sampler: &'b NeighborSampler, n_threads: usize) -> Contestant<'b> {
        let mut memory: Vec<MiniBatch> = (0..n_threads).map(|_| MiniBatch::default()).collect();
        let mut first = 0;
        Contestant::timed(name, move || {
            let start = Instant::now();
            std::thread::scope(|scope| -> Result<(), Error> {
                let threads = memory.iter_mut().enumerate().map(|(thread, batch)| {
                    scope.spawn(move || self.sample(sampler, (first + thread, first + BATCHES, n_threads), batch))
                });
                let threads: Vec<_> = threads.collect();
                threads.into_iter().try_for_each(|thread| Ok(thread.join().expect("a sampler does not panic")?))
            })?;
            first += BATCHES;
            Ok(start.elapsed().as_secs_f64() / BATCHES as f64)
        })
    }

    /// Every `step`-th batch of a range, beginning anew after the last one of the epoch.
    fn sample(
        &self,
        sampler: &NeighborSampler,
        (first, end, step): (usize, usize, usize),
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        (first..end)
            .step_by(step)
            .map(|at| at % self.plan.n_batches())
            .try_for_each(|at| sampler.sample_into(self.graph, self.plan.seeds(at), self.plan.key(at), batch))
    }

    /// Cases and goals; `results` are in the order of [`contestants`](Self::contestants).
    fn add(&self, results: &[(String, Summary)], report: &mut Report) -> Result<(), Error> {
        let (ours, peers) = results.split_at(Relabel::ALL.len() + 1);
        let fastest_peer = peers.iter().map(|(_, time)| time.median_s).reduce(f64::min);
        let batch = self.samplers[0].sample(self.graph, self.plan.seeds(0), self.plan.key(0))?;
        let n_edges = batch.n_edges() as f64;
        let classic = ours[0].1.median_s;
        for (name, time) in results {
            let mut case = Case::new(name.clone(), *time)
                .with("million_edges_s", n_edges / time.median_s / 1e6)
                .with("x_classic", classic / time.median_s);
            if let Some(peer) = fastest_peer {
                case = case.with("x_peer", peer / time.median_s);
            }
            report.cases.push(case);
        }
        for (relabel, times) in TIMES_CLASSIC {
            let at = Relabel::ALL.iter().position(|&way| way == relabel).unwrap_or(0);
            let what = format!("{}: ms a batch, {times} times faster than the classic", ours[at].0);
            report.goals.push(Goal::at_most(what, 1e3 * ours[at].1.median_s, 1e3 * classic / times));
        }
        for ((name, time), times) in ours[Relabel::ALL.len() - 1..].iter().zip(TIMES_PEER) {
            if let Some(peer) = fastest_peer {
                let what = format!("{name}: ms a batch, {times} times faster than DGL");
                report.goals.push(Goal::at_most(what, 1e3 * time.median_s, 1e3 * peer / times));
            }
        }
        Ok(())
    }
}
