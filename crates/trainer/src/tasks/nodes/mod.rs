//! Node classification: whole graphs in each step.

mod classifier;
mod full_batch;
mod predictions;
mod session;

pub(crate) use classifier::Classifier;
pub use classifier::Task;
pub use full_batch::FullBatch;
pub(crate) use session::{LabelledNodes, Prepared, start_run};
