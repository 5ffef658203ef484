//! [`RankRows`]: rows of features where they lie.

use girih_comm::Collective;
use girih_compute::Backend;
use girih_graph_format::NodeId;
use girih_partition::Patches;

use crate::exchange::{exchange, messages};
use crate::graph::check_patches;
use crate::wire::{Reader, put};
use crate::{CollectiveError, Tally};

/// Rows of a fixed number of bytes, one for each node, of which every rank holds those of its patch: features, or the codes of
/// a codec, which travel as they are (Cai et al., DSP, PPoPP 2023, section 4, loader).
pub struct RankRows<'r, B: Backend> {
    world: &'r dyn Collective<B>,
    patches: &'r Patches,
    rows: &'r [u8],
    row_bytes: usize,
    tally: Tally,
}

impl<'r, B: Backend> RankRows<'r, B> {
    /// The rows of this rank's patch, one behind the other. All ranks call it together.
    ///
    /// # Errors
    /// When there is not a patch for each rank or not a row for each of its nodes, or ranks disagree on patches or on the bytes
    /// of a row.
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
        Ok(Self::again(world, patches, rows, row_bytes))
    }

    /// The same without a look at them: of what ranks made [such rows](Self::new) of before.
    #[must_use]
    pub fn again(world: &'r dyn Collective<B>, patches: &'r Patches, rows: &'r [u8], row_bytes: usize) -> Self {
        Self { world, patches, rows, row_bytes, tally: Tally::default() }
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

    /// The rows of some nodes, one behind the other in `out`, whose content is lost. A node that is listed several times is
    /// asked for once. All ranks call it together, some perhaps for no nodes.
    ///
    /// # Errors
    /// When a node does not exist, or a rank fails.
    pub fn gather(&mut self, nodes: &[NodeId], out: &mut Vec<u8>) -> Result<(), CollectiveError> {
        let mut wanted = nodes.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        if let Some(&node) = wanted.last().filter(|&&node| node as usize >= self.patches.n_nodes()) {
            let n_nodes = self.patches.n_nodes();
            return Err(CollectiveError::layout(format!(
                "there is no row of node {node} among those of {n_nodes} nodes"
            )));
        }
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
        let mut replies = messages(self.world);
        for (asker, message) in asked.iter().enumerate() {
            let nodes = Reader::new(message, asker, "a request for rows").rest()?;
            for node in nodes {
                replies[asker].extend_from_slice(self.own_row(node, asker)?);
            }
        }
        let received = exchange(self.world, &mut self.tally.rows, replies)?;
        for (owner, rows) in received.iter().enumerate().filter(|(owner, _)| *owner != rank) {
            if rows.len() != of_rank(owner).len() * self.row_bytes {
                return Err(CollectiveError::garbled(owner, "rows"));
            }
        }
        out.clear();
        out.reserve(nodes.len() * self.row_bytes);
        for &node in nodes {
            let owner = self.patches.owner(node);
            if owner == rank {
                out.extend_from_slice(self.own_row(node, rank)?);
                continue;
            }
            let place = wanted[of_rank(owner)].partition_point(|&other| other < node) * self.row_bytes;
            out.extend_from_slice(&received[owner][place..place + self.row_bytes]);
        }
        Ok(())
    }

    /// A row of this rank, which `asker` wants.
    fn own_row(&self, node: NodeId, asker: usize) -> Result<&'r [u8], CollectiveError> {
        let own = self.patches.range(self.world.rank());
        if !own.contains(&node) {
            return Err(CollectiveError::layout(format!(
                "rank {asker} asks for the row of node {node}, but this rank holds those of {} to {}",
                own.start, own.end
            )));
        }
        let first = (node - own.start) as usize * self.row_bytes;
        Ok(&self.rows[first..first + self.row_bytes])
    }
}
