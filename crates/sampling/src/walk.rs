//! [`RandomWalks`]: walks from node to node, as plain data.

use girih_graph_format::Csr;
use rayon::prelude::*;

use crate::key::Scheme;
use crate::sampler::{check_bias, check_graph};
use crate::walker::Draws;
use crate::{Bias, DrawKey, NodeId, Patch, SampleError, Walker};

/// Number of walks of one task.
const WALKS_PER_TASK: usize = 256;
/// Probability one on the integer scale of draws, 2³².
pub(crate) const ONE: f64 = 4_294_967_296.0;

/// Options of random walks: length, ends, restarts and bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WalkOptions {
    /// Number of steps of a walk that does not end earlier.
    pub length: u32,
    /// Chance that a walk ends before a step.
    pub stop: f32,
    /// Chance that a step leads back to the start of the walk (Tong et al., Fast Random Walk with Restart, ICDM
    /// 2006).
    pub restart: f32,
    /// Second-order bias of node2vec.
    pub node2vec: Option<Node2Vec>,
}

impl WalkOptions {
    /// Makes options for walks of `length` steps, each to any neighbor.
    #[must_use]
    pub fn new(length: u32) -> Self {
        Self { length, stop: 0.0, restart: 0.0, node2vec: None }
    }
}

/// Second-order bias: a step depends on the node before the present one (Grover and Leskovec, node2vec, KDD 2016,
/// section 3.2.2). From `v`, reached from `t`, it goes to a neighbor `x` in proportion to the weight of the edge and
/// to a factor. The factor is `1/p` for `x = t`, 1 for a neighbor of `t`, and `1/q` for other nodes.
///
/// The first step, and a step after a restart, have no `t` and no such factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node2Vec {
    /// Return parameter: large values keep a walk from returning at once.
    pub p: f32,
    /// In-out parameter: large values keep a walk near its previous node, small ones lead it away.
    pub q: f32,
}

impl Node2Vec {
    /// Largest `p` and `q`; the smallest is its reciprocal. A draw takes at most the square of it tries on average.
    pub const MAX: f32 = 256.0;
}

/// Walks: sequences of nodes, the first of each its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walks {
    /// Offset of each walk in `nodes`; the last element is their length.
    pub indptr: Vec<u64>,
    /// Nodes of one walk after the other.
    pub nodes: Vec<NodeId>,
}

impl Walks {
    /// Number of walks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// Whether there are no walks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Nodes of walk `i`, its start first.
    ///
    /// # Panics
    /// When `i` is not below the number of walks.
    #[must_use]
    pub fn walk(&self, i: usize) -> &[NodeId] {
        &self.nodes[self.indptr[i] as usize..self.indptr[i + 1] as usize]
    }
}

/// Walks by random steps from a node to one of its in-neighbors, as the hops of a [`NeighborSampler`] go. To walk
/// along the direction of edges, pass the transpose of the graph. A walk ends early in a node without neighbors, by
/// [chance](WalkOptions::stop), or at a node that [ends](Self::walk_until) it.
///
/// The draws of walk `i` of a batch depend on the [`DrawKey`] and `i` alone; `docs/draws.md` defines them.
/// Second-order steps are drawn by rejection (Yang et al., KnightKing, SOSP 2019), without a table per edge or a pass
/// over neighbors.
///
/// [`NeighborSampler`]: crate::NeighborSampler
///
/// ```
/// use girih_graph_format::{Coo, Duplicates};
/// use girih_sampling::{DrawKey, RandomWalks, WalkOptions};
///
/// // 0 ◀─ 1 ◀─ 2
/// let path = Coo::new(3, 3, vec![0, 1], vec![1, 2], None)?.to_csr(Duplicates::Refuse)?;
/// let walks = RandomWalks::new(WalkOptions::new(5))?.walk(&path, &[1, 0], DrawKey::new(7, 0, 0))?;
/// assert_eq!((walks.walk(0), walks.walk(1)), (&[1, 2][..], &[0, 1, 2][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RandomWalks {
    options: WalkOptions,
    second_order: Option<SecondOrder>,
    bias: Option<Bias>,
}

