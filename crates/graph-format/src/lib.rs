//! Graph topology with its matrices, in memory and on disk.
//!
//! - [`Csr`]: a sparse matrix by rows: the in-neighbors of every node. Start here.
//! - [`TypedGraph`]: a matrix for each type of edges, and its [`Schema`].
//! - [`TimedRows`]: the edges into every node, oldest first.
//! - [`EdgeFeatures`]: features of the edges of a list.
//! - [`Coo`]: a list of edges, the input of [`Coo::to_csr`].
//! - [`TileMatrix`]: dense 32 × 32 tiles as bitmaps, and the rest as a CSR.
//! - [`Permutation`]: a new numbering of nodes.
//! - [`ReuseCurve`]: cache hit rates of the operand rows that a product with the matrix reads.
//! - [`Norm`] and [`Scales`]: normalisation as two vectors, with a binary adjacency.
//! - [`Matrix`]: dense rows of `f32`.
//! - [`mod@file`]: reading and writing of all of them; `docs/formats.md` defines every byte.
//! - [`Notes`]: record of data that reading left out, made up or found doubtful.
//! - [`Buffer`]: an array that is owned or mapped from a file; the storage of all of the above.
//!
//! ```
//! use girih_graph_format::{Coo, Duplicates};
//!
//! // The edges 0 → 1, 0 → 2 and 1 → 2: destinations are rows, sources columns.
//! let graph = Coo::new(3, 3, vec![1, 2, 2], vec![0, 0, 1], None)?.to_csr(Duplicates::Refuse)?;
//! assert_eq!(graph.row(2), [0, 1]);
//! # Ok::<(), girih_graph_format::FormatError>(())
//! ```
//!
//! Not here: features and labels (`girih-datasets`), and multiplication (`girih-compute`).

use std::ops::Range;

mod blocks;
mod buffer;
mod coo;
mod csr;
mod edge_features;
mod error;
pub mod file;
mod matrix;
mod normalize;
mod notes;
mod ops;
mod permutation;
mod reuse;
mod rows;
mod schema;
mod strips;
mod tiles;
mod timed;
mod typed;

#[cfg(feature = "petgraph")]
mod convert_petgraph;
#[cfg(feature = "sprs")]
mod convert_sprs;

pub use blocks::{BlockLayout, BlockMatrix};
pub use buffer::Buffer;
pub use coo::{Coo, Duplicates, check_proportion};
pub use csr::{Csr, MAX_NODES};
pub use edge_features::EdgeFeatures;
pub use error::FormatError;
pub use matrix::Matrix;
pub use normalize::{Degrees, Norm, Scales, UndefinedDegree, WeightSum, degree_factors, scale_factors};
pub use notes::{MadeUp, NotUsed, Notes};
pub use ops::Transposed;
pub use permutation::Permutation;
pub use reuse::ReuseCurve;
pub use schema::{EdgeType, NodeType, Schema};
pub use tiles::{TileHistogram, TileMatrix};
pub use timed::{MAX_DECIMALS, Tick, TimeWindow, TimedEdge, TimedEntry, TimedRow, TimedRows, Times};
pub use typed::{PlacedRelation, RelationSize, RelationSizes, TypedGraph};

/// Id of a node, in `0..n_nodes`; always below [`MAX_NODES`].
pub type NodeId = u32;

/// Positions in an ascending list of the nodes that lie in `range`.
#[must_use]
pub fn places_of(nodes: &[NodeId], range: &Range<usize>) -> Range<usize> {
    let below = |end: usize| nodes.partition_point(|&node| (node as usize) < end);
    below(range.start)..below(range.end)
}

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
