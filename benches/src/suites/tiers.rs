//! `tiers`: share of reads that a cache of the hottest nodes serves, by prediction of hotness.
//!
//! Each graph has batches of 1024 training nodes with fan-out 15,10,5. Presampling counts reads of an epoch that is
//! not trained; hit rates are counted in batches of the first trained epoch. Times are those of computing the node
//! order, and for presampling include its batches.
//!
//! Columns: `feature_hits_percent` and `row_hits_percent` are the reads served, `expected_percent` the feature hits
//! that the hotness predicts, `inputs_of_nodes_percent` the feature rows that a batch reads.

use std::time::Instant;

use girih_datasets::Dataset;
use girih_features::{AccessFrequencies, AccessFrequency, Hotness, PRESAMPLED_EPOCH, Placement, Visits};
use girih_graph_format::NodeId;
use girih_sampling::{LoaderOptions, NeighborOptions, NeighborSampler, SeedLoader};

use super::setup::Setup;
use crate::timing::Summary;
use crate::{Case, Error, Report, graphs};

/// Graphs of different shapes: many nodes, many edges, few training nodes.
const GRAPHS: [&str; 3] =
    ["synth:products@0.2,features=0", "synth:reddit@0.2,features=0", "synth:papers100m@0.02,features=0"];
const FAN_OUT: &str = "15,10,5";
/// Cached share of the nodes, in per cent.
const CACHED: [usize; 4] = [5, 10, 20, 50];
/// Number of presampled batches, and of counted batches.
const BATCHES: usize = 32;

/// Adds a case for each graph, hotness and cache size.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let default = if setup.small { vec![graphs::SMALL.to_owned()] } else { GRAPHS.map(str::to_owned).to_vec() };
    let specs = if setup.graphs.is_empty() { &default } else { &setup.graphs };
    let mut described = Vec::new();
    for spec in specs {
        let dataset = graphs::load(spec)?;
        described.push(graphs::describe(&dataset));
        add(&dataset, report)?;
    }
    report.graph = Some(described.join("; "));
    Ok(())
}

fn add(dataset: &Dataset, report: &mut Report) -> Result<(), Error> {
    let sampler = NeighborSampler::new(FAN_OUT.parse()?, NeighborOptions::default())?;
    let loader = SeedLoader::new(&dataset.graph, sampler, dataset.seeds(), LoaderOptions::default())?;
    let counted = |epoch| Visits::of(&loader, epoch, BATCHES, rayon::current_num_threads());
    let start = Instant::now();
    let presampled = counted(PRESAMPLED_EPOCH)?;
    let presampling = start.elapsed().as_secs_f64();
    let held_out = counted(0)?;
    for hotness in Hotness::ALL {
        let start = Instant::now();
        let frequencies = hotness.frequencies(&dataset.graph, &dataset.seeds(), &presampled);
        let extra = if hotness == Hotness::Presampled { presampling } else { 0.0 };
        let time = Summary::of(&[start.elapsed().as_secs_f64() + extra]);
        let cases = CACHED.map(|percent| case(dataset, hotness, &frequencies, percent, &held_out, time));
        report.cases.extend(cases);
    }
    // Upper bound: a cache of the nodes that turn out to be read most.
    let in_hindsight = Hotness::Presampled.frequencies(&dataset.graph, &dataset.seeds(), &held_out);
    let none = Summary::of(&[0.0]);
    let best = |percent| {
        let hits = share(&in_hindsight.features, percent, &held_out.features);
        let name = format!("{}/in hindsight/{percent} %", dataset.name);
        Case::new(name, none).with("feature_hits_percent", 100.0 * hits)
    };
    report.cases.extend(CACHED.map(best));
    Ok(())
}

fn case(
    dataset: &Dataset,
    hotness: Hotness,
    frequencies: &AccessFrequencies,
    percent: usize,
    held_out: &Visits,
    time: Summary,
) -> Case {
    let expected = placed(&frequencies.features, percent).shares(|v| frequencies.features.frequency()[v as usize]);
    Case::new(format!("{}/{hotness}/{percent} %", dataset.name), time)
        .with("feature_hits_percent", 100.0 * share(&frequencies.features, percent, &held_out.features))
        .with("expected_percent", 100.0 * expected[0])
        .with("row_hits_percent", 100.0 * share(frequencies.rows(), percent, &held_out.rows))
        .with("inputs_of_nodes_percent", 100.0 * held_out.per_batch().features / dataset.n_nodes() as f64)
}

/// Placement of the hottest nodes on a GPU and of the others in host memory.
fn placed(heat: &AccessFrequency, percent: usize) -> Placement {
    Placement::of_rows(heat.order(), heat.order().len() * percent / 100, 1)
}

/// Share of reads that the GPU serves.
fn share(heat: &AccessFrequency, percent: usize, counts: &[u32]) -> f64 {
    placed(heat, percent).shares(|v: NodeId| f64::from(counts[v as usize]))[0]
}
