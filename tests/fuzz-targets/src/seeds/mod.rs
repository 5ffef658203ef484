//! Seeds: small inputs of every format, most of them written by girih.

pub(crate) mod arrays;
pub(crate) mod pickles;
pub(crate) mod state;
pub(crate) mod text;

use std::path::Path;

use girih_datasets::{Dataset, LoadOptions, load};

use crate::Input;

/// Data set of a dozen nodes with features, labels and splits.
pub(crate) fn planted() -> Dataset {
    load("synth:planted,nodes=12,degree=3,features=3,classes=3", &LoadOptions::default()).expect("a small data set")
}

/// Files that `write` creates in an empty folder.
pub(crate) fn written(write: impl FnOnce(&Path)) -> Input {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path());
    Input::read(folder.path())
}

/// The only file that `write` creates, under `name`.
pub(crate) fn written_one(name: &str, write: impl FnOnce(&Path)) -> Input {
    written(|folder| write(&folder.join(name)))
}
