//! Process grids and block plans: how ranks share a sparse product, as plain data.
//!
//! `H' = Â·H` with `Â` and `H` cut over `p` ranks can be carried out in many ways. A [`BlockPlan`] is one of them
//! written down: which rank holds which rows, which block it multiplies in which step, who sends what to whom before
//! and after. It is made by a pure function, printed, counted ([`Volume`]) and costed ([`Estimate`]) without a rank
//! running; an executor (`girih-trainer`) only carries it out.
//!
//! - [`ProcessGrid`]: a [`Scheme`] (1D, 1.5D, 2D, 3D) for a number of ranks. Start here.
//! - [`BlockPlan`]: the plan for a number of nodes; one [`RankPlan`] a rank.
//! - [`Schedule`]: for an adjacency, whether a step sends whole panels or only the rows that are needed ([`Exchange`]).
//! - [`Halo`]: the rows of other ranks that a rank's own rows name, for operations that are no sums.
//! - [`Patches`]: nodes cut into ranges of ids; [`Ownership`]: any assignment of nodes to parts, numbered so that it is
//!   such a cut.
//!
//! Sources: 1D and 1.5D as Miao et al. (Journal of Software 34(9), 2023) and Tripathy et al. (CAGNET, SC 2020) have
//! them; 2D is SUMMA (van de Geijn and Watts, 1997), 3D splits the inner dimension as well (Azad et al., SIAM J. Sci.
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
