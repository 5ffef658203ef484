//! `gpu-minibatch`: epochs of GraphSAGE on sampled neighbors on CUDA devices, compared with PyG's loader and with
//! WholeGraph's sampler and features under PyG's layers. Graph and features are in device memory, in that of other
//! devices (read in place or exchanged), or in host memory. Each placement is a case, so that the report compares
//! their costs.
//!
//! The device runs asynchronously to the host, so only whole epochs are timed, each with all its batches. Peers run
//! after girih and do not alternate.
//!
//! Cases with 1024 seeds a device and bf16 are `nothing ahead` (no prefetch), `features on the host, staged` or
//! `in-place`, `features, cache SHARE`, `graph, cache SHARE`, `topk:8 on the device` or `host`, `N devices, …` (every
//! row on each device, on one, or on the host), `both in patches` (by the faster transport, `by NCCL` or `in place`),
//! and `features in patches` (over devices, or over hosts: plain, a fifth cached, or as codes).

use std::path::Path;

use girih_comm::GpuTransport;
use girih_compress::CodecSpec;
use girih_compute::Dtype;
use girih_datasets::Dataset;
use girih_features::HostReads;
use girih_trainer::distributed::GraphPlacement;
use girih_trainer::{BatchConfig, CacheConfig, Observer, TrainConfig};

use super::epochs::Epochs;
use super::sampled::{n_devices, tiers, train_on};
use super::setup::{DTYPES, Setup};
use super::several::Times;
use super::{gpu, sage};
use crate::peer::Peer;
use crate::timing::{Contestant, Protocol, Summary, compete};
use crate::{Case, Error, Goal, Report, graphs};

const GRAPH: &str = "synth:products";
/// Scripts of the peers, with the columns of girih's speedups over them. Goals are about the first.
const PEERS: [(&str, &str); 2] = [("pyg_minibatch.py", "x_peer"), ("wholegraph_pyg.py", "x_wholegraph")];
/// Seeds of a batch. Peers, and all tables but the first, use the first number.
const BATCH_SIZES: [usize; 2] = [1024, 8192];
/// Shares of features, or of rows of the graph, that every device caches while the host holds all.
const CACHES: [f64; 5] = [0.0, 0.1, 0.2, 0.5, 1.0];
/// Numbers of devices, in addition to one.
const SEVERAL: [usize; 2] = [2, 4];
/// Required speedup of four devices over one.
const TIMES_ONE: f64 = 2.5;

/// Training variant.
struct Way {
    name: String,
    n_devices: usize,
    layout: GraphPlacement,
    /// Transport of patches; `None` for the faster one.
    transport: Option<GpuTransport>,
    config: TrainConfig,
    /// Required speedup over the first peer's epoch, if any.
    times_peer: Option<f64>,
}

/// Adds a case for each training variant, and the peers'.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    drop(gpu::open_device(report)?);
    let hidden = setup.hidden.unwrap_or(sage::HIDDEN);
    let ways = setup.ways_of(ways(hidden, n_devices(), setup.protocol), |way| &way.name)?;
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let peers = setup.peer.as_deref().map(|python| start_peers(python, &dataset, hidden)).transpose()?;
    let n_train = dataset.splits.first().map_or(0, |split| split.train.len());
    let (mut peers_turn, mut alike) = (Vec::new(), Times::of(Dtype::Bf16));
    for way in ways {
        let epoch = epoch_of(&way, &dataset, setup.protocol)?;
        let n_batches = n_train.div_ceil(way.config.batch_size.unwrap_or(n_train).max(1));
        let mut case =
            Case::new(way.name.clone(), epoch).with("ms_a_batch", 1e3 * epoch.median_s / n_batches.max(1) as f64);
        peers_turn.extend(way.times_peer.map(|times| (report.cases.len(), times, epoch.median_s)));
        let TrainConfig { batch_size, precision, codec, .. } = &way.config;
        if (*batch_size, *precision, codec) == (Some(way.n_devices * BATCH_SIZES[0]), Dtype::Bf16, &None) {
            case = alike.note(way.n_devices, case);
        }
        report.add(case)?;
    }
    report.goals.extend(alike.goal(4, TIMES_ONE));
    for (mut peer, column) in peers.unwrap_or_default() {
        let name = peer.name().to_owned();
        let theirs = peer_epoch(&mut peer, setup.protocol)?;
        for &(at, times, ours) in &peers_turn {
            let case = &mut report.cases[at];
            *case = case.clone().with(column, theirs.median_s / ours);
            if column == PEERS[0].1 {
                let what = format!("{}, ms, {times} times as fast as {name}", case.name);
                report.goals.push(Goal::at_most(what, 1e3 * ours, 1e3 * theirs.median_s / times));
            }
        }
        report.cases.push(Case::new(format!("{}/{name}", BATCH_SIZES[0]), theirs));
    }
    Ok(())
}

