//! [`Placement`]: the tier, GPU and slot of each node's data.

mod shares;

use std::ops::Range;

use girih_graph_format::NodeId;
use girih_partition::Patches;

pub use self::shares::CacheShares;

/// Tier of memory, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Memory of every GPU: the rows are replicated.
    EveryGpu,
    /// Memory of one GPU, from which the others read: the rows are sharded.
    OneGpu,
    /// Host memory.
    Host,
    /// Memory-mapped file.
    Disk,
}

impl Tier {
    /// Name in output for people and programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EveryGpu => "every-gpu",
            Self::OneGpu => "one-gpu",
            Self::Host => "host",
            Self::Disk => "disk",
        }
    }
}

/// Holder of a span of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Every GPU.
    EveryGpu,
    /// One GPU, by its index.
    Gpu(u32),
    /// GPUs in round-robin order: the first node is on GPU 0, the next one on GPU 1.
    Gpus,
    /// Host memory.
    Host,
    /// File with one row per node, by node id.
    Disk,
}

impl Holder {
    /// Tier of the holder.
    #[must_use]
    pub fn tier(self) -> Tier {
        match self {
            Self::EveryGpu => Tier::EveryGpu,
            Self::Gpu(_) | Self::Gpus => Tier::OneGpu,
            Self::Host => Tier::Host,
            Self::Disk => Tier::Disk,
        }
    }
}

/// Nodes at consecutive [positions](Placement::position) that have one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Positions of the nodes.
    pub positions: Range<u32>,
    /// Holder of the nodes.
    pub holder: Holder,
    /// Slot of the first node.
    pub first_slot: u32,
}

/// Location of a node's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Tier of the data.
    pub tier: Tier,
    /// Index of the GPU, if a single GPU holds the data.
    pub gpu: Option<u32>,
    /// Row index in that memory. Slots count from 0, hottest first, on each GPU and in host memory; a GPU's
    /// replicated rows precede its own. On disk the slot is the node id.
    pub slot: u32,
}

/// Location of each node's data: a position per node, and a few spans of positions, from which devices build address
/// lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Position of each node; empty if positions are node ids.
    position: Vec<u32>,
    /// Node at each position; empty if positions are node ids.
    order: Vec<NodeId>,
    spans: Vec<Span>,
    n_nodes: usize,
    n_gpus: u32,
}

impl Placement {
    /// Consecutive spans of `order`, from each holder's number of nodes. A single span needs no order: its nodes are
    /// in the order of their ids.
    fn new(order: Vec<NodeId>, holders: impl IntoIterator<Item = (Holder, usize)>, n_gpus: usize) -> Self {
        let n_nodes = order.len();
        let (mut start, mut on_gpus, mut on_host) = (0, vec![0; n_gpus], 0);
        let mut spans = Vec::new();
        for (holder, len) in holders.into_iter().filter(|&(_, len)| len > 0) {
            let len = len as u32;
            let first_slot = match holder {
                Holder::EveryGpu | Holder::Gpus => on_gpus[0],
                Holder::Gpu(gpu) => on_gpus[gpu as usize],
                Holder::Host => on_host,
                Holder::Disk => 0,
            };
            match holder {
                Holder::EveryGpu => on_gpus.iter_mut().for_each(|slots| *slots += len),
                Holder::Gpus => on_gpus.iter_mut().for_each(|slots| *slots += len.div_ceil(n_gpus as u32)),
                Holder::Gpu(gpu) => on_gpus[gpu as usize] += len,
                Holder::Host => on_host += len,
                Holder::Disk => {}
            }
            spans.push(Span { positions: start..start + len, holder, first_slot });
            start += len;
        }
        assert_eq!(start as usize, n_nodes, "spans have every node");
        Self { position: Vec::new(), order, spans, n_nodes, n_gpus: n_gpus as u32 }.numbered()
    }

    /// Fills in positions; drops the order if it is that of node ids.
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

    /// Placement of feature rows: the first `on_every_gpu` nodes of `order` on every GPU, the next `on_one_gpu` on
    /// one GPU each, round-robin, the next `on_host` in host memory, and the others on disk.
    ///
    /// # Panics
    /// When the numbers exceed the number of nodes, or there are no GPUs.
    #[must_use]
    pub fn of_features(
        order: &[NodeId],
        (on_every_gpu, on_one_gpu, on_host): (usize, usize, usize),
        n_gpus: usize,
    ) -> Self {
        let on_disk = order.len() - on_every_gpu - on_one_gpu - on_host;
        let holders = [
            (Holder::EveryGpu, on_every_gpu),
            (Holder::Gpus, on_one_gpu),
            (Holder::Host, on_host),
            (Holder::Disk, on_disk),
        ];
        let is_single = holders.iter().filter(|(_, len)| *len > 0).count() == 1;
        let order = if is_single { (0..order.len() as NodeId).collect() } else { order.to_vec() };
        Self::new(order, holders, n_gpus)
    }

