//! Philox 4×32-10 and the two ways to use it: by counter ([`Key::block`]) and in order ([`Stream`]).

use crate::{bounded, unit_f32, unit_f64};

/// Multipliers of the first and the third counter word in each round.
pub const PHILOX_MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Increments of the two key words after each round (Weyl constants).
pub const PHILOX_WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// Number of rounds.
pub const PHILOX_ROUNDS: usize = 10;

/// Ten rounds of Philox 4×32: four random words for a 128-bit counter and a 64-bit key.
#[inline(always)] // Kernels compute many blocks side by side, which only inlined code can.
#[must_use]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    let mut k = key;
    for _ in 0..PHILOX_ROUNDS {
        let p0 = u64::from(PHILOX_MULTIPLIERS[0]) * u64::from(c[0]);
        let p1 = u64::from(PHILOX_MULTIPLIERS[1]) * u64::from(c[2]);
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
        k = [k[0].wrapping_add(PHILOX_WEYL[0]), k[1].wrapping_add(PHILOX_WEYL[1])];
    }
    c
}

/// Key of a family of draws: the user's seed and the purpose of the draws.
///
/// Two purposes never share draws, whatever their counters: the purpose is part of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    words: [u32; 2],
}

impl Key {
    /// Key from a seed and a purpose number; purposes are listed in `docs/draws.md`.
    ///
    /// The two are mixed (one Philox block) so that neighboring seeds give unrelated keys.
    #[must_use]
    pub fn new(seed: u64, purpose: u32) -> Self {
        let mixed = philox4x32([purpose, 0, 0, 0], [seed as u32, (seed >> 32) as u32]);
        Self { words: [mixed[0], mixed[1]] }
    }

    /// Derived key for the `index`-th member of a family (an epoch, a run, a layer).
    #[must_use]
    pub fn child(self, index: u64) -> Self {
        let mixed = philox4x32([index as u32, (index >> 32) as u32, 0, 1], self.words);
        Self { words: [mixed[0], mixed[1]] }
    }

    /// The two key words, for kernels.
    #[inline]
    #[must_use]
    pub fn words(self) -> [u32; 2] {
        self.words
    }

    /// Four random words at the counter `(high, low)`; `low` fills the two lower counter words.
    #[inline]
    #[must_use]
    pub fn block(self, high: u64, low: u64) -> [u32; 4] {
        philox4x32([low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32], self.words)
    }

    /// Stream of the draws at `(high, low)`, `(high, low + 1)`, … in order.
    #[must_use]
    pub fn stream(self, high: u64, low: u64) -> Stream {
        Stream { key: self, high, low, words: [0; 4], used: 4 }
    }
}

/// Sequence of draws of one key. It is a plain value, and cloning it repeats the sequence.
#[derive(Clone, Debug)]
pub struct Stream {
    key: Key,
    high: u64,
    low: u64,
    words: [u32; 4],
    used: usize,
}

impl Stream {
    /// Draws the next 32 bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.words = self.key.block(self.high, self.low);
            self.low = self.low.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// Draws the next 64 bits, low word first.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let low = u64::from(self.next_u32());
        low | (u64::from(self.next_u32()) << 32)
    }

    /// Draws a float in `[0, 1)` with 24 random bits.
    #[inline]
    pub fn unit_f32(&mut self) -> f32 {
        unit_f32(self.next_u32())
    }

    /// Draws a float in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn unit_f64(&mut self) -> f64 {
        unit_f64(self.next_u64())
    }

    /// Draws an integer in `0..bound`; see [`bounded`].
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        bounded(self.next_u64(), bound)
    }

    /// Draws a standard normal value by Box–Muller. It uses the cosine half and drops the sine half, so that each
    /// value takes exactly two words.
    #[inline]
    pub fn normal(&mut self) -> f32 {
        // 1 - u is in (0, 1]: the logarithm stays finite.
        let radius = (-2.0 * (1.0 - f64::from(self.unit_f32())).ln()).sqrt();
        let angle = std::f64::consts::TAU * f64::from(self.unit_f32());
        (radius * angle.cos()) as f32
    }

    /// Shuffles in place by Fisher–Yates, from the last position down.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the Random123 library (`kat_vectors`, philox4x32 10).
    #[test]
    fn known_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn purposes_seeds_and_children_differ() {
        let draws = [
            Key::new(1, 1).block(0, 0),
            Key::new(1, 2).block(0, 0),
            Key::new(2, 1).block(0, 0),
            Key::new(1, 1).child(0).block(0, 0),
            Key::new(1, 1).child(1).block(0, 0),
        ];
        for (i, a) in draws.iter().enumerate() {
            assert!(draws[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn a_stream_walks_the_counter() {
        let key = Key::new(3, 9);
        let mut stream = key.stream(5, 0);
        let first: Vec<u32> = (0..8).map(|_| stream.next_u32()).collect();
        assert_eq!(first[..4], key.block(5, 0));
        assert_eq!(first[4..], key.block(5, 1));
    }

    #[test]
    fn normals_have_unit_variance() {
        let mut stream = Key::new(11, 3).stream(0, 0);
        let values: Vec<f64> = (0..200_000).map(|_| f64::from(stream.normal())).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.015, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn shuffling_is_a_permutation() {
        let mut items: Vec<u32> = (0..1000).collect();
        Key::new(1, 1).stream(0, 0).shuffle(&mut items);
        assert_ne!(items[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        items.sort_unstable();
        assert!(items.iter().enumerate().all(|(i, &v)| i as u32 == v));
    }
}
