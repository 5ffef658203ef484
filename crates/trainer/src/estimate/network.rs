//! [`Network`]: times of exchanges between ranks.

use girih_partition::LinkRates;
use serde::{Deserialize, Serialize};

/// Rates at which the ranks of a host exchange matrices, by operation. A broadcast of `b` bytes counts `b`. In an
/// all-gather among `g` ranks, a rank with `b` bytes sends `b·(g − 1)`, and the largest such number counts. In an
/// all-to-all, the larger one of the bytes that a rank sends and receives counts. A reduce-scatter of `b` bytes
/// counts `b·(g − 1)/g`, and an all-reduce twice as much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Links {
    /// One rank's matrix for all.
    pub broadcast: LinkRates,
    /// Rows of each rank, or of some ranks, for all.
    pub all_gather: LinkRates,
    /// A sum for all.
    pub all_reduce: LinkRates,
    /// A sum, of which each rank receives its own rows.
    pub reduce_scatter: LinkRates,
    /// Rows from each rank for each other rank.
    pub all_to_all: LinkRates,
    /// Rows from each of more than two ranks to one other, in disjoint pairs. NCCL gives a pair only some of its
    /// channels.
    pub one_to_one: LinkRates,
}

impl Links {
    /// Links with the same rates for all operations.
    #[must_use]
    pub fn alike(rates: LinkRates) -> Self {
        Self {
            broadcast: rates,
            all_gather: rates,
            all_reduce: rates,
            reduce_scatter: rates,
            all_to_all: rates,
            one_to_one: rates,
        }
    }

    fn of(&self, operation: CollectiveKind) -> LinkRates {
        match operation {
            CollectiveKind::Broadcast => self.broadcast,
            CollectiveKind::AllGather => self.all_gather,
            CollectiveKind::AllReduce => self.all_reduce,
            CollectiveKind::ReduceScatter => self.reduce_scatter,
            CollectiveKind::AllToAll => self.all_to_all,
            CollectiveKind::OneToOne => self.one_to_one,
        }
    }
}

/// Collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    /// One rank's matrix for all.
    Broadcast,
    /// Rows of each rank, or of some ranks, for all.
    AllGather,
    /// A sum for all.
    AllReduce,
    /// A sum, of which each rank receives its own rows.
    ReduceScatter,
    /// Rows from each rank for each other rank.
    AllToAll,
    /// Rows from each of more than two ranks to one other, in disjoint pairs.
    OneToOne,
}

/// Links of all ranks. Ranks are on hosts in their order, with the same number on each host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Rates between ranks of one host.
    pub links: Links,
    /// Number of ranks of a host.
    pub ranks_per_host: usize,
    /// Rates between hosts, for each rank: every rank has its own adapter.
    pub between_hosts: LinkRates,
    /// Whether an exchange continues while the rank computes.
    pub overlaps: bool,
    /// Fraction of its speed that a rank loses during an exchange, in 0..1. Exchanges take memory bandwidth and, with
    /// NCCL, SMs.
    pub slowdown: f64,
}

impl Network {
    /// Network of ranks that are all on one host.
    #[must_use]
    pub fn one_host(links: Links, overlaps: bool) -> Self {
        Self { links, ranks_per_host: usize::MAX, between_hosts: links.all_to_all, overlaps, slowdown: 0.0 }
    }

    /// Seconds that a rank loses during an exchange of `exchange` seconds. It has done `computed` seconds of work at
    /// full speed since the exchange began.
    #[must_use]
    pub fn seconds_lost(&self, computed: f64, exchange: f64) -> f64 {
        let slowed = computed / (1.0 - self.slowdown);
        self.slowdown * slowed.min(exchange)
    }

    /// Seconds of an operation of `members`; `bytes` are counted as in [`Links`].
    ///
    /// In an all-gather or all-to-all, each rank sends rows to each other over its own adapter. A broadcast or a sum
    /// enters a host once, over the adapters of all of its members, and is passed on within the host. Latencies
    /// between hosts add up over the rounds of a tree of hosts.
    #[must_use]
    pub fn seconds(&self, operation: CollectiveKind, members: &[usize], bytes: f64) -> f64 {
        let inside = self.links.of(operation);
        let n_hosts = self.n_hosts(members);
        if n_hosts == 1 {
            return inside.latency + bytes / inside.bytes_per_second;
        }
        let (size, per_host) = (members.len() as f64, members.len() as f64 / n_hosts as f64);
        let (crossing, adapters) = match operation {
            CollectiveKind::AllGather | CollectiveKind::AllToAll | CollectiveKind::OneToOne => {
                (bytes * (size - per_host) / (size - 1.0).max(1.0), 1.0)
            }
            CollectiveKind::Broadcast | CollectiveKind::AllReduce | CollectiveKind::ReduceScatter => (bytes, per_host),
        };
        let rounds = f64::from((n_hosts - 1).ilog2() + 1);
        inside.latency
            + rounds * self.between_hosts.latency
            + (bytes / inside.bytes_per_second).max(crossing / (adapters * self.between_hosts.bytes_per_second))
    }

    fn n_hosts(&self, members: &[usize]) -> usize {
        let mut hosts: Vec<usize> = members.iter().map(|member| member / self.ranks_per_host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.len()
    }
}
