//! Collective operations over all transports.

#[path = "../by_hand/mod.rs"]
mod by_hand;
mod launch_order;
mod laws;
mod tcp;
mod threads;
