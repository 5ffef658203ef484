//! [`Blocks`]: what a rank multiplies in a product, and which rows travel for it. [`HostBlocks`] has them before they
//! are on a device: each rank counts in its own rows what it needs, and is told what others do.

use std::ops::Range;
use std::sync::Arc;

use girih_comm::{CommError, Parcel, Payload};
use girih_compute::{Backend, ComputeError, Dtype, EntryNames, SparseOperand, Transpose};
use girih_graph_format::{Csr, Matrix, NodeId, Scales, places_of};
use girih_partition::{BlockPlan, Exchange, RankPlan, Receivers, Step, StepsTogether, place_in};

use super::adjacency::AllScales;
use super::looped::LoopedRows;
use super::ranks::{Ranks, failed, totals};
use super::rows::{HaloExchange, HaloPlan};

/// Source of a rank's blocks: the adjacency, or in a dry run its sizes.
pub(crate) trait BlockSource<B: Backend>: Send + Sync {
    /// How operands of `f32` travel, and are multiplied.
    fn wire(&self) -> Dtype;

    /// The blocks of a rank for a product with `op(Â)`; all ranks call it together.
    ///
    /// # Errors
    /// When the device's memory does not suffice, rows cannot be read again, or another rank fails.
    fn blocks(&self, backend: &B, ranks: &Ranks<B>, transpose: Transpose) -> Result<Blocks<B>, ComputeError>;

    /// The rows of `Â` that a rank holds, with the columns that they touch; all ranks call it together.
    ///
    /// # Errors
    /// As [`blocks`](Self::blocks).
    fn pattern(&self, backend: &B, ranks: &Arc<Ranks<B>>) -> Result<Pattern<B>, ComputeError>;
}

/// How an operand that is stored as `dtype` travels, where those of `f32` do as `wire`.
pub(super) fn travelling(dtype: Dtype, wire: Dtype) -> Dtype {
    if dtype == Dtype::F32 { wire } else { dtype }
}

/// What a rank multiplies in a product.
pub(crate) struct Blocks<B: Backend> {
    /// What it multiplies its own rows by before they travel: the factors of columns of `Â`, which blocks then have
    /// not. So each row is multiplied once, by who holds it.
    pub(super) factors: Option<B::Matrix>,
    /// The block whose columns are the panel that it holds itself, if one of its steps is for that.
    pub(super) own: Option<Chunks<B>>,
    pub(super) together: Vec<StepGroup<B>>,
}

impl<B: Backend> Blocks<B> {
    /// How many products are added up.
    pub(super) fn n_products(&self) -> usize {
        usize::from(self.own.is_some()) + self.together.iter().filter(|some| some.matrix.is_some()).count()
    }
}

/// A matrix for each chunk of the rows of a product.
pub(crate) type Chunks<B> = Vec<<B as Backend>::Sparse>;

/// Blocks of the SUMMA steps whose panels arrive in one exchange, side by side.
pub(crate) struct StepGroup<B: Backend> {
    /// Their columns are the rows that come. `None` where none come from others.
    pub(super) matrix: Option<Chunks<B>>,
    pub(super) exchange: PanelExchange<B>,
}

/// Exchange of a step group, in the order of the ranks of the group.
pub(crate) enum PanelExchange<B: Backend> {
    /// Whole panels.
    Panels(Panels),
    /// Rows of other members.
    Rows(HaloPlan<B>),
}

/// Whole panels that travel in an exchange: rows that go to members of the group, and come from them.
#[derive(Clone)]
pub(crate) enum Panels {
    /// All-gather. `counts[i]`: rows that rank `i` contributes (0 if none).
    ToAll(Vec<usize>),
    /// A panel goes to one member at most, and one comes.
    ToOne {
        /// Rows that go to each member.
        sent: Vec<usize>,
        /// Rows that come from each.
        received: Vec<usize>,
    },
}

impl Panels {
    /// Those of some steps of a rank.
    pub(super) fn of(plan: &BlockPlan, rank: usize, together: &StepsTogether) -> Self {
        let RankPlan { steps, group, .. } = &plan.ranks[rank];
        let n_rows = |i: usize| plan.panels[steps[i].panel].len();
        let (sent, mut received) = plan.sent_and_received(rank, together, |i, _| n_rows(i));
        match together.receivers {
            Receivers::One(_) => Self::ToOne { sent, received },
            Receivers::All => {
                let own = together.steps.iter().find(|&&i| steps[i].root == rank);
                received[place_in(group, rank)] = own.map_or(0, |&i| n_rows(i));
                Self::ToAll(received)
            }
        }
    }
}

