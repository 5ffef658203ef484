//! Counter-based random numbers: one seed, one result, on any number of threads, ranks and devices.
//!
//! A sequential generator makes the result depend on who draws first. Philox 4×32-10 (Salmon et al., "Parallel
//! Random Numbers: As Easy as 1, 2, 3", SC 2011) is a keyed bijection instead: the draw at a counter is a pure
//! function of `(key, counter)`, so every thread computes exactly the draws that it needs.
//!
//! - [`Key`]: names a family of draws: seed and purpose. Start here.
//! - [`Key::block`]: four 32-bit words at a 128-bit counter; everything else is derived from it.
//! - [`Stream`]: the draws of one counter prefix in order, for code that wants a sequence.
//! - [`purpose`]: the purposes that there are.
//! - [`PHILOX_MULTIPLIERS`], [`PHILOX_WEYL`], [`PHILOX_ROUNDS`]: for kernels that compute blocks in vectors of their own.
//! - [`bounded`]: an unbiased integer below a bound.
//!
//! What each purpose puts into its counter is written down in `docs/formats.md`.

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

/// An integer in `0..bound` from 64 random bits: the high half of `bits × bound`.
///
/// The bias is below `bound / 2⁶⁴`, which no experiment with graph-sized bounds can see; a 32-bit multiply would
/// favour some of 2³¹ values twofold. A bound of zero gives zero.
#[inline]
#[must_use]
pub fn bounded(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Standard deviation of a bin is 95; six of them never happen by chance.
        assert!(counts.iter().all(|&c| c.abs_diff(10_000) < 570), "{counts:?}");
        assert_eq!(bounded(u64::MAX, 10), 9);
        assert_eq!(bounded(123, 0), 0);
    }
}
