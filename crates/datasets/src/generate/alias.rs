//! [`AliasTable`]: draws from a discrete distribution in constant time (Walker 1977; built as by Vose 1991).

/// Sixty-four random bits, consumed as a fraction in `[0, 1)`: a draw from `n` takes the leading `log2(n)` bits.
pub(super) struct Fraction(pub(super) u64);

impl Fraction {
    /// Draws an integer in `0..n`.
    #[inline]
    pub(super) fn take(&mut self, n: u32) -> u32 {
        let product = u128::from(self.0) * u128::from(n);
        self.0 = product as u64;
        (product >> 64) as u32
    }

    /// Leading 32 of the remaining bits.
    #[inline]
    fn coin(&self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Table of positions `0..n`, each drawn with a probability proportional to its weight.
pub(super) struct AliasTable {
    slots: Vec<Slot>,
}

/// Slot of a table: it yields its own position when the coin is below `threshold`, else `alias`.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    threshold: u32,
    alias: u32,
}

impl AliasTable {
    /// Makes a table over positive weights; at most 2³² of them.
    pub(super) fn new(weights: &[f32]) -> Self {
        Self { slots: build(weights) }
    }

    #[inline]
    pub(super) fn draw(&self, fraction: &mut Fraction) -> u32 {
        draw(&self.slots, fraction)
    }
}

/// Draws from a table that is a range of a larger array.
#[inline]
pub(super) fn draw(slots: &[Slot], fraction: &mut Fraction) -> u32 {
    let position = fraction.take(slots.len() as u32);
    let slot = slots[position as usize];
    if fraction.coin() < slot.threshold { position } else { slot.alias }
}

/// Builds the slots of a table over positive weights.
pub(super) fn build(weights: &[f32]) -> Vec<Slot> {
    let n = weights.len();
    let sum: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let mut share: Vec<f64> = weights.iter().map(|&w| f64::from(w) * n as f64 / sum).collect();
    let mut slots: Vec<Slot> = (0..n as u32).map(|alias| Slot { threshold: u32::MAX, alias }).collect();
    let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..n as u32).partition(|&i| share[i as usize] < 1.0);
    while let (Some(&giver), Some(taker)) = (large.last(), small.pop()) {
        let missing = 1.0 - share[taker as usize];
        slots[taker as usize] = Slot { threshold: (share[taker as usize] * 2f64.powi(32)) as u32, alias: giver };
        share[giver as usize] -= missing;
        if share[giver as usize] < 1.0 {
            large.pop();
            small.push(giver);
        }
    }
    // The remaining slots differ from one by rounding only, and stay full.
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_random::Key;

    #[test]
    fn positions_are_drawn_by_weight() {
        let weights = [1.0, 2.0, 3.0, 0.5, 13.5];
        let table = AliasTable::new(&weights);
        let mut counts = [0u32; 5];
        let mut stream = Key::new(1, 1).stream(0, 0);
        for _ in 0..200_000 {
            counts[table.draw(&mut Fraction(stream.next_u64())) as usize] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            let expected = 200_000.0 * f64::from(weight) / 20.0;
            // Five standard deviations of a binomial count.
            assert!((f64::from(*count) - expected).abs() < 5.0 * expected.sqrt(), "{counts:?}");
        }
    }
}
