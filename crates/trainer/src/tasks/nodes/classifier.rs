//! [`Classifier`]: a model with the nodes that it is scored on, shared by runs of all kinds of batches.

use girih_compute::Backend;
use girih_datasets::{Labels, Split};
use girih_graph_format::{Matrix, NodeId};

use super::predictions::Predictions;
use crate::TrainError;
use crate::engine::{RunState, Scorer, Scores, TestReport};
use crate::layers::Inputs;
use crate::models::Model;
use crate::tape::ranks::Ranks;
use crate::tape::{Loss, Mode, Part, Tape, Targets, Var};

/// Labels and split of a run, on the host and on the device, for the local nodes.
pub struct Task<'a, B: Backend> {
    labels: &'a Labels,
    split: &'a Split,
    pub(crate) targets: &'a Targets<B>,
    pub(crate) train: Part<B>,
    val: Part<B>,
    test: Part<B>,
}

impl<'a, B: Backend> Task<'a, B> {
    /// A task on `split`. Losses ignore nodes without a label.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new(backend: &B, labels: &'a Labels, targets: &'a Targets<B>, split: &'a Split) -> Result<Self, TrainError> {
        Self::on_ranks(backend, labels, targets, split, None)
    }

    /// As [`new`](Self::new), but on several ranks. Each passes labels and split of its own nodes, with ids relative
    /// to its first node. All ranks call it together.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when another rank fails.
    pub fn on_ranks(
        backend: &B,
        labels: &'a Labels,
        targets: &'a Targets<B>,
        split: &'a Split,
        ranks: Option<&Ranks<B>>,
    ) -> Result<Self, TrainError> {
        let labelled = split
            .parts()
            .map(|(_, rows)| -> Vec<NodeId> { rows.iter().copied().filter(|&v| labels.is_labelled(v)).collect() });
        let here = labelled.each_ref().map(|rows| rows.len() as u64);
        let all = Ranks::totals(ranks, &here)?;
        let part = |i: usize| Part::new(backend, &labelled[i], all[i] as usize);
        Ok(Self { labels, split, targets, train: part(0)?, val: part(1)?, test: part(2)? })
    }

    /// Whether any rank has validation nodes with labels.
    pub(crate) fn has_validation(&self) -> bool {
        self.val.n_all > 0
    }

    /// Refuses to train without a labelled training node. A trained model can be applied without one.
    pub(crate) fn check_trains(&self) -> Result<(), TrainError> {
        if self.train.n_all > 0 {
            return Ok(());
        }
        Err(no_training_nodes())
    }
}

/// Error for a split that nothing can be trained on.
pub(crate) fn no_training_nodes() -> TrainError {
    TrainError::invalid("the split has no training nodes with a label; choose another split or add labels")
}

/// A model and the nodes that it is scored on.
pub(crate) struct Classifier<'a, B: Backend> {
    /// Graph and features that one pass reads, for all local nodes.
    pub(crate) inputs: &'a Inputs<B>,
    pub(crate) task: Task<'a, B>,
    pub(crate) model: Box<dyn Model<B>>,
}

