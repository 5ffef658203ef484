//! [`Neighborhoods`]: the graph that samplers draw from, and the rows of `Â` for their draws.

use girih_features::{NeighborOperand, PatchOperand, SelfLoops};
use girih_graph_format::{Csr, FormatError, NodeId, Scales};
use girih_sampling::{Block, Columns};

use crate::TrainError;
use crate::models::Adjacency;
use crate::tape::ranks::AllScales;

/// Graph to sample neighbours from, with the scales that turn draws into rows of its normalised adjacency `Â`.
///
/// A row of a sampled block holds, for a node `v` and a source `u` that was drawn `m` times,
/// ```text
/// Â[v, u] · m · c    with c = deg(v) / draws of v, or the sampler's own weight of the edge
/// Â[v, v]            exactly, if nodes have self loops: these are never sampled
/// ```
/// so that its product with any operand is an unbiased estimate of the product with row `v` of `Â`. For a mean over
/// neighbours (`Â[v, u] = 1 / deg(v)`) it is the mean over the draws. All neighbours, each drawn once, give `Â`
/// itself.
pub struct Neighborhoods {
    /// Edges to sample from, without self loops if the model adds them. Of a patch, its rows.
    graph: Csr,
    /// For a patch, the degree of each node of the whole graph.
    degrees: Option<Vec<u32>>,
    scales: Scales,
    loops: Loops,
}

/// Weights of self loops in `A`.
enum Loops {
    /// Only the self loops of the graph.
    AsDrawn,
    /// A self loop of weight one at every node.
    Ones,
    /// A self loop of the given weight at every node.
    Weights(Vec<f32>),
}

impl Neighborhoods {
    /// Neighborhoods of a graph that a model reads as `adjacency`.
    ///
    /// # Errors
    /// When the graph does not have this normalisation.
    pub fn new(graph: &Csr, adjacency: Adjacency) -> Result<Self, TrainError> {
        let Adjacency { norm, degrees, .. } = adjacency;
        let undefined = |node| adjacency.undefined(node);
        if !adjacency.self_loops {
            let scales = graph.checked_scales(norm, degrees).map_err(undefined)?;
            return Ok(Self { graph: graph.clone(), degrees: None, scales, loops: Loops::AsDrawn });
        }
        let is_weighted = graph.values().is_some();
        let loops = if is_weighted { Loops::Weights(Self::own_loops(graph, 0)) } else { Loops::Ones };
        let drawn = Self::rows_to_draw(graph, 0, adjacency);
        let scales = graph.checked_scales_with_self_loops(norm, degrees).map_err(undefined)?;
        Ok(Self { graph: drawn, degrees: None, scales, loops })
    }

    /// Rows to sample from: those of consecutive nodes from `first` on, without self loops if the model adds them.
    #[must_use]
    pub(crate) fn rows_to_draw(rows: &Csr, first: NodeId, adjacency: Adjacency) -> Csr {
        let is_loop = |row: usize, column: NodeId| column == first + row as NodeId;
        let has_loops = adjacency.self_loops
            && (0..rows.n_rows()).any(|row| rows.row(row).binary_search(&(first + row as NodeId)).is_ok());
        if has_loops { rows.filtered(|row, column| !is_loop(row, column)) } else { rows.clone() }
    }

    /// Self-loop weights of consecutive nodes from `first` on; one for a node without a stored self loop.
    #[must_use]
    pub(crate) fn own_loops(rows: &Csr, first: NodeId) -> Vec<f32> {
        let of_row = |row: usize| {
            let at = rows.row(row).binary_search(&(first + row as NodeId)).ok()?;
            Some(rows.values().map_or(1.0, |values| values[rows.row_range(row).start + at]))
        };
        (0..rows.n_rows()).map(|row| of_row(row).unwrap_or(1.0)).collect()
    }

