//! Sampling in time: neighbors by edges that a seed may see, so that nothing of its future is read.
//!
//! ```text
//! edges into v    t = 2  5  5  9  12        seed (v, 9), before:   2  5  5        until:   2  5  5  9
//!                                           window 4, until:          5  5  9     last 2:           5  9
//! ```
//! - [`TimeRule`]: the edges that are admitted, and which of them are drawn.
//! - [`TimedSampler`]: from seeds with times to a [`TimedBatch`].

mod batch;
mod rule;
mod sampler;

pub use batch::{TimedBatch, TimedSeed};
pub use rule::{Admits, Bound, Strategy, TimeRule};
pub use sampler::{TimedOptions, TimedSampler};
