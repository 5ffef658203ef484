//! [`Places`]: which node of a batch has which local id, in the memory of a device.
//!
//! ```text
//!           begin            settle, for each hop                        finish
//! ranks     seeds marked     new bits, ascending, are the next places    ids by a list of places; bits emptied
//! hashed    seeds inserted   edges inserted; the first of each node      ids by slots of edges; slots emptied
//!                            names the next place
//! ```
//! [`Ranks`] takes a word and two bits for each node of the graph, and is the faster; [`Hashed`] twelve bytes for each
//! slot, of which there are twice as many as the largest batch has nodes. Each is the other's measure; the order that
//! is wanted of new nodes decides.

use girih_compute::ComputeError;
use girih_sampling::relabel::NewNodes;

use super::Capacities;
use super::batch::HopTiles;
use super::hashed::Hashed;
use super::launch::Launches;
use super::ranks::Ranks;
use crate::Cuda;

/// See the module. Empty between batches.
pub(super) enum Places {
    /// New nodes ascend.
    Ranks(Ranks),
    /// New nodes come as edges first name them.
    Hashed(Hashed),
}

/// What the memory of a batch depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacesSize {
    /// Words of a bitmap.
    Words(u64),
    /// There is a slot for each edge and seed.
    Slots,
}

impl Places {
    /// For batches of a graph of so many nodes, none of which is larger than `largest`.
    pub(super) fn new(
        cuda: &Cuda,
        n_nodes: usize,
        largest: &Capacities,
        order: NewNodes,
    ) -> Result<Self, ComputeError> {
        Ok(match order {
            NewNodes::Ascending => Self::Ranks(Ranks::new(cuda, n_nodes)?),
            NewNodes::FirstSeen => Self::Hashed(Hashed::new(cuda, largest)?),
        })
    }

    pub(super) fn size(&self) -> PlacesSize {
        match self {
            Self::Ranks(ranks) => PlacesSize::Words(ranks.n_words()),
            Self::Hashed(_) => PlacesSize::Slots,
        }
    }

    /// Makes them empty, whatever a launch that failed has left.
    pub(super) fn clear(&mut self, cuda: &Cuda) -> Result<(), ComputeError> {
        match self {
            Self::Ranks(ranks) => ranks.clear(cuda),
            Self::Hashed(hashed) => hashed.clear(cuda),
        }
    }

    /// Where draws mark what they find; zero where nobody asks.
    pub(super) fn marked(&self, cuda: &Cuda) -> u64 {
        match self {
            Self::Ranks(ranks) => ranks.bitmaps(cuda).0,
            Self::Hashed(_) => 0,
        }
    }

    /// Gives seeds the first places, and clears the words of so many tiles.
    ///
    /// # Safety
    /// As [`Launches::run`].
    pub(super) unsafe fn begin(&self, launches: &Launches<'_>, n_tiles: u64) -> Result<(), ComputeError> {
        // SAFETY: the caller vouches.
        unsafe {
            match self {
                Self::Ranks(ranks) => ranks.begin(launches, n_tiles),
                Self::Hashed(hashed) => hashed.begin(launches, n_tiles),
            }
        }
    }

    /// Gives the new nodes of a hop, whose edges were drawn, the next places.
    ///
    /// # Safety
    /// As [`Launches::run`].
    pub(super) unsafe fn settle(
        &self,
        launches: &Launches<'_>,
        hop: usize,
        tiles: HopTiles,
    ) -> Result<(), ComputeError> {
        // SAFETY: the caller vouches.
        unsafe {
            match self {
                Self::Ranks(ranks) => ranks.settle(launches, hop, tiles),
                Self::Hashed(hashed) => hashed.settle(launches, hop, tiles),
            }
        }
    }

    /// Gives the edges of the first hops local ids, and makes places empty.
    ///
    /// # Safety
    /// As [`Launches::run`].
    pub(super) unsafe fn finish(&self, launches: &Launches<'_>, n_local: u64) -> Result<(), ComputeError> {
        // SAFETY: the caller vouches.
        unsafe {
            match self {
                Self::Ranks(ranks) => ranks.finish(launches, n_local),
                Self::Hashed(hashed) => hashed.finish(launches, n_local),
            }
        }
    }
}