impl RandomWalks {
    /// Makes walks whose first-order steps go to all neighbors with equal chances.
    ///
    /// # Errors
    /// When a chance is not within 0..=1, or `p` or `q` is not within `1 / Node2Vec::MAX..=Node2Vec::MAX`.
    pub fn new(options: WalkOptions) -> Result<Self, SampleError> {
        for (name, chance) in [("stop", options.stop), ("restart", options.restart)] {
            if !(0.0..=1.0).contains(&chance) {
                return Err(SampleError::invalid(format!(
                    "walks {name} with a chance of {chance}; give a number from 0 to 1"
                )));
            }
        }
        let second_order = options.node2vec.map(SecondOrder::new).transpose()?;
        Ok(Self { options, second_order, bias: None })
    }

    /// Sets edge weights: steps are drawn in proportion to `bias`, and never along edges with weight zero.
    #[must_use]
    pub fn weighted(mut self, bias: Bias) -> Self {
        self.bias = Some(bias);
        self
    }

    /// Options of the walks.
    #[must_use]
    pub fn options(&self) -> WalkOptions {
        self.options
    }

    /// Weights of edges, if any.
    #[must_use]
    pub fn bias(&self) -> Option<&Bias> {
        self.bias.as_ref()
    }

    /// Acceptance chances of second-order steps, times 2³²: back to the previous node, to a neighbor of it, to any
    /// other node.
    #[must_use]
    pub fn second_order(&self) -> Option<[f64; 3]> {
        self.second_order.map(|SecondOrder { back, near, far }| [back, near, far])
    }

    /// Walks once from each of `starts`; a node may be listed several times, for as many walks.
    ///
    /// # Errors
    /// When the graph is not an adjacency or a start is not one of its nodes.
    pub fn walk(&self, graph: &Csr, starts: &[NodeId], key: DrawKey) -> Result<Walks, SampleError> {
        self.walk_until(graph, starts, key, |_| false)
    }

    /// As [`walk`](Self::walk), but a walk ends at the first node for which `is_end` holds. This node is its last, or
    /// its only one if the walk starts there. Up to there it equals the walk that [`walk`](Self::walk) takes.
    ///
    /// `is_end` has to return an equal answer for a node on every call; a set of nodes is a bitmap or a `Vec<bool>`.
    ///
    /// ```
    /// use girih_graph_format::{Coo, Duplicates};
    /// use girih_sampling::{DrawKey, RandomWalks, WalkOptions};
    ///
    /// // 0 ◀─ 1 ◀─ 2 ◀─ 3
    /// let path = Coo::new(4, 4, vec![0, 1, 2], vec![1, 2, 3], None)?.to_csr(Duplicates::Refuse)?;
    /// let is_end = [false, false, true, false];
    /// let walks = RandomWalks::new(WalkOptions::new(9))?;
    /// let walks = walks.walk_until(&path, &[0, 2], DrawKey::new(7, 0, 0), |v| is_end[v as usize])?;
    /// assert_eq!((walks.walk(0), walks.walk(1)), (&[0, 1, 2][..], &[2][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`walk`](Self::walk).
    pub fn walk_until(
        &self,
        graph: &Csr,
        starts: &[NodeId],
        key: DrawKey,
        is_end: impl Fn(NodeId) -> bool + Sync,
    ) -> Result<Walks, SampleError> {
        check_graph(graph)?;
        check_bias(self.bias.as_ref(), graph)?;
        if let Some(at) = starts.iter().position(|&start| start as usize >= graph.n_rows()) {
            return Err(SampleError::no_such_node(format!(
                "walk {at} starts at node {}, but the graph has {} nodes, counted from 0",
                starts[at],
                graph.n_rows()
            )));
        }
        let draws = key.hop(Scheme::Walks, 0);
        let tasks: Vec<Walks> = starts
            .par_chunks(WALKS_PER_TASK)
            .enumerate()
            .map(|(task, starts)| {
                let mut walks = Walks { indptr: Vec::with_capacity(starts.len()), nodes: Vec::new() };
                for (&start, number) in starts.iter().zip((task * WALKS_PER_TASK) as u32..) {
                    let mut walker = Walker::new(number, start);
                    walks.nodes.push(start);
                    let mut stream = Draws::new(draws.stream(number));
                    self.take(Patch::whole(graph), self.bias.as_ref(), &mut walker, &mut stream, &is_end, |node| {
                        walks.nodes.push(node);
                    });
                    walks.indptr.push(walks.nodes.len() as u64);
                }
                walks
            })
            .collect();
        Ok(joined(&tasks))
    }

