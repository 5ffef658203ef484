//! Operations of [`Cpu`](super::Cpu), one module for each family: calls of the modules that compute.

mod attention;
mod dense;
mod loss;
mod memory;
mod norm;
mod optim;
mod relation;
mod segment;
mod sparse;
