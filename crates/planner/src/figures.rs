//! [`HardwareProfile`]: what cards and their links do.

use girih_compute::{BlockSeconds, ByDtype, CardRates, EntrySeconds};
use girih_partition::LinkRates;
use girih_trainer::PlanDevice;
use girih_trainer::distributed::{Links, Network};
use serde::{Deserialize, Serialize};

/// What a kind of card and its links do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HardwareProfile {
    /// Which card, and where the figures come from.
    pub name: String,
    /// What a card takes for operations. Times of sparse products are those of some graph: [`HardwareProfile::with_entries`]
    /// puts in those of the graph at hand.
    pub card: CardRates,
    /// Exchanges between the cards of a host.
    pub links: Links,
    /// The share of its speed that a card loses while it exchanges: [`Network::slowdown`].
    pub slowdown: f64,
}

/// What a card takes for the operations of one session, beside what others of its kind take for any.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRates {
    /// Products with the adjacency, which depend on the graph and its order: of each rank by rows.
    pub entries: Vec<ByDtype<BlockSeconds>>,
    /// How many times as fast all else is: it depends on numbers of rows and columns.
    pub speed: f64,
}

/// Bytes of an H200 that are free when nothing runs on it.
pub const H200_BYTES: u64 = 138 << 30;

/// Cards of a host, where there are several hosts.
pub const CARDS_PER_HOST: usize = 8;

/// Between hosts, for each card: an adapter of 400 Gbit/s of which NCCL reaches nine tenths, and rounds of five
/// microseconds. Stated, not measured.
pub const BETWEEN_HOSTS: LinkRates = LinkRates { latency: 5e-6, bytes_per_second: 45e9 };

impl HardwareProfile {
    /// NVIDIA H200 (141 GB) whose links are NVLink 4 through switches.
    ///
    /// The card: records `gpu-spmm-*-4ec26bf0af7a` and `gpu-fullbatch-*-5124092158fb` in `benches/record`, one card.
    /// Times of entries are means over the four graphs there in community order, from 32 columns on. The other five
    /// numbers were fitted to the sixteen epochs of `gpu-fullbatch`, which then come out within 6 % each: they are what
    /// training reaches, not what the card could. Links: NCCL on four cards of one host: broadcasts 336 GB/s, whole
    /// panels from each to each 300 to 400 GB/s a card, rows for each 407, for one other 157, and all-reduces 214 of the
    /// matrix, which moves 1.5 times as much; calls take 20 to 40 µs until their first byte.
    #[must_use]
    pub fn h200() -> Self {
        let link = |bytes_per_second| LinkRates { latency: 25e-6, bytes_per_second };
        Self {
            name: "NVIDIA H200, built in".to_owned(),
            card: CardRates {
                stream_bytes: 2.73e12,
                flops: ByDtype { f32: 55e12, bf16: 230e12 },
                entries: ByDtype {
                    f32: BlockSeconds::alike(EntrySeconds::new([3.2e-12, 8.2e-12, 14.4e-12, 27.9e-12, 54.1e-12])),
                    bf16: BlockSeconds::alike(EntrySeconds::new([3.5e-12, 5.4e-12, 7.6e-12, 14.3e-12, 27.5e-12])),
                },
                launch_seconds: 7e-6,
            },
            links: Links {
                broadcast: link(336e9),
                all_gather: link(350e9),
                all_reduce: link(321e9),
                reduce_scatter: link(321e9),
                all_to_all: link(407e9),
                one_to_one: link(157e9),
            },
            slowdown: 0.0,
        }
    }

    /// The same with the times of sparse products of a graph.
    #[must_use]
    pub fn with_entries(self, entries: ByDtype<BlockSeconds>) -> Self {
        Self { card: CardRates { entries, ..self.card }, ..self }
    }

    /// What each rank computes with, as a session finds it.
    #[must_use]
    pub fn devices_of(&self, session: &SessionRates) -> Vec<PlanDevice> {
        let card = self.card.times(session.speed);
        session.entries.iter().map(|&entries| PlanDevice::Card(Some(CardRates { entries, ..card }))).collect()
    }

    /// Seconds until each of `n` cards has a panel of all others, of so many bytes each, and what products beside it
    /// lose.
    #[must_use]
    pub fn panel_seconds(&self, n: usize, bytes: usize) -> f64 {
        let LinkRates { latency, bytes_per_second } = self.links.all_gather;
        let received = (n.saturating_sub(1) * bytes) as f64;
        (latency + received / bytes_per_second) * (1.0 + self.slowdown)
    }

    /// The links of cards of one host.
    #[must_use]
    pub fn host(&self) -> Network {
        Network { slowdown: self.slowdown, ..Network::one_host(self.links, true) }
    }

    /// The links of hosts of [`CARDS_PER_HOST`], connected as [`BETWEEN_HOSTS`] says.
    #[must_use]
    pub fn hosts(&self) -> Network {
        Network { ranks_per_host: CARDS_PER_HOST, between_hosts: BETWEEN_HOSTS, ..self.host() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_its_own_speed_and_entries() {
        let (usual, entries) = (HardwareProfile::h200(), ByDtype { f32: 1e-12, bf16: 2e-12 });
        let alike = |seconds| BlockSeconds::alike(EntrySeconds::new([seconds; EntrySeconds::WIDTHS.len()]));
        let [entries, others] = [entries, ByDtype { f32: 3e-12, bf16: 4e-12 }]
            .map(|entries| ByDtype { f32: alike(entries.f32), bf16: alike(entries.bf16) });
        let devices = usual.devices_of(&SessionRates { entries: vec![entries, others], speed: 2.0 });
        let [PlanDevice::Card(Some(card)), PlanDevice::Card(Some(other))] = devices[..] else {
            panic!("two ranks have two cards: {devices:?}");
        };
        assert_eq!((card.entries, other.entries), (entries, others));
        assert_eq!(card.stream_bytes, 2.0 * usual.card.stream_bytes);
        assert_eq!(card.flops.bf16, 2.0 * usual.card.flops.bf16);
        assert_eq!(card.launch_seconds, usual.card.launch_seconds);
    }

    #[test]
    fn panels_take_longer_of_more_cards_and_where_products_lose_by_them() {
        let figures = HardwareProfile::h200();
        let two = figures.panel_seconds(2, 350_000_000);
        assert!((two - (25e-6 + 1e-3)).abs() < 1e-9, "{two}");
        assert!((figures.panel_seconds(3, 350_000_000) - (25e-6 + 2e-3)).abs() < 1e-9);
        let slower = HardwareProfile { slowdown: 0.25, ..figures };
        assert!((slower.panel_seconds(2, 350_000_000) - 1.25 * two).abs() < 1e-9);
    }
}
