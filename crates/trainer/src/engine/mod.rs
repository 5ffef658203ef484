//! Runs of any task.
//!
//! - [`Run`]: one run, epoch by epoch, over a [`RunState`], which a [`Checkpoint`] holds.
//! - [`train_runs`]: all runs of a session, with [`SessionOptions`], [`Event`]s and an [`Outcome`].
//! - [`Scorer`]: evaluation of a model, for runs whose steps do not tell the task.

mod checkpoint;
mod metrics;
mod observe;
mod optim;
mod prepare;
mod report;
mod runs;
mod scorer;
mod state;
mod thinned;

pub(crate) use checkpoint::CHECKPOINT_VERSION;
pub use checkpoint::{Checkpoint, DataShape, Progress};
pub(crate) use metrics::count_correct;
pub use metrics::{
    ClassScores, Confusion, ConfusionMatrix, EntityRanks, F1, RankedMetric, Ranking, TOP_K, accuracy,
    average_precision, f1_scores, filtered_rank, hits_at, mean_over_labels, mean_reciprocal_rank, n_left_out, roc_auc,
};
pub use observe::{Control, Event, MeanStd, Observer, Outcome, SessionOptions, checkpoint_path};
pub use optim::Optimizer;
pub(crate) use prepare::{ModelSource, apply_best, config_for, restore_best, with_labels_for};
pub use report::{
    BatchDone, CacheReport, ChosenBy, EpochReport, EpochTimes, LinkScores, PartialEpoch, RunSummary, Scores,
    StageTimes, TestReport, TripleScores,
};
pub(crate) use runs::{epoch_of_steps, train_runs};
pub(crate) use scorer::Scorer;
pub(crate) use state::Stopwatch;
pub use state::{Run, RunState, StepCallback};
pub use thinned::Thinned;
