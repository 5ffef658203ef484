//! Data sets whose nodes and edges have types.

use std::sync::Arc;

use crate::common::load_default;
use girih_datasets::{Dataset, EdgeSplit, HeldOutEdges, Labels, Names, Negatives, OutputFormat, TypedData, UNLABELLED};
use girih_graph_format::{Coo, Csr, Duplicates, EdgeType, NodeId, NodeType, Permutation, Schema, TypedGraph};

fn schema(n_nodes: &[usize], edges: &[(&str, usize, usize)]) -> Schema {
    let node_type = |(i, &n_nodes): (usize, &usize)| NodeType { name: format!("type{i}"), n_nodes };
    let edge_type = |&(relation, source, destination): &(&str, usize, usize)| EdgeType {
        relation: relation.to_owned(),
        source,
        destination,
        reverse_of: None,
    };
    Schema::new(n_nodes.iter().enumerate().map(node_type).collect(), edges.iter().map(edge_type).collect()).unwrap()
}

fn relation(n_rows: usize, n_cols: usize, rows: &[NodeId], cols: &[NodeId]) -> Csr {
    Coo::new(n_rows, n_cols, rows.to_vec(), cols.to_vec(), None).unwrap().to_csr(Duplicates::Refuse).unwrap()
}

/// Four nodes with names, two relations that share the edge 1 → 0, and labels of two nodes.
fn people() -> Dataset {
    let relations = vec![relation(4, 4, &[0, 2], &[1, 3]), relation(4, 4, &[0, 3], &[1, 3])];
    let typed = TypedGraph::new(schema(&[4], &[("knows", 0, 0), ("likes", 0, 0)]), relations).unwrap();
    let names = Names {
        nodes: ["ann", "bob", "", "dörte"].into_iter().collect(),
        classes: vec!["no".to_owned(), "yes".to_owned()],
    };
    let labels = Labels::Single { n_classes: 2, classes: vec![1, UNLABELLED, 0, UNLABELLED] };
    let dataset = Dataset::of_typed("people", TypedData::of_graph(typed)).unwrap();
    Dataset { names: Some(Arc::new(names)), labels: Some(labels), ..dataset }
}

#[test]
fn the_graph_of_typed_data_is_the_union_of_its_relations() {
    let people = people();
    people.validate().unwrap();
    assert_eq!((people.n_nodes(), people.n_edges(), people.typed.as_ref().unwrap().graph.n_edges()), (4, 3, 4));
    let outline = people.outline();
    assert_eq!(
        (outline.schema.is_some(), outline.relations.node_types.len(), outline.relations.relations.len()),
        (true, 1, 2)
    );
    let names = people.names.as_ref().unwrap();
    assert_eq!(names.nodes.iter().collect::<Vec<_>>(), ["ann", "bob", "", "dörte"]);
    let types = schema(&[2, 3], &[("writes", 1, 0)]);
    let several = TypedGraph::new(types, vec![relation(2, 3, &[0], &[2])]).unwrap();
    Dataset::of_typed("several", TypedData::of_graph(several)).unwrap().validate().unwrap();
}

#[test]
fn types_and_names_that_contradict_the_graph_are_refused() {
    let refused = |dataset: Dataset| dataset.validate().unwrap_err().to_string();
    let graph = people().graph;
    let other = Dataset { graph: graph.filtered(|v, _| v != 2), ..people() };
    assert!(refused(other).contains("the edges of node 2 in the graph are not those of its relations"));
    let weights = graph.with_values(Some(vec![1.0; graph.nnz()].into())).unwrap();
    assert!(refused(Dataset { graph: weights, ..people() }).contains("have no weights"));
    let small = Dataset { graph: Csr::empty(3, 3).unwrap(), labels: None, names: None, ..people() };
    assert_eq!(refused(small), "the types have 4 nodes together, and the graph has 3");
    let with = |names: Names| Dataset { names: Some(Arc::new(names)), ..people() };
    let short = Names { nodes: ["ann"].into_iter().collect(), classes: Vec::new() };
    assert_eq!(refused(with(short)), "1 names for 4 nodes; each node needs one");
    let names = (*people().names.unwrap()).clone();
    let classes = Names { classes: vec!["no".to_owned()], ..names };
    assert_eq!(refused(with(classes)), "1 names for 2 classes; each class needs one, or none has one");
}

