//! Collective operations over all transports.

#[path = "../by_hand/mod.rs"]
mod by_hand;
mod gpu_transport;
mod launch;
mod laws;
mod payload;
mod secret;
mod tcp;
mod threads;
