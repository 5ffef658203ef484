//! Search for the positions of the largest and smallest values of a group.
//!
//! Floats become integers of equal order. The `k`-th largest is bracketed by halving the range of integers, until a
//! threshold has between `k` and `k` + [`SLACK`] values at or above it. Each step compares all values and counts. The
//! few remaining candidates are sorted by counting the predecessors of each. The smallest values are the largest of
//! the negated group read backwards, which also reverses the rule for ties.
//!
//! On one core with AVX-512, 256 normal values at a time and `k` = 8, this reads 2.3 to 2.6 GB/s of `f32`. Sorting
//! each group reaches 0.5, and `select_nth_unstable` from both ends 1.0 (`benches/codecs.rs`, the best of 10 samples
//! on a machine that was not idle). With `k` = 1, 32 and 128 it is 3.5, 1.05 and 0.4.
//!
//! The result is independent of the comparison instructions, so that all CPUs find equal positions.

use pulp::{Simd, WithSimd};

use super::select_x86;
use crate::groups::GROUP;

/// Integers in the order of a group's values; elements past the end of a short group are [`ABSENT`].
#[repr(align(64))]
pub(super) struct Keys(pub(super) [i32; GROUP]);

/// Below the key of every finite value, and below every threshold.
const ABSENT: i32 = i32::MIN;

/// One bit per key.
pub(super) type Mask = [u64; GROUP / 64];

/// Number of candidates beyond `k` that are sorted, instead of separated by another comparison of all keys.
const SLACK: usize = 8;
/// Number of lanes for keys and candidates.
pub(super) const LANES: usize = 16;
/// Largest number of candidates: half a group and the slack, in whole lanes.
const CANDIDATES: usize = (GROUP / 2 + SLACK).next_multiple_of(LANES);
/// Number of candidates from which a sort is faster than counting.
const COUNTED_MAX: usize = 48;

/// Steps over all keys, which are implemented for each instruction set.
pub(super) trait Compare: Copy {
    /// Mask of the keys that are at least `threshold`, which is above [`ABSENT`].
    fn at_least(self, keys: &Keys, threshold: i32) -> Mask;

    /// Largest of the keys at positions `i`, `i + 16`, …, for each `i` below 16.
    fn lane_maxima(self, keys: &Keys) -> [i32; LANES];

    /// Number of keys that are at least `threshold`.
    #[inline(always)]
    fn count(self, keys: &Keys, threshold: i32) -> usize {
        self.at_least(keys, threshold).iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// Comparisons in plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Compare for Portable {
    #[inline(always)]
    fn at_least(self, keys: &Keys, threshold: i32) -> Mask {
        let bits = |keys: &[i32]| keys.iter().rev().fold(0, |word, &key| word << 1 | u64::from(key >= threshold));
        std::array::from_fn(|word| bits(&keys.0[64 * word..64 * (word + 1)]))
    }

    #[inline(always)]
    fn lane_maxima(self, keys: &Keys) -> [i32; LANES] {
        let mut maxima = [ABSENT; LANES];
        for keys in keys.0.as_chunks::<LANES>().0 {
            maxima.iter_mut().zip(keys).for_each(|(maximum, &key)| *maximum = (*maximum).max(key));
        }
        maxima
    }

    #[inline(always)]
    fn count(self, keys: &Keys, threshold: i32) -> usize {
        keys.0.iter().map(|&key| u32::from(key >= threshold)).sum::<u32>() as usize
    }
}

/// Writes the code of whole groups: `row` is finite, and `code` has the codec's length.
pub(super) fn encode(k: usize, row: &[f32], code: &mut [u8]) {
    select_x86::dispatch(k, row, code);
}

/// Arguments of [`encode`], and the comparison to use.
pub(super) struct Encode<'a, C> {
    pub(super) compare: C,
    pub(super) k: usize,
    pub(super) row: &'a [f32],
    pub(super) code: &'a mut [u8],
}

