//! Runs of any task: events, options and results of a session, and the preparation of models.

mod observe;
mod prepare;

pub use observe::{Control, Event, MeanStd, Observer, Outcome, SessionOptions, checkpoint_path};
pub(crate) use prepare::{apply_best, build_model, build_network, with_labels_for};
