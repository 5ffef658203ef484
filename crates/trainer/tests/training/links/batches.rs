//! Batches of links against the graph without these links.

use girih_datasets::{LoadOptions, load};
use girih_graph_format::{Csr, NodeId, Norm};
use girih_trainer::testing::{Batches, HostGraphs, HostLoss, LinkEpochs, SeedLists};
use girih_trainer::{
    Adjacency, BatchConfig, BatchKind, Link, LinkConfig, LinkSplit, Neighborhoods, NonLinks, TrainConfig,
};

/// Dense rows of `Â` with row normalisation.
fn row_normalised(graph: &Csr) -> Vec<Vec<f32>> {
    let row = |v: usize| {
        let mut row = vec![0.0; graph.n_cols()];
        graph.row(v).iter().for_each(|&u| row[u as usize] = 1.0 / graph.degree(v) as f32);
        row
    };
    (0..graph.n_rows()).map(row).collect()
}

/// Graph without some links.
fn without(graph: &Csr, links: &[Link]) -> Csr {
    graph.filtered(|v, u| !links.contains(&[u.min(v as NodeId), u.max(v as NodeId)]))
}

#[test]
fn all_neighbors_of_a_batch_of_links_are_the_training_graph_without_these_links() {
    let graph = load("synth:planted,nodes=60,degree=6,features=4,classes=2", &LoadOptions::default()).unwrap().graph;
    let mut config = TrainConfig { batch_size: Some(9), ..TrainConfig::default() };
    config.batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![-1, -1], ..BatchConfig::default() };
    let split = LinkSplit::new(&LinkConfig { val: 0.1, test: 0.2, ..LinkConfig::default() }, 7);
    let (links, messages) = (split.deal(&graph), split.messages(&graph));
    let non_links = NonLinks::new(graph, links.n_all()).unwrap();
    let adjacency = Adjacency::new(false, Norm::Row);
    let neighborhoods = Neighborhoods::new(&messages, adjacency).unwrap();
    let epochs = LinkEpochs::new(&links.train, &non_links, &config, 0);
    let batches = Batches::of_links(&neighborhoods, adjacency, epochs, &config, (0, false)).unwrap();
    let (epoch, plan) = (batches.epoch(3), epochs.epoch(3, 9));
    assert!(epoch.n_batches() > 5);
    for at in 0..epoch.n_batches() {
        let (host, pairs) = (epoch.make(at).unwrap(), epochs.batch(&plan, at));
        let HostLoss::Pairs(found) = &host.loss else { panic!("a batch of pairs") };
        let named: Vec<Link> = found.ends.iter().map(|pair| pair.map(|row| host.outputs[row as usize])).collect();
        assert_eq!((named, found.n_links, host.n_loss), (pairs.ends.clone(), pairs.n_links, pairs.ends.len()));

        let expected = row_normalised(&without(&messages, pairs.links()));
        let HostGraphs::Blocks(blocks) = &host.graphs else { panic!("blocks") };
        assert!(blocks[0].in_place.is_none());
        for row in 0..blocks[0].rows.n_rows() {
            let mut dense = vec![0.0; expected.len()];
            for (column, value) in blocks[0].rows.row_entries(row) {
                dense[host.inputs[column as usize] as usize] = value;
            }
            let expected = &expected[host.inputs[row] as usize];
            assert!(dense.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "batch {at}, row {row}");
        }
    }
}
