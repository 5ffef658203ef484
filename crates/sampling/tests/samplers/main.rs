//! Laws of samplers, loaders and walks.

mod blocks;
mod common;
mod edge_lists;
mod fan_outs;
mod golden;
mod kit;
mod layers;
mod loader;
mod neighbors;
mod relabel;
mod saint;
mod seeds;
mod shared;
mod subgraphs;
mod timed;
mod typed;
mod walks;
