//! Link prediction: whether an edge joins a pair of nodes (Hamilton et al., NeurIPS 2017, section 3.2, trained on
//! binary cross-entropy).
//!
//! ```text
//! edges ──LinkSplit──▶ train ──▶ messages, and positives of steps ─┐
//!                      val, test ──▶ scores                        ├─▶ embeddings ─▶ ⟨z_u, z_v⟩ ─▶ loss, ROC-AUC, …
//! NonLinks ──▶ pairs that no edge joins ───────────────────────────┘
//! ```
//! - [`LinkSplit`]: the division into training, validation and test links, and the graph of the training links.
//!   Messages are passed over this graph alone. Data may ship an [`EdgeSplit`](girih_datasets::EdgeSplit) instead, with
//!   negative pairs: see [`hits_of_edges`] and [`ranks_of_edges`].
//! - [`NonLinks`]: pairs that no edge joins, drawn uniformly.
//! - [`Pairs`]: links and non-links on the device, scored by the inner products of their embeddings.
//! - [`LinkPredictor`]: a run whose steps see the whole graph and all training links. A run on batches of links is a
//!   [`MiniBatch`](crate::MiniBatch).
//!
//! A link is an unordered pair of different nodes, in whichever direction the graph stores it: an inner product of
//! two embeddings is symmetric. `docs/draws.md` describes the random draws.

pub(crate) mod epochs;
mod non_links;
mod pairs;
pub(crate) mod scorer;
mod shipped;
mod split;
mod train;

pub(crate) use epochs::{EpochLinks, LinkEpochs};
pub use non_links::NonLinks;
pub(crate) use pairs::PairList;
pub use pairs::Pairs;
pub use scorer::HITS_K;
pub(crate) use scorer::{HeldOut, Judged, LinkScorer, held_out};
pub use shipped::{hits_of_edges, ranks_of_edges};
pub(crate) use shipped::{n_scored_pairs, scored_pairs, training_links};
pub(crate) use split::Draws;
pub use split::{Link, LinkPart, LinkSplit, Links};
pub use train::LinkPredictor;
