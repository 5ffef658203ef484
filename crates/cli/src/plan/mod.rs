//! Predictions of memory and time before training, and what they refuse.
//!
//! - [`one_device`]: `girih train --plan` on one device.
//! - [`ranks`]: every partition of full batches over ranks.
//! - [`layouts`]: every placement of mini-batches on GPUs.
//! - [`memory`]: sessions that have to fit, and settings that would.
//! - [`ceilings`]: rates of this machine.
//! - [`tables`]: bytes of each type of nodes and edges.

pub mod ceilings;
pub mod layouts;
pub mod memory;
pub mod one_device;
pub mod ranks;
pub mod tables;
