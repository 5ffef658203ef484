//! Node classification.
//!
//! - [`Task`]: labels and split of a run.
//! - [`Classifier`]: logits and scores of a model, also from logits that mini-batches computed layer by layer.
//! - [`FullBatch`]: a run whose steps see the whole graph.

mod classifier;
mod full_batch;
mod predictions;
mod session;

pub use classifier::Task;
pub(crate) use classifier::{Classifier, no_training_nodes};
pub use full_batch::FullBatch;
pub(crate) use predictions::{PredictionParts, Predictions};
pub(crate) use session::{FullBatchSession, LabelledNodes, start_run};
