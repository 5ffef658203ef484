//! [`HostReads`]: how cards get rows of the host.

use std::fmt;
use std::str::FromStr;

use crate::{Rates, TierError};

/// Threads of the host for each card that bring rows as fast as they can be brought; fewer have something else to do.
const THREADS_MIN: usize = 8;
/// Bytes a second that threads bring to a card.
const BROUGHT: f64 = 35e9;
/// The same to all cards of a host together. Its memory passes each byte four times: it is read, put into a buffer, which
/// is read before it is written, and copied from there.
const BROUGHT_TO_ALL: f64 = 49e9;
/// Bytes of pinned memory, all rows together, from which on rows anywhere in it come by
/// [so many a second](SCATTERED_ROWS): hardly two are from one page. Rows of 256 bytes come at 50 GB/s of 1 GB, at 44 of
/// 7 GB, and at 23 of 28 GB.
const MANY_BYTES: u64 = 12 << 30;
/// See [`MANY_BYTES`].
const SCATTERED_ROWS: f64 = 90e6;

/// Rows of the host, as far as it matters to how cards get them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRowSizes {
    /// Rows.
    pub n_rows: usize,
    /// Bytes of each, as cards have it.
    pub row_bytes: usize,
    /// Whether threads that bring rows read a copy of them, as cards do which read in place, and not what was loaded or
    /// mapped.
    pub are_copied: bool,
}

impl HostRowSizes {
    /// Bytes of all of them.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        self.n_rows as u64 * self.row_bytes as u64
    }

    /// Bytes a second that each card reads in place.
    fn in_place(&self) -> f64 {
        let bus = Rates::h200().host.bytes_per_second;
        if self.n_bytes() < MANY_BYTES { bus } else { bus.min(SCATTERED_ROWS * self.row_bytes as f64) }
    }
}

/// What the host has for bringing rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMeans {
    /// Cards that have rows brought, or read them.
    pub n_cards: usize,
    /// Threads for each of them.
    pub n_threads: usize,
    /// Bytes of memory that are free.
    pub free_bytes: u64,
}

impl HostMeans {
    /// Those of this machine, with so many threads for all cards, whose memory is taken to suffice where the system
    /// does not tell.
    #[must_use]
    pub fn here(n_threads: usize, n_cards: usize) -> Self {
        let free_bytes = girih_machine::memory::free_bytes().unwrap_or(u64::MAX);
        Self { n_cards, n_threads: n_threads / n_cards.max(1), free_bytes }
    }

    /// Bytes a second that threads bring to each card.
    fn brought(&self) -> f64 {
        if self.n_threads < THREADS_MIN { 0.0 } else { BROUGHT.min(BROUGHT_TO_ALL / self.n_cards.max(1) as f64) }
    }
}

/// How cards get rows of features that are in memory of the host. It changes no number, only who works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostReads {
    /// What is faster: in place, but where rows are short and many and the host has cores enough for each of few cards.
    /// Where a copy of the rows would take more than half of its free memory, staged.
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

    /// What is done with some rows by a host with these means.
    #[must_use]
    pub fn chosen(self, rows: &HostRowSizes, host: &HostMeans) -> Self {
        if self != Self::Auto {
            return self;
        }
        let has_room = rows.are_copied || rows.n_bytes() <= host.free_bytes / 2;
        if has_room && rows.in_place() >= host.brought() { Self::InPlace } else { Self::Staged }
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
            TierError::invalid(format!("`{text}` is not a way to read rows of host memory: give one of {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert!(HostReads::ALL.into_iter().all(|reads| reads.to_string().parse() == Ok(reads)));
        assert!("pinned".parse::<HostReads>().unwrap_err().to_string().contains("in-place"));
    }

    #[test]
    fn rows_are_brought_where_that_is_sooner_or_takes_less_memory() {
        let of_cards = |(n_rows, row_bytes, are_copied), n_cards, n_threads, free_bytes| {
            let rows = HostRowSizes { n_rows, row_bytes, are_copied };
            HostReads::Auto.chosen(&rows, &HostMeans { n_cards, n_threads, free_bytes })
        };
        let chosen = |rows, n_threads, free_bytes| of_cards(rows, 1, n_threads, free_bytes);
        let (many_short, few, long) = ((111_059_956, 256, true), (27_764_989, 256, true), (24_416_050, 1536, true));
        for (rows, n_threads, reads) in [
            (many_short, 16, HostReads::Staged),
            (many_short, 4, HostReads::InPlace),
            (few, 16, HostReads::InPlace),
            (long, 16, HostReads::InPlace),
        ] {
            assert_eq!(chosen(rows, n_threads, 40 << 30), reads, "{rows:?}, {n_threads} threads");
        }
        // Memory of the host brings to four cards little more than to one, and each reads for itself.
        assert_eq!(of_cards(many_short, 4, 16, 40 << 30), HostReads::InPlace);
        // 75 GB that were loaded are not held twice in 128, nor 7 in 8; but where they are copied anyway.
        assert_eq!(chosen((24_416_050, 3072, false), 16, 50 << 30), HostReads::Staged);
        assert_eq!(chosen((27_764_989, 256, false), 16, 8 << 30), HostReads::Staged);
        assert_eq!(chosen((27_764_989, 256, true), 16, 8 << 30), HostReads::InPlace);
        let told = HostReads::Staged.chosen(
            &HostRowSizes { n_rows: 1, row_bytes: 1, are_copied: true },
            &HostMeans { n_cards: 1, n_threads: 1, free_bytes: u64::MAX },
        );
        assert_eq!(told, HostReads::Staged);
    }
}
