//! [`HostAdjacency`]: the normalised adjacency on the host. [`CutAdjacency`]: the same, from which ranks cut their
//! [`Blocks`].

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use girih_compute::{Backend, ComputeError, EntryNames, SparseOperand, Transpose};
use girih_graph_format::{Csr, NodeId, Scales};
use girih_partition::{BlockPlan, Exchange, Halo, Schedule, StepExchange, place_in};

use super::ranks::Ranks;
use super::rows::{PeerRows, RowExchange};
use crate::inputs::Adjacency;

/// Where a rank's blocks come from, one for each step of a product with `op(Â)`.
pub(crate) trait Blocks<B: Backend>: Send + Sync {
    /// The blocks of a rank, one for each step of a product with `op(Â)`.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn blocks(&self, backend: &B, rank: usize, transpose: Transpose) -> Result<Vec<Block<B>>, ComputeError>;

    /// The rows of `Â` that a rank holds, with the columns that they touch.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn pattern(&self, backend: &B, ranks: &Arc<Ranks<B>>) -> Result<Pattern<B>, ComputeError>;
}

/// `Â = L·A·R` and, once it is asked for, its transpose.
pub(crate) struct HostAdjacency {
    csr: Csr,
    scales: Scales,
    symmetric: bool,
    transposed: OnceLock<Csr>,
}

impl HostAdjacency {
    /// The adjacency of `graph` as a model wants it.
    pub(crate) fn new(graph: &Csr, adjacency: Adjacency) -> Self {
        let csr = if adjacency.self_loops { graph.with_self_loops() } else { graph.clone() };
        let (scales, symmetric) = (csr.scales(adjacency.norm), csr.is_symmetric());
        Self { csr, scales, symmetric, transposed: OnceLock::new() }
    }

    /// The entries of `op(Â)`, and its factors of rows and of columns.
    fn directed(&self, transpose: Transpose) -> (&Csr, [Option<&[f32]>; 2]) {
        let [left, right] = [self.scales.left.as_deref(), self.scales.right.as_deref()];
        match transpose {
            Transpose::No => (&self.csr, [left, right]),
            Transpose::Yes if self.symmetric => (&self.csr, [right, left]),
            Transpose::Yes => (self.transposed.get_or_init(|| self.csr.transposed()), [right, left]),
        }
    }
}

/// `Â` as a plan cuts it, shared by the ranks of a process.
pub(crate) struct CutAdjacency {
    host: Arc<HostAdjacency>,
    plan: Arc<BlockPlan>,
    exchange: Exchange,
    schedules: [OnceLock<Schedule>; 2],
    halo: OnceLock<Halo>,
}

/// The block of one step.
pub(crate) struct Block<B: Backend> {
    pub(super) matrix: B::Sparse,
    /// The rows that are sent for it; `None` where the whole panel is.
    pub(super) rows: Option<RowExchange<B>>,
}

/// A rank's own rows of the adjacency, with only the columns that they touch.
pub(crate) struct Pattern<B: Backend> {
    pub(crate) matrix: B::Sparse,
    /// Where the rows come from that its columns stand for.
    pub(crate) rows: PeerRows<B>,
}

impl CutAdjacency {
    /// An adjacency, to be cut as `plan` says.
    pub(crate) fn new(host: Arc<HostAdjacency>, plan: Arc<BlockPlan>, exchange: Exchange) -> Self {
        let (schedules, halo) = Default::default();
        Self { host, plan, exchange, schedules, halo }
    }

    /// Which plan cuts it.
    pub(super) fn plan(&self) -> &BlockPlan {
        &self.plan
    }

    /// The entries of `op(Â)`.
    pub(super) fn entries(&self, transpose: Transpose) -> &Csr {
        self.host.directed(transpose).0
    }

    /// Of a transpose that is the matrix itself, the matrix: what is counted of the one is counted of the other.
    pub(super) fn direction(&self, transpose: Transpose) -> usize {
        usize::from(transpose == Transpose::Yes && !self.host.symmetric)
    }

    pub(super) fn schedule(&self, transpose: Transpose) -> &Schedule {
        // A symmetric pattern has the same touched rows in both directions.
        self.schedules[self.direction(transpose)]
            .get_or_init(|| Schedule::new(&self.plan, self.entries(transpose), self.exchange))
    }

    pub(super) fn halo(&self) -> &Halo {
        self.halo.get_or_init(|| Halo::new(&self.plan, &self.host.csr))
    }
}

