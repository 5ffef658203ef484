//! Formats of topology, and laws of sparse matrices.

mod common;
mod edge_features;
mod edge_lists;
mod files;
mod laws;
mod notes;
mod npy_rows;
mod text_formats;
mod timed;