    /// Neighborhoods of a patch: its rows to sample from, and the degrees and scales of all nodes. If edges have
    /// weights and nodes have self loops, also the weights of these.
    #[must_use]
    pub(crate) fn of_patch(
        rows: Csr,
        (degrees, loops): (Vec<u32>, Option<Vec<f32>>),
        scales: &AllScales,
        adjacency: Adjacency,
    ) -> Self {
        let [left, right] = scales.each_ref().map(|factors| factors.as_ref().map(|factors| factors.to_vec()));
        let loops = match loops {
            Some(weights) => Loops::Weights(weights),
            None if adjacency.self_loops => Loops::Ones,
            None => Loops::AsDrawn,
        };
        Self { graph: rows, degrees: Some(degrees), scales: Scales { left, right }, loops }
    }

    /// True for a whole graph, false for a patch.
    #[must_use]
    pub(crate) fn is_whole(&self) -> bool {
        self.degrees.is_none()
    }

    /// Operand for a device that samples by itself.
    ///
    /// # Panics
    /// For a patch, whose rows are no graph.
    #[must_use]
    pub fn operand(&self) -> NeighborOperand<'_> {
        assert!(self.degrees.is_none(), "a whole graph");
        NeighborOperand { graph: &self.graph, scales: &self.scales, loops: self.self_loops(), placement: None }
    }

    /// As [`operand`](Self::operand), but for patches with these bounds, without edge weights.
    ///
    /// # Panics
    /// For a whole graph.
    #[must_use]
    pub(crate) fn patch_operand<'a>(&'a self, bounds: &'a [NodeId]) -> PatchOperand<'a> {
        let degrees = self.degrees.as_ref().expect("a patch");
        PatchOperand { rows: &self.graph, bounds, degrees, scales: &self.scales, loops: self.self_loops() }
    }

    fn self_loops(&self) -> SelfLoops<'_> {
        match &self.loops {
            Loops::AsDrawn => SelfLoops::AsDrawn,
            Loops::Ones => SelfLoops::Ones,
            Loops::Weights(weights) => SelfLoops::Weights(weights),
        }
    }

    /// Degree of a node in the whole graph.
    fn degree(&self, node: NodeId) -> usize {
        self.degrees
            .as_ref()
            .map_or_else(|| self.graph.degree(node as usize), |degrees| degrees[node as usize] as usize)
    }

    /// Graph that samplers draw from.
    #[must_use]
    pub fn graph(&self) -> &Csr {
        &self.graph
    }

    /// Whether draws must keep edge ids, to look up edge weights.
    #[must_use]
    pub fn needs_edge_ids(&self) -> bool {
        self.graph.values().is_some()
    }

    /// Rows of `Â` for a block of this graph: `n_destinations × n_columns`, columns ascending.
    ///
    /// # Errors
    /// When the block's arrays were changed and are no matrix any more.
    ///
    /// # Panics
    /// When the graph has weights and the block does not have the [ids](Self::needs_edge_ids) of its edges.
    pub fn rows(&self, block: &Block) -> Result<Csr, FormatError> {
        let weights = self.graph.values();
        self.rows_weighted(block, |edge| weights.map_or(1.0, |weights| weights[block.edge_ids[edge] as usize]))
    }

    /// As [`rows`](Self::rows), but the `e`-th edge of the block has the weight `weight(e)`.
    pub(crate) fn rows_weighted(&self, block: &Block, weight: impl Fn(usize) -> f32) -> Result<Csr, FormatError> {
        let n_entries = block.n_edges() + if self.has_loops() { block.n_destinations } else { 0 };
        let (mut indices, mut values) = (Vec::with_capacity(n_entries), Vec::with_capacity(n_entries));
        let (mut indptr, mut row) = (Vec::with_capacity(block.n_destinations + 1), Vec::new());
        indptr.push(0u64);
        for v in 0..block.n_destinations {
            self.list_row((block, &weight), v, &mut row);
            row.sort_unstable_by_key(|&(column, _)| column);
            for same in row.chunk_by(|(a, _), (b, _)| a == b) {
                indices.push(same[0].0);
                values.push(same.iter().map(|(_, value)| value).sum::<f32>());
            }
            indptr.push(indices.len() as u64);
        }
        Csr::new(block.n_destinations, block.n_columns, indptr, indices, Some(values.into()))
    }

    fn has_loops(&self) -> bool {
        !matches!(self.loops, Loops::AsDrawn)
    }

    /// Lists column and value of each entry of row `v`; a column appears once for each draw.
    fn list_row(&self, (block, weight): (&Block, &impl Fn(usize) -> f32), v: usize, row: &mut Vec<(NodeId, f32)>) {
        row.clear();
        let node = block.nodes[v];
        let range = block.indptr[v] as usize..block.indptr[v + 1] as usize;
        let each = if block.weights.is_empty() { self.degree(node) as f32 / range.len() as f32 } else { 1.0 };
        let left = factor(self.scales.left.as_deref(), node);
        for edge in range {
            let column = block.indices[edge];
            let source = block.node_of_column(column);
            let counts = block.weights.get(edge).copied().unwrap_or(each);
            let right = factor(self.scales.right.as_deref(), source);
            row.push((column, left * weight(edge) * right * counts));
        }
        let own_weight = match &self.loops {
            Loops::AsDrawn => return,
            Loops::Ones => 1.0,
            Loops::Weights(weights) => weights[node as usize],
        };
        let own = match block.columns {
            Columns::Local => v as NodeId,
            Columns::Global => node,
        };
        row.push((own, left * own_weight * factor(self.scales.right.as_deref(), node)));
    }
}

