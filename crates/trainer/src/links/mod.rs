//! Predicting links: which pairs of nodes an edge joins (Hamilton et al., NeurIPS 2017, section 3.2, trained on binary
//! cross-entropy).
//!
//! ```text
//! edges ──LinkSplit──▶ train ──▶ messages, and positives of steps ─┐
//!                      val, test ──▶ scores                        ├─▶ embeddings ─▶ ⟨z_u, z_v⟩ ─▶ loss, ROC-AUC, …
//! NonLinks ──▶ pairs that no edge joins ───────────────────────────┘
//! ```
//! - [`LinkSplit`]: which links train, validate and test, and the graph of those that train: the only one that messages
//!   travel over.
//! - [`NonLinks`]: pairs that are no links, each as likely as any other.
//! - [`Pairs`]: links and non-links on the device, scored by the products of their embeddings.
//! - [`LinkPredictor`]: a run whose steps see the whole graph and all training links. On batches of links a run is a
//!   [`MiniBatch`](crate::MiniBatch).
//!
//! A link is an unordered pair of different nodes, in whichever direction the graph stores it, since the product of two
//! embeddings does not tell directions apart. What is drawn is in `docs/formats.md`.

mod config;
mod epochs;
mod non_links;
mod pairs;
mod plan;
mod scorer;
mod session;
mod split;
mod train;

pub use config::LinkConfig;
pub(crate) use epochs::{EpochLinks, LinkEpochs};
pub use non_links::NonLinks;
pub(crate) use pairs::PairList;
pub use pairs::Pairs;
pub(crate) use plan::LinkSizes;
pub use scorer::{HITS_K, LinkScores};
pub(crate) use session::Prepared;
pub use session::{Embedded, embed};
pub use split::{Link, LinkPart, LinkSplit, Links};
pub use train::LinkPredictor;

#[cfg(test)]
mod tests;
