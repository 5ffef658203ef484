//! Message formats: 32-bit and 64-bit numbers, little-endian, without padding.
//!
//! ```text
//! request   seed, epoch, batch, hop, fan-out, flags │ nodes                           empty without nodes
//! shares    a share for each node of the request
//! weights   f64 for each node
//! reply     edges of each node │ sources │ edge ids, if wanted │ weight of each node, if they differ
//! values    edge ids; then f32 for each
//! ```

use std::ops::Range;

use girih_comm::{CommError, Number, Parcel, Payload};
use girih_sampling::{DrawKey, DrawnHop, Draws, Hop, Neighbors, NodeId};

/// Number of u32 values before the nodes of a request; the seed takes two.
const HEADER: usize = 7;
/// Fan-out −1: all neighbors.
const ALL: u32 = u32::MAX;
const REPLACE: u32 = 1;
const EDGE_IDS: u32 = 2;
const PER_LAYER: u32 = 4;
const LABOR: u32 = 8;

/// Appends numbers to a message.
pub(crate) fn put(message: &mut Vec<u8>, numbers: &[u32]) {
    message.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

/// Numbers for items that were requested from their owners, in the order of the items. Item `i` was requested from
/// `owners[i]`, whose message has the numbers of its items in order.
///
/// # Errors
/// When a message does not have exactly one number for each item requested from its rank.
pub(crate) fn by_owner<T: Number>(
    received: &[Parcel],
    owners: &[usize],
    what: &'static str,
) -> Result<Vec<T>, CommError> {
    let mut n_asked = vec![0; received.len()];
    owners.iter().for_each(|&owner| n_asked[owner] += 1);
    let mut of_rank = Vec::with_capacity(received.len());
    for (rank, (message, n)) in received.iter().zip(n_asked).enumerate() {
        of_rank.push(Payload::new(message, rank, what).exactly::<T>(n)?.into_iter());
    }
    Ok(owners.iter().filter_map(|&owner| of_rank[owner].next()).collect())
}

/// Request of a rank for draws from the patch of another.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) nodes: Vec<NodeId>,
    neighbors: Neighbors,
    draws: Draws,
    replace: bool,
    edge_ids: bool,
    key: DrawKey,
    number: u32,
}

impl Request {
    /// Request for some nodes of a hop.
    pub(crate) fn new(hop: &Hop<'_>, nodes: Vec<NodeId>) -> Self {
        let Hop { neighbors, draws, replace, edge_ids, key, number, .. } = *hop;
        Self { nodes, neighbors, draws, replace, edge_ids, key, number }
    }

