//! [`Ceilings`]: peak memory bandwidth and arithmetic rates of this machine, measured by minimal loops.
//!
//! Shared machines change from hour to hour, so every run measures the ceilings and stores them with its results.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pulp::{Arch, Simd, WithSimd};
use rayon::ThreadPoolBuildError;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// Best measured rates; `_1` is one thread, `_all` every thread of the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Number of threads of the `_all` rates.
    pub threads: usize,
    /// Sequential reads of main memory, in 10⁹ bytes per second, one thread.
    pub dram_read_gb_s_1: f64,
    /// Sequential reads of main memory, in 10⁹ bytes per second, all threads.
    pub dram_read_gb_s_all: f64,
    /// Sequential reads of half of the last-level cache, in 10⁹ bytes per second, one thread.
    pub l3_read_gb_s_1: f64,
    /// Sequential reads of half of the last-level cache, in 10⁹ bytes per second, all threads.
    pub l3_read_gb_s_all: f64,
    /// `f32` fused multiply-adds on registers, in 10⁹ operations per second (two each), one thread.
    pub fma_gflop_s_1: f64,
    /// `f32` fused multiply-adds on registers, in 10⁹ operations per second (two each), all threads.
    pub fma_gflop_s_all: f64,
}

/// Bytes of a buffer that no cache holds.
const DRAM_BYTES: usize = 1 << 30;
/// Assumed bytes of the last-level cache, if the system does not report them.
const L3_BYTES_GUESS: u64 = 16 << 20;
/// Approximate number of bytes that a measurement of bandwidth reads.
const READ_BYTES: usize = 4 << 30;
/// Number of fused vector multiply-adds of one thread.
const FMA_STEPS: usize = 20_000_000;
/// Number of measurements of each ceiling; the best counts.
const ATTEMPTS: usize = 3;
/// Number of independent sums, which hide the latency of additions.
const CHAINS: usize = 8;

impl Ceilings {
    /// Measures this machine, which takes a few seconds.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn measure(machine: &Machine) -> Result<Self, ThreadPoolBuildError> {
        let threads = rayon::current_num_threads();
        let (one, all) = (pool(1)?, pool(threads)?);
        let floats = |bytes: usize| vec![1.0f32; bytes / size_of::<f32>()];
        let dram = floats(DRAM_BYTES);
        let l3 = floats(machine.l3_bytes.unwrap_or(L3_BYTES_GUESS) as usize / 2);
        Ok(Self {
            threads,
            dram_read_gb_s_1: read_gb_s(&one, &dram),
            dram_read_gb_s_all: read_gb_s(&all, &dram),
            l3_read_gb_s_1: read_gb_s(&one, &l3),
            l3_read_gb_s_all: read_gb_s(&all, &l3),
            fma_gflop_s_1: fma_gflop_s(&one),
            fma_gflop_s_all: fma_gflop_s(&all),
        })
    }

    /// Description in one line, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "DRAM {:.0} / {:.0} GB/s, L3 {:.0} / {:.0} GB/s, f32 FMA {:.0} / {:.0} GFLOP/s (1 / {} threads)",
            self.dram_read_gb_s_1,
            self.dram_read_gb_s_all,
            self.l3_read_gb_s_1,
            self.l3_read_gb_s_all,
            self.fma_gflop_s_1,
            self.fma_gflop_s_all,
            self.threads
        )
    }
}

fn pool(threads: usize) -> Result<rayon::ThreadPool, ThreadPoolBuildError> {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build()
}

/// Rate in 10⁹ bytes per second at which the threads of `pool` read `values` in order, each its own part.
fn read_gb_s(pool: &rayon::ThreadPool, values: &[f32]) -> f64 {
    let part = values.len().div_ceil(pool.current_num_threads());
    let passes = (READ_BYTES / size_of_val(values)).max(1);
    let seconds = fastest(|| {
        pool.broadcast(|context| {
            let start = (context.index() * part).min(values.len());
            let mine = &values[start..(start + part).min(values.len())];
            for _ in 0..passes {
                black_box(Arch::new().dispatch(Sum(black_box(mine))));
            }
        });
    });
    (passes * size_of_val(values)) as f64 / seconds.as_secs_f64() / 1e9
}

/// Rate in 10⁹ operations per second of fused multiply-adds that stay in registers.
fn fma_gflop_s(pool: &rayon::ThreadPool) -> f64 {
    let mut lanes = 0;
    let seconds = fastest(|| {
        lanes = pool.broadcast(|_| Arch::new().dispatch(MultiplyAdd)).into_iter().max().unwrap_or(0);
    });
    let operations = 2 * lanes * FMA_STEPS * pool.current_num_threads();
    operations as f64 / seconds.as_secs_f64() / 1e9
}

fn fastest(mut work: impl FnMut()) -> Duration {
    let attempt = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..ATTEMPTS).map(attempt).min().unwrap_or_default()
}

/// Sums a slice with vector registers.
struct Sum<'a>(&'a [f32]);

impl WithSimd for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (vectors, tail) = S::as_simd_f32s(self.0);
        let (groups, rest) = pulp::as_arrays::<CHAINS, _>(vectors);
        let mut sums = [simd.splat_f32s(0.0); CHAINS];
        for group in groups {
            for (sum, &vector) in sums.iter_mut().zip(group) {
                *sum = simd.add_f32s(*sum, vector);
            }
        }
        for &vector in rest {
            sums[0] = simd.add_f32s(sums[0], vector);
        }
        let total = sums.into_iter().reduce(|a, b| simd.add_f32s(a, b)).map_or(0.0, |sum| simd.reduce_sum_f32s(sum));
        total + tail.iter().sum::<f32>()
    }
}

/// Chains of fused multiply-adds on registers; returns the number of lanes of a register.
struct MultiplyAdd;

impl WithSimd for MultiplyAdd {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        let (factor, addend) = (simd.splat_f32s(black_box(0.5)), simd.splat_f32s(black_box(1.0)));
        let mut sums = [simd.splat_f32s(1.0); CHAINS];
        for _ in 0..FMA_STEPS / CHAINS {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(*sum, factor, addend);
            }
        }
        black_box(sums);
        S::F32_LANES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_read() {
        for n in [0, 1, 127, 128, 1000, 4099] {
            let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(Arch::new().dispatch(Sum(&values)), (0..n).sum::<u32>() as f32, "{n} values");
        }
    }

    #[test]
    fn rates_are_plausible() {
        let pool = pool(1).unwrap();
        let values = vec![1.0; 1 << 20];
        assert!((0.1..10_000.0).contains(&read_gb_s(&pool, &values)));
        assert!((0.1..10_000.0).contains(&fma_gflop_s(&pool)));
    }
}
