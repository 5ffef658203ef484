//! Laws of pipelines and of launch order.

mod laws;
mod order;
