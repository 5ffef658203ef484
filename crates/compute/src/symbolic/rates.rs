//! [`Rates`] and [`GpuRates`]: speeds of CPUs and GPUs.

use serde::{Deserialize, Serialize};

use crate::Dtype;

/// Rates of a CPU, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes read or written in order, per second.
    pub stream_bytes: f64,
    /// Bytes of rows gathered in a sparse product, per second.
    pub gather_bytes: f64,
    /// Floating-point operations of a dense product, per second.
    pub flops: f64,
}

/// Rates and latencies of a CUDA device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuRates {
    /// Bytes read or written in order, per second.
    pub stream_bytes: f64,
    /// Floating-point operations of dense products per second, by storage type.
    pub flops: ByDtype<f64>,
    /// Seconds per entry of sparse products, by the storage type of the operand.
    pub entries: ByDtype<BlockSeconds>,
    /// Launch latency in seconds of an operation that is part of a CUDA graph.
    pub launch_seconds: f64,
}

impl GpuRates {
    /// Rates of a GPU whose passes and dense products are `speed` times as fast.
    #[must_use]
    pub fn times(self, speed: f64) -> Self {
        let flops = ByDtype { f32: speed * self.flops.f32, bf16: speed * self.flops.bf16 };
        Self { stream_bytes: speed * self.stream_bytes, flops, ..self }
    }
}

/// Value for each storage type.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByDtype<T> {
    /// Value for `f32`.
    pub f32: T,
    /// Value for bf16.
    pub bf16: T,
}

impl<T: Copy> ByDtype<T> {
    /// Value for the storage type `dtype`.
    #[must_use]
    pub fn of(&self, dtype: Dtype) -> T {
        match dtype {
            Dtype::F32 => self.f32,
            Dtype::Bf16 => self.bf16,
        }
    }
}

/// Kind of block of the adjacency, seen from the rank that multiplies with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The whole graph on one device. Products scale the rows of the operand before they gather them.
    Whole,
    /// The rank's own columns. A good node order puts many entries here. Operands arrive scaled.
    Own,
    /// Columns of all other ranks: fewer entries per row, and farther apart. Operands arrive scaled.
    Others,
    /// Columns of one other rank, whose panel is multiplied separately: the fewest entries per row. Operands arrive
    /// scaled.
    Single,
}

impl BlockKind {
    /// Number of passes over the operand before the gather: one to read it and one to write it scaled, or none.
    #[must_use]
    pub fn operand_passes(self) -> usize {
        if self == Self::Whole { 2 } else { 0 }
    }

    /// Number of passes over the result: one to write it, and one more to read it if the product adds to it.
    #[must_use]
    pub fn result_passes(adds: bool) -> usize {
        if adds { 2 } else { 1 }
    }
}

/// Seconds per stored entry, by kind of block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockSeconds {
    /// Seconds per entry of [`BlockKind::Whole`].
    pub whole: EntrySeconds,
    /// Seconds per entry of [`BlockKind::Own`].
    pub own: EntrySeconds,
    /// Seconds per entry of [`BlockKind::Others`].
    pub others: EntrySeconds,
    /// Seconds per entry of [`BlockKind::Single`].
    pub single: EntrySeconds,
}

impl BlockSeconds {
    /// Equal times for every kind of block.
    #[must_use]
    pub const fn alike(seconds: EntrySeconds) -> Self {
        Self { whole: seconds, own: seconds, others: seconds, single: seconds }
    }

    /// Seconds per entry of a block of this kind.
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

/// Seconds per stored entry of a sparse product, by width, without the passes over operand and result. They depend on
/// the graph and its node order, through caches and dense blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntrySeconds {
    /// Measured operand widths, ascending. The last one fills the rest of the array.
    widths: [usize; Self::MOST],
    seconds: [f64; Self::MOST],
}

impl EntrySeconds {
    /// Standard operand widths, in columns.
    pub const WIDTHS: [usize; 5] = [16, 32, 64, 128, 256];
    /// Maximum number of measured widths.
    pub const MOST: usize = Self::WIDTHS.len() + 3;

    /// Creates times from one for each of [`WIDTHS`](Self::WIDTHS).
    #[must_use]
    pub fn new(seconds: [f64; Self::WIDTHS.len()]) -> Self {
        Self::at_widths(Self::WIDTHS.into_iter().zip(seconds))
    }

    /// Creates times from pairs of width (columns, ascending) and seconds.
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

    /// Seconds per entry at `cols` columns. Linear between measured widths, constant below the first one (reading an
    /// id has a fixed cost), and proportional above the last one.
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
    /// Not measured: everything takes zero seconds.
    Unknown,
    Cpu(Rates),
    Gpu(GpuRates),
}

impl Speed {
    /// Seconds of an operation that moves `bytes` in order and computes `flops` on operands of `dtype`: the longer of
    /// the two, plus the launch latency on a GPU.
    pub(super) fn operation(&self, bytes: f64, flops: f64, dtype: Dtype) -> f64 {
        match self {
            Self::Unknown => 0.0,
            Self::Cpu(rates) => (bytes / rates.stream_bytes).max(flops / rates.flops),
            Self::Gpu(rates) => rates.launch_seconds + (bytes / rates.stream_bytes).max(flops / rates.flops.of(dtype)),
        }
    }

    /// Seconds of a gather of `n` rows of `cols` columns, one for each entry of a block.
    pub(super) fn gather(&self, kind: BlockKind, n: f64, cols: usize, dtype: Dtype) -> f64 {
        match self {
            Self::Unknown => 0.0,
            Self::Cpu(rates) => n * (cols * dtype.n_bytes()) as f64 / rates.gather_bytes,
            Self::Gpu(rates) => rates.launch_seconds + n * rates.entries.of(dtype).of(kind).at(cols),
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
