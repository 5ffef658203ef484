//! [`LinkSplit`]: division of links into training, validation and test links.

use girih_graph_format::{Csr, NodeId};
use girih_random::{Key, purpose, unit_f64};
use rayon::prelude::*;

use crate::config::LinkConfig;

/// Two different nodes that an edge joins. In the links of a graph, the smaller id comes first.
pub type Link = [NodeId; 2];

/// Kinds of random draws of link prediction; each has a key of its own.
pub(crate) enum Draws {
    /// Part that a link belongs to.
    Parts = 0,
    /// Non-links for held-out links.
    HeldOut = 1,
    /// Non-links for training links.
    Training = 2,
    /// Order of training links in an epoch.
    Orders = 3,
}

impl Draws {
    pub(crate) fn key(self, seed: u64) -> Key {
        Key::new(seed, purpose::LINKS).child(self as u64)
    }
}

/// Part that a link belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPart {
    /// Training: the link carries messages, and is in the loss.
    Train,
    /// Validation: the link helps to choose the epoch.
    Val,
    /// Test: the link is in the reported scores.
    Test,
}

/// Random division into training, validation and test links. It depends on the ends of a link alone, so that both
/// directions of an edge are in one part, wherever it is stored.
#[derive(Clone, Copy, Debug)]
pub struct LinkSplit {
    key: Key,
    val: f64,
    test: f64,
}

/// Links of a graph by part, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Training links, which carry messages and are in the loss.
    pub train: Vec<Link>,
    /// Validation links, which choose the epoch.
    pub val: Vec<Link>,
    /// Test links, which are in the reported scores.
    pub test: Vec<Link>,
}

impl Links {
    /// Number of links of all parts.
    #[must_use]
    pub fn n_all(&self) -> usize {
        self.train.len() + self.val.len() + self.test.len()
    }
}

impl LinkSplit {
    /// Split of a seed; all runs of a session share it.
    #[must_use]
    pub fn new(config: &LinkConfig, seed: u64) -> Self {
        Self { key: Draws::Parts.key(seed), val: config.val, test: config.test }
    }

    /// Part of the link between two nodes, in either order.
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

    /// Divides the links of a graph into parts.
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

    /// Message graph: the graph without the edges of held-out links. Self loops are no links, and stay.
    #[must_use]
    pub fn messages(&self, graph: &Csr) -> Csr {
        graph.filtered(|v, u| v == u as usize || self.part([v as NodeId, u]) == LinkPart::Train)
    }
}

/// Links of a graph, ascending and without duplicates, in whichever directions they are stored.
fn links_of(graph: &Csr) -> Vec<Link> {
    let is_symmetric = graph.is_symmetric();
    let of_row = |v: usize| {
        let entries = graph.row(v).iter().map(move |&u| [u.min(v as NodeId), u.max(v as NodeId)]);
        // The upper triangle of a symmetric graph has each link once, in order.
        entries.filter(move |link| link[0] < link[1] && (!is_symmetric || link[0] as usize == v))
    };
    let mut links: Vec<Link> = (0..graph.n_rows()).flat_map(of_row).collect();
    if !is_symmetric {
        links.par_sort_unstable();
        links.dedup();
    }
    links
}
