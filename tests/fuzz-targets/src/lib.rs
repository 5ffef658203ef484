//! Hostile input for every parser of girih, for tests on stable Rust and for libFuzzer (`fuzz/`).
//!
//! - [`Target`]: one parser with its seeds, words and memory bound; [`targets()`] lists all.
//! - [`Input`]: files that a target reads; one file, or a folder encoded as one byte string.
//! - [`mutate()`]: damaged copy of an input, made with knowledge of its formats.
//! - [`repair()`]: recomputes checksums, so that damage gets past them.
//! - [`Counting`]: allocator that measures the peak memory of a call.
//! - [`Campaign`]: many mutations of every target, checked against the laws.
//!
//! A target does not judge the contents that a parser accepts. It states laws for every input: no panic, bounded
//! memory, bounded time, and no acceptance of truncated binary files.

mod allocation;
mod campaign;
mod input;
mod mutate;
mod repair;
mod seeds;
mod targets;

pub use allocation::{Counting, peak_during};
pub use campaign::{Campaign, Findings, TargetReport};
pub use input::{File, Form, Input};
pub use mutate::mutate;
pub use repair::repair;
pub use targets::{Bound, Target, find, targets};
