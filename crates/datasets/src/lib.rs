//! Graph data sets from files and generators.
//!
//! - [`load()`]: loads the [`Dataset`] of a `--data` argument. Start here.
//! - [`Dataset`]: graph, [`Features`], [`Labels`] and [`Split`]s of one set of nodes; [`Names`] of nodes and classes.
//! - [`DataSource`]: a data set for ranks that each read some rows; of a [`StoredDataset`] no other rows are read.
//! - [`EdgeSplit`]: the data's own split of edges; [`Benchmark`]: data sets of OGB and their metrics.
//! - [`FeaturesFrom`]: features made from the graph, for data that has none.
//! - [`Interactions`]: users and items, for recommenders; [`Triples`]: statements of a knowledge graph.
//! - [`Spec`] and [`LoadOptions`]: choice of the data, and options of loading; [`Literals`], [`NodeTypesFrom`], [`ReverseEdges`],
//!   [`LabelColumns`] and [`TypeNames`] are those of typed data.
//! - [`OutputFormat`]: formats of written data sets, with [`Dataset::save_as`].
//! - [`generate`]: planted communities, with types or without, and R-MAT, with the papers' sizes as presets.
//! - [`NewNodes`]: nodes that a graph does not have, for predictions.
//! - [`SplitRule`]: random splits for data that ships none.
//! - [`DatasetError`]: what was found, where, and how to correct it.
//!
//! Not here: sparse file formats (`girih-graph-format`) and training (`girih-trainer`).

#![forbid(unsafe_code)]

mod components;
mod dataset;
mod digest;
mod divided;
mod edge_list;
mod edges;
mod entity_graph;
mod error;
mod feature_file;
mod feature_norm;
mod features_from;
mod file_kind;
mod folder;
mod folder_arrays;
mod folder_edges;
mod folder_labels;
pub mod generate;
mod gnn_benchmark;
mod heterophilous;
mod homogeneous;
mod id_pairs;
mod igb;
mod interactions;
mod inventory;
mod labels;
mod lightgcn;
mod load;
mod mag240m;
mod memory;
mod movielens;
mod name_table;
mod named_arrays;
mod named_labels;
mod new_nodes;
mod ntriples;
mod ogb;
mod options;
mod options_for;
mod outline;
mod output;
mod pair_file;
mod pickle;
mod planetoid;
mod recognize;
mod reverses;
mod rows;
mod source;
mod sparse;
mod spec;
mod splits;
mod stored;
mod text_lines;
mod text_table;
mod triple_files;
mod type_features;
mod type_folders;
mod type_rules;
mod typed_arrays;
mod typed_folder;
mod typed_parts;

pub use components::Components;
pub use dataset::{
    Dataset, Edge, EdgeSplit, Features, HeldOutEdges, Labels, NameList, Names, Negatives, Split, Triple, Triples,
    TypeFeatures, TypeWidth, TypedData, UNLABELLED,
};
pub use digest::RowsDigest;
pub use error::DatasetError;
pub use feature_file::FEATURE_STORE;
pub use feature_norm::FeatureNorm;
pub use features_from::{FeaturesFrom, WalkMethod};
pub use folder::saved_name;
pub use id_pairs::TypeNames;
pub use interactions::Interactions;
pub use load::load;
pub use new_nodes::{NewNodes, NewRows};
pub use ntriples::{LabelColumns, Literals, NodeTypesFrom, ReverseEdges};
pub use ogb::{Benchmark, BenchmarkMetric};
pub use options::LoadOptions;
pub use outline::Outline;
pub use output::OutputFormat;
pub use recognize::FORMATS;
pub use rows::NodeRows;
pub use source::DataSource;
pub use spec::Spec;
pub use splits::SplitRule;
pub use stored::StoredDataset;
pub use type_rules::{TypeRule, TypeRules};
pub use typed_parts::TypedParts;

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
