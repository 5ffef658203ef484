//! [`Places`]: map from the nodes of a batch to local ids, in device memory.
//!
//! ```text
//!           begin            settle, for each hop                        finish
//! ranks     seeds marked     new bits, ascending, are the next places    ids by a list of places; bits cleared
//! hashed    seeds inserted   edges inserted; the first of each node      ids by slots of edges; slots cleared
//!                            names the next place
//! ```
//! [`Ranks`] takes a word and two bits for each node of the graph, and is faster. [`Hashed`] takes twelve bytes for
//! each slot, and has twice as many slots as the largest batch has nodes. Tests compare the two. The wanted order of
//! new nodes decides between them.

use girih_compute::ComputeError;
use girih_sampling::relabel::NewNodes;

use super::Capacities;
use super::batch::{HopTiles, PlacesSize};
use super::hashed::Hashed;
use super::launch::Launches;
use super::ranks::Ranks;
use crate::Cuda;

/// Map from nodes to local ids; see the module. Empty between batches.
pub(super) enum Places {
    /// New nodes are in ascending order.
    Ranks(Ranks),
    /// New nodes are in the order in which edges first name them.
    Hashed(Hashed),
}

impl Places {
    /// Allocates places for batches of a graph of `n_nodes` nodes, none of which is larger than `largest`.
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

    /// Clears all places, also after a launch that failed.
    pub(super) fn clear(&mut self, cuda: &Cuda) -> Result<(), ComputeError> {
        match self {
            Self::Ranks(ranks) => ranks.clear(cuda),
            Self::Hashed(hashed) => hashed.clear(cuda),
        }
    }

    /// Device address of the bitmap in which draws mark nodes; zero if none is used.
    pub(super) fn marked(&self, cuda: &Cuda) -> u64 {
        match self {
            Self::Ranks(ranks) => ranks.bitmaps(cuda).0,
            Self::Hashed(_) => 0,
        }
    }

    /// Gives seeds the first local ids, and clears `n_tiles` words of tiles.
    ///
    /// # Safety
    /// As [`DeviceSampler::launch`](super::DeviceSampler::launch).
    pub(super) unsafe fn begin(&self, launches: &Launches<'_>, n_tiles: u64) -> Result<(), ComputeError> {
        // SAFETY: the caller vouches.
        unsafe {
            match self {
                Self::Ranks(ranks) => ranks.begin(launches, n_tiles),
                Self::Hashed(hashed) => hashed.begin(launches, n_tiles),
            }
        }
    }

    /// Gives the new nodes of a hop the next local ids, once its edges are drawn.
    ///
    /// # Safety
    /// As [`DeviceSampler::launch`](super::DeviceSampler::launch).
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

    /// Gives the edges of the first `n_local` hops local ids, and clears all places.
    ///
    /// # Safety
    /// As [`DeviceSampler::launch`](super::DeviceSampler::launch).
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
