//! Laws of typed samples: they equal the definition, and those of a homogeneous graph where there is one type.

use std::collections::{BTreeSet, HashMap};

use girih_graph_format::{Coo, Duplicates, EdgeType, NodeId, NodeType, Schema, TypedGraph};
use girih_random::{Key, purpose};
use girih_sampling::testing::{fan_outs, graphs_and_seeds, typed_graphs};
use girih_sampling::{
    DrawKey, Expand, FanOutRules, NeighborOptions, NeighborSampler, Neighbors, Sampler, TypedBatch, TypedEdgeList,
    TypedExcluded, TypedFanOut, TypedOptions, TypedSampler, TypedSeeds,
};
use proptest::prelude::*;

use crate::common::plain_draw;

/// Nodes of each type, and for each edge type and destination its columns and edges.
#[derive(Debug, PartialEq)]
struct PlainBlock {
    nodes: Vec<Vec<NodeId>>,
    rows: Vec<Vec<Vec<(NodeId, u64)>>>,
}

fn plain(batch: &TypedBatch) -> Vec<PlainBlock> {
    let of_block = |block: &girih_sampling::TypedBlock| {
        let nodes = batch.nodes.iter().zip(&block.n_sources).map(|(nodes, &n)| nodes[..n].to_vec()).collect();
        let of_type = |rows: &girih_sampling::RelationRows| {
            let edges = |v: usize| rows.indptr[v] as usize..rows.indptr[v + 1] as usize;
            let row = |v: usize| edges(v).map(|e| (rows.indices[e], rows.edge_ids[e])).collect();
            (0..rows.indptr.len() - 1).map(row).collect()
        };
        PlainBlock { nodes, rows: block.relations.iter().map(of_type).collect() }
    };
    batch.blocks.iter().map(of_block).collect()
}

/// Batch by the definition in `docs/draws.md`: blocks from the inputs on.
fn plain_sample(
    graph: &TypedGraph,
    seeds: &TypedSeeds<'_>,
    key: DrawKey,
    fan_out: &TypedFanOut,
    options: TypedOptions,
    excluded: &[BTreeSet<u64>],
) -> Vec<PlainBlock> {
    let of_epoch = Key::new(key.seed, purpose::SAMPLING).child(1).child(u64::from(key.epoch));
    let mut nodes = vec![Vec::new(); graph.schema().node_types().len()];
    seeds.iter().for_each(|&(of, seeds)| nodes[of] = seeds.to_vec());
    let mut kept: HashMap<(usize, NodeId), Vec<u64>> = HashMap::new();
    let mut blocks = Vec::new();
    for (hop, of_types) in fan_out.hops().iter().enumerate() {
        let mut edges: Vec<Vec<Vec<u64>>> = Vec::new();
        for (r, relation) in graph.relations().iter().enumerate() {
            let destinations = &nodes[graph.schema().edge_types()[r].destination];
            let draw = |node: NodeId| match of_types[r] {
                None => Vec::new(),
                Some(neighbors) => {
                    let high = ((hop as u64 + 256 * r as u64) << 32) + u64::from(node);
                    let stream = of_epoch.stream(high, u64::from(key.batch) << 32);
                    plain_draw(relation, node, neighbors, options.replace, None, &excluded[r], stream)
                }
            };
            let of_node = |&node: &NodeId| match options.expand {
                Expand::PerLayer => draw(node),
                Expand::Once => kept.entry((r, node)).or_insert_with(|| draw(node)).clone(),
            };
            edges.push(destinations.iter().map(of_node).collect());
        }
        let source_of = |r: usize, edge: u64| graph.relations()[r].indices()[edge as usize];
        for (number, of_type) in nodes.iter_mut().enumerate() {
            let into = edges.iter().enumerate().filter(|(r, _)| graph.schema().edge_types()[*r].source == number);
            let found: BTreeSet<NodeId> =
                into.flat_map(|(r, rows)| rows.iter().flatten().map(move |&edge| source_of(r, edge))).collect();
            let new: Vec<NodeId> = found.into_iter().filter(|node| !of_type.contains(node)).collect();
            of_type.extend(new);
        }
        let place = |r: usize, edge: u64| {
            let sources = &nodes[graph.schema().edge_types()[r].source];
            sources.iter().position(|&node| node == source_of(r, edge)).unwrap() as NodeId
        };
        let rows = edges
            .iter()
            .enumerate()
            .map(|(r, rows)| rows.iter().map(|row| row.iter().map(|&edge| (place(r, edge), edge)).collect()).collect());
        let rows = rows.collect();
        blocks.push(PlainBlock { nodes: nodes.clone(), rows });
    }
    blocks.reverse();
    blocks
}

