//! [`HostLayer`]: lists and matrices of a layer's relations, made on the host.

use girih_compute::ComputeError;
use girih_graph_format::{Csr, NodeId, TypedGraph};

use super::types::{LayerTypes, RelationForm, first_row, runs};

/// Result of moving a graph to a device.
pub(super) type Uploaded<T> = Result<T, ComputeError>;

/// Edges of a layer on the host.
pub struct LayerEdges<'a> {
    /// Number of sources of each node type of the graph.
    pub n_sources: &'a [usize],
    /// Number of destinations of each node type, which are the first of its sources.
    pub n_destinations: &'a [usize],
    /// Relations of the layer, in their order.
    pub relations: Vec<RelationEdges<'a>>,
}

/// Edges of one relation.
#[derive(Clone, Copy)]
pub struct RelationEdges<'a> {
    /// Number of the source type.
    pub source: usize,
    /// Number of the destination type.
    pub destination: usize,
    /// Neighbors of each destination by ids inside the types, `destinations × sources`.
    pub adjacency: &'a Csr,
}

impl<'a> LayerEdges<'a> {
    /// Edges of a whole graph.
    ///
    /// # Panics
    /// When the graph does not have the types of the layer.
    #[must_use]
    pub fn of_graph(typed: &'a TypedGraph, types: &LayerTypes) -> Self {
        let n_nodes = &typed.sizes().node_types[..];
        let relation = |&number: &usize| {
            let edges = &typed.schema().edge_types()[number];
            let adjacency = &typed.relations()[number];
            RelationEdges { source: edges.source, destination: edges.destination, adjacency }
        };
        let relations = types.relations.iter().map(relation).collect();
        Self { n_sources: n_nodes, n_destinations: n_nodes, relations }
    }

    /// First row of each source type, then the number of rows.
    fn source_runs(&self, types: &LayerTypes) -> Vec<usize> {
        runs(types.sources.iter().map(|&of| self.n_sources[of]))
    }

    /// First row of each destination type, then the number of rows.
    fn destination_runs(&self, types: &LayerTypes) -> Vec<usize> {
        runs(types.destinations.iter().map(|&of| self.n_destinations[of]))
    }

    /// Relations with their places among the rows of the layer.
    fn placed(&self, types: &LayerTypes) -> Vec<Placed<'a>> {
        let (source_runs, destination_runs) = (self.source_runs(types), self.destination_runs(types));
        let relations = self.relations.iter().zip(&types.relations).map(|(of, number)| Placed {
            first_source: first_row(&types.sources, &source_runs, of.source) as NodeId,
            first_destination: first_row(&types.destinations, &destination_runs, of.destination),
            edges: *of,
            is_transformed: types.transformed.contains(number),
        });
        relations.collect()
    }
}

/// Relation of a layer, with its place among the rows of the layer.
struct Placed<'a> {
    edges: RelationEdges<'a>,
    /// Row of the first source among the source rows.
    first_source: NodeId,
    /// Row of the first destination among the destination rows.
    first_destination: usize,
    /// Whether sources are transformed before they are averaged.
    is_transformed: bool,
}

/// Relations of a layer on the host, in the form in which a model reads them.
pub struct HostLayer {
    pub(super) source_runs: Vec<usize>,
    pub(super) destination_runs: Vec<usize>,
    /// Source row of each destination; `None` if they are the same.
    pub(super) own: Option<Vec<NodeId>>,
    pub(super) graph: HostGraph,
}

/// As [`RelationGraph`](super::RelationGraph), on the host.
pub(super) enum HostGraph {
    Means { means: Csr, runs: Vec<usize>, sums: Csr, transformed: Option<(Pairs, Csr)> },
    AttentionByRelation { pairs: Pairs, stacked: Vec<NodeId>, runs: Vec<usize>, pattern: Csr, sums: Csr },
    Attention { pairs: Pairs, pattern: Csr, diagonal: Csr, types: Vec<u32> },
}

impl HostLayer {
    /// Relations of a layer in the form that a model reads.
    ///
    /// # Errors
    /// When the layer has more than 2³² rows or edges.
    ///
    /// # Panics
    /// When the edges do not have the types of the layer.
    pub fn new(edges: &LayerEdges<'_>, types: &LayerTypes, form: RelationForm) -> Uploaded<Self> {
        let (source_runs, destination_runs) = (edges.source_runs(types), edges.destination_runs(types));
        let own = own(edges, types, &source_runs);
        let relations = edges.placed(types);
        let (n_sources, n_destinations) = (last(&source_runs), last(&destination_runs));
        let graph = match form {
            RelationForm::Means => {
                let stacked = Stacked::of(&relations, None);
                let transformed = || {
                    let pairs = Pairs::of(&relations, types, |relation| relation.is_transformed);
                    let means = pairs.means(&relations, (types, &destination_runs))?;
                    Ok((pairs, means))
                };
                let transformed = if types.transformed.is_empty() { None } else { Some(transformed()?) };
                HostGraph::Means {
                    means: stacked.neighbors(n_sources)?,
                    sums: stacked.sums(n_destinations)?,
                    runs: stacked.runs,
                    transformed,
                }
            }
            RelationForm::AttentionByRelation => {
                let pairs = Pairs::of(&relations, types, |_| true);
                let stacked = Stacked::of(&relations, Some(&pairs));
                HostGraph::AttentionByRelation {
                    stacked: stacked.destinations.iter().map(|&row| own[row as usize]).collect(),
                    pattern: stacked.neighbors(pairs.rows.len())?,
                    sums: stacked.sums(n_destinations)?,
                    runs: stacked.runs,
                    pairs,
                }
            }
            RelationForm::Attention => {
                let pairs = Pairs::of(&relations, types, |_| true);
                HostGraph::Attention {
                    pattern: pairs.of_destinations(&relations, (types, &destination_runs))?,
                    diagonal: diagonal(n_destinations)?,
                    types: places_of_types(&destination_runs),
                    pairs,
                }
            }
        };
        let keeps_rows = types.keeps_rows() && source_runs == destination_runs;
        Ok(Self { source_runs, destination_runs, own: (!keeps_rows).then_some(own), graph })
    }
}

