//! [`Grown`]: a graph with new nodes, as samplers and blocks read it. The graph itself is not copied: only rows and
//! factors that the new edges change are.

use girih_datasets::{DatasetError, NewNodes};
use girih_graph_format::{Csr, NodeId, WeightSum, degree_factors};
use girih_sampling::{Block, DrawScratch, DrawnHop, Hop, HopSource, Patch, SampleError, Topology};
use hashbrown::HashMap;

use super::neighborhoods::{NodeTerms, rows_by};
use super::{HostBlock, Neighborhoods};
use crate::TrainError;
use crate::models::Adjacency;

/// Neighborhoods of a graph with new nodes.
pub(crate) struct Grown<'g> {
    known: &'g Neighborhoods,
    n_nodes: usize,
    /// Rows of new nodes, and of nodes of the graph that get edges from them.
    rows: HashMap<NodeId, GrownRow>,
    /// Factors of row and column of each node whose sums of weights the new edges change.
    factors: HashMap<NodeId, [f32; 2]>,
    /// Weights of the edges after those of the graph; empty without weights.
    weights: Vec<f32>,
    scratch: DrawScratch,
    drawn: DrawnHop,
}

/// In-neighbors of a node.
struct GrownRow {
    /// The row, without its self loop if the model adds self loops.
    row: Csr,
    /// Number of edges before it.
    first_edge: u64,
    /// Weight of its self loop, if the model adds self loops.
    own: f32,
}

impl<'g> Grown<'g> {
    /// A graph with new nodes. `columns` are the sums of the weights of its columns, where the normalisation needs
    /// them.
    ///
    /// # Errors
    /// When edges of the new nodes do not fit the graph, or a node has no degree by which the model divides.
    pub(crate) fn new(
        known: &'g Neighborhoods,
        columns: Option<&[WeightSum]>,
        adjacency: Adjacency,
        new: &NewNodes,
    ) -> Result<Self, TrainError> {
        let graph = known.graph();
        let added = new.rows_of(graph)?;
        let n_nodes = graph.n_rows() + new.n_nodes();
        let (mut rows, mut weights) = (HashMap::new(), Vec::new());
        for (&node, sources) in &added {
            let first_edge = (graph.nnz() + weights.len()) as u64;
            let row = grown_row(known, (node, sources), (n_nodes, first_edge))?;
            weights.extend((0..row.row.nnz()).map(|at| row.row.values().map_or(1.0, |values| values[at])));
            rows.insert(node, row);
        }
        let mut grown = Self {
            known,
            n_nodes,
            rows,
            factors: HashMap::new(),
            weights,
            scratch: DrawScratch::default(),
            drawn: DrawnHop::default(),
        };
        grown.factors = grown.changed_factors(columns, adjacency, &added)?;
        Ok(grown)
    }

    /// Factors of the nodes whose sums of weights change.
    fn changed_factors(
        &self,
        columns: Option<&[WeightSum]>,
        adjacency: Adjacency,
        added: &girih_datasets::NewRows,
    ) -> Result<HashMap<NodeId, [f32; 2]>, TrainError> {
        let mut leaving: HashMap<NodeId, WeightSum> = added.keys().map(|&node| (node, WeightSum::default())).collect();
        for (&node, sources) in added {
            for &(source, weight) in sources.iter().filter(|&&(source, _)| source != node || !self.known.has_loops()) {
                leaving.entry(source).or_default().add(weight);
            }
        }
        let [left, right] = adjacency.norm.powers();
        let factor = |sum: WeightSum, power: Option<f64>, node: NodeId, is_column| {
            let Some(power) = power else { return Ok(1.0) };
            let factors = degree_factors(&[sum], adjacency.degrees, power);
            let undefined = |error| girih_graph_format::UndefinedDegree { node: node as usize, is_column, ..error };
            factors.map(|factors| factors[0]).map_err(|error| adjacency.undefined(undefined(error)))
        };
        let with_own = |mut sum: WeightSum, node| {
            if let Some(own) = self.own_weight(node) {
                sum.add(own);
            }
            sum
        };
        let mut factors = HashMap::with_capacity(leaving.len());
        for (&node, &new) in &leaving {
            let mut column = columns.and_then(|sums| sums.get(node as usize)).copied().unwrap_or_default();
            column.signed += new.signed;
            column.absolute += new.absolute;
            let of_row = factor(with_own(self.row_sum(node), node), left, node, false)?;
            factors.insert(node, [of_row, factor(with_own(column, node), right, node, true)?]);
        }
        Ok(factors)
    }

