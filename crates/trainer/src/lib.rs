//! Training graph neural networks over any compute backend.
//!
//! - [`train()`]: runs a [`TrainConfig`] on a data set from start to result. Start here.
//! - [`Model`]: a forward function over a [`Tape`]; add one in twenty lines. [`BuildModel`] shows a model of your own,
//!   which [`train_model()`] trains without a change of this crate.
//! - [`Tape`]: a few coarse operations ([`Tape::linear`], [`Tape::spmm`], …), each with its own backward.
//! - [`Run`]: one run, epoch by epoch, with checkpoints that resume bit-exactly. [`FullBatch`] and [`MiniBatch`]
//!   classify nodes, on the whole graph or on sampled subgraphs; [`LinkPredictor`] and [`MiniBatch`] predict links;
//!   [`Recommender`] ranks items for users, and [`TripleTrainer`] entities for triples.
//! - [`export_weights`] and [`import_weights`]: weights as a state dict of PyG or DGL, and back.
//! - [`NodePredictor`]: a trained classifier that answers for some nodes at a time, also for new ones.
//! - [`Plan`]: bytes and seconds of a session, predicted by a dry run on a symbolic backend.
//! - [`supported()`]: the engine for a combination of task, model, batches, ranks, device and features, or the reason
//!   why there is none.
//! - [`CachePlan`]: share of graph and features that each device holds, where these exceed its memory.
//!
//! # Contents
//! Layers, lowest first. A file imports only from its own layer or from lower ones.
//!
//! - `error.rs`: [`TrainError`].
//! - `config/`: [`TrainConfig`] and its parts, their defaults and their rules.
//! - `tape/`: [`Tape`], its operations, parameters and targets; `tape/ranks/`: products with operands of other ranks.
//! - `layers/`: parameters with their products, and the [`Inputs`] that they read.
//! - `models/`: [`Model`], the networks with the [`InputSpec`] of each, and [`BuildModel`], which makes them.
//! - `data/`: checks of data, and the construction of inputs on a device.
//! - `engine/`: a [`Run`] of any task: its state, optimiser, checkpoints, metrics, reports and events.
//! - `weights/`: weights of a checkpoint under the names and in the layouts of PyG, written and read back.
//! - `tasks/`: classes of nodes, links, recommendations and triples, in steps that see the whole graph.
//! - `minibatch/`, `distributed/`: steps on sampled parts of the graph, and work that ranks share.
//! - `train.rs`, `similarity.rs`, `predictor.rs`: what callers start, for all of the above.
//! - `estimate/`: [`Plan`] and all other predictions of memory and time.
//! - `testing.rs`: internal items for the tests in `tests/`, which hold all tests of this crate.
//!
//! Not here: the computation of an operation (`girih-compute`) and the source of data (`girih-datasets`).

#![forbid(unsafe_code)]

mod config;
mod data;
pub mod distributed;
mod engine;
mod error;
mod estimate;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod instances;
mod layers;
mod minibatch;
pub mod models;
mod predictor;
mod similarity;
mod tape;
mod tasks;
#[doc(hidden)]
pub mod testing;
mod train;
mod weights;

pub use config::{
    Aggregator, Arrangement, BatchConfig, BatchKind, Cache, CacheConfig, Combination, DEFAULT_BATCH_SIZE,
    DEFAULT_FANOUT, DEFAULT_LAYER_NODES, Decay, DecoderKind, DeviceKind, Distance, EdgeConfig, EdgeWeights,
    ExecutionPlan, Jump, LinkConfig, Metric, ModelBatches, ModelConfig, ModelKind, ModelProperties, NormKind,
    OptimizerConfig, OptimizerKind, OwnModel, Reason, SaintKind, Schedule, ScoreBy, SelfWeight, TaskKind, TimeConfig,
    TimeSpan, TrainConfig, TripleConfig, differences, parse_codec, supported,
};
pub use data::unread_types;
pub use engine::{
    BatchDone, CacheReport, Checkpoint, ChosenBy, ClassScores, Confusion, ConfusionMatrix, Control, DataShape,
    EntityRanks, EpochReport, EpochTimes, Event, F1, LinkScores, MeanStd, Observer, Optimizer, Outcome, PartialEpoch,
    Progress, RankedMetric, Ranking, Run, RunState, RunSummary, Scores, SessionOptions, StageTimes, StepCallback,
    TOP_K, TestReport, Thinned, TripleScores, accuracy, average_precision, checkpoint_path, f1_scores, filtered_rank,
    hits_at, mean_over_labels, mean_reciprocal_rank, n_left_out, roc_auc,
};
pub use error::TrainError;
pub use estimate::{CachePlan, DataSizes, InteractionSizes, Plan, PlanDevice, RowsOnDevice, TypeFeatureSizes};
pub use layers::{
    AttentionKind, AttentionSizes, Entry, FeatureInput, GraphAttention, GraphConv, HostLayer, Inputs, LayerEdges,
    LayerGraphs, LayerRelations, LayerTypes, LearnedRows, Linear, NormAxis, Normalization, OwnWeights, RelationEdges,
    RelationForm, RelationGraph, RelationInput, RelationPairs, RelationSpec, Rows, TransformedRelations, TypeRows,
};
pub use minibatch::{Embedded, MiniBatch, Neighborhoods, embed, embed_model};
pub use models::{Adjacency, BlockDraws, BuildModel, BuildSampler, Dims, InputSpec, Model, Propagation};
pub use predictor::NodePredictor;
pub use similarity::{Similarity, similarity};
pub use tape::{
    AggregateOptions, AttentionOperands, AttentionOptions, BackwardPass, BlockEdges, BlockGraph, Diagonal,
    EncodedInput, Gradients, Graph, LinearOptions, Loss, Masks, Mode, Operation, ParamId, ParamInit, Params, Part,
    Pool, RowIds, SpmmOptions, Tape, Targets, Var,
};
pub use tasks::links::{
    HITS_K, Link, LinkPart, LinkPredictor, LinkSplit, Links, NonLinks, Pairs, hits_of_edges, ranks_of_edges,
};
pub use tasks::nodes::{FullBatch, Task};
pub use tasks::recommend::{Recommendations, Recommender, recommend};
pub use tasks::triples::{CandidatePairs, Decoder, Known, Query, TripleTrainer, score_triples};
pub use train::{apply, apply_model, embeddings, train, train_model};
pub use weights::{
    ImportedConfig, Library, NamedWeight, WeightFormat, export_weights, import_weights, read_weights, write_weights,
};

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
