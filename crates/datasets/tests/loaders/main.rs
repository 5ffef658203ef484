//! Loaders on small files, real files and damaged ones.

#[path = "../common/mod.rs"]
mod common;
mod compressed;
mod labels;
mod lightgcn;
mod named_arrays;
mod ogb;
mod real_files;
mod small_files;
mod stored;
mod used_or_named;
