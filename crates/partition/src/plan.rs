//! [`BlockPlan`]: the steps and exchanges of every rank in a product `Â·H`.

mod stages;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use self::stages::{Cuts, Stages};
use crate::{PartitionError, ProcessGrid, Scheme, counted};

/// Distribution of a product `Â·H` over ranks; the product with `Âᵀ` takes equal steps on the transposed blocks.
///
/// Nodes are cut into contiguous *panels*. Between products a rank holds its `own` rows of each matrix with one row
/// per node. Rows of a product are computed in *chunks*: a chunk has a part of the rows of every rank, so that the
/// reduction of one chunk overlaps with the product of the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPlan {
    /// Arrangement of the ranks.
    pub grid: ProcessGrid,
    /// Number of nodes.
    pub n_nodes: usize,
    /// Ranges of node ids, ascending and nearly equal, in nodes or in work ([`Cuts`]).
    pub panels: Vec<Range<usize>>,
    /// Exchanges in which panels travel.
    pub stages: Stages,
    /// Number of chunks in which products are computed.
    pub n_chunks: usize,
    /// Plan of each rank.
    pub ranks: Vec<RankPlan>,
}

/// Plan of one rank.
///
/// ```text
/// own rows, all columns ──slice──▶ panel, a slice of columns      2D and 3D only
/// for each stage: panels, or columns of them ──▶ group; sums += Â[rows, panels] · panels
/// sums ──reduce──▶ panel's rows ──slice back──▶ own rows, all columns
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlan {
    /// Ids of the nodes whose rows the rank holds between products.
    pub own: Range<usize>,
    /// Index of this rank among the ranks that hold equal rows. Ranks of equal index hold every node once.
    pub replica: usize,
    /// Exchange by which the rank gets slices of the panel that it sends from; `None` if it holds all rows of the
    /// panel.
    pub slice: Option<Slicing>,
    /// Index of the panel that it sends from, as root.
    pub panel: usize,
    /// Indices of the panels whose rows its products have, in this order: its block row of the adjacency.
    pub rows: Vec<usize>,
    /// Ranks that share its steps, in the order of their places in collectives.
    pub group: Vec<usize>,
    /// Steps by ascending panel; all members of the group take equal steps.
    pub steps: Vec<Step>,
    /// Reduction after the steps.
    pub reduce: Reduce,
}

impl RankPlan {
    /// Number of operand columns in the rank's steps, if its own rows have `cols` columns.
    #[must_use]
    pub fn width(&self, cols: usize) -> usize {
        self.slice.as_ref().map_or(cols, |slicing| slicing.width(cols))
    }
}

/// One step: the root sends the panel to its group, and each member multiplies its block by it. A rank is root of at
/// most one step of a group, and steps are in the order of their roots in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Index of the operand's panel, and of the block column of the adjacency.
    pub panel: usize,
    /// Rank that holds the panel.
    pub root: usize,
}

/// Steps of a rank whose panels travel in one exchange (a step group).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepsTogether {
    /// Indices into the rank's steps, ascending: the steps whose panels it receives, and the step of which it is
    /// root.
    pub steps: Vec<usize>,
    /// Receivers of the panel that the rank sends, if it sends any.
    pub receivers: Receivers,
}

/// Members of a group that receive a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// All members but the sender.
    All,
    /// The member with this place in the group.
    One(usize),
}

impl Receivers {
    /// Whether the member at `place` receives the panel; `place` is not the sender's.
    #[must_use]
    pub fn contains(self, place: usize) -> bool {
        self == Self::All || self == Self::One(place)
    }
}

/// Ranks that exchange row ranges for slices of columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slicing {
    /// Ranks, in the order of their row ranges of the panel and of their slices of the columns.
    pub group: Vec<usize>,
    /// Place of this rank in the group.
    pub place: usize,
}

impl Slicing {
    /// Columns of each slice of `cols` columns; the last slices may be padded with zeros.
    #[must_use]
    pub fn width(&self, cols: usize) -> usize {
        cols.div_ceil(self.group.len())
    }

    /// Column range of each slice, without padding.
    pub fn columns(&self, cols: usize) -> impl Iterator<Item = Range<usize>> {
        let width = self.width(cols);
        (0..self.group.len()).map(move |i| (i * width).min(cols)..((i + 1) * width).min(cols))
    }
}