impl<B: Backend> Blocks<B> for CutAdjacency {
    fn blocks(&self, backend: &B, rank: usize, transpose: Transpose) -> Result<Vec<Block<B>>, ComputeError> {
        let (csr, [left, right]) = self.host.directed(transpose);
        let mine = &self.plan.ranks[rank];
        let rows: Vec<Range<usize>> = mine.rows.iter().map(|&panel| self.plan.panels[panel].clone()).collect();
        let left = left.map(|left| rows.iter().flat_map(|rows| &left[rows.clone()]).copied().collect());
        let exchanges = self.schedule(transpose).steps(rank);
        let steps = mine.steps.iter().zip(exchanges).map(|(step, exchange)| {
            let columns = self.plan.panels[step.panel].clone();
            let right = right.map(|right| right[columns.clone()].to_vec());
            let whole = Cut { csr: stacked(csr, &rows, columns), left: left.clone(), right };
            let (cut, rows) = match exchange {
                StepExchange::Dense => (whole, None),
                StepExchange::Rows { lists } if step.root == rank => {
                    let is_own = |place: usize| mine.group[place] == rank;
                    let sent = lists.iter().enumerate().map(|(i, list)| if is_own(i) { &[] } else { &list[..] });
                    let received = vec![0; lists.len()];
                    (whole, Some(RowExchange::new(backend, &sent.collect::<Vec<_>>(), received)?))
                }
                StepExchange::Rows { lists } => {
                    let touched = &lists[place_in(&mine.group, rank)];
                    let mut received = vec![0; lists.len()];
                    received[place_in(&mine.group, step.root)] = touched.len();
                    let rows = RowExchange::new(backend, &vec![&[]; lists.len()], received)?;
                    (whole.with_columns(touched), Some(rows))
                }
            };
            Ok(Block { matrix: cut.upload(backend, None)?, rows })
        });
        steps.collect()
    }

    fn pattern(&self, backend: &B, ranks: &Arc<Ranks<B>>) -> Result<Pattern<B>, ComputeError> {
        let (own, halo) = (&ranks.mine().own, self.halo().of(ranks.rank()));
        let HostAdjacency { csr, scales, .. } = &*self.host;
        let whole = Cut {
            csr: stacked(csr, std::slice::from_ref(own), 0..csr.n_cols()),
            left: scales.left.as_ref().map(|left| left[own.clone()].to_vec()),
            right: scales.right.clone(),
        };
        let names = EntryNames { first_row: own.start as u32, columns: halo.rows.clone().into() };
        Ok(Pattern {
            matrix: whole.with_columns(&halo.rows).upload(backend, Some(names))?,
            rows: PeerRows::new(backend, ranks, &halo.sent, halo.received.clone())?,
        })
    }
}

/// A block on its way to a device.
struct Cut {
    csr: Csr,
    left: Option<Vec<f32>>,
    right: Option<Vec<f32>>,
}

impl Cut {
    /// The same entries, with `columns` (ascending; all that occur) alone.
    fn with_columns(self, columns: &[NodeId]) -> Self {
        let place = |c: NodeId| columns.binary_search(&c).expect("a column that occurs is listed") as NodeId;
        let indices: Vec<NodeId> = self.csr.indices().iter().map(|&c| place(c)).collect();
        let values = self.csr.values().map(<[f32]>::to_vec);
        let csr =
            Csr::new(self.csr.n_rows(), columns.len(), self.csr.indptr().to_vec(), indices, values.map(Into::into))
                .expect("fewer columns in the same order");
        let right = self.right.map(|right| columns.iter().map(|&c| right[c as usize]).collect());
        Self { csr, right, ..self }
    }

    fn upload<B: Backend>(self, backend: &B, names: Option<EntryNames>) -> Result<B::Sparse, ComputeError> {
        let scales = Scales { left: self.left, right: self.right };
        backend.upload_sparse(&SparseOperand { csr: &self.csr, scales, symmetric: false, names })
    }
}

/// Ranges of rows of some columns, one below the other.
fn stacked(csr: &Csr, rows: &[Range<usize>], columns: Range<usize>) -> Csr {
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), csr.values().map(|_| Vec::new()));
    for row in rows.iter().cloned().flatten() {
        let range = csr.row_range_within(row, &columns);
        indices.extend(csr.indices()[range.clone()].iter().map(|&c| c - columns.start as NodeId));
        if let (Some(values), Some(all)) = (&mut values, csr.values()) {
            values.extend_from_slice(&all[range]);
        }
        indptr.push(indices.len() as u64);
    }
    let n_rows = indptr.len() - 1;
    Csr::new(n_rows, columns.len(), indptr, indices, values.map(Into::into)).expect("rows of a valid matrix")
}
