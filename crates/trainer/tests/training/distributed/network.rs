//! Times of exchanges between ranks, by the hosts that they are on.

use girih_partition::LinkRates;
use girih_trainer::distributed::{CollectiveKind, Links, Network};

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
    assert_eq!(hosts_of_two().seconds(CollectiveKind::AllGather, &[2, 3], 100.0), 2.0);
    assert_eq!(Network::one_host(hosts_of_two().links, true).seconds(CollectiveKind::AllReduce, &[0, 9], 100.0), 2.0);
}

#[test]
fn sums_cross_once_and_rows_go_to_each() {
    let network = hosts_of_two();
    // Two adapters receive 100 bytes at 10 a second each.
    assert_eq!(network.seconds(CollectiveKind::ReduceScatter, &[0, 1, 2, 3], 100.0), 1.0 + 3.0 + 5.0);
    // One rank of each host: one adapter. Four hosts are two rounds apart.
    assert_eq!(network.seconds(CollectiveKind::Broadcast, &[0, 2, 4, 6], 100.0), 1.0 + 6.0 + 10.0);
    // Two of three messages leave the host, each over the adapter of its receiver.
    for kind in [CollectiveKind::AllToAll, CollectiveKind::AllGather] {
        assert_eq!(network.seconds(kind, &[0, 1, 2, 3], 90.0), 1.0 + 3.0 + 6.0);
    }
}
