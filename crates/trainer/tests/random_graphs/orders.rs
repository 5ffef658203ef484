//! Orders of nodes: permutations rename nodes and change nothing else.

use girih_datasets::{Dataset, Labels};
use girih_graph_format::{Csr, Permutation};
use girih_reorder::OrderKind;

use crate::campaign::for_each_seed;
use crate::graphs::{Draws, SmallGraph, dense, feature_rows, features, labels, numbering, split};

#[test]
fn orders_rename_and_do_nothing_else() {
    for_each_seed("orders", 150, check);
}

fn check(seed: u64) {
    let draws = &mut Draws::new(seed, 7);
    let graph = SmallGraph::new(draws);
    let blocks = draws.between(1, 5);
    for kind in OrderKind::ALL {
        let order = kind.order(blocks, seed);
        let permutation = order.order(&graph.csr).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(permutation, order.order(&graph.csr).unwrap(), "{kind}: the same graph");
        check_permutation(&graph.csr, &permutation, &kind.to_string());
    }
    let permutation = numbering(draws, graph.n);
    check_permutation(&graph.csr, &permutation, "a random numbering");
    check_data(draws, &graph, &permutation);
}

fn check_permutation(csr: &Csr, permutation: &Permutation, what: &str) {
    let n = csr.n_rows();
    let mut ids = permutation.new_of_old().to_vec();
    ids.sort_unstable();
    assert_eq!(ids, (0..n as u32).collect::<Vec<_>>(), "{what}");
    let (before, renamed) = (dense(csr), csr.permuted(permutation));
    renamed.validate().unwrap();
    let after = dense(&renamed);
    let new = |old: usize| permutation.map(old as u32) as usize;
    for v in 0..n {
        for u in 0..n {
            assert_eq!(after[new(v)][new(u)], before[v][u], "{what}: {v}, {u}");
        }
    }
    assert_eq!(&renamed.permuted(&permutation.inverse()), csr, "{what}: there and back");
    assert_eq!(permutation.then(&permutation.inverse()), Permutation::identity(n), "{what}");
    let by_rows = csr.with_rows_permuted(permutation);
    assert!((0..n).all(|v| dense(&by_rows)[new(v)] == before[v]), "{what}: rows alone");
}

/// Checks that features, labels and splits are renamed with their nodes.
fn check_data(draws: &mut Draws, graph: &SmallGraph, permutation: &Permutation) {
    let (features, labels, split) = (features(draws, graph.n), labels(draws, graph.n), split(draws, graph.n));
    let rows = feature_rows(&features);
    let before = Dataset::new("small", graph.csr.clone(), Some(features), Some(labels), vec![split]).unwrap();
    let after = before.clone().permuted(permutation).unwrap();
    after.validate().unwrap();
    let renamed = feature_rows(after.features.as_ref().unwrap());
    for (v, row) in rows.iter().enumerate() {
        let new = permutation.map(v as u32) as usize;
        assert_eq!(&renamed[new], row);
        match (before.labels.as_ref().unwrap(), after.labels.as_ref().unwrap()) {
            (Labels::Single { classes: a, .. }, Labels::Single { classes: b, .. }) => assert_eq!(a[v], b[new]),
            (Labels::Multi { targets: a, .. }, Labels::Multi { targets: b, .. }) => assert_eq!(a.row(v), b.row(new)),
            _ => panic!("labels of another kind"),
        }
        let parts = before.splits[0].parts().into_iter().zip(after.splits[0].parts());
        for ((_, before), (_, after)) in parts {
            assert_eq!(before.contains(&(v as u32)), after.contains(&(new as u32)));
        }
    }
    assert_eq!(after.permuted(&permutation.inverse()).unwrap(), before, "there and back");
}
