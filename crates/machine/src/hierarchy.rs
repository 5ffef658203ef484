//! [`Hierarchy`]: caches and memory, as a product with a sparse matrix meets them.

use serde::{Deserialize, Serialize};

use crate::Machine;

/// A cache, or what several cores together reach of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// Bytes that it holds of what one core reads.
    pub bytes: u64,
    /// Rate at which all cores gather rows from it, 10⁹ bytes a second.
    pub gb_s: f64,
}

/// What a product with a sparse matrix takes on a device: rows of the operand come from the nearest cache that holds
/// them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hierarchy {
    /// The caches, nearest first.
    pub caches: Vec<Cache>,
    /// Rate at which all cores gather rows from memory, 10⁹ bytes a second.
    pub memory_gb_s: f64,
    /// Nanoseconds that an entry takes beside the bytes of its row.
    pub entry_ns: f64,
    /// Nanoseconds that a row of the result takes.
    pub row_ns: f64,
}

/// A product with a sparse matrix, in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Rows of the result.
    pub n_rows: usize,
    /// Non-zeros.
    pub nnz: usize,
    /// Bytes of a row of the operand.
    pub row_bytes: usize,
}

/// The least bytes of a row worth a pass over the indices: two cache lines, the unit that memory and caches move in.
pub const PASS_BYTES_MIN: usize = 128;
/// The last-level cache of a machine that does not tell.
const CACHE_BYTES_GUESS: u64 = 32 << 20;

impl Hierarchy {
    /// A processor: sizes as the system tells them, rates per core as sparse products with rows of 128 to 512 bytes
    /// reached them on Zen 5 (`benches/record/README.md`). What follows from them are ratios between ways to compute
    /// the same.
    #[must_use]
    pub fn of_processor(machine: &Machine) -> Self {
        let cores = machine.cores as f64;
        let cache = |(bytes, gb_s): (Option<u64>, f64)| Some(Cache { bytes: bytes?, gb_s: gb_s * cores });
        let mut caches: Vec<Cache> =
            [(machine.l2_bytes, 118.0), (machine.l3_bytes, 64.0)].into_iter().filter_map(cache).collect();
        if caches.is_empty() {
            caches.extend(cache((Some(CACHE_BYTES_GUESS), 64.0)));
        }
        Self { caches, memory_gb_s: 20.0 * cores, entry_ns: 0.2 / cores, row_ns: 20.0 / cores }
    }

    /// Seconds of a product; `hit_rate` tells which share of the rows that entries read is in a cache of so many rows.
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

    /// Seconds of a product that works through the columns of the operand in as many passes as are quickest; a pass
    /// reads [`PASS_BYTES_MIN`] of each row at least.
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
        // Of 100 bytes, 50 from the first cache, 30 from the second, 20 from memory.
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
        // A hit rate that falls counts as one that stays.
        assert!((device.seconds(&product, |rows| 1.0 / rows as f64) - 2e-9).abs() < 1e-18);
    }
}
