//! The harness behind `cargo xtask bench SUITE`: named graphs, repeated timings, and what is needed to judge them.
//!
//! - [`suites`]: what can be measured; each suite adds its cases to a [`Report`]. Start here.
//! - [`timing`]: warm-up, repeats and their summary; contestants take turns, so that a busy minute hits all of them.
//! - [`provenance`]: from which commit, and when; machine and ceilings come from `girih-machine`, in the same run.
//! - [`record`]: a [`Report`] as JSON, and the comparison with an earlier one.
//! - [`peer`]: the same work in another library, in a Python process that takes turns with girih.
//!
//! A number travels with its machine, its method and its ceiling, or it is not written down.

pub mod graphs;
pub mod peer;
pub mod provenance;
pub mod record;
pub mod suites;
pub mod table;
pub mod timing;

pub use record::{Case, Report};

/// Why a benchmark stopped. It is a program: every error ends it with a message.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
