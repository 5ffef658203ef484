//! Ranks on cards, as tests have them.

use girih_comm::CommError;
use girih_compute::ComputeError;
use girih_kernels::{Cuda, Device};

/// Backends on as many cards as there are, at most `most`.
///
/// # Panics
/// When there is none and `GIRIH_REQUIRE_GPU` is set.
#[must_use]
pub fn cards(most: usize) -> Vec<Cuda> {
    let mut cards = Vec::new();
    while cards.len() < most {
        match Device::open(cards.len()) {
            Ok(device) => cards.push(Cuda::new(device)),
            Err(error) if cards.is_empty() && std::env::var_os("GIRIH_REQUIRE_GPU").is_some() => panic!("{error}"),
            Err(error) => {
                println!("{} cards: {error}", cards.len());
                break;
            }
        }
    }
    cards
}

/// One card, two or four, as many as there are of these.
#[must_use]
pub fn group() -> Option<Vec<Cuda>> {
    let mut cards = cards(4);
    cards.truncate(if cards.len() == 3 { 2 } else { cards.len() });
    (!cards.is_empty()).then_some(cards)
}

/// Two cards or four, if there are.
#[must_use]
pub fn several() -> Option<Vec<Cuda>> {
    group().filter(|cards| cards.len() > 1)
}

/// Whatever ends a rank.
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
