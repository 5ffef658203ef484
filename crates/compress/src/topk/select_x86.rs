//! Steps over all keys by the vector units of x86-64, if the CPU has them.

use super::select::Encode;
#[cfg(not(target_arch = "x86_64"))]
use super::select::Portable;

/// Runs [`Encode`] with the widest available comparisons.
#[cfg(target_arch = "x86_64")]
pub(super) fn dispatch(k: usize, row: &[f32], code: &mut [u8]) {
    x86::dispatch(k, row, code);
}

/// Runs [`Encode`] with the widest available comparisons.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn dispatch(k: usize, row: &[f32], code: &mut [u8]) {
    pulp::Arch::new().dispatch(Encode { compare: Portable, k, row, code });
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use pulp::x86::{V3, V4};
    use pulp::{Arch, Simd, cast};

    use super::Encode;
    use crate::topk::select::{Compare, Keys, LANES, Mask, Portable};

    pub(super) fn dispatch(k: usize, row: &[f32], code: &mut [u8]) {
        match Arch::new() {
            Arch::V4(simd) => Simd::vectorize(simd, Encode { compare: simd, k, row, code }),
            Arch::V3(simd) => Simd::vectorize(simd, Encode { compare: simd, k, row, code }),
            other => other.dispatch(Encode { compare: Portable, k, row, code }),
        }
    }

    /// AVX-512: sixteen keys per comparison.
    impl Compare for V4 {
        #[inline(always)]
        fn at_least(self, keys: &Keys, threshold: i32) -> Mask {
            let threshold = self.avx512f._mm512_set1_epi32(threshold);
            let mut mask = Mask::default();
            // Loops rather than closures: a separately compiled closure would not use the instructions.
            for (i, keys) in keys.0.as_chunks::<16>().0.iter().enumerate() {
                let bits = self.avx512f._mm512_cmpge_epi32_mask(cast(*keys), threshold);
                mask[i / 4] |= u64::from(bits) << (16 * (i % 4));
            }
            mask
        }

        #[inline(always)]
        fn lane_maxima(self, keys: &Keys) -> [i32; LANES] {
            let vectors = keys.0.as_chunks::<LANES>().0;
            let mut maxima = cast(vectors[0]);
            for keys in &vectors[1..] {
                maxima = self.avx512f._mm512_max_epi32(maxima, cast(*keys));
            }
            cast(maxima)
        }
    }

    /// AVX2: eight keys per comparison.
    impl Compare for V3 {
        #[inline(always)]
        fn at_least(self, keys: &Keys, threshold: i32) -> Mask {
            // AVX2 has only "greater"; thresholds are above the least integer.
            let below = self.avx._mm256_set1_epi32(threshold - 1);
            let mut mask = Mask::default();
            for (i, keys) in keys.0.as_chunks::<8>().0.iter().enumerate() {
                let greater = self.avx2._mm256_cmpgt_epi32(cast(*keys), below);
                let bits = self.avx._mm256_movemask_ps(self.avx._mm256_castsi256_ps(greater)) as u32;
                mask[i / 8] |= u64::from(bits) << (8 * (i % 8));
            }
            mask
        }

        #[inline(always)]
        fn lane_maxima(self, keys: &Keys) -> [i32; LANES] {
            let vectors = keys.0.as_chunks::<8>().0;
            let mut maxima = [cast(vectors[0]), cast(vectors[1])];
            for (i, keys) in vectors.iter().enumerate().skip(2) {
                maxima[i % 2] = self.avx2._mm256_max_epi32(maxima[i % 2], cast(*keys));
            }
            cast(maxima)
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn all_comparisons_agree() {
            let keys = Keys(std::array::from_fn(|i| (i as i32).wrapping_mul(0x9e37_79b1_u32 as i32)));
            for threshold in [i32::MIN + 1, -1, 0, 1, keys.0[7], keys.0[200], i32::MAX] {
                let expected = Portable.at_least(&keys, threshold);
                assert_eq!(
                    Portable.count(&keys, threshold),
                    expected.iter().map(|w| w.count_ones() as usize).sum::<usize>()
                );
                if let Some(simd) = V3::try_new() {
                    assert_eq!(simd.lane_maxima(&keys), Portable.lane_maxima(&keys));
                    assert_eq!(simd.at_least(&keys, threshold), expected);
                }
                if let Some(simd) = V4::try_new() {
                    assert_eq!(simd.lane_maxima(&keys), Portable.lane_maxima(&keys));
                    assert_eq!(simd.at_least(&keys, threshold), expected);
                }
            }
        }
    }
}
