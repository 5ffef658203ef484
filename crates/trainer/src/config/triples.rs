//! [`TripleConfig`]: settings of the task on triples.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::rules::joined;
use crate::TrainError;

/// Score of a triple, from the rows of its head, its relation and its tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecoderKind {
    /// `DistMult`: the sum of the products of all three (Yang et al., ICLR 2015).
    #[default]
    DistMult,
    /// `ComplEx`: the real part of that sum over complex numbers, with the tail's conjugate (Trouillon et al., ICML
    /// 2016).
    ComplEx,
    /// `TransE`: the distance from the sum of head and relation to the tail, negated (Bordes et al., NeurIPS 2013).
    TransE,
    /// `RotatE`: the distance from the head, turned in each complex plane by an angle of the relation, to the tail,
    /// negated (Sun et al., ICLR 2019).
    RotatE,
}

/// Distance that a decoder measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distance {
    /// Sum of absolute differences.
    L1,
    /// Sum of squared differences.
    #[default]
    L2,
}

impl DecoderKind {
    /// All decoders.
    pub const ALL: [Self; 4] = [Self::DistMult, Self::ComplEx, Self::TransE, Self::RotatE];

    /// Name on the command line, in files and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DistMult => "distmult",
            Self::ComplEx => "complex",
            Self::TransE => "transe",
            Self::RotatE => "rotate",
        }
    }

    /// Whether rows hold complex numbers: the real parts, then the imaginary parts.
    #[must_use]
    pub fn is_complex(self) -> bool {
        matches!(self, Self::ComplEx | Self::RotatE)
    }
}

impl FromStr for DecoderKind {
    type Err = TrainError;

    fn from_str(text: &str) -> Result<Self, TrainError> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = joined(Self::ALL.map(Self::name), "or");
            TrainError::invalid(format!("`{text}` is not a decoder: give {names}"))
        })
    }
}

/// Scores of triples, and their training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TripleConfig {
    /// Score of a triple.
    pub decoder: DecoderKind,
    /// Number of columns of the rows of entities.
    pub width: usize,
    /// Number of wrong entities that the right one is compared with, drawn for each question (up to 100,000); 0 for all
    /// entities, in one product.
    pub negatives: usize,
    /// Distance of `TransE`.
    pub distance: Distance,
}

impl Default for TripleConfig {
    fn default() -> Self {
        Self { decoder: DecoderKind::DistMult, width: 200, negatives: 0, distance: Distance::L2 }
    }
}

impl TripleConfig {
    /// Refuses invalid settings.
    ///
    /// # Errors
    /// At the first such setting; the message names a valid one.
    pub(crate) fn validate(&self) -> Result<(), TrainError> {
        let rules = [
            ((1..=1 << 20).contains(&self.width), "width", "from 1 to 1048576"),
            (
                !self.decoder.is_complex() || self.width.is_multiple_of(2),
                "width",
                "even: complex numbers have a real and an imaginary part",
            ),
            (self.negatives <= 100_000, "negatives", "at most 100000"),
            (
                self.decoder == DecoderKind::TransE || self.distance == Distance::L2,
                "distance",
                "left out: transe alone reads it",
            ),
            (
                self.distance == Distance::L2 || self.negatives > 0,
                "negatives",
                "at least 1 with the distance l1, which no product gives for all entities at once",
            ),
        ];
        match rules.iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, setting, rule)) => Err(TrainError::invalid(format!("setting `triples.{setting}` must be {rule}"))),
        }
    }
}
