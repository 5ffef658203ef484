//! Lists and matrices of a layer's relations, made on the host.

use girih_compute::ComputeError;
use girih_graph_format::{Csr, NodeId, PlacedRelation, RelationSizes, TypedGraph};

use super::types::{LayerTypes, first_row};

/// Result of moving a graph to a device.
pub(super) type Uploaded<T> = Result<T, ComputeError>;

/// Relation of a layer, with its place among the rows of the layer.
struct LayerRelation<'a> {
    placed: PlacedRelation<'a>,
    /// Row of the first source among the source rows.
    first_source: usize,
    /// Row of the first destination among the destination rows.
    first_destination: usize,
}

/// Relations of a layer in their order.
fn relations<'a>(typed: &'a TypedGraph, types: &LayerTypes) -> Vec<LayerRelation<'a>> {
    let sizes = typed.sizes();
    let (source_runs, destination_runs) = (types.source_runs(sizes), types.destination_runs(sizes));
    let of_layer = typed.placed_relations().filter(|of| types.relations.contains(&of.number));
    let relations = of_layer.map(|of| LayerRelation {
        first_source: first_row(&types.sources, &source_runs, sizes.relations[of.number].source),
        first_destination: first_row(&types.destinations, &destination_runs, of.destination),
        placed: of,
    });
    relations.collect()
}

/// Last element of a list of runs: the number of rows.
pub(super) fn last(runs: &[usize]) -> usize {
    runs.last().copied().unwrap_or(0)
}

/// Source row of each destination of a layer.
pub(super) fn own(sizes: &RelationSizes, types: &LayerTypes) -> Vec<NodeId> {
    let runs = types.source_runs(sizes);
    let of_type = |&of: &usize| {
        let first = first_row(&types.sources, &runs, of);
        (first..first + sizes.node_types[of]).map(|row| row as NodeId)
    };
    types.destinations.iter().flat_map(of_type).collect()
}

/// Place of the type of each destination among the destination types.
pub(super) fn places_of_types(sizes: &RelationSizes, types: &LayerTypes) -> Vec<u32> {
    let of_type = |(place, &of): (usize, &usize)| std::iter::repeat_n(place as u32, sizes.node_types[of]);
    types.destinations.iter().enumerate().flat_map(of_type).collect()
}

/// Identity matrix.
pub(super) fn diagonal(n: usize) -> Uploaded<Csr> {
    matrix((n, n), (0..=n as u64).collect(), (0..n as NodeId).collect(), None)
}

fn matrix(
    (n_rows, n_cols): (usize, usize),
    indptr: Vec<u64>,
    indices: Vec<NodeId>,
    values: Option<Vec<f32>>,
) -> Result<Csr, ComputeError> {
    Csr::new(n_rows, n_cols, indptr, indices, values.map(Into::into))
        .map_err(|error| ComputeError::argument("relations", error.to_string()))
}

/// Stacked rows of a layer: pairs of a relation and a destination with neighbors by it.
pub(super) struct Stacked {
    indptr: Vec<u64>,
    /// Source rows of neighbors, or their pairs.
    indices: Vec<NodeId>,
    /// Destination row of each stacked row.
    destinations: Vec<NodeId>,
}

impl Stacked {
    /// Stacked rows whose neighbors are source rows, or pairs if they are given.
    pub(super) fn of(typed: &TypedGraph, types: &LayerTypes, pairs: Option<&Pairs>) -> Self {
        let mut stacked = Self { indptr: vec![0], indices: Vec::new(), destinations: Vec::new() };
        let first = |&(place, _): &(usize, LayerRelation<'_>)| !types.transformed.contains(&types.relations[place]);
        for (place, of) in relations(typed, types).into_iter().enumerate().filter(first) {
            let column = |&u: &NodeId| match pairs {
                None => of.first_source as NodeId + u,
                Some(pairs) => pairs.position(place, of.first_source as NodeId + u),
            };
            for v in (0..of.placed.adjacency.n_rows()).filter(|&v| of.placed.adjacency.degree(v) > 0) {
                stacked.indices.extend(of.placed.adjacency.row(v).iter().map(column));
                stacked.indptr.push(stacked.indices.len() as u64);
                stacked.destinations.push((of.first_destination + v) as NodeId);
            }
        }
        stacked
    }

    /// Pattern of the neighbors, `stacked rows × n_cols`.
    pub(super) fn neighbors(&self, n_cols: usize) -> Uploaded<Csr> {
        matrix((self.destinations.len(), n_cols), self.indptr.clone(), self.indices.clone(), None)
    }

    /// Matrix that sums the stacked rows of each destination.
    pub(super) fn sums(&self, sizes: &RelationSizes, types: &LayerTypes) -> Uploaded<Csr> {
        let (n, n_destinations) = (self.destinations.len(), last(&types.destination_runs(sizes)));
        let of_rows = matrix((n, n_destinations), (0..=n as u64).collect(), self.destinations.clone(), None)?;
        Ok(of_rows.transposed())
    }

    /// Source row of the destination of each stacked row.
    pub(super) fn source_rows(&self, sizes: &RelationSizes, types: &LayerTypes) -> Vec<NodeId> {
        let own = own(sizes, types);
        self.destinations.iter().map(|&destination| own[destination as usize]).collect()
    }
}

/// Pairs of a relation and a source of it, by ascending relations and rows.
pub(super) struct Pairs {
    /// Source row of each pair.
    pub(super) rows: Vec<NodeId>,
    /// First pair of each relation.
    first: Vec<usize>,
    /// Place of each relation's source type among the source types.
    pub(super) sources: Vec<u32>,
}

impl Pairs {
    /// Pairs of the relations that are `wanted`; others have none.
    pub(super) fn of(typed: &TypedGraph, types: &LayerTypes, wanted: impl Fn(usize) -> bool) -> Self {
        let (mut rows, mut first) = (Vec::new(), vec![0]);
        for (&number, of) in types.relations.iter().zip(relations(typed, types)) {
            if !wanted(number) {
                first.push(rows.len());
                continue;
            }
            rows.extend(of.placed.sources().map(|u| (of.first_source + u) as NodeId));
            first.push(rows.len());
        }
        let place = |&number: &usize| {
            let source = typed.schema().edge_types()[number].source;
            types.sources.partition_point(|&of| of < source) as u32
        };
        let sources = types.relations.iter().map(place).collect();
        Self { rows, first, sources }
    }

