//! [`BlockPlan`]: what every rank does in a product `Â·H`.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{PartitionError, ProcessGrid, Scheme, counted};

/// Where nodes are cut into panels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cuts {
    /// Equal numbers of nodes: for orders that stay inside of panels, and for graphs whose edges are spread evenly.
    #[default]
    Equal,
    /// Equal shares of nodes and stored edges: for orders of the whole graph.
    Weighted,
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "equal",
            Self::Weighted => "weighted",
        })
    }
}

impl FromStr for Cuts {
    type Err = PartitionError;

    fn from_str(text: &str) -> Result<Self, PartitionError> {
        match text {
            "equal" => Ok(Self::Equal),
            "weighted" => Ok(Self::Weighted),
            _ => Err(PartitionError::invalid(format!("{text:?} is no way to cut; choose equal or weighted"))),
        }
    }
}

/// In which exchanges panels travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stages {
    /// One for each step, as the papers have it: a rank's panel at a time goes to all, which takes least memory.
    #[default]
    Steps,
    /// One for each other member of the group: each gets the panel of one at a time, and no two that of the same. Links
    /// are used in all directions, all panels but the first travel while those before are multiplied, and it takes no
    /// more memory than steps. But each panel passes over the result.
    Turns,
    /// So many, in each of which some columns of every panel: links are used in all directions, and all parts but the
    /// first travel while those before are multiplied. Columns of a result have sums of their own, so that no part
    /// passes over what another has summed. Narrow operands travel in fewer parts ([`columns`](Self::columns)).
    Parts(usize),
}

impl Stages {
    /// Bytes of a line of memory.
    const LINE: usize = 128;

    /// In how many parts a panel travels, at most.
    #[must_use]
    pub fn n_parts(&self) -> usize {
        match self {
            Self::Steps | Self::Turns => 1,
            Self::Parts(n) => *n,
        }
    }

    /// The columns of each part of an operand of so many, whose elements have so many bytes. Each part is half of what
    /// is left, in whole lines of memory, and the last two are about alike: the first is large, since the own block is
    /// multiplied while it travels, and the last small, since nothing else is left when it has come. What is left that
    /// fits into a line, or would leave less than a quarter of one, is not cut.
    #[must_use]
    pub fn columns(&self, cols: usize, element_bytes: usize) -> Vec<Range<usize>> {
        let line = Self::LINE / element_bytes;
        let (mut parts, mut start) = (Vec::new(), 0);
        while parts.len() + 1 < self.n_parts() {
            let half = (cols - start).div_ceil(2).next_multiple_of(line);
            if start + half + line / 4 > cols {
                break;
            }
            parts.push(start..start + half);
            start += half;
        }
        parts.push(start..cols);
        parts
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps => f.write_str("steps"),
            Self::Turns => f.write_str("turns"),
            Self::Parts(n) => n.fmt(f),
        }
    }
}

impl FromStr for Stages {
    type Err = PartitionError;

    fn from_str(text: &str) -> Result<Self, PartitionError> {
        let invalid =
            || PartitionError::invalid(format!("{text:?} is no number of stages; give 1 or more, steps or turns"));
        match (text, text.parse()) {
            ("steps", _) => Ok(Self::Steps),
            ("turns", _) => Ok(Self::Turns),
            (_, Ok(n @ 1..)) => Ok(Self::Parts(n)),
            _ => Err(invalid()),
        }
    }
}

/// A product `Â·H` shared by ranks; the product with `Âᵀ` takes the same steps on the transposed blocks.
///
/// Nodes are cut into contiguous *panels*. Between products a rank holds `own` rows of everything that has a row per
/// node. Rows of a product are taken in *chunks*: a chunk has a part of the rows of every rank, so that what follows
/// the steps goes on for one of them while the next is multiplied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPlan {
    /// How ranks are arranged.
    pub grid: ProcessGrid,
    /// Number of nodes.
    pub n_nodes: usize,
    /// Ranges of node ids, ascending and nearly equal, in nodes or in work ([`Cuts`]).
    pub panels: Vec<Range<usize>>,
    /// In which exchanges panels travel.
    pub stages: Stages,
    /// In how many chunks products are taken.
    pub n_chunks: usize,
    /// What each rank does.
    pub ranks: Vec<RankPlan>,
}

