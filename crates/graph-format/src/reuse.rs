//! [`ReuseCurve`]: hit rates of LRU caches of any size for the operand rows that a sparse product reads.

use crate::{Csr, NodeId};

/// Hit rate of an ideal LRU cache, as a function of its size, for the operand rows of a product. The rows of the
/// product are computed in order, and each entry reads the operand row of its column.
///
/// A cache of `k` rows serves a read if fewer than `k` distinct other rows were read since the last read of its row
/// (Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970). For large
/// matrices, a random sample of the columns is simulated, and its distances are scaled up (Waldspurger et al.,
/// "Efficient MRC Construction with SHARDS", FAST 2015).
#[derive(Clone, Debug, PartialEq)]
pub struct ReuseCurve {
    /// Sampling factor: one column in `scale` is simulated.
    scale: usize,
    /// Expected number of simulated reads.
    n_reads: f64,
    /// Cumulative hits: `served[k]` simulated reads hit a cache of `k` rows.
    served: Vec<f64>,
}

impl ReuseCurve {
    /// Computes the curve of `csr` from about `n_reads` of its entries; exact if it has no more than that. Takes one
    /// pass over the entries, and for each simulated entry time logarithmic in the number of columns read. Memory is
    /// four bytes per column, and some dozen for each column read.
    #[must_use]
    pub fn of(csr: &Csr, n_reads: usize) -> Self {
        let shift = (csr.nnz().saturating_sub(1) / n_reads.max(1))
            .checked_ilog2()
            .map_or(0, |log| log + 1)
            .min(NodeId::BITS - 1);
        let mut columns = Columns::new(csr.n_cols());
        let mut reads_at: Vec<u64> = vec![0];
        let mut n_seen = 0u64;
        for &column in csr.indices().iter().filter(|&&column| is_chosen(column, shift)) {
            n_seen += 1;
            if let Some(distance) = columns.read(column) {
                if distance >= reads_at.len() {
                    reads_at.resize(distance + 1, 0);
                }
                reads_at[distance] += 1;
            }
        }
        let n_reads = csr.nnz() as f64 / (1u64 << shift) as f64;
        // Frequently read columns hit at short distances, so an excess or lack of reads in the sample is corrected
        // there.
        let mut total = n_reads - n_seen as f64;
        let mut served = vec![0.0];
        served.extend(reads_at.iter().map(|&reads| {
            total += reads as f64;
            total.clamp(0.0, n_reads)
        }));
        Self { scale: 1 << shift, n_reads, served }
    }

    /// Hit rate of a cache of `rows` operand rows, in 0..=1.
    #[must_use]
    pub fn hit_rate(&self, rows: usize) -> f64 {
        if self.n_reads == 0.0 || rows == 0 {
            return 0.0;
        }
        // A distance of `k` among the sampled columns stands for distances around `k · scale`.
        let position = (rows as f64 + 0.5 * (self.scale - 1) as f64) / self.scale as f64;
        let at = |k: usize| self.served[k.min(self.served.len() - 1)];
        let (below, rest) = (position as usize, position.fract());
        (at(below) + rest * (at(below + 1) - at(below))) / self.n_reads
    }
}

/// Whether a column is sampled, with a chance of `2^-shift`. A hash decides, so the choice is independent of the
/// order of columns.
#[inline]
fn is_chosen(column: NodeId, shift: u32) -> bool {
    let mixed = (column ^ (column >> 15)).wrapping_mul(0x2c1b_3c6d);
    (mixed ^ (mixed >> 12)).wrapping_mul(0x297a_2d39) >> 1 >> (NodeId::BITS - 1 - shift) == 0
}

/// Columns that were read, each at the time of its last read.
struct Columns {
    /// Number of each column among the read ones, plus one; 0 before its first read.
    number: Vec<u32>,
    /// Time of the last read, by number.
    last: Vec<u32>,
    /// Number of the column read at each time since the last compaction.
    read_at: Vec<u32>,
    /// Number of times until the next compaction.
    n_times: usize,
    /// One at the time of the last read of each column, as prefix sums.
    newest: Prefix,
}

/// Number of times before the first compaction.
const FIRST_TIMES: usize = 64;

impl Columns {
    fn new(n_cols: usize) -> Self {
        Self {
            number: vec![0; n_cols],
            last: Vec::new(),
            read_at: Vec::new(),
            n_times: FIRST_TIMES,
            newest: Prefix { sums: vec![0; FIRST_TIMES + 1] },
        }
    }

    /// Reads a column; returns the number of other columns read since its last read.
    fn read(&mut self, column: NodeId) -> Option<usize> {
        if self.read_at.len() == self.n_times {
            self.compact();
        }
        let now = self.read_at.len();
        self.newest.add(now, 1);
        let number = &mut self.number[column as usize];
        if *number == 0 {
            self.last.push(now as u32);
            *number = self.last.len() as u32;
            self.read_at.push(*number - 1);
            return None;
        }
        let i = *number - 1;
        self.read_at.push(i);
        let before = std::mem::replace(&mut self.last[i as usize], now as u32) as usize;
        let since = self.last.len() - self.newest.up_to(before) as usize;
        self.newest.add(before, -1);
        Some(since)
    }

    /// Drops all times but those of last reads, and frees three quarters of the times.
    fn compact(&mut self) {
        let times = std::mem::take(&mut self.read_at);
        self.n_times = self.n_times.max(4 * self.last.len() + FIRST_TIMES);
        self.read_at.reserve_exact(self.n_times);
        self.newest.sums.clear();
        self.newest.sums.resize(self.n_times + 1, 0);
        for (time, i) in times.into_iter().enumerate() {
            if self.last[i as usize] == time as u32 {
                self.last[i as usize] = self.read_at.len() as u32;
                self.newest.add(self.read_at.len(), 1);
                self.read_at.push(i);
            }
        }
    }
}

/// Prefix sums of numbers that change (a Fenwick tree, Software: Practice and Experience 24(3), 1994).
struct Prefix {
    /// Node sums: `sums[i]` covers the positions before `i`, as many as the lowest bit of `i` says.
    sums: Vec<i32>,
}

impl Prefix {
    fn add(&mut self, position: usize, value: i32) {
        let mut i = position + 1;
        while i < self.sums.len() {
            self.sums[i] += value;
            i += i & i.wrapping_neg();
        }
    }

    /// Sum of positions `0..=position`.
    fn up_to(&self, position: usize) -> i32 {
        let (mut i, mut sum) = (position + 1, 0);
        while i > 0 {
            sum += self.sums[i];
            i &= i - 1;
        }
        sum
    }
}
