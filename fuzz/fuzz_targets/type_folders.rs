//! Target `type_folders` of `girih-fuzz-targets`.

#![no_main]

girih_fuzz::program!("type_folders");
