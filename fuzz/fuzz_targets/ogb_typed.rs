//! Target `ogb_typed` of `girih-fuzz-targets`.

#![no_main]

girih_fuzz::program!("ogb_typed");