/// Scale of a node; one without scales.
fn factor(factors: Option<&[f32]>, node: NodeId) -> f32 {
    factors.map_or(1.0, |factors| factors[node as usize])
}

#[cfg(test)]
mod tests {
    use girih_graph_format::{Coo, Duplicates, Norm};
    use girih_sampling::{
        DrawKey, FanOut, LayerSampler, NeighborOptions, NeighborSampler, SaintSampler, Sampler, SubgraphSampler,
    };
    use proptest::prelude::*;

    use super::*;

    /// Test graph of `n` nodes; every third has a self loop.
    fn graph(n: u32, weighted: bool) -> Csr {
        let edges = (0..n).flat_map(|v| (1..=2 + v % 5).map(move |k| (v, (v * 7 + k * k + k) % n)));
        let loops = (0..n).step_by(3).map(|v| (v, v));
        let (rows, cols): (Vec<u32>, Vec<u32>) = edges.filter(|(v, u)| v != u).chain(loops).unzip();
        let graph = Coo::new(n as usize, n as usize, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
        let weights = (0..graph.nnz()).map(|e| 0.5 + (e % 7) as f32 / 4.0).collect::<Vec<_>>();
        graph.with_values(weighted.then(|| weights.into())).unwrap()
    }

    const NORMS: [Norm; 3] = [Norm::None, Norm::Symmetric, Norm::Row];

    /// Dense `Â`.
    fn dense(graph: &Csr, adjacency: Adjacency) -> Vec<Vec<f64>> {
        let full = if adjacency.self_loops { graph.with_self_loops() } else { graph.clone() };
        let Scales { left, right } = full.scales(adjacency.norm);
        let mut dense = vec![vec![0.0; full.n_cols()]; full.n_rows()];
        for v in 0..full.n_rows() {
            for e in full.row_range(v) {
                let u = full.indices()[e];
                let stored = full.values().map_or(1.0, |values| values[e]);
                let value = factor(left.as_deref(), v as u32) * stored * factor(right.as_deref(), u);
                dense[v][u as usize] = f64::from(value);
            }
        }
        dense
    }

    fn sampler(fan_out: &str, replace: bool, inputs: Columns) -> NeighborSampler {
        let options = NeighborOptions { replace, edge_ids: true, inputs, ..NeighborOptions::default() };
        NeighborSampler::new(fan_out.parse::<FanOut>().unwrap(), options).unwrap()
    }

    proptest! {
        #[test]
        fn all_neighbours_give_the_rows_of_the_whole_matrix(
            n in 5..40u32, weighted in any::<bool>(), self_loops in any::<bool>(), norm in 0..3usize,
            in_place in any::<bool>(),
        ) {
            let (graph, adjacency) = (graph(n, weighted), Adjacency::new(self_loops, NORMS[norm]));
            let (neighborhoods, expected) = (Neighborhoods::new(&graph, adjacency).unwrap(), dense(&graph, adjacency));
            let inputs = if in_place { Columns::Global } else { Columns::Local };
            let seeds: Vec<u32> = (0..n).step_by(2).collect();
            let sampler = sampler("-1,-1", false, inputs);
            let batch = sampler.sample(neighborhoods.graph(), &seeds, DrawKey::new(1, 2, 3)).unwrap();
            for block in &batch.blocks {
                let rows = neighborhoods.rows(block).unwrap();
                for (v, &node) in block.destinations().iter().enumerate() {
                    let mut found = vec![0.0; n as usize];
                    for e in rows.row_range(v) {
                        found[block.node_of_column(rows.indices()[e]) as usize] = f64::from(rows.values().unwrap()[e]);
                    }
                    for (a, b) in found.iter().zip(&expected[node as usize]) {
                        prop_assert!((a - b).abs() <= 1e-6 * b.abs(), "{found:?} {:?}", expected[node as usize]);
                    }
                }
            }
        }
    }

    /// Compares the mean of sampled rows over many batches with the rows of `Â`.
    fn check_mean(adjacency: Adjacency, weighted: bool, sample: impl Fn(&Csr, u32) -> Block) {
        const BATCHES: u32 = 4000;
        let graph = graph(17, weighted);
        let (neighborhoods, expected) = (Neighborhoods::new(&graph, adjacency).unwrap(), dense(&graph, adjacency));
        let mut sums = vec![vec![[0.0f64; 2]; 17]; 17];
        let mut n_rows = [0.0f64; 17];
        for batch in 0..BATCHES {
            let block = sample(neighborhoods.graph(), batch);
            let rows = neighborhoods.rows(&block).unwrap();
            for (v, &node) in block.destinations().iter().enumerate() {
                n_rows[node as usize] += 1.0;
                for e in rows.row_range(v) {
                    let value = f64::from(rows.values().unwrap()[e]);
                    let [sum, squares] = &mut sums[node as usize][block.node_of_column(rows.indices()[e]) as usize];
                    *sum += value;
                    *squares += value * value;
                }
            }
        }
        for v in (0..17).filter(|&v| n_rows[v] > 100.0) {
            for u in 0..17 {
                let [sum, squares] = sums[v][u];
                let (mean, square) = (sum / n_rows[v], squares / n_rows[v]);
                let error = ((square - mean * mean).max(0.0) / n_rows[v]).sqrt();
                let off = (mean - expected[v][u]).abs();
                assert!(off <= 5.0 * error + 1e-5, "row {v}, column {u}: {mean} instead of {}", expected[v][u]);
            }
        }
    }

    #[test]
    fn sampled_rows_have_those_of_the_whole_matrix_as_their_mean() {
        let seeds: Vec<u32> = (0..17).collect();
        for norm in NORMS {
            for (self_loops, weighted, replace) in [(true, false, false), (false, true, true), (true, true, false)] {
                let adjacency = Adjacency::new(self_loops, norm);
                check_mean(adjacency, weighted, |graph, batch| {
                    let sampler = sampler("2", replace, Columns::Local);
                    sampler.sample(graph, &seeds, DrawKey::new(1, 0, batch)).unwrap().blocks.remove(0)
                });
            }
        }
    }

    #[test]
    fn so_do_layers_and_drawn_subgraphs() {
        let adjacency = Adjacency::new(true, Norm::Symmetric);
        let seeds: Vec<u32> = (0..17).collect();
        check_mean(adjacency, true, |graph, batch| {
            let sampler = LayerSampler::ladies("5".parse().unwrap(), true);
            sampler.sample(graph, &seeds, DrawKey::new(1, 0, batch)).unwrap().blocks.remove(0)
        });
        check_mean(adjacency, false, |graph, batch| {
            let sampler = SaintSampler::nodes(graph, 8).unwrap();
            sampler.sample(graph, DrawKey::new(1, 0, batch)).unwrap().block
        });
    }
}
