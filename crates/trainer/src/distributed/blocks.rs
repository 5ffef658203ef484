//! [`CutAdjacency`]: the normalised adjacency on the host, from which ranks cut their blocks.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use girih_compute::{Backend, ComputeError, Dtype, EntryNames, SparseOperand, Transpose};
use girih_graph_format::{Csr, NodeId, Scales};
use girih_partition::{BlockPlan, Exchange, Halo, Schedule, Step, StepExchange, place_in};

use super::ranks::Ranks;
use super::rows::{PeerRows, RowExchange};
use crate::inputs::Adjacency;

/// `Â = L·A·R` and its transpose, shared by the ranks of a process.
pub(crate) struct CutAdjacency {
    csr: Csr,
    scales: Scales,
    symmetric: bool,
    plan: Arc<BlockPlan>,
    exchange: Exchange,
    wire: Dtype,
    transposed: OnceLock<Csr>,
    schedules: [OnceLock<Schedule>; 2],
    halo: OnceLock<Halo>,
}

/// What a rank multiplies in a product.
pub(super) struct Blocks<B: Backend> {
    /// The block whose columns are the panel that it holds itself, if one of its steps is for that.
    pub(super) own: Option<B::Sparse>,
    pub(super) stages: Vec<Stage<B>>,
}

/// The blocks of a stage, side by side.
pub(super) struct Stage<B: Backend> {
    /// Its columns are the rows that come in the stage. `None` where none come from others.
    pub(super) matrix: Option<B::Sparse>,
    pub(super) exchange: StageExchange<B>,
}

/// What comes in a stage, in the order of the group.
pub(super) enum StageExchange<B: Backend> {
    /// Whole panels: how many rows from each member, this rank's own among them.
    Panels(Vec<usize>),
    /// Rows of other members.
    Rows(RowExchange<B>),
}

/// A rank's own rows of the adjacency, with only the columns that they touch.
pub(crate) struct Pattern<B: Backend> {
    pub(crate) matrix: B::Sparse,
    /// Where the rows come from that its columns stand for.
    pub(crate) rows: PeerRows<B>,
}

impl CutAdjacency {
    /// The adjacency of `graph` as a model wants it, to be cut as `plan` says; operands of `f32` travel as `wire`.
    pub(crate) fn new(
        graph: &Csr,
        adjacency: Adjacency,
        plan: Arc<BlockPlan>,
        (exchange, wire): (Exchange, Dtype),
    ) -> Self {
        let csr = if adjacency.self_loops { graph.with_self_loops() } else { graph.clone() };
        let (scales, symmetric) = (csr.scales(adjacency.norm), csr.is_symmetric());
        let (transposed, schedules, halo) = Default::default();
        Self { csr, scales, symmetric, plan, exchange, wire, transposed, schedules, halo }
    }

    /// How operands of `f32` travel.
    pub(super) fn wire(&self) -> Dtype {
        self.wire
    }

    fn directed(&self, transpose: Transpose) -> (&Csr, [Option<&[f32]>; 2]) {
        let [left, right] = [self.scales.left.as_deref(), self.scales.right.as_deref()];
        match transpose {
            Transpose::No => (&self.csr, [left, right]),
            Transpose::Yes if self.symmetric => (&self.csr, [right, left]),
            Transpose::Yes => (self.transposed.get_or_init(|| self.csr.transposed()), [right, left]),
        }
    }

    fn schedule(&self, transpose: Transpose) -> &Schedule {
        // A symmetric pattern has the same touched rows in both directions.
        let direction = usize::from(transpose == Transpose::Yes && !self.symmetric);
        let csr = self.directed(transpose).0;
        self.schedules[direction].get_or_init(|| Schedule::new(&self.plan, csr, self.exchange))
    }