/// Reduction of partial sums of equal rows over ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reduce {
    /// The sums are complete.
    None,
    /// The group adds up its partial sums; every member gets all rows.
    AllReduce {
        /// Ranks of the group.
        group: Vec<usize>,
    },
    /// The group adds up its partial sums; its `i`-th member gets the rows of the `i`-th panel of `rows`.
    Scatter {
        /// Ranks of the group.
        group: Vec<usize>,
    },
}

impl Reduce {
    /// Ranks whose partial sums are added up; empty without a reduction.
    #[must_use]
    pub fn group(&self) -> &[usize] {
        match self {
            Self::None => &[],
            Self::AllReduce { group } | Self::Scatter { group } => group,
        }
    }
}

/// Place of `rank` in a group.
///
/// # Panics
/// When `rank` is not in the group.
#[must_use]
pub fn place_in(group: &[usize], rank: usize) -> usize {
    group.iter().position(|&member| member == rank).expect("the rank is in the group")
}

/// Returns the `i`-th of `n` nearly equal parts of a range.
#[must_use]
pub fn part(range: &Range<usize>, i: usize, n: usize) -> Range<usize> {
    let at = |i: usize| range.start + range.len() * i / n;
    at(i)..at(i + 1)
}

/// Cuts `range` into `n` nearly equal parts.
fn cut(range: &Range<usize>, n: usize) -> Vec<Range<usize>> {
    (0..n).map(|i| part(range, i, n)).collect()
}

impl BlockPlan {
    /// Plan of `grid` for `n_nodes` nodes: equal panels, each of which travels in its own stage, and products in one
    /// chunk.
    ///
    /// # Errors
    /// When there are fewer nodes than ranks.
    pub fn new(grid: &ProcessGrid, n_nodes: usize) -> Result<Self, PartitionError> {
        Self::cut_by(grid, n_nodes, |n_panels| cut(&(0..n_nodes), n_panels))
    }

    /// As [`new`](Self::new), with panels cut by `cuts` for a graph whose row `v` ends at `indptr[v + 1]`.
    ///
    /// # Errors
    /// When there are fewer nodes than ranks.
    pub fn of_graph(grid: &ProcessGrid, indptr: &[u64], cuts: Cuts) -> Result<Self, PartitionError> {
        let n_nodes = indptr.len() - 1;
        match cuts {
            Cuts::Equal => Self::new(grid, n_nodes),
            Cuts::Weighted => {
                Self::cut_by(grid, n_nodes, |n_panels| weighted(indptr, n_panels, grid.ranks() / n_panels))
            }
        }
    }

    fn cut_by(
        grid: &ProcessGrid,
        n_nodes: usize,
        cut: impl FnOnce(usize) -> Vec<Range<usize>>,
    ) -> Result<Self, PartitionError> {
        if n_nodes < grid.ranks() {
            return Err(PartitionError::invalid(format!(
                "{} cannot be cut over {}; take at most one rank a node",
                counted(n_nodes, "node"),
                counted(grid.ranks(), "rank")
            )));
        }
        let side = grid.side();
        let n_panels = if grid.scheme() == Scheme::ThreeD { side * side } else { side };
        let panels = cut(n_panels);
        let of_rank = |rank| match grid.scheme() {
            Scheme::OneD => one_d(side, rank, &panels),
            Scheme::OneAndHalfD => one_and_half_d(side, grid.replication(), rank, &panels),
            Scheme::TwoD => two_d(side, rank, &panels),
            Scheme::ThreeD => three_d(side, rank, &panels),
        };
        let ranks = (0..grid.ranks()).map(of_rank).collect();
        Ok(Self { grid: *grid, n_nodes, panels, stages: Stages::Steps, n_chunks: 1, ranks })
    }

    /// Replaces the stages in which panels travel.
    #[must_use]
    pub fn in_stages(self, stages: Stages) -> Self {
        Self { stages, ..self }
    }