/// What one rank does.
///
/// ```text
/// own rows, all columns ──slice──▶ panel, a slice of columns      2D and 3D only
/// for each stage: panels, or columns of them ──▶ group; sums += Â[rows, panels] · panels
/// sums ──reduce──▶ panel's rows ──slice back──▶ own rows, all columns
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlan {
    /// Nodes whose rows the rank holds between products.
    pub own: Range<usize>,
    /// Number of this rank among those that hold the same rows. Ranks of equal number hold every node once.
    pub replica: usize,
    /// How it gets the panel that it sends from, where it holds less than a panel's rows.
    pub slice: Option<Slicing>,
    /// The panel that it sends from, as root.
    pub panel: usize,
    /// The panels whose rows its products have, in this order: its block row of the adjacency.
    pub rows: Vec<usize>,
    /// The ranks that share its steps, in the order in which operations count them.
    pub group: Vec<usize>,
    /// Its steps, by ascending panel; all members of the group take the same ones.
    pub steps: Vec<Step>,
    /// What follows the steps.
    pub reduce: Reduce,
}

impl RankPlan {
    /// Columns of the operand in its steps, of `cols` that its own rows have.
    #[must_use]
    pub fn width(&self, cols: usize) -> usize {
        self.slice.as_ref().map_or(cols, |slicing| slicing.width(cols))
    }
}

/// One step: the panel goes from the root to its group, and each member multiplies its block with it. A rank is root of
/// at most one of the steps of a group, and steps follow each other as their roots do in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The panel of the operand, and the block column of the adjacency.
    pub panel: usize,
    /// The rank that holds it.
    pub root: usize,
}

/// Steps of a rank whose panels travel in one exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepsTogether {
    /// Their places among the rank's steps, ascending: those whose panels come, and the one of which it is the root.
    pub steps: Vec<usize>,
    /// Who gets the panel that the rank sends, if it sends any.
    pub receivers: Receivers,
}

/// Members of a group that get a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// All but the one that sends it.
    All,
    /// The one with this place.
    One(usize),
}

impl Receivers {
    /// Whether the member with this place, who is not the one that sends, is among them.
    #[must_use]
    pub fn contains(self, place: usize) -> bool {
        self == Self::All || self == Self::One(place)
    }
}

/// Ranks that exchange pieces of rows for slices of columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slicing {
    /// The ranks, in the order of their pieces of the panel and of their slices of the columns.
    pub group: Vec<usize>,
    /// The place of this rank in it.
    pub place: usize,
}

impl Slicing {
    /// Columns of each slice of `cols` columns; the last slices may be filled up with zeros.
    #[must_use]
    pub fn width(&self, cols: usize) -> usize {
        cols.div_ceil(self.group.len())
    }

    /// The columns of each slice, without the filling.
    pub fn columns(&self, cols: usize) -> impl Iterator<Item = Range<usize>> {
        let width = self.width(cols);
        (0..self.group.len()).map(move |i| (i * width).min(cols)..((i + 1) * width).min(cols))
    }
}

/// What ranks do with sums of the same rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reduce {
    /// The sums are complete.
    None,
    /// The group adds up its sums; every member gets all rows.
    AllReduce {
        /// The ranks.
        group: Vec<usize>,
    },
    /// The group adds up its sums; its `i`-th member gets the rows of the `i`-th panel of `rows`.
    Scatter {
        /// The ranks.
        group: Vec<usize>,
    },
}

impl Reduce {
    /// The ranks that add up.
    #[must_use]
    pub fn group(&self) -> &[usize] {
        match self {
            Self::None => &[],
            Self::AllReduce { group } | Self::Scatter { group } => group,
        }
    }
}

/// The place of `rank` in a group.
///
/// # Panics
/// When it is not in it.
#[must_use]
pub fn place_in(group: &[usize], rank: usize) -> usize {
    group.iter().position(|&member| member == rank).expect("the rank is in the group")
}

/// The `i`-th of `n` nearly equal parts of a range.
#[must_use]
pub fn part(range: &Range<usize>, i: usize, n: usize) -> Range<usize> {
    let at = |i: usize| range.start + range.len() * i / n;
    at(i)..at(i + 1)
}

/// `range` cut into `n` nearly equal parts.
fn cut(range: &Range<usize>, n: usize) -> Vec<Range<usize>> {
    (0..n).map(|i| part(range, i, n)).collect()
}

impl BlockPlan {
    /// The plan of `grid` for `n_nodes` nodes: equal panels, each of which travels in a stage of its own, and products
    /// in one chunk.
    ///
    /// # Errors
    /// When there are fewer nodes than ranks.
    pub fn new(grid: &ProcessGrid, n_nodes: usize) -> Result<Self, PartitionError> {
        Self::cut_by(grid, n_nodes, |n_panels| cut(&(0..n_nodes), n_panels))
    }

    /// As [`new`](Self::new), with panels cut as `cuts` says for a graph of which row `v` ends at `indptr[v + 1]`.
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

    /// The same plan, in which panels travel so.
    #[must_use]
    pub fn in_stages(self, stages: Stages) -> Self {
        Self { stages, ..self }
    }

