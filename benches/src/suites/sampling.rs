//! `sampling`: mini-batches of sampled neighbors, by relabelling and number of threads, as in paper D's table
//! (classic, two bitmaps, fused), compared with DGL's sampler.
//!
//! A repetition is some batches of 1000 seeds each, sequential on one thread or parallel on all. Times are per batch.
//! DGL uses its threads inside a batch.
//!
//! `x_classic` is the speedup over the relabelling `to-block`, `x_peer` that over the faster of DGL's two.

use std::cell::RefCell;
use std::path::Path;
use std::time::Instant;

use girih_graph_format::file::FolderWriter;
use girih_graph_format::{Csr, NodeId};
use girih_pipeline::Stage;
use girih_sampling::relabel::Relabel;
use girih_sampling::{FanOut, LoaderOptions, NeighborOptions, NeighborSampler, SampleError, SeedLoader};

use super::setup::Setup;
use crate::peer::Peer;
use crate::timing::{Contestant, Summary, compete};
use crate::{Case, Error, Goal, Report, graphs};

const GRAPH: &str = "synth:reddit,degree=98";
const FAN_OUTS: [&str; 2] = ["15,10,5", "25,10,10"];
const BATCH_SIZE: usize = 1000;
/// Batches of a repetition. An epoch has five times as many, so the cost of first batches does not weigh too much.
const BATCHES: usize = 32;
/// Sampling modes of DGL: 32-bit ids hop by hop, or 64-bit ids with its fused operator.
const DGL_IDS: [&str; 2] = ["int32", "int64"];

/// Required speedups over the classic relabelling, the first one, on one thread.
const TIMES_CLASSIC: [f64; 3] = [1.6, 2.0, 5.0];
/// Required speedups of the default relabelling, the last one, over the fastest peer: on one thread and on all.
const TIMES_PEER: [f64; 2] = [8.0, 15.0];

/// Adds a case for each fan-out, relabelling and number of threads; DGL alternates with them.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let seeds = dataset.seeds();
    let mut peer = setup.peer.as_deref().map(|python| start_peer(python, &dataset.graph, &seeds)).transpose()?;
    for fan_out in FAN_OUTS {
        let arms = Arms::new(&dataset.graph, &seeds, fan_out)?;
        let results = compete(setup.protocol, arms.contestants(peer.as_mut().map(RefCell::new).as_ref()))?;
        arms.add(&results, report)?;
    }
    Ok(())
}

fn start_peer(python: &Path, graph: &Csr, seeds: &[NodeId]) -> Result<Peer, Error> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("data");
    let mut writer = FolderWriter::create(&path)?;
    writer.graph(&graph.clone().with_values(None)?)?;
    writer.array("seeds", &[seeds.len()], seeds)?;
    writer.finish()?;
    // A script that is ready has read all its data, so the folder can be deleted.
    Peer::start(python, "dgl_sampling.py", &[path.as_os_str()])
}

/// Loaders for one fan-out: each relabelling on one thread, then the default one on all.
struct Arms<'g> {
    fan_out: &'static str,
    /// Loaders, in the order of [`Relabel::ALL`].
    loaders: Vec<SeedLoader<'g, NeighborSampler>>,
    n_threads: usize,
}

impl<'g> Arms<'g> {
    fn new(graph: &'g Csr, seeds: &[NodeId], fan_out: &'static str) -> Result<Self, Error> {
        let hops: FanOut = fan_out.parse()?;
        let options = LoaderOptions { batch_size: BATCH_SIZE, ..LoaderOptions::default() };
        let loader = |relabel| {
            let sampler =
                NeighborSampler::new(hops.clone(), NeighborOptions { relabel, ..NeighborOptions::default() })?;
            SeedLoader::new(graph, sampler, seeds.to_vec(), options)
        };
        let loaders = Relabel::ALL.into_iter().map(loader).collect::<Result<_, SampleError>>()?;
        Ok(Self { fan_out, loaders, n_threads: rayon::current_num_threads() })
    }

    /// Contestants: every relabelling on one thread, the default one on all threads, and the peer.
    fn contestants<'b>(&'b self, peer: Option<&'b RefCell<&'b mut Peer>>) -> Vec<Contestant<'b>> {
        let name = |what: &str, threads: usize| format!("{}/{what}/{threads} threads", self.fan_out);
        let ours = |loader: &'b SeedLoader<'g, NeighborSampler>, threads: usize| {
            contestant(name(loader.sampler().options().relabel.name(), threads), loader, threads)
        };
        let mut contestants: Vec<Contestant<'b>> = self.loaders.iter().map(|loader| ours(loader, 1)).collect();
        contestants.extend(self.loaders.last().map(|loader| ours(loader, self.n_threads)));
        if let Some(peer) = peer {
            contestants.extend(DGL_IDS.map(|ids| {
                let (mut first, fan_out) = (0, self.fan_out);
                let name = name(&format!("{} {ids}", peer.borrow().name()), self.n_threads);
                Contestant::timed(name, move || {
                    let question = format!("{fan_out} {BATCH_SIZE} {BATCHES} {first} {ids}");
                    first += BATCHES * BATCH_SIZE;
                    Ok(peer.borrow_mut().ask(&question)? / BATCHES as f64)
                })
            }));
        }
        contestants
    }

    /// Adds cases and goals; `results` are in the order of [`contestants`](Self::contestants).
    fn add(&self, results: &[(String, Summary)], report: &mut Report) -> Result<(), Error> {
        let (ours, peers) = results.split_at(Relabel::ALL.len() + 1);
        let fastest_peer = peers.iter().map(|(_, time)| time.median_s).reduce(f64::min);
        let batch = self.loaders[0].epoch(0).next().ok_or("no seeds make no batch")??;
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
        for ((name, time), times) in ours[1..].iter().zip(TIMES_CLASSIC) {
            let what = format!("{name}: ms a batch, {times} times faster than the classic");
            report.goals.push(Goal::at_most(what, 1e3 * time.median_s, 1e3 * classic / times));
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

/// Contestant that samples the next batches in each repetition, wrapping around at the end of the epoch. Memory is
/// reused.
fn contestant<'b>(name: String, loader: &'b SeedLoader<'_, NeighborSampler>, n_threads: usize) -> Contestant<'b> {
    let stage = Stage::new("sample").workers(n_threads).capacity(BATCHES);
    let mut first = 0;
    Contestant::timed(name, move || {
        let epoch = loader.epoch(0);
        let batches = first..(first + BATCHES).min(epoch.len());
        first = batches.end % epoch.len();
        let (n_batches, epoch) = (batches.len(), epoch.batches(batches));
        let start = Instant::now();
        std::thread::scope(|scope| -> Result<(), Error> {
            // A thread drops its batch at once, so that its next batch reuses the memory.
            let mut made = epoch.prefetch_with(stage.clone(), || |_| Ok(())).start_in(scope)?;
            Ok(made.try_for_each(|made| made)?)
        })?;
        Ok(start.elapsed().as_secs_f64() / n_batches as f64)
    })
}
