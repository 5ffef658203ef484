//! [`Hierarchy`]: cost model of caches and memory for products with a sparse matrix.

use serde::{Deserialize, Serialize};

use crate::Machine;

/// Cache, or the caches of several cores together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// Capacity in bytes for the data that one core reads.
    pub bytes: u64,
    /// Rate at which all cores gather rows from it, in 10⁹ bytes per second.
    pub gb_s: f64,
}

/// Cost model of a device for products with a sparse matrix. Each operand row comes from the nearest cache that holds
/// it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hierarchy {
    /// Caches, nearest first.
    pub caches: Vec<Cache>,
    /// Rate at which all cores gather rows from memory, in 10⁹ bytes per second.
    pub memory_gb_s: f64,
    /// Nanoseconds per entry, besides the transfer of its row.
    pub entry_ns: f64,
    /// Nanoseconds per row of the result.
    pub row_ns: f64,
}

/// Size of a product with a sparse matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Number of rows of the result.
    pub n_rows: usize,
    /// Number of non-zeros.
    pub nnz: usize,
    /// Bytes of a row of the operand.
    pub row_bytes: usize,
}

/// Minimum bytes of a row per pass over the indices: two cache lines, the unit of transfers between memory and
/// caches.
pub const PASS_BYTES_MIN: usize = 128;
/// Assumed bytes of the last-level cache, if the system does not report them.
const CACHE_BYTES_GUESS: u64 = 32 << 20;

impl Hierarchy {
    /// Hierarchy of a CPU. Sizes are those that the system reports. Rates per core are those of sparse products with
    /// rows of 128 to 512 bytes on Zen 5 (`benches/record/README.md`). Predictions are meaningful as ratios between
    /// methods for one result.
    #[must_use]
    pub fn of_cpu(machine: &Machine) -> Self {
        let cores = machine.cores as f64;
        let cache = |(bytes, gb_s): (Option<u64>, f64)| Some(Cache { bytes: bytes?, gb_s: gb_s * cores });
        let mut caches: Vec<Cache> =
            [(machine.l2_bytes, 118.0), (machine.l3_bytes, 64.0)].into_iter().filter_map(cache).collect();
        if caches.is_empty() {
            caches.extend(cache((Some(CACHE_BYTES_GUESS), 64.0)));
        }
        Self { caches, memory_gb_s: 20.0 * cores, entry_ns: 0.2 / cores, row_ns: 20.0 / cores }
    }

    /// Predicted seconds of a product; `hit_rate(n)` is the hit rate of operand rows in a cache of `n` rows.
    pub fn seconds(&self, product: &Product, hit_rate: impl Fn(usize) -> f64) -> f64 {
        let (mut served, mut ns_per_byte) = (0.0, 0.0);
        for cache in &self.caches {
            let rows = cache.bytes as usize / product.row_bytes.max(1);
            let here = hit_rate(rows).max(served);
            ns_per_byte += (here - served) / cache.gb_s;
            served = here;
        }
        ns_per_byte += (1.0 - served) / self.memory_gb_s;
        let entry_ns = self.entry_ns + product.row_bytes as f64 * ns_per_byte;
        1e-9 * (product.n_rows as f64 * self.row_ns + product.nnz as f64 * entry_ns)
    }

    /// Predicted seconds of a product that processes the operand's columns in the fastest number of passes. A pass
    /// reads at least [`PASS_BYTES_MIN`] of each row.
    pub fn seconds_in_passes(&self, product: &Product, hit_rate: impl Fn(usize) -> f64) -> f64 {
        let in_passes = |n: usize| {
            let pass = Product { row_bytes: product.row_bytes.div_ceil(n), ..*product };
            n as f64 * self.seconds(&pass, &hit_rate)
        };
        (1..=(product.row_bytes / PASS_BYTES_MIN).max(1)).map(in_passes).fold(f64::INFINITY, f64::min)
    }

    /// Bytes of the largest cache.
    #[must_use]
    pub fn largest_cache(&self) -> u64 {
        self.caches.iter().map(|cache| cache.bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_from_the_nearest_cache_that_holds_them() {
        let caches = vec![Cache { bytes: 1000, gb_s: 10.0 }, Cache { bytes: 4000, gb_s: 5.0 }];
        let device = Hierarchy { caches, memory_gb_s: 1.0, entry_ns: 2.0, row_ns: 3.0 };
        let product = Product { n_rows: 4, nnz: 10, row_bytes: 100 };
        // Of 100 bytes, 50 come from the first cache, 30 from the second, 20 from memory.
        let hit_rate = |rows| if rows == 10 { 0.5 } else { 0.8 };
        let ns = 4.0 * 3.0 + 10.0 * (2.0 + 50.0 / 10.0 + 30.0 / 5.0 + 20.0);
        assert!((device.seconds(&product, hit_rate) - 1e-9 * ns).abs() < 1e-18);
        assert_eq!(device.largest_cache(), 4000);
    }

    #[test]
    fn a_larger_cache_never_serves_less() {
        let caches = vec![Cache { bytes: 8, gb_s: 4.0 }, Cache { bytes: 16, gb_s: 2.0 }];
        let device = Hierarchy { caches, memory_gb_s: 1.0, entry_ns: 0.0, row_ns: 0.0 };
        let product = Product { n_rows: 1, nnz: 1, row_bytes: 8 };
        // A hit rate that falls with cache size is treated as constant.
        assert!((device.seconds(&product, |rows| 1.0 / rows as f64) - 2e-9).abs() < 1e-18);
    }
}
