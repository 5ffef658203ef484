//! How good an order is: for caches, and for dense tiles.
//!
//! Each figure looks at the graph as it is numbered; permute it first ([`Csr::permuted`](girih_graph_format::Csr::permuted)).

mod cache;
mod gaps;
mod tiles;

pub use cache::lru_hit_rate;
pub use gaps::{Gaps, window_reuse};
pub use tiles::{Block, block_density_histogram, coverage, coverage_of};