    /// Step groups of a rank: the steps whose panels travel in one exchange, in the order of exchanges. All members
    /// of the rank's group have equally many. With [`Stages::Parts`] there is one group of all steps, which is
    /// exchanged once per part.
    #[must_use]
    pub fn together(&self, rank: usize) -> Vec<StepsTogether> {
        let RankPlan { steps, group, .. } = &self.ranks[rank];
        let (n, place) = (group.len(), place_in(group, rank));
        let for_all = |steps: Range<usize>| StepsTogether { steps: steps.collect(), receivers: Receivers::All };
        match self.stages {
            Stages::Steps if !steps.is_empty() => (0..steps.len()).map(|i| for_all(i..i + 1)).collect(),
            Stages::Turns if n > 1 => {
                // A panel goes to the member that is `turn` places before its root.
                let turn = |turn: usize| {
                    let takes_part = |root: usize| root == rank || root == group[(place + turn) % n];
                    let steps = (0..steps.len()).filter(|&i| takes_part(steps[i].root)).collect();
                    StepsTogether { steps, receivers: Receivers::One((place + n - turn) % n) }
                };
                (1..n).map(turn).collect()
            }
            _ => vec![for_all(0..steps.len())],
        }
    }

    /// Payloads of a rank in an exchange of these steps: to each member of its group, and from each. `of(step,
    /// place)` returns the payload of the panel of a step (an index into the rank's steps) for the member at `place`.
    pub fn sent_and_received<T: Clone + Default>(
        &self,
        rank: usize,
        together: &StepsTogether,
        of: impl Fn(usize, usize) -> T,
    ) -> (Vec<T>, Vec<T>) {
        let RankPlan { steps, group, .. } = &self.ranks[rank];
        let (mut sent, mut received) = (vec![T::default(); group.len()], vec![T::default(); group.len()]);
        let place = place_in(group, rank);
        for &i in &together.steps {
            match place_in(group, steps[i].root) {
                root if root != place => received[root] = of(i, place),
                _ => {
                    let is_receiver = |member: &usize| *member != place && together.receivers.contains(*member);
                    (0..group.len()).filter(is_receiver).for_each(|member| sent[member] = of(i, member));
                }
            }
        }
        (sent, received)
    }

    /// Steps of a group whose panels come from other ranks, with their indices into the rank's steps.
    pub fn from_others<'p>(
        &'p self,
        rank: usize,
        together: &'p StepsTogether,
    ) -> impl Iterator<Item = (usize, &'p Step)> {
        let steps = &self.ranks[rank].steps;
        together.steps.iter().map(move |&i| (i, &steps[i])).filter(move |(_, step)| step.root != rank)
    }

    /// Replaces the number of chunks in which products are computed. It is limited so that every chunk has a row of
    /// every rank, and is 1 if nothing follows the steps.
    #[must_use]
    pub fn in_chunks(mut self, n_chunks: usize) -> Self {
        let is_followed =
            |plan: &RankPlan| plan.slice.iter().any(|slicing| slicing.group.len() > 1) || plan.reduce.group().len() > 1;
        let least = self.ranks.iter().map(|plan| plan.own.len()).min().unwrap_or(0);
        let most = if self.ranks.iter().any(is_followed) { least.max(1) } else { 1 };
        self.n_chunks = n_chunks.clamp(1, most);
        self
    }

    /// Rows of a chunk within a rank's own rows.
    #[must_use]
    pub fn own_of(&self, own: &Range<usize>, chunk: usize) -> Range<usize> {
        part(own, chunk, self.n_chunks)
    }

    /// Rows of a panel that are in a chunk: one range for each rank that holds a part of the panel, in rank order.
    pub fn chunk_of(&self, panel: usize, chunk: usize) -> impl Iterator<Item = Range<usize>> {
        let holders = self.ranks.iter().filter(move |plan| plan.panel == panel && plan.replica == 0);
        holders.map(move |plan| self.own_of(&plan.own, chunk))
    }

    /// Number of rows of a chunk of a rank's products, before any reduction.
    #[must_use]
    pub fn n_chunk_rows(&self, rank: usize, chunk: usize) -> usize {
        self.ranks[rank].rows.iter().flat_map(|&panel| self.chunk_of(panel, chunk)).map(|rows| rows.len()).sum()
    }

    /// Number of rows of a rank's products, before any reduction.
    #[must_use]
    pub fn n_product_rows(&self, rank: usize) -> usize {
        self.ranks[rank].rows.iter().map(|&panel| self.panels[panel].len()).sum()
    }

    /// Ranks with this replica number, ascending. Together they hold every node once.
    pub fn peers(&self, replica: usize) -> impl Iterator<Item = usize> {
        self.ranks.iter().enumerate().filter(move |(_, plan)| plan.replica == replica).map(|(rank, _)| rank)
    }
}

