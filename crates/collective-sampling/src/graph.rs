//! [`RankGraph`]: patch of a rank, with access to the patches of other ranks.

use girih_comm::{Collective, CommError, Parcel, Payload};
use girih_compute::Backend;
use girih_graph_format::{Csr, NodeId};
use girih_partition::Patches;
use girih_sampling::{Bias, DrawScratch, DrawnHop, Hop, HopSource, Neighbors, Patch, Topology};

use crate::exchange::{exchange, messages};
use crate::wire::{Request, by_owner, drawn, put, reply};
use crate::{CollectiveError, Tally};

/// Graph of which every rank holds the rows of its patch. As a [`Topology`], it is the whole graph. For each hop, all
/// ranks exchange their frontiers, each rank draws for the nodes of its patch, and the draws are sent back.
///
/// A rank without seeds still samples, to take part in each hop. Ranks may be at different batches, because requests
/// carry the keys. All samplers must have the same hops.
pub struct RankGraph<'r, B: Backend> {
    pub(crate) world: &'r dyn Collective<B>,
    pub(crate) patches: &'r Patches,
    pub(crate) patch: Patch<'r>,
    /// Weights of the patch's edges, if the graph has weights.
    pub(crate) values: Option<&'r [f32]>,
    /// First edge of each rank in the numbering of all edges, followed by the number of edges.
    pub(crate) first_edges: Vec<u64>,
    pub(crate) bias: Option<&'r Bias>,
    scratch: DrawScratch,
    drawn: DrawnHop,
    pub(crate) tally: Tally,
}

impl<'r, B: Backend> RankGraph<'r, B> {
    /// Graph with this rank's patch. `rows` has the rows of the patch, with global columns. `bias` has edge weights
    /// for weighted draws. All ranks call this together.
    ///
    /// # Errors
    /// When the number of patches is not that of ranks, or `rows` are not the rows of this rank's patch. Also when
    /// ranks have different patches, or weights on some ranks only.
    pub fn new(
        world: &'r dyn Collective<B>,
        patches: &'r Patches,
        rows: &'r Csr,
        bias: Option<&'r Bias>,
    ) -> Result<Self, CollectiveError> {
        let (rank, own) = (world.rank(), check_patches(world, patches)?);
        if (rows.n_rows(), rows.n_cols()) != (own.len(), patches.n_nodes()) {
            return Err(CollectiveError::layout(format!(
                "rank {rank} holds {} rows of {} columns, but its patch has {} nodes of {}; give each rank the rows of its patch",
                rows.n_rows(),
                rows.n_cols(),
                own.len(),
                patches.n_nodes()
            )));
        }
        let mine = [rows.nnz() as u64, u64::from(bias.is_some())];
        let all = world.all_gather_bytes(bytemuck::cast_slice(&mine))?;
        let mut first_edges = vec![0];
        for (other, message) in all.iter().enumerate() {
            let message = Payload::new(message, other, "a layout");
            let numbers: Vec<u64> = message.clone().exactly(2)?;
            if numbers[1] != mine[1] {
                return Err(CollectiveError::layout(format!(
                    "edges have weights on one of the ranks {rank} and {other} alone; give weights to all ranks, or to none"
                )));
            }
            let end = numbers[0].checked_add(first_edges[other]).filter(|_| other != rank || numbers[0] == mine[0]);
            first_edges.push(end.ok_or_else(|| message.malformed(format!("{} edges", numbers[0])))?);
        }
        let patch = Patch::new(rows, own.start, first_edges[rank])?;
        let ((scratch, drawn), values) = (Default::default(), rows.values());
        Ok(Self { world, patches, patch, values, first_edges, bias, scratch, drawn, tally: Tally::default() })
    }

