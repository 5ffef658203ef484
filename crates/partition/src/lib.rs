//! Process grids and block plans: the distribution of a sparse product over ranks, as plain data.
//!
//! A product `H' = Â·H` over `p` ranks can be carried out in many ways. A [`BlockPlan`] describes one of them: the
//! rows of each rank, the block that it multiplies in each step, and the exchanges before and after. A pure function
//! makes the plan. It can be printed, counted ([`Volume`]) and costed ([`Estimate`]) without running a rank; an
//! executor (`girih-trainer`) carries it out.
//!
//! - [`ProcessGrid`]: a [`Scheme`] (1D, 1.5D, 2D, 3D) for a number of ranks. Start here.
//! - [`BlockPlan`]: the plan for a number of nodes; one [`RankPlan`] per rank.
//! - [`Schedule`]: for an adjacency, whether a step sends whole panels or only the rows that are needed ([`Exchange`]).
//! - [`Halo`]: the rows of other ranks that a rank's own rows read, for aggregations other than sums.
//! - [`Patches`]: a partition of nodes into ranges of ids; [`Ownership`]: any assignment of nodes to parts, relabelled
//!   so that parts are such ranges.
//!
//! Sources: 1D and 1.5D follow Miao et al. (Journal of Software 34(9), 2023) and Tripathy et al. (CAGNET, SC 2020);
//! 2D is SUMMA (van de Geijn and Watts, 1997); 3D splits the inner dimension as well (Azad et al., SIAM J. Sci.
//! Comput. 2016).

#![forbid(unsafe_code)]

mod cost;
mod error;
mod grid;
mod halo;
mod ownership;
mod patches;
mod plan;
mod schedule;
mod volume;

pub use cost::{Estimate, LinkRates, Machine};
pub use error::PartitionError;
pub use grid::{ProcessGrid, Scheme, counted};
pub use halo::{Halo, RankHalo};
pub use ownership::Ownership;
pub use patches::Patches;
pub use plan::{BlockPlan, Cuts, RankPlan, Receivers, Reduce, Slicing, Stages, Step, StepsTogether, part, place_in};
pub use schedule::{Exchange, Schedule, StepExchange};
pub use volume::{Volume, block_nnz, evenly_touched, imbalance};

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
