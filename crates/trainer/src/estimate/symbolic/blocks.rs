//! [`SymbolicBlocks`]: sizes of the blocks of all ranks of a dry run.

use std::collections::BTreeMap;
use std::sync::Arc;

use girih_compute::{BlockKind, ComputeError, Dtype, Shape, Symbolic, Transpose};
use girih_partition::{BlockPlan, Exchange, Halo, Schedule, StepExchange, StepsTogether, evenly_touched, part};

use super::{Counted, Counts, Entries, SymbolicGraph};
use crate::tape::ranks::{
    BlockSource, Blocks, Chunks, HaloExchange, HaloPlan, PanelExchange, Panels, Pattern, Ranks, StepGroup,
};

/// Sizes of the blocks of all ranks.
pub struct SymbolicBlocks {
    pub(super) graph: SymbolicGraph,
    /// Plan of the ranks.
    pub plan: Arc<BlockPlan>,
    pub(super) exchange: Exchange,
    /// Type in which operands are sent.
    pub(super) wire: Dtype,
    pub(super) counts: Arc<Counts>,
}

/// Sizes of a rank's own rows of the adjacency.
struct PatternSizes {
    /// Number of entries.
    nnz: u64,
    /// Rows received from each peer, and sent to each.
    received: Vec<usize>,
    sent: Vec<usize>,
}

impl SymbolicBlocks {
    /// Entries of each rank's steps, and the exchanges of these steps, in one direction of a real graph.
    fn counted(&self, counted: &Counted, transpose: Transpose) -> &(Vec<Vec<u64>>, Schedule) {
        self.counts.steps[counted.direction(transpose)].get_or_init(|| {
            let entries = counted.directed(transpose);
            (self.plan.step_nnz(entries), Schedule::new(&self.plan, entries, self.exchange))
        })
    }

    /// Number of entries of a step's block.
    fn nnz(&self, rank: usize, i: usize, transpose: Transpose) -> usize {
        match &self.graph.entries {
            Entries::Counted(counted) => self.counted(counted, transpose).0[rank][i] as usize,
            &Entries::Even(n_edges) => {
                let (mine, panel) = (&self.plan.ranks[rank], self.plan.ranks[rank].steps[i].panel);
                let has_loops = self.graph.self_loops && mine.rows.contains(&panel);
                let loops = if has_loops { self.plan.panels[panel].len() } else { 0 };
                self.plan.even_nnz(rank, i, n_edges) as usize + loops
            }
        }
    }

    /// Number of rows of a step's panel for each member of the group; `None` where whole panels are sent.
    fn rows(&self, rank: usize, i: usize, transpose: Transpose) -> Option<Vec<usize>> {
        match &self.graph.entries {
            Entries::Counted(counted) => match &self.counted(counted, transpose).1.steps(rank)[i] {
                StepExchange::Dense => None,
                StepExchange::Rows { lists } => Some(lists.iter().map(Vec::len).collect()),
            },
            &Entries::Even(n_edges) => {
                let rows = self.even_rows(rank, i, n_edges)?;
                Some(vec![rows; self.plan.ranks[rank].group.len()])
            }
        }
    }

    /// Number of rows of a step's panel for each member of the group, if edges are spread evenly.
    fn even_rows(&self, rank: usize, i: usize, n_edges: u64) -> Option<usize> {
        let mine = &self.plan.ranks[rank];
        let columns = self.plan.panels[mine.steps[i].panel].len();
        let touched = evenly_touched(columns, self.plan.even_nnz(rank, i, n_edges));
        let others = mine.group.len() - 1;
        self.exchange.sends_rows(touched * others, columns * others).then_some(touched)
    }

    /// Sizes of a rank's own rows of the adjacency.
    fn pattern_sizes(&self, rank: usize) -> PatternSizes {
        match &self.graph.entries {
            Entries::Counted(counted) => {
                let own = &self.plan.ranks[rank].own;
                let halo = self.counts.halo.get_or_init(|| Halo::new(&self.plan, &counted.looped)).of(rank);
                let indptr = counted.looped.indptr();
                PatternSizes {
                    nnz: indptr[own.end] - indptr[own.start],
                    received: halo.received.clone(),
                    sent: halo.sent.iter().map(Vec::len).collect(),
                }
            }
            &Entries::Even(n_edges) => self.even_pattern(rank, n_edges as f64),
        }
    }

    /// Sizes of a rank's own rows of the adjacency, if `n_edges` edges are spread evenly.
    fn even_pattern(&self, rank: usize, n_edges: f64) -> PatternSizes {
        let (plan, self_loops) = (&self.plan, self.graph.self_loops);
        let (n, own) = (plan.n_nodes as f64, plan.ranks[rank].own.len());
        let touched = |peer: usize| match plan.ranks[peer].own.len() {
            rows if peer == rank && self_loops => rows,
            rows => evenly_touched(rows, (n_edges * (own as f64 / n) * (rows as f64 / n)) as u64),
        };
        let received: Vec<usize> = plan.peers(plan.ranks[rank].replica).map(touched).collect();
        let nnz = (n_edges * own as f64 / n) as u64 + if self_loops { own as u64 } else { 0 };
        PatternSizes { nnz, sent: received.clone(), received }
    }

