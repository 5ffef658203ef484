//! Random walks: every step follows an edge or returns to the start, and walks end where they must.

use girih_sampling::{Bias, Node2Vec, NodeId, RandomWalks, WalkOptions, Walks};

use crate::campaign::for_each_seed;
use crate::graphs::{Draws, SmallGraph};
use crate::samplers::key;

#[test]
fn walks_go_along_edges() {
    for_each_seed("walks", 400, check);
}

fn options(draws: &mut Draws) -> WalkOptions {
    WalkOptions {
        length: draws.below(9) as u32,
        stop: draws.one_of(&[0.0, 0.0, 0.3, 1.0]),
        restart: draws.one_of(&[0.0, 0.0, 0.3, 1.0]),
        node2vec: draws
            .one_in(3)
            .then(|| Node2Vec { p: draws.one_of(&[0.25, 1.0, 256.0]), q: draws.one_of(&[0.25, 1.0, 4.0]) }),
    }
}

fn check(seed: u64) {
    let draws = &mut Draws::new(seed, 4);
    let graph = SmallGraph::new(draws);
    let (options, key) = (options(draws), key(draws));
    let weighted = !graph.has_negative() && draws.one_in(2);
    let mut walks = RandomWalks::new(options).unwrap();
    if weighted {
        walks = walks.weighted(Bias::of(&graph.csr).unwrap());
    }
    let n_walks = draws.below(30);
    let starts: Vec<NodeId> = (0..n_walks).map(|_| draws.below(graph.n) as NodeId).collect();
    let ends: Vec<bool> = (0..graph.n).map(|_| draws.one_in(8)).collect();
    let taken = walks.walk(&graph.csr, &starts, key).unwrap();
    assert_eq!(taken, walks.walk(&graph.csr, &starts, key).unwrap(), "the same key");
    check_walks(&graph, &taken, &starts, (options, weighted));
    let until = walks.walk_until(&graph.csr, &starts, key, |v| ends[v as usize]).unwrap();
    for i in 0..starts.len() {
        let (whole, cut) = (taken.walk(i), until.walk(i));
        let end = whole.iter().position(|&v| ends[v as usize]).map_or(whole.len(), |at| at + 1);
        assert_eq!(cut, &whole[..end], "walk {i}");
    }
}

fn check_walks(graph: &SmallGraph, taken: &Walks, starts: &[NodeId], (options, weighted): (WalkOptions, bool)) {
    assert_eq!(taken.len(), starts.len());
    for (i, &start) in starts.iter().enumerate() {
        let walk = taken.walk(i);
        assert_eq!(walk[0], start);
        let may_step =
            |v: NodeId, u: NodeId| graph.csr.row_entries(v as usize).any(|(c, w)| c == u && (!weighted || w > 0.0));
        for pair in walk.windows(2) {
            let restarted = options.restart > 0.0 && pair[1] == start;
            assert!(restarted || (options.restart < 1.0 && may_step(pair[0], pair[1])), "walk {i}: {walk:?}");
        }
        let n_steps = walk.len() - 1;
        assert!(n_steps <= options.length as usize);
        if options.stop == 1.0 {
            assert_eq!(n_steps, 0);
        }
        let last = *walk.last().unwrap();
        let is_stuck = (0..graph.n as NodeId).all(|u| !may_step(last, u));
        if options.stop == 0.0 && n_steps < options.length as usize {
            assert!(is_stuck && options.restart < 1.0, "walk {i} ends early: {walk:?}");
        }
    }
}