    /// Number of the pair of a relation, by its place in the layer, and a source row.
    fn position(&self, place: usize, row: NodeId) -> NodeId {
        let of_relation = &self.rows[self.first[place]..self.first[place + 1]];
        (self.first[place] + of_relation.partition_point(|&of| of < row)) as NodeId
    }

    /// Pattern of the neighbors of each destination by all relations, `destinations × pairs`.
    pub(super) fn of_destinations(&self, typed: &TypedGraph, types: &LayerTypes) -> Uploaded<Csr> {
        let rows = neighbors_of_destinations(typed, types, |place, row, _| Some((self.position(place, row), 1.0)));
        matrix((rows.indptr.len() - 1, self.rows.len()), rows.indptr, rows.indices, None)
    }

    /// Sums of the means of each relation with pairs, `destinations × pairs`.
    pub(super) fn means(&self, typed: &TypedGraph, types: &LayerTypes) -> Uploaded<Csr> {
        let of_pair = |place: usize, row: NodeId, degree: usize| {
            let has_pairs = self.first[place] < self.first[place + 1];
            has_pairs.then(|| (self.position(place, row), 1.0 / degree as f32))
        };
        let rows = neighbors_of_destinations(typed, types, of_pair);
        matrix((rows.indptr.len() - 1, self.rows.len()), rows.indptr, rows.indices, Some(rows.values))
    }
}

/// Rows of a matrix with weights.
struct WeightedRows {
    indptr: Vec<u64>,
    indices: Vec<NodeId>,
    values: Vec<f32>,
}

/// Neighbors of each destination by all relations. `entry` gives column and value for the place of a relation, a source
/// row and the number of neighbors by that relation; or nothing, for relations that are left out.
fn neighbors_of_destinations(
    typed: &TypedGraph,
    types: &LayerTypes,
    entry: impl Fn(usize, NodeId, usize) -> Option<(NodeId, f32)>,
) -> WeightedRows {
    let relations = relations(typed, types);
    let runs = types.destination_runs(typed.sizes());
    let (mut indptr, mut entries) = (vec![0_u64], Vec::with_capacity(types.n_edges(typed.sizes())));
    for (node_type, ends) in types.destinations.iter().zip(runs.windows(2)) {
        let by_place = relations.iter().enumerate();
        let into: Vec<(usize, &LayerRelation<'_>)> =
            by_place.filter(|(_, relation)| relation.placed.destination == *node_type).collect();
        for v in 0..ends[1] - ends[0] {
            let start = entries.len();
            for &(place, of) in &into {
                let degree = of.placed.adjacency.degree(v);
                let row = |u: &NodeId| entry(place, of.first_source as NodeId + u, degree);
                entries.extend(of.placed.adjacency.row(v).iter().filter_map(row));
            }
            entries[start..].sort_unstable_by_key(|&(column, _)| column);
            indptr.push(entries.len() as u64);
        }
    }
    let (indices, values) = entries.into_iter().unzip();
    WeightedRows { indptr, indices, values }
}

/// Pairs of a source row and an edge type, by ascending rows and edge types.
pub(super) struct SourcePairs {
    pub(super) rows: Vec<NodeId>,
    /// Place of each pair's edge type among those of the layer.
    pub(super) relations: Vec<u32>,
    /// First pair of each row.
    first: Vec<usize>,
}

impl SourcePairs {
    pub(super) fn of(typed: &TypedGraph, types: &LayerTypes) -> Self {
        let by_relation = Pairs::of(typed, types, |_| true);
        let places = by_relation.first.windows(2).enumerate();
        let mut pairs: Vec<(NodeId, u32)> = places
            .flat_map(|(place, ends)| by_relation.rows[ends[0]..ends[1]].iter().map(move |&row| (row, place as u32)))
            .collect();
        pairs.sort_unstable();
        let (rows, relations): (Vec<NodeId>, Vec<u32>) = pairs.into_iter().unzip();
        let n_rows = last(&types.source_runs(typed.sizes()));
        let first = (0..=n_rows).map(|row| rows.partition_point(|&of| (of as usize) < row)).collect();
        Self { rows, relations, first }
    }

    /// Position of a pair.
    fn position(&self, row: NodeId, place: usize) -> NodeId {
        let row = row as usize;
        let of_row = &self.relations[self.first[row]..self.first[row + 1]];
        (self.first[row] + of_row.partition_point(|&of| (of as usize) < place)) as NodeId
    }

    /// Matrix whose row `v` has `1 / n` at the pairs of each edge type that ends in `v`, with `n` neighbors by it.
    pub(super) fn means(&self, typed: &TypedGraph, types: &LayerTypes) -> Uploaded<Csr> {
        let of_pair = |place: usize, row: NodeId, degree: usize| Some((self.position(row, place), 1.0 / degree as f32));
        let rows = neighbors_of_destinations(typed, types, of_pair);
        matrix((rows.indptr.len() - 1, self.rows.len()), rows.indptr, rows.indices, Some(rows.values))
    }
}
