//! `lightgcn`: epoch, batch and evaluation of a recommender, with the published settings: three hops, 64 columns,
//! batches of 2048 triples.
//!
//! The peer is the authors' method in PyTorch. Its epochs take minutes, so only some batches and draws are timed, and
//! its epoch time is extrapolated.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use girih_compute::Cpu;
use girih_datasets::{Dataset, Interactions};
use girih_trainer::{Control, EpochTimes, Event, ModelKind, SessionOptions, TrainConfig, train};

use super::epochs::with_stages;
use super::setup::Setup;
use crate::peer::Peer;
use crate::timing::Summary;
use crate::{Case, Error, Report, graphs};

/// Batches of the peer in a repetition.
const PEER_BATCHES: usize = 5;
/// Triples that the peer draws in a repetition.
const PEER_DRAWS: usize = 50_000;
/// Epochs of a quick run.
const SMALL_EPOCHS: usize = 1;
/// Factor of the batch size in a quick run, by which an epoch has fewer steps.
const SMALL_BATCHES: usize = 16;

/// Adds cases for the epoch, a batch and an evaluation; the peer runs after every epoch.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let dataset = graphs::load(&spec(setup)?)?;
    report.graph = Some(graphs::describe(&dataset));
    let interactions = dataset.interactions.clone().ok_or("the suite needs users and items; choose another --graph")?;
    let mut peer = setup.peer.as_ref().map(|python| start_peer(python, &dataset, &interactions)).transpose()?;

    let repeats = if setup.small { SMALL_EPOCHS } else { setup.protocol.warm_up + setup.protocol.repeats };
    let published = TrainConfig::for_model(ModelKind::LightGcn);
    let batch_size = published.batch_size.map(|size| if setup.small { SMALL_BATCHES * size } else { size });
    let config = TrainConfig { epochs: repeats as u64, eval_every: 1, batch_size, ..published };
    let n_triples = interactions.train().nnz();
    let n_batches = n_triples.div_ceil(config.batch_size.unwrap_or(n_triples));

    let (mut times, mut rivals, mut failure) = (Vec::new(), Rivals::default(), None);
    train(&Cpu::new(), dataset, &config, &SessionOptions::default(), &mut |event: Event<'_>| {
        let Event::Epoch { report, .. } = event else { return Control::Continue };
        times.push(report.times);
        failure = peer.as_mut().and_then(|peer| rivals.ask(peer).err());
        if failure.is_some() { Control::Stop } else { Control::Continue }
    })?;
    failure.map_or(Ok(()), Err)?;
    let timed = if times.len() > 1 { &times[1..] } else { &times[..] };
    report.cases.extend(cases(timed, n_batches, n_triples, &rivals, peer.as_ref().map_or("peer", Peer::name)));
    Ok(())
}

/// SPEC of the given graph, otherwise of Gowalla among the real data.
///
/// # Errors
/// When there is neither.
pub(super) fn spec(setup: &Setup) -> Result<String, Error> {
    let given = setup.graphs.first().cloned();
    let found = || graphs::real("gowalla").map(|path| path.to_string_lossy().into_owned());
    let missing = "there is no Gowalla in GIRIH_DATA; give the folder of users and items with --graph FOLDER";
    given.or_else(found).ok_or_else(|| missing.into())
}

fn start_peer(python: &Path, dataset: &Dataset, interactions: &Interactions) -> Result<Peer, Error> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("data");
    graphs::export_graph(&dataset.graph, &path)?;
    // A script that is ready has read all its data, so the folder can be deleted.
    let n_users = interactions.n_users().to_string();
    Peer::start(python, "lightgcn_torch.py", &[path.as_os_str(), OsStr::new(&n_users)])
}

/// Times of the peer in seconds.
#[derive(Default)]
struct Rivals {
    batch: Vec<f64>,
    draw: Vec<f64>,
}

impl Rivals {
    fn ask(&mut self, peer: &mut Peer) -> Result<(), Error> {
        self.batch.push(peer.ask(&format!("batches {PEER_BATCHES}"))? / PEER_BATCHES as f64);
        self.draw.push(peer.ask(&format!("draw {PEER_DRAWS}"))? / PEER_DRAWS as f64);
        Ok(())
    }
}

fn cases(times: &[EpochTimes], n_batches: usize, n_triples: usize, rivals: &Rivals, peer: &str) -> Vec<Case> {
    let seconds = |time: fn(&EpochTimes) -> Duration, parts: usize| -> Summary {
        Summary::of(&times.iter().map(|times| time(times).as_secs_f64() / parts as f64).collect::<Vec<_>>())
    };
    let epoch = seconds(|times| times.steps, 1);
    let batch = with_stages(Case::new("batch", seconds(|times| times.steps, n_batches)), times, n_batches);
    let evaluation = Case::new("evaluation", seconds(|times| times.evaluate, 1));
    if rivals.batch.is_empty() {
        return vec![Case::new("epoch", epoch), batch, evaluation];
    }
    let (peer_batch, peer_draw) = (Summary::of(&rivals.batch), Summary::of(&rivals.draw));
    let peer_epoch_s = peer_batch.median_s * n_batches as f64 + peer_draw.median_s * n_triples as f64;
    let batch = batch.with("x_peer", peer_batch.median_s * n_batches as f64 / epoch.median_s);
    let epoch_s = epoch.median_s;
    vec![
        Case::new("epoch", epoch).with("x_peer", peer_epoch_s / epoch_s).with("peer_s", peer_epoch_s),
        batch,
        evaluation,
        Case::new(format!("batch/{peer}"), peer_batch),
        Case::new(format!("draw/{peer}"), peer_draw),
    ]
}
