//! The harness behind `cargo xtask bench SUITE`: named graphs, repeated timings, and what is needed to judge them.
//!
//! - [`suites`]: what can be measured; each suite adds its cases to a [`Report`]. Start here.
//! - [`timing`]: warm-up, repeats and their summary; contestants take turns, so that a busy minute hits all of them.
//! - [`provenance`]: from which commit, and when; machine and ceilings come from `girih-machine`, in the same run.
//! - [`record`]: a [`Report`] as JSON, and the comparison with an earlier one.
//! - [`cusparse`]: NVIDIA's library of sparse products, which suites of devices run beside girih; [`sampled`] checks
//!   both.
//! - [`peer`]: the same work in another library, in a Python process that takes turns with girih.
//!
//! A number travels with its machine, its method and its ceiling, or it is not written down.

pub mod cusparse;
pub mod graphs;
pub mod occupancy;
pub mod peer;
pub mod provenance;
pub mod record;
pub mod sampled;
mod scaling_page;
pub mod suites;
pub mod table;
pub mod timing;
pub mod transfer;

use std::path::{Path, PathBuf};

pub use record::{Accelerator, Case, Goal, Report};

/// The folder of the benchmarks: `./benches` where the program runs in the root of the repository, on whatever machine;
/// else where it was built.
#[must_use]
pub fn folder() -> PathBuf {
    let here = Path::new("benches");
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    if here.join("peers").is_dir() { here.to_owned() } else { built.to_owned() }
}

/// Why a benchmark stopped. It is a program: every error ends it with a message.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
