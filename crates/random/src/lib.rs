//! Counter-based random numbers: one seed gives one result, on any number of threads, ranks and devices.
//!
//! With a sequential generator, the result depends on the order of draws. Philox 4×32-10 (Salmon et al., "Parallel
//! Random Numbers: As Easy as 1, 2, 3", SC 2011) is a keyed bijection instead. The draw at a counter is a pure
//! function of `(key, counter)`, so every thread computes exactly the draws that it needs.
//!
//! - [`Key`]: names a family of draws by seed and purpose. Start here.
//! - [`Key::block`]: four 32-bit words at a 128-bit counter; all other draws derive from it.
//! - [`Stream`]: the draws of one counter prefix in order, for code that needs a sequence.
//! - [`purpose`]: list of purposes.
//! - [`PHILOX_MULTIPLIERS`], [`PHILOX_WEYL`], [`PHILOX_ROUNDS`]: for kernels that compute blocks in vectors of their
//!   own.
//! - [`bounded`], [`bounded_word`]: an unbiased integer below a bound, from 64 bits or mostly from 32.
//!
//! `docs/draws.md` lists the counters of each purpose.

#![forbid(unsafe_code)]

mod philox;
pub mod purpose;

pub use philox::{Key, PHILOX_MULTIPLIERS, PHILOX_ROUNDS, PHILOX_WEYL, Stream, philox4x32};

/// Maps 32 random bits to `[0, 1)`: the upper 24 bits over 2²⁴, so that every value is exact in `f32`.
#[inline]
#[must_use]
pub fn unit_f32(bits: u32) -> f32 {
    (bits >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Maps 64 random bits to `[0, 1)`: the upper 53 bits over 2⁵³, so that every value is exact in `f64`.
#[inline]
#[must_use]
pub fn unit_f64(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// Integer in `0..bound` from 64 random bits: the high half of `bits × bound`.
///
/// The bias is below `bound / 2⁶⁴`, which is undetectable for graph-sized bounds. With a 32-bit multiply, some of 2³¹
/// values would be twice as likely as others. A bound of 0 gives 0.
#[inline]
#[must_use]
pub fn bounded(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

/// Unbiased integer in `0..bound` from 32 random bits: the high half of `word × bound`. Returns `None` if the low
/// half is below `2³² mod bound` (Lemire, "Fast Random Integer Generation in an Interval", TOMACS 29(1), 2019). The
/// caller then draws other bits. The probability of `None` is below `bound / 2³²`. A bound of 0 gives 0.
#[inline]
#[must_use]
pub fn bounded_word(word: u32, bound: u32) -> Option<u32> {
    let product = u64::from(word) * u64::from(bound);
    let low = product as u32;
    // The remainder is below the bound, so the division is rarely needed.
    let is_uneven = low < bound && low < bound.wrapping_neg() % bound;
    (!is_uneven).then_some((product >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_kept_give_every_integer_alike() {
        // Counts the accepted words of each integer exactly, from the first and last word that map to it.
        for bound in [1, 2, 3, 10, 1000, 65_537, (1 << 31) + 1, u32::MAX] {
            let kept = |word| bounded_word(word, bound);
            let share = (1u64 << 32) / u64::from(bound);
            for value in [0, bound / 2, bound - 1] {
                let first = ((u64::from(value) << 32).div_ceil(u64::from(bound))) as u32;
                let end = ((u64::from(value) + 1) << 32).div_ceil(u64::from(bound));
                // At most one word is rejected, and it is the first.
                let n_words = end - u64::from(first);
                let n_kept = n_words - u64::from(kept(first).is_none());
                assert_eq!(n_kept, share, "bound {bound}, value {value}");
                assert!(n_words == 1 || kept(first + 1) == Some(value) && kept((end - 1) as u32) == Some(value));
            }
        }
        assert_eq!(bounded_word(5, 0), Some(0));
    }

    #[test]
    fn unit_floats_stay_below_one() {
        assert_eq!(unit_f32(0), 0.0);
        assert!(unit_f32(u32::MAX) < 1.0);
        assert!(unit_f64(u64::MAX) < 1.0);
    }

    #[test]
    fn bounded_covers_its_range_evenly() {
        let key = Key::new(7, 1);
        let mut counts = [0u32; 10];
        let mut stream = key.stream(0, 0);
        for _ in 0..100_000 {
            counts[stream.below(10) as usize] += 1;
        }
        // The standard deviation of a bin is 95; six of them never happen by chance.
        assert!(counts.iter().all(|&c| c.abs_diff(10_000) < 570), "{counts:?}");
        assert_eq!(bounded(u64::MAX, 10), 9);
        assert_eq!(bounded(123, 0), 0);
    }
}

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
