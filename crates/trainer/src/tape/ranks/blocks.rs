//! [`Blocks`]: the blocks that a rank multiplies in a product, and the rows that are exchanged for it. [`HostBlocks`]
//! is their form on the host. Each rank finds the rows that it needs in its own rows of the adjacency; messages tell
//! it which rows others need.

use std::ops::Range;
use std::sync::Arc;

use girih_comm::{CommError, Parcel, Payload};
use girih_compute::{Backend, ComputeError, Dtype, GlobalIds, Memory, SparseOperand, Transpose};
use girih_graph_format::{Csr, Matrix, NodeId, Scales, places_of};
use girih_partition::{BlockPlan, Exchange, RankPlan, Receivers, Step, StepsTogether, place_in};

use super::context::{Ranks, failed, totals};
use super::halo::{HaloExchange, HaloPlan};
use super::looped::LoopedRows;

/// Diagonals of `L` and `R`, one number for each node; `None` is the identity.
pub(crate) type AllScales = [Option<Arc<[f32]>>; 2];

/// Source of a rank's blocks: the adjacency, or in a dry run its sizes.
pub trait BlockSource<B: Backend>: Send + Sync {
    /// Type in which `f32` operands are sent and multiplied.
    fn wire(&self) -> Dtype;

    /// Blocks of a rank for a product with `op(Â)`; all ranks call it together.
    ///
    /// # Errors
    /// When the device's memory does not suffice, rows cannot be read again, or another rank fails.
    fn blocks(&self, backend: &B, ranks: &Ranks<B>, transpose: Transpose) -> Result<Blocks<B>, ComputeError>;

    /// Rows of `Â` that a rank holds, with only the columns that they touch; all ranks call it together.
    ///
    /// # Errors
    /// As [`blocks`](Self::blocks).
    fn pattern(&self, backend: &B, ranks: &Arc<Ranks<B>>) -> Result<Pattern<B>, ComputeError>;
}

/// Type in which an operand stored as `dtype` is sent, if `f32` is sent as `wire`.
pub(super) fn travelling(dtype: Dtype, wire: Dtype) -> Dtype {
    if dtype == Dtype::F32 { wire } else { dtype }
}

/// Blocks of a rank in a product.
pub struct Blocks<B: Backend> {
    /// Factor for each own row, applied before rows are sent: the column scales of `Â`, which the blocks then omit.
    /// Each row is thus scaled once, by the rank that holds it.
    pub factors: Option<B::Matrix>,
    /// Block whose columns are this rank's own panel, if it is the root of a step.
    pub own: Option<Chunks<B>>,
    /// Blocks of the other panels, by the exchange that brings them.
    pub together: Vec<StepGroup<B>>,
}

impl<B: Backend> Blocks<B> {
    /// Number of block products that are added up.
    pub(super) fn n_products(&self) -> usize {
        usize::from(self.own.is_some()) + self.together.iter().filter(|some| some.matrix.is_some()).count()
    }
}

/// Sparse matrix for each row chunk of a product.
pub type Chunks<B> = Vec<<B as Memory>::Sparse>;

/// Blocks of the SUMMA steps whose panels arrive in one exchange, side by side.
pub struct StepGroup<B: Backend> {
    /// Matrix whose columns are the received rows. `None` where no rows come from others.
    pub matrix: Option<Chunks<B>>,
    /// Exchange of the rows.
    pub exchange: PanelExchange<B>,
}

/// Exchange of a step group, in the order of the ranks of the group.
pub enum PanelExchange<B: Backend> {
    /// Whole panels.
    Panels(Panels),
    /// Only rows that are read.
    Rows(HaloPlan<B>),
}

/// Whole panels of an exchange: rows sent to members of the group, and received from them.
#[derive(Clone)]
pub enum Panels {
    /// All-gather. `counts[i]`: rows that rank `i` contributes (0 if none).
    ToAll(Vec<usize>),
    /// Point to point: at most one panel is sent to one member, and one is received.
    ToOne {
        /// Number of rows sent to each member.
        sent: Vec<usize>,
        /// Number of rows received from each member.
        received: Vec<usize>,
    },
}