/// A rank's own rows of the adjacency, with only the columns that they touch.
pub(crate) struct Pattern<B: Backend> {
    pub(crate) matrix: B::Sparse,
    /// Where the rows come from that its columns stand for.
    pub(crate) rows: HaloExchange<B>,
}

/// [`Blocks`] on the host, before they are scaled. Clones share entries.
#[derive(Clone)]
pub(super) struct HostBlocks {
    own: Option<HostBlock>,
    together: Vec<(Option<HostBlock>, Lists)>,
}

/// Some columns of the rows that a rank's products have, for each chunk of these.
type HostBlock = Vec<Csr>;

/// How many rows come from each member of the group.
#[derive(Clone)]
enum Lists {
    /// Of whole panels.
    Panels(Panels),
    /// Rows that are listed; and which rows of its panel this rank sends to each.
    Rows { sent: Vec<Vec<NodeId>>, received: Vec<usize> },
}

/// Which rows a rank's steps touch.
struct Touched {
    /// For each step, of its panel; none where this rank is the root.
    rows: Vec<Vec<NodeId>>,
    /// For each step, whether rows are sent, and not the whole panel.
    by_rows: Vec<bool>,
    /// For each member of the group, of this rank's panel.
    by_others: Vec<Vec<NodeId>>,
}

impl HostBlocks {
    /// The blocks of a rank, from the rows that its products have; all ranks call it together.
    ///
    /// # Errors
    /// When another rank fails.
    pub(super) fn new<B: Backend>(
        rows: &[LoopedRows],
        ranks: &Ranks<B>,
        exchange: Exchange,
    ) -> Result<Self, CommError> {
        let (mine, panels) = (ranks.mine(), &ranks.plan().panels);
        let touched = Touched::new(rows, ranks, exchange)?;
        let own_step = mine.steps.iter().find(|step| step.root == ranks.rank());
        let chunks = ranks.chunks_of_product();
        let block = |columns| cut_chunks(rows, &chunks, &columns);
        let own = own_step.map(|step| block(Columns::of(panels[step.panel].clone())));
        let of_steps = |together: StepsTogether| {
            let (columns, lists) = if together.steps.iter().any(|&i| touched.by_rows[i]) {
                touched.rows_of(&together, ranks)
            } else {
                whole_panels(&together, ranks)
            };
            let is_from_others = ranks.plan().from_others(ranks.rank(), &together).next().is_some();
            (is_from_others.then(|| block(columns)), lists)
        };
        Ok(Self { own, together: ranks.plan().together(ranks.rank()).into_iter().map(of_steps).collect() })
    }

    /// Moves the blocks to a device, with their parts of the scales of all nodes.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(super) fn upload<B: Backend>(
        self,
        backend: &B,
        ranks: &Ranks<B>,
        [left, right]: &AllScales,
    ) -> Result<Blocks<B>, ComputeError> {
        let rows_of = ranks.chunks_of_product();
        let uploaded = |block: HostBlock| -> Result<Chunks<B>, ComputeError> {
            let of_chunk = |(csr, rows): (&Csr, &Vec<Range<usize>>)| {
                let left =
                    left.as_ref().map(|left| rows.iter().flat_map(|rows| &left[rows.clone()]).copied().collect());
                let scales = Scales { left, right: None };
                backend.upload_sparse(&SparseOperand { csr, scales, symmetric: false, names: None })
            };
            block.iter().zip(&rows_of).map(of_chunk).collect()
        };
        let factors = right.as_ref().map(|right| {
            let own = right[ranks.own()].to_vec();
            let column = Matrix::new(own.len(), 1, own).expect("a number for each row");
            backend.upload(&column, Dtype::F32)
        });
        let together = self.together.into_iter().map(|(block, lists)| {
            let exchange = match lists {
                Lists::Panels(panels) => PanelExchange::Panels(panels),
                Lists::Rows { sent, received } => PanelExchange::Rows(HaloPlan::new(backend, &sent, received)?),
            };
            Ok(StepGroup { matrix: block.map(uploaded).transpose()?, exchange })
        });
        let together = together.collect::<Result<_, ComputeError>>()?;
        Ok(Blocks { factors: factors.transpose()?, own: self.own.map(uploaded).transpose()?, together })
    }
}

/// All rows of other ranks' panels come.
fn whole_panels<B: Backend>(together: &StepsTogether, ranks: &Ranks<B>) -> (Columns, Lists) {
    let (plan, rank) = (ranks.plan(), ranks.rank());
    let panels = plan.from_others(rank, together).map(|(_, step)| plan.panels[step.panel].clone());
    let columns = panels.flatten().map(|column| column as NodeId).collect();
    (Columns(columns), Lists::Panels(Panels::of(plan, rank, together)))
}

