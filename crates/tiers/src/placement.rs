//! [`Placement`]: where each node's data lie.

use std::ops::Range;

use girih_graph_format::NodeId;

use girih_partition::Patches;

use crate::CacheShares;

/// A kind of memory, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The memory of every card: all of them have it.
    EveryCard,
    /// The memory of one card, from which the others read.
    OneCard,
    /// Host memory.
    Host,
    /// A mapped file.
    Disk,
}

impl Tier {
    /// As people and programs read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EveryCard => "every-card",
            Self::OneCard => "one-card",
            Self::Host => "host",
            Self::Disk => "disk",
        }
    }
}

/// Who holds a span of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Every card.
    EveryCard,
    /// One card.
    Card(u32),
    /// Cards in turn: the first node lies on card 0, the next one on card 1.
    Cards,
    /// Host memory.
    Host,
    /// A file with a row for each node, in the order of ids.
    Disk,
}

impl Holder {
    /// The kind of memory.
    #[must_use]
    pub fn tier(self) -> Tier {
        match self {
            Self::EveryCard => Tier::EveryCard,
            Self::Card(_) | Self::Cards => Tier::OneCard,
            Self::Host => Tier::Host,
            Self::Disk => Tier::Disk,
        }
    }
}

/// Nodes at successive [positions](Placement::position) that one holder has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Their positions.
    pub positions: Range<u32>,
    /// Who has them.
    pub holder: Holder,
    /// The slot of the first one.
    pub first_slot: u32,
}

/// Where a node's data lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The kind of memory.
    pub tier: Tier,
    /// The card, where it is one card's.
    pub card: Option<u32>,
    /// Which row of that memory: slots of a card, of every card (before its own) and of host memory are filled from 0
    /// on, hottest first; on disk it is the node.
    pub slot: u32,
}

/// Where each node's data lie: a position for each node, and a few spans of positions, of which devices make a list of
/// addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The position of each node; empty where it is its id.
    position: Vec<u32>,
    /// The node at each position; empty where it is the position.
    order: Vec<NodeId>,
    spans: Vec<Span>,
    n_nodes: usize,
    n_cards: u32,
}

impl Placement {
    /// Spans that follow each other, of nodes in an order. A single span needs no order: its nodes are in that of their
    /// ids.
    fn new(order: Vec<NodeId>, holders: impl IntoIterator<Item = (Holder, usize)>, n_cards: usize) -> Self {
        let n_nodes = order.len();
        let (mut start, mut on_cards, mut on_host) = (0, vec![0; n_cards], 0);
        let mut spans = Vec::new();
        for (holder, len) in holders.into_iter().filter(|&(_, len)| len > 0) {
            let len = len as u32;
            let first_slot = match holder {
                Holder::EveryCard | Holder::Cards => on_cards[0],
                Holder::Card(card) => on_cards[card as usize],
                Holder::Host => on_host,
                Holder::Disk => 0,
            };
            match holder {
                Holder::EveryCard => on_cards.iter_mut().for_each(|slots| *slots += len),
                Holder::Cards => on_cards.iter_mut().for_each(|slots| *slots += len.div_ceil(n_cards as u32)),
                Holder::Card(card) => on_cards[card as usize] += len,
                Holder::Host => on_host += len,
                Holder::Disk => {}
            }
            spans.push(Span { positions: start..start + len, holder, first_slot });
            start += len;
        }
        assert_eq!(start as usize, n_nodes, "spans have every node");
        Self { position: Vec::new(), order, spans, n_nodes, n_cards: n_cards as u32 }.numbered()
    }

    /// The same with positions, or without an order where ids are one.
    fn numbered(mut self) -> Self {
        if self.order.iter().enumerate().all(|(at, &node)| at == node as usize) {
            self.order = Vec::new();
            return self;
        }
        self.position = vec![0; self.n_nodes];
        for (at, &node) in self.order.iter().enumerate() {
            self.position[node as usize] = at as u32;
        }
        self
    }

    /// Features: the first so many of `order` on every card, the next ones on one card each, in turn, then in host
    /// memory, the others on disk.
    ///
    /// # Panics
    /// When these are more than there are nodes, or there are no cards.
    #[must_use]
    pub fn of_features(
        order: &[NodeId],
        (on_every_card, on_one_card, on_host): (usize, usize, usize),
        n_cards: usize,
    ) -> Self {
        let on_disk = order.len() - on_every_card - on_one_card - on_host;
        let holders = [
            (Holder::EveryCard, on_every_card),
            (Holder::Cards, on_one_card),
            (Holder::Host, on_host),
            (Holder::Disk, on_disk),
        ];
        let is_single = holders.iter().filter(|(_, len)| *len > 0).count() == 1;
        let order = if is_single { (0..order.len() as NodeId).collect() } else { order.to_vec() };
        Self::new(order, holders, n_cards)
    }

