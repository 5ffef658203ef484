//! [`ProcessGrid`]: arrangement of ranks for a partition scheme.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::PartitionError;

/// Dimensions along which a sparse product is partitioned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scheme {
    /// Rows of the adjacency and of the features.
    #[default]
    #[serde(rename = "1d")]
    OneD,
    /// Rows, each held by several ranks that divide the columns among them.
    #[serde(rename = "1.5d")]
    OneAndHalfD,
    /// Rows of the adjacency and columns of the features, in a square of ranks (SUMMA).
    #[serde(rename = "2d")]
    TwoD,
    /// As 2D, in layers that divide the columns of the adjacency among them: a cube of ranks.
    #[serde(rename = "3d")]
    ThreeD,
}

impl Scheme {
    /// All schemes.
    pub const ALL: [Self; 4] = [Self::OneD, Self::OneAndHalfD, Self::TwoD, Self::ThreeD];

    fn name(self) -> &'static str {
        match self {
            Self::OneD => "1d",
            Self::OneAndHalfD => "1.5d",
            Self::TwoD => "2d",
            Self::ThreeD => "3d",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scheme {
    type Err = PartitionError;

    fn from_str(text: &str) -> Result<Self, PartitionError> {
        Self::ALL
            .into_iter()
            .find(|scheme| scheme.name() == text)
            .ok_or_else(|| PartitionError::invalid(format!("{text:?} is no partition; choose one of 1d, 1.5d, 2d, 3d")))
    }
}

/// Ranks, arranged for a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGrid {
    scheme: Scheme,
    ranks: usize,
    replication: usize,
    /// Edge length of the square (2D) or cube (3D); the number of row blocks otherwise.
    side: usize,
}

impl ProcessGrid {
    /// Grid of `ranks` ranks, of which `replication` hold equal rows (1 unless the scheme is 1.5D).
    ///
    /// # Errors
    /// When there are no ranks, when `replication` does not divide them or exceeds 1 without 1.5D, and when the ranks
    /// form no square (2D) or cube (3D).
    pub fn new(scheme: Scheme, ranks: usize, replication: usize) -> Result<Self, PartitionError> {
        let refuse = |message: String| Err(PartitionError::invalid(message));
        if ranks == 0 || replication == 0 {
            let (ranks, replicas) = (counted(ranks, "rank"), counted(replication, "replica"));
            return refuse(format!("{ranks} with {replicas}: both are at least 1"));
        }
        if scheme != Scheme::OneAndHalfD && replication != 1 {
            return refuse(format!("the {scheme} partition has no replicas; leave them out or choose 1.5d"));
        }
        let root = |power: u32| (1..=ranks).find(|side| side.pow(power) >= ranks).expect("a number is its own power");
        let nearest = |power: u32| {
            let side = root(power);
            format!("{} or {}", (side - 1).max(1).pow(power), side.pow(power))
        };
        let side = match scheme {
            Scheme::OneD => ranks,
            Scheme::OneAndHalfD if !ranks.is_multiple_of(replication) => {
                return refuse(format!(
                    "{replication} replicas do not divide {ranks} ranks; choose a divisor of the number of ranks"
                ));
            }
            Scheme::OneAndHalfD => ranks / replication,
            Scheme::TwoD if root(2).pow(2) != ranks => {
                return refuse(format!("{ranks} ranks form no square, as 2d needs; take {} of them", nearest(2)));
            }
            Scheme::TwoD => root(2),
            Scheme::ThreeD if root(3).pow(3) != ranks => {
                return refuse(format!("{ranks} ranks form no cube, as 3d needs; take {} of them", nearest(3)));
            }
            Scheme::ThreeD => root(3),
        };
        Ok(Self { scheme, ranks, replication, side })
    }

    /// Partition scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Number of ranks that hold equal rows.
    #[must_use]
    pub fn replication(&self) -> usize {
        self.replication
    }

    /// Number of row blocks; in 2D and 3D the edge length of the square or cube.
    #[must_use]
    pub fn side(&self) -> usize {
        self.side
    }

    /// Number of steps of a product, on the rank that has the most.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.side.div_ceil(self.replication)
    }
}

impl fmt::Display for ProcessGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, ranks, replication, side } = self;
        write!(f, "{scheme}, {}", counted(*ranks, "rank"))?;
        match scheme {
            Scheme::OneD => Ok(()),
            Scheme::OneAndHalfD => write!(f, " in {} of {replication}", counted(*side, "group")),
            Scheme::TwoD => write!(f, ", {side} × {side}"),
            Scheme::ThreeD => write!(f, ", {side} × {side} × {side}"),
        }
    }
}

/// Number and noun as text, with the noun in the plural unless `n` is 1.
#[must_use]
pub fn counted(n: usize, noun: &str) -> String {
    let (stem, plural) = match noun.strip_suffix("ty") {
        _ if n == 1 => (noun, ""),
        Some(stem) => (stem, "ties"),
        None if noun.ends_with('s') || noun.ends_with("ch") => (noun, "es"),
        None => (noun, "s"),
    };
    format!("{n} {stem}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_is_one() {
        let shown = |scheme, ranks, replication| ProcessGrid::new(scheme, ranks, replication).unwrap().to_string();
        assert_eq!(shown(Scheme::OneD, 1, 1), "1d, 1 rank");
        assert_eq!(shown(Scheme::OneAndHalfD, 2, 2), "1.5d, 2 ranks in 1 group of 2");
        assert_eq!(shown(Scheme::TwoD, 4, 1), "2d, 4 ranks, 2 × 2");
        assert_eq!([counted(1, "class"), counted(0, "class")], ["1 class", "0 classes"]);
        assert_eq!([counted(1, "entity"), counted(2, "entity")], ["1 entity", "2 entities"]);
    }

    #[test]
    fn impossible_grids_are_refused_with_a_remedy() {
        let message =
            |scheme, ranks, replication| ProcessGrid::new(scheme, ranks, replication).unwrap_err().to_string();
        assert!(message(Scheme::OneD, 0, 1).contains("at least 1"));
        assert!(message(Scheme::OneD, 4, 2).contains("choose 1.5d"));
        assert!(message(Scheme::OneAndHalfD, 8, 3).contains("3 replicas do not divide 8 ranks"));
        assert!(message(Scheme::TwoD, 8, 1).contains("take 4 or 9"));
        assert!(message(Scheme::ThreeD, 9, 1).contains("take 8 or 27"));
        assert!("2.5d".parse::<Scheme>().unwrap_err().to_string().contains("1d, 1.5d, 2d, 3d"));
    }

    #[test]
    fn schemes_are_spelled_as_they_are_read() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }
    }
}