/// Seeds of some node types, ids inside the type.
type Seeds = Vec<(usize, Vec<NodeId>)>;

/// Seeds as samplers take them.
fn lent(seeds: &Seeds) -> Vec<(usize, &[NodeId])> {
    seeds.iter().map(|(of, seeds)| (*of, &seeds[..])).collect()
}

/// A typed graph with seeds of some of its types, one at least, and a fan-out of one to three hops.
fn inputs() -> impl Strategy<Value = (TypedGraph, Seeds, TypedFanOut)> {
    let numbers = prop_oneof![6 => 0..6i64, 1 => Just(-1), 1 => Just(70)];
    let of_graph = move |graph: TypedGraph| {
        let n_types = graph.schema().edge_types().len();
        let rules = (1..4usize).prop_flat_map({
            let numbers = numbers.clone();
            move |n_hops| {
                prop::collection::vec(prop::collection::vec(numbers.clone(), n_hops..=n_hops), n_types..=n_types)
            }
        });
        let sizes = graph.sizes().node_types.clone();
        let order = Just((0..sizes.len()).collect::<Vec<_>>()).prop_shuffle();
        let some = (order, 1..=sizes.len()).prop_flat_map(move |(mut types, n)| {
            types.truncate(n);
            let of_type = |of: usize, n: usize| {
                let order = Just((0..n as NodeId).collect::<Vec<_>>()).prop_shuffle();
                (order, 0..=n).prop_map(move |(mut seeds, len)| {
                    seeds.truncate(len);
                    (of, seeds)
                })
            };
            types.into_iter().map(|of| of_type(of, sizes[of])).collect::<Vec<_>>()
        });
        (Just(graph), some, rules).prop_map(|(graph, seeds, rules)| {
            let named = rules.into_iter().enumerate().map(|(r, numbers)| (graph.schema().edge_name(r), numbers));
            let fan_out = FanOutRules::new(named.collect()).unwrap().of_schema(graph.schema()).unwrap();
            (graph, seeds, fan_out)
        })
    };
    typed_graphs().prop_flat_map(of_graph)
}

/// Checks that the list of a batch has the edges of its blocks, hop by hop.
fn check_list(graph: &TypedGraph, batch: &TypedBatch, expand: Expand) -> Result<(), TestCaseError> {
    let mut list = TypedEdgeList::<i64>::default();
    if expand == Expand::PerLayer && batch.blocks.len() > 1 {
        prop_assert!(list.fill(batch, expand).unwrap_err().to_string().contains("no single list"));
        return Ok(());
    }
    // The second round would show what is left of the first.
    for _ in 0..2 {
        list.fill(batch, expand).unwrap();
    }
    for (of, nodes) in batch.nodes.iter().enumerate() {
        prop_assert_eq!(&list.nodes[of], &nodes.iter().map(|&id| i64::from(id)).collect::<Vec<_>>());
        let up_to = list.nodes_by_hop[of]
            .iter()
            .scan(0, |sum, n| {
                *sum += n;
                Some(*sum)
            })
            .collect::<Vec<_>>();
        let sizes = batch.blocks.iter().rev().map(|block| block.n_destinations[of]).chain([nodes.len()]);
        prop_assert_eq!(up_to, sizes.collect::<Vec<_>>());
    }
    for (r, relation) in graph.relations().iter().enumerate() {
        let (ends, rows) = (&graph.schema().edge_types()[r], &batch.blocks[0].relations[r]);
        let (sources, destinations) = list.edge_index[r].split_at(rows.indices.len());
        prop_assert_eq!(list.edges_by_hop[r].iter().sum::<usize>(), sources.len());
        let mut first = 0;
        for (hop, &n) in list.edges_by_hop[r].iter().enumerate() {
            // Only nodes that the hop before has found draw.
            let before =
                if hop == 0 { 0 } else { batch.blocks[batch.blocks.len() - hop].n_destinations[ends.destination] };
            let after = batch.blocks[batch.blocks.len() - hop - 1].n_destinations[ends.destination];
            prop_assert!(destinations[first..first + n].iter().all(|&to| (before..after).contains(&(to as usize))));
            first += n;
        }
        for ((&source, &to), &edge) in sources.iter().zip(destinations).zip(&rows.edge_ids) {
            prop_assert_eq!(list.nodes[ends.source][source as usize], i64::from(relation.indices()[edge as usize]));
            prop_assert!(
                relation.row_range(list.nodes[ends.destination][to as usize] as usize).contains(&(edge as usize))
            );
        }
    }
    Ok(())
}

