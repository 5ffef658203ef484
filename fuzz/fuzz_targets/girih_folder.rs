//! Target `girih_folder` of `girih-fuzz-targets`.

#![no_main]

girih_fuzz::program!("girih_folder");
