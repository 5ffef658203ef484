//! Laws of sampling by ranks, honest and hostile.

mod hostile;
mod laws;