fn options() -> impl Strategy<Value = TypedOptions> {
    (any::<bool>(), any::<bool>()).prop_map(|(replace, once)| TypedOptions {
        replace,
        expand: if once { Expand::Once } else { Expand::PerLayer },
        edge_ids: true,
    })
}

fn keys() -> impl Strategy<Value = DrawKey> {
    any::<(u64, u32, u32)>().prop_map(|(seed, epoch, batch)| DrawKey::new(seed, epoch, batch))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn typed_samples_are_those_of_the_definition(
        (graph, seeds, fan_out) in inputs(),
        options in options(),
        key in keys(),
        excludes: bool,
    ) {
        // Excluded edges, and by hand their reverses.
        let n_types = graph.relations().len();
        let mut excluded = vec![BTreeSet::new(); n_types];
        let forward = (0..n_types).filter(|&r| excludes && graph.schema().edge_types()[r].reverse_of.is_none());
        let mut asked: Vec<(usize, Vec<u64>)> = Vec::new();
        for r in forward {
            let of_type: Vec<u64> = (0..graph.relations()[r].nnz() as u64).filter(|e| e % 3 == key.seed % 3).collect();
            if let Some(reverse) = graph.schema().reverse_of(r) {
                let [forward, back] = [r, reverse].map(|number| &graph.relations()[number]);
                for v in 0..forward.n_rows() {
                    for at in forward.row_range(v).filter(|&at| of_type.contains(&(at as u64))) {
                        let u = forward.indices()[at] as usize;
                        let found = back.row_range(u).find(|&other| back.indices()[other] as usize == v).unwrap();
                        excluded[reverse].insert(found as u64);
                    }
                }
            }
            excluded[r].extend(of_type.iter().copied());
            asked.push((r, of_type));
        }
        let asked: Vec<(usize, &[u64])> = asked.iter().map(|(r, edges)| (*r, &edges[..])).collect();
        let edges = TypedExcluded::new(&graph, &asked).unwrap();
        let sampler = TypedSampler::new(fan_out.clone(), options);
        let mut found = TypedBatch::default();
        // The second round would show state left behind by a batch.
        for _ in 0..2 {
            sampler.sample_excluding(&graph, &lent(&seeds), key, &edges, &mut found).unwrap();
            let expected = plain_sample(&graph, &lent(&seeds), key, &fan_out, options, &excluded);
            prop_assert_eq!(plain(&found), expected);
        }
        for (of, seeds) in &seeds {
            prop_assert_eq!(found.seeds(*of), &seeds[..]);
        }
        check_list(&graph, &found, options.expand)?;
        for pair in found.blocks.windows(2) {
            prop_assert_eq!(&pair[0].n_destinations, &pair[1].n_sources);
        }
        let elsewhere = std::thread::scope(|scope| {
            let sample = || {
                let mut batch = TypedBatch::default();
                sampler.sample_excluding(&graph, &lent(&seeds), key, &edges, &mut batch).unwrap();
                batch.digest()
            };
            scope.spawn(sample).join().unwrap()
        });
        prop_assert_eq!(elsewhere, found.digest());
    }

    #[test]
    fn one_type_has_the_blocks_of_a_homogeneous_graph(
        (graph, seeds) in graphs_and_seeds(),
        fan_out in fan_outs(),
        options in options(),
        key in keys(),
    ) {
        let TypedOptions { replace, expand, edge_ids } = options;
        let plain_options = NeighborOptions { replace, expand, edge_ids, ..NeighborOptions::default() };
        let expected = NeighborSampler::new(fan_out.clone(), plain_options).unwrap().sample(&graph, &seeds, key).unwrap();
        let typed = TypedGraph::of_plain(graph).unwrap();
        let sampler = TypedSampler::new(TypedFanOut::uniform(&fan_out, 1), options);
        let found = sampler.sample(&typed, &[(0, &seeds)], key).unwrap();
        prop_assert_eq!(found.digest(), expected.digest());
        for (block, expected) in found.blocks.iter().zip(&expected.blocks) {
            prop_assert_eq!(&found.nodes[0][..block.n_sources[0]], &expected.nodes[..]);
            prop_assert_eq!(block.n_destinations[0], expected.n_destinations);
            let rows = &block.relations[0];
            prop_assert_eq!((&rows.indptr, &rows.indices, &rows.edge_ids), (&expected.indptr, &expected.indices, &expected.edge_ids));
        }
    }

    /// A further edge type leaves the draws of the others as they are.
    #[test]
    fn edge_types_that_are_not_followed_change_nothing(
        (graph, seeds, fan_out) in inputs(),
        key in keys(),
    ) {
        let last = graph.relations().len() - 1;
        prop_assume!(last > 0);
        let number = |neighbors: Option<Neighbors>| match neighbors {
            None => 0,
            Some(Neighbors::All) => -1,
            Some(Neighbors::Count(count)) => i64::from(count),
        };
        let of_type = |r: usize| {
            let numbers = fan_out.hops().iter().map(|hop| if r == last { 0 } else { number(hop[r]) });
            (graph.schema().edge_name(r), numbers.collect::<Vec<i64>>())
        };
        let node_types = graph.schema().node_types().to_vec();
        let schema = Schema::new(node_types, graph.schema().edge_types()[..last].to_vec()).unwrap();
        let fewer = TypedGraph::new(schema, graph.relations()[..last].to_vec()).unwrap();
        let options = TypedOptions { edge_ids: true, ..TypedOptions::default() };
        let sampled = |graph: &TypedGraph| {
            let rules = FanOutRules::new((0..graph.relations().len()).map(of_type).collect()).unwrap();
            let sampler = TypedSampler::new(rules.of_schema(graph.schema()).unwrap(), options);
            sampler.sample(graph, &lent(&seeds), key).unwrap()
        };
        let (all, some) = (sampled(&graph), sampled(&fewer));
        prop_assert_eq!(&all.nodes, &some.nodes);
        for (block, expected) in all.blocks.iter().zip(&some.blocks) {
            prop_assert_eq!(&block.relations[..last], &expected.relations[..]);
        }
    }
}

