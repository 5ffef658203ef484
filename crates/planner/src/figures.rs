//! [`HardwareProfile`]: rates of a kind of GPU and of the links between GPUs.

use girih_compute::{BlockSeconds, ByDtype, EntrySeconds, GpuRates};
use girih_partition::LinkRates;
use girih_trainer::PlanDevice;
use girih_trainer::distributed::{Links, Network};
use serde::{Deserialize, Serialize};

/// Rates of a kind of GPU and of the links between GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HardwareProfile {
    /// Name of the GPU, and the source of the rates.
    pub name: String,
    /// Rates of the GPU's operations. Times of sparse products depend on the graph: [`HardwareProfile::with_entries`]
    /// replaces them with those of the graph at hand.
    pub gpu: GpuRates,
    /// Rates of exchanges between the GPUs of a host.
    pub links: Links,
    /// Share of its speed that a GPU loses while it exchanges, in `0.0..1.0`: [`Network::slowdown`].
    pub slowdown: f64,
}

/// Rates of a GPU for one session, measured on its graph and shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRates {
    /// Seconds per entry of products with the adjacency, one element per rank, for partitions by rows. They depend on
    /// the graph and its order.
    pub entries: Vec<ByDtype<BlockSeconds>>,
    /// Speed of all other operations relative to the hardware profile (1.0: as fast). It depends on numbers of rows
    /// and columns.
    pub speed: f64,
}

/// Free bytes of an H200 on which nothing runs.
pub const H200_BYTES: u64 = 138 << 30;

/// Number of GPUs per host, if there are several hosts.
pub const GPUS_PER_HOST: usize = 8;

/// Link rates between hosts, for each GPU: an adapter of 400 Gbit/s, of which NCCL reaches nine tenths, and latencies
/// of five microseconds. Assumed, not measured.
pub const BETWEEN_HOSTS: LinkRates = LinkRates { latency: 5e-6, bytes_per_second: 45e9 };

impl HardwareProfile {
    /// Profile of an NVIDIA H200 (141 GB) whose links are NVLink 4 through switches.
    ///
    /// The GPU: records `gpu-spmm-*-4ec26bf0af7a` and `gpu-fullbatch-*-5124092158fb` in `benches/record`, one GPU.
    /// Times of entries are means over the four graphs there in community order, from 32 columns on. The other five
    /// numbers are fitted to the sixteen epochs of `gpu-fullbatch`, and then predict each epoch within 6 %. They are
    /// rates that training reaches, not peak rates.
    ///
    /// Links: NCCL on four GPUs of one host. Broadcasts reach 336 GB/s, an all-gather of whole panels 300 to 400 GB/s
    /// per GPU, an all-to-all of rows 407, and a transfer to one other GPU 157. All-reduces reach 214 GB/s of the
    /// matrix, and move 1.5 times as many bytes. Calls take 20 to 40 µs until their first byte.
    #[must_use]
    pub fn h200() -> Self {
        let link = |bytes_per_second| LinkRates { latency: 25e-6, bytes_per_second };
        Self {
            name: "NVIDIA H200, built in".to_owned(),
            gpu: GpuRates {
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

    /// Replaces the times of sparse products with those of a graph.
    #[must_use]
    pub fn with_entries(self, entries: ByDtype<BlockSeconds>) -> Self {
        Self { gpu: GpuRates { entries, ..self.gpu }, ..self }
    }

    /// Device of each rank, with the rates of a session; one element per rank.
    #[must_use]
    pub fn devices_of(&self, session: &SessionRates) -> Vec<PlanDevice> {
        let gpu = self.gpu.times(session.speed);
        session.entries.iter().map(|&entries| PlanDevice::Gpu(Some(GpuRates { entries, ..gpu }))).collect()
    }

    /// Seconds of an all-gather among `n` GPUs, each of which contributes a panel of `bytes` bytes. Includes the loss
    /// of products that overlap with it.
    #[must_use]
    pub fn panel_seconds(&self, n: usize, bytes: usize) -> f64 {
        let LinkRates { latency, bytes_per_second } = self.links.all_gather;
        let received = (n.saturating_sub(1) * bytes) as f64;
        (latency + received / bytes_per_second) * (1.0 + self.slowdown)
    }

    /// Network of the GPUs of one host.
    #[must_use]
    pub fn host(&self) -> Network {
        Network { slowdown: self.slowdown, ..Network::one_host(self.links, true) }
    }

    /// Network of several hosts with [`GPUS_PER_HOST`] GPUs each, which [`BETWEEN_HOSTS`] connects.
    #[must_use]
    pub fn hosts(&self) -> Network {
        Network { ranks_per_host: GPUS_PER_HOST, between_hosts: BETWEEN_HOSTS, ..self.host() }
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
        let [PlanDevice::Gpu(Some(gpu)), PlanDevice::Gpu(Some(other))] = devices[..] else {
            panic!("two ranks have two GPUs: {devices:?}");
        };
        assert_eq!((gpu.entries, other.entries), (entries, others));
        assert_eq!(gpu.stream_bytes, 2.0 * usual.gpu.stream_bytes);
        assert_eq!(gpu.flops.bf16, 2.0 * usual.gpu.flops.bf16);
        assert_eq!(gpu.launch_seconds, usual.gpu.launch_seconds);
    }

    #[test]
    fn panels_take_longer_of_more_gpus_and_where_products_lose_by_them() {
        let figures = HardwareProfile::h200();
        let two = figures.panel_seconds(2, 350_000_000);
        assert!((two - (25e-6 + 1e-3)).abs() < 1e-9, "{two}");
        assert!((figures.panel_seconds(3, 350_000_000) - (25e-6 + 2e-3)).abs() < 1e-9);
        let slower = HardwareProfile { slowdown: 0.25, ..figures };
        assert!((slower.panel_seconds(2, 350_000_000) - 1.25 * two).abs() < 1e-9);
    }
}
