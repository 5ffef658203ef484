//! Loaders on small files, real files and damaged ones.

#[path = "../common/mod.rs"]
mod common;
mod components;
mod compressed;
mod feature_norm;
mod features_from;
mod generate;
mod labels;
mod lightgcn;
mod named_arrays;
mod named_labels;
mod new_nodes;
mod ntriples;
mod ogb;
mod ogb_links;
mod real_files;
mod small_files;
mod spec;
mod splits;
mod stored;
mod typed;
mod used_or_named;
