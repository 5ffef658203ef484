//! [`Walker`]: the state of an unfinished walk, which may continue on another rank.

use girih_random::Stream;

use crate::key::Scheme;
use crate::sampler::check_bias;
use crate::walk::ONE;
use crate::{Bias, DrawKey, NodeId, Patch, RandomWalks, SampleError};

/// State of a walk: everything that the holder of its next node needs to continue it (Cai et al., DSP, PPoPP 2023,
/// section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walker {
    /// Number of the walk in its batch, which keys its draws.
    pub number: u32,
    /// Start node.
    pub start: NodeId,
    /// Present node.
    pub node: NodeId,
    /// Number of steps taken.
    pub n_steps: u32,
    /// Number of draws made.
    pub n_drawn: u32,
    /// Previous node; not sent to other ranks.
    pub(crate) before: Option<NodeId>,
}

impl Walker {
    /// Walk `number` of a batch, at its start.
    #[must_use]
    pub fn new(number: u32, start: NodeId) -> Self {
        Self { number, start, node: start, n_steps: 0, n_drawn: 0, before: None }
    }
}

impl RandomWalks {
    /// Continues a walk while it is at nodes of `patch`, and calls `visit` for each node that it steps to. Returns
    /// whether it continues at [`Walker::node`], outside the patch. Steps are those of
    /// [`walk_until`](Self::walk_until). `bias` holds the weights of the patch's edges; the walks must have none of
    /// their own.
    ///
    /// # Errors
    /// When the walks are of second order, which needs the neighbors of two nodes at once, or have weights of their
    /// own. When the weights are not those of the patch.
    pub fn go_on(
        &self,
        patch: Patch<'_>,
        bias: Option<&Bias>,
        walker: &mut Walker,
        key: DrawKey,
        is_end: &impl Fn(NodeId) -> bool,
        visit: impl FnMut(NodeId),
    ) -> Result<bool, SampleError> {
        if self.is_second_order() {
            return Err(SampleError::invalid(
                "a step of node2vec needs the neighbors of two nodes at once, which may lie in two patches; take walks of \
                 first order, or one whole graph",
            ));
        }
        if self.is_weighted() {
            return Err(SampleError::invalid(
                "the walks have weights of a whole graph; give each patch those of its edges",
            ));
        }
        check_bias(bias, patch.rows())?;
        let stream = key.hop(Scheme::Walks, 0).stream_after(walker.number, walker.n_drawn);
        let mut draws = Draws { stream, n_drawn: walker.n_drawn };
        let goes_on = self.take(patch, bias, walker, &mut draws, is_end, visit);
        walker.n_drawn = draws.n_drawn;
        Ok(goes_on)
    }
}

/// Draws of a walk, counted.
pub(crate) struct Draws {
    stream: Stream,
    n_drawn: u32,
}

impl Draws {
    /// Draws of a stream from its beginning.
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, n_drawn: 0 }
    }

    /// The next draw below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.n_drawn += 1;
        self.stream.below(bound)
    }

    /// Whether an event of probability `chance` happens. A chance of zero draws nothing.
    pub(crate) fn happens(&mut self, chance: f32) -> bool {
        chance > 0.0 && (self.below(ONE as u64) as f64) < f64::from(chance) * ONE
    }
}
