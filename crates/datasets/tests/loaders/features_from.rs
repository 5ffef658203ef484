//! Laws of features that are made from the graph.

use girih_datasets::{Features, FeaturesFrom, WalkMethod};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, NodeId};
use proptest::prelude::*;

/// Features of a rule that makes dense ones.
fn dense(rule: FeaturesFrom, graph: &Csr, method: WalkMethod, seed: u64) -> Matrix {
    let Some(Features::Dense(rows)) = rule.features(graph, method, seed).unwrap() else { panic!("dense features") };
    rows
}

fn graphs() -> impl Strategy<Value = Csr> {
    (1..30usize, any::<bool>()).prop_flat_map(|(n, symmetric)| {
        let edges = prop::collection::vec((0..n as NodeId, 0..n as NodeId), 0..90);
        edges.prop_map(move |edges| {
            let (rows, cols) = edges.into_iter().unzip();
            let graph = Coo::new(n, n, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
            if symmetric { graph.symmetrized() } else { graph }
        })
    })
}

/// Diagonals of dense powers of `D⁻¹·A`, where row `v` of `A` has the edges from `v`.
fn dense_returns(graph: &Csr, n_steps: usize) -> Vec<Vec<f64>> {
    let n = graph.n_rows();
    let mut transition = vec![vec![0.0; n]; n];
    for to in 0..n {
        graph.row(to).iter().for_each(|&from| transition[from as usize][to] = 1.0);
    }
    for row in &mut transition {
        let degree = row.iter().sum::<f64>().max(1.0);
        row.iter_mut().for_each(|value| *value /= degree);
    }
    let mut power: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    let mut returns = vec![Vec::new(); n];
    for _ in 0..n_steps {
        let product = |i: usize, j: usize| (0..n).map(|k| power[i][k] * transition[k][j]).sum::<f64>();
        power = (0..n).map(|i| (0..n).map(|j| product(i, j)).collect()).collect();
        (0..n).for_each(|v| returns[v].push(power[v][v]));
    }
    returns
}

proptest! {
    #[test]
    fn exact_return_probabilities_are_diagonals_of_dense_powers(graph in graphs(), n_steps in 1..9usize) {
        let found = dense(FeaturesFrom::RandomWalk(n_steps), &graph, WalkMethod::Exact, 0);
        for (v, expected) in dense_returns(&graph, n_steps).iter().enumerate() {
            for (found, expected) in found.row(v).iter().zip(expected) {
                prop_assert!((f64::from(*found) - expected).abs() < 1e-5, "{} for {}", found, expected);
            }
        }
    }

    #[test]
    fn drawn_return_probabilities_are_within_six_standard_errors(graph in graphs(), seed in any::<u64>()) {
        let n_walks = 2000;
        let found = dense(FeaturesFrom::RandomWalk(4), &graph, WalkMethod::Drawn(n_walks), seed);
        for (v, expected) in dense_returns(&graph, 4).iter().enumerate() {
            for (found, expected) in found.row(v).iter().zip(expected) {
                let error = (expected * (1.0 - expected) / n_walks as f64).sqrt();
                prop_assert!((f64::from(*found) - expected).abs() <= 6.0 * error + 1e-6, "{} for {}", found, expected);
            }
        }
    }

    #[test]
    fn a_degree_profile_is_that_of_the_neighbors(graph in graphs()) {
        let found = dense(FeaturesFrom::Degree, &graph, WalkMethod::Exact, 0);
        for v in 0..graph.n_rows() {
            let log = |v: usize| (1.0 + graph.row(v).len() as f64).ln();
            let mut neighbors: Vec<f64> = graph.row(v).iter().map(|&u| log(u as usize)).collect();
            neighbors.sort_by(f64::total_cmp);
            let n = neighbors.len().max(1) as f64;
            let mean = neighbors.iter().sum::<f64>() / n;
            let square = neighbors.iter().map(|value| value * value).sum::<f64>() / n;
            let ends = [neighbors.first(), neighbors.last()].map(|end| end.copied().unwrap_or(0.0));
            let expected = [log(v), ends[0], ends[1], mean, (square - mean * mean).max(0.0).sqrt()];
            for (found, expected) in found.row(v).iter().zip(expected) {
                prop_assert!((f64::from(*found) - expected).abs() < 1e-5, "{} for {}", found, expected);
            }
        }
    }
}

#[test]
fn rules_are_read_as_they_are_written() {
    let rules = [FeaturesFrom::Degree, FeaturesFrom::OneHot, FeaturesFrom::Embedding(64), FeaturesFrom::RandomWalk(16)];
    for rule in rules {
        assert_eq!(rule.to_string().parse(), Ok(rule));
    }
    for (wrong, told) in [
        ("degrees", FeaturesFrom::VALUES),
        ("embedding", FeaturesFrom::VALUES),
        ("embedding:0", "from 1 to 1048576"),
        ("random-walk:x", "from 1 to 256"),
        ("degree:3", FeaturesFrom::VALUES),
    ] {
        let error = wrong.parse::<FeaturesFrom>().unwrap_err();
        assert!(error.contains(told) && error.contains(wrong), "{error}");
    }
}

#[test]
fn one_hot_rows_store_one_value_each() {
    let graph = Csr::empty(5, 5).unwrap();
    let Some(Features::Sparse(csr)) = FeaturesFrom::OneHot.features(&graph, WalkMethod::Exact, 0).unwrap() else {
        panic!("stored sparse")
    };
    assert_eq!((csr.n_rows(), csr.n_cols(), csr.nnz()), (5, 5, 5));
    assert!((0..5).all(|v| csr.row(v) == [v as NodeId]));
}

#[test]
fn walks_are_drawn_where_products_cost_too_much() {
    assert_eq!(WalkMethod::for_sizes(2_708, 10_556, 16), WalkMethod::Exact);
    let large = WalkMethod::for_sizes(1_000_000, 20_000_000, 16);
    assert_eq!(large, WalkMethod::Drawn(512));
    assert!(large.to_string().contains("512 walks a node") && large.to_string().contains("0.022"), "{large}");
}
