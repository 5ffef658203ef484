//! [`ReuseCurve`]: how often caches of any size hold the operand row that a sparse product reads.

use crate::{Csr, NodeId};

/// For every size of an ideal cache that keeps what was read last, the share of reads that it serves, when the rows of
/// a product are computed one after the other: each entry reads the operand's row of its column.
///
/// A read is served by a cache of `k` rows when fewer than `k` distinct other rows were read since its row was read
/// before (Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970). Large
/// matrices are looked at through a random share of their columns, whose distances are scaled up (Waldspurger et al.,
/// "Efficient MRC Construction with SHARDS", FAST 2015).
#[derive(Clone, Debug, PartialEq)]
pub struct ReuseCurve {
    /// One column of so many is looked at.
    scale: usize,
    /// Reads that are looked at, in expectation.
    n_reads: f64,
    /// `served[k]`: those that a cache of `k` rows serves, of the columns looked at.
    served: Vec<f64>,
}

impl ReuseCurve {
    /// The curve of `csr` from about `n_reads` of its entries; exact where it has no more than that. One pass over the
    /// entries, and for those looked at time logarithmic in the number of columns.
    #[must_use]
    pub fn of(csr: &Csr, n_reads: usize) -> Self {
        let shift = (csr.nnz().saturating_sub(1) / n_reads.max(1))
            .checked_ilog2()
            .map_or(0, |log| log + 1)
            .min(NodeId::BITS - 1);
        let mut columns = Columns::new(csr.n_cols(), shift);
        let mut reads_at: Vec<u64> = vec![0; columns.n_chosen + 1];
        let mut n_seen = 0u64;
        for &column in csr.indices().iter().filter(|&&column| is_chosen(column, shift)) {
            n_seen += 1;
            if let Some(distance) = columns.read(column) {
                reads_at[distance] += 1;
            }
        }
        let n_reads = csr.nnz() as f64 / (1u64 << shift) as f64;
        // Busy columns are read again at once: they are what a share of the columns has too many or too few of.
        let mut total = n_reads - n_seen as f64;
        let mut served = vec![0.0];
        served.extend(reads_at.iter().map(|&reads| {
            total += reads as f64;
            total.clamp(0.0, n_reads)
        }));
        Self { scale: 1 << shift, n_reads, served }
    }

    /// The share of reads that a cache of `rows` rows of the operand serves.
    #[must_use]
    pub fn hit_rate(&self, rows: usize) -> f64 {
        if self.n_reads == 0.0 || rows == 0 {
            return 0.0;
        }
        // A distance of `k` among the columns looked at stands for distances around `k · scale`.
        let position = (rows as f64 + 0.5 * (self.scale - 1) as f64) / self.scale as f64;
        let at = |k: usize| self.served[k.min(self.served.len() - 1)];
        let (below, rest) = (position as usize, position.fract());
        (at(below) + rest * (at(below + 1) - at(below))) / self.n_reads
    }
}

/// Whether one column of `2^shift` is looked at; by a hash, so that it does not depend on how columns are numbered
/// relative to each other.
#[inline]
fn is_chosen(column: NodeId, shift: u32) -> bool {
    let mixed = (column ^ (column >> 15)).wrapping_mul(0x2c1b_3c6d);
    (mixed ^ (mixed >> 12)).wrapping_mul(0x297a_2d39) >> 1 >> (NodeId::BITS - 1 - shift) == 0
}

/// The columns that are looked at, each at the time of its last read.
struct Columns {
    /// Number of each column among the chosen ones.
    number: Vec<u32>,
    n_chosen: usize,
    /// Time of the last read of each chosen column; [`NEVER`] before the first.
    last: Vec<u32>,
    /// What was read at each time since the times were last compacted.
    read_at: Vec<u32>,
    /// One at the time of the last read of each column, as prefix sums.
    newest: Prefix,
    n_read: usize,
}

const NEVER: u32 = u32::MAX;

impl Columns {
    fn new(n_cols: usize, shift: u32) -> Self {
        let mut number = vec![NEVER; n_cols];
        let chosen = number.iter_mut().zip(0..).filter(|(_, column)| is_chosen(*column, shift));
        let n_chosen = chosen.zip(0..).map(|((slot, _), i)| *slot = i).count();
        // Compaction frees at least three quarters of the times.
        let times = 4 * n_chosen + 64;
        Self {
            number,
            n_chosen,
            last: vec![NEVER; n_chosen],
            read_at: Vec::with_capacity(times),
            newest: Prefix { sums: vec![0; times + 1] },
            n_read: 0,
        }
    }

    /// Reads a column; how many others were read since it was read before.
    fn read(&mut self, column: NodeId) -> Option<usize> {
        let i = self.number[column as usize];
        if self.read_at.len() == self.read_at.capacity() {
            self.compact();
        }
        let before = std::mem::replace(&mut self.last[i as usize], self.read_at.len() as u32);
        self.newest.add(self.read_at.len(), 1);
        self.read_at.push(i);
        if before == NEVER {
            self.n_read += 1;
            return None;
        }
        let since = self.n_read - self.newest.up_to(before as usize) as usize;
        self.newest.add(before as usize, -1);
        Some(since)
    }

    /// Forgets all times but those of last reads.
    fn compact(&mut self) {
        let times = std::mem::take(&mut self.read_at);
        self.read_at.reserve_exact(times.capacity());
        self.newest.sums.fill(0);
        for (time, i) in times.into_iter().enumerate() {
            if self.last[i as usize] == time as u32 {
                self.last[i as usize] = self.read_at.len() as u32;
                self.newest.add(self.read_at.len(), 1);
                self.read_at.push(i);
            }
        }
    }
}

/// Numbers whose prefix sums change (a tree after Fenwick, Software: Practice and Experience 24(3), 1994).
struct Prefix {
    /// `sums[i]` covers as many positions before `i` as its lowest bit says.
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

    /// The sum of positions `0..=position`.
    fn up_to(&self, position: usize) -> i32 {
        let (mut i, mut sum) = (position + 1, 0);
        while i > 0 {
            sum += self.sums[i];
            i &= i - 1;
        }
        sum
    }
}
