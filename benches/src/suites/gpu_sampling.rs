//! `gpu-sampling`: mini-batches of sampled neighbors on a CUDA device, compared with the CPU's sampler.
//!
//! A repetition is several batches without synchronisation with the host. Times are per batch, by the device's clock.
//! The time of a hop is the difference between batches with it and without it.

use std::sync::Arc;

use girih_compute::ComputeError;
use girih_features::{CacheShares, Hotness, Placement, Visits};
use girih_graph_format::{Csr, NodeId};
use girih_kernels::{Cuda, DeviceBatch, DeviceSampler, DeviceTopology};
use girih_sampling::relabel::{NewNodes, Relabel};
use girih_sampling::{
    Columns, DrawKey, EpochPlan, Expand, FanOut, LoaderOptions, NeighborOptions, NeighborSampler, SampleError, Sampler,
    SeedLoader,
};

use super::gpu;
use super::setup::Setup;
use crate::timing::{Contestant, Summary, compete};
use crate::{Case, Error, Goal, Report, graphs};

const GRAPH: &str = "synth:products,features=0";
/// Seeds of a batch, and the fan-out of each hop.
const BATCHES: [(usize, &str); 4] = [(1024, "15,10,5"), (8192, "15,10,5"), (1024, "10,10,25"), (1024, "25,10,40")];
/// Batches of a repetition on the device, and of a quick run.
const N_BATCHES: [usize; 2] = [48, 2];
/// Batches of a repetition on the CPU.
const N_HOST_BATCHES: usize = 4;
/// Batches from which capacities are derived.
const N_MEASURED: usize = 12;
/// Milliseconds for a batch of 1024 on Products, with local ids for all hops and with global ones for the last. They
/// are those of a prototype on an H200.
const PROTOTYPE_MS: [f64; 2] = [0.071, 0.052];

/// Column ids of the last hop, and rule for the nodes that draw.
const FORMS: [(&str, Columns, Expand); 4] = [
    ("local", Columns::Local, Expand::PerLayer),
    ("global", Columns::Global, Expand::PerLayer),
    ("local once", Columns::Local, Expand::Once),
    ("global once", Columns::Global, Expand::Once),
];

/// Adds a case for each batch size and form of blocks, and cases for hops, hash-table relabelling, a graph in host
/// memory, and the CPU.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let cuda = gpu::open_device(report)?;
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let graph = dataset.graph.clone().with_values(None)?;
    let topology = Arc::new(DeviceTopology::on_device(&cuda, &graph)?);
    let far = [0.0, 0.2].map(|share| topology_with(&cuda, &graph, share).map(|topology| (share, topology)));
    let far = far.into_iter().collect::<Result<Vec<_>, _>>()?;
    let seeds = dataset.seeds();
    let is_products = dataset.name.contains("products") && !setup.small;
    for (batch_size, fan_out) in BATCHES {
        let bench = Bench { setup, cuda: &cuda, graph: &graph, seeds: &seeds, batch_size };
        for (form, inputs, expand) in FORMS {
            let options = NeighborOptions { inputs, expand, ..NeighborOptions::default() };
            let time = bench.hops(&topology, (fan_out, form), options, report)?;
            let goal = PROTOTYPE_MS[usize::from(inputs == Columns::Global)];
            if is_products && (batch_size, fan_out, expand) == (1024, "15,10,5", Expand::PerLayer) {
                let what = format!("{batch_size}/{fan_out}/{form}: ms a batch, as the prototype's");
                report.goals.push(Goal::at_most(what, 1e3 * time.median_s, goal));
            }
        }
        let hashed =
            NeighborOptions { relabel: Relabel::Fused, new_nodes: NewNodes::FirstSeen, ..NeighborOptions::default() };
        bench.case(&topology, fan_out, (&format!("{fan_out}/local, hashed"), hashed), report)?;
        let options = NeighborOptions { inputs: Columns::Global, ..NeighborOptions::default() };
        for (share, topology) in &far {
            let what = format!("{fan_out}/global, graph on the host, {share} of the rows on the device");
            bench.case(topology, fan_out, (&what, options), report)?;
        }
        bench.on_cpu(fan_out, report)?;
    }
    Ok(())
}

/// Graph on the host. The rows of a share of the nodes, those with the highest in-degree, are also on the device.
fn topology_with(cuda: &Cuda, graph: &Csr, every_gpu: f64) -> Result<Arc<DeviceTopology>, ComputeError> {
    let frequencies = Hotness::InDegree.frequencies(graph, &[], &Visits::default());
    let shares = CacheShares { every_gpu, one_gpu: 0.0 };
    let placement = Placement::of_shares(frequencies.rows().order(), shares, 1);
    Ok(Arc::new(DeviceTopology::placed(cuda, graph, &placement)?))
}

/// Batches of one size on one graph.
struct Bench<'a> {
    setup: &'a Setup,
    cuda: &'a Cuda,
    graph: &'a Csr,
    seeds: &'a [NodeId],
    batch_size: usize,
}

