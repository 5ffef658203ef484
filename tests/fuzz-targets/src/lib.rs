//! Hostile input for every parser of girih, for tests on stable Rust and for libFuzzer (`fuzz/`).
//!
//! - [`Target`]: one parser with its seeds, its words and its law of memory; [`targets()`] lists all.
//! - [`Input`]: the files that a target reads; one file, or a folder in one string of bytes.
//! - [`mutate()`]: a damaged copy of an input, made with knowledge of its formats.
//! - [`repair()`]: checksums made right again, so that damage gets past them.
//! - [`Counting`]: an allocator that knows how much memory a call took at most.
//! - [`Campaign`]: many mutations of every target, held to the laws.
//!
//! A target never judges what a parser reads. It states what no input may do: panic, take memory out of proportion,
//! take long, or be accepted after its end was cut off.

mod allocation;
mod campaign;
mod input;
mod mutate;
mod repair;
mod seeds;
mod targets;

pub use allocation::{Counting, peak_during};
pub use campaign::{Campaign, Findings, TargetReport};
pub use input::{File, Input};
pub use mutate::mutate;
pub use repair::repair;
pub use targets::{Bound, Form, Target, find, targets};