    /// The steps of a rank whose panels travel together, exchange after exchange; all members of its group have as many.
    /// In stages that are parts, all steps do so as often as there are parts.
    #[must_use]
    pub fn together(&self, rank: usize) -> Vec<StepsTogether> {
        let RankPlan { steps, group, .. } = &self.ranks[rank];
        let (n, place) = (group.len(), place_in(group, rank));
        let for_all = |steps: Range<usize>| StepsTogether { steps: steps.collect(), receivers: Receivers::All };
        match self.stages {
            Stages::Steps if !steps.is_empty() => (0..steps.len()).map(|i| for_all(i..i + 1)).collect(),
            Stages::Turns if n > 1 => {
                // A panel goes to whoever is so many places before its root.
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

    /// What travels for a rank in an exchange of these steps: to each member of its group, and from each. `of` says what
    /// of the panel of a step (its place among the rank's) is for the member with a place.
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

    /// Those of some steps of a rank whose panels come from others.
    pub fn from_others<'p>(
        &'p self,
        rank: usize,
        together: &'p StepsTogether,
    ) -> impl Iterator<Item = (usize, &'p Step)> {
        let steps = &self.ranks[rank].steps;
        together.steps.iter().map(move |&i| (i, &steps[i])).filter(move |(_, step)| step.root != rank)
    }

    /// The same plan, in which products are taken in so many chunks, of which none is without a row of any rank; in one
    /// where nothing follows the steps.
    #[must_use]
    pub fn in_chunks(mut self, n_chunks: usize) -> Self {
        let is_followed =
            |plan: &RankPlan| plan.slice.iter().any(|slicing| slicing.group.len() > 1) || plan.reduce.group().len() > 1;
        let least = self.ranks.iter().map(|plan| plan.own.len()).min().unwrap_or(0);
        let most = if self.ranks.iter().any(is_followed) { least.max(1) } else { 1 };
        self.n_chunks = n_chunks.clamp(1, most);
        self
    }

    /// Of some rank's own rows, those of a chunk.
    #[must_use]
    pub fn own_of(&self, own: &Range<usize>, chunk: usize) -> Range<usize> {
        part(own, chunk, self.n_chunks)
    }

    /// The rows of a panel that are in a chunk: a range for each of the ranks that hold the panel together, in their
    /// order.
    pub fn chunk_of(&self, panel: usize, chunk: usize) -> impl Iterator<Item = Range<usize>> {
        let holders = self.ranks.iter().filter(move |plan| plan.panel == panel && plan.replica == 0);
        holders.map(move |plan| self.own_of(&plan.own, chunk))
    }

    /// Rows of a chunk of the products of a rank, before any reduction.
    #[must_use]
    pub fn n_chunk_rows(&self, rank: usize, chunk: usize) -> usize {
        self.ranks[rank].rows.iter().flat_map(|&panel| self.chunk_of(panel, chunk)).map(|rows| rows.len()).sum()
    }

    /// Rows of the products of a rank, before any reduction.
    #[must_use]
    pub fn n_product_rows(&self, rank: usize) -> usize {
        self.ranks[rank].rows.iter().map(|&panel| self.panels[panel].len()).sum()
    }

    /// The ranks that hold every node once, ascending, among which a rank with this replica number is one.
    pub fn peers(&self, replica: usize) -> impl Iterator<Item = usize> {
        self.ranks.iter().enumerate().filter(move |(_, plan)| plan.replica == replica).map(|(rank, _)| rank)
    }
}

/// Panels with nearly equal shares of nodes and of stored edges, half of either: a node costs dense work, an edge
/// sparse. Each has at least `least` nodes.
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

/// Rank `i` holds panel `i`; step `j` sends panel `j` to all.
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

/// `groups` groups of `r` ranks: all of group `i` hold panel `i`. Member `m` of every group works on the panels
/// `m, m + r, …`, which come from the member `m` of the groups that hold them; the group adds up.
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

/// Rank `(i, j)` of a square, row after row. The ranks of row `i` hold panel `i` in pieces, and multiply block row `i`,
/// each for its slice of the columns of the operand; step `k` sends slice `j` of panel `k` down column `j`. The blocks
/// of the adjacency are constant, so that each rank keeps its whole block row instead of being sent it again in every
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

/// Rank `(l, i, j)` of a cube, layer after layer and row after row. Panel `l·q + i` is held, in pieces, by row `i` of layer
/// `l`. Layer `l` multiplies the block columns of its own panels; its row `i` has the block rows of panels `i, q + i, …`,
/// the `i`-th of every layer. The sums of the layers are added up, and each layer gets the rows of its own panel: the result
/// lies where the operand was.
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
