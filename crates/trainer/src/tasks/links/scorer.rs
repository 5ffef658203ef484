//! [`LinkScorer`]: scores of a model on held-out links and non-links.

use girih_compute::Backend;
use girih_graph_format::Matrix;

use super::split::{Draws, LinkPart};
use super::{Link, NonLinks, PairList, Pairs};
use crate::TrainError;
use crate::engine::{
    LinkScores, RunState, Scorer, Scores, TestReport, average_precision, hits_at, mean_reciprocal_rank, roc_auc,
};
use crate::layers::Inputs;
use crate::models::Model;
use crate::tape::{Mode, Tape};

/// Rank among the non-links that a link must beat to be a hit.
pub const HITS_K: usize = 20;

/// Pairs of both held-out parts, on the device; `None` for a part without links.
pub(crate) struct HeldOut<B: Backend> {
    val: Option<Part<B>>,
    test: Option<Part<B>>,
}

struct Part<B: Backend> {
    pairs: Pairs<B>,
    n_links: usize,
}

impl<B: Backend> HeldOut<B> {
    /// Validation and test links, with the non-links that each part is held against.
    pub(crate) fn new(backend: &B, val: &PairList, test: &PairList) -> Result<Self, TrainError> {
        let upload = |&PairList { ref ends, n_links }: &PairList| -> Result<Option<Part<B>>, TrainError> {
            let part = |pairs| Part { pairs, n_links };
            (n_links > 0).then(|| Pairs::upload(backend, ends, n_links).map(part)).transpose()
        };
        Ok(Self { val: upload(val)?, test: upload(test)? })
    }
}

/// Links of a part, followed by as many non-links.
pub fn held_out(links: &[Link], non_links: &NonLinks, seed: u64, part: LinkPart) -> PairList {
    let key = Draws::HeldOut.key(seed).child(part as u64);
    let others = (0..links.len() as u64).map(|i| non_links.draw(key.stream(i, 0)));
    PairList { ends: links.iter().copied().chain(others).collect(), n_links: links.len() }
}

/// Model, graph of the training links, and pairs that it is scored on.
pub(crate) struct LinkScorer<'a, B: Backend> {
    pub(crate) inputs: &'a Inputs<B>,
    pub(crate) held_out: &'a HeldOut<B>,
    pub(crate) model: Box<dyn Model<B>>,
}

impl<'a, B: Backend> LinkScorer<'a, B> {
    /// Embeddings of all nodes, on the host.
    ///
    /// # Errors
    /// When the backend fails.
    pub(super) fn embeddings(&self, state: &mut RunState<'a, B>) -> Result<Matrix, TrainError> {
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
        let embeddings = self.model.forward(&mut tape, self.inputs)?;
        Ok(state.backend.download(tape.value(embeddings))?)
    }
}

impl<'a, B: Backend> Scorer<'a, B> for LinkScorer<'a, B> {
    fn model(&self) -> &dyn Model<B> {
        &*self.model
    }

    fn has_validation(&self) -> bool {
        self.held_out.val.is_some()
    }

    fn evaluate(&self, state: &mut RunState<'a, B>) -> Result<Scores, TrainError> {
        let backend = state.backend;
        let mut tape = Tape::new(backend, &state.params, &mut state.pool, Mode::Evaluate);
        let embeddings = self.model.forward(&mut tape, self.inputs)?;
        let mut judge = |part: &'a Part<B>| -> Result<Judged, TrainError> {
            let scores = part.pairs.scores(&mut tape, embeddings)?;
            let loss = part.pairs.loss(&mut tape, scores)?;
            let judged = Judged::of_scores(&backend.download(tape.value(scores))?, part.n_links);
            Ok(judged.with_loss(f64::from(loss.value(backend)?)))
        };
        let held_out = self.held_out;
        let val = held_out.val.as_ref().map(&mut judge).transpose()?;
        let test = held_out.test.as_ref().map(&mut judge).transpose()?;
        Ok(Judged::scores(val.as_ref(), test.as_ref()))
    }

    fn test_report(&self, _state: &mut RunState<'a, B>) -> Result<Option<TestReport>, TrainError> {
        Ok(None)
    }
}

/// Scores of a part's links, and of its non-links.
pub(crate) struct Judged {
    loss: f64,
    links: Vec<f32>,
    others: Vec<f32>,
}

impl Judged {
    /// Scores of pairs, of which the first `n_links` are links, without their loss.
    pub(crate) fn of_scores(scores: &Matrix, n_links: usize) -> Self {
        let (links, others) = scores.data().split_at(n_links);
        Self { loss: 0.0, links: links.to_vec(), others: others.to_vec() }
    }

    /// These scores with the mean loss of their pairs.
    pub(crate) fn with_loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    /// These scores and those of further pairs.
    pub(crate) fn and(mut self, further: Self) -> Self {
        self.links.extend(further.links);
        self.others.extend(further.others);
        self
    }

    /// Scores of a run from those of its validation part and of its test part.
    pub(crate) fn scores(val: Option<&Self>, test: Option<&Self>) -> Scores {
        Scores {
            val_roc_auc: val.map(Self::roc_auc),
            val_loss: val.map(|val| val.loss),
            test_roc_auc: test.map(Self::roc_auc),
            test_loss: test.map(|test| test.loss),
            links: test.map(Self::ranks),
            ..Scores::default()
        }
    }

    fn all(&self) -> (Vec<f32>, Vec<bool>) {
        let labels = (0..self.links.len() + self.others.len()).map(|pair| pair < self.links.len());
        ([&self.links[..], &self.others].concat(), labels.collect())
    }

    fn roc_auc(&self) -> f64 {
        let (scores, labels) = self.all();
        roc_auc(&scores, &labels).expect("links and others")
    }

    fn ranks(&self) -> LinkScores {
        let (scores, labels) = self.all();
        LinkScores {
            average_precision: average_precision(&scores, &labels).expect("links"),
            hits_at_20: hits_at(HITS_K, &self.links, &self.others).expect("links"),
            mrr: mean_reciprocal_rank(&self.links, &self.others).expect("links"),
        }
    }
}
