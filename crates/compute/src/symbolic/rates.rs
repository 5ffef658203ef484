//! [`Rates`] and [`CardRates`]: what devices do in a second.

use serde::{Deserialize, Serialize};

use crate::Dtype;

/// What a processor does in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes read or written in order.
    pub stream_bytes: f64,
    /// Bytes of rows gathered in a sparse product.
    pub gather_bytes: f64,
    /// Floating-point operations of a dense product.
    pub flops: f64,
}

/// What a CUDA device takes for its operations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardRates {
    /// Bytes a second, read or written in order.
    pub stream_bytes: f64,
    /// Floating-point operations a second of dense products, by storage type.
    pub flops: ByDtype<f64>,
    /// Sparse products, by the storage type of the operand.
    pub entries: ByDtype<BlockSeconds>,
    /// Seconds that an operation takes before its first byte, launched as part of a graph.
    pub launch_seconds: f64,
}

impl CardRates {
    /// The same card, all of whose passes and dense products are so many times as fast.
    #[must_use]
    pub fn times(self, speed: f64) -> Self {
        let flops = ByDtype { f32: speed * self.flops.f32, bf16: speed * self.flops.bf16 };
        Self { stream_bytes: speed * self.stream_bytes, flops, ..self }
    }
}

/// A number for each storage type.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByDtype<T> {
    /// Of `f32`.
    pub f32: T,
    /// Of bf16.
    pub bf16: T,
}

impl<T: Copy> ByDtype<T> {
    /// That of a storage type.
    #[must_use]
    pub fn of(&self, dtype: Dtype) -> T {
        match dtype {
            Dtype::F32 => self.f32,
            Dtype::Bf16 => self.bf16,
        }
    }
}

/// What the entries of a sparse matrix are to the rank that multiplies with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// All of the graph's, on one device. Products make rows of the operand times factors before they gather them.
    Whole,
    /// Those whose columns are the rank's own, which an order of nodes makes many. Operands come times factors.
    Own,
    /// Those of other ranks' columns: fewer in each row, and farther from each other. Operands come times factors.
    Others,
    /// Those of one of several others, whose panels are multiplied one after the other: fewest in each row. Operands
    /// come times factors.
    Single,
}

impl BlockKind {
    /// Passes over the operand before a product gathers its rows: to read it, and to write it times factors.
    #[must_use]
    pub fn operand_passes(self) -> usize {
        if self == Self::Whole { 2 } else { 0 }
    }

    /// Passes over the result: to write it, and before that to read what it is added to.
    #[must_use]
    pub fn result_passes(adds: bool) -> usize {
        if adds { 2 } else { 1 }
    }
}

/// Seconds of a stored entry, by the block that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockSeconds {
    /// Of [`BlockKind::Whole`].
    pub whole: EntrySeconds,
    /// Of [`BlockKind::Own`].
    pub own: EntrySeconds,
    /// Of [`BlockKind::Others`].
    pub others: EntrySeconds,
    /// Of [`BlockKind::Single`].
    pub single: EntrySeconds,
}

impl BlockSeconds {
    /// Entries that take as long in every block.
    #[must_use]
    pub const fn alike(seconds: EntrySeconds) -> Self {
        Self { whole: seconds, own: seconds, others: seconds, single: seconds }
    }

    /// Those of a block.
    #[must_use]
    pub fn of(&self, kind: BlockKind) -> EntrySeconds {
        match kind {
            BlockKind::Whole => self.whole,
            BlockKind::Own => self.own,
            BlockKind::Others => self.others,
            BlockKind::Single => self.single,
        }
    }
}

/// Seconds of a stored entry in a sparse product, besides passing over operand and result once: which depends on the
/// graph and on the order of its nodes, because caches and dense blocks decide.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntrySeconds {
    /// Columns of operands that times are known for, ascending; the last again and again where there are fewer.
    widths: [usize; Self::MOST],
    seconds: [f64; Self::MOST],
}

impl EntrySeconds {
    /// The columns of operands that times are known for wherever they come from.
    pub const WIDTHS: [usize; 5] = [16, 32, 64, 128, 256];
    /// As many there may be.
    pub const MOST: usize = Self::WIDTHS.len() + 3;

    /// From a time for each of [`WIDTHS`](Self::WIDTHS).
    #[must_use]
    pub fn new(seconds: [f64; Self::WIDTHS.len()]) -> Self {
        Self::at_widths(Self::WIDTHS.into_iter().zip(seconds))
    }

    /// From columns, ascending, with their times.
    ///
    /// # Panics
    /// When there are none, or more than [`MOST`](Self::MOST).
    #[must_use]
    pub fn at_widths(times: impl IntoIterator<Item = (usize, f64)>) -> Self {
        let times: Vec<(usize, f64)> = times.into_iter().collect();
        assert!((1..=Self::MOST).contains(&times.len()), "some times");
        let at = |i: usize| times[i.min(times.len() - 1)];
        Self { widths: std::array::from_fn(|i| at(i).0), seconds: std::array::from_fn(|i| at(i).1) }
    }

    /// The time at `cols` columns: on straight lines between those that are known; for fewer columns the first one,
    /// since an id costs what it costs; for more in proportion.
    #[must_use]
    pub fn at(&self, cols: usize) -> f64 {
        let Self { widths, seconds } = self;
        match widths.iter().position(|&width| cols <= width) {
            Some(0) => seconds[0],
            Some(i) => {
                let share = (cols - widths[i - 1]) as f64 / (widths[i] - widths[i - 1]) as f64;
                seconds[i - 1] + share * (seconds[i] - seconds[i - 1])
            }
            None => seconds[Self::MOST - 1] * cols as f64 / widths[Self::MOST - 1] as f64,
        }
    }
}

/// Rates of a symbolic device.
#[expect(clippy::large_enum_variant, reason = "there is one, which is copied")]
#[derive(Clone, Copy, Debug)]
pub(super) enum Speed {
    /// Nobody has measured it: nothing takes any time.
    Unknown,
    Processor(Rates),
    Card(CardRates),
}

impl Speed {
    /// Seconds of an operation that moves `bytes` in order and computes `flops` on operands of `dtype`; whichever takes
    /// longer decides.
    pub(super) fn operation(&self, bytes: f64, flops: f64, dtype: Dtype) -> f64 {
        match self {
            Self::Unknown => 0.0,
            Self::Processor(rates) => (bytes / rates.stream_bytes).max(flops / rates.flops),
            Self::Card(rates) => rates.launch_seconds + (bytes / rates.stream_bytes).max(flops / rates.flops.of(dtype)),
        }
    }

    /// Seconds of gathering a row of `cols` columns for each of `n` entries of a block.
    pub(super) fn gather(&self, kind: BlockKind, n: f64, cols: usize, dtype: Dtype) -> f64 {
        match self {
            Self::Unknown => 0.0,
            Self::Processor(rates) => n * (cols * dtype.n_bytes()) as f64 / rates.gather_bytes,
            Self::Card(rates) => rates.launch_seconds + n * rates.entries.of(dtype).of(kind).at(cols),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_widths_lie_on_lines() {
        let entries = EntrySeconds::new([1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!([1, 16, 24, 64, 96, 256, 512].map(|cols| entries.at(cols)), [1.0, 1.0, 1.5, 4.0, 6.0, 16.0, 32.0]);
        let more = EntrySeconds::at_widths([(16, 1.0), (47, 5.0), (64, 4.0)]);
        assert_eq!([16, 47, 64, 128].map(|cols| more.at(cols)), [1.0, 5.0, 4.0, 8.0]);
    }
}
