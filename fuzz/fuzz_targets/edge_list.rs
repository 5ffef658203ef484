//! Target `edge_list` of `girih-fuzz-targets`.

#![no_main]

girih_fuzz::program!("edge_list");