impl<C: Compare> WithSimd for Encode<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (group, code) in self.row.chunks(GROUP).zip(self.code.chunks_mut(2 * self.k)) {
            encode_group(self.compare, group, code);
        }
    }
}

/// Writes the positions of the largest values to the first half of `code`, rounded up, of the smallest to the rest.
#[inline(always)]
fn encode_group(compare: impl Compare, group: &[f32], code: &mut [u8]) {
    let mut keys = Keys([ABSENT; GROUP]);
    keys.0.iter_mut().zip(group).for_each(|(key, &value)| *key = ordered(value));
    let mut negated = Keys([ABSENT; GROUP]);
    negated.0.iter_mut().zip(keys.0[..group.len()].iter().rev()).for_each(|(negated, &key)| *negated = !key);

    let (high, low) = code.split_at_mut(code.len().div_ceil(2));
    largest(compare, &keys, high);
    largest(compare, &negated, low);
    let last = (group.len() - 1) as u8;
    low.iter_mut().for_each(|place| *place = last - *place);
}

/// Converts a finite float to an integer of equal order; zero and minus zero give equal integers.
#[inline(always)]
fn ordered(value: f32) -> i32 {
    let bits = (value + 0.0).to_bits() as i32;
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

/// Finds the positions of the largest keys, in order; there are at least as many keys as `places`.
#[inline(always)]
fn largest(compare: impl Compare, keys: &Keys, places: &mut [u8]) {
    let k = places.len();
    if k == 0 {
        return;
    }
    let (mut packed, mut n) = ([0u64; CANDIDATES], 0);
    let mask = candidates(compare, keys, k);
    for (word, mut bits) in mask.into_iter().enumerate() {
        while bits != 0 {
            let place = 64 * word + bits.trailing_zeros() as usize;
            packed[n] = pack(keys.0[place], place);
            n += 1;
            bits &= bits - 1;
        }
    }
    if n > COUNTED_MAX {
        packed[..n].sort_unstable_by(|a, b| b.cmp(a));
        places.iter_mut().zip(packed).for_each(|(place, packed)| *place = place_of(packed));
        return;
    }
    // Lanes past the end are counted as well, and ignored.
    for (chunk, candidates) in packed.as_chunks::<LANES>().0[..n.div_ceil(LANES)].iter().enumerate() {
        let mut before = [0u64; LANES];
        for &other in &packed[..n] {
            for lane in 0..LANES {
                before[lane] += u64::from(other > candidates[lane]);
            }
        }
        for lane in 0..LANES.min(n - chunk * LANES) {
            if let Some(place) = places.get_mut(before[lane] as usize) {
                *place = place_of(candidates[lane]);
            }
        }
    }
}

/// Packs a key and its position into one number: larger for a key that comes first in the order.
#[inline(always)]
fn pack(key: i32, place: usize) -> u64 {
    u64::from(key as u32 ^ 1 << 31) << 8 | (GROUP - 1 - place) as u64
}

#[inline(always)]
fn place_of(packed: u64) -> u8 {
    u8::MAX - packed as u8
}

/// Mask of `k` to `k` + [`SLACK`] positions, among them the `k` first in the order.
#[inline(always)]
fn candidates(compare: impl Compare, keys: &Keys, k: usize) -> Mask {
    let (mut low, mut high) = bounds(compare, keys, k);
    while low < high {
        // The middle, rounded up, of a range that may be wider than an integer.
        let middle = ((i64::from(low) + i64::from(high) + 1) >> 1) as i32;
        let n = compare.count(keys, middle);
        if n < k {
            high = middle - 1;
        } else {
            low = middle;
            if n <= k + SLACK {
                return compare.at_least(keys, low);
            }
        }
    }
    let mask = compare.at_least(keys, low);
    let n: usize = mask.iter().map(|word| word.count_ones() as usize).sum();
    if n <= k + SLACK { mask } else { first_of_ties(compare.at_least(keys, low + 1), mask, k) }
}

/// Mask of all keys above the `k`-th largest, and of the first keys equal to it, `k` in total.
#[inline(always)]
fn first_of_ties(above: Mask, not_below: Mask, k: usize) -> Mask {
    let mut missing = k - above.iter().map(|word| word.count_ones() as usize).sum::<usize>();
    let mut mask = above;
    for (word, (above, not_below)) in above.into_iter().zip(not_below).enumerate() {
        let mut ties = not_below & !above;
        while ties != 0 && missing > 0 {
            mask[word] |= ties & ties.wrapping_neg();
            ties &= ties - 1;
            missing -= 1;
        }
    }
    mask
}

/// Bounds of the search: a key with at least `k` keys at or above it, and the largest key. The least of sixteen
/// maxima has sixteen keys at or above it, which halves the steps for `k` up to 16. If lanes are empty, every key
/// qualifies.
#[inline(always)]
fn bounds(compare: impl Compare, keys: &Keys, k: usize) -> (i32, i32) {
    let maxima = compare.lane_maxima(keys);
    let (mut least, mut largest) = (maxima[0], maxima[0]);
    for maximum in maxima {
        least = least.min(maximum);
        largest = largest.max(maximum);
    }
    (if k <= LANES { least.max(ABSENT + 1) } else { ABSENT + 1 }, largest)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Reference by the definition: sorts everything and takes both ends.
    fn reference(k: usize, group: &[f32]) -> Vec<u8> {
        let mut order: Vec<usize> = (0..group.len()).collect();
        order.sort_by(|&a, &b| group[b].partial_cmp(&group[a]).expect("finite").then(a.cmp(&b)));
        let n_high = k.min(group.len().div_ceil(2));
        let n_low = k.min(group.len() / 2);
        order[..n_high].iter().chain(order.iter().rev().take(n_low)).map(|&place| place as u8).collect()
    }

    fn encode_portably(k: usize, row: &[f32], code: &mut [u8]) {
        Encode { compare: Portable, k, row, code }.with_simd(pulp::Scalar);
    }

    /// Groups of several kinds: any finite bits, few different values (ties, both zeros), mostly zero, and smooth.
    fn any_group() -> impl Strategy<Value = Vec<f32>> {
        let finite = any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |v| v.is_finite());
        let few = prop_oneof![Just(0.0f32), Just(-0.0), Just(1.0), Just(-1.0), Just(f32::MAX), Just(f32::MIN)];
        let sparse = prop_oneof![9 => Just(0.0f32), 1 => -2.0f32..2.0];
        let len = || prop_oneof![4 => Just(GROUP), 1 => 1..GROUP];
        let of = |value: BoxedStrategy<f32>| len().prop_flat_map(move |n| vec(value.clone(), n));
        prop_oneof![of(finite.boxed()), of(few.boxed()), of(sparse.boxed()), of((-3.0f32..3.0).boxed())]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn positions_are_those_of_a_full_sort(group in any_group(), k in prop_oneof![1usize..=128, Just(8), Just(128)]) {
            let expected = reference(k, &group);
            let mut code = vec![0; expected.len()];
            encode(k, &group, &mut code);
            prop_assert_eq!(&code, &expected);
            code.fill(0);
            encode_portably(k, &group, &mut code);
            prop_assert_eq!(&code, &expected);
        }

        #[test]
        fn keys_have_the_order_of_floats(a in any::<f32>(), b in any::<f32>()) {
            prop_assume!(a.is_finite() && b.is_finite());
            prop_assert_eq!(ordered(a).cmp(&ordered(b)), a.partial_cmp(&b).expect("finite"));
            prop_assert!(ordered(a) > ABSENT && !ordered(a) > ABSENT);
        }
    }

    #[test]
    fn equal_values_are_taken_from_both_ends() {
        let mut code = [0; 6];
        encode(3, &[5.0; GROUP], &mut code);
        assert_eq!(code, [0, 1, 2, 255, 254, 253]);
        encode(3, &[0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 0.0], &mut code);
        assert_eq!(code, [0, 1, 2, 6, 5, 4]);
        let mut code = [9; 1];
        encode(8, &[1.0], &mut code);
        assert_eq!(code, [0]);
    }
}
