//! Recommenders: items ranked for users.
//!
//! - [`Recommender`]: one run. Every step sees a batch of triples of a user, an item of the user, and another item.
//! - [`Ranking`](crate::Ranking): recall, normalised discounted gain and other scores of the items ranked first.
//! - [`recommend`]: the items that a trained model ranks first for every user.

pub(crate) mod batch;
pub(crate) mod rank;
mod session;
mod train;
pub(crate) mod triples;

pub(crate) use batch::Batch;
pub(crate) use rank::top_items;
pub use session::{Recommendations, recommend};
pub(crate) use session::{RecommenderSession, check_interactions, embeddings, start_run};
pub use train::Recommender;
