//! Typed data as named arrays, the way users of `PyG`'s `HeteroData` and DGL's heterographs save them: names of types
//! come before a dot.
//!
//! ```text
//! author__writes__paper.edge_index      2 × m (or m × 2): ids of sources and destinations inside their types
//! paper.num_nodes                       one integer; else features, labels or the largest id tell
//! paper.x | features | feat             n × width; or, sparse, paper.features_indptr, _indices, _values and _shape
//! paper.y | labels | label              of the target, as without types; paper.num_classes, paper.multi_label
//! paper.train_mask  val_mask  test_mask of the target, n or n × splits; or paper.train_idx, …
//! ```
//! girih also writes, and reads, what `PyG` and DGL have no name for:
//!
//! ```text
//! paper.number                          place of the type among those of nodes
//! paper.target                          1 for the type that has labels and splits
//! paper.learned_width                   width of learned rows; 0 for that of the model's layers
//! paper.name_bytes  name_ends           names of nodes: UTF-8, and the end of each name
//! paper.class_name_bytes  class_name_ends
//! author__writes__paper.number          place of the relation among those of edges
//! author__writes__paper.reverse_of      place of the relation that this one is the reverse of
//! ```

mod read;
mod scheme;
mod write;

pub(crate) use self::read::load;
pub(crate) use self::scheme::recognizes;
pub(crate) use self::write::write;
