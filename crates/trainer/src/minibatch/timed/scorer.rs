//! [`TimedScorer`]: scores of held-out edges, each from the edges before it.

use girih_compute::Backend;
use girih_graph_format::{Matrix, NodeId};

use super::links::TimedLinks;
use crate::TrainError;
use crate::engine::{RunState, Scorer, Scores, TestReport};
use crate::minibatch::batch::{Batch, WholeGraph};
use crate::models::Model;
use crate::tape::{Mode, Tape};
use crate::tasks::links::{Judged, LinkPart};

/// Number of nodes that are embedded at a time, each of which has a tree.
const SEEDS_AT_ONCE: usize = 1024;

/// Model, edges in time, and features from which batches take their rows.
pub(crate) struct TimedScorer<'a, B: Backend> {
    pub(crate) links: &'a TimedLinks,
    pub(crate) whole: WholeGraph<'a, B>,
    pub(crate) model: Box<dyn Model<B>>,
}

impl<'a, B: Backend> TimedScorer<'a, B> {
    /// Scores of the edges of a part and of wrong ones, over all its batches; `None` without edges.
    fn judge(&self, state: &mut RunState<'a, B>, part: LinkPart) -> Result<Option<Judged>, TrainError> {
        let mut all: Option<Judged> = None;
        let mut losses = (0.0, 0_usize);
        for host in self.links.held_out(part) {
            let host = host?;
            let batch = Batch::upload(state.backend, &mut state.pool, &host, &self.whole)?;
            let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
            let (scores, loss) = batch.scores(&mut tape, &*self.model)?;
            let of_batch = Judged::of_scores(&state.backend.download(tape.value(scores))?, host.n_links());
            losses.0 += f64::from(loss.value(state.backend)?) * host.n_loss as f64;
            losses.1 += host.n_loss;
            drop(tape);
            state.pool.give(state.backend, loss.into_value());
            batch.recycle(state.backend, &mut state.pool);
            state.pool.drop_unused();
            all = Some(match all {
                None => of_batch,
                Some(before) => before.and(of_batch),
            });
        }
        Ok(all.map(|all| all.with_loss(losses.0 / losses.1.max(1) as f64)))
    }

    /// Embeddings of all nodes, one per row, from all edges of the data.
    ///
    /// # Errors
    /// When the backend fails.
    pub(super) fn embeddings(&self, state: &mut RunState<'a, B>, n_nodes: usize) -> Result<Matrix, TrainError> {
        let (mut all, mut width) = (Vec::new(), 0);
        for (number, first) in (0..n_nodes).step_by(SEEDS_AT_ONCE).enumerate() {
            let nodes = first as NodeId..(first + SEEDS_AT_ONCE).min(n_nodes) as NodeId;
            let host = self.links.of_nodes(nodes, number as u32)?;
            let batch = Batch::upload(state.backend, &mut state.pool, &host, &self.whole)?;
            let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
            let outputs = self.model.forward(&mut tape, &batch.inputs)?;
            let rows = state.backend.download(tape.value(outputs))?;
            drop(tape);
            batch.recycle(state.backend, &mut state.pool);
            width = rows.n_cols();
            all.extend_from_slice(rows.data());
        }
        Ok(Matrix::new(n_nodes, width, all)?)
    }
}

impl<'a, B: Backend> Scorer<'a, B> for TimedScorer<'a, B> {
    fn model(&self) -> &dyn Model<B> {
        &*self.model
    }

    fn has_validation(&self) -> bool {
        self.links.has_validation()
    }

    fn evaluate(&self, state: &mut RunState<'a, B>) -> Result<Scores, TrainError> {
        let val = self.judge(state, LinkPart::Val)?;
        let test = self.judge(state, LinkPart::Test)?;
        Ok(Judged::scores(val.as_ref(), test.as_ref()))
    }

    fn test_report(&self, _state: &mut RunState<'a, B>) -> Result<Option<TestReport>, TrainError> {
        Ok(None)
    }
}
