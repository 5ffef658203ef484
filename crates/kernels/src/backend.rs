//! Traits of the backend on [`Cuda`](crate::Cuda), one module for each.

mod attention;
mod dense;
mod features;
mod loss;
mod memory;
mod norm;
mod optim;
mod sampling;
mod segment;
mod sparse;
