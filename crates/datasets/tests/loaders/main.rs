//! Loaders on small files, real files and damaged ones.

#[path = "../common/mod.rs"]
mod common;
mod components;
mod compressed;
mod edge_features;
mod edge_list_ids;
mod feature_norm;
mod features_from;
mod generate;
mod generate_typed;
mod homogeneous;
mod id_pairs;
mod labels;
mod lightgcn;
mod movielens;
mod named_arrays;
mod named_labels;
mod new_nodes;
mod ntriples;
mod ogb;
mod ogb_links;
mod ogb_typed;
mod random_types;
mod real_files;
mod small_files;
mod spec;
mod splits;
mod stored;
mod triples;
mod type_folders;
mod typed;
mod typed_arrays;
mod typed_folder;
mod typed_golden;
mod used_or_named;