    /// Bytes and messages sent by this rank so far, with counts of nodes and rows.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Divides the draws of a hop among its nodes by the weights of their rows, which the owners send. Returns the
    /// numbers of draws for the nodes of each rank's request.
    fn divide(
        &mut self,
        hop: &Hop<'_>,
        owners: &[usize],
        asked: &[Option<Request>],
    ) -> Result<Vec<Option<Vec<u32>>>, CollectiveError> {
        let mut replies = messages(self.world);
        for (message, request) in replies.iter_mut().zip(asked) {
            if let Some(request) = request {
                let weights = self.patch.row_weights(&request.hop(), self.bias)?;
                message.extend(weights.iter().flat_map(|weight| weight.to_le_bytes()));
            }
        }
        let received = exchange(self.world, &mut self.tally.weights, replies)?;
        let weights: Vec<f64> = by_owner(&received, owners, "the weights of rows")?;
        if let Some(at) = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
            let message = Payload::new(&received[owners[at]], owners[at], "the weights of rows");
            return Err(message.malformed(format!("a weight of {}", weights[at])).into());
        }
        let mut sent = messages(self.world);
        for (share, &owner) in hop.shares(&weights).unwrap_or_default().into_iter().zip(owners) {
            put(&mut sent[owner], &[share]);
        }
        let received = exchange(self.world, &mut self.tally.shuffle, sent)?;
        let shares = |(rank, request): (usize, &Option<Request>)| {
            let Some(request) = request else { return Ok(None) };
            let message = Payload::new(&received[rank], rank, "shares of draws");
            let shares: Vec<u32> = message.clone().exactly(request.nodes.len())?;
            let n_draws = shares.iter().map(|&share| u64::from(share)).sum::<u64>();
            match hop.neighbors {
                Neighbors::Count(most) if n_draws > u64::from(most) => {
                    Err(message.malformed(format!("{n_draws} of {most} draws")).into())
                }
                _ => Ok(Some(shares)),
            }
        };
        asked.iter().enumerate().map(shares).collect()
    }

    /// Draws for the requests of all ranks. Returns the replies.
    fn draw(
        &mut self,
        asked: &[Option<Request>],
        shares: &[Option<Vec<u32>>],
    ) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let (mut replies, mut drawn) = (messages(self.world), DrawnHop::default());
        for ((message, request), shares) in replies.iter_mut().zip(asked).zip(shares) {
            if let Some(request) = request {
                drawn.clear();
                self.patch.draw(&request.hop(), shares.as_deref(), self.bias, &mut self.scratch, &mut drawn)?;
                *message = reply(&drawn);
            }
        }
        Ok(replies)
    }

    /// Merges the draws of all ranks in the order of the frontier.
    fn merge(&mut self, owners: &[usize], parts: &[DrawnHop]) {
        self.drawn.clear();
        let DrawnHop { indptr, sources, edge_ids, node_weights } = &mut self.drawn;
        let mut next = vec![0; parts.len()];
        for &owner in owners {
            let (part, at) = (&parts[owner], next[owner]);
            next[owner] += 1;
            let edges = part.indptr[at] as usize..part.indptr[at + 1] as usize;
            sources.extend_from_slice(&part.sources[edges.clone()]);
            if !part.edge_ids.is_empty() {
                edge_ids.extend_from_slice(&part.edge_ids[edges]);
            }
            node_weights.extend(part.node_weights.get(at));
            indptr.push(sources.len() as u64);
        }
    }
}

impl<B: Backend> Topology for RankGraph<'_, B> {
    type Error = CollectiveError;

    fn n_nodes(&self) -> usize {
        self.patches.n_nodes()
    }

    fn hop<'a>(&'a mut self, hop: &Hop<'a>) -> Result<HopSource<'a>, CollectiveError> {
        let owners: Vec<usize> = hop.frontier.iter().map(|&node| self.patches.owner(node)).collect();
        let mut of_owner: Vec<Vec<NodeId>> = vec![Vec::new(); self.world.size()];
        hop.frontier.iter().zip(&owners).for_each(|(&node, &owner)| of_owner[owner].push(node));
        self.tally.frontier_nodes += owners.len() as u64;
        self.tally.own_frontier_nodes += of_owner[self.world.rank()].len() as u64;
        let n_asked: Vec<usize> = of_owner.iter().map(Vec::len).collect();

        let requests = of_owner.into_iter().map(|nodes| Request::new(hop, nodes).to_bytes()).collect();
        let received = exchange(self.world, &mut self.tally.shuffle, requests)?;
        let own = self.patches.range(self.world.rank());
        let request = |(rank, message): (usize, &Parcel)| Request::from_bytes(message, rank, &own, hop);
        let asked: Vec<Option<Request>> = received.iter().enumerate().map(request).collect::<Result<_, _>>()?;
        let shares = if hop.has_shares() { self.divide(hop, &owners, &asked)? } else { vec![None; self.world.size()] };

        let replies = self.draw(&asked, &shares)?;
        let received = exchange(self.world, &mut self.tally.reshuffle, replies)?;
        let bounds = (self.patches.n_nodes(), self.first_edges[self.world.size()]);
        let part = |(rank, message): (usize, &Parcel)| drawn(message, rank, (hop, n_asked[rank]), bounds);
        let parts: Vec<DrawnHop> = received.iter().enumerate().map(part).collect::<Result<_, CommError>>()?;
        self.merge(&owners, &parts);
        Ok(HopSource::Drawn(&self.drawn))
    }
}

/// Checks that there is one patch for each rank, and that all ranks have the same patches. Returns the nodes of this
/// rank.
pub(crate) fn check_patches<B: Backend>(
    world: &dyn Collective<B>,
    patches: &Patches,
) -> Result<std::ops::Range<NodeId>, CollectiveError> {
    let (rank, size) = (world.rank(), world.size());
    if patches.len() != size {
        return Err(CollectiveError::layout(format!(
            "{} patches for {size} ranks; give each rank one, as Patches::of_ranks deals them",
            patches.len()
        )));
    }
    let ends: Vec<NodeId> = (0..size).map(|patch| patches.range(patch).end).collect();
    let all = world.all_gather_bytes(bytemuck::cast_slice(&ends))?;
    match all.iter().position(|theirs| *theirs != all[rank]) {
        None => Ok(patches.range(rank)),
        Some(other) => Err(CollectiveError::layout(format!(
            "ranks {rank} and {other} have the graph cut in different places; give all ranks the same patches"
        ))),
    }
}