    /// Matrix with `nnz` entries, weighted as the graph is.
    fn sparse(&self, symbolic: &Symbolic, shape: Shape, nnz: usize) -> <Symbolic as girih_compute::Memory>::Sparse {
        symbolic.sparse(shape, nnz, self.graph.weighted, false)
    }

    /// Row chunks of a block with `n_columns` columns, over which `nnz` entries are spread evenly.
    fn chunks(
        &self,
        symbolic: &Symbolic,
        rank: usize,
        kind: BlockKind,
        (n_columns, nnz): (usize, usize),
    ) -> Chunks<Symbolic> {
        let n_chunks = self.plan.n_chunks;
        let shape = |chunk| Shape::new(self.plan.n_chunk_rows(rank, chunk), n_columns);
        let chunk = |chunk| self.sparse(symbolic, shape(chunk), even_part(nnz, chunk, n_chunks)).of_kind(kind);
        (0..n_chunks).map(chunk).collect()
    }

    /// Blocks of some steps side by side, as `HostBlocks` has them.
    fn together(
        &self,
        symbolic: &Symbolic,
        ranks: &Ranks<Symbolic>,
        together: &StepsTogether,
        transpose: Transpose,
    ) -> StepGroup<Symbolic> {
        let (plan, rank, steps) = (&self.plan, ranks.rank(), &ranks.mine().steps);
        let lists: BTreeMap<usize, Vec<usize>> =
            together.steps.iter().filter_map(|&i| Some((i, self.rows(rank, i, transpose)?))).collect();
        let rows_for = |i: usize, member: usize| {
            lists.get(&i).map_or_else(|| plan.panels[steps[i].panel].len(), |rows| rows[member])
        };
        let (sent, received) = plan.sent_and_received(rank, together, rows_for);
        let n_columns = received.iter().sum();
        let exchange = match lists.is_empty() {
            true => PanelExchange::Panels(Panels::of(plan, rank, together)),
            false => PanelExchange::Rows(exchange_of(symbolic, sent, received)),
        };
        let nnz: Vec<usize> = plan.from_others(rank, together).map(|(i, _)| self.nnz(rank, i, transpose)).collect();
        let kind = if nnz.len() == 1 && steps.len() > 2 { BlockKind::Single } else { BlockKind::Others };
        let chunks = || self.chunks(symbolic, rank, kind, (n_columns, nnz.iter().sum()));
        StepGroup { matrix: (!nnz.is_empty()).then(chunks), exchange }
    }
}

/// Size of part `i` of `n` items that are spread evenly over parts.
fn even_part(n: usize, i: usize, n_parts: usize) -> usize {
    part(&(0..n), i, n_parts).len()
}

/// Halo plan of which only the numbers of rows are known.
fn exchange_of(symbolic: &Symbolic, sent: Vec<usize>, received: Vec<usize>) -> HaloPlan<Symbolic> {
    HaloPlan::of_ids(symbolic.ids(sent.iter().sum()), sent, received)
}

impl BlockSource<Symbolic> for SymbolicBlocks {
    fn wire(&self) -> Dtype {
        self.wire
    }

    fn blocks(
        &self,
        symbolic: &Symbolic,
        ranks: &Ranks<Symbolic>,
        transpose: Transpose,
    ) -> Result<Blocks<Symbolic>, ComputeError> {
        let rank = ranks.rank();
        let own = ranks.mine().steps.iter().enumerate().find(|(_, step)| step.root == rank);
        let own = own.map(|(i, step)| {
            let size = (self.plan.panels[step.panel].len(), self.nnz(rank, i, transpose));
            self.chunks(symbolic, rank, BlockKind::Own, size)
        });
        let together = self.plan.together(rank).into_iter();
        let together = together.map(|some| self.together(symbolic, ranks, &some, transpose)).collect();
        let has_factors = self.graph.has_factors[usize::from(transpose == Transpose::Yes)];
        let factors = has_factors.then(|| symbolic.matrix(Shape::new(ranks.own().len(), 1), Dtype::F32));
        Ok(Blocks { factors, own, together })
    }

    fn pattern(&self, symbolic: &Symbolic, ranks: &Arc<Ranks<Symbolic>>) -> Result<Pattern<Symbolic>, ComputeError> {
        let PatternSizes { nnz, received, sent } = self.pattern_sizes(ranks.rank());
        let shape = Shape::new(ranks.own().len(), received.iter().sum());
        let (matrix, rows) = (self.sparse(symbolic, shape, nnz as usize), exchange_of(symbolic, sent, received));
        Ok(Pattern { matrix, rows: HaloExchange::of(ranks, rows) })
    }
}
