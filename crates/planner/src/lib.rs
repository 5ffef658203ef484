//! Planner of partitions: predicts time, memory and bytes of each partition over GPUs, and chooses one.
//!
//! ```text
//! HardwareProfile      rates of a kind of GPU and its links: built in (H200), or measured once and kept on disk
//!    │         sparse products are measured on the graph itself, since its order decides
//! Planner      every partition of the given number of ranks, each as a dry run of the trainer (RankPlanner)
//!    │
//! Table        memory, milliseconds and bytes of each partition; the fastest that fits is the choice
//! ```
//!
//! - [`Planner`]: start here.
//! - [`HardwareProfile`]: the rates that plans use.
//! - [`measure`]: measures these rates, if there are GPUs.
//!
//! Elsewhere: training itself (`girih-trainer`, whose code the dry run executes), and partitions (`girih-partition`).

#![forbid(unsafe_code)]

mod error;
mod figures;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod instances;
mod kept;
pub mod measure;
mod table;

pub use error::PlannerError;
pub use figures::{H200_BYTES, HardwareProfile, SessionRates};
pub use kept::{keep, load_or_measure};
pub use table::{EXCHANGE_BYTES, Estimate, Planner, Table, grids};

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