    /// The requested hop, with the nodes of this request as its frontier.
    pub(crate) fn hop(&self) -> Hop<'_> {
        let Self { nodes, neighbors, draws, replace, edge_ids, key, number } = self;
        Hop {
            frontier: nodes,
            neighbors: *neighbors,
            draws: *draws,
            replace: *replace,
            edge_ids: *edge_ids,
            key: *key,
            number: *number,
        }
    }

    /// Encodes the request; empty without nodes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        if self.nodes.is_empty() {
            return Vec::new();
        }
        let mut message = Vec::with_capacity(4 * (HEADER + self.nodes.len()));
        let fan_out = match self.neighbors {
            Neighbors::Count(count) => count,
            Neighbors::All => ALL,
        };
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(self.replace, REPLACE)
            | flag(self.edge_ids, EDGE_IDS)
            | flag(self.draws == Draws::PerLayer, PER_LAYER)
            | flag(self.draws == Draws::Labor, LABOR);
        let DrawKey { seed, epoch, batch } = self.key;
        put(&mut message, &[seed as u32, (seed >> 32) as u32, epoch, batch, self.number, fan_out, flags]);
        put(&mut message, &self.nodes);
        message
    }

    /// Decodes a request of `rank` for nodes of the patch `own`; `None` for an empty message. All ranks are at the
    /// same `hop`, but perhaps of different batches.
    ///
    /// # Errors
    /// When the message is malformed, names nodes of other patches, or is for another hop.
    pub(crate) fn from_bytes(
        message: &[u8],
        rank: usize,
        own: &Range<NodeId>,
        hop: &Hop<'_>,
    ) -> Result<Option<Self>, CommError> {
        let mut message = Payload::new(message, rank, "a request for draws");
        if message.is_empty() {
            return Ok(None);
        }
        let seed = message.number()?;
        let mut next = || message.number::<u32>();
        let (epoch, batch, number, fan_out, flags) = (next()?, next()?, next()?, next()?, next()?);
        let neighbors = if fan_out == ALL { Neighbors::All } else { Neighbors::Count(fan_out) };
        let draws = match flags & (PER_LAYER | LABOR) {
            PER_LAYER => Draws::PerLayer,
            LABOR => Draws::Labor,
            0 => Draws::PerNode,
            _ => return Err(message.malformed(format!("flags {flags:#x}"))),
        };
        let (replace, edge_ids) = (flags & REPLACE > 0, flags & EDGE_IDS > 0);
        let asked = (neighbors, draws, replace, edge_ids, number);
        if asked != (hop.neighbors, hop.draws, hop.replace, hop.edge_ids, hop.number) {
            return Err(message.malformed(format!("hop {number} with {neighbors} neighbors a node, another than here")));
        }
        Ok(Some(Self {
            nodes: message.ids(own)?,
            neighbors,
            draws,
            replace,
            edge_ids,
            key: DrawKey::new(seed, epoch, batch),
            number,
        }))
    }
}

/// Encodes the draws of some nodes as a reply.
pub(crate) fn reply(drawn: &DrawnHop) -> Vec<u8> {
    let DrawnHop { indptr, sources, edge_ids, node_weights } = drawn;
    let n_bytes = 4 * (indptr.len() - 1 + sources.len() + node_weights.len()) + 8 * edge_ids.len();
    let mut message = Vec::with_capacity(n_bytes);
    message.extend(indptr.windows(2).flat_map(|ends| ((ends[1] - ends[0]) as u32).to_le_bytes()));
    put(&mut message, sources);
    message.extend(edge_ids.iter().flat_map(|id| id.to_le_bytes()));
    message.extend(node_weights.iter().flat_map(|weight| weight.to_le_bytes()));
    message
}

/// Decodes a reply of `rank` with the draws for `n_nodes` nodes of a hop, in a graph of `n_all` nodes and `n_edges`
/// edges.
///
/// # Errors
/// When the message is malformed, or names nodes or edges that do not exist.
pub(crate) fn drawn(
    message: &[u8],
    rank: usize,
    (hop, n_nodes): (&Hop<'_>, usize),
    (n_all, n_edges): (usize, u64),
) -> Result<DrawnHop, CommError> {
    let mut message = Payload::new(message, rank, "a reply of draws");
    let mut ends = Vec::with_capacity(1 + message.remaining().len().min(4 * n_nodes) / 4);
    let mut end = 0;
    ends.push(end);
    for count in message.numbers::<u32>(n_nodes)? {
        end += u64::from(count);
        ends.push(end);
    }
    let n_drawn = usize::try_from(end).map_err(|_| message.malformed(format!("{end} draws")))?;
    let sources: Vec<NodeId> = message.numbers(n_drawn)?.collect();
    if let Some(source) = sources.iter().find(|&&source| source as usize >= n_all) {
        return Err(message.malformed(format!("node {source} where there are {n_all}")));
    }
    let edge_ids: Vec<u64> = message.numbers(if hop.edge_ids { n_drawn } else { 0 })?.collect();
    if let Some(edge) = edge_ids.iter().find(|&&edge| edge >= n_edges) {
        return Err(message.malformed(format!("edge {edge} where there are {n_edges}")));
    }
    let node_weights = message.exactly(if hop.draws == Draws::Labor { n_nodes } else { 0 })?;
    Ok(DrawnHop { indptr: ends, sources, edge_ids, node_weights })
}
