//! Mini-batches of typed graphs: neighbors by edge type, nodes numbered inside their types.
//!
//! ```text
//! fan-out   writes=2 cites=1                     papers 0 1 │ 2     authors 0 1      local ids
//! paper 7 ◀─writes─ authors 3, 8                 nodes   7 2   5              3 8
//! paper 2 ◀─writes─ author 3      ◀─cites─ paper 5
//! writes  rows [0 1] [0]     cites  rows [] [2]
//! ```
//! A graph of one node type and one edge type has the blocks of a [`NeighborSampler`](crate::NeighborSampler).

mod block;
mod excluded;
mod fan_out;
mod list;
mod sampler;

pub use block::{RelationRows, TypedBatch, TypedBlock};
pub use excluded::TypedExcluded;
pub use fan_out::{FanOutRules, TypedFanOut};
pub use list::TypedEdgeList;
pub use sampler::{TypedOptions, TypedSampler, TypedSeeds};
