//! [`Model`]: a forward function, and the models of girih.
//!
//! - `spec`: [`Model`] and its terms; every other file builds on it.
//! - `build`: [`BuildModel`], which makes a model, of girih or from outside, and [`BuildSampler`].
//! - [`Stack`]: networks of one [`Convolution`]; [`RelationStack`]: networks of one [`RelationLayer`]. All other files are a
//!   network each.

mod appnp;
mod build;
mod embedding;
mod gat;
mod gcn;
mod gin;
mod gine;
mod hgt;
mod lightgcn;
mod mlp;
mod ngcn;
mod relation_stack;
mod rgat;
mod rgcn;
mod sage;
mod sgc;
mod spec;
mod stack;

pub use crate::layers::Dims;
pub use appnp::Appnp;
pub use build::{BlockDraws, BuildModel, BuildSampler};
pub use gat::{Gat, GatLayer, Gatv2};
pub use gcn::Gcn;
pub use gin::{Gin, GinLayer};
pub use gine::{Gine, GineLayer};
pub use hgt::{Hgt, HgtLayer};
pub use lightgcn::LightGcn;
pub use mlp::Mlp;
pub use ngcn::Ngcn;
pub use relation_stack::{RelationLayer, RelationStack};
pub use rgat::{Rgat, RgatLayer};
pub use rgcn::Rgcn;
pub use sage::Sage;
pub use sgc::Sgc;
pub use spec::{Adjacency, InputSpec, Layers, Model, Propagation};
pub use stack::{Convolution, Place, Stack};
