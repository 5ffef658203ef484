//! [`HostReads`]: how cards get rows of the host.

use std::fmt;
use std::str::FromStr;

use crate::TierError;

/// Threads of the host for each card, and bytes of all rows together, from which on threads bring rows sooner than the card reads them: reads
/// of pinned memory slow down as it grows, from 50 GB/s of 1 GB to 28 of 24 GB, what is brought does not.
const THREADS_MIN: usize = 8;
const BYTES_MIN: u64 = 4 << 30;

/// How cards get rows of features that are in memory of the host. It changes no number, only who works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostReads {
    /// Staged where rows are many and the host has cores enough for each card, else in place.
    #[default]
    Auto,
    /// Cores of the host gather the rows of a batch in pinned buffers, and copies bring them.
    Staged,
    /// All rows are in pinned memory, and cards read them over the bus, each where it lies.
    InPlace,
}

impl HostReads {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Staged, Self::InPlace];

    /// What is done for a card for which the host has so many threads, with so many bytes of rows.
    #[must_use]
    pub fn chosen(self, n_threads: usize, n_bytes: u64) -> Self {
        match self {
            Self::Auto if n_threads >= THREADS_MIN && n_bytes >= BYTES_MIN => Self::Staged,
            Self::Auto => Self::InPlace,
            told => told,
        }
    }

    /// As it is spelt on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Staged => "staged",
            Self::InPlace => "in-place",
        }
    }
}

impl fmt::Display for HostReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for HostReads {
    type Err = TierError;

    fn from_str(text: &str) -> Result<Self, TierError> {
        Self::ALL.into_iter().find(|reads| reads.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            TierError::invalid(format!("{text:?} is no way to read rows of the host; write one of {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert!(HostReads::ALL.into_iter().all(|reads| reads.to_string().parse() == Ok(reads)));
        assert_eq!(HostReads::Auto.chosen(16, 20 << 30), HostReads::Staged);
        assert_eq!(HostReads::Auto.chosen(2, 20 << 30), HostReads::InPlace);
        assert_eq!(HostReads::Auto.chosen(16, 1 << 30), HostReads::InPlace);
        assert_eq!(HostReads::Staged.chosen(1, 0), HostReads::Staged);
        assert!("pinned".parse::<HostReads>().unwrap_err().to_string().contains("in-place"));
    }
}
