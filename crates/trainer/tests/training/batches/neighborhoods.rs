//! Rows of sampled blocks are those of the normalised adjacency, or have them as their mean.

use girih_graph_format::{Coo, Csr, Duplicates, Norm, Scales};
use girih_sampling::{
    Block, Columns, DrawKey, FanOut, LayerSampler, NeighborOptions, NeighborSampler, SaintSampler, Sampler,
    SubgraphSampler,
};
use girih_trainer::{Adjacency, Neighborhoods};
use proptest::prelude::*;

/// Test graph of `n` nodes; every third has a self loop.
fn graph(n: u32, weighted: bool) -> Csr {
    let edges = (0..n).flat_map(|v| (1..=2 + v % 5).map(move |k| (v, (v * 7 + k * k + k) % n)));
    let loops = (0..n).step_by(3).map(|v| (v, v));
    let (rows, cols): (Vec<u32>, Vec<u32>) = edges.filter(|(v, u)| v != u).chain(loops).unzip();
    let graph = Coo::new(n as usize, n as usize, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let weights = (0..graph.nnz()).map(|e| 0.5 + (e % 7) as f32 / 4.0).collect::<Vec<_>>();
    graph.with_values(weighted.then(|| weights.into())).unwrap()
}

const NORMS: [Norm; 3] = [Norm::None, Norm::Symmetric, Norm::Row];

/// Scale of a node; one without scales.
fn scale(scales: &Option<Vec<f32>>, node: usize) -> f32 {
    scales.as_ref().map_or(1.0, |scales| scales[node])
}

/// Dense `Â`.
fn dense(graph: &Csr, adjacency: Adjacency) -> Vec<Vec<f64>> {
    let full = if adjacency.self_loops { graph.with_self_loops() } else { graph.clone() };
    let Scales { left, right } = full.scales(adjacency.norm);
    let mut dense = vec![vec![0.0; full.n_cols()]; full.n_rows()];
    for v in 0..full.n_rows() {
        for e in full.row_range(v) {
            let u = full.indices()[e];
            let stored = full.values().map_or(1.0, |values| values[e]);
            let value = scale(&left, v) * stored * scale(&right, u as usize);
            dense[v][u as usize] = f64::from(value);
        }
    }
    dense
}

fn sampler(fan_out: &str, replace: bool, inputs: Columns) -> NeighborSampler {
    let options = NeighborOptions { replace, edge_ids: true, inputs, ..NeighborOptions::default() };
    NeighborSampler::new(fan_out.parse::<FanOut>().unwrap(), options).unwrap()
}

proptest! {
    #[test]
    fn all_neighbors_give_the_rows_of_the_whole_matrix(
        n in 5..40u32, weighted in any::<bool>(), self_loops in any::<bool>(), norm in 0..3usize,
        in_place in any::<bool>(),
    ) {
        let (graph, adjacency) = (graph(n, weighted), Adjacency::new(self_loops, NORMS[norm]));
        let (neighborhoods, expected) = (Neighborhoods::new(&graph, adjacency).unwrap(), dense(&graph, adjacency));
        let inputs = if in_place { Columns::Global } else { Columns::Local };
        let seeds: Vec<u32> = (0..n).step_by(2).collect();
        let sampler = sampler("-1,-1", false, inputs);
        let batch = sampler.sample(neighborhoods.graph(), &seeds, DrawKey::new(1, 2, 3)).unwrap();
        for block in &batch.blocks {
            let rows = neighborhoods.rows(block).unwrap();
            for (v, &node) in block.destinations().iter().enumerate() {
                let mut found = vec![0.0; n as usize];
                for e in rows.row_range(v) {
                    found[block.node_of_column(rows.indices()[e]) as usize] = f64::from(rows.values().unwrap()[e]);
                }
                for (a, b) in found.iter().zip(&expected[node as usize]) {
                    prop_assert!((a - b).abs() <= 1e-6 * b.abs(), "{found:?} {:?}", expected[node as usize]);
                }
            }
        }
    }
}

/// Compares the mean of sampled rows over many batches with the rows of `Â`.
fn check_mean(adjacency: Adjacency, weighted: bool, sample: impl Fn(&Csr, u32) -> Block) {
    const BATCHES: u32 = 4000;
    let graph = graph(17, weighted);
    let (neighborhoods, expected) = (Neighborhoods::new(&graph, adjacency).unwrap(), dense(&graph, adjacency));
    let mut sums = vec![vec![[0.0f64; 2]; 17]; 17];
    let mut n_rows = [0.0f64; 17];
    for batch in 0..BATCHES {
        let block = sample(neighborhoods.graph(), batch);
        let rows = neighborhoods.rows(&block).unwrap();
        for (v, &node) in block.destinations().iter().enumerate() {
            n_rows[node as usize] += 1.0;
            for e in rows.row_range(v) {
                let value = f64::from(rows.values().unwrap()[e]);
                let [sum, squares] = &mut sums[node as usize][block.node_of_column(rows.indices()[e]) as usize];
                *sum += value;
                *squares += value * value;
            }
        }
    }
    for v in (0..17).filter(|&v| n_rows[v] > 100.0) {
        for u in 0..17 {
            let [sum, squares] = sums[v][u];
            let (mean, square) = (sum / n_rows[v], squares / n_rows[v]);
            let error = ((square - mean * mean).max(0.0) / n_rows[v]).sqrt();
            let off = (mean - expected[v][u]).abs();
            assert!(off <= 5.0 * error + 1e-5, "row {v}, column {u}: {mean} instead of {}", expected[v][u]);
        }
    }
}

#[test]
fn sampled_rows_have_those_of_the_whole_matrix_as_their_mean() {
    let seeds: Vec<u32> = (0..17).collect();
    for norm in NORMS {
        for (self_loops, weighted, replace) in [(true, false, false), (false, true, true), (true, true, false)] {
            let adjacency = Adjacency::new(self_loops, norm);
            check_mean(adjacency, weighted, |graph, batch| {
                let sampler = sampler("2", replace, Columns::Local);
                sampler.sample(graph, &seeds, DrawKey::new(1, 0, batch)).unwrap().blocks.remove(0)
            });
        }
    }
}

#[test]
fn so_do_layers_and_drawn_subgraphs() {
    let adjacency = Adjacency::new(true, Norm::Symmetric);
    let seeds: Vec<u32> = (0..17).collect();
    check_mean(adjacency, true, |graph, batch| {
        let sampler = LayerSampler::ladies("5".parse().unwrap(), true);
        sampler.sample(graph, &seeds, DrawKey::new(1, 0, batch)).unwrap().blocks.remove(0)
    });
    check_mean(adjacency, false, |graph, batch| {
        let sampler = SaintSampler::nodes(graph, 8).unwrap();
        sampler.sample(graph, DrawKey::new(1, 0, batch)).unwrap().block
    });
}
