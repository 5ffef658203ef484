//! Dropout masks in bulk: sixteen Philox blocks at once, bit for bit what [`Dropout::factor`] defines.

use pulp::{Simd, WithSimd};

use super::simd::Isa;
use crate::Dropout;
use crate::dropout::{GROUP, LANES};

/// Multiplies `values` by their factors, where `values[0]` is element `first_element` of the masked matrix.
pub(crate) fn apply(dropout: Dropout, first_element: usize, values: &mut [f32]) {
    Isa::detect().run(Apply { dropout, first_element, values });
}

struct Apply<'a> {
    dropout: Dropout,
    first_element: usize,
    values: &'a mut [f32],
}

impl WithSimd for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { dropout, first_element, values } = self;
        // Up to the next boundary of groups, then group by group.
        let to_boundary = (first_element.next_multiple_of(GROUP) - first_element).min(values.len());
        let (head, rest) = values.split_at_mut(to_boundary);
        let mut group = first_element / GROUP;
        if !head.is_empty() {
            multiply(head, &group_factors(dropout, group)[first_element % GROUP..]);
            group += 1;
        }
        for (i, part) in rest.chunks_mut(GROUP).enumerate() {
            multiply(part, &group_factors(dropout, group + i));
        }
    }
}

#[inline(always)]
fn multiply(values: &mut [f32], factors: &[f32]) {
    for (value, factor) in values.iter_mut().zip(factors) {
        *value *= factor;
    }
}

/// The factors of a whole group: lane `l` of half `h` belongs to element `16·h + l`.
#[inline(always)]
fn group_factors(dropout: Dropout, group: usize) -> [f32; GROUP] {
    let words = philox_lanes((group * LANES) as u64, dropout.key().words());
    let (threshold, scale) = (dropout.threshold(), dropout.scale());
    let mut factors = [0.0; GROUP];
    for (half, factors) in factors.chunks_exact_mut(LANES).enumerate() {
        for lane in 0..LANES {
            let bits = words[half / 2][lane] >> (16 * (half % 2)) & 0xffff;
            factors[lane] = if bits < threshold { 0.0 } else { scale };
        }
    }
    factors
}

/// The Philox blocks at counters `first..first + 16`, word by word; `first` is a multiple of 16, so that only the
/// lowest word differs between lanes. Plain arrays: the compiler turns them into vectors.
#[inline(always)]
fn philox_lanes(first: u64, key: [u32; 2]) -> [[u32; LANES]; 4] {
    let mut words = [[0; LANES]; 4];
    for lane in 0..LANES {
        let block = girih_random::philox4x32([first as u32 + lane as u32, (first >> 32) as u32, 0, 0], key);
        for (word, value) in words.iter_mut().zip(block) {
            word[lane] = value;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use girih_random::Key;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn masks_are_those_of_the_definition(
            seed in any::<u64>(),
            p in 0.0f32..0.99,
            first in prop_oneof![0usize..1000, (1usize << 36)..(1 << 36) + 500],
            len in 0usize..700,
        ) {
            let dropout = Dropout::new(p, Key::new(seed, 3));
            let original: Vec<f32> = (0..len).map(|i| i as f32 - 100.0).collect();
            let expected: Vec<u32> =
                (0..len).map(|i| (original[i] * dropout.factor(first + i)).to_bits()).collect();
            for isa in Isa::all() {
                let mut values = original.clone();
                isa.run(Apply { dropout, first_element: first, values: &mut values });
                let found: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}
