//! [`Batch`]: the triples of a step on the device.

use std::ops::Range;
use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Dtype};
use girih_graph_format::NodeId;
use girih_partition::part;
use rayon::prelude::*;

use crate::layers::Inputs;
use crate::models::Model;
use crate::tape::ranks::{HaloExchange, Ranks};
use crate::tape::{Loss, ParamId, Tape};

/// Triples of a step. With several ranks, each computes the loss of an equal share of them, and fetches the rows of
/// their users and items. The penalty is on the embeddings of a batch, and each rank adds that of its own rows.
pub(crate) struct Batch<B: Backend> {
    n_triples: usize,
    /// Nodes of all triples among the rank's own nodes, counted from the first of these.
    here: B::Ids,
    n_here: usize,
    /// `None` where one rank has all nodes.
    share: Option<Share<B>>,
}

/// Triples of a rank.
struct Share<B: Backend> {
    rows: HaloExchange<B>,
    /// Positions of the triples' nodes among the fetched rows.
    places: B::Ids,
    n_places: usize,
}

impl<B: Backend> Batch<B> {
    /// All triples, where one rank has all nodes. `nodes` are `n_nodes` ids: users, their items, and other items.
    pub(crate) fn whole(nodes: B::Ids, n_nodes: usize) -> Self {
        Self { n_triples: n_nodes / 3, here: nodes, n_here: n_nodes, share: None }
    }

    /// Batch of these nodes, which every rank has drawn.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn new(backend: &B, nodes: &[NodeId], ranks: Option<&Arc<Ranks<B>>>) -> Result<Self, ComputeError> {
        let Some(ranks) = ranks else { return Ok(Self::whole(backend.upload_ids(nodes)?, nodes.len())) };
        let own = ranks.own();
        let here = nodes.iter().filter(|&&v| own.contains(&(v as usize))).map(|v| v - own.start as NodeId);
        let here: Vec<NodeId> = here.collect();
        Ok(Self {
            n_triples: nodes.len() / 3,
            here: backend.upload_ids(&here)?,
            n_here: here.len(),
            share: Some(Share::new(backend, nodes, ranks)?),
        })
    }

    /// Loss of the triples, with a penalty on their own embeddings.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn loss<'a>(
        &'a self,
        tape: &mut Tape<'a, B>,
        model: &dyn Model<B>,
        inputs: &'a Inputs<B>,
        embedding: ParamId,
        decay: f32,
    ) -> Result<Loss<B>, ComputeError> {
        // Recorded first, so that the backward pass adds its few rows to the gradient of all rows.
        let own = tape.param(embedding);
        let penalized = tape.gather_rows(own, &self.here, self.n_here)?;
        let embeddings = model.forward(tape, inputs)?;
        let triples = match &self.share {
            None => tape.gather_rows(embeddings, &self.here, self.n_here)?,
            Some(share) => {
                let rows = tape.fetch(&share.rows, embeddings, Dtype::F32)?;
                tape.gather_rows(rows, &share.places, share.n_places)?
            }
        };
        tape.ranking_loss((triples, self.n_triples), penalized, decay)
    }
}

impl<B: Backend> Share<B> {
    /// Share of this rank. Peers exchange no requests, since all have drawn the same triples.
    fn new(backend: &B, nodes: &[NodeId], ranks: &Arc<Ranks<B>>) -> Result<Self, ComputeError> {
        let (n_peers, place) = ranks.peers();
        let wanted = |peer, range: &Range<usize>| {
            let in_range = |v: &NodeId| range.contains(&(*v as usize));
            let mut wanted: Vec<NodeId> = nodes_of_share(nodes, peer, n_peers).filter(in_range).collect();
            wanted.sort_unstable();
            wanted.dedup();
            wanted
        };
        let (rows, fetched) = HaloExchange::wanted(backend, ranks, wanted)?;
        let mine: Vec<NodeId> = nodes_of_share(nodes, place, n_peers).collect();
        let place_of = |v: &NodeId| fetched.binary_search(v).expect("nodes of the share are fetched") as NodeId;
        let places: Vec<NodeId> = mine.par_iter().map(place_of).collect();
        Ok(Self { rows, places: backend.upload_ids(&places)?, n_places: places.len() })
    }
}

/// Users, their items and other items of the triples in a peer's share.
pub fn nodes_of_share(nodes: &[NodeId], peer: usize, n_peers: usize) -> impl Iterator<Item = NodeId> {
    let n_triples = nodes.len() / 3;
    nodes.chunks_exact(n_triples).flat_map(move |role| &role[part(&(0..n_triples), peer, n_peers)]).copied()
}
