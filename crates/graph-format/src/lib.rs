//! Graph topology and the matrices that hang on it, in memory and on disk.
//!
//! - [`Csr`]: a sparse matrix by rows: the in-neighbours of every node. Start here.
//! - [`Coo`]: a list of edges, the way in: [`Coo::to_csr`].
//! - [`TileMatrix`]: dense 32 × 32 tiles as bitmaps beside a CSR rest.
//! - [`Permutation`]: a new numbering of nodes.
//! - [`ReuseCurve`]: how often a cache holds what a product with the matrix reads.
//! - [`Norm`] and [`Scales`]: normalisation as two vectors beside a binary adjacency.
//! - [`Matrix`]: dense rows of `f32`.
//! - [`mod@file`]: reading and writing all of it; every byte is in `docs/formats.md`.
//! - [`Notes`]: what reading a file left out, made up or found doubtful.
//! - [`Buffer`]: an array that is owned or mapped from a file; all of the above stand on it.
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
//! Not here: what features and labels mean (`girih-datasets`), how to multiply (`girih-compute`).

use std::ops::Range;

mod blocks;
mod buffer;
mod coo;
mod csr;
mod error;
pub mod file;
mod matrix;
mod normalize;
mod notes;
mod ops;
mod permutation;
mod reuse;
mod rows;
mod strips;
mod tiles;

#[cfg(feature = "petgraph")]
mod convert_petgraph;
#[cfg(feature = "sprs")]
mod convert_sprs;

pub use blocks::{BlockLayout, BlockMatrix};
pub use buffer::Buffer;
pub use coo::{Coo, Duplicates, check_proportion};
pub use csr::{Csr, MAX_NODES};
pub use error::FormatError;
pub use matrix::Matrix;
pub use normalize::{Degrees, Norm, Scales, UndefinedDegree, WeightSum, degree_factors, scale_factors};
pub use notes::{MadeUp, NotUsed, Notes};
pub use ops::Transposed;
pub use permutation::Permutation;
pub use reuse::ReuseCurve;
pub use tiles::{TileHistogram, TileMatrix};

/// A node, as a position in `0..n_nodes`; always below [`MAX_NODES`].
pub type NodeId = u32;

/// Where in an ascending list those nodes are that are in a range.
#[must_use]
pub fn places_of(nodes: &[NodeId], range: &Range<usize>) -> Range<usize> {
    let below = |end: usize| nodes.partition_point(|&node| (node as usize) < end);
    below(range.start)..below(range.end)
}