/// Last element of a list of runs: the number of rows.
pub(super) fn last(runs: &[usize]) -> usize {
    runs.last().copied().unwrap_or(0)
}

/// Source row of each destination of a layer.
fn own(edges: &LayerEdges<'_>, types: &LayerTypes, source_runs: &[usize]) -> Vec<NodeId> {
    let of_type = |&of: &usize| {
        let first = first_row(&types.sources, source_runs, of);
        (first..first + edges.n_destinations[of]).map(|row| row as NodeId)
    };
    types.destinations.iter().flat_map(of_type).collect()
}

/// Place of the type of each destination among the destination types.
fn places_of_types(destination_runs: &[usize]) -> Vec<u32> {
    let of_type = |(place, ends): (usize, &[usize])| std::iter::repeat_n(place as u32, ends[1] - ends[0]);
    destination_runs.windows(2).enumerate().flat_map(of_type).collect()
}

/// Identity matrix.
fn diagonal(n: usize) -> Uploaded<Csr> {
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
struct Stacked {
    indptr: Vec<u64>,
    /// Source rows of neighbors, or their pairs.
    indices: Vec<NodeId>,
    /// Destination row of each stacked row.
    destinations: Vec<NodeId>,
    /// First stacked row of each relation, then the number of stacked rows.
    runs: Vec<usize>,
}

impl Stacked {
    /// Stacked rows whose neighbors are source rows, or pairs if they are given. Relations that are transformed first have
    /// none.
    fn of(relations: &[Placed<'_>], pairs: Option<&Pairs>) -> Self {
        let mut stacked = Self { indptr: vec![0], indices: Vec::new(), destinations: Vec::new(), runs: vec![0] };
        for (place, of) in relations.iter().enumerate() {
            if !of.is_transformed {
                stacked.add(place, of, pairs);
            }
            stacked.runs.push(stacked.destinations.len());
        }
        stacked
    }

    fn add(&mut self, place: usize, of: &Placed<'_>, pairs: Option<&Pairs>) {
        let (adjacency, start) = (of.edges.adjacency, self.indices.len() as u64);
        match pairs {
            None => self.indices.extend(adjacency.indices().iter().map(|&u| of.first_source + u)),
            Some(pairs) => self.indices.extend(pairs.of_edges(place, of)),
        }
        for v in (0..adjacency.n_rows()).filter(|&v| adjacency.degree(v) > 0) {
            self.indptr.push(start + adjacency.indptr()[v + 1]);
            self.destinations.push((of.first_destination + v) as NodeId);
        }
    }

    /// Pattern of the neighbors, `stacked rows × n_cols`.
    fn neighbors(&self, n_cols: usize) -> Uploaded<Csr> {
        matrix((self.destinations.len(), n_cols), self.indptr.clone(), self.indices.clone(), None)
    }

    /// Matrix that sums the stacked rows of each destination.
    fn sums(&self, n_destinations: usize) -> Uploaded<Csr> {
        let n = self.destinations.len();
        let of_rows = matrix((n, n_destinations), (0..=n as u64).collect(), self.destinations.clone(), None)?;
        Ok(of_rows.transposed())
    }
}

/// Pairs of a relation and a source of it, by ascending relations and rows.
pub(super) struct Pairs {
    /// Source row of each pair.
    pub(super) rows: Vec<NodeId>,
    /// First pair of each relation, then the number of pairs.
    pub(super) runs: Vec<usize>,
    /// Place of each relation's source type among the source types.
    pub(super) sources: Vec<u32>,
}

impl Pairs {
    /// Pairs of the relations that are `wanted`; others have none.
    fn of(relations: &[Placed<'_>], types: &LayerTypes, wanted: impl Fn(&Placed<'_>) -> bool) -> Self {
        let (mut rows, mut runs) = (Vec::new(), vec![0]);
        for of in relations {
            if wanted(of) {
                rows.extend(of.edges.adjacency.used_columns().map(|u| of.first_source + u as NodeId));
            }
            runs.push(rows.len());
        }
        let place = |of: &Placed<'_>| types.sources.partition_point(|&source| source < of.edges.source) as u32;
        Self { rows, runs, sources: relations.iter().map(place).collect() }
    }

    /// Pair of each edge of a relation, by its place in the layer, in the order of the edges.
    fn of_edges(&self, place: usize, of: &Placed<'_>) -> Vec<NodeId> {
        let adjacency = of.edges.adjacency;
        let mut pair_of = vec![0; adjacency.n_cols()];
        for (pair, row) in (self.runs[place]..self.runs[place + 1]).zip(&self.rows[self.runs[place]..]) {
            pair_of[(row - of.first_source) as usize] = pair as NodeId;
        }
        adjacency.indices().iter().map(|&u| pair_of[u as usize]).collect()
    }

    /// As [`of_edges`](Self::of_edges), of every relation; a relation without pairs has none.
    fn of_all_edges(&self, relations: &[Placed<'_>]) -> Vec<Vec<NodeId>> {
        let has_pairs = |place: usize| self.runs[place] < self.runs[place + 1];
        let of_relation = |(place, of)| if has_pairs(place) { self.of_edges(place, of) } else { Vec::new() };
        relations.iter().enumerate().map(of_relation).collect()
    }

    /// Pattern of the neighbors of each destination by all relations, `destinations × pairs`.
    fn of_destinations(&self, relations: &[Placed<'_>], of: (&LayerTypes, &[usize])) -> Uploaded<Csr> {
        let rows = neighbors_of_destinations((relations, &self.of_all_edges(relations)), of, |_| 1.0);
        matrix((rows.indptr.len() - 1, self.rows.len()), rows.indptr, rows.indices, None)
    }

    /// Sums of the means of each relation with pairs, `destinations × pairs`.
    fn means(&self, relations: &[Placed<'_>], of: (&LayerTypes, &[usize])) -> Uploaded<Csr> {
        let pairs = self.of_all_edges(relations);
        let rows = neighbors_of_destinations((relations, &pairs), of, |degree| 1.0 / degree as f32);
        matrix((rows.indptr.len() - 1, self.rows.len()), rows.indptr, rows.indices, Some(rows.values))
    }
}

/// Rows of a matrix with weights.
struct WeightedRows {
    indptr: Vec<u64>,
    indices: Vec<NodeId>,
    values: Vec<f32>,
}

/// Neighbors of each destination by all relations. `columns` has the column of each edge of a relation, or is empty for a
/// relation that is left out; `value` gives the value of an entry for the number of neighbors by that relation.
fn neighbors_of_destinations(
    (relations, columns): (&[Placed<'_>], &[Vec<NodeId>]),
    (types, destination_runs): (&LayerTypes, &[usize]),
    value: impl Fn(usize) -> f32,
) -> WeightedRows {
    let n_edges = columns.iter().map(Vec::len).sum();
    let (mut indptr, mut entries) = (vec![0_u64], Vec::with_capacity(n_edges));
    for (node_type, ends) in types.destinations.iter().zip(destination_runs.windows(2)) {
        let ends_here = |of: &Placed<'_>, columns: &[NodeId]| of.edges.destination == *node_type && !columns.is_empty();
        let into: Vec<_> = relations.iter().zip(columns).filter(|(of, columns)| ends_here(of, columns)).collect();
        for v in 0..ends[1] - ends[0] {
            let start = entries.len();
            for &(of, columns) in &into {
                let range = of.edges.adjacency.row_range(v);
                let value = value(range.len());
                entries.extend(columns[range].iter().map(|&column| (column, value)));
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
    /// Row `v` has `1 / n` at the pairs of each edge type that ends in `v`, with `n` neighbors by it.
    pub(super) means: Csr,
}

impl SourcePairs {
    /// Pairs of a layer.
    pub(super) fn of(edges: &LayerEdges<'_>, types: &LayerTypes) -> Uploaded<Self> {
        let placed = edges.placed(types);
        let by_relation = Pairs::of(&placed, types, |_| true);
        let places = by_relation.runs.windows(2).enumerate();
        let mut order: Vec<(NodeId, u32, NodeId)> = places
            .flat_map(|(place, ends)| (ends[0]..ends[1]).map(move |pair| (place as u32, pair)))
            .map(|(place, pair)| (by_relation.rows[pair], place, pair as NodeId))
            .collect();
        order.sort_unstable();
        let mut numbers = vec![0; order.len()];
        for (number, &(.., pair)) in order.iter().enumerate() {
            numbers[pair as usize] = number as NodeId;
        }
        let mut columns = by_relation.of_all_edges(&placed);
        columns.iter_mut().flatten().for_each(|column| *column = numbers[*column as usize]);
        let of = (types, &edges.destination_runs(types)[..]);
        let rows = neighbors_of_destinations((&placed, &columns), of, |degree| 1.0 / degree as f32);
        let pairs: Vec<(NodeId, u32)> = order.into_iter().map(|(row, place, _)| (row, place)).collect();
        let means = matrix((rows.indptr.len() - 1, pairs.len()), rows.indptr, rows.indices, Some(rows.values))?;
        let (rows, relations) = pairs.into_iter().unzip();
        Ok(Self { rows, relations, means })
    }
}
