//! Ranks on GPUs for tests.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use girih_comm::{CommError, RankFailure};
use girih_compute::ComputeError;
use girih_kernels::{Cuda, Device};

/// Number of ranks that share a GPU: `GIRIH_RANKS_PER_GPU`, or one. The environment has to allow it
/// (`NCCL_MULTI_RANK_GPU_ENABLE=1`, `CUDA_DEVICE_MAX_CONNECTIONS=32`). It is meant for tests of exchanges and
/// sampling: threads that train on a shared GPU may hang.
///
/// # Panics
/// When the variable is not a positive number.
#[must_use]
pub fn ranks_per_gpu() -> usize {
    let told = std::env::var("GIRIH_RANKS_PER_GPU").ok();
    told.map_or(1, |told| {
        told.parse().ok().filter(|&ranks| ranks > 0).expect("GIRIH_RANKS_PER_GPU is a number of ranks")
    })
}

/// Deadline of ranks: a minute, or `GIRIH_DEADLINE` in seconds, which slow tools need.
///
/// # Panics
/// When the variable is not a number of seconds.
#[must_use]
pub fn deadline() -> Duration {
    let told = std::env::var("GIRIH_DEADLINE").ok();
    Duration::from_secs(told.map_or(60, |told| told.parse().expect("GIRIH_DEADLINE is a number of seconds")))
}

/// Backends on all GPUs, each as often as ranks share it, but at most `most`.
///
/// # Panics
/// When there is none and `GIRIH_REQUIRE_GPU` is set.
#[must_use]
pub fn gpus(most: usize) -> Vec<Cuda> {
    let (mut gpus, on_each) = (Vec::new(), ranks_per_gpu());
    while gpus.len() < most {
        match Device::open(gpus.len() / on_each) {
            Ok(device) => gpus.push(Cuda::new(device)),
            Err(error) if gpus.is_empty() && std::env::var_os("GIRIH_REQUIRE_GPU").is_some() => panic!("{error}"),
            Err(error) => {
                println!("{} GPUs: {error}", gpus.len());
                break;
            }
        }
    }
    gpus
}

/// Backends on one, two, four or eight GPUs: the largest of these numbers that is available.
#[must_use]
pub fn group() -> Option<Vec<Cuda>> {
    let mut gpus = gpus(8);
    let n = gpus.len().checked_ilog2().map(|log| 1 << log)?;
    gpus.truncate(n);
    Some(gpus)
}

/// As [`group`], but `None` if there is only one GPU. Then it reports that the test is skipped.
#[must_use]
pub fn several() -> Option<Vec<Cuda>> {
    let gpus = group()?;
    if gpus.len() < 2 {
        println!("skipped: the test needs two GPUs, and there is one");
        return None;
    }
    Some(gpus)
}

/// Failure of rank one on purpose, and its time.
#[derive(Default)]
pub struct PlannedFailure(OnceLock<Instant>);

impl PlannedFailure {
    /// Error with which rank one fails now.
    pub fn now(&self) -> Failure {
        self.0.get_or_init(Instant::now);
        Failure("rank one has had enough".to_owned())
    }

    /// Checks that all ranks ended with this error of rank one, soon after it.
    ///
    /// # Panics
    /// When they did not.
    pub fn check<T>(&self, outcome: Result<T, RankFailure<Failure>>, what: &str) {
        let Err(failure) = outcome else { panic!("no rank failed, {what}") };
        assert_eq!(failure.rank, 1, "{what}");
        assert!(failure.message.contains("had enough"), "{}, {what}", failure.message);
        let passed = self.0.get().expect("rank one failed").elapsed();
        // Slow tools have a longer deadline.
        assert!(passed < deadline() / 3, "{passed:?}, {what}");
    }
}

/// Error that ends a rank.
#[derive(Debug)]
pub struct Failure(pub String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<CommError> for Failure {
    fn from(error: CommError) -> Self {
        Self(error.to_string())
    }
}

impl From<ComputeError> for Failure {
    fn from(error: ComputeError) -> Self {
        Self(error.to_string())
    }
}
