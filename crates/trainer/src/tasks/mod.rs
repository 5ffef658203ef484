//! Tasks that models are trained for.

pub(crate) mod nodes;

pub(crate) use nodes::{LabelledNodes, Prepared, start_run};
