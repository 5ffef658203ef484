//! [`Rates`]: what a read from each tier costs.

/// What reads from one place cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Bytes that pass in a second, of all that is touched.
    pub bytes_per_second: f64,
    /// Bytes that are touched together: a read passes all of those that it has a part in.
    pub granule: u64,
    /// Seconds until the first byte of an exchange.
    pub latency: f64,
}

impl Rate {
    /// Seconds of so many reads of `bytes` each, of slots that lie one behind the other; no exchange, no latency.
    #[must_use]
    pub fn seconds(&self, n_reads: f64, bytes: u64) -> f64 {
        n_reads * self.touched(bytes) / self.bytes_per_second
    }

    /// The mean number of bytes that reading a slot touches, over all places at which slots of `bytes` begin.
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

/// What reads by a card cost, by where they lead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Its own memory.
    pub device: Rate,
    /// Another card's.
    pub peer: Rate,
    /// Pinned host memory, read in place.
    pub host: Rate,
    /// A file on disk, mapped.
    pub disk: Rate,
}

impl Rates {
    /// NVIDIA H200 with NVLink 4 and PCIe 5.
    ///
    /// Memory: half of what streams, as rows are read and written again. Peers: rows for each by NCCL on four cards.
    /// Host: rows of 48 to 400 bytes and single ids of edges, read in place, come to 41 to 51 GB/s when every sector of
    /// 32 bytes that they touch is counted. The disk is stated, not measured: an NVMe drive that reads 6 GB/s in pages.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sectors() -> Rate {
        Rate { bytes_per_second: 1.0, granule: 32, latency: 0.0 }
    }

    #[test]
    fn whole_granules_are_touched() {
        let touched = |bytes| sectors().touched(bytes);
        assert_eq!([0, 4, 32, 64].map(touched), [0.0, 32.0, 32.0, 64.0]);
        // 48 bytes begin at 0 and 16 of a sector: two sectors either way.
        assert_eq!(touched(48), 64.0);
        // 40 bytes begin at 0, 8, 16 and 24: two sectors each.
        assert_eq!(touched(40), 64.0);
        // 24 bytes at 0, 24, 16, 8.
        assert_eq!(touched(24), (32.0 + 64.0 + 64.0 + 32.0) / 4.0);
    }

    #[test]
    fn the_study_of_kernels_is_met() {
        // 516 k rows of an H200 from pinned memory, read in place: 4.8 ms of 400 bytes, 2.7 of 200, 0.80 of 48; and 865
        // k draws of a block whose indices lie there, 0.54 ms more than on the card.
        let host = Rates::h200().host;
        for (n, bytes, ms) in [(516e3, 400, 4.8), (516e3, 200, 2.7), (516e3, 48, 0.80), (865e3, 4, 0.54)] {
            let planned = 1e3 * host.seconds(n, bytes);
            assert!((planned / ms - 1.0).abs() < 0.15, "{bytes} bytes: {planned} for {ms}");
        }
    }
}
