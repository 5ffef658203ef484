//! Target `typed_arrays` of `girih-fuzz-targets`.

#![no_main]

girih_fuzz::program!("typed_arrays");
