//! Weights that travel: parameters of a checkpoint under the names and in the layouts of other libraries, and back.
//!
//! - `table`: which tensor of a [`Library`] holds which parameter.
//! - `layout`: transposed weights, and columns of heads side by side instead of interleaved.
//! - `convert`: [`export_weights`] and [`import_weights`], both by the table.
//! - `onnx`: the whole model as an ONNX graph.
//! - `files`: [`WeightFormat`], with [`write_weights`] and [`read_weights`].

mod convert;
mod files;
mod layout;
mod onnx;
mod table;

pub use convert::{NamedWeight, export_weights, import_weights};
pub use files::{ImportedConfig, WeightFormat, read_weights, write_weights};
pub use table::Library;
