//! Node classification: whole graphs in each step.

mod session;

pub(crate) use session::{LabelledNodes, Prepared, start_run};
