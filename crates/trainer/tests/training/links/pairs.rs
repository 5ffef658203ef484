//! Invariants of links: the division into parts, the uniformity of non-links, and batches that see neither held-out
//! links nor their own.

use std::collections::HashSet;

use girih_datasets::{Dataset, FeaturesFrom, WalkMethod};
use girih_graph_format::{Coo, Csr, Duplicates, NodeId};
use girih_random::Key;
use girih_trainer::testing::{LinkEpochs, held_out};
use girih_trainer::{Link, LinkConfig, LinkPart, LinkSplit, ModelKind, NonLinks, TrainConfig};
use proptest::prelude::*;

use super::links;
use crate::train;

/// Directed graph whose weights identify both ends of an edge; every fifth node has a self loop.
fn directed(n: u32, seed: u64) -> Csr {
    let mut stream = Key::new(seed, u32::MAX).stream(0, 0);
    let pairs: HashSet<[u32; 2]> =
        (0..3 * n).map(|_| [stream.below(u64::from(n)) as u32, stream.below(u64::from(n)) as u32]).collect();
    let loops = (0..n).step_by(5).map(|v| [v, v]);
    let (rows, cols): (Vec<u32>, Vec<u32>) = pairs.into_iter().chain(loops).map(|[u, v]| (u, v)).unzip();
    let pattern = Coo::new(n as usize, n as usize, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let weights: Vec<f32> = entries(&pattern).map(|[v, u]| (1 + v * n + u) as f32).collect();
    pattern.with_values(Some(weights.into())).unwrap()
}

/// As [`directed`], but with both directions of each edge and without weights.
fn symmetric(n: u32, seed: u64) -> Csr {
    let graph = directed(n, seed);
    let (rows, cols): (Vec<u32>, Vec<u32>) = entries(&graph).flat_map(|[v, u]| [(v, u), (u, v)]).unzip();
    Coo::new(n as usize, n as usize, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

fn entries(graph: &Csr) -> impl Iterator<Item = [NodeId; 2]> + '_ {
    (0..graph.n_rows()).flat_map(|v| graph.row(v).iter().map(move |&u| [v as NodeId, u]))
}

fn sorted([u, v]: Link) -> Link {
    [u.min(v), u.max(v)]
}

proptest! {
    #[test]
    fn parts_are_disjoint_hold_every_link_once_and_only_training_links_carry_messages(
        (n, seed, val, test) in (2..60u32, any::<u64>(), 0.0..0.5f64, 0.0..0.5f64), both in any::<bool>(),
    ) {
        let graph = if both { symmetric(n, seed) } else { directed(n, seed) };
        let split = LinkSplit::new(&LinkConfig { val, test, ..LinkConfig::default() }, seed);
        let links = split.deal(&graph);
        let all: HashSet<Link> = entries(&graph).filter(|[v, u]| v != u).map(sorted).collect();
        let dealt = [&links.train[..], &links.val, &links.test].concat();
        prop_assert_eq!(links.n_all(), all.len(), "each once");
        prop_assert_eq!(dealt.into_iter().collect::<HashSet<_>>(), all);
        for part in [&links.train, &links.val, &links.test] {
            prop_assert!(part.is_sorted());
        }
        let messages = split.messages(&graph);
        let train: HashSet<Link> = links.train.iter().copied().collect();
        let stay = |entry: &[NodeId; 2]| entry[0] == entry[1] || train.contains(&sorted(*entry));
        let expected: Vec<[NodeId; 2]> = entries(&graph).filter(stay).collect();
        prop_assert_eq!(entries(&messages).collect::<Vec<_>>(), expected);
        prop_assert!(!both || messages.is_symmetric(), "both directions stay together");
        for v in 0..messages.n_rows() {
            for (u, weight) in messages.row_entries(v) {
                let named = if both { 1.0 } else { (1 + v as u32 * n + u) as f32 };
                prop_assert_eq!(weight, named, "weights stay with their edges");
            }
        }
    }

    #[test]
    fn non_links_join_different_nodes_that_no_edge_joins((n, seed) in (12..60u32, any::<u64>()), both in any::<bool>()) {
        let graph = if both { symmetric(n, seed) } else { directed(n, seed) };
        let links: HashSet<Link> = entries(&graph).map(sorted).collect();
        let non_links = NonLinks::new(graph, links.len()).unwrap();
        for i in 0..200 {
            let pair = non_links.draw(Key::new(seed, 0).stream(i, 0));
            prop_assert!(pair[0] != pair[1] && !links.contains(&sorted(pair)), "{pair:?}");
        }
    }
}

/// Graph with 45 pairs, of which 15 are links: a ring of ten nodes and the chords between opposite nodes.
fn ring() -> Csr {
    let edges = (0..10u32).flat_map(|v| [(v, (v + 1) % 10), (v, (v + 5) % 10)]);
    let (rows, cols): (Vec<u32>, Vec<u32>) = edges.flat_map(|(v, u)| [(v, u), (u, v)]).unzip();
    Coo::new(10, 10, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

/// Checks that the 30 non-links of [`ring`] are equally likely.
fn assert_uniform(pairs: impl Iterator<Item = Link>, what: &str) {
    let mut counts = std::collections::HashMap::<Link, u64>::new();
    let mut n_draws = 0.0;
    for pair in pairs {
        *counts.entry(sorted(pair)).or_default() += 1;
        n_draws += 1.0;
    }
    assert_eq!(counts.len(), 30, "{what}: every pair that is no link, and no other");
    let expected = n_draws / 30.0;
    let chi_square: f64 = counts.values().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
    // 99.9th percentile for 29 degrees of freedom.
    assert!(chi_square < 58.3, "{what}: {chi_square}");
}

#[test]
fn negatives_of_every_kind_are_uniform() {
    let (graph, config) = (ring(), TrainConfig { seed: 3, ..TrainConfig::default() });
    let non_links = NonLinks::new(graph.clone(), 15).unwrap();
    let split = LinkSplit::new(&LinkConfig { val: 0.0, test: 0.0, ..LinkConfig::default() }, 3);
    let links = split.deal(&graph).train;
    assert_eq!(links.len(), 15);
    let many: Vec<Link> = links.iter().copied().cycle().take(12_000).collect();
    for part in [LinkPart::Val, LinkPart::Test] {
        let list = held_out(&many, &non_links, 3, part);
        assert_uniform(list.ends[list.n_links..].iter().copied(), "held out");
    }
    let mut config = config;
    config.links.negatives = 4;
    let epochs = LinkEpochs::new(&links, &non_links, &config, 1);
    let training = (0..200).flat_map(|epoch| epochs.all(epoch).ends.split_off(15));
    assert_uniform(training, "training");
}

#[test]
fn an_epoch_has_every_link_once_and_negatives_whatever_its_batches() {
    let graph = symmetric(40, 5);
    let split = LinkSplit::new(&LinkConfig::default(), 5);
    let links = split.deal(&graph);
    let non_links = NonLinks::new(graph, links.n_all()).unwrap();
    let mut config = TrainConfig { seed: 5, ..TrainConfig::default() };
    config.links.negatives = 3;
    let epochs = LinkEpochs::new(&links.train, &non_links, &config, 0);
    let whole = epochs.all(2);
    assert_eq!((whole.links(), whole.ends.len()), (&links.train[..], 4 * links.train.len()));
    let in_order = |mut pairs: Vec<Link>| {
        pairs.sort_unstable();
        pairs
    };
    for batch_size in [1, 7, 1000] {
        let plan = epochs.epoch(2, batch_size);
        assert_eq!(plan.n_batches(), links.train.len().div_ceil(batch_size));
        let (mut found, mut negatives) = (Vec::new(), Vec::new());
        for list in (0..plan.n_batches()).map(|at| epochs.batch(&plan, at)) {
            found.extend_from_slice(list.links());
            negatives.extend_from_slice(&list.ends[list.n_links..]);
        }
        assert_eq!(in_order(found), links.train);
        assert_eq!(in_order(negatives), in_order(whole.ends[links.train.len()..].to_vec()));
    }
    let order = |epoch| epochs.batch(&epochs.epoch(epoch, 1000), 0);
    assert_eq!(order(0), order(0));
    assert_ne!(order(0), order(1));
    assert_ne!(epochs.all(0), LinkEpochs::new(&links.train, &non_links, &config, 1).all(0), "runs draw their own");
}

#[test]
fn a_split_keeps_its_shares_and_follows_its_seed() {
    let graph = symmetric(4000, 1);
    let deal = |seed| LinkSplit::new(&LinkConfig::default(), seed).deal(&graph);
    let links = deal(1);
    let n = links.n_all() as f64;
    // Four standard deviations.
    let near = |found: usize, share: f64| (found as f64 - share * n).abs() < 4.0 * (share * (1.0 - share) * n).sqrt();
    assert!(near(links.val.len(), 0.05) && near(links.test.len(), 0.1), "{} {}", links.val.len(), links.test.len());
    assert_eq!(deal(1), links);
    assert_ne!(deal(2), links);
}

#[test]
fn a_graph_without_room_for_negatives_is_refused() {
    for (n_nodes, n_links) in [(1, 0), (4, 6), (100, 4920)] {
        let message = NonLinks::new(Csr::empty(n_nodes, n_nodes).unwrap(), n_links).unwrap_err().to_string();
        assert!(message.contains("no link"), "{message}");
    }
    assert!(NonLinks::new(Csr::empty(100, 100).unwrap(), 4900).is_ok());
}

#[test]
fn made_features_do_not_know_held_out_links() {
    let graph = symmetric(40, 3);
    let usual = TrainConfig { seed: 1, ..links(ModelKind::Gcn, 2) };
    let messages = LinkSplit::new(&usual.links, usual.seed).messages(&graph);
    assert!(messages.nnz() < graph.nnz(), "some links are held out");
    let bare = Dataset::new("bare", graph.clone(), None, None, Vec::new()).unwrap();
    let loss = |dataset: Dataset, features_from| {
        train(dataset, &TrainConfig { features_from, ..usual.clone() }).unwrap().runs[0].last.test_loss.unwrap()
    };
    for rule in [FeaturesFrom::Degree, FeaturesFrom::RandomWalk(4)] {
        let given = |graph: &Csr| {
            let features = rule.features(graph, WalkMethod::Exact, usual.seed).unwrap();
            loss(Dataset { features, ..bare.clone() }, None)
        };
        let made = loss(bare.clone(), Some(rule));
        assert!(made == given(&messages) && made != given(&graph), "{rule}");
    }
}
