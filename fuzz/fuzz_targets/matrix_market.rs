//! Target `matrix_market` of `girih-fuzz-targets`.

#![no_main]

girih_fuzz::program!("matrix_market");