impl Touched {
    fn new<B: Backend>(rows: &[LoopedRows], ranks: &Ranks<B>, exchange: Exchange) -> Result<Self, CommError> {
        let (mine, panels) = (ranks.mine(), &ranks.plan().panels);
        if exchange == Exchange::Dense {
            let n = mine.steps.len();
            return Ok(Self { rows: vec![Vec::new(); n], by_rows: vec![false; n], by_others: Vec::new() });
        }
        let of_step = |step: &Step| match step.root == ranks.rank() {
            true => Vec::new(),
            false => touched(rows, &panels[step.panel]),
        };
        let rows: Vec<Vec<NodeId>> = mine.steps.iter().map(of_step).collect();
        let by_rows = match exchange {
            Exchange::Auto => fewer_rows(&rows, ranks)?,
            Exchange::Dense | Exchange::Rows => vec![true; rows.len()],
        };
        // A rank is the root of one step at most.
        let mut messages = vec![Parcel::from([]); mine.group.len()];
        for ((step, rows), by_rows) in mine.steps.iter().zip(&rows).zip(&by_rows) {
            if *by_rows && step.root != ranks.rank() {
                messages[place_in(&mine.group, step.root)] = bytemuck::cast_slice(rows).into();
            }
        }
        let lists = ranks.steps.all_to_all_bytes(messages)?;
        let n_own = mine.steps.iter().find(|step| step.root == ranks.rank()).map_or(0, |step| panels[step.panel].len());
        let read = |(place, list): (usize, &Parcel)| {
            Payload::new(list, mine.group[place], "rows that are read").ids(&(0..n_own as NodeId))
        };
        let by_others = lists.iter().enumerate().map(read).collect::<Result<_, CommError>>()?;
        Ok(Self { rows, by_rows, by_others })
    }

    /// Rows of each panel come that this rank's block touches, and all of them where that is as good.
    fn rows_of<B: Backend>(&self, together: &StepsTogether, ranks: &Ranks<B>) -> (Columns, Lists) {
        let (plan, rank) = (ranks.plan(), ranks.rank());
        let RankPlan { steps, group, .. } = ranks.mine();
        let rows_for = |i: usize, member: usize| match (self.by_rows[i], group[member] == rank) {
            (false, _) => (0..plan.panels[steps[i].panel].len() as NodeId).collect(),
            (true, true) => self.rows[i].clone(),
            (true, false) => self.by_others[member].clone(),
        };
        let (sent, received) = plan.sent_and_received(rank, together, rows_for);
        let of_panel = |(_, step): (usize, &Step)| {
            let first = plan.panels[step.panel].start as NodeId;
            received[place_in(group, step.root)].iter().map(move |row| first + row)
        };
        let columns = plan.from_others(rank, together).flat_map(of_panel).collect();
        (Columns(columns), Lists::Rows { sent, received: received.iter().map(Vec::len).collect() })
    }
}

/// For each step, whether rows that are touched are enough fewer than whole panels, over all members of the group.
fn fewer_rows<B: Backend>(touched: &[Vec<NodeId>], ranks: &Ranks<B>) -> Result<Vec<bool>, CommError> {
    let mine = ranks.mine();
    let counts: Vec<u64> = touched.iter().map(|rows| rows.len() as u64).collect();
    let sent = totals(&*ranks.steps, &mine.group, &counts)?;
    let whole = |step: &Step| ranks.plan().panels[step.panel].len() * (mine.group.len() - 1);
    let sends_rows = |(step, sent)| Exchange::Auto.sends_rows(sent as usize, whole(step));
    Ok(mine.steps.iter().zip(sent).map(sends_rows).collect())
}