impl<'a, B: Backend> Classifier<'a, B> {
    /// Logits of the local nodes for the current parameters, on the host.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn logits(&self, state: &mut RunState<'a, B>) -> Result<Matrix, TrainError> {
        let (tape, logits) = self.forward(state, None)?;
        Ok(tape.backend().download(tape.value(logits))?)
    }

    /// Rows of the last hidden layer of the local nodes, on the host; `None` without hidden layers.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn hidden(&self, state: &mut RunState<'a, B>) -> Result<Option<Matrix>, TrainError> {
        let (tape, logits) = self.forward(state, None)?;
        let hidden = self.model.last_hidden(&tape, logits);
        Ok(hidden.map(|hidden| tape.backend().download(tape.value(hidden))).transpose()?)
    }

    /// As [`Run::wire_error`](crate::Run::wire_error).
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn wire_error(&self, state: &mut RunState<'a, B>) -> Result<Option<f64>, TrainError> {
        let (Some(graph), Some(ranks)) = (self.inputs.rounding(), self.ranks()) else { return Ok(None) };
        // Unrounded operands have other sizes, so that buffers of steps do not fit.
        state.pool.clear();
        let exact = graph.unrounded(|| self.logits(state))?;
        state.pool.clear();
        let rounded = self.logits(state)?;
        Ok(Some(ranks.relative_error(&rounded, &exact)?))
    }

    /// This rank and its world, if each rank has other nodes.
    fn ranks(&self) -> Option<&'a Ranks<B>> {
        self.inputs.ranks.as_deref()
    }

    /// Tape and logits of one pass without dropout, or of the `given` logits.
    fn forward<'t>(
        &'t self,
        state: &'t mut RunState<'a, B>,
        given: Option<&'t B::Matrix>,
    ) -> Result<(Tape<'t, B>, Var), TrainError> {
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate).among(self.ranks());
        let logits = match given {
            None => self.model.forward(&mut tape, self.inputs)?,
            Some(logits) => tape.constant(logits),
        };
        Ok((tape, logits))
    }

    /// Scores of the current parameters, or of the `given` logits.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn evaluate(
        &self,
        state: &mut RunState<'a, B>,
        given: Option<&B::Matrix>,
    ) -> Result<Scores, TrainError> {
        let (backend, ranks, split) = (state.backend, self.ranks(), self.task.split);
        let (mut tape, logits) = self.forward(state, given)?;
        let mut mean_loss = |part: &Part<B>| -> Result<Option<B::Matrix>, TrainError> {
            let some = (part.n_all > 0).then_some(part);
            Ok(some.map(|part| tape.loss_of(logits, self.task.targets, part)).transpose()?.map(Loss::into_value))
        };
        let (val_loss, test_loss) = (mean_loss(&self.task.val)?, mean_loss(&self.task.test)?);
        // The host reads results only after all operations are launched.
        let mut scores = match self.task.targets {
            Targets::Single(classes) if self.task.labels.n_classes() > 2 => {
                let logits = tape.value(logits);
                let accuracy = |part: &Part<B>| accuracy(backend, ranks, logits, classes, part);
                let scores = Scores {
                    train_accuracy: accuracy(&self.task.train)?,
                    val_accuracy: accuracy(&self.task.val)?,
                    test_accuracy: accuracy(&self.task.test)?,
                    ..Scores::default()
                };
                drop(tape);
                scores
            }
            _ => {
                let predictions = Predictions::of(backend, tape.value(logits), self.task.labels, ranks)?;
                drop(tape);
                predictions.scores(split)?
            }
        };
        let mut read = |loss: Option<B::Matrix>| -> Result<Option<f64>, TrainError> {
            let Some(loss) = loss else { return Ok(None) };
            let value = backend.download(&loss)?.data()[0];
            state.pool.give(backend, loss);
            Ok(Some(f64::from(value)))
        };
        scores.val_loss = read(val_loss)?;
        scores.test_loss = read(test_loss)?;
        Ok(scores)
    }

    /// Detailed report on the test nodes, for the current parameters or the `given` logits.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn test_report(
        &self,
        state: &mut RunState<'a, B>,
        given: Option<&B::Matrix>,
    ) -> Result<TestReport, TrainError> {
        let (tape, logits) = self.forward(state, given)?;
        let predictions = Predictions::of(tape.backend(), tape.value(logits), self.task.labels, self.ranks())?;
        predictions.report(&self.task.split.test, self.task.test.n_all)
    }
}

impl<'a, B: Backend> Scorer<'a, B> for Classifier<'a, B> {
    fn model(&self) -> &dyn Model<B> {
        &*self.model
    }

    fn check_trains(&self) -> Result<(), TrainError> {
        self.task.check_trains()
    }

    fn has_validation(&self) -> bool {
        self.task.has_validation()
    }

    fn evaluate(&self, state: &mut RunState<'a, B>) -> Result<Scores, TrainError> {
        Self::evaluate(self, state, None)
    }

    fn test_report(&self, state: &mut RunState<'a, B>) -> Result<Option<TestReport>, TrainError> {
        Self::test_report(self, state, None).map(Some)
    }

    fn wire_error(&self, state: &mut RunState<'a, B>) -> Result<Option<f64>, TrainError> {
        Self::wire_error(self, state)
    }
}

/// Share of nodes of a part whose largest logit is the correct class, counted on the device; `None` for an empty
/// part.
fn accuracy<B: Backend>(
    backend: &B,
    ranks: Option<&Ranks<B>>,
    logits: &B::Matrix,
    classes: &B::Ids,
    part: &Part<B>,
) -> Result<Option<f64>, TrainError> {
    let here = backend.count_correct(logits, classes, &part.rows)?;
    let correct = Ranks::totals(ranks, &[here])?[0];
    Ok((part.n_all > 0).then(|| correct as f64 / part.n_all as f64))
}
