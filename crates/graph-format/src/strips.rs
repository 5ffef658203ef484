//! Strips of rows, as high as a block or tile, in which the entries of every block are counted.

use std::ops::Range;

use crate::Csr;

/// Matrix cut into strips of rows, and these into blocks.
#[derive(Clone, Copy)]
pub(crate) struct Strips<'a> {
    pub(crate) csr: &'a Csr,
    /// Number of rows of a strip.
    pub(crate) height: usize,
    /// Number of columns of a block.
    pub(crate) width: usize,
}

impl Strips<'_> {
    pub(crate) fn n(&self) -> usize {
        self.csr.n_rows().div_ceil(self.height)
    }

    pub(crate) fn rows(&self, strip: usize) -> Range<usize> {
        strip * self.height..((strip + 1) * self.height).min(self.csr.n_rows())
    }
}

/// Counter of the entries of the blocks of one strip after another, with one counter per block column.
pub(crate) struct StripCounter<'a> {
    strips: Strips<'a>,
    counts: Vec<u32>,
}

impl<'a> StripCounter<'a> {
    pub(crate) fn new(strips: Strips<'a>) -> Self {
        Self { strips, counts: vec![0; strips.csr.n_cols().div_ceil(strips.width)] }
    }

    /// Block column and number of entries of every block that has any, ascending.
    pub(crate) fn count(&mut self, strip: usize) -> Vec<(u32, u32)> {
        let mut touched = Vec::new();
        for r in self.strips.rows(strip) {
            for &c in self.strips.csr.row(r) {
                let col = c / self.strips.width as u32;
                if self.counts[col as usize] == 0 {
                    touched.push(col);
                }
                self.counts[col as usize] += 1;
            }
        }
        touched.sort_unstable();
        touched.into_iter().map(|col| (col, std::mem::take(&mut self.counts[col as usize]))).collect()
    }
}
