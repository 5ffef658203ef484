//! Collective operations among ranks of every kind.

mod launch_order;
mod laws;
mod tcp;
mod threads;
