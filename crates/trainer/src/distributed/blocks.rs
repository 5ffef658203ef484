//! [`HostBlock`]: what a rank multiplies in a step, and which rows travel for it: each rank counts in its own rows what it needs, and
//! is told what others do.

use std::ops::Range;
use std::sync::Arc;

use girih_comm::{CommError, Parcel};
use girih_compute::{Backend, ComputeError, EntryNames, SparseOperand};
use girih_graph_format::{Csr, NodeId, Scales};
use girih_partition::{Exchange, Step, place_in};

use super::looped::LoopedRows;
use super::ranks::{Ranks, failed, totals, words};
use super::rows::{PeerRows, RowExchange};

/// The block of one step.
pub(super) struct Block<B: Backend> {
    pub(super) matrix: B::Sparse,
    /// The rows that are sent for it; `None` where the whole panel is.
    pub(super) rows: Option<RowExchange<B>>,
}

/// The block of one step on the host, before it is scaled. Clones share its entries.
#[derive(Clone)]
pub(super) struct HostBlock {
    csr: Csr,
    /// Of the panel, the rows that stand for the columns; `None` where all do.
    touched: Option<Vec<NodeId>>,
    /// For each member of the group, the rows that are sent to it and how many come from it; `None` where whole panels travel.
    lists: Option<(Vec<Vec<NodeId>>, Vec<usize>)>,
}

/// A rank's own rows of the adjacency, with only the columns that they touch.
pub(crate) struct Pattern<B: Backend> {
    pub(crate) matrix: B::Sparse,
    /// Where the rows come from that its columns stand for.
    pub(crate) rows: PeerRows<B>,
}

impl HostBlock {
    /// The blocks of all steps of a rank, from the rows that its products have; all ranks call it together.
    ///
    /// # Errors
    /// When another rank fails.
    pub(super) fn all<B: Backend>(
        rows: &[LoopedRows],
        ranks: &Ranks<B>,
        exchange: Exchange,
    ) -> Result<Vec<Self>, CommError> {
        let (mine, panels) = (ranks.mine(), &ranks.plan().panels);
        let blocks = mine.steps.iter().map(|step| stacked(rows, &panels[step.panel]));
        let whole = |csr| Self { csr, touched: None, lists: None };
        if exchange == Exchange::Dense {
            return Ok(blocks.map(whole).collect());
        }
        let (blocks, touched): (Vec<Csr>, Vec<Vec<NodeId>>) =
            blocks.map(|csr| (touched(&csr), csr)).map(|(t, c)| (c, t)).unzip();
        let by_rows = match exchange {
            Exchange::Auto => fewer_rows(&touched, ranks)?,
            _ => vec![true; touched.len()],
        };
        let mut sent = wanted_by_others(&touched, &by_rows, ranks)?;
        let of_step = |(((csr, touched), by_rows), step): (((Csr, Vec<NodeId>), bool), &Step)| {
            let n_members = mine.group.len();
            if !by_rows {
                return whole(csr);
            }
            if step.root == ranks.rank() {
                let sent = std::mem::take(&mut sent);
                return Self { csr, touched: None, lists: Some((sent, vec![0; n_members])) };
            }
            let mut received = vec![0; n_members];
            received[place_in(&mine.group, step.root)] = touched.len();
            let lists = Some((vec![Vec::new(); n_members], received));
            Self { csr: with_columns(csr, &touched), touched: Some(touched), lists }
        };
        Ok(blocks.into_iter().zip(touched).zip(by_rows).zip(&mine.steps).map(of_step).collect())
    }

    /// Moves the block to a device, with its part of the scales of all nodes.
    pub(super) fn upload<B: Backend>(
        self,
        backend: &B,
        ranks: &Ranks<B>,
        step: &Step,
        scales: &Scales,
    ) -> Result<Block<B>, ComputeError> {
        let columns = ranks.plan().panels[step.panel].clone();
        let of_columns = |scales: &Vec<f32>| match &self.touched {
            None => scales[columns.clone()].to_vec(),
            Some(touched) => touched.iter().map(|&c| scales[columns.start + c as usize]).collect(),
        };
        let of_rows = |scales: &Vec<f32>| -> Vec<f32> {
            ranks.product_rows(ranks.rank()).flat_map(|rows| &scales[rows]).copied().collect()
        };
        let scales = Scales { left: scales.left.as_ref().map(of_rows), right: scales.right.as_ref().map(of_columns) };
        let operand = SparseOperand { csr: &self.csr, scales, symmetric: false, names: None };
        let matrix = backend.upload_sparse(&operand)?;
        let rows = self.lists.map(|(sent, received)| RowExchange::new(backend, &sent, received)).transpose()?;
        Ok(Block { matrix, rows })
    }
}

