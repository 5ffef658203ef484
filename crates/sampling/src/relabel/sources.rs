//! [`SourceMap`]: the second bitmap and the hash map of [`ToBlockFast`](super::ToBlockFast) and
//! [`Fused`](super::Fused).

use hashbrown::HashTable;

use super::hash::hash_of;
use super::rank::{Bitmap, push_bits};
use crate::NodeId;

/// Number of sources that are looked up together.
const PIECE: usize = 256;

/// Nodes found so far in a batch. A bit tells whether a node is one of them. The map gives the number under which it
/// was found, which is its local id or the index of it in `places`. Both persist from hop to hop.
#[derive(Default)]
pub(super) struct SourceMap {
    seen: Bitmap,
    /// Nodes and their numbers, counted from 0 in the order in which they were found.
    numbers: HashTable<(NodeId, NodeId)>,
    /// Local id of each number, used where nodes ascend; with it the map is written only once per node.
    places: Vec<NodeId>,
    /// New nodes of a hop, in the order in which they were found.
    found: Vec<NodeId>,
    /// Local id of the first new node of each bitmap word.
    firsts: Vec<NodeId>,
}

impl SourceMap {
    /// Begins a batch with `seeds` of a graph of `n_nodes`, each listed once.
    pub(super) fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]) {
        self.seen.begin(n_nodes);
        self.seen.mark(seeds);
        self.numbers.clear();
        self.places.clear();
        for (&seed, number) in seeds.iter().zip(0..) {
            self.add(seed, number);
            self.places.push(number);
        }
    }

    /// Appends the number of each source to `columns`. A new source gets the next number and is appended to `nodes`.
    ///
    /// A branch on whether a source is new is unpredictable. So sources are first divided into new and old ones
    /// without a branch. Then the new ones are inserted without a search, and last the old ones are looked up.
    #[inline(always)]
    pub(super) fn insert(&mut self, sources: &[NodeId], nodes: &mut Vec<NodeId>, columns: &mut Vec<NodeId>) {
        let (mut new, mut old) = ([0; PIECE], [0; PIECE]);
        for sources in sources.chunks(PIECE) {
            let (mut n_new, mut n_old) = (0, 0);
            for (at, &source) in (0..).zip(sources) {
                let is_new = self.seen.insert(source);
                (new[n_new], old[n_old]) = (at, at);
                n_new += usize::from(is_new);
                n_old += usize::from(!is_new);
            }
            let first = columns.len();
            columns.resize(first + sources.len(), 0);
            let columns = &mut columns[first..];
            for &at in &new[..n_new] {
                let (source, number) = (sources[at as usize], nodes.len() as NodeId);
                self.add(source, number);
                nodes.push(source);
                columns[at as usize] = number;
            }
            for &at in &old[..n_old] {
                columns[at as usize] = self.number(sources[at as usize]);
            }
        }
    }

    /// Ends a hop: sorts its new nodes, `nodes[n_old..]`, into ascending order, and turns the numbers in `columns`
    /// into local ids. `old` holds the nodes found before the hop. A bit that is set here and not there is a new
    /// node, and bits are in ascending order.
    pub(super) fn ascend(&mut self, old: &Bitmap, nodes: &mut Vec<NodeId>, n_old: usize, columns: &mut [NodeId]) {
        let Self { seen, places, found, firsts, .. } = self;
        let new = |word| seen.word(word) & !old.word(word);
        found.clear();
        found.extend(nodes.drain(n_old..));
        firsts.resize(seen.n_words(), 0);
        for word in seen.touched_words() {
            firsts[word] = nodes.len() as NodeId;
            push_bits(word, new(word), nodes);
        }
        places.extend(found.iter().map(|&node| {
            let (word, below) = Bitmap::word_and_bits_below(node);
            firsts[word] + (new(word) & below).count_ones()
        }));
        columns.iter_mut().for_each(|column| *column = places[*column as usize]);
    }

    /// Adds a node that is not in the map.
    #[inline(always)]
    fn add(&mut self, node: NodeId, number: NodeId) {
        self.numbers.insert_unique(hash_of(node), (node, number), |&(node, _)| hash_of(node));
    }

    /// Number of a node that is in the map.
    #[inline(always)]
    fn number(&self, node: NodeId) -> NodeId {
        self.numbers.find(hash_of(node), |&(other, _)| other == node).expect("a node that was seen has a number").1
    }
}
