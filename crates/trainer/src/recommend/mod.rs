//! Recommenders: items ranked for users.
//!
//! - [`Recommender`]: one run; every step sees a batch of triples of a user, an item it met and one that it did not.
//! - [`Ranking`]: recall, normalised gain and the like of what is ranked first.
//! - [`recommend`]: the items that a trained model ranks first for every user.

mod batch;
mod metrics;
mod rank;
mod session;
mod train;
mod triples;

pub(crate) use batch::Batch;
pub use metrics::{Ranking, TOP_K};
pub(crate) use rank::top_items;
pub(crate) use session::{Prepared, check_interactions, start_run};
pub use session::{Recommendations, recommend};
pub use train::Recommender;