/// Two papers and three authors, of whom authors 0 and 2 write paper 1; reverses are added.
fn papers() -> TypedGraph {
    let of = |name: &str, n_nodes| NodeType { name: name.to_owned(), n_nodes };
    let writes = EdgeType { relation: "writes".to_owned(), source: 1, destination: 0, reverse_of: None };
    let schema = Schema::new(vec![of("paper", 2), of("author", 3)], vec![writes]).unwrap();
    let writes = Coo::new(2, 3, vec![1, 1], vec![0, 2], None).unwrap().to_csr(Duplicates::Refuse).unwrap();
    TypedGraph::new(schema, vec![writes]).unwrap().with_reverses().unwrap()
}

#[test]
fn rules_name_relations_types_and_all_others() {
    let graph = papers();
    let of = |text: &str| text.parse::<FanOutRules>().unwrap().of_schema(graph.schema());
    let counts = |text: &str| {
        let fan_out = of(text).unwrap();
        let count = |neighbors: &Option<Neighbors>| match neighbors {
            None => 0,
            Some(Neighbors::All) => -1,
            Some(Neighbors::Count(count)) => i64::from(*count),
        };
        fan_out.hops().iter().map(|hop| hop.iter().map(count).collect()).collect::<Vec<Vec<i64>>>()
    };
    assert_eq!(counts("15,10"), [[15, 15], [10, 10]]);
    assert_eq!(counts(" writes = 3, 0 ; * = -1, 2 "), [[3, -1], [0, 2]]);
    assert_eq!(counts("*=9;author.writes.paper=4;writes=5"), [[4, 9]]);
    assert!(of("writes=0,3; *=5,5").unwrap().is_closed(graph.schema(), 0));
    assert!(!of("writes=0,3; *=5,5").unwrap().is_closed(graph.schema(), 1));
    for text in ["15,10", "writes=3,0; *=-1,2"] {
        assert_eq!(text.parse::<FanOutRules>().unwrap().to_string(), text);
    }
}

