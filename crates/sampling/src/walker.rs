//! [`Walker`]: a walk that is under way, and may go on elsewhere.

use girih_random::Stream;

use crate::key::Scheme;
use crate::sampler::check_bias;
use crate::walk::ONE;
use crate::{Bias, DrawKey, NodeId, Patch, RandomWalks, SampleError};

/// The state of a walk: all that whoever holds its next node needs to go on with it (Cai et al., DSP, PPoPP 2023,
/// section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walker {
    /// Which walk of its batch it is: its draws are keyed by that.
    pub number: u32,
    /// Where it began.
    pub start: NodeId,
    /// Where it is.
    pub node: NodeId,
    /// Steps that it has taken.
    pub n_steps: u32,
    /// Draws that it has made.
    pub n_drawn: u32,
    /// Where it was a step before, while it does not travel.
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
    /// Lets a walk go on while it is at nodes of `patch`, and tells `visit` of each node that it steps to; whether it
    /// goes on at [`Walker::node`], which others hold. Steps are those of [`walk_until`](Self::walk_until); `bias` are
    /// the weights of the patch's edges, as walks have none of their own here.
    ///
    /// # Errors
    /// When the walks are of second order, which needs the neighbours of two nodes at once, or have weights of their
    /// own, and when the weights are not those of the patch.
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
                "a step of node2vec needs the neighbours of two nodes at once, which may lie in two patches; take walks of \
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

/// The draws of a walk, counted.
pub(crate) struct Draws {
    stream: Stream,
    n_drawn: u32,
}

impl Draws {
    /// Those of a stream from its beginning.
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, n_drawn: 0 }
    }

    /// The next draw below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.n_drawn += 1;
        self.stream.below(bound)
    }

    /// Whether what has a chance happens. Without a chance nothing is drawn.
    pub(crate) fn happens(&mut self, chance: f32) -> bool {
        chance > 0.0 && (self.below(ONE as u64) as f64) < f64::from(chance) * ONE
    }
}
