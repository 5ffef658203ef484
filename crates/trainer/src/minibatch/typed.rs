//! Mini-batches of typed graphs, for models that read relations.

mod layerwise;
mod samples;
mod seeds;
mod session;

pub(crate) use seeds::TypedSeeds;
pub(crate) use session::TypedSession;