    /// Sum of the weights of the in-edges of a node, without the self loop that the model adds.
    fn row_sum(&self, node: NodeId) -> WeightSum {
        let (rows, at) = match self.rows.get(&node) {
            Some(grown) => (&grown.row, 0),
            None => (self.known.graph(), node as usize),
        };
        let mut sum = WeightSum::default();
        rows.row_entries(at).for_each(|(_, weight)| sum.add(weight));
        sum
    }

    /// Rows of `Â` for a block.
    ///
    /// # Errors
    /// When the block is no matrix.
    pub(crate) fn host_block(&self, block: &Block) -> Result<HostBlock, TrainError> {
        let (n_known, known) = (self.known.graph().nnz() as u64, self.known.graph().values());
        let weight = |edge: usize| match known {
            None => 1.0,
            Some(known) => match block.edge_ids[edge].checked_sub(n_known) {
                None => known[block.edge_ids[edge] as usize],
                Some(at) => self.weights[at as usize],
            },
        };
        Ok(HostBlock { rows: rows_by(self, block, weight)?, in_place: None, edges: None })
    }
}

/// The row of a node with new in-neighbors, in a graph of `n_nodes` nodes.
fn grown_row(
    known: &Neighborhoods,
    (node, sources): (NodeId, &[(NodeId, f32)]),
    (n_nodes, first_edge): (usize, u64),
) -> Result<GrownRow, DatasetError> {
    let (graph, adds_loops) = (known.graph(), known.has_loops());
    let is_known = (node as usize) < graph.n_rows();
    let mut own = if is_known { known.own_weight(node).unwrap_or(1.0) } else { 1.0 };
    let mut entries: Vec<(NodeId, f32)> = Vec::new();
    if is_known {
        entries.extend(graph.row_entries(node as usize));
    }
    for &(source, weight) in sources {
        if adds_loops && source == node {
            own = weight;
        } else {
            entries.push((source, weight));
        }
    }
    let (indices, values): (Vec<NodeId>, Vec<f32>) = entries.into_iter().unzip();
    let values = graph.values().map(|_| values.into());
    let row = Csr::new(1, n_nodes, vec![0, indices.len() as u64], indices, values)?;
    Ok(GrownRow { row, first_edge, own })
}

impl NodeTerms for Grown<'_> {
    fn degree(&self, node: NodeId) -> usize {
        self.rows.get(&node).map_or_else(|| self.known.degree(node), |grown| grown.row.nnz())
    }

    fn left(&self, node: NodeId) -> f32 {
        self.factors.get(&node).map_or_else(|| self.known.left(node), |&[left, _]| left)
    }

    fn right(&self, node: NodeId) -> f32 {
        self.factors.get(&node).map_or_else(|| self.known.right(node), |&[_, right]| right)
    }

    fn own_weight(&self, node: NodeId) -> Option<f32> {
        match self.rows.get(&node) {
            Some(grown) => self.known.has_loops().then_some(grown.own),
            None => self.known.own_weight(node),
        }
    }
}

impl Topology for Grown<'_> {
    type Error = SampleError;

    fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    fn hop<'a>(&'a mut self, hop: &Hop<'a>) -> Result<HopSource<'a>, SampleError> {
        self.drawn.clear();
        // Nodes with rows of their own draw one by one, and the others between them together.
        let Self { known, rows, scratch, drawn, .. } = self;
        let mut left = hop.frontier;
        while let Some(&node) = left.first() {
            let n_same = left.iter().take_while(|node| !rows.contains_key(*node)).count();
            let (patch, n_nodes) = match rows.get(&node) {
                Some(grown) => (Patch::new(&grown.row, node, grown.first_edge)?, 1),
                None => (Patch::new(known.graph(), 0, 0)?, n_same),
            };
            let (frontier, rest) = left.split_at(n_nodes);
            patch.draw(&Hop { frontier, ..*hop }, None, None, scratch, drawn)?;
            left = rest;
        }
        Ok(HopSource::Drawn(&self.drawn))
    }
}
