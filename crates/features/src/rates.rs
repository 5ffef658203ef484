//! [`Rates`]: cost of a read from each tier.

/// Cost of reads from one tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Bandwidth in bytes per second, over all bytes that are touched.
    pub bytes_per_second: f64,
    /// Granule of reads, in bytes: a read transfers every granule that it overlaps.
    pub granule: u64,
    /// Seconds until the first byte of an exchange.
    pub latency: f64,
}

impl Rate {
    /// Seconds of `n_reads` reads of `bytes` each, of slots stored back to back. Latency is not included.
    #[must_use]
    pub fn seconds(&self, n_reads: f64, bytes: u64) -> f64 {
        n_reads * self.touched(bytes) / self.bytes_per_second
    }

    /// Mean number of bytes that a read of a slot touches, over all alignments of back-to-back slots of `bytes`.
    #[must_use]
    pub fn touched(&self, bytes: u64) -> f64 {
        if bytes == 0 {
            return 0.0;
        }
        let granule = self.granule.max(1);
        let n_places = granule / greatest_divisor(granule, bytes);
        let of = |slot: u64| (slot * bytes % granule + bytes).div_ceil(granule) * granule;
        (0..n_places).map(of).sum::<u64>() as f64 / n_places as f64
    }
}

fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// Rates of a GPU's reads, by tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Memory of the GPU itself.
    pub device: Rate,
    /// Memory of another GPU.
    pub peer: Rate,
    /// Pinned host memory, read in place.
    pub host: Rate,
    /// Memory-mapped file on disk.
    pub disk: Rate,
}

impl Rates {
    /// Rates of an NVIDIA H200 with NVLink 4 and PCIe 5.
    ///
    /// Memory: half of the streaming bandwidth, as rows are read and written again. Peers: an all-to-all of rows by
    /// NCCL on four GPUs. Host: rows of 48 to 400 bytes and single ids of edges, read in place, reach 41 to 51 GB/s
    /// if every touched sector of 32 bytes counts. The disk is assumed, not measured: an NVMe drive that reads 6 GB/s
    /// in pages.
    #[must_use]
    pub fn h200() -> Self {
        let sectors = |bytes_per_second, latency| Rate { bytes_per_second, granule: 32, latency };
        Self {
            device: sectors(1.36e12, 0.0),
            peer: sectors(407e9, 25e-6),
            host: sectors(46e9, 0.0),
            disk: Rate { bytes_per_second: 6e9, granule: 4096, latency: 0.0 },
        }
    }
}
