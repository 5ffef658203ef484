//! Options of a plan: [`Cuts`] of nodes into panels, and [`Stages`] in which panels travel.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::PartitionError;

/// Balance of the panels that nodes are cut into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cuts {
    /// Equal numbers of nodes: for orders that stay within panels, and for graphs with evenly spread edges.
    #[default]
    Equal,
    /// Equal shares of nodes and stored edges: for orders of the whole graph.
    Weighted,
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "equal",
            Self::Weighted => "weighted",
        })
    }
}

impl FromStr for Cuts {
    type Err = PartitionError;

    fn from_str(text: &str) -> Result<Self, PartitionError> {
        match text {
            "equal" => Ok(Self::Equal),
            "weighted" => Ok(Self::Weighted),
            _ => Err(PartitionError::invalid(format!("{text:?} is no way to cut; choose equal or weighted"))),
        }
    }
}

/// Exchanges in which panels travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stages {
    /// One exchange per step, as in the papers: one rank's panel at a time goes to all, which takes the least memory.
    #[default]
    Steps,
    /// One exchange per other member of the group. In each, every member receives one panel, and no two members
    /// receive the same panel. All link directions are used, and each exchange but the first overlaps with the
    /// product before it. Takes no more memory than steps, but each panel passes over the result.
    Turns,
    /// The given number of exchanges, each with some columns of every panel. All link directions are used, and each
    /// part but the first overlaps with the product of the part before. Each column has its own sums, so that no part
    /// passes over the sums of another. Narrow operands travel in fewer parts ([`columns`](Self::columns)).
    Parts(usize),
}

impl Stages {
    /// Bytes of a cache line.
    const LINE: usize = 128;

    /// Maximum number of parts in which a panel travels.
    #[must_use]
    pub fn n_parts(&self) -> usize {
        match self {
            Self::Steps | Self::Turns => 1,
            Self::Parts(n) => *n,
        }
    }

    /// Column ranges of the parts of an operand with `cols` columns of `element_bytes` bytes. Each part is half of
    /// the rest, in whole cache lines, and the last two are about equal. The first part is large, since it overlaps
    /// with the product of the own block. The last is small, since nothing overlaps with its product. The rest is not
    /// cut if it fits into a line, or if the cut would leave less than a quarter of one.
    #[must_use]
    pub fn columns(&self, cols: usize, element_bytes: usize) -> Vec<Range<usize>> {
        let line = Self::LINE / element_bytes;
        let (mut parts, mut start) = (Vec::new(), 0);
        while parts.len() + 1 < self.n_parts() {
            let half = (cols - start).div_ceil(2).next_multiple_of(line);
            if start + half + line / 4 > cols {
                break;
            }
            parts.push(start..start + half);
            start += half;
        }
        parts.push(start..cols);
        parts
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps => f.write_str("steps"),
            Self::Turns => f.write_str("turns"),
            Self::Parts(n) => n.fmt(f),
        }
    }
}

impl FromStr for Stages {
    type Err = PartitionError;

    fn from_str(text: &str) -> Result<Self, PartitionError> {
        let invalid =
            || PartitionError::invalid(format!("{text:?} is no number of stages; give 1 or more, steps or turns"));
        match (text, text.parse()) {
            ("steps", _) => Ok(Self::Steps),
            ("turns", _) => Ok(Self::Turns),
            (_, Ok(n @ 1..)) => Ok(Self::Parts(n)),
            _ => Err(invalid()),
        }
    }
}