#[test]
fn rules_that_do_not_fit_are_refused() {
    let graph = papers();
    let of = |text: &str| {
        text.parse::<FanOutRules>().and_then(|rules| rules.of_schema(graph.schema())).unwrap_err().to_string()
    };
    assert_eq!(
        of("cites=3; *=2"),
        "the fan-out names the edge type \"cites\", which the graph does not have; it has author.writes.paper, \
         paper.rev_writes.author"
    );
    assert_eq!(
        of("writes=3"),
        "the fan-out says nothing of the edge type paper.rev_writes.author; add a rule for it, or *=NUMBERS for all others"
    );
    assert_eq!(
        of("writes=3,2; *=2"),
        "the fan-out of * has 1 hops, but that of writes has 2; give one number a layer to each"
    );
    assert_eq!(of("writes=3; writes=2"), "the fan-out has two rules for writes; leave one out");
    assert_eq!(of("*=-2"), "the fan-out of * takes -2 neighbors; give a number from 0 to 2147483647, or -1 for all");
    assert!(of("writes=x").starts_with("\"writes=x\" is no fan-out; write one number a layer"));
    assert!(of("3,0").starts_with("hop 1 of the fan-out takes 0 neighbors"));
    let sampler = TypedSampler::new(TypedFanOut::uniform(&"2".parse().unwrap(), 2), TypedOptions::default());
    let refused = |seeds: &TypedSeeds<'_>| sampler.sample(&graph, seeds, DrawKey::default()).unwrap_err().to_string();
    assert_eq!(
        refused(&[(1, &[0]), (0, &[2])]),
        "node type paper: seed 0 is node 2, but the graph has 2 nodes, counted from 0"
    );
    assert_eq!(refused(&[(1, &[1, 1])]), "node type author: node 1 is a seed twice, at 0 and 1; list every seed once");
    assert_eq!(refused(&[(2, &[])]), "seeds of the node type 2, but the graph has 2 node types");
    let twice = refused(&[(0, &[0]), (0, &[1])]);
    assert_eq!(twice, "seeds of the node type paper are listed twice; give all of them at once");
    let plain = TypedSampler::new(TypedFanOut::uniform(&"2".parse().unwrap(), 1), TypedOptions::default());
    let error = plain.sample(&graph, &[(0, &[0])], DrawKey::default()).unwrap_err().to_string();
    assert!(error.starts_with("the fan-out is for 1 edge types, but the graph has 2"));
    let error = TypedExcluded::new(&graph, &[(0, &[2])]).unwrap_err().to_string();
    assert_eq!(error, "edge 2 of author.writes.paper is to be excluded, but it has 2 edges, counted from 0");
}
