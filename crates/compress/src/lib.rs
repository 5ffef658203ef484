//! Compressed features: rows are encoded once, to codes of fixed size; training gathers and sums codes.
//!
//! ```text
//! RowSource ──draw_sample──▶ fit ──▶ FeatureCodec
//!     │                                  │
//!     └──────── encode_to_file ◀─────────┘──▶ a store ──open──▶ CompressedFeatures ──gather──▶ rows by id
//!                                                                        └──aggregate──▶ sums over neighbors
//! ```
//! - [`CodecSpec`]: choice of a codec, such as `topk:8`; [`fit()`] makes a [`FeatureCodec`] of it. Start here. The code
//!   book is in [`topk`]; [`half`], [`quantized`], [`pca`] and [`pq`] are alternatives, and [`auto`] chooses among
//!   them.
//! - [`ErrorReport`]: errors of decoded rows; [`mean_cosine`] compares rows of any two sources.
//! - [`RowSource`]: features that may be larger than memory; [`draw_sample`] draws the sample that a codec learns
//!   from.
//! - [`encode_to_file`]: encodes a source to a store; parallel, in bounded memory, resumable after a kill.
//! - [`CompressedFeatures`]: a store, mapped; [`gather`](CompressedFeatures::gather) decodes rows by id,
//!   [`aggregate`](CompressedFeatures::aggregate) sums over neighbors without decoding.
//!
//! ```
//! use girih_compress::{Aggregate, CodecSpec, CompressedFeatures, FeatureCodec, fit};
//! use girih_graph_format::Matrix;
//!
//! let rows = Matrix::new(4, 3, vec![0.0, 5.0, -1.0, 4.0, 0.0, -2.0, 0.0, 3.0, -3.0, 0.0, 4.0, -2.0])?;
//! let codec = fit("topk:1".parse::<CodecSpec>()?, &rows, 0)?;
//! let features = CompressedFeatures::encode(codec, &rows)?;
//! assert_eq!(features.code(0), [1, 2]); // the places of 5 and −1
//!
//! let mut row = [0.0; 3];
//! features.gather(&[0], &mut row)?;
//! assert_eq!(row, [0.0, 4.0, -2.0]); // the means of 5, 4, 3, 4 and of −1, −2, −3, −2
//! features.aggregate(Aggregate::Sum, |_| &[0, 1, 2], &mut row)?;
//! assert_eq!(row, [4.0, 8.0, -6.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Not here: the choice of a mini-batch's rows (`girih-sampling`), and decoding on a GPU (`girih-kernels`).

#![forbid(unsafe_code)]

mod aggregate;
mod auto;
mod codec;
mod error;
mod fit;
mod gather;
mod groups;
mod half;
mod pca;
mod pq;
mod quantized;
mod report;
mod sample;
mod source;
mod spec;
mod store;
#[doc(hidden)]
pub mod testing;
mod topk;

pub use aggregate::Aggregate;
pub use codec::{FeatureCodec, Refused};
pub use error::CompressError;
pub use fit::{fit, from_parameters};
pub use groups::GROUP;
pub use report::{ErrorReport, mean_cosine};
pub use sample::{SampleOptions, draw_sample};
pub use source::{GeneratedRows, RowSource};
pub use spec::CodecSpec;
pub use store::{CompressedFeatures, Encoded, Progress, encode_to_file};

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
