//! [`RankRows`]: feature rows, held by the ranks of their nodes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use girih_comm::{Collective, Parcel, Payload};
use girih_compute::Backend;
use girih_features::FetchedRows;
use girih_graph_format::NodeId;
use girih_partition::Patches;
use rayon::prelude::*;

use crate::exchange::{exchange, messages};
use crate::graph::check_patches;
use crate::wire::put;
use crate::{CollectiveError, Tally};

/// Smallest number of rows that a thread copies.
const ROWS_AT_ONCE: usize = 256;

/// Rows of `row_bytes` bytes each, one for each node. Every rank holds the rows of its patch: features, or the codes
/// of a codec, which are sent as codes (Cai et al., DSP, PPoPP 2023, section 4, loader).
pub struct RankRows<'r, B: Backend> {
    world: &'r dyn Collective<B>,
    patches: &'r Patches,
    rows: &'r [u8],
    row_bytes: usize,
    tally: Tally,
    spare: SpareReplies,
}

/// Buffers of replies that have been read. Later replies reuse them, because allocating memory takes longer than
/// copying rows.
#[derive(Clone, Debug, Default)]
pub struct SpareReplies(Arc<Mutex<Vec<Vec<u8>>>>);

impl SpareReplies {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Buffer of `n` bytes with unspecified contents.
    fn bytes(&self, n: usize) -> Vec<u8> {
        let mut bytes = self.lock().pop().unwrap_or_default();
        bytes.resize(n, 0);
        bytes
    }
}

impl<'r, B: Backend> RankRows<'r, B> {
    /// Rows of all ranks. `rows` has those of this rank's patch, contiguous in the order of nodes. All ranks call
    /// this together.
    ///
    /// # Errors
    /// When the number of patches is not that of ranks, or the number of rows is not that of this rank's nodes. Also
    /// when ranks have different patches or sizes of rows.
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

    /// As [`new`](Self::new), but without checks or messages, for rows that were checked before. `spare` provides
    /// buffers.
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

    /// Bytes and messages sent by this rank so far, with counts of rows.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Gathers the rows of `nodes` into `out`, which is overwritten. A node that is listed several times is requested
    /// once. All ranks call this together, also with empty lists.
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

    /// As [`gather`](Self::gather), but without a copy of the rows.
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
        // `wanted` is ascending, and so grouped by rank.
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

    /// Rows of some nodes of this rank's patch.
    fn reply(&self, nodes: &[NodeId]) -> Vec<u8> {
        let own = self.patches.range(self.world.rank());
        if nodes.is_empty() {
            // For example the reply to this rank itself. Buffers are reserved for non-empty replies.
            return Vec::new();
        }
        let mut reply = self.spare.bytes(nodes.len() * self.row_bytes);
        copy_rows(&mut reply, self.row_bytes, |at| row_of(self.rows, (nodes[at] - own.start) as usize, self.row_bytes));
        reply
    }
}

/// Rows found by [`RankRows::find`]. Rows of this rank stay in its patch, rows of other ranks in their replies.
pub struct FoundRows<'r> {
    own: &'r [u8],
    /// First node of this rank's patch.
    first: NodeId,
    row_bytes: usize,
    rank: usize,
    /// Requested nodes, each once, ascending.
    wanted: Vec<NodeId>,
    /// Index into `wanted` of each node as listed by the caller.
    places: Vec<u32>,
    /// End of each rank's nodes in `wanted`.
    ends: Vec<usize>,
    received: Vec<Parcel>,
    spare: SpareReplies,
}

impl Drop for FoundRows<'_> {
    /// Keeps the buffers for the replies of the next batch, which are about as many.
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

/// Copies rows of `row_bytes` bytes into `out`, in parallel.
fn copy_rows<'f>(out: &mut [u8], row_bytes: usize, row: impl Fn(usize) -> &'f [u8] + Sync) {
    if row_bytes > 0 {
        let rows = out.par_chunks_exact_mut(row_bytes).enumerate().with_min_len(ROWS_AT_ONCE);
        rows.for_each(|(at, out)| out.copy_from_slice(row(at)));
    }
}

/// Distinct nodes in ascending order, and the index into them of each listed node. A bitmap of `n_nodes` bits marks
/// the listed nodes. The number of set bits before a node's bit is its index.
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