impl<B: Backend> Pattern<B> {
    /// From the rank's own rows; all ranks call it together.
    ///
    /// # Errors
    /// When the device's memory does not suffice, or another rank fails.
    pub(super) fn new(
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        own: &LoopedRows,
        [left, right]: &AllScales,
    ) -> Result<Self, ComputeError> {
        let own = std::slice::from_ref(own);
        let columns = Columns(touched(own, &(0..ranks.plan().n_nodes)));
        let of_peer = |nodes: Range<usize>| -> Vec<NodeId> {
            columns.0[places_of(&columns.0, &nodes)].iter().map(|c| c - nodes.start as NodeId).collect()
        };
        let wanted: Vec<Vec<NodeId>> = ranks.peer_nodes().map(of_peer).collect();
        let messages = wanted.iter().map(|list| bytemuck::cast_slice(list).into()).collect();
        let sent = ranks.peers.all_to_all_bytes(messages).map_err(|error| failed(&error))?;
        let own_rows = 0..ranks.own().len() as NodeId;
        let read = |(peer, list): (usize, &Parcel)| ranks.payload(peer, list, "rows that are read").ids(&own_rows);
        let sent: Vec<Vec<NodeId>> =
            sent.iter().enumerate().map(read).collect::<Result<_, _>>().map_err(|error| failed(&error))?;
        let block = cut_chunks(own, &[vec![ranks.own()]], &columns);
        let scales = Scales {
            left: left.as_ref().map(|left| left[ranks.own()].to_vec()),
            right: right.as_ref().map(|right| columns.scales(right)),
        };
        let names = Some(EntryNames { first_row: ranks.own().start as u32, columns: columns.0.into() });
        Ok(Self {
            matrix: backend.upload_sparse(&SparseOperand { csr: &block[0], scales, symmetric: false, names })?,
            rows: HaloExchange::new(backend, ranks, &sent, wanted.iter().map(Vec::len).collect())?,
        })
    }
}

/// The columns of the adjacency that a block's stand for, ascending.
struct Columns(Vec<NodeId>);

impl Columns {
    /// No place of a column.
    const NONE: u32 = u32::MAX;

    fn of(columns: Range<usize>) -> Self {
        Self(columns.map(|column| column as NodeId).collect())
    }

    /// From the first to the last.
    fn range(&self) -> Range<usize> {
        match (self.0.first(), self.0.last()) {
            (Some(&first), Some(&last)) => first as usize..last as usize + 1,
            _ => 0..0,
        }
    }

    /// The place of every column in a range, counted from its start.
    fn places(&self, range: &Range<usize>) -> Vec<u32> {
        let mut places = vec![Self::NONE; range.len()];
        for (place, &column) in self.0.iter().enumerate() {
            places[column as usize - range.start] = place as u32;
        }
        places
    }

    /// Of a number for each column of the adjacency, those of the block's.
    fn scales(&self, scales: &[f32]) -> Vec<f32> {
        self.0.iter().map(|&column| scales[column as usize]).collect()
    }
}

/// Some columns of rows: for each chunk the ranges of rows that it has, one below the other.
fn cut_chunks(rows: &[LoopedRows], chunks: &[Vec<Range<usize>>], columns: &Columns) -> HostBlock {
    let range = columns.range();
    let places = columns.places(&range);
    chunks.iter().map(|chunk| cut(rows, chunk, (&range, &places), columns.0.len())).collect()
}

/// Some ranges of rows one below the other, with those columns of a range that have a place, of `n_columns`.
fn cut(
    rows: &[LoopedRows],
    ranges: &[Range<usize>],
    (columns, places): (&Range<usize>, &[u32]),
    n_columns: usize,
) -> Csr {
    let is_placed = |id: NodeId| places[id as usize] != Columns::NONE;
    let holder = |range: &Range<usize>| {
        let has = |rows: &&LoopedRows| rows.rows().start <= range.start && range.end <= rows.rows().end;
        rows.iter().find(has).expect("rows of the rank's products")
    };
    // Counted first: an array that grows takes more than it holds.
    let mut indptr = vec![0];
    for range in ranges {
        holder(range).for_some(range, columns, |_, ids, _| {
            let n = ids.iter().filter(|&&id| is_placed(id)).count() as u64;
            indptr.push(indptr[indptr.len() - 1] + n);
        });
    }
    indptr.shrink_to_fit();
    let (nnz, weighted) = (indptr[indptr.len() - 1] as usize, rows.iter().any(|rows| rows.csr.values().is_some()));
    let (mut indices, mut values) = (Vec::with_capacity(nnz), Vec::with_capacity(if weighted { nnz } else { 0 }));
    for range in ranges {
        holder(range).for_some(range, columns, |_, ids, weights| {
            for i in (0..ids.len()).filter(|&i| is_placed(ids[i])) {
                indices.push(places[ids[i] as usize]);
                values.extend(weights.get(i));
            }
        });
    }
    Csr::new(indptr.len() - 1, n_columns, indptr, indices, weighted.then(|| values.into()))
        .expect("rows of a valid matrix")
}

/// Which of some columns rows name, ascending, counted from the first of them.
fn touched(rows: &[LoopedRows], columns: &Range<usize>) -> Vec<NodeId> {
    let mut seen = vec![false; columns.len()];
    for rows in rows {
        rows.for_each(columns, |_, ids, _| ids.iter().for_each(|&id| seen[id as usize] = true));
    }
    (0..columns.len() as NodeId).filter(|&c| seen[c as usize]).collect()
}
