//! [`RankRows`]: rows of features where they lie.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use girih_comm::{Collective, Parcel, Payload};
use girih_compute::{Backend, FetchedRows};
use girih_graph_format::NodeId;
use girih_partition::Patches;
use rayon::prelude::*;

use crate::exchange::{exchange, messages};
use crate::graph::check_patches;
use crate::wire::put;
use crate::{CollectiveError, Tally};

/// Rows that a thread copies at least.
const ROWS_AT_ONCE: usize = 256;

/// Rows of a fixed number of bytes, one for each node, of which every rank holds those of its patch: features, or the
/// codes of a codec, which travel as they are (Cai et al., DSP, PPoPP 2023, section 4, loader).
pub struct RankRows<'r, B: Backend> {
    world: &'r dyn Collective<B>,
    patches: &'r Patches,
    rows: &'r [u8],
    row_bytes: usize,
    tally: Tally,
    spare: SpareReplies,
}

/// Memory of replies that nobody reads any more: the next ones are written there, since new memory takes longer to get
/// than rows to copy.
#[derive(Clone, Debug, Default)]
pub struct SpareReplies(Arc<Mutex<Vec<Vec<u8>>>>);

impl SpareReplies {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes, whatever they are.
    fn bytes(&self, n: usize) -> Vec<u8> {
        let mut bytes = self.lock().pop().unwrap_or_default();
        bytes.resize(n, 0);
        bytes
    }
}

impl<'r, B: Backend> RankRows<'r, B> {
    /// The rows of this rank's patch, one behind the other. All ranks call it together.
    ///
    /// # Errors
    /// When there is not a patch for each rank or not a row for each of its nodes, or ranks disagree on patches or on
    /// the bytes of a row.
    pub fn new(
        world: &'r dyn Collective<B>,
        patches: &'r Patches,
        rows: &'r [u8],
        row_bytes: usize,
    ) -> Result<Self, CollectiveError> {
        let (rank, own) = (world.rank(), check_patches(world, patches)?);
        let all = world.all_gather_bytes(&(row_bytes as u64).to_le_bytes())?;
        if let Some(other) = all.iter().position(|theirs| *theirs != all[rank]) {
            return Err(CollectiveError::layout(format!(
                "rows have other sizes on the ranks {rank} and {other}; give all ranks the same features"
            )));
        }
        if rows.len() != own.len() * row_bytes {
            return Err(CollectiveError::layout(format!(
                "rank {rank} holds {} bytes of rows, but its patch has {} nodes of {row_bytes} bytes each",
                rows.len(),
                own.len()
            )));
        }
        Ok(Self::again(world, patches, (rows, row_bytes), SpareReplies::default()))
    }

    /// The same without a look at them: of what ranks made [such rows](Self::new) of before, with memory for replies.
    #[must_use]
    pub fn again(
        world: &'r dyn Collective<B>,
        patches: &'r Patches,
        (rows, row_bytes): (&'r [u8], usize),
        spare: SpareReplies,
    ) -> Self {
        Self { world, patches, rows, row_bytes, tally: Tally::default(), spare }
    }

    /// Bytes of a row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// What this rank has sent so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The rows of some nodes, one behind the other in `out`, whose content is lost. A node that is listed several
    /// times is asked for once. All ranks call it together, some perhaps for no nodes.
    ///
    /// # Errors
    /// When a node does not exist, or a rank fails.
    pub fn gather(&mut self, nodes: &[NodeId], out: &mut Vec<u8>) -> Result<(), CollectiveError> {
        let found = self.find(nodes)?;
        out.clear();
        out.resize(nodes.len() * self.row_bytes, 0);
        copy_rows(out, self.row_bytes, |at| found.row(at));
        Ok(())
    }

    /// The same without a copy of them.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn find(&mut self, nodes: &[NodeId]) -> Result<FoundRows<'r>, CollectiveError> {
        let n_nodes = self.patches.n_nodes();
        if let Some(node) = nodes.iter().max().filter(|&&node| node as usize >= n_nodes) {
            return Err(CollectiveError::layout(format!(
                "there is no row of node {node} among those of {n_nodes} nodes"
            )));
        }
        let (wanted, places) = each_once(nodes, n_nodes);
        let (rank, size) = (self.world.rank(), self.world.size());
        // Ascending, and so rank by rank.
        let ends: Vec<usize> =
            (0..size).map(|owner| wanted.partition_point(|&node| node < self.patches.range(owner).end)).collect();
        let of_rank = |owner: usize| if owner == 0 { 0 } else { ends[owner - 1] }..ends[owner];
        self.tally.wanted_rows += wanted.len() as u64;
        self.tally.own_rows += of_rank(rank).len() as u64;
        let mut requests = messages(self.world);
        for (owner, message) in requests.iter_mut().enumerate().filter(|(owner, _)| *owner != rank) {
            put(message, &wanted[of_rank(owner)]);
        }
        let asked = exchange(self.world, &mut self.tally.requests, requests)?;
        let reply = |(asker, message): (usize, &Parcel)| {
            let own = self.patches.range(rank);
            Ok(self.reply(&Payload::new(message, asker, "a request for rows").ids(&own)?))
        };
        let replies = asked.iter().enumerate().map(reply).collect::<Result<_, CollectiveError>>()?;
        let received = exchange(self.world, &mut self.tally.rows, replies)?;
        for (owner, rows) in received.iter().enumerate().filter(|(owner, _)| *owner != rank) {
            Payload::new(rows, owner, "rows").exactly_bytes(of_rank(owner).len() * self.row_bytes)?;
        }
        let (own, first, row_bytes) = (self.rows, self.patches.range(rank).start, self.row_bytes);
        Ok(FoundRows { own, first, row_bytes, rank, wanted, places, ends, received, spare: self.spare.clone() })
    }