impl Bench<'_> {
    /// Batches of all hops, and the additional time of each hop.
    fn hops(
        &self,
        topology: &Arc<DeviceTopology>,
        (fan_out, form): (&str, &str),
        options: NeighborOptions,
        report: &mut Report,
    ) -> Result<Summary, Error> {
        let all: FanOut = fan_out.parse()?;
        let n_hops = all.hops().len();
        let mut before = 0.0;
        let mut ms_of_hops = Vec::new();
        for n in 1..n_hops {
            // Hops before the last one get local ids.
            let options = NeighborOptions { inputs: Columns::Local, ..options };
            let (time, _) = self.measure(topology, FanOut::new(&all.hops()[..n])?, options)?;
            ms_of_hops.push(1e3 * (time.median_s - before));
            before = time.median_s;
        }
        let whole = self.case(topology, fan_out, (&format!("{fan_out}/{form}"), options), report)?;
        ms_of_hops.push(1e3 * (whole.median_s - before));
        if let Some(case) = report.cases.last_mut() {
            for (hop, ms) in ms_of_hops.iter().enumerate() {
                case.metrics.insert(format!("ms_hop_{hop}"), *ms);
            }
        }
        Ok(whole)
    }

    /// Case with all hops.
    fn case(
        &self,
        topology: &Arc<DeviceTopology>,
        fan_out: &str,
        (name, options): (&str, NeighborOptions),
        report: &mut Report,
    ) -> Result<Summary, Error> {
        let (time, n_edges) = self.measure(topology, fan_out.parse()?, options)?;
        let case = Case::new(format!("{}/{name}", self.batch_size), time)
            .with("edges", n_edges)
            .with("billion_edges_s", n_edges / time.median_s / 1e9);
        report.cases.push(case);
        Ok(time)
    }

    /// Seconds and edges of a batch.
    fn measure(
        &self,
        topology: &Arc<DeviceTopology>,
        fan_out: FanOut,
        options: NeighborOptions,
    ) -> Result<(Summary, f64), Error> {
        let host = NeighborSampler::new(fan_out, options)?;
        let mut device = DeviceSampler::new(self.cuda, Arc::clone(topology), self.graph, &host, self.batch_size)?;
        let loader = self.loader(host)?;
        let plan = loader.plan(0);
        let measured = (0..N_MEASURED.min(plan.n_batches())).map(|at| (plan.seeds(at), plan.key(at)));
        device.presample(self.cuda, measured)?;
        let mut batch = device.batch(self.cuda)?;
        self.check(&mut device, (loader.sampler(), &plan), &mut batch)?;
        let n_edges = batch.sizes(self.cuda)?.n_edges() as f64;
        let (mut first, n_batches) = (0, N_BATCHES[usize::from(self.setup.small)]);
        let contestant = Contestant::timed("device", || {
            let seconds = self.cuda.elapsed::<Error>(|| {
                for at in (first..first + n_batches).map(|at| at % plan.n_batches()) {
                    device.sample_into(self.cuda, plan.seeds(at), plan.key(at), &mut batch)?;
                }
                Ok(())
            })?;
            first += n_batches;
            Ok(seconds / n_batches as f64)
        });
        let results = compete(self.setup.protocol, vec![contestant])?;
        Ok((results[0].1, n_edges))
    }

    /// Checks that a batch equals the CPU's.
    fn check(
        &self,
        device: &mut DeviceSampler,
        (host, plan): (&NeighborSampler, &EpochPlan),
        batch: &mut DeviceBatch,
    ) -> Result<(), Error> {
        device.sample_into(self.cuda, plan.seeds(0), plan.key(0), batch)?;
        device.complete(self.cuda, batch)?;
        let expected = host.sample(self.graph, plan.seeds(0), plan.key(0))?;
        if batch.to_host(self.cuda)?.digest() != expected.digest() {
            return Err("the device's batch is not the processor's".into());
        }
        Ok(())
    }

    fn loader<'s>(&'s self, sampler: NeighborSampler) -> Result<SeedLoader<'s, NeighborSampler>, SampleError> {
        let options = LoaderOptions { batch_size: self.batch_size, ..LoaderOptions::default() };
        SeedLoader::new(self.graph, sampler, self.seeds.to_vec(), options)
    }

    /// Case of the same batches on one CPU thread.
    fn on_cpu(&self, fan_out: &str, report: &mut Report) -> Result<(), Error> {
        let sampler = NeighborSampler::new(fan_out.parse()?, NeighborOptions::default())?;
        let loader = self.loader(sampler)?;
        let (plan, mut first, mut batch) = (loader.plan(0), 0, girih_sampling::MiniBatch::default());
        let mut sample = |at: usize| -> Result<usize, SampleError> {
            let at = at % plan.n_batches();
            let key: DrawKey = plan.key(at);
            loader.sampler().sample_into(self.graph, plan.seeds(at), key, &mut batch)?;
            Ok(batch.n_edges())
        };
        let n_edges = sample(0)? as f64;
        let contestant = Contestant::timed("processor", || {
            let start = std::time::Instant::now();
            for at in first..first + N_HOST_BATCHES {
                sample(at)?;
            }
            first += N_HOST_BATCHES;
            Ok(start.elapsed().as_secs_f64() / N_HOST_BATCHES as f64)
        });
        let results = compete(self.setup.protocol, vec![contestant])?;
        let time = results[0].1;
        let case = Case::new(format!("{}/{fan_out}/local, one thread of the processor", self.batch_size), time)
            .with("edges", n_edges)
            .with("billion_edges_s", n_edges / time.median_s / 1e9);
        report.cases.push(case);
        Ok(())
    }
}