    /// The blocks of a rank for a product with `op(Â)`.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(super) fn blocks<B: Backend>(
        &self,
        backend: &B,
        rank: usize,
        transpose: Transpose,
    ) -> Result<Blocks<B>, ComputeError> {
        let (csr, [left, right]) = self.directed(transpose);
        let mine = &self.plan.ranks[rank];
        let panels = &self.plan.panels;
        let rows: Vec<Range<usize>> = mine.rows.iter().map(|&panel| panels[panel].clone()).collect();
        let left: Option<Vec<f32>> =
            left.map(|left| rows.iter().flat_map(|rows| &left[rows.clone()]).copied().collect());
        let block = |columns: &Columns| {
            let right = right.map(|right| columns.scales(right));
            let cut = Cut { csr: stacked(csr, &rows, columns), left: left.clone(), right };
            cut.upload(backend, None)
        };
        let own = mine.steps.iter().find(|step| step.root == rank).map(|step| {
            let mut columns = Columns::none(csr.n_cols());
            columns.add(panels[step.panel].clone());
            block(&columns)
        });
        let exchanges = self.schedule(transpose).steps(rank);
        let stages = mine.stages.iter().map(|stage| {
            let steps = mine.steps[stage.clone()].iter().zip(&exchanges[stage.clone()]);
            let steps: Vec<(Step, &StepExchange)> = steps.map(|(step, exchange)| (*step, exchange)).collect();
            let (columns, exchange) = if steps.iter().all(|(_, exchange)| matches!(exchange, StepExchange::Dense)) {
                self.panels(rank, &steps)
            } else {
                self.rows(backend, rank, &steps)?
            };
            let is_from_others = steps.iter().any(|(step, _)| step.root != rank);
            let matrix = is_from_others.then(|| block(&columns)).transpose()?;
            Ok(Stage { matrix, exchange })
        });
        let stages = stages.collect::<Result<_, ComputeError>>()?;
        Ok(Blocks { own: own.transpose()?, stages })
    }

    /// A stage in which whole panels come: columns of their rows, but none of this rank's own.
    fn panels<B: Backend>(&self, rank: usize, steps: &[(Step, &StepExchange)]) -> (Columns, StageExchange<B>) {
        let group = &self.plan.ranks[rank].group;
        let (mut columns, mut counts) = (Columns::none(self.plan.n_nodes), vec![0; group.len()]);
        for (step, _) in steps {
            let panel = self.plan.panels[step.panel].clone();
            counts[place_in(group, step.root)] = panel.len();
            if step.root == rank { columns.skip(panel.len()) } else { columns.add(panel) }
        }
        (columns, StageExchange::Panels(counts))
    }

    /// A stage in which rows come that this rank's block touches, and all of a panel where that is as good.
    fn rows<B: Backend>(
        &self,
        backend: &B,
        rank: usize,
        steps: &[(Step, &StepExchange)],
    ) -> Result<(Columns, StageExchange<B>), ComputeError> {
        let group = &self.plan.ranks[rank].group;
        let place = place_in(group, rank);
        let rows_for = |step: &Step, exchange: &StepExchange, member: usize| -> Vec<NodeId> {
            match exchange {
                StepExchange::Dense => (0..self.plan.panels[step.panel].len() as NodeId).collect(),
                StepExchange::Rows { lists } => lists[member].clone(),
            }
        };
        let mut columns = Columns::none(self.plan.n_nodes);
        let (mut sent, mut received) = (vec![Vec::new(); group.len()], vec![0; group.len()]);
        for (step, exchange) in steps {
            if step.root == rank {
                let others = (0..group.len()).filter(|&member| member != place);
                others.for_each(|member| sent[member] = rows_for(step, exchange, member));
            } else {
                let rows = rows_for(step, exchange, place);
                received[place_in(group, step.root)] = rows.len();
                let first = self.plan.panels[step.panel].start;
                columns.add(rows.iter().map(|&row| first + row as usize));
            }
        }
        Ok((columns, StageExchange::Rows(RowExchange::new(backend, &sent, received)?)))
    }

    /// The rows of `Â` that a rank holds, with the columns that they touch.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(super) fn pattern<B: Backend>(&self, backend: &B, ranks: &Arc<Ranks<B>>) -> Result<Pattern<B>, ComputeError> {
        let own = &ranks.mine().own;
        let halo = self.halo.get_or_init(|| Halo::new(&self.plan, &self.csr)).of(ranks.rank());
        let mut columns = Columns::none(self.csr.n_cols());
        columns.add(halo.rows.iter().map(|&row| row as usize));
        let cut = Cut {
            csr: stacked(&self.csr, std::slice::from_ref(own), &columns),
            left: self.scales.left.as_ref().map(|left| left[own.clone()].to_vec()),
            right: self.scales.right.as_ref().map(|right| columns.scales(right)),
        };
        let names = EntryNames { first_row: own.start as u32, columns: halo.rows.clone().into() };
        Ok(Pattern {
            matrix: cut.upload(backend, Some(names))?,
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
    fn upload<B: Backend>(self, backend: &B, names: Option<EntryNames>) -> Result<B::Sparse, ComputeError> {
        let scales = Scales { left: self.left, right: self.right };
        backend.upload_sparse(&SparseOperand { csr: &self.csr, scales, symmetric: false, names })
    }
}

/// Columns of the adjacency that are columns of a block, in the order in which they were added.
struct Columns {
    /// The place of every column of the adjacency; [`ABSENT`](Self::ABSENT) for those that the block has not.
    places: Vec<u32>,
    /// How many columns the block has.
    n: usize,
}

impl Columns {
    const ABSENT: u32 = u32::MAX;

    fn none(n_cols: usize) -> Self {
        Self { places: vec![Self::ABSENT; n_cols], n: 0 }
    }

    fn add(&mut self, columns: impl IntoIterator<Item = usize>) {
        for column in columns {
            self.places[column] = self.n as u32;
            self.n += 1;
        }
    }

    /// Columns of the block without an entry.
    fn skip(&mut self, n: usize) {
        self.n += n;
    }

    /// Of a number for each column of the adjacency, those of the block's.
    fn scales(&self, scales: &[f32]) -> Vec<f32> {
        let mut of_block = vec![0.0; self.n];
        let placed = self.places.iter().zip(scales).filter(|(place, _)| **place != Self::ABSENT);
        placed.for_each(|(&place, &scale)| of_block[place as usize] = scale);
        of_block
    }
}

/// Ranges of rows with some columns, one below the other. Columns were added in ascending order.
fn stacked(csr: &Csr, rows: &[Range<usize>], columns: &Columns) -> Csr {
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), csr.values().map(|_| Vec::new()));
    for row in rows.iter().cloned().flatten() {
        let entries = csr.indptr()[row] as usize..csr.indptr()[row + 1] as usize;
        for entry in entries {
            let place = columns.places[csr.indices()[entry] as usize];
            if place == Columns::ABSENT {
                continue;
            }
            indices.push(place);
            if let (Some(values), Some(all)) = (&mut values, csr.values()) {
                values.push(all[entry]);
            }
        }
        indptr.push(indices.len() as u64);
    }
    let n_rows = indptr.len() - 1;
    Csr::new(n_rows, columns.n, indptr, indices, values.map(Into::into)).expect("rows of a valid matrix")
}
