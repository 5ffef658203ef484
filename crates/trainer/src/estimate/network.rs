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

    fn of(&self, operation: Operation) -> LinkRates {
        match operation {
            Operation::Broadcast => self.broadcast,
            Operation::AllGather => self.all_gather,
            Operation::AllReduce => self.all_reduce,
            Operation::ReduceScatter => self.reduce_scatter,
            Operation::AllToAll => self.all_to_all,
            Operation::OneToOne => self.one_to_one,
        }
    }
}

/// Collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Broadcast,
    AllGather,
    AllReduce,
    ReduceScatter,
    AllToAll,
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
    pub(super) fn seconds_lost(&self, computed: f64, exchange: f64) -> f64 {
        let slowed = computed / (1.0 - self.slowdown);
        self.slowdown * slowed.min(exchange)
    }

    /// Seconds of an operation of `members`; `bytes` are counted as in [`Links`].
    ///
    /// In an all-gather or all-to-all, each rank sends rows to each other over its own adapter. A broadcast or a sum
    /// enters a host once, over the adapters of all of its members, and is passed on within the host. Latencies
    /// between hosts add up over the rounds of a tree of hosts.
    pub(super) fn seconds(&self, operation: Operation, members: &[usize], bytes: f64) -> f64 {
        let inside = self.links.of(operation);
        let n_hosts = self.n_hosts(members);
        if n_hosts == 1 {
            return inside.latency + bytes / inside.bytes_per_second;
        }
        let (size, per_host) = (members.len() as f64, members.len() as f64 / n_hosts as f64);
        let (crossing, adapters) = match operation {
            Operation::AllGather | Operation::AllToAll | Operation::OneToOne => {
                (bytes * (size - per_host) / (size - 1.0).max(1.0), 1.0)
            }
            Operation::Broadcast | Operation::AllReduce | Operation::ReduceScatter => (bytes, per_host),
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn rates(latency: f64, bytes_per_second: f64) -> LinkRates {
        LinkRates { latency, bytes_per_second }
    }

    fn hosts_of_two() -> Network {
        let links = Links::alike(rates(1.0, 100.0));
        Network { links, ranks_per_host: 2, between_hosts: rates(3.0, 10.0), overlaps: true, slowdown: 0.0 }
    }

    #[test]
    fn a_rank_computes_more_slowly_while_an_exchange_goes_on() {
        let network = Network { slowdown: 0.25, ..hosts_of_two() };
        // Three seconds of work take four, all of them during the exchange.
        assert_eq!(network.seconds_lost(3.0, 4.0), 1.0);
        assert_eq!(network.seconds_lost(3.0, 9.0), 1.0);
        // Of nine seconds of work, three are done in the four seconds of the exchange, and six after it.
        assert_eq!(network.seconds_lost(9.0, 4.0), 1.0);
        assert_eq!(hosts_of_two().seconds_lost(9.0, 4.0), 0.0);
    }

    #[test]
    fn a_host_is_as_fast_as_its_links() {
        assert_eq!(hosts_of_two().seconds(Operation::AllGather, &[2, 3], 100.0), 2.0);
        assert_eq!(Network::one_host(hosts_of_two().links, true).seconds(Operation::AllReduce, &[0, 9], 100.0), 2.0);
    }

    #[test]
    fn sums_cross_once_and_rows_go_to_each() {
        let network = hosts_of_two();
        // Two adapters receive 100 bytes at 10 a second each.
        assert_eq!(network.seconds(Operation::ReduceScatter, &[0, 1, 2, 3], 100.0), 1.0 + 3.0 + 5.0);
        // One rank of each host: one adapter. Four hosts are two rounds apart.
        assert_eq!(network.seconds(Operation::Broadcast, &[0, 2, 4, 6], 100.0), 1.0 + 6.0 + 10.0);
        // Two of three messages leave the host, each over the adapter of its receiver.
        for operation in [Operation::AllToAll, Operation::AllGather] {
            assert_eq!(network.seconds(operation, &[0, 1, 2, 3], 90.0), 1.0 + 3.0 + 6.0);
        }
    }
}
