//! Laws of pipelines.

mod laws;
mod limits;
