//! Dropout masks in vectors: sixteen Philox blocks at once, bit for bit as [`Dropout::factor`] defines.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::element::Element;
use super::simd::Isa;
use crate::Dropout;
use crate::dropout::HALVES;

/// Number of Philox blocks that are computed side by side.
pub(super) const LANES: usize = 16;
const GROUP: usize = LANES * HALVES;

/// Computes `out = mask ⊙ x`, where `x[0]` is element `first` of the masked matrix.
///
/// # Panics
/// When lengths differ.
pub(crate) fn copy<X: Element, Y: Element>(isa: Isa, dropout: Dropout, first: usize, x: &[X], out: &mut [Y]) {
    assert_eq!(x.len(), out.len(), "as many elements in as out");
    for_factors(
        isa,
        dropout,
        first..first + x.len(),
        #[inline(always)]
        |at, factors| {
            for (out, (x, factor)) in out[at.clone()].iter_mut().zip(x[at].iter().zip(factors)) {
                *out = Y::from_f32(x.to_f32() * factor);
            }
        },
    );
}

/// Computes `values ⊙= mask`, where `values[0]` is element `first` of the masked matrix.
pub(crate) fn apply<X: Element>(isa: Isa, dropout: Dropout, first: usize, values: &mut [X]) {
    for_factors(
        isa,
        dropout,
        first..first + values.len(),
        #[inline(always)]
        |at, factors| {
            for (value, factor) in values[at].iter_mut().zip(factors) {
                *value = X::from_f32(value.to_f32() * factor);
            }
        },
    );
}

/// Calls `multiply` with the factors of `elements`, a group at a time. Positions count from the first element.
fn for_factors(isa: Isa, dropout: Dropout, elements: Range<usize>, multiply: impl FnMut(Range<usize>, &[f32])) {
    isa.run(Factors { dropout, elements, multiply });
}

struct Factors<F> {
    dropout: Dropout,
    elements: Range<usize>,
    multiply: F,
}

impl<F: FnMut(Range<usize>, &[f32])> WithSimd for Factors<F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { dropout, elements: Range { start, end }, mut multiply } = self;
        let mut first = start;
        while first < end {
            let (group, skipped) = (first / GROUP, first % GROUP);
            let next = (first - skipped + GROUP).min(end);
            let factors = group_factors(dropout, group);
            multiply(first - start..next - start, &factors[skipped..]);
            first = next;
        }
    }
}

/// Factors of a whole group. The compiler vectorises the plain arrays.
#[inline(always)]
fn group_factors(dropout: Dropout, group: usize) -> [f32; GROUP] {
    let first = (group * LANES) as u64;
    // `first` is a multiple of the lanes, so only the lowest word differs between lanes.
    let counter = |lane: usize| [first as u32 + lane as u32, (first >> 32) as u32, 0, 0];
    let words = philox_lanes(counter, dropout.key().words());
    let mut of_elements = [[0; 4]; LANES];
    for (lane, block) in of_elements.iter_mut().enumerate() {
        *block = [words[0][lane], words[1][lane], words[2][lane], words[3][lane]];
    }
    let (threshold, scale) = (dropout.threshold(), dropout.scale());
    let mut factors = [0.0; GROUP];
    for (bits, factors) in of_elements.as_flattened().iter().zip(factors.as_chunks_mut::<2>().0) {
        *factors = [bits & 0xffff, bits >> 16].map(|bits| if bits < threshold { 0.0 } else { scale });
    }
    factors
}

/// Philox blocks at the counters of sixteen lanes, word by word. The compiler vectorises the plain arrays.
#[inline(always)]
pub(super) fn philox_lanes(counter: impl Fn(usize) -> [u32; 4], key: [u32; 2]) -> [[u32; LANES]; 4] {
    let mut words = [[0; LANES]; 4];
    for lane in 0..LANES {
        let block = girih_random::philox4x32(counter(lane), key);
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
                let (mut values, mut copied) = (original.clone(), vec![0.0f32; len]);
                apply(isa, dropout, first, &mut values);
                copy(isa, dropout, first, &original, &mut copied);
                for found in [values, copied] {
                    prop_assert_eq!(found.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), &expected[..]);
                }
            }
        }
    }
}
