//! [`NodeTypes`]: types of the nodes of N-Triples, by the classes that `rdf:type` states.

use std::collections::BTreeMap;

use girih_graph_format::{Csr, Duplicates, EdgeType, NodeId, NodeType, Notes, Schema, TypedGraph};
use hashbrown::HashMap;

use crate::entity_graph::{Edges, NODE_TYPE, relation};
use crate::{DatasetError, LoadOptions, NameList, TypeFeatures, reverses};

/// Predicate that states the class of a node.
pub(super) const RDF_TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";
/// Type of literals that are nodes.
const LITERAL: &str = "literal";

/// Types of nodes, and the new ids of nodes that a file numbers.
pub(super) struct NodeTypes {
    types: Vec<NodeType>,
    /// Type of each node of the file, and its id inside it.
    places: Vec<(usize, NodeId)>,
}

impl NodeTypes {
    /// Types of the nodes `names`: of the classes that `typings`, the triples of [`RDF_TYPE`], state of a node, the one that
    /// is stated most often, or of several the first. Other nodes are literals or entities. Types are numbered in the order
    /// of their first nodes.
    pub(super) fn new(names: &NameList, typings: &Edges, notes: &mut Notes) -> Self {
        let (mut classes, mut sizes) = (vec![None; names.len()], vec![0_u64; names.len()]);
        typings.destinations.iter().for_each(|&class| sizes[class as usize] += 1);
        let mut n_several = 0_u64;
        for (&node, &class) in typings.sources.iter().zip(&typings.destinations) {
            let of_node = classes[node as usize].get_or_insert(class);
            n_several += u64::from(*of_node != class);
            if sizes[class as usize] > sizes[*of_node as usize] {
                *of_node = class;
            }
        }
        let (mut types, mut numbers) = (Vec::<NodeType>::new(), HashMap::new());
        let mut places = Vec::with_capacity(names.len());
        for (name, class) in names.iter().zip(classes) {
            let of = match class {
                Some(class) => names.get(class as usize),
                None if name.starts_with('"') => LITERAL,
                None => NODE_TYPE,
            };
            let number = *numbers.entry(of).or_insert(types.len());
            if number == types.len() {
                types.push(NodeType { name: of.to_owned(), n_nodes: 0 });
            }
            places.push((number, types[number].n_nodes as NodeId));
            types[number].n_nodes += 1;
        }
        if n_several > 0 {
            let text =
                format!("{n_several} statements give nodes another class; the most common one is the type of a node");
            notes.make_up("other_classes", text, &[("triples", n_several)]);
        }
        Self { types, places }
    }

    /// Global id of each node of the file.
    pub(super) fn ids(&self) -> Vec<NodeId> {
        let (mut firsts, mut first) = (Vec::with_capacity(self.types.len()), 0);
        for of in &self.types {
            firsts.push(first);
            first += of.n_nodes as NodeId;
        }
        self.places.iter().map(|&(of, local)| firsts[of] + local).collect()
    }

    /// Graph with an edge type for each predicate and pair of types that it joins, and with reverses as the options say.
    ///
    /// # Errors
    /// As [`entity_graph`](crate::entity_graph::entity_graph).
    pub(super) fn graph(
        &self,
        predicates: &NameList,
        edges: Vec<Edges>,
        options: &LoadOptions,
        notes: &mut Notes,
    ) -> Result<TypedGraph, DatasetError> {
        let (mut edge_types, mut relations, mut n_stated) = (Vec::new(), Vec::<Csr>::new(), 0);
        for (predicate, edges) in predicates.iter().zip(edges) {
            n_stated += edges.sources.len();
            for ((source, destination), edges) in self.by_types(&edges) {
                let shape = [destination, source].map(|of| self.types[of].n_nodes);
                relations.push(relation(edges, (shape[0], shape[1]), options)?);
                edge_types.push(EdgeType { relation: predicate.to_owned(), source, destination, reverse_of: None });
            }
        }
        let typed = TypedGraph::new(Schema::new(self.types.clone(), edge_types)?, relations)?;
        Duplicates::Merge.note(n_stated - typed.n_edges(), false, notes);
        reverses::of_all(typed, options.reverse, notes)
    }

    /// Edges of a predicate by the types of their ends, with ids inside these.
    fn by_types(&self, edges: &Edges) -> BTreeMap<(usize, usize), Edges> {
        let mut by_types = BTreeMap::<(usize, usize), Edges>::new();
        for (&source, &destination) in edges.sources.iter().zip(&edges.destinations) {
            let [(from, source), (to, destination)] = [source, destination].map(|v| self.places[v as usize]);
            by_types.entry((from, to)).or_default().push(source, destination);
        }
        by_types
    }

    /// Features of each type, from those of all nodes by global ids; none for a type whose nodes have zeros alone.
    pub(super) fn features(&self, all: Option<&Csr>) -> Vec<TypeFeatures> {
        let mut first = 0;
        let of_type = |of: &NodeType| {
            let rows = first..first + of.n_nodes;
            first = rows.end;
            let rows = all.map(|all| all.row_slice(rows)).filter(|rows| rows.nnz() > 0);
            rows.map_or(TypeFeatures::None, |rows| TypeFeatures::Given(crate::Features::Sparse(rows)))
        };
        self.types.iter().map(of_type).collect()
    }
}
