//! A simulated cache that keeps the rows of the operand which were read last.

use girih_graph_format::Csr;

/// The share of reads of operand rows that find their row among the `rows_held` read last, when the rows of the product
/// are computed one after the other: an ideal cache with least-recently-used replacement, which holds whole rows.
///
/// It stands in for the hit rates of a device's cache: `rows_held` is its size over the bytes of a row. Exact, in one pass:
/// a read hits when fewer than `rows_held` distinct rows were read since the row was read before.
#[must_use]
pub fn lru_hit_rate(graph: &Csr, rows_held: usize) -> f64 {
    if graph.nnz() == 0 {
        return 0.0;
    }
    let mut cache = Lru::new(graph.n_cols(), rows_held);
    let hits = graph.indices().iter().filter(|&&row| cache.read(row)).count();
    hits as f64 / graph.nnz() as f64
}

const NONE: u32 = u32::MAX;

/// A doubly linked list through all rows that are held, newest first.
struct Lru {
    newer: Vec<u32>,
    older: Vec<u32>,
    is_held: Vec<bool>,
    newest: u32,
    oldest: u32,
    n_held: usize,
    capacity: usize,
}

impl Lru {
    fn new(n_rows: usize, capacity: usize) -> Self {
        let links = || vec![NONE; n_rows];
        let is_held = vec![false; n_rows];
        Self { newer: links(), older: links(), is_held, newest: NONE, oldest: NONE, n_held: 0, capacity }
    }

    /// Reads a row; whether it was there.
    fn read(&mut self, row: u32) -> bool {
        if self.capacity == 0 {
            return false;
        }
        let hit = self.is_held[row as usize];
        if hit {
            self.unlink(row);
        } else if self.n_held > self.capacity - 1 {
            let oldest = self.oldest;
            self.unlink(oldest);
        }
        self.link(row);
        hit
    }

    fn unlink(&mut self, row: u32) {
        let (newer, older) = (self.newer[row as usize], self.older[row as usize]);
        match newer {
            NONE => self.newest = older,
            _ => self.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            _ => self.newer[older as usize] = newer,
        }
        self.is_held[row as usize] = false;
        self.n_held -= 1;
    }

    fn link(&mut self, row: u32) {
        (self.newer[row as usize], self.older[row as usize]) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = row,
            newest => self.newer[newest as usize] = row,
        }
        self.newest = row;
        self.is_held[row as usize] = true;
        self.n_held += 1;
    }
}
