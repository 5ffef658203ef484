//! Laws of pipelines.

mod laws;