impl Panels {
    /// Panels of a step group of a rank.
    pub(crate) fn of(plan: &BlockPlan, rank: usize, together: &StepsTogether) -> Self {
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
pub struct Pattern<B: Backend> {
    /// The rows of the adjacency.
    pub matrix: B::Sparse,
    /// Exchange that brings the rows of these columns.
    pub rows: HaloExchange<B>,
}

/// [`Blocks`] on the host, before they are scaled. Clones share entries.
#[derive(Clone)]
pub(crate) struct HostBlocks {
    own: Option<HostBlock>,
    together: Vec<(Option<HostBlock>, Lists)>,
}

/// Block with some columns of the rows of a rank's products, for each row chunk.
type HostBlock = Vec<Csr>;

/// Rows that a step group exchanges with each member of the group.
#[derive(Clone)]
enum Lists {
    /// Whole panels.
    Panels(Panels),
    /// Listed rows: the rows of its own panel that this rank sends to each member, and the number received from each.
    Rows { sent: Vec<Vec<NodeId>>, received: Vec<usize> },
}

/// Rows that a rank's steps touch.
struct Touched {
    /// For each step, the touched rows of its panel; empty where this rank is the root.
    rows: Vec<Vec<NodeId>>,
    /// For each step, whether only touched rows are sent, and not the whole panel.
    by_rows: Vec<bool>,
    /// For each member of the group, the rows of this rank's panel that it touches.
    by_others: Vec<Vec<NodeId>>,
}

impl HostBlocks {
    /// Blocks of a rank, from the rows of its products; all ranks call it together.
    ///
    /// # Errors
    /// When another rank fails.
    pub(crate) fn new<B: Backend>(
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
    pub(crate) fn upload<B: Backend>(
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

/// Columns and lists of a step group in which all rows of other ranks' panels are received.
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
        // A rank is the root of at most one step.
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

    /// Columns and lists of a step group in which only touched rows are received. Panels for which that saves too
    /// little are received whole.
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

/// For each step, whether sending touched rows saves enough over whole panels, summed over all members of the group.
fn fewer_rows<B: Backend>(touched: &[Vec<NodeId>], ranks: &Ranks<B>) -> Result<Vec<bool>, CommError> {
    let mine = ranks.mine();
    let counts: Vec<u64> = touched.iter().map(|rows| rows.len() as u64).collect();
    let sent = totals(&*ranks.steps, &mine.group, &counts)?;
    let whole = |step: &Step| ranks.plan().panels[step.panel].len() * (mine.group.len() - 1);
    let sends_rows = |(step, sent)| Exchange::Auto.sends_rows(sent as usize, whole(step));
    Ok(mine.steps.iter().zip(sent).map(sends_rows).collect())
}

impl<B: Backend> Pattern<B> {
    /// Pattern from the rank's own rows; all ranks call it together.
    ///
    /// # Errors
    /// When the device's memory does not suffice, or another rank fails.
    pub(crate) fn new(
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
        let names = Some(GlobalIds { first_row: ranks.own().start as u32, columns: columns.0.into() });
        Ok(Self {
            matrix: backend.upload_sparse(&SparseOperand { csr: &block[0], scales, symmetric: false, names })?,
            rows: HaloExchange::new(backend, ranks, &sent, wanted.iter().map(Vec::len).collect())?,
        })
    }
}

/// Columns of the adjacency that a block's columns stand for, ascending.
struct Columns(Vec<NodeId>);

impl Columns {
    /// Marks a column without a place.
    const NONE: u32 = u32::MAX;

    fn of(columns: Range<usize>) -> Self {
        Self(columns.map(|column| column as NodeId).collect())
    }

    /// Range from the first to the last column.
    fn range(&self) -> Range<usize> {
        match (self.0.first(), self.0.last()) {
            (Some(&first), Some(&last)) => first as usize..last as usize + 1,
            _ => 0..0,
        }
    }

    /// Place of every column in a range, counted from its start; [`NONE`](Self::NONE) where it has none.
    fn places(&self, range: &Range<usize>) -> Vec<u32> {
        let mut places = vec![Self::NONE; range.len()];
        for (place, &column) in self.0.iter().enumerate() {
            places[column as usize - range.start] = place as u32;
        }
        places
    }

    /// Scales of the block's columns, from those of all columns of the adjacency.
    fn scales(&self, scales: &[f32]) -> Vec<f32> {
        self.0.iter().map(|&column| scales[column as usize]).collect()
    }
}

/// Block with some columns of `rows`. Each chunk lists the row ranges that it contains, in order.
fn cut_chunks(rows: &[LoopedRows], chunks: &[Vec<Range<usize>>], columns: &Columns) -> HostBlock {
    let range = columns.range();
    let places = columns.places(&range);
    chunks.iter().map(|chunk| cut(rows, chunk, (&range, &places), columns.0.len())).collect()
}

/// Row ranges one below the other, with the columns that have a place; the result has `n_columns` columns.
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
    // Counts entries first, since a growing array takes more memory than it needs.
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

/// Columns of a range in which `rows` have entries, ascending, counted from the start of the range.
fn touched(rows: &[LoopedRows], columns: &Range<usize>) -> Vec<NodeId> {
    let mut seen = vec![false; columns.len()];
    for rows in rows {
        rows.for_each(columns, |_, ids, _| ids.iter().for_each(|&id| seen[id as usize] = true));
    }
    (0..columns.len() as NodeId).filter(|&c| seen[c as usize]).collect()
}
