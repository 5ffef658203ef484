//! Laws of codecs and stores.

mod bad_input;
mod common;
mod faults;
mod files;
mod laws;
mod spec;
