//! Collective operations among ranks of every kind.

mod laws;
mod tcp;
mod threads;