    /// Continues a walk while it is at nodes of `patch`, and calls `visit` for the node after every step. Returns
    /// whether the walk continues outside the patch.
    pub(crate) fn take(
        &self,
        patch: Patch<'_>,
        bias: Option<&Bias>,
        walker: &mut Walker,
        draws: &mut Draws,
        is_end: &impl Fn(NodeId) -> bool,
        mut visit: impl FnMut(NodeId),
    ) -> bool {
        while walker.n_steps < self.options.length {
            let node = walker.node;
            if !patch.contains(node) {
                return true;
            }
            if is_end(node) || draws.happens(self.options.stop) {
                return false;
            }
            if draws.happens(self.options.restart) {
                (walker.before, walker.node) = (None, walker.start);
            } else {
                let Some(next) = self.step(patch, bias, walker.before, node, draws) else { return false };
                (walker.before, walker.node) = (Some(node), next);
            }
            walker.n_steps += 1;
            visit(walker.node);
        }
        false
    }

    /// Whether a step depends on the previous node of the walk.
    pub(crate) fn is_second_order(&self) -> bool {
        self.second_order.is_some()
    }

    /// Whether the walks themselves have weights.
    pub(crate) fn is_weighted(&self) -> bool {
        self.bias.is_some()
    }

    /// Node after `node` in a walk, if there is one.
    fn step(
        &self,
        patch: Patch<'_>,
        bias: Option<&Bias>,
        before: Option<NodeId>,
        node: NodeId,
        draws: &mut Draws,
    ) -> Option<NodeId> {
        let (Some(second_order), Some(before)) = (&self.second_order, before) else {
            return first_order(patch, bias, node, draws);
        };
        loop {
            let next = first_order(patch, bias, node, draws)?;
            if second_order.accepts(patch, before, next, draws) {
                return Some(next);
            }
        }
    }
}

/// Draws a neighbor in proportion to the weights of edges.
fn first_order(patch: Patch<'_>, bias: Option<&Bias>, node: NodeId, draws: &mut Draws) -> Option<NodeId> {
    let range = patch.row_range(node);
    let neighbors = &patch.rows().indices()[range.clone()];
    let row = bias.map(|bias| bias.row(range));
    let total = row.map_or(neighbors.len() as u64, |row| row.total());
    if total == 0 {
        return None;
    }
    let place = draws.below(total);
    Some(neighbors[row.map_or(place as usize, |row| row.find(place) as usize)])
}

/// Joins the walks of tasks, in order.
fn joined(tasks: &[Walks]) -> Walks {
    let mut walks = Walks { indptr: vec![0], nodes: Vec::new() };
    for task in tasks {
        let n_before = walks.nodes.len() as u64;
        walks.indptr.extend(task.indptr.iter().map(|end| n_before + end));
        walks.nodes.extend_from_slice(&task.nodes);
    }
    walks
}

/// Acceptance chances of [`Node2Vec`], relative to the largest; [`ONE`] always accepts.
#[derive(Clone, Copy, Debug)]
struct SecondOrder {
    back: f64,
    near: f64,
    far: f64,
}

impl SecondOrder {
    fn new(Node2Vec { p, q }: Node2Vec) -> Result<Self, SampleError> {
        for (name, value) in [("p", p), ("q", q)] {
            if !(1.0 / Node2Vec::MAX..=Node2Vec::MAX).contains(&value) {
                return Err(SampleError::invalid(format!(
                    "node2vec with {name} = {value}; give a number from 1/{max} to {max}",
                    max = Node2Vec::MAX
                )));
            }
        }
        let (back, far) = (1.0 / f64::from(p), 1.0 / f64::from(q));
        let scale = ONE / back.max(far).max(1.0);
        Ok(Self { back: back * scale, near: scale, far: far * scale })
    }

    /// Whether a walk that came from `before` accepts a step to `next`.
    fn accepts(&self, patch: Patch<'_>, before: NodeId, next: NodeId, draws: &mut Draws) -> bool {
        let drawn = draws.below(ONE as u64) as f64;
        // A draw below all three chances is accepted without a search.
        if drawn < self.back.min(self.near).min(self.far) {
            return true;
        }
        let chance = if next == before {
            self.back
        } else if patch.rows().row(patch.row(before)).binary_search(&next).is_ok() {
            self.near
        } else {
            self.far
        };
        drawn < chance
    }
}
