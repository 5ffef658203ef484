//! Laws of operators that relabel lists of edges.

use std::collections::HashMap;

use girih_graph_format::NodeId;
use girih_sampling::Block;
use girih_sampling::relabel::{NewNodes, Relabel, SampledEdges, ToBlockFast, to_block};
use proptest::prelude::*;

const NODES: usize = 300;

/// Destinations, and edges that end in them, in any order.
fn hops() -> impl Strategy<Value = (Vec<NodeId>, SampledEdges)> {
    let destinations =
        prop::collection::hash_set(0..NODES as u32, 1..40).prop_map(|set| set.into_iter().collect::<Vec<_>>());
    (destinations, prop::collection::vec((any::<prop::sample::Index>(), 0..NODES as u32), 0..200)).prop_map(
        |(destinations, pairs)| {
            let edges = SampledEdges {
                destinations: pairs.iter().map(|(at, _)| *at.get(&destinations)).collect(),
                sources: pairs.iter().map(|(_, source)| *source).collect(),
                edge_ids: (0..pairs.len() as u64).map(|e| 1000 - e).collect(),
            };
            (destinations, edges)
        },
    )
}

/// Edges of each destination in global ids, in the order in which they came.
fn by_destination(edges: &SampledEdges) -> HashMap<NodeId, Vec<(NodeId, u64)>> {
    let mut rows: HashMap<NodeId, Vec<(NodeId, u64)>> = HashMap::new();
    for ((&destination, &source), &id) in edges.destinations.iter().zip(&edges.sources).zip(&edges.edge_ids) {
        rows.entry(destination).or_default().push((source, id));
    }
    rows
}

fn check(block: &Block, destinations: &[NodeId], edges: &SampledEdges, order: NewNodes) -> Result<(), TestCaseError> {
    prop_assert_eq!(block.destinations(), destinations);
    let mut rows = by_destination(edges);
    for (row, node) in destinations.iter().enumerate() {
        let range = block.indptr[row] as usize..block.indptr[row + 1] as usize;
        let found = range.map(|e| (block.nodes[block.indices[e] as usize], block.edge_ids[e]));
        prop_assert_eq!(found.collect::<Vec<_>>(), rows.remove(node).unwrap_or_default());
    }
    let mut new: Vec<NodeId> = Vec::new();
    for source in &edges.sources {
        if !destinations.contains(source) && !new.contains(source) {
            new.push(*source);
        }
    }
    if order == NewNodes::Ascending {
        new.sort_unstable();
    }
    prop_assert_eq!(&block.nodes[destinations.len()..], &new[..]);
    Ok(())
}

proptest! {
    #[test]
    fn operators_give_the_block_of_the_contract((seeds, first) in hops(), second in prop::collection::vec((any::<prop::sample::Index>(), 0..NODES as u32), 0..300)) {
        for order in [NewNodes::Ascending, NewNodes::FirstSeen] {
            let mut fast = ToBlockFast::new(order);
            fast.begin(NODES, &seeds).unwrap();
            let found = fast.block(&first).unwrap();
            check(&found, &seeds, &first, order)?;
            prop_assert_eq!(&found, &to_block(&first, &seeds, order).unwrap());
            // The map is kept: all nodes so far are destinations of the next hop.
            let destinations = found.nodes;
            let edges = SampledEdges {
                destinations: second.iter().map(|(at, _)| *at.get(&destinations)).collect(),
                sources: second.iter().map(|(_, source)| *source).collect(),
                edge_ids: (0..second.len() as u64).collect(),
            };
            let found = fast.block(&edges).unwrap();
            check(&found, &destinations, &edges, order)?;
            prop_assert_eq!(found, to_block(&edges, &destinations, order).unwrap());
        }
    }
}

#[test]
fn edges_that_break_the_contract_are_refused() {
    let edges = |destinations: &[NodeId], sources: &[NodeId], edge_ids: &[u64]| SampledEdges {
        destinations: destinations.to_vec(),
        sources: sources.to_vec(),
        edge_ids: edge_ids.to_vec(),
    };
    let order = NewNodes::Ascending;
    let fast = |seeds: &[NodeId], edges: &SampledEdges| {
        let mut fast = ToBlockFast::new(order);
        fast.begin(10, seeds)?;
        fast.block(edges)
    };
    let foreign = edges(&[2, 3], &[1, 1], &[]);
    for error in [to_block(&foreign, &[2], order).unwrap_err(), fast(&[2], &foreign).unwrap_err()] {
        assert!(error.to_string().contains("edge 1 ends in node 3"), "{error}");
    }
    let none = SampledEdges::default();
    for error in [to_block(&none, &[4, 2, 4], order).unwrap_err(), fast(&[4, 2, 4], &none).unwrap_err()] {
        assert!(error.to_string().contains("node 4 is listed twice"), "{error}");
        assert!(error.to_string().contains("0 and") && error.to_string().contains('2'), "{error}");
    }
    for uneven in [edges(&[2], &[], &[]), edges(&[2, 2], &[1, 1], &[5])] {
        assert!(to_block(&uneven, &[2], order).is_err() && fast(&[2], &uneven).is_err());
    }
    assert!(fast(&[10], &none).unwrap_err().to_string().contains("node 10 does not exist"));
    assert!(fast(&[1], &edges(&[1], &[99], &[])).unwrap_err().to_string().contains("node 99 does not exist"));
}

#[test]
fn names_are_read_as_they_are_written() {
    for relabel in Relabel::ALL {
        assert_eq!(relabel.to_string().parse::<Relabel>().unwrap(), relabel);
    }
    assert!("ranks".parse::<Relabel>().unwrap_err().to_string().contains("to-block, to-block-fast, fused, rank"));
}
