//! [`Pairs`]: links and non-links on a device, and their scores.

use girih_compute::{Backend, ComputeError, Dtype, SparseOperand};
use girih_graph_format::{Csr, Matrix, NodeId, Scales};

use super::Link;
use crate::TrainError;
use crate::tape::{Loss, Tape, Targets, Var};

/// Links, followed by non-links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairList {
    /// Ends of each pair.
    pub ends: Vec<Link>,
    /// Number of links.
    pub n_links: usize,
}

impl PairList {
    /// Links of the list.
    pub fn links(&self) -> &[Link] {
        &self.ends[..self.n_links]
    }
}

/// Pairs of rows of embeddings, links first. The score of a pair is the inner product of its two rows.
pub struct Pairs<B: Backend> {
    pub(crate) n_pairs: usize,
    /// Row of the first node of each pair.
    pub(crate) first: B::Ids,
    /// Row of the second node of each pair.
    pub(crate) second: B::Ids,
    /// Pattern of an identity matrix: its sampled product multiplies row `i` of one operand with row `i` of the
    /// other.
    pub(crate) diagonal: B::Sparse,
    /// One for links, zero for non-links (n_pairs × 1).
    pub(crate) targets: Targets<B>,
    /// Ids `0..n_pairs`, over which the loss is a mean.
    pub(crate) all: B::Ids,
}

impl<B: Backend> Pairs<B> {
    /// Moves pairs to the device; the first `n_links` are links.
    ///
    /// # Errors
    /// When the device's memory does not suffice, or there are more pairs than a matrix has rows.
    pub fn upload(backend: &B, pairs: &[Link], n_links: usize) -> Result<Self, TrainError> {
        let n_pairs = pairs.len();
        let all: Vec<NodeId> = (0..n_pairs as NodeId).collect();
        let end = |which: usize| pairs.iter().map(|pair| pair[which]).collect::<Vec<NodeId>>();
        let diagonal = Csr::new(n_pairs, n_pairs, (0..=n_pairs as u64).collect::<Vec<_>>(), all.clone(), None)?;
        let operand = SparseOperand { csr: &diagonal, scales: Scales::default(), symmetric: true, names: None };
        let targets: Vec<f32> = (0..n_pairs).map(|pair| f32::from(u8::from(pair < n_links))).collect();
        Ok(Self {
            n_pairs,
            first: backend.upload_ids(&end(0))?,
            second: backend.upload_ids(&end(1))?,
            diagonal: backend.upload_sparse(&operand)?,
            targets: Targets::Multi(backend.upload(&Matrix::new(n_pairs, 1, targets)?, Dtype::F32)?),
            all: backend.upload_ids(&all)?,
        })
    }

    /// Scores of all pairs, `n_pairs × 1`: the logits of being a link.
    ///
    /// # Errors
    /// When a pair names a row that `embeddings` does not have, or the backend fails.
    pub fn scores<'a>(&'a self, tape: &mut Tape<'a, B>, embeddings: Var) -> Result<Var, ComputeError> {
        let first = tape.gather_rows(embeddings, &self.first, self.n_pairs)?;
        let second = tape.gather_rows(embeddings, &self.second, self.n_pairs)?;
        tape.sddmm(&self.diagonal, first, second, 1)
    }

    /// Mean binary cross-entropy of [scores](Self::scores).
    ///
    /// # Errors
    /// When there are no pairs, or the backend fails.
    pub fn loss(&self, tape: &mut Tape<'_, B>, scores: Var) -> Result<Loss<B>, ComputeError> {
        tape.loss(scores, &self.targets, &self.all)
    }
}