    /// Rows of anything: the shares of `order` on cards, the others in host memory.
    ///
    /// # Panics
    /// When there are no cards.
    #[must_use]
    pub fn of_shares(order: &[NodeId], shares: CacheShares, n_cards: usize) -> Self {
        let (on_every_card, on_one_card) = shares.of_nodes(order.len());
        Self::of_features(order, (on_every_card, on_one_card, order.len() - on_every_card - on_one_card), n_cards)
    }

    /// Rows of the adjacency: the first `n_hot` of `order` on every card, the others in host memory.
    ///
    /// # Panics
    /// When these are more than there are nodes, or there are no cards.
    #[must_use]
    pub fn of_rows(order: &[NodeId], n_hot: usize, n_cards: usize) -> Self {
        Self::of_features(order, (n_hot, 0, order.len() - n_hot), n_cards)
    }

    /// Rows of the adjacency in patches: the first `n_hot[p]` that `order` has of patch `p` on card `p`, the others in
    /// host memory.
    ///
    /// # Panics
    /// When these are more than a patch has, or not as many as there are patches.
    #[must_use]
    pub fn of_patches(order: &[NodeId], patches: &Patches, n_hot: &[usize]) -> Self {
        assert_eq!(n_hot.len(), patches.len(), "a number for each patch");
        let sizes: Vec<usize> = (0..patches.len()).map(|patch| patches.range(patch).len()).collect();
        let is_whole = n_hot == sizes;
        let of_patch = if is_whole { (0..order.len() as NodeId).collect() } else { by_patch(order, patches) };
        let holders = (0..patches.len()).flat_map(|patch| {
            [(Holder::Card(patch as u32), n_hot[patch]), (Holder::Host, sizes[patch] - n_hot[patch])]
        });
        Self::new(of_patch, holders, patches.len())
    }

    /// Where a node's data lie.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn place(&self, node: NodeId) -> Place {
        let position = self.position(node);
        let span = &self.spans[self.spans.partition_point(|span| span.positions.end <= position)];
        let at = position - span.positions.start;
        let (card, slot) = match span.holder {
            Holder::EveryCard | Holder::Host => (None, span.first_slot + at),
            Holder::Card(card) => (Some(card), span.first_slot + at),
            Holder::Cards => (Some(at % self.n_cards), span.first_slot + at / self.n_cards),
            Holder::Disk => (None, node),
        };
        Place { tier: span.holder.tier(), card, slot }
    }

    /// The position of a node among all.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn position(&self, node: NodeId) -> u32 {
        assert!((node as usize) < self.n_nodes, "there is no node {node}");
        self.position.get(node as usize).copied().unwrap_or(node)
    }

    /// The node at a position.
    ///
    /// # Panics
    /// When there is no such position.
    #[must_use]
    pub fn node(&self, position: u32) -> NodeId {
        assert!((position as usize) < self.n_nodes, "there is no position {position}");
        self.order.get(position as usize).copied().unwrap_or(position)
    }

    /// How many cards it is for.
    #[must_use]
    pub fn n_cards(&self) -> usize {
        self.n_cards as usize
    }

    /// Whether no node is on a card.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.spans.iter().all(|span| matches!(span.holder, Holder::Host | Holder::Disk))
    }

    /// Who holds which positions.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The share of `weights` in each span: of reads, the hit rate. Without any weight, the share of nodes.
    ///
    /// # Panics
    /// When there is not a weight for each node.
    #[must_use]
    pub fn shares(&self, weights: impl Fn(NodeId) -> f64) -> Vec<f64> {
        let of_span = |span: &Span| span.positions.clone().map(|position| weights(self.node(position))).sum::<f64>();
        let sums: Vec<f64> = self.spans.iter().map(of_span).collect();
        let total: f64 = sums.iter().sum();
        if total > 0.0 {
            return sums.into_iter().map(|sum| sum / total).collect();
        }
        self.spans.iter().map(|span| span.positions.len() as f64 / self.n_nodes as f64).collect()
    }
}

/// The nodes patch after patch, those of a patch as `order` has them.
fn by_patch(order: &[NodeId], patches: &Patches) -> Vec<NodeId> {
    let mut next: Vec<usize> = (0..patches.len()).map(|patch| patches.range(patch).start as usize).collect();
    let mut placed = vec![0; order.len()];
    for &node in order {
        let next = &mut next[patches.owner(node)];
        placed[*next] = node;
        *next += 1;
    }
    placed
}
