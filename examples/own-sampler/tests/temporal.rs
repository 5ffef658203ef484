//! Batches see no edge from after their seeds, and training on them is training on the older edges.

use std::path::Path;

use girih_compute::Cpu;
use girih_datasets::{Dataset, LoadOptions, load};
use girih_graph_format::Csr;
use girih_random::Key;
use girih_sampling::{Block, Columns, DrawKey, NeighborOptions};
use girih_trainer::{
    BatchConfig, BatchKind, BlockDraws, BuildSampler, Control, Event, ModelConfig, ModelKind, Outcome, SessionOptions,
    TrainConfig, TrainError, train, train_model,
};
use own_sampler::Temporal;

fn dataset() -> Dataset {
    load("synth:planted,nodes=400,degree=10,features=24,classes=3", &LoadOptions::default()).unwrap()
}

/// Random times from 0 to 1 of the edges, and equal or random ones of the nodes.
fn temporal(graph: &Csr, of_nodes: Option<f32>) -> Temporal {
    let mut stream = Key::new(3, 1).stream(0, 0);
    let of_edges: Vec<f32> = (0..graph.nnz()).map(|_| stream.unit_f32()).collect();
    let node_times = (0..graph.n_rows()).map(|_| of_nodes.unwrap_or_else(|| stream.unit_f32())).collect();
    let network = ModelConfig { kind: ModelKind::Sage, dropout: 0.0, ..ModelConfig::default() };
    Temporal { network, node_times, edge_times: graph.with_values(Some(of_edges.into())).unwrap(), delay: 0.1 }
}

fn neighbor_batches(fanout: Vec<i64>) -> TrainConfig {
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout, ..BatchConfig::default() };
    TrainConfig { batch, batch_size: Some(30), epochs: 20, ..TrainConfig::default() }
}

fn train_into(folder: &Path, model: &Temporal, config: &TrainConfig, stops: bool) -> Result<Outcome, TrainError> {
    let options = SessionOptions { checkpoints: Some(folder.to_owned()), resume: true, ..SessionOptions::default() };
    train_model(&Cpu::new(), dataset(), model, config, &options, &mut |event| match event {
        Event::Epoch { report, .. } if stops && report.epoch == 7 => Control::Stop,
        _ => Control::Continue,
    })
}

#[test]
fn no_batch_has_an_edge_from_after_its_seeds() {
    let graph = dataset().graph;
    let model = temporal(&graph, None);
    for inputs in [Columns::Local, Columns::Global] {
        let options = NeighborOptions { edge_ids: true, inputs, ..NeighborOptions::default() };
        let draws = BlockDraws { graph: &graph, fan_out: "5,5".parse().unwrap(), options };
        let sampler = model.build_sampler(&draws).unwrap();
        let mut n_edges = 0;
        for first in (0..400).step_by(4) {
            let seeds: Vec<u32> = (first..first + 4).collect();
            let batch = sampler.sample(&graph, &seeds, DrawKey::new(1, 0, first)).unwrap();
            let cutoff = seeds.iter().map(|&seed| model.node_times[seed as usize]).fold(1.0, f32::min) - model.delay;
            let times = model.edge_times.values().unwrap();
            let edges: Vec<u64> = batch.blocks.iter().flat_map(|block: &Block| block.edge_ids.clone()).collect();
            assert!(edges.iter().all(|&edge| times[edge as usize] < cutoff), "seeds {seeds:?}");
            n_edges += edges.len();
        }
        assert!(n_edges > 500, "{n_edges}");
    }
}

/// Seeds of one time have one cutoff in all batches: training is then that on the graph of the older edges.
#[test]
fn training_is_that_on_the_older_edges() {
    let (data, config) = (dataset(), neighbor_batches(vec![-1, -1]));
    let model = temporal(&data.graph, Some(0.6));
    let folder = tempfile::tempdir().unwrap();
    let found = train_into(folder.path(), &model, &config, false).unwrap().runs[0].train_loss;

    let inside = TrainConfig { model: model.network.clone(), ..config };
    let loss_on = |graph: Csr| {
        let (data, options) = (Dataset { graph, ..data.clone() }, SessionOptions::default());
        train(&Cpu::new(), data, &inside, &options, &mut |_| Control::Continue).unwrap().runs[0].train_loss
    };
    let time = |row: usize, column: u32| {
        let at = model.edge_times.row(row).binary_search(&column).unwrap();
        model.edge_times.values().unwrap()[model.edge_times.row_range(row).start + at]
    };
    let (older, all) =
        (loss_on(data.graph.filtered(|row, column| time(row, column) < 0.5)), loss_on(data.graph.clone()));
    assert!((found - older).abs() < 1e-3 * older, "{found}, on the older edges {older}");
    assert!((found - all).abs() > 1e-2 * all, "{found}, on all edges {all}");
}

#[test]
fn a_run_is_resumed_with_the_same_sampler_only() {
    let (model, config) = (temporal(&dataset().graph, None), neighbor_batches(vec![5, 5]));
    let [whole, parts] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let expected = train_into(whole.path(), &model, &config, false).unwrap().runs[0].train_loss;
    train_into(parts.path(), &model, &config, true).unwrap();
    let other = Temporal { delay: 0.2, ..model.clone() };
    let refused = train_into(parts.path(), &other, &config, false).unwrap_err().to_string();
    assert!(refused.contains("settings.delay"), "{refused}");
    let found = train_into(parts.path(), &model, &config, false).unwrap().runs[0].train_loss;
    assert_eq!(found, expected);
}

#[test]
fn an_edge_without_a_time_is_refused_by_its_ends() {
    let data = dataset();
    let mut model = temporal(&data.graph, None);
    model.edge_times = model.edge_times.filtered(|row, _| row != 5);
    let folder = tempfile::tempdir().unwrap();
    let refused = train_into(folder.path(), &model, &neighbor_batches(vec![5, 5]), false).unwrap_err().to_string();
    assert!(refused.contains("to node 5 has no time"), "{refused}");
}
