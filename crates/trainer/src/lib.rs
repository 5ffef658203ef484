//! Training graph neural networks over any compute backend.
//!
//! - [`train`]: runs a [`TrainConfig`] on a data set from start to result. Start here.
//! - [`Model`]: a forward function over a [`Tape`]; add one in twenty lines.
//! - [`Tape`]: a few coarse operations ([`Tape::linear`], [`Tape::spmm`], …), each with its own backward.
//! - [`Run`]: one run, epoch by epoch, with checkpoints that resume bit-exactly. [`FullBatch`] and [`MiniBatch`]
//!   classify nodes, on the whole graph or on sampled subgraphs; [`LinkPredictor`] and [`MiniBatch`] predict links;
//!   [`Recommender`] ranks items for users.
//! - [`Plan`]: bytes and seconds of a session, predicted by a dry run on a symbolic backend.
//! - [`CachePlan`]: share of graph and features that each device holds, where these exceed its memory.
//!
//! Not here: the computation of an operation (`girih-compute`) and the source of data (`girih-datasets`).

#![forbid(unsafe_code)]

mod arrangement;
mod batching;
mod checkpoint;
mod classifier;
mod config;
mod data;
pub mod distributed;
mod encoded;
mod engine;
mod error;
mod features;
mod fullbatch;
mod graph;
mod inputs;
mod layers;
mod links;
mod metrics;
pub mod models;
mod optim;
mod params;
mod plan;
mod predictions;
mod recommend;
mod report;
mod sampled;
mod scorer;
mod session;
mod similarity;
mod state;
mod tape;
mod targets;
mod tasks;
mod thinned;

pub use arrangement::{Arrangement, differences};
pub use batching::{
    BatchConfig, BatchKind, DEFAULT_BATCH_SIZE, DEFAULT_FANOUT, DEFAULT_LAYER_NODES, SaintKind, ScoreBy,
};
pub use checkpoint::{Checkpoint, DataShape, Progress};
pub use classifier::Task;
pub use config::{
    Aggregator, CacheConfig, Decay, Jump, Metric, ModelConfig, ModelKind, NormKind, OptimizerConfig, OptimizerKind,
    Schedule, TaskKind, TrainConfig, parse_codec,
};
pub use encoded::EncodedInput;
pub use engine::{Control, Event, MeanStd, Observer, Outcome, SessionOptions, checkpoint_path};
pub use error::TrainError;
pub use fullbatch::FullBatch;
pub use graph::{BlockGraph, Graph};
pub use inputs::{FeatureInput, Inputs, LayerGraphs};
pub use layers::{AttentionKind, AttentionSizes, GraphAttention, GraphConv, Linear, NormAxis, Normalization, Rows};
pub use links::{
    Embedded, HITS_K, Link, LinkConfig, LinkPart, LinkPredictor, LinkSplit, Links, NonLinks, Pairs, embed,
};
pub use metrics::{
    Confusion, F1, RankedMetric, accuracy, average_precision, f1_scores, hits_at, mean_over_labels,
    mean_reciprocal_rank, n_left_out, roc_auc,
};
pub use models::{Adjacency, Dims, InputSpec, Model, Propagation};
pub use optim::Optimizer;
pub use params::{Gradients, ParamId, ParamInit, Params};
pub use plan::{DataSizes, InteractionSizes, Plan, PlanDevice};
pub use recommend::{Ranking, Recommendations, Recommender, TOP_K, recommend};
pub use report::{
    BatchDone, CacheReport, ChosenBy, EpochReport, EpochTimes, LinkScores, PartialEpoch, RunSummary, Scores,
    StageTimes, TestReport,
};
pub use sampled::{CachePlan, MiniBatch, Neighborhoods, RowsOnDevice};
pub use session::{apply, train};
pub use similarity::{Similarity, similarity};
pub use state::{Run, RunState, StepCallback};
pub use tape::{
    AggregateOptions, AttentionOperands, AttentionOptions, BackwardPass, LinearOptions, Loss, Masks, Mode, Operation,
    Pool, SpmmOptions, Tape, Var,
};
pub use targets::{Part, Targets};
pub use thinned::Thinned;
