//! Training graph neural networks over any compute backend.
//!
//! - [`train`]: runs a [`TrainConfig`] on a data set from start to result. Start here.
//! - [`Model`]: a forward function over a [`Tape`]; add one in twenty lines.
//! - [`Tape`]: a few coarse operations ([`Tape::linear`], [`Tape::spmm`], …), each with its own backward.
//! - [`FullBatch`]: one run, epoch by epoch, with checkpoints that resume bit-exactly.
//! - [`Plan`]: bytes and seconds of a session, predicted by running it on a backend that only counts.
//!
//! Not here: how an operation is computed (`girih-compute`), where data comes from (`girih-datasets`).

mod checkpoint;
mod config;
mod error;
mod fullbatch;
mod inputs;
mod layers;
mod metrics;
pub mod models;
mod optim;
mod params;
mod plan;
mod session;
mod tape;
mod targets;

pub use checkpoint::{Checkpoint, DataShape, Progress};
pub use config::{Aggregator, Decay, ModelConfig, ModelKind, OptimizerConfig, OptimizerKind, Schedule, TrainConfig};
pub use error::TrainError;
pub use fullbatch::{EpochReport, FullBatch, RunSummary, Scores, StageTimes, Task};
pub use inputs::{Adjacency, FeatureInput, Inputs, Needs, Propagation};
pub use layers::{GraphConv, Linear, Rows};
pub use metrics::{Confusion, F1, accuracy, f1_scores};
pub use models::{Dims, Model};
pub use optim::Optimizer;
pub use params::{Gradients, ParamId, ParamInit, Params};
pub use plan::{DataSizes, Plan};
pub use session::{Control, Event, Outcome, SessionOptions, Spread, apply, checkpoint_path, train};
pub use tape::{BackwardPass, LinearOptions, Loss, Mode, Operation, Pool, SpmmOptions, Tape, Var};
pub use targets::Targets;
