//! Splits of edges that data has: training keeps to them, and scores are those of the Open Graph Benchmark's evaluator,
//! as `benches/peers/golden_ogb.py` computes them.

use std::path::{Path, PathBuf};

use girih_compute::Cpu;
use girih_datasets::{Dataset, FeaturesFrom, HeldOutEdges, LoadOptions, Negatives, load};
use girih_graph_format::Matrix;
use girih_graph_format::file::Array;
use girih_trainer::{
    Checkpoint, DataSizes, LinkConfig, ModelKind, TrainConfig, checkpoint_path, embed, hits_of_edges, ranks_of_edges,
};

use super::{links, on_batches};
use crate::{train, train_into};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ogb").join(name)
}

fn data(name: &str) -> Dataset {
    load(golden(name).to_str().unwrap(), &LoadOptions::default()).unwrap()
}

fn numbers(name: &str) -> Vec<f64> {
    Array::read(&golden(name)).unwrap().into_f32().unwrap().iter().map(|&x| f64::from(x)).collect()
}

fn embeddings() -> Matrix {
    Array::read(&golden("embeddings.npy")).unwrap().into_matrix().unwrap()
}

#[test]
fn hits_and_ranks_are_those_of_the_benchmark() {
    let (ddi, citation) = (data("ogbl_ddi").edge_split.unwrap(), data("ogbl_citation2").edge_split.unwrap());
    let expected = numbers("hits.npy");
    for (row, k) in numbers("hits_at.npy").into_iter().enumerate() {
        for (column, (name, part)) in ddi.held_out().into_iter().enumerate() {
            let found = hits_of_edges(k as usize, &embeddings(), part).unwrap().unwrap();
            assert!((found - expected[2 * row + column]).abs() < 1e-6, "{name}: hits@{k} is {found}");
        }
    }
    assert_eq!(ranks_of_edges(&embeddings(), &citation.val).unwrap(), numbers("ranks_val.npy"));
    assert_eq!(ranks_of_edges(&embeddings(), &citation.test).unwrap(), numbers("ranks_test.npy"));
}

#[test]
fn ranks_do_not_depend_on_the_edges_beside_and_ties_count_half() {
    // Node 0 has the scores 2, 1, 1 and 0 with the nodes 1 to 4.
    let rows = Matrix::new(5, 1, vec![1.0, 2.0, 1.0, 1.0, 0.0]).unwrap();
    let part = |edges: &[[u32; 2]], n: usize, destinations: &[u32]| HeldOutEdges {
        edges: edges.to_vec(),
        negatives: Negatives::PerEdge { n, destinations: destinations.to_vec() },
    };
    let all = part(&[[0, 1], [0, 2], [0, 4]], 3, &[2, 3, 4, 1, 3, 4, 1, 2, 3]);
    assert_eq!(ranks_of_edges(&rows, &all).unwrap(), [1.0, 2.5, 4.0]);
    assert_eq!(ranks_of_edges(&rows, &part(&[[0, 2]], 3, &[1, 3, 4])).unwrap(), [2.5]);
    let shared = |k, negatives: &[[u32; 2]]| {
        let part = HeldOutEdges { edges: vec![[0, 1], [0, 2]], negatives: Negatives::Shared(negatives.to_vec()) };
        hits_of_edges(k, &rows, &part).unwrap().unwrap()
    };
    assert_eq!(shared(1, &[[0, 3], [0, 4]]), 0.5, "an equal score is no hit");
    assert_eq!(shared(2, &[[0, 3], [0, 4]]), 1.0);
    assert_eq!(shared(3, &[[0, 3], [0, 4]]), 1.0, "fewer negative pairs than k");
    let broken = Matrix::new(5, 1, vec![1.0, f32::NAN, 1.0, 1.0, 0.0]).unwrap();
    assert!(ranks_of_edges(&broken, &all).is_err() && hits_of_edges(1, &rows, &all).is_err());
}

#[test]
fn training_keeps_to_the_split_of_the_data() {
    let config = TrainConfig { features_from: Some(FeaturesFrom::Degree), ..links(ModelKind::Sage, 30) };
    for config in [config.clone(), on_batches(config.clone())] {
        let folder = tempfile::tempdir().unwrap();
        let best = train_into(folder.path(), data("ogbl_ddi"), &config, None).runs[0].best;
        let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
        let embedded = embed(&Cpu::new(), data("ogbl_ddi"), &checkpoint).unwrap();
        let split = data("ogbl_ddi").edge_split.unwrap();
        // The 80 negative pairs of the data, and no drawn ones.
        let hits = hits_of_edges(20, &embedded.embeddings, &split.test).unwrap();
        assert_eq!(embedded.scores.links.unwrap().hits_at_20, hits.unwrap());
        assert!(best.val_roc_auc.is_some() && best.test_loss.is_some());
    }
    assert!(train(data("ogbl_citation2"), &config).is_ok());
    let drawn = LinkConfig { val: 0.2, ..LinkConfig::default() };
    let message = train(data("ogbl_ddi"), &TrainConfig { links: drawn, ..config }).unwrap_err().to_string();
    assert!(message.contains("split of edges of its own"), "{message}");
}

#[test]
fn plans_count_the_pairs_of_the_split() {
    assert_eq!(DataSizes::of(&data("ogbl_ddi")).edge_split, Some([200, 100, 120]));
    assert_eq!(DataSizes::of(&data("ogbl_citation2")).edge_split, Some([200, 60, 80]));
}
