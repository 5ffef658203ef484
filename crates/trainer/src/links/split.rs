//! [`LinkSplit`]: which links train, validate and test.

use girih_graph_format::{Csr, NodeId};
use girih_random::{Key, purpose, unit_f64};
use rayon::prelude::*;

use super::LinkConfig;

/// Two different nodes that an edge joins; of the links of a graph, the smaller id comes first.
pub type Link = [NodeId; 2];

/// The children of the purpose of link prediction, below which each kind of draws has its own.
pub(super) enum Draws {
    /// Which part a link belongs to.
    Parts = 0,
    /// Pairs that held-out links are held against.
    HeldOut = 1,
    /// Pairs that training links are held against.
    Training = 2,
    /// The order of training links in an epoch.
    Orders = 3,
}

impl Draws {
    pub(super) fn key(self, seed: u64) -> Key {
        Key::new(seed, purpose::LINKS).child(self as u64)
    }
}

/// Where a link belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPart {
    /// It carries messages, and the loss sees it.
    Train,
    /// It helps to choose the epoch.
    Val,
    /// It is reported.
    Test,
}

/// Deals links to train, validation and test, each on its own and by its ends alone: both directions of an edge stay
/// together, wherever it is stored.
#[derive(Clone, Copy, Debug)]
pub struct LinkSplit {
    key: Key,
    val: f64,
    test: f64,
}

/// The links of a graph in their parts, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Those that messages travel over and the loss sees.
    pub train: Vec<Link>,
    /// Those that choose the epoch.
    pub val: Vec<Link>,
    /// Those that are reported.
    pub test: Vec<Link>,
}

impl Links {
    /// How many there are in all parts.
    #[must_use]
    pub fn n_all(&self) -> usize {
        self.train.len() + self.val.len() + self.test.len()
    }
}

impl LinkSplit {
    /// The split of a seed; all runs of a session share it.
    #[must_use]
    pub fn new(config: &LinkConfig, seed: u64) -> Self {
        Self { key: Draws::Parts.key(seed), val: config.val, test: config.test }
    }

    /// The part of the link between two nodes, in either order.
    #[must_use]
    pub fn part(&self, [u, v]: Link) -> LinkPart {
        let words = self.key.block(u64::from(u.min(v)), u64::from(u.max(v)));
        let draw = unit_f64(u64::from(words[0]) << 32 | u64::from(words[1]));
        if draw < self.val {
            LinkPart::Val
        } else if draw < self.val + self.test {
            LinkPart::Test
        } else {
            LinkPart::Train
        }
    }

    /// The links of a graph in their parts.
    #[must_use]
    pub fn deal(&self, graph: &Csr) -> Links {
        let mut links = Links::default();
        for link in links_of(graph) {
            let part = match self.part(link) {
                LinkPart::Train => &mut links.train,
                LinkPart::Val => &mut links.val,
                LinkPart::Test => &mut links.test,
            };
            part.push(link);
        }
        links
    }

    /// The graph without the edges of held-out links: what messages travel over. Edges of a node to itself are no
    /// links, and stay.
    #[must_use]
    pub fn messages(&self, graph: &Csr) -> Csr {
        graph.filtered(|v, u| v == u as usize || self.part([v as NodeId, u]) == LinkPart::Train)
    }
}

/// The links of a graph, ascending and each once, whichever directions of it are stored.
fn links_of(graph: &Csr) -> Vec<Link> {
    let is_symmetric = graph.is_symmetric();
    let of_row = |v: usize| {
        let entries = graph.row(v).iter().map(move |&u| [u.min(v as NodeId), u.max(v as NodeId)]);
        // Of a symmetric graph the upper triangle says all, and is in order.
        entries.filter(move |link| link[0] < link[1] && (!is_symmetric || link[0] as usize == v))
    };
    let mut links: Vec<Link> = (0..graph.n_rows()).flat_map(of_row).collect();
    if !is_symmetric {
        links.par_sort_unstable();
        links.dedup();
    }
    links
}
