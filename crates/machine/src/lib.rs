//! Properties and rates of the machine that girih runs on.
//!
//! - [`Machine`]: CPU, caches and memory, as the operating system reports them.
//! - `Ceilings` (feature `ceilings`): peak bandwidths and arithmetic rates, measured in a few seconds by minimal loops.
//! - [`Hierarchy`]: cost model of caches and memory for products with a sparse matrix.
//! - [`cache_folder()`]: folder of measurements on disk.
//! - [`zeros`], [`advise_huge_pages`]: memory on huge pages.
//! - [`memory`]: memory that this process uses, and free memory.
//! - `fix_heap_bounds`: a heap that does not grow with time (glibc).
//! - `explain_bus_errors`, `ignore_file_size_signal`: errors instead of signals (Linux).
//! - [`prefetch()`]: a hint to the caches.
//! - [`parallel`]: loops on all cores that take little machine code.
//!
//! Plans use these numbers as costs, benchmarks print them with their results, and `girih doctor` shows them.

#[cfg(target_os = "linux")]
mod bus_errors;
mod cache_folder;
#[cfg(feature = "ceilings")]
mod ceilings;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod heap;
mod hierarchy;
mod huge_pages;
mod machine;
pub mod memory;
pub mod parallel;
mod prefetch;
#[cfg(target_os = "linux")]
mod signals;

#[cfg(target_os = "linux")]
pub use bus_errors::explain_bus_errors;
pub use cache_folder::cache_folder;
#[cfg(feature = "ceilings")]
pub use ceilings::Ceilings;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub use heap::fix_heap_bounds;
pub use hierarchy::{Cache, Hierarchy, PASS_BYTES_MIN, Product};
pub use huge_pages::{advise_huge_pages, zeros};
pub use machine::{Machine, readable_bytes};
pub use prefetch::prefetch;
#[cfg(target_os = "linux")]
pub use signals::ignore_file_size_signal;

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
