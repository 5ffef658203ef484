//! What each way to share a training among cards would take, and which to choose.
//!
//! ```text
//! HardwareProfile      what a kind of card and its links do: built in (H200), or measured here once and kept
//!    │         sparse products are measured on the graph itself, since its order decides
//! Planner      every partition that so many ranks allow, each run by the trainer on shapes (RankPlanner)
//!    │
//! Table        memory, milliseconds and bytes of each; the quickest that fits is the choice
//! ```
//!
//! - [`Planner`]: start here.
//! - [`HardwareProfile`]: the numbers that it counts with.
//! - [`measure`]: where they come from, if there are cards.
//!
//! Not here: what training does (`girih-trainer`, whose code runs on shapes), how products are cut (`girih-partition`).

#![forbid(unsafe_code)]

mod error;
mod figures;
mod kept;
pub mod measure;
mod table;

pub use error::PlannerError;
pub use figures::{H200_BYTES, HardwareProfile, SessionRates};
pub use kept::{keep, load_or_measure};
pub use table::{EXCHANGE_BYTES, Estimate, Planner, Table, grids};
