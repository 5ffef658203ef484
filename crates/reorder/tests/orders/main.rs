//! Laws of orders.

mod laws;
mod linear;