/// Starts all peers that can be, each with its column. The others say on standard error what they lack.
///
/// # Errors
/// When none can be started.
fn start_peers(python: &Path, dataset: &Dataset, hidden: usize) -> Result<Vec<(Peer, &'static str)>, Error> {
    let (mut peers, mut errors) = (Vec::new(), Vec::new());
    for (script, column) in PEERS {
        match sage::start_peer(python, script, dataset, (hidden, BATCH_SIZES[0])) {
            Ok(peer) => peers.push((peer, column)),
            Err(error) => errors.push(error.to_string()),
        }
    }
    if peers.is_empty() {
        return Err(errors.join("; ").into());
    }
    errors.iter().for_each(|error| eprintln!("without a peer: {error}"));
    Ok(peers)
}

/// All variants on one device and on up to `n_devices`.
fn ways(hidden: usize, n_devices: usize, protocol: Protocol) -> Vec<Way> {
    let config = |batch_size| config((hidden, batch_size), protocol);
    let way = |name: String, config: TrainConfig| {
        let (n_devices, layout, transport, times_peer) = (1, GraphPlacement::default(), None, None);
        Way { name, n_devices, layout, transport, config, times_peer }
    };
    let mut ways = Vec::new();
    for batch_size in BATCH_SIZES {
        for precision in DTYPES {
            let name = format!("{batch_size}/{}", precision.name());
            let all = TrainConfig { precision, ..config(batch_size) };
            let far = TrainConfig { tiers: tiers(Some((0.0, 0.0)), None), ..all.clone() };
            let goal = |times| (batch_size == BATCH_SIZES[0]).then_some(times);
            let on_device = if precision == Dtype::Bf16 { 100.0 } else { 45.0 };
            ways.push(Way { times_peer: goal(on_device), ..way(name.clone(), all) });
            ways.push(Way { times_peer: goal(20.0), ..way(format!("{name}/features on the host"), far) });
        }
    }
    let all = TrainConfig { precision: Dtype::Bf16, ..config(BATCH_SIZES[0]) };
    let group = format!("{}/{}", BATCH_SIZES[0], all.precision.name());
    let placed = |tiers| TrainConfig { tiers, ..all.clone() };
    let in_turn = |of: TrainConfig| TrainConfig { batch: BatchConfig { prefetch: 0, ..of.batch.clone() }, ..of };
    ways.push(way(format!("{group}/nothing ahead"), in_turn(all.clone())));
    let far = placed(tiers(Some((0.0, 0.0)), None));
    ways.push(way(format!("{group}/features on the host, nothing ahead"), in_turn(far.clone())));
    for host_reads in [HostReads::Staged, HostReads::InPlace] {
        let far = CacheConfig { host_reads, ..far.tiers };
        ways.push(way(format!("{group}/features on the host, {host_reads}"), placed(far)));
    }
    for share in &CACHES[1..] {
        ways.push(way(format!("{group}/features, cache {share}"), placed(tiers(Some((*share, 0.0)), None))));
    }
    for share in CACHES {
        ways.push(way(format!("{group}/graph, cache {share}"), placed(tiers(None, Some((share, 0.0))))));
    }
    for (name, features) in [("device", None), ("host", Some((0.0, 0.0)))] {
        let codec = Some(CodecSpec::Topk(8));
        ways.push(way(format!("{group}/topk:8 on the {name}"), TrainConfig { codec, ..placed(tiers(features, None)) }));
    }
    for n in SEVERAL.into_iter().filter(|n| *n <= n_devices) {
        // Every device gets the full number of seeds, as in DSP.
        let of_all = TrainConfig { batch_size: Some(n * BATCH_SIZES[0]), ..all.clone() };
        for (name, tiers) in [
            ("all on each", CacheConfig::default()),
            ("graph on one each", tiers(None, Some((0.0, 1.0)))),
            ("graph on the host", tiers(None, Some((0.0, 0.0)))),
            ("features on one each", tiers(Some((0.0, 1.0)), None)),
            ("both on one each", tiers(Some((0.0, 1.0)), Some((0.0, 1.0)))),
            ("features on the host", tiers(Some((0.0, 0.0)), None)),
        ] {
            let config = TrainConfig { tiers, ..of_all.clone() };
            ways.push(Way { n_devices: n, ..way(format!("{group} a device/{n} devices, {name}"), config) });
        }
        let patches = [("", None), (" by NCCL", Some(GpuTransport::Nccl)), (" in place", Some(GpuTransport::Peer))];
        for (by, transport) in patches {
            let patches = way(format!("{group} a device/{n} devices, both in patches{by}"), of_all.clone());
            ways.push(Way { n_devices: n, layout: GraphPlacement::Patches, transport, ..patches });
        }
        for (name, features, codec) in [
            ("features in patches", None, None),
            ("features in patches on hosts", Some((0.0, 0.0)), None),
            ("features in patches on hosts, cache 0.2", Some((0.2, 0.0)), None),
            ("topk:8 in patches on hosts", Some((0.0, 0.0)), Some(CodecSpec::Topk(8))),
        ] {
            let config = TrainConfig { tiers: tiers(features, None), codec, ..of_all.clone() };
            let split = way(format!("{group} a device/{n} devices, {name}"), config);
            ways.push(Way { n_devices: n, layout: GraphPlacement::SplitFeatures, ..split });
        }
    }
    ways
}

