//! Typed data in girih's own folder: arrays by the numbers of types, whose names are in the manifest.
//!
//! ```text
//! girih.toml                        [typed] name, target, labels …; [[node_types]]; [[edge_types]]
//! e0_indptr, e0_indices             adjacency of the edge type 0: destinations × sources, by ids inside the types
//! n0_features                       float32, nodes × width; or, sparse:
//! n0_features_indptr, n0_features_indices, n0_features_values
//! n0_features.codes                 compressed features
//! n0_names.txt                      a name in each line; `\\`, `\n` and `\r` are escaped
//! n0_labels                         of the target: int32, -1 where unknown; or uint8, nodes × classes
//! n0_split0_train, n0_split0_val …  of the target: uint32 ids inside the type
//! ```

mod names;
mod read;
mod section;
mod write;

pub(crate) use self::read::{notes_of, read};
pub(crate) use self::section::{SECTION, TypedSection, is_typed};
pub(crate) use self::write::write;
