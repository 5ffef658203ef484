//! [`HostReads`]: how GPUs read feature rows of host memory.

use std::fmt;
use std::str::FromStr;

use crate::{Rates, TierError};

/// Minimum number of host threads per GPU for staging. Fewer threads are busy with other work, and count as none.
const THREADS_MIN: usize = 8;
/// Rate at which threads stage rows to one GPU, in bytes per second.
const BROUGHT: f64 = 35e9;
/// Rate at which threads stage rows to all GPUs of a host together, in bytes per second. Host memory moves each byte
/// four times: the row is read, the buffer is read before it is written, and the copy reads the buffer.
const BROUGHT_TO_ALL: f64 = 49e9;
/// Size of the pinned rows, in bytes, from which scattered reads in place reach [`SCATTERED_ROWS`] only, since hardly
/// two rows are from one page. Rows of 256 bytes arrive at 50 GB/s from 1 GB, at 44 GB/s from 7 GB, and at 23 GB/s
/// from 28 GB.
const MANY_BYTES: u64 = 12 << 30;
/// Rate of scattered reads in place, in rows per second; see [`MANY_BYTES`].
const SCATTERED_ROWS: f64 = 90e6;

/// Sizes of the feature rows in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRowSizes {
    /// Number of rows.
    pub n_rows: usize,
    /// Bytes of a row, as stored on GPUs.
    pub row_bytes: usize,
    /// Whether staging reads a copy of the rows, as reads in place do, instead of the loaded or mapped rows. If true,
    /// reads in place need no additional memory.
    pub are_copied: bool,
}

impl HostRowSizes {
    /// Bytes of all rows.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        self.n_rows as u64 * self.row_bytes as u64
    }

    /// Rate at which each GPU reads rows in place, in bytes per second.
    fn in_place(&self) -> f64 {
        let bus = Rates::h200().host.bytes_per_second;
        if self.n_bytes() < MANY_BYTES { bus } else { bus.min(SCATTERED_ROWS * self.row_bytes as f64) }
    }
}

/// Resources of the host for staging rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMeans {
    /// Number of GPUs that read rows of the host.
    pub n_gpus: usize,
    /// Number of host threads per GPU.
    pub n_threads: usize,
    /// Free host memory, in bytes.
    pub free_bytes: u64,
}

impl HostMeans {
    /// Resources of this machine, with `n_threads` threads for all GPUs. Free memory counts as unlimited if the
    /// system does not report it.
    #[must_use]
    pub fn here(n_threads: usize, n_gpus: usize) -> Self {
        let free_bytes = girih_machine::memory::free_bytes().unwrap_or(u64::MAX);
        Self { n_gpus, n_threads: n_threads / n_gpus.max(1), free_bytes }
    }

    /// Rate at which threads stage rows to each GPU, in bytes per second; 0 with fewer threads than [`THREADS_MIN`].
    fn brought(&self) -> f64 {
        if self.n_threads < THREADS_MIN { 0.0 } else { BROUGHT.min(BROUGHT_TO_ALL / self.n_gpus.max(1) as f64) }
    }
}

/// How GPUs read feature rows of host memory. Affects speed and memory, and no result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostReads {
    /// The faster way. It is in place, unless rows are short and many and the host has enough cores for each of few
    /// GPUs. Staged if a copy of the rows would take more than half of free host memory.
    #[default]
    Auto,
    /// Host threads gather the rows of a batch in pinned buffers, which are copied to the GPU.
    Staged,
    /// All rows are in pinned memory, and GPUs read each row in place over the bus (UVA).
    InPlace,
}

impl HostReads {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Staged, Self::InPlace];

    /// Resolves `Auto` for some rows and the resources of a host; other variants are returned unchanged.
    #[must_use]
    pub fn chosen(self, rows: &HostRowSizes, host: &HostMeans) -> Self {
        if self != Self::Auto {
            return self;
        }
        let has_room = rows.are_copied || rows.n_bytes() <= host.free_bytes / 2;
        if has_room && rows.in_place() >= host.brought() { Self::InPlace } else { Self::Staged }
    }

    /// Name on the command line.
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
