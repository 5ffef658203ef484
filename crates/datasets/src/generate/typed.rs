//! Generation of graphs with types: relations one after the other, then features and labels of each type.

use std::time::Instant;

use girih_compress::CodecSpec;
use girih_graph_format::{EdgeType, NodeType, Notes, Schema, TypedGraph};
use rayon::prelude::*;
use tracing::info;

use super::assemble::{Entries, assemble};
use super::decision::Keys;
use super::features;
use super::planted::Pairs;
use super::population::Population;
use super::recipes::{RelationDraws, TypeSize, Typed};
use crate::typed_parts::TypedParts;
use crate::{Dataset, DatasetError, ReverseEdges, SplitRule, TypeFeatures, reverses};

/// Bytes per entry of a relation while the union of all relations is made: the relation, lists of both ends, the union.
const ENTRY_BYTES: u64 = 28;
/// Bytes per node, without features and offsets of rows: ids, weights, tables, labels.
const NODE_BYTES: u64 = 64;

impl Typed {
    /// Number of nodes of all types.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.node_types.iter().fold(0, |sum: usize, of| sum.saturating_add(of.nodes))
    }

    /// Number of edges of all relations, without their reverses.
    #[must_use]
    pub fn edges(&self) -> u64 {
        self.relations.iter().fold(0, |sum: u64, of| sum.saturating_add(of.edges))
    }

    /// Number of edges of the relations that begin or end in the target, without their reverses.
    #[must_use]
    pub fn target_edges(&self) -> u64 {
        let touches = |of: &&RelationDraws| [of.source, of.destination].contains(&self.target);
        self.relations.iter().filter(touches).fold(0, |sum: u64, of| sum.saturating_add(of.edges))
    }

    /// Name of a relation with those of its ends.
    pub(super) fn full_name(&self, of: &RelationDraws) -> String {
        [&self.node_types[of.source].name, &of.name, &self.node_types[of.destination].name]
            .map(String::as_str)
            .join(".")
    }

    /// Types of nodes and edges.
    pub(super) fn schema(&self) -> Result<Schema, DatasetError> {
        let node_type = |of: &TypeSize| NodeType { name: of.name.clone(), n_nodes: of.nodes };
        let edge_type = |of: &RelationDraws| EdgeType {
            relation: of.name.clone(),
            source: of.source,
            destination: of.destination,
            reverse_of: None,
        };
        let (nodes, relations) = (self.node_types.iter().map(node_type), self.relations.iter().map(edge_type));
        Ok(Schema::new(nodes.collect(), relations.collect())?)
    }

    /// Types of nodes and edges with the reverses that are added. The list has the relation that each edge type is made
    /// of, and whether it is its reverse.
    pub(super) fn schema_with_reverses(&self) -> Result<(Schema, Vec<(usize, bool)>), DatasetError> {
        let schema = self.schema()?;
        let needs = |number: usize| match self.reverse {
            ReverseEdges::Add => true,
            ReverseEdges::Merge => !reverses::is_inside(&schema, number),
            ReverseEdges::No => false,
        };
        Ok(schema.with_reverses(needs)?)
    }

    /// Refuses a relation with more than half of all possible pairs.
    pub(super) fn check_density(&self) -> Result<(), DatasetError> {
        for of in &self.relations {
            let [sources, destinations] = [of.source, of.destination].map(|end| self.node_types[end].nodes as u64);
            let n_loops = if of.source == of.destination { sources } else { 0 };
            let most = (sources * destinations - n_loops) / 2;
            if of.edges > most {
                return Err(DatasetError::spec(format!(
                    "{}: {sources} sources and {destinations} destinations hold at most {most} generated edges (half of \
                     all pairs), {} are asked for; take a larger SCALE",
                    self.full_name(of),
                    of.edges
                )));
            }
        }
        Ok(())
    }

    /// Peak memory in bytes: all features, while the relations are joined.
    pub(super) fn peak_bytes(&self, codec: Option<CodecSpec>) -> u64 {
        let directions = if self.reverse == ReverseEdges::No { 1 } else { 2 };
        let of_entries = self.edges().saturating_mul(directions * ENTRY_BYTES);
        let n_rows = self.relations.iter().flat_map(|of| [of.source, of.destination]);
        let offsets = n_rows.map(|end| (self.node_types[end].nodes as u64).saturating_mul(size_of::<u64>() as u64));
        let of_nodes = self.node_types.iter().map(|of| {
            let codes = codec.filter(|_| of.features > 0).map(|codec| codec.row_bytes(of.features));
            let row = codes.unwrap_or(of.features * size_of::<f32>());
            (of.nodes as u64).saturating_mul(row as u64 + NODE_BYTES)
        });
        offsets.chain(of_nodes).fold(of_entries, u64::saturating_add)
    }

    /// Generates the data set, named `name`, with `n_splits` split sets; features as codes, if a codec and its seed are
    /// given.
    pub(super) fn generate(
        &self,
        name: &str,
        n_splits: usize,
        codec: Option<(CodecSpec, u64)>,
    ) -> Result<Dataset, DatasetError> {
        let (start, seed) = (Instant::now(), self.settings.seed);
        let plant =
            |(number, of): (usize, &TypeSize)| Population::new(of.nodes, &self.settings, Keys::of_one(seed, number));
        let populations: Vec<Population> = self.node_types.par_iter().enumerate().map(plant).collect();
        let graph = self.graph(&populations)?;
        let mut notes = Notes::default();
        let graph = reverses::of_all(graph, Some(self.reverse), &mut notes)?;
        info!(seconds = start.elapsed().as_secs_f64(), edges = graph.n_edges(), "generated the topology");

        let start = Instant::now();
        let (mut of_types, mut labels, mut splits) = (Vec::new(), None, Vec::new());
        for (number, population) in populations.into_iter().enumerate() {
            let (keys, community) = (Keys::of_one(seed, number), population.community_by_node());
            of_types.push(self.features(number, &community, codec)?);
            if number == self.target {
                let of_all = features::labels(&self.settings, keys, &community)?;
                let known = features::known(of_all, self.labelled, &population, keys);
                splits = SplitRule::of(&self.settings).draw_many(&known, seed, n_splits)?;
                labels = Some(known);
            }
        }
        info!(seconds = start.elapsed().as_secs_f64(), "generated labels and features");
        let parts = TypedParts { graph, features: of_types, target: self.target, labels, splits, names: None };
        let dataset = parts.into_dataset(name.to_owned())?;
        Ok(Dataset { notes, ..dataset })
    }

    /// Graph of all relations, drawn one after the other, so that pairs of one are in memory at a time.
    fn graph(&self, nodes: &[Population]) -> Result<TypedGraph, DatasetError> {
        let relation = |(number, of): (usize, &RelationDraws)| {
            let entries = Entries::One { joins_types: of.source != of.destination };
            let keys = Keys::of_one(self.settings.seed, number);
            assemble(&Pairs::of_relation(self, number, nodes), entries, of.edges, keys)
        };
        let relations = self.relations.iter().enumerate().map(relation).collect::<Result<_, _>>()?;
        Ok(TypedGraph::new(self.schema()?, relations)?)
    }

    /// Features of a node type, given the community of each of its nodes.
    fn features(
        &self,
        number: usize,
        community: &[u32],
        codec: Option<(CodecSpec, u64)>,
    ) -> Result<TypeFeatures, DatasetError> {
        let width = self.node_types[number].features;
        if width == 0 {
            return Ok(TypeFeatures::None);
        }
        let keys = Keys::of_one(self.settings.seed, number);
        let rows = features::Rows::new(&self.settings, width, keys, community);
        Ok(TypeFeatures::Given(rows.stored(codec)?))
    }
}
