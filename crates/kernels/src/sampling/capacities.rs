//! [`Capacities`]: sizes of the batches that memory is allocated for.

use girih_sampling::{Draws, Neighbors};

use super::BatchSizes;

/// Capacities of the batches of a sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// Nodes found before each hop and after the last: of the seeds, with the first hop, and so on.
    pub nodes: Vec<u64>,
    /// Edges of all hops together.
    pub edges: u64,
}

/// Bounds of every batch.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'a> {
    pub(super) n_nodes: u64,
    pub(super) n_edges: u64,
    /// Most edges that a given number of nodes has.
    pub(super) edges_of_nodes: &'a dyn Fn(u64) -> u64,
    pub(super) batch_size: u64,
    pub(super) hops: &'a [Neighbors],
    pub(super) draws: Draws,
    pub(super) replace: bool,
    /// Whether the last hop finds no nodes, because its sources keep their global ids.
    pub(super) last_is_global: bool,
}

impl Capacities {
    /// Upper bound of every batch: `B · Π (1 + K)` nodes, or all of the graph.
    pub(super) fn largest(bounds: Bounds<'_>) -> Self {
        let mut nodes = vec![bounds.batch_size.min(bounds.n_nodes)];
        let mut edges = 0u64;
        for (hop, &neighbors) in bounds.hops.iter().enumerate() {
            let rows = nodes[hop];
            let of_hop = bounds.edges_of(rows, neighbors);
            edges = edges.saturating_add(of_hop);
            let finds = if hop + 1 == bounds.hops.len() && bounds.last_is_global { 0 } else { of_hop };
            nodes.push(rows.saturating_add(finds).min(bounds.n_nodes));
        }
        Self { nodes, edges }
    }

    /// Capacities 3 % above the largest of some batches, and no more than these capacities, which none exceeds.
    pub(super) fn fitted(&self, measured: &[BatchSizes]) -> Self {
        let with_margin = |most: u64| most + most.div_ceil(100) * 3;
        let most = |of: &dyn Fn(&BatchSizes) -> u64| measured.iter().map(of).max().unwrap_or(0);
        let nodes_of = |hop: usize| {
            // After a hop that finds none there are those before it.
            with_margin(most(&|sizes| sizes.n_nodes.get(hop).or(sizes.n_nodes.last()).copied().unwrap_or(0)))
        };
        let later = (1..self.nodes.len()).map(|hop| nodes_of(hop).max(self.nodes[0]).min(self.nodes[hop]));
        let nodes = std::iter::once(self.nodes[0]).chain(later).collect();
        Self { nodes, edges: with_margin(most(&BatchSizes::n_edges)).clamp(1, self.edges.max(1)) }
    }
}

impl Bounds<'_> {
    /// Most edges that a hop draws for `rows` nodes.
    fn edges_of(&self, rows: u64, neighbors: Neighbors) -> u64 {
        let drawn = match neighbors {
            Neighbors::All => return (self.edges_of_nodes)(rows),
            Neighbors::Count(count) if self.draws == Draws::PerLayer => u64::from(count),
            Neighbors::Count(count) => rows.saturating_mul(u64::from(count)),
        };
        // Without replacement a hop takes an edge once.
        if self.replace { drawn } else { drawn.min(self.n_edges) }
    }
}

/// Most edges that `n` nodes of a graph with `n_edges` edges have: those of the nodes with the highest degrees.
pub(super) fn edges_of_nodes(n_edges: u64, n: u64, degrees: impl FnOnce() -> Vec<u64>) -> u64 {
    let mut degrees = degrees();
    if n >= degrees.len() as u64 {
        return n_edges;
    }
    let (most, _, _) = degrees.select_nth_unstable_by(n as usize, |a, b| b.cmp(a));
    most.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::super::control::Words;
    use super::*;

    const BOUNDS: Bounds<'_> = Bounds {
        n_nodes: 1_000_000,
        n_edges: 30_000_000,
        edges_of_nodes: &|_| 30_000_000,
        batch_size: 10,
        hops: &[Neighbors::Count(15), Neighbors::Count(10)],
        draws: Draws::PerNode,
        replace: false,
        last_is_global: false,
    };

    #[test]
    fn no_batch_exceeds_the_largest() {
        let largest = Capacities::largest(BOUNDS);
        assert_eq!(largest, Capacities { nodes: vec![10, 160, 1760], edges: 1750 });
        let small = Capacities::largest(Bounds { n_nodes: 100, n_edges: 120, ..BOUNDS });
        assert_eq!(small, Capacities { nodes: vec![10, 100, 100], edges: 240 });
        let layers = Capacities::largest(Bounds { draws: Draws::PerLayer, last_is_global: true, ..BOUNDS });
        assert_eq!(layers, Capacities { nodes: vec![10, 25, 25], edges: 25 });
        let all = Capacities::largest(Bounds { hops: &[Neighbors::All], replace: true, ..BOUNDS });
        assert_eq!(all, Capacities { nodes: vec![10, 1_000_000], edges: 30_000_000 });
    }

    #[test]
    fn nodes_have_no_more_edges_than_those_with_the_most_neighbors() {
        let of_graph = |n| edges_of_nodes(6, n, || vec![1, 3, 0, 2]);
        assert_eq!([0, 1, 2, 3, 4, 9].map(of_graph), [0, 3, 5, 6, 6, 6]);
        let bounds = Bounds { n_nodes: 4, n_edges: 6, batch_size: 1, hops: &[Neighbors::All; 2], ..BOUNDS };
        let largest = Capacities::largest(Bounds { edges_of_nodes: &of_graph, ..bounds });
        assert_eq!(largest, Capacities { nodes: vec![1, 4, 4], edges: 9 });
    }

    #[test]
    fn what_was_measured_gets_a_margin() {
        let largest = Capacities::largest(BOUNDS);
        let words = |nodes: [u64; 3], edges| [0, nodes[0], nodes[1], nodes[2], 0, 5, edges, 0, 0];
        let sizes = |nodes, edges, n_local| Words { n_hops: 2 }.sizes(&words(nodes, edges), n_local);
        let fitted = largest.fitted(&[sizes([10, 100, 900], 1000, 2), sizes([10, 90, 1000], 900, 2)]);
        assert_eq!(fitted, Capacities { nodes: vec![10, 103, 1030], edges: 1030 });
        let fitted = largest.fitted(&[sizes([10, 100, 0], 1750, 1)]);
        assert_eq!(fitted, Capacities { nodes: vec![10, 103, 103], edges: 1750 });
    }
}
