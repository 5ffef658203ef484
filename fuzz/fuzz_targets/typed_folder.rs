//! Target `typed_folder` of `girih-fuzz-targets`.

#![no_main]

girih_fuzz::program!("typed_folder");