    /// Placement of any rows: the shares of `order` on GPUs, the others in host memory.
    ///
    /// # Panics
    /// When there are no GPUs.
    #[must_use]
    pub fn of_shares(order: &[NodeId], shares: CacheShares, n_gpus: usize) -> Self {
        let (on_every_gpu, on_one_gpu) = shares.of_nodes(order.len());
        Self::of_features(order, (on_every_gpu, on_one_gpu, order.len() - on_every_gpu - on_one_gpu), n_gpus)
    }

    /// Placement of adjacency rows: the first `n_hot` nodes of `order` on every GPU, the others in host memory.
    ///
    /// # Panics
    /// When `n_hot` exceeds the number of nodes, or there are no GPUs.
    #[must_use]
    pub fn of_rows(order: &[NodeId], n_hot: usize, n_gpus: usize) -> Self {
        Self::of_features(order, (n_hot, 0, order.len() - n_hot), n_gpus)
    }

    /// Placement of adjacency rows in patches: the first `n_hot[p]` nodes of patch `p` in `order` on GPU `p`, the
    /// others in host memory.
    ///
    /// # Panics
    /// When a number exceeds the size of its patch, or there is not one number per patch.
    #[must_use]
    pub fn of_patches(order: &[NodeId], patches: &Patches, n_hot: &[usize]) -> Self {
        assert_eq!(n_hot.len(), patches.len(), "a number for each patch");
        let sizes: Vec<usize> = (0..patches.len()).map(|patch| patches.range(patch).len()).collect();
        let is_whole = n_hot == sizes;
        let of_patch = if is_whole { (0..order.len() as NodeId).collect() } else { by_patch(order, patches) };
        let holders = (0..patches.len())
            .flat_map(|patch| [(Holder::Gpu(patch as u32), n_hot[patch]), (Holder::Host, sizes[patch] - n_hot[patch])]);
        Self::new(of_patch, holders, patches.len())
    }

    /// Location of a node's data.
    ///
    /// # Panics
    /// When `node` is out of range.
    #[must_use]
    pub fn place(&self, node: NodeId) -> Place {
        let position = self.position(node);
        let span = &self.spans[self.spans.partition_point(|span| span.positions.end <= position)];
        let at = position - span.positions.start;
        let (gpu, slot) = match span.holder {
            Holder::EveryGpu | Holder::Host => (None, span.first_slot + at),
            Holder::Gpu(gpu) => (Some(gpu), span.first_slot + at),
            Holder::Gpus => (Some(at % self.n_gpus), span.first_slot + at / self.n_gpus),
            Holder::Disk => (None, node),
        };
        Place { tier: span.holder.tier(), gpu, slot }
    }

    /// Position of a node among all nodes.
    ///
    /// # Panics
    /// When `node` is out of range.
    #[must_use]
    pub fn position(&self, node: NodeId) -> u32 {
        assert!((node as usize) < self.n_nodes, "there is no node {node}");
        self.position.get(node as usize).copied().unwrap_or(node)
    }

    /// Node at a position.
    ///
    /// # Panics
    /// When `position` is out of range.
    #[must_use]
    pub fn node(&self, position: u32) -> NodeId {
        assert!((position as usize) < self.n_nodes, "there is no position {position}");
        self.order.get(position as usize).copied().unwrap_or(position)
    }

    /// Number of GPUs of the placement.
    #[must_use]
    pub fn n_gpus(&self) -> usize {
        self.n_gpus as usize
    }

    /// Whether no node's data are on a GPU.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.spans.iter().all(|span| matches!(span.holder, Holder::Host | Holder::Disk))
    }

    /// Spans of positions with their holders, in ascending order.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Share of `weights` in each span; with counts of reads as weights, its hit rate. If all weights are 0, its
    /// share of the nodes.
    ///
    /// # Panics
    /// When a node has no weight.
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

/// Nodes patch by patch; within a patch in the order of `order`.
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
