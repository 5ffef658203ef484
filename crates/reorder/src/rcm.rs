//! [`ReverseCuthillMckee`]: order by levels of a breadth-first search, for a small bandwidth.

use girih_graph_format::{Csr, NodeId, Permutation};

use crate::simple::visited;
use crate::{Progress, Reorder, ReorderError, square, undirected};

/// Reverse Cuthill-McKee: a breadth-first search from a peripheral node of each component, with neighbors by rising
/// degree, and all of it reversed (Cuthill and McKee, 1969; George, 1971; peripheral nodes as in George and Liu, ACM
/// TOMS 1979). Components are in the order of their first node. Searches start from both ends of a component, with
/// neighbors of equal degree by rising and by falling id. The one with the smallest bandwidth wins.
///
/// An edge counts in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReverseCuthillMckee;

impl Reorder for ReverseCuthillMckee {
    fn name(&self) -> String {
        "rcm".to_owned()
    }

    fn order_with(&self, graph: &Csr, progress: &Progress<'_>) -> Result<Permutation, ReorderError> {
        square(graph)?;
        let graph = undirected(graph);
        let mut search = Search::new(&graph);
        let mut order = Vec::with_capacity(graph.n_rows());
        for v in 0..graph.n_rows() as NodeId {
            if graph.row(v as usize).is_empty() {
                order.push(v);
            } else if !search.is_placed[v as usize] {
                search.place_component(v, &mut order, progress);
            }
        }
        order.reverse();
        Ok(visited(order))
    }
}

/// Breadth-first searches over one graph with shared memory.
struct Search<'g> {
    graph: &'g Csr,
    is_placed: Vec<bool>,
    /// Number of the last search that saw each node.
    seen_in: Vec<u32>,
    n_searches: u32,
    /// Place of each node in the search that was evaluated last.
    place: Vec<u32>,
}

/// Result of a level search.
struct Levels {
    depth: usize,
    /// Node of smallest degree in the last level.
    farthest: NodeId,
}

impl<'g> Search<'g> {
    fn new(graph: &'g Csr) -> Self {
        let n = graph.n_rows();
        Self { graph, is_placed: vec![false; n], seen_in: vec![0; n], n_searches: 0, place: vec![0; n] }
    }

    /// Finds two nodes far apart in the component of `v`, by searches from ever farther nodes until the depth stops
    /// growing.
    fn rim(&mut self, v: NodeId) -> [NodeId; 2] {
        let (mut start, mut levels) = (v, self.levels(v));
        loop {
            let next = self.levels(levels.farthest);
            if next.depth <= levels.depth {
                return [start, levels.farthest];
            }
            (start, levels) = (levels.farthest, next);
        }
    }

    fn levels(&mut self, start: NodeId) -> Levels {
        self.n_searches += 1;
        self.seen_in[start as usize] = self.n_searches;
        let (mut level, mut next, mut depth) = (vec![start], Vec::new(), 0);
        loop {
            for &v in &level {
                for &u in self.graph.row(v as usize) {
                    let seen = &mut self.seen_in[u as usize];
                    if *seen != self.n_searches {
                        *seen = self.n_searches;
                        next.push(u);
                    }
                }
            }
            if next.is_empty() {
                let by_degree = |v: &&NodeId| (self.graph.degree(**v as usize), **v);
                return Levels { depth, farthest: *level.iter().min_by_key(by_degree).expect("a level has nodes") };
            }
            depth += 1;
            std::mem::swap(&mut level, &mut next);
            next.clear();
        }
    }

    /// Appends the component of `v` in Cuthill-McKee order.
    fn place_component(&mut self, v: NodeId, order: &mut Vec<NodeId>, progress: &Progress<'_>) {
        let rim = self.rim(v);
        let mut best: Option<(usize, Vec<NodeId>)> = None;
        let starts = rim.into_iter().flat_map(|start| [(start, true), (start, false)]);
        for (i, (start, ids_rise)) in starts.enumerate() {
            let nodes = self.cuthill_mckee(start, ids_rise);
            let bandwidth = self.bandwidth(&nodes);
            if best.as_ref().is_none_or(|(narrowest, _)| bandwidth < *narrowest) {
                best = Some((bandwidth, nodes));
            }
            let size = best.as_ref().map_or(0, |(_, nodes)| nodes.len());
            progress((order.len() as f64 + size as f64 * (i + 1) as f64 / 4.0) / self.graph.n_rows() as f64);
        }
        let (_, nodes) = best.expect("four searches");
        nodes.iter().for_each(|&u| self.is_placed[u as usize] = true);
        order.extend(nodes);
    }

    /// Component of `start` in Cuthill-McKee order, with neighbors by rising degree; `ids_rise` breaks ties by
    /// rising id.
    fn cuthill_mckee(&mut self, start: NodeId, ids_rise: bool) -> Vec<NodeId> {
        self.n_searches += 1;
        self.seen_in[start as usize] = self.n_searches;
        let mut order = vec![start];
        let mut next = 0;
        while let Some(&v) = order.get(next) {
            next += 1;
            let first = order.len();
            for &u in self.graph.row(v as usize) {
                if std::mem::replace(&mut self.seen_in[u as usize], self.n_searches) != self.n_searches {
                    order.push(u);
                }
            }
            let id = |u: NodeId| if ids_rise { u } else { NodeId::MAX - u };
            order[first..].sort_unstable_by_key(|&u| (self.graph.degree(u as usize), id(u)));
        }
        order
    }

    /// Bandwidth of a component in this order.
    fn bandwidth(&mut self, nodes: &[NodeId]) -> usize {
        nodes.iter().enumerate().for_each(|(place, &v)| self.place[v as usize] = place as u32);
        let of_node = |(place, &v): (usize, &NodeId)| {
            let farthest = |&u: &NodeId| (self.place[u as usize] as usize).abs_diff(place);
            self.graph.row(v as usize).iter().map(farthest).max().unwrap_or(0)
        };
        nodes.iter().enumerate().map(of_node).max().unwrap_or(0)
    }
}
