//! Harness of `cargo xtask bench SUITE`: named graphs, repeated timings, and the context to judge them.
//!
//! - [`suites`]: the available measurements; each suite adds its cases to a [`Report`]. Start here.
//! - [`timing`]: warm-up, repeats and their summary. Contestants alternate, so that a disturbance affects all of
//!   them.
//! - [`provenance`]: commit and date. Machine and ceilings come from `girih-machine`, in the same run.
//! - [`record`]: a [`Report`] as JSON, and the comparison with an earlier one.
//! - [`whole`]: every suite of one device in one run; [`regression`]: its comparison with an earlier run.
//! - [`cusparse`]: NVIDIA's library of sparse products, the reference of GPU suites; [`sampled`] checks both.
//! - [`peer`]: the same work in another library, in a Python process that alternates with girih.
//!
//! A number is only recorded with its machine, its method and its ceiling.

pub mod cusparse;
pub mod graphs;
pub mod occupancy;
pub mod peer;
pub mod provenance;
pub mod record;
pub mod regression;
pub mod sampled;
mod scaling_page;
pub mod suites;
pub mod table;
pub mod timing;
pub mod transfer;
pub mod whole;

use std::path::{Path, PathBuf};

pub use record::{Accelerator, Case, Goal, Report};

/// Folder of the benchmarks: `./benches` if the program runs in the root of a repository, otherwise the folder where
/// it was built.
#[must_use]
pub fn folder() -> PathBuf {
    let here = Path::new("benches");
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    if here.join("peers").is_dir() { here.to_owned() } else { built.to_owned() }
}

/// Reason why a benchmark stopped. Every error ends the program with a message.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
