//! [`TypedSamples`] and [`SampledClassifier`]: logits and scores of nodes on sampled neighbors, batch by batch, with the
//! fan-out of training.

use std::ops::Range;

use girih_compute::{Backend, Shape};
use girih_datasets::{Labels, Split};
use girih_features::MiniBatchBackend;
use girih_graph_format::NodeId;

use super::TypedSeeds;
use crate::TrainError;
use crate::engine::{RunState, Scorer, Scores, TestReport};
use crate::minibatch::batch::{WholeGraph, recycle_inputs};
use crate::minibatch::host_batch::HostGraphs;
use crate::minibatch::scoring::NodeInference;
use crate::minibatch::train::{made_ahead, next_item};
use crate::models::Model;
use crate::tape::{Loss, Mode, Tape, Targets, Var};
use crate::tasks::nodes::{PredictionParts, Predictions, no_training_nodes};

/// Logits of some nodes of the target type on sampled neighbors. Draws are the same in every evaluation of a run.
pub(crate) struct TypedSamples<'a, B: Backend> {
    seeds: TypedSeeds<'a>,
    whole: WholeGraph<'a, B>,
    /// Width of the logits.
    n_classes: usize,
}

impl<'a, B: MiniBatchBackend> TypedSamples<'a, B> {
    /// Inference for the seeds, in their order. `whole` has the features.
    pub(crate) fn new(seeds: TypedSeeds<'a>, whole: WholeGraph<'a, B>, n_classes: usize) -> Self {
        Self { seeds, whole, n_classes }
    }

    /// Passes the logits of each batch to `work`, with the positions of its nodes among the seeds.
    ///
    /// # Errors
    /// When the sampler, the backend or `work` fails.
    fn each_batch(
        &self,
        model: &dyn Model<B>,
        state: &mut RunState<'_, B>,
        mut work: impl FnMut(&mut Tape<'_, B>, Var, Range<usize>) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let (plan, backend) = (self.seeds.plan_in_order(), state.backend);
        let n_ahead = state.config.batch.prefetch.max(1);
        let make = |at: usize| self.seeds.batch(plan.seeds(at), plan.key(at), plan.seeds(at).len());
        std::thread::scope(|scope| {
            let mut made = made_ahead(scope, "neighbors", (0..plan.n_batches(), n_ahead), &make)?;
            let mut first = 0;
            while let Some(batch) = next_item(&mut made)? {
                let HostGraphs::Relations { layers, nodes } = &batch.graphs else {
                    unreachable!("batches of a typed graph")
                };
                let inputs = self.whole.typed_inputs(backend, &mut state.pool, layers, nodes)?;
                let mut tape = Tape::new(backend, &state.params, &mut state.pool, Mode::Evaluate);
                let logits = model.forward(&mut tape, &inputs)?;
                let end = first + batch.outputs.len();
                work(&mut tape, logits, first..end)?;
                drop(tape);
                first = end;
                recycle_inputs(inputs, backend, &mut state.pool);
                state.pool.drop_unused();
            }
            Ok(())
        })
    }
}

impl<B: MiniBatchBackend> NodeInference<B> for TypedSamples<'_, B> {
    fn logits(&self, model: &dyn Model<B>, state: &mut RunState<'_, B>) -> Result<B::Matrix, TrainError> {
        let backend = state.backend;
        let mut all = backend.zeros(Shape::new(self.seeds.n_seeds(), self.n_classes), backend.activations())?;
        self.each_batch(model, state, |tape, logits, nodes| {
            let logits = tape.value(logits);
            Ok(backend.copy_block(backend.shape(logits), logits, (0, 0), &mut all, (nodes.start, 0))?)
        })?;
        Ok(all)
    }
}

/// A node classifier that is scored on sampled neighbors of the validation and test nodes. No more logits than those of a
/// batch are in memory. Training nodes have no scores.
pub(crate) struct SampledClassifier<'a, B: Backend> {
    /// Inference for the nodes with scores.
    pub(crate) samples: TypedSamples<'a, B>,
    /// Labels of these nodes.
    pub(crate) labels: &'a Labels,
    /// Positions of validation and test nodes among them, ascending.
    pub(crate) split: &'a Split,
    pub(crate) model: Box<dyn Model<B>>,
    /// Number of training nodes with a label.
    pub(crate) n_train: usize,
}

/// Sum of the losses of a part, and the number of its nodes.
#[derive(Clone, Copy, Default)]
struct LossSum {
    sum: f64,
    n: usize,
}

impl LossSum {
    fn mean(self) -> Option<f64> {
        (self.n > 0).then(|| self.sum / self.n as f64)
    }
}

impl<'a, B: MiniBatchBackend> SampledClassifier<'a, B> {
    /// Predictions for all nodes with scores, and the losses of validation and test nodes.
    ///
    /// # Errors
    /// When the sampler or the backend fails.
    fn predict(&self, state: &mut RunState<'a, B>) -> Result<(Predictions<'a, B>, [LossSum; 2]), TrainError> {
        let (backend, labels) = (state.backend, self.labels);
        let parts = [&self.split.val, &self.split.test];
        let (mut found, mut sums) = (PredictionParts::default(), [LossSum::default(); 2]);
        self.samples.each_batch(&*self.model, state, |tape, logits, nodes| {
            let ids: Vec<NodeId> = (nodes.start as NodeId..nodes.end as NodeId).collect();
            let targets = Targets::upload(backend, &labels.of_nodes(&ids))?;
            for (part, sum) in parts.into_iter().zip(&mut sums) {
                let rows = rows_within(part, &nodes).filter(|&row| labels.is_labelled(ids[row as usize]));
                let rows: Vec<NodeId> = rows.collect();
                if rows.is_empty() {
                    continue;
                }
                let loss = tape.loss(logits, &targets, &backend.upload_ids(&rows)?).map(Loss::into_value)?;
                sum.sum += f64::from(backend.download(&loss)?.data()[0]) * rows.len() as f64;
                sum.n += rows.len();
            }
            found.add(backend, tape.value(logits), labels)
        })?;
        Ok((Predictions::of_parts(found, labels, None), sums))
    }
}

/// Positions of ascending nodes that lie in a range, counted from its start.
fn rows_within<'n>(nodes: &'n [NodeId], range: &Range<usize>) -> impl Iterator<Item = NodeId> + use<'n> {
    let place = |end: usize| nodes.partition_point(|&node| (node as usize) < end);
    let start = range.start as NodeId;
    nodes[place(range.start)..place(range.end)].iter().map(move |node| node - start)
}

impl<'a, B: MiniBatchBackend> Scorer<'a, B> for SampledClassifier<'a, B> {
    fn model(&self) -> &dyn Model<B> {
        &*self.model
    }

    fn check_trains(&self) -> Result<(), TrainError> {
        if self.n_train > 0 { Ok(()) } else { Err(no_training_nodes()) }
    }

    fn has_validation(&self) -> bool {
        self.split.val.iter().any(|&node| self.labels.is_labelled(node))
    }

    fn evaluate(&self, state: &mut RunState<'a, B>) -> Result<Scores, TrainError> {
        let (predictions, [val, test]) = self.predict(state)?;
        Ok(Scores { val_loss: val.mean(), test_loss: test.mean(), ..predictions.scores(self.split)? })
    }

    fn test_report(&self, state: &mut RunState<'a, B>) -> Result<Option<TestReport>, TrainError> {
        let (predictions, [_, test]) = self.predict(state)?;
        predictions.report(&self.split.test, test.n).map(Some)
    }
}
