//! [`Epochs`]: timed training epochs, with peers alternating.

use std::time::Duration;

use girih_datasets::Dataset;
use girih_features::MiniBatchBackend;
use girih_machine::memory;
use girih_trainer::{Control, EpochTimes, Event, Observer, Outcome, SessionOptions, StageTimes, TrainConfig, train};

use crate::peer::Peer;
use crate::timing::{Protocol, Summary};
use crate::{Case, Error};

/// Times of the epochs of one model.
pub(super) struct Epochs {
    times: Vec<EpochTimes>,
    /// Seconds of each peer's epochs.
    peers_s: Vec<Vec<f64>>,
    peak_bytes: Option<u64>,
}

impl Epochs {
    /// Trains with `config`; each peer runs an epoch after each of girih's.
    pub(super) fn time<B: MiniBatchBackend>(
        backend: &B,
        dataset: Dataset,
        config: &TrainConfig,
        protocol: Protocol,
        peers: &mut [Peer],
    ) -> Result<Self, Error> {
        let options = SessionOptions::default();
        Self::of(protocol, peers, |observe| Ok(train(backend, dataset, config, &options, observe)?))
    }

    /// Times the epochs of a training, which `train` runs with the given observer.
    pub(super) fn of(
        protocol: Protocol,
        peers: &mut [Peer],
        train: impl FnOnce(&mut Observer<'_>) -> Result<Outcome, Error>,
    ) -> Result<Self, Error> {
        let (mut times, mut peers_s, mut failure) = (Vec::new(), vec![Vec::new(); peers.len()], None);
        let can_reset = memory::reset_peak();
        train(&mut |event: Event<'_>| {
            let Event::Epoch { report, .. } = event else { return Control::Continue };
            let asked: Result<Vec<f64>, Error> = peers.iter_mut().map(|peer| peer.ask("epoch")).collect();
            match asked {
                Err(error) => {
                    failure = Some(error);
                    return Control::Stop;
                }
                Ok(seconds) if report.epoch as usize > protocol.warm_up => {
                    times.push(report.times);
                    peers_s.iter_mut().zip(seconds).for_each(|(all, seconds)| all.push(seconds));
                }
                Ok(_) => {}
            }
            Control::Continue
        })?;
        match failure {
            Some(error) => Err(error),
            None => Ok(Self { times, peers_s, peak_bytes: memory::peak_bytes().filter(|_| can_reset) }),
        }
    }

    /// Summary of the epoch times.
    pub(super) fn epoch(&self) -> Summary {
        Summary::of(&self.times.iter().map(|times| times.steps.as_secs_f64()).collect::<Vec<_>>())
    }

    /// Case of the model, and those of the alternating peers. `needed_bytes` is the size of graph, features and
    /// activations, the minimum that memory must hold.
    pub(super) fn cases(&self, name: &str, needed_bytes: u64, peers: &[Peer]) -> Vec<Case> {
        let time = self.epoch();
        let mut case = with_stages(Case::new(name, time), &self.times, 1);
        if let Some(peak) = self.peak_bytes {
            case = case.with("peak_mb", peak as f64 / 1e6).with("peak_over_needed", peak as f64 / needed_bytes as f64);
        }
        let mut cases = Vec::new();
        for (peer, seconds) in peers.iter().zip(&self.peers_s) {
            let peer_time = Summary::of(seconds);
            let mut of_peer = Case::new(format!("{name}/{}", peer.name()), peer_time)
                .with("x_girih", peer_time.median_s / time.median_s);
            if let Some(peak) = peer.peak_bytes() {
                of_peer = of_peer.with("peak_mb", peak as f64 / 1e6);
            }
            cases.push(of_peer);
        }
        cases.insert(0, case);
        cases
    }
}

/// Adds the median time of each stage per step, with `n_steps` steps an epoch; nothing if the backend has no stage
/// times.
pub(super) fn with_stages(case: Case, times: &[EpochTimes], n_steps: usize) -> Case {
    let stages: Vec<StageTimes> = times.iter().filter_map(|times| times.stages).collect();
    if stages.is_empty() {
        return case;
    }
    let median_ms = |stage: fn(&StageTimes) -> Duration| {
        let seconds: Vec<f64> = stages.iter().map(|times| stage(times).as_secs_f64() / n_steps as f64).collect();
        Summary::of(&seconds).median_s * 1e3
    };
    case.with("forward_ms", median_ms(|times| times.forward))
        .with("backward_ms", median_ms(|times| times.backward))
        .with("adam_ms", median_ms(|times| times.optimizer))
}
