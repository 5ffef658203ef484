//! Target `ntriples` of `girih-fuzz-targets`.

#![no_main]

girih_fuzz::program!("ntriples");
