//! Target `id_pairs` of `girih-fuzz-targets`.

#![no_main]

girih_fuzz::program!("id_pairs");