/// For each step, whether lists of rows are less than whole panels, over all members of the group.
fn fewer_rows<B: Backend>(touched: &[Vec<NodeId>], ranks: &Ranks<B>) -> Result<Vec<bool>, CommError> {
    let mine = ranks.mine();
    // The root's own are not sent.
    let of_step =
        |(step, touched): (&Step, &Vec<NodeId>)| if step.root == ranks.rank() { 0 } else { touched.len() as u64 };
    let counts: Vec<u64> = mine.steps.iter().zip(touched).map(of_step).collect();
    let sent = totals(&*ranks.steps, &counts)?;
    let whole = |step: &Step| (ranks.plan().panels[step.panel].len() * (mine.group.len() - 1)) as u64;
    Ok(mine.steps.iter().zip(sent).map(|(step, sent)| sent < whole(step)).collect())
}

/// For each member of the group, the rows of this rank's panel that its block touches, where they are sent one by one. A rank is
/// the root of one step at most.
fn wanted_by_others<B: Backend>(
    touched: &[Vec<NodeId>],
    by_rows: &[bool],
    ranks: &Ranks<B>,
) -> Result<Vec<Vec<NodeId>>, CommError> {
    let mine = ranks.mine();
    let mut messages = vec![Parcel::from([]); mine.group.len()];
    for ((step, touched), _) in mine.steps.iter().zip(touched).zip(by_rows).filter(|(_, by_rows)| **by_rows) {
        if step.root != ranks.rank() {
            messages[place_in(&mine.group, step.root)] = bytemuck::cast_slice(touched).into();
        }
    }
    let lists = ranks.steps.all_to_all_bytes(messages)?;
    Ok(lists.iter().map(|list| words(list).collect()).collect())
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
        scales: &Scales,
    ) -> Result<Self, ComputeError> {
        let csr = stacked(std::slice::from_ref(own), &(0..own.csr.n_cols()));
        let columns = touched(&csr);
        let csr = with_columns(csr, &columns);
        let of_peer = |nodes: Range<usize>| {
            let below = |end: usize| columns.partition_point(|&c| (c as usize) < end);
            columns[below(nodes.start)..below(nodes.end)].iter().map(|c| c - nodes.start as NodeId).collect()
        };
        let wanted: Vec<Vec<NodeId>> = ranks.peer_nodes().map(of_peer).collect();
        let messages = wanted.iter().map(|list| bytemuck::cast_slice(list).into()).collect();
        let sent = ranks.peers.all_to_all_bytes(messages).map_err(|error| failed(&error))?;
        let sent: Vec<Vec<NodeId>> = sent.iter().map(|list| words(list).collect()).collect();
        let scales = Scales {
            left: scales.left.as_ref().map(|left| left[ranks.own()].to_vec()),
            right: scales.right.as_ref().map(|right| columns.iter().map(|&c| right[c as usize]).collect()),
        };
        let names = Some(EntryNames { first_row: ranks.own().start as u32, columns: columns.into() });
        Ok(Self {
            matrix: backend.upload_sparse(&SparseOperand { csr: &csr, scales, symmetric: false, names })?,
            rows: PeerRows::new(backend, ranks, &sent, wanted.iter().map(Vec::len).collect())?,
        })
    }
}

/// Which columns have entries, ascending.
fn touched(csr: &Csr) -> Vec<NodeId> {
    let mut seen = vec![false; csr.n_cols()];
    csr.indices().iter().for_each(|&c| seen[c as usize] = true);
    (0..csr.n_cols() as NodeId).filter(|&c| seen[c as usize]).collect()
}

/// The same entries, with `columns` (ascending; all that occur) alone.
fn with_columns(csr: Csr, columns: &[NodeId]) -> Csr {
    let place = |c: &NodeId| columns.binary_search(c).expect("a column that occurs is listed") as NodeId;
    let indices: Vec<NodeId> = csr.indices().iter().map(place).collect();
    csr.with_columns(columns.len(), indices).expect("fewer columns in the same order")
}

/// Rows of some columns, one below the other.
fn stacked(rows: &[LoopedRows], columns: &Range<usize>) -> Csr {
    let n_rows = rows.iter().map(|rows| rows.csr.n_rows()).sum();
    let (mut indptr, mut indices, mut values) = (Vec::with_capacity(n_rows + 1), Vec::new(), Vec::new());
    indptr.push(0);
    for rows in rows {
        for i in 0..rows.csr.n_rows() {
            rows.append(i, columns, (&mut indices, &mut values));
            indptr.push(indices.len() as u64);
        }
    }
    indices.shrink_to_fit();
    values.shrink_to_fit();
    let weighted = rows.first().is_some_and(|rows| rows.csr.values().is_some());
    Csr::new(n_rows, columns.len(), indptr, indices, weighted.then(|| values.into())).expect("rows of a valid matrix")
}