/// Configuration with as many epochs as are timed, warm-up included.
fn config((hidden, batch_size): (usize, usize), protocol: Protocol) -> TrainConfig {
    let epochs = (protocol.warm_up + protocol.repeats) as u64;
    TrainConfig { epochs, eval_every: epochs, ..sage::config(hidden, batch_size) }
}

/// Time of an epoch.
fn epoch_of(way: &Way, dataset: &Dataset, protocol: Protocol) -> Result<Summary, Error> {
    let train = |observe: &mut Observer<'_>| {
        train_on((way.n_devices, way.layout, way.transport), dataset, &way.config, observe)
    };
    Ok(Epochs::of(protocol, &mut [], train)?.epoch())
}

/// Time of the peer's epochs; few repeats suffice, because an epoch takes seconds.
fn peer_epoch(peer: &mut Peer, protocol: Protocol) -> Result<Summary, Error> {
    let protocol = Protocol { warm_up: protocol.warm_up.min(1), repeats: protocol.repeats.min(2) };
    let name = peer.name().to_owned();
    let contestant = Contestant::timed(name, || peer.ask("epoch"));
    let mut results = compete(protocol, vec![contestant])?;
    results.pop().map(|(_, time)| time).ok_or_else(|| "the peer was not timed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_configurations_that_train() {
        let ways = ways(16, 4, Protocol { warm_up: 1, repeats: 1 });
        ways.iter().for_each(|way| way.config.validate().unwrap_or_else(|error| panic!("{}: {error}", way.name)));
        assert!(ways.iter().any(|way| way.n_devices == 4));
        let mut names: Vec<_> = ways.iter().map(|way| &way.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ways.len());
    }

    /// An interpreter that starts WholeGraph alone, and checks the arguments that both scripts take.
    #[cfg(unix)]
    #[test]
    fn a_peer_that_does_not_start_leaves_the_other() {
        use std::os::unix::fs::PermissionsExt;

        let dataset = graphs::load("synth:planted,nodes=60,degree=4,features=3,classes=2").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        let interpreter = |text: &str| {
            std::fs::write(&python, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        interpreter(
            r#"case "$1" in *pyg_minibatch.py) exit 1;; esac
[ "$3 $4 $5" = "16 1024 15,10,5" ] && [ -e "$2/indptr.npy" ] && [ -e "$1" ] && echo '{"ready": "it"}' && cat"#,
        );
        let peers = start_peers(&python, &dataset, 16).unwrap();
        assert_eq!(
            peers.iter().map(|(peer, column)| (peer.name(), *column)).collect::<Vec<_>>(),
            [("it", "x_wholegraph")]
        );
        drop(peers);
        interpreter("exit 1");
        let error = start_peers(&python, &dataset, 16).err().unwrap().to_string();
        assert!(PEERS.iter().all(|(script, _)| error.contains(script)), "{error}");
    }
}
