//! Tasks that models are trained for: data, loss and scores of each, and a run whose steps see the whole graph.
//!
//! - [`nodes`]: classes of nodes.
//! - [`links`]: whether an edge joins a pair of nodes.
//! - [`recommend`]: items ranked for users.
//! - [`triples`]: entities ranked for the heads and tails of triples.

pub(crate) mod links;
pub(crate) mod nodes;
pub(crate) mod recommend;
pub(crate) mod triples;