/// Panels of nearly equal weight, of which nodes and stored edges are half each: a node costs dense work, an edge
/// sparse work. Each panel has at least `least` nodes.
pub(crate) fn weighted(indptr: &[u64], n: usize, least: usize) -> Vec<Range<usize>> {
    let n_nodes = indptr.len() - 1;
    let (nnz, nodes) = (u128::from(indptr[n_nodes].max(1)), n_nodes as u128);
    let weight = |v: usize| u128::from(indptr[v]) * nodes + v as u128 * nnz;
    let all = weight(n_nodes);
    let mut starts = vec![0];
    for i in 1..n {
        let target = all * i as u128 / n as u128;
        let (mut low, mut high) = (0, n_nodes);
        while low < high {
            let middle = usize::midpoint(low, high);
            if weight(middle) < target { low = middle + 1 } else { high = middle }
        }
        let after = starts[i - 1] + least;
        starts.push(low.clamp(after, n_nodes - (n - i) * least));
    }
    starts.push(n_nodes);
    starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// 1D: rank `i` holds panel `i`; step `j` sends panel `j` to all.
fn one_d(p: usize, rank: usize, panels: &[Range<usize>]) -> RankPlan {
    RankPlan {
        own: panels[rank].clone(),
        replica: 0,
        slice: None,
        panel: rank,
        rows: vec![rank],
        group: (0..p).collect(),
        steps: (0..p).map(|j| Step { panel: j, root: j }).collect(),
        reduce: Reduce::None,
    }
}

/// 1.5D: `groups` groups of `r` ranks; all ranks of group `i` hold panel `i`. Member `m` of every group multiplies
/// the panels `m, m + r, …`, which it receives from member `m` of the groups that hold them. The group adds up the
/// sums.
fn one_and_half_d(groups: usize, r: usize, rank: usize, panels: &[Range<usize>]) -> RankPlan {
    let (group, member) = (rank / r, rank % r);
    RankPlan {
        own: panels[group].clone(),
        replica: member,
        slice: None,
        panel: group,
        rows: vec![group],
        group: (0..groups).map(|g| g * r + member).collect(),
        steps: (member..groups).step_by(r).map(|j| Step { panel: j, root: j * r + member }).collect(),
        reduce: Reduce::AllReduce { group: (0..r).map(|m| group * r + m).collect() },
    }
}

/// 2D: rank `(i, j)` of a square, row-major. The ranks of row `i` each hold a part of panel `i`'s rows. They multiply
/// block row `i`, each for its slice of the operand's columns. Step `k` sends slice `j` of panel `k` down column `j`.
/// The blocks of the adjacency are constant, so each rank keeps its whole block row instead of receiving it in every
/// product.
fn two_d(q: usize, rank: usize, panels: &[Range<usize>]) -> RankPlan {
    let (i, j) = (rank / q, rank % q);
    RankPlan {
        own: cut(&panels[i], q)[j].clone(),
        replica: 0,
        slice: Some(Slicing { group: (0..q).map(|j| i * q + j).collect(), place: j }),
        panel: i,
        rows: vec![i],
        group: (0..q).map(|i| i * q + j).collect(),
        steps: (0..q).map(|k| Step { panel: k, root: k * q + j }).collect(),
        reduce: Reduce::None,
    }
}

/// 3D: rank `(l, i, j)` of a cube, layer by layer and row-major. The ranks of row `i` of layer `l` each hold a part
/// of panel `l·q + i`. Layer `l` multiplies the block columns of its own panels. Its row `i` has the block rows of
/// the panels `i, q + i, …`, the `i`-th of every layer. A reduce-scatter adds up the sums of the layers, and each
/// layer gets the rows of its own panel. The result has the layout of the operand.
fn three_d(q: usize, rank: usize, panels: &[Range<usize>]) -> RankPlan {
    let (l, i, j) = (rank / (q * q), rank / q % q, rank % q);
    let at = |l: usize, i: usize, j: usize| (l * q + i) * q + j;
    let panel = l * q + i;
    RankPlan {
        own: cut(&panels[panel], q)[j].clone(),
        replica: 0,
        slice: Some(Slicing { group: (0..q).map(|j| at(l, i, j)).collect(), place: j }),
        panel,
        rows: (0..q).map(|l| l * q + i).collect(),
        group: (0..q).map(|i| at(l, i, j)).collect(),
        steps: (0..q).map(|k| Step { panel: l * q + k, root: at(l, k, j) }).collect(),
        reduce: Reduce::Scatter { group: (0..q).map(|l| at(l, i, j)).collect() },
    }
}
