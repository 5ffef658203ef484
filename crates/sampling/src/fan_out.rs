//! [`FanOut`]: number of neighbors drawn for a node in each hop.

use std::fmt;
use std::str::FromStr;

use crate::SampleError;

/// Number of neighbors of a node in one hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Neighbors {
    /// At most so many; exactly so many when drawn with replacement from a non-empty row.
    Count(u32),
    /// All neighbors.
    All,
}

impl fmt::Display for Neighbors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::All => f.write_str("-1"),
        }
    }
}

/// Number of neighbors of a node in each hop, from the seeds outward; there is at least one hop.
///
/// Written as `15,10,5`; `-1` takes all neighbors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FanOut {
    hops: Vec<Neighbors>,
}

impl FanOut {
    /// Largest number of neighbors that a hop may ask for.
    pub const MAX: u32 = i32::MAX as u32;

    /// Makes a fan-out of the given hops, from the seeds outward.
    ///
    /// # Errors
    /// When there is no hop, or a hop asks for no neighbors or for more than [`FanOut::MAX`].
    pub fn new(hops: impl Into<Vec<Neighbors>>) -> Result<Self, SampleError> {
        let hops = hops.into();
        if hops.is_empty() {
            return Err(SampleError::invalid("a fan-out without hops; give one number a layer, such as 15,10,5"));
        }
        let is_valid = |hop: &Neighbors| !matches!(hop, Neighbors::Count(count) if *count == 0 || *count > Self::MAX);
        match hops.iter().position(|hop| !is_valid(hop)) {
            None => Ok(Self { hops }),
            Some(at) => Err(SampleError::invalid(format!(
                "hop {at} of the fan-out takes {} neighbors; give a number from 1 to {}, or -1 for all",
                hops[at],
                Self::MAX
            ))),
        }
    }

    /// Hops, from the seeds outward.
    #[must_use]
    pub fn hops(&self) -> &[Neighbors] {
        &self.hops
    }

    /// Checks that there is a hop for each of `n_layers` layers.
    ///
    /// # Errors
    /// When there are more or fewer hops.
    pub fn check_layers(&self, n_layers: usize) -> Result<(), SampleError> {
        if self.hops.len() == n_layers {
            return Ok(());
        }
        Err(SampleError::invalid(format!(
            "the fan-out {self} has {} hops, but the model has {n_layers} layers; give one number a layer",
            self.hops.len()
        )))
    }
}

impl FromStr for FanOut {
    type Err = SampleError;

    fn from_str(text: &str) -> Result<Self, SampleError> {
        let hops: Result<Vec<_>, _> =
            text.split(',').enumerate().map(|(at, number)| parse_hop(number.trim(), at, text)).collect();
        Self::new(hops?)
    }
}

fn parse_hop(number: &str, at: usize, text: &str) -> Result<Neighbors, SampleError> {
    if number == "-1" {
        return Ok(Neighbors::All);
    }
    number.parse().map(Neighbors::Count).map_err(|_| {
        SampleError::invalid(format!(
            "{number:?}, hop {at} of the fan-out {text:?}, is no number of neighbors; write positive numbers, or -1 for all, \
             with commas between them, such as 15,10,5"
        ))
    })
}

impl fmt::Display for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, hop) in self.hops.iter().enumerate() {
            write!(f, "{}{hop}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