    /// The rows of some nodes of this rank's patch.
    fn reply(&self, nodes: &[NodeId]) -> Vec<u8> {
        let own = self.patches.range(self.world.rank());
        if nodes.is_empty() {
            // Such as that to this rank itself: memory is for those that are read.
            return Vec::new();
        }
        let mut reply = self.spare.bytes(nodes.len() * self.row_bytes);
        copy_rows(&mut reply, self.row_bytes, |at| row_of(self.rows, (nodes[at] - own.start) as usize, self.row_bytes));
        reply
    }
}

/// Rows that were asked for, where they are: of this rank's nodes in its patch, of others in their replies.
pub struct FoundRows<'r> {
    own: &'r [u8],
    /// The node of the first of these.
    first: NodeId,
    row_bytes: usize,
    rank: usize,
    /// The nodes, each once, ascending.
    wanted: Vec<NodeId>,
    /// For each node as it was named its place among these.
    places: Vec<u32>,
    /// Where those of each rank end.
    ends: Vec<usize>,
    received: Vec<Parcel>,
    spare: SpareReplies,
}

impl Drop for FoundRows<'_> {
    /// The memory is for the replies of the next batch, which are about as many.
    fn drop(&mut self) {
        let of_others = self.received.drain(..).filter_map(Parcel::into_vec).filter(|bytes| !bytes.is_empty());
        let mut spare = self.spare.lock();
        spare.extend(of_others);
        spare.truncate(self.ends.len());
    }
}

impl FetchedRows for FoundRows<'_> {
    fn row(&self, at: usize) -> &[u8] {
        let place = self.places[at] as usize;
        let owner = self.ends.partition_point(|&end| end <= place);
        if owner == self.rank {
            return row_of(self.own, (self.wanted[place] - self.first) as usize, self.row_bytes);
        }
        let first = if owner == 0 { 0 } else { self.ends[owner - 1] };
        row_of(&self.received[owner], place - first, self.row_bytes)
    }
}

fn row_of(rows: &[u8], at: usize, row_bytes: usize) -> &[u8] {
    &rows[at * row_bytes..(at + 1) * row_bytes]
}

/// Copies rows of so many bytes side by side.
fn copy_rows<'f>(out: &mut [u8], row_bytes: usize, row: impl Fn(usize) -> &'f [u8] + Sync) {
    if row_bytes > 0 {
        let rows = out.par_chunks_exact_mut(row_bytes).enumerate().with_min_len(ROWS_AT_ONCE);
        rows.for_each(|(at, out)| out.copy_from_slice(row(at)));
    }
}

/// Nodes of so many, each once and ascending; and for each as it is listed its place among these. A bit for each node
/// that there is tells which are listed, and how many bits are before it which place it has.
fn each_once(nodes: &[NodeId], n_nodes: usize) -> (Vec<NodeId>, Vec<u32>) {
    const BITS: usize = u64::BITS as usize;
    let mut listed = vec![0_u64; n_nodes.div_ceil(BITS)];
    nodes.iter().for_each(|&node| listed[node as usize / BITS] |= 1 << (node as usize % BITS));
    let (mut wanted, mut before) = (Vec::with_capacity(nodes.len()), Vec::with_capacity(listed.len()));
    for (word, &bits) in listed.iter().enumerate() {
        before.push(wanted.len() as u32);
        let mut left = bits;
        while left != 0 {
            wanted.push((word * BITS) as NodeId + left.trailing_zeros());
            left &= left - 1;
        }
    }
    let place = |&node: &NodeId| {
        let (word, bit) = (node as usize / BITS, node as usize % BITS);
        before[word] + (listed[word] & ((1 << bit) - 1)).count_ones()
    };
    (wanted, nodes.par_iter().with_min_len(ROWS_AT_ONCE).map(place).collect())
}
