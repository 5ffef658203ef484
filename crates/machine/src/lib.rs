//! What the machine at hand is and does.
//!
//! - [`Machine`]: processor, caches, memory, as far as the operating system tells.
//! - [`Ceilings`]: bandwidths and arithmetic rates, measured in a few seconds by loops that do nothing else.
//! - [`Hierarchy`]: caches and memory, and what a product with a sparse matrix takes of them.
//! - [`cache_folder()`]: where measurements are kept.
//! - [`zeros`], [`advise_huge_pages`]: memory on huge pages.
//! - [`memory`]: what this process uses, and what is free.
//! - `fix_heap_bounds`: a heap that does not grow with time (glibc).
//! - `explain_bus_errors`, `ignore_file_size_signal`: errors instead of signals (Linux).
//! - [`prefetch()`]: a hint to the caches.
//!
//! Plans are costed with these numbers, benchmarks print them beside their results, and `girih doctor` shows them.

#[cfg(target_os = "linux")]
mod bus_errors;
mod cache_folder;
mod ceilings;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod heap;
mod hierarchy;
mod huge_pages;
mod machine;
pub mod memory;
mod prefetch;
#[cfg(target_os = "linux")]
mod signals;

#[cfg(target_os = "linux")]
pub use bus_errors::explain_bus_errors;
pub use cache_folder::cache_folder;
pub use ceilings::Ceilings;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub use heap::fix_heap_bounds;
pub use hierarchy::{Cache, Hierarchy, PASS_BYTES_MIN, Product};
pub use huge_pages::{advise_huge_pages, zeros};
pub use machine::{Machine, readable_bytes};
pub use prefetch::prefetch;
#[cfg(target_os = "linux")]
pub use signals::ignore_file_size_signal;
