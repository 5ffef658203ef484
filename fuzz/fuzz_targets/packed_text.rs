//! Target `packed_text` of `girih-fuzz-targets`.

#![no_main]

girih_fuzz::program!("packed_text");
