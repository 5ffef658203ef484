//! Launch orders of real threads: pipelines of ranks, ranks over every transport, and a rank that breaks the protocol.

mod hostile;
mod pipelines;
mod transports;

#[path = "../../../comm/tests/by_hand/mod.rs"]
mod by_hand;
