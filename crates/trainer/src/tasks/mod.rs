//! Tasks that models are trained for.

pub(crate) mod links;
pub(crate) mod nodes;
pub(crate) mod recommend;