#[test]
fn the_hash_of_typed_data_depends_on_its_types() {
    let people = people();
    let with = |typed: TypedGraph| {
        Dataset { typed: Some(Arc::new(TypedData::of_graph(typed))), ..people.clone() }.fingerprint()
    };
    let typed = &people.typed.as_ref().unwrap().graph;
    let renamed = TypedGraph::new(schema(&[4], &[("knows", 0, 0), ("hates", 0, 0)]), typed.relations().to_vec());
    let exchanged = typed.relations().iter().rev().cloned().collect();
    let exchanged = TypedGraph::new(typed.schema().clone(), exchanged);
    let hashes = [people.fingerprint(), with(renamed.unwrap()), with(exchanged.unwrap())];
    let without = Dataset { typed: None, ..people.clone() };
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && !hashes.contains(&without.fingerprint()));
    assert_eq!(Dataset { names: None, ..people.clone() }.fingerprint(), people.fingerprint());
}

#[test]
fn relations_and_names_follow_a_new_order() {
    let order = Permutation::from_new_of_old(vec![2, 0, 3, 1]).unwrap();
    let moved = people().permuted(&order).unwrap();
    moved.validate().unwrap();
    let names = moved.names.as_ref().unwrap();
    assert_eq!(names.nodes.iter().collect::<Vec<_>>(), ["bob", "dörte", "ann", ""]);
    let typed = &moved.typed.as_ref().unwrap().graph;
    assert_eq!((typed.relations()[0].row(2), typed.relations()[1].row(1)), (&[0][..], &[1][..]));
    assert_eq!(moved.permuted(&order.inverse()).unwrap(), people());
    let several = TypedGraph::new(schema(&[2, 2], &[("writes", 1, 0)]), vec![relation(2, 2, &[0], &[1])]).unwrap();
    let refused =
        Dataset::of_typed("several", TypedData::of_graph(several)).unwrap().permuted(&order).unwrap_err().to_string();
    assert_eq!(refused, "an order of all nodes would mix the 2 node types; leave the order out");
}

#[test]
fn no_format_drops_types_in_silence() {
    let home = tempfile::tempdir().unwrap();
    for name in ["a.csv", "a.mtx", "a.graph"] {
        let path = home.path().join(name);
        let error = people().save_as(OutputFormat::of(&path).unwrap(), &path).unwrap_err();
        let told = "people has types (1 node type, 2 edge types), which a file of this kind";
        assert!(error.to_string().contains(told), "{error}");
        assert!(error.path() == Some(&path) && !path.exists(), "{name}");
    }
    for name in ["folder", "a.safetensors", "a.npz"] {
        let path = home.path().join(name);
        people().save_as(OutputFormat::of(&path).unwrap(), &path).unwrap();
        // Labels without a split get a drawn one in named arrays.
        let read = Dataset { splits: Vec::new(), ..load_default(&path) };
        assert_eq!((read.fingerprint(), &read.names), (people().fingerprint(), &people().names), "{name}");
        assert_eq!(read.typed, people().typed, "{name}");
    }
    let path = home.path().join("more");
    let none = || HeldOutEdges { edges: Vec::new(), negatives: Negatives::Shared(Vec::new()) };
    let held_out = EdgeSplit { train: Vec::new(), val: none(), test: none() };
    let more = Dataset { edge_split: Some(Arc::new(held_out)), ..people() };
    assert!(more.save(&path).unwrap_err().to_string().contains("has types and a split of edges"));
    assert!(!path.exists());
}
