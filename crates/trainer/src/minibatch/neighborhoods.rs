//! [`Neighborhoods`]: the graph that samplers draw from, and the rows of `Â` for their draws.

use girih_features::{NeighborOperand, PatchOperand, SelfLoops};
use girih_graph_format::{Csr, FormatError, NodeId, Scales};
use girih_sampling::{Block, Columns};

use crate::TrainError;
use crate::models::Adjacency;
use crate::tape::ranks::AllScales;

/// Graph to sample neighbors from, with the scales that turn draws into rows of its normalised adjacency `Â`.
///
/// A row of a sampled block holds, for a node `v` and a source `u` that was drawn `m` times,
/// ```text
/// Â[v, u] · m · c    with c = deg(v) / draws of v, or the sampler's own weight of the edge
/// Â[v, v]            exactly, if nodes have self loops: these are never sampled
/// ```
/// so that its product with any operand is an unbiased estimate of the product with row `v` of `Â`. For a mean over
/// neighbors (`Â[v, u] = 1 / deg(v)`) it is the mean over the draws. All neighbors, each drawn once, give `Â`
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

/// Degrees of nodes, and the factors of their rows and columns in `Â`.
pub(crate) trait NodeTerms {
    /// Degree of a node in the whole graph.
    fn degree(&self, node: NodeId) -> usize;
    /// Factor of a node's row.
    fn left(&self, node: NodeId) -> f32;
    /// Factor of a node's column.
    fn right(&self, node: NodeId) -> f32;
    /// Weight of a node's self loop in `A`, if nodes have self loops.
    fn own_weight(&self, node: NodeId) -> Option<f32>;
}

impl NodeTerms for Neighborhoods {
    fn degree(&self, node: NodeId) -> usize {
        self.degrees
            .as_ref()
            .map_or_else(|| self.graph.degree(node as usize), |degrees| degrees[node as usize] as usize)
    }

    fn left(&self, node: NodeId) -> f32 {
        factor(self.scales.left.as_deref(), node)
    }

    fn right(&self, node: NodeId) -> f32 {
        factor(self.scales.right.as_deref(), node)
    }

    fn own_weight(&self, node: NodeId) -> Option<f32> {
        match &self.loops {
            Loops::AsDrawn => None,
            Loops::Ones => Some(1.0),
            Loops::Weights(weights) => Some(weights[node as usize]),
        }
    }
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
        rows_by(self, block, weight)
    }

    /// Whether every node has a self loop, also where the graph has none.
    pub(crate) fn has_loops(&self) -> bool {
        !matches!(self.loops, Loops::AsDrawn)
    }
}

/// Rows of `Â` for a block, whose `e`-th edge has the weight `weight(e)`.
///
/// # Errors
/// When the block's arrays were changed and are no matrix any more.
pub(crate) fn rows_by(
    terms: &impl NodeTerms,
    block: &Block,
    weight: impl Fn(usize) -> f32,
) -> Result<Csr, FormatError> {
    let has_loops = block.nodes.first().is_some_and(|&node| terms.own_weight(node).is_some());
    let n_entries = block.n_edges() + if has_loops { block.n_destinations } else { 0 };
    let (mut rows, mut row) = (RowSums::new(block.n_destinations, n_entries), Vec::new());
    for v in 0..block.n_destinations {
        list_row(terms, (block, &weight), v, &mut row);
        rows.push(&mut row);
    }
    rows.into_csr(block.n_columns)
}

/// Rows of a matrix, from entries in any order; those of a row with one column become their sum.
pub(crate) struct RowSums {
    indptr: Vec<u64>,
    indices: Vec<NodeId>,
    values: Vec<f32>,
}

impl RowSums {
    /// No rows yet, with memory for some and for the entries of all.
    pub(crate) fn new(n_rows: usize, n_entries: usize) -> Self {
        let mut indptr = Vec::with_capacity(n_rows + 1);
        indptr.push(0);
        Self { indptr, indices: Vec::with_capacity(n_entries), values: Vec::with_capacity(n_entries) }
    }

    /// Appends a row of columns and values, and sorts these.
    pub(crate) fn push(&mut self, row: &mut [(NodeId, f32)]) {
        row.sort_unstable_by_key(|&(column, _)| column);
        for same in row.chunk_by(|(a, _), (b, _)| a == b) {
            self.indices.push(same[0].0);
            self.values.push(same.iter().map(|(_, value)| value).sum::<f32>());
        }
        self.indptr.push(self.indices.len() as u64);
    }

    /// The matrix of all rows.
    ///
    /// # Errors
    /// When a column is not below `n_columns`.
    pub(crate) fn into_csr(self, n_columns: usize) -> Result<Csr, FormatError> {
        let Self { indptr, indices, values } = self;
        Csr::new(indptr.len() - 1, n_columns, indptr, indices, Some(values.into()))
    }
}

/// Lists column and value of each entry of row `v`; a column appears once for each draw.
fn list_row(
    terms: &impl NodeTerms,
    (block, weight): (&Block, &impl Fn(usize) -> f32),
    v: usize,
    row: &mut Vec<(NodeId, f32)>,
) {
    row.clear();
    let node = block.nodes[v];
    let range = block.indptr[v] as usize..block.indptr[v + 1] as usize;
    let each = if block.weights.is_empty() { terms.degree(node) as f32 / range.len() as f32 } else { 1.0 };
    let left = terms.left(node);
    for edge in range {
        let column = block.indices[edge];
        let source = block.node_of_column(column);
        let counts = block.weights.get(edge).copied().unwrap_or(each);
        row.push((column, left * weight(edge) * terms.right(source) * counts));
    }
    let Some(own_weight) = terms.own_weight(node) else { return };
    let own = match block.columns {
        Columns::Local => v as NodeId,
        Columns::Global => node,
    };
    row.push((own, left * own_weight * terms.right(node)));
}

/// Scale of a node; one without scales.
fn factor(factors: Option<&[f32]>, node: NodeId) -> f32 {
    factors.map_or(1.0, |factors| factors[node as usize])
}
