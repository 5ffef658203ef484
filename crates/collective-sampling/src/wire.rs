//! What messages are made of: 32-bit and 64-bit numbers, little-endian, without gaps.
//!
//! ```text
//! request   seed, epoch, batch, hop, fan-out, flags │ nodes                           nothing where no node is asked for
//! shares    a share for each node of the request
//! weights   f64 for each node
//! reply     edges of each node │ sources │ edge ids, if wanted │ weight of each node, if they differ
//! values    edge ids; then f32 for each
//! ```

use girih_comm::Parcel;
use girih_sampling::{DrawKey, DrawnHop, Draws, Hop, Neighbors, NodeId};

use crate::CollectiveError;

/// Numbers before the nodes of a request: of 32 bits, the seed two of them.
const HEADER: usize = 7;
/// The fan-out −1.
const ALL: u32 = u32::MAX;
const REPLACE: u32 = 1;
const EDGE_IDS: u32 = 2;
const PER_LAYER: u32 = 4;
const LABOR: u32 = 8;

/// Appends numbers to a message.
pub(crate) fn put(message: &mut Vec<u8>, numbers: &[u32]) {
    message.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

/// Reads a message from the front.
pub(crate) struct Reader<'m> {
    rest: &'m [u8],
    rank: usize,
    what: &'static str,
}

impl<'m> Reader<'m> {
    /// Of a message of `rank`, which holds `what`.
    pub(crate) fn new(message: &'m [u8], rank: usize, what: &'static str) -> Self {
        Self { rest: message, rank, what }
    }

    /// The next `n` numbers of `N` bytes.
    pub(crate) fn numbers<const N: usize>(
        &mut self,
        n: usize,
    ) -> Result<impl ExactSizeIterator<Item = [u8; N]> + use<'m, N>, CollectiveError> {
        let bytes = n.checked_mul(N).and_then(|n_bytes| self.rest.split_at_checked(n_bytes));
        let (numbers, rest) = bytes.ok_or_else(|| self.garbled())?;
        self.rest = rest;
        Ok(numbers.as_chunks().0.iter().copied())
    }

    /// The next `n` numbers of 32 bits.
    pub(crate) fn words(&mut self, n: usize) -> Result<Vec<u32>, CollectiveError> {
        Ok(self.numbers(n)?.map(u32::from_le_bytes).collect())
    }

    /// All that is left, as numbers of 32 bits.
    pub(crate) fn rest(&mut self) -> Result<Vec<u32>, CollectiveError> {
        let numbers = self.words(self.rest.len() / 4)?;
        self.end()?;
        Ok(numbers)
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<(), CollectiveError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.garbled()) }
    }

    pub(crate) fn garbled(&self) -> CollectiveError {
        CollectiveError::garbled(self.rank, self.what)
    }
}

/// A number of `N` bytes for each thing that was asked of its owner, in the order of the things; each rank's message
/// holds those of its own.
pub(crate) fn by_owner<const N: usize>(
    received: &[Parcel],
    owners: &[usize],
    what: &'static str,
) -> Result<Vec<[u8; N]>, CollectiveError> {
    let mut n_asked = vec![0; received.len()];
    owners.iter().for_each(|&owner| n_asked[owner] += 1);
    let mut of_rank = Vec::with_capacity(received.len());
    for (rank, (message, n)) in received.iter().zip(n_asked).enumerate() {
        let mut reader = Reader::new(message, rank, what);
        of_rank.push(reader.numbers(n)?);
        reader.end()?;
    }
    Ok(owners.iter().filter_map(|&owner| of_rank[owner].next()).collect())
}

/// A request: what a rank asks of another one's patch.
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
    /// The request for some nodes of a hop.
    pub(crate) fn new(hop: &Hop<'_>, nodes: Vec<NodeId>) -> Self {
        let Hop { neighbors, draws, replace, edge_ids, key, number, .. } = *hop;
        Self { nodes, neighbors, draws, replace, edge_ids, key, number }
    }

    /// The hop that is asked for, of these nodes alone.
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

    /// The request as a message.
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

    /// The request in a message of `rank`; `None` where it asks for nothing.
    pub(crate) fn from_bytes(message: &[u8], rank: usize) -> Result<Option<Self>, CollectiveError> {
        if message.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader::new(message, rank, "a request");
        let header = reader.words(HEADER)?;
        let &[low, high, epoch, batch, number, fan_out, flags] = header.as_slice() else {
            return Err(reader.garbled());
        };
        let neighbors = if fan_out == ALL { Neighbors::All } else { Neighbors::Count(fan_out) };
        let draws = match flags & (PER_LAYER | LABOR) {
            PER_LAYER => Draws::PerLayer,
            LABOR => Draws::Labor,
            _ => Draws::PerNode,
        };
        Ok(Some(Self {
            nodes: reader.rest()?,
            neighbors,
            draws,
            replace: flags & REPLACE > 0,
            edge_ids: flags & EDGE_IDS > 0,
            key: DrawKey::new(u64::from(low) | (u64::from(high) << 32), epoch, batch),
            number,
        }))
    }
}

/// A reply as a message: what some nodes drew.
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

/// What a reply of `rank` says of `n_nodes` nodes of a hop.
pub(crate) fn drawn(
    message: &[u8],
    rank: usize,
    (hop, n_nodes): (&Hop<'_>, usize),
) -> Result<DrawnHop, CollectiveError> {
    let mut reader = Reader::new(message, rank, "a reply");
    let mut indptr = Vec::with_capacity(n_nodes + 1);
    let mut end = 0;
    indptr.push(end);
    for count in reader.numbers(n_nodes)? {
        end += u64::from(u32::from_le_bytes(count));
        indptr.push(end);
    }
    let n_edges = end as usize;
    let sources = reader.words(n_edges)?;
    let edge_ids = reader.numbers(if hop.edge_ids { n_edges } else { 0 })?.map(u64::from_le_bytes).collect();
    let n_weights = if hop.draws == Draws::Labor { n_nodes } else { 0 };
    let node_weights = reader.numbers(n_weights)?.map(f32::from_le_bytes).collect();
    reader.end()?;
    Ok(DrawnHop { indptr, sources, edge_ids, node_weights })
}
