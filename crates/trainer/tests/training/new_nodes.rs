//! Answers about single nodes: those of the graph as inference on the whole graph gives them, those of new nodes as if
//! the graph had them.

use girih_compute::Cpu;
use girih_datasets::{Dataset, Features, NewNodes};
use girih_graph_format::{Buffer, Csr, Matrix, NodeId};
use girih_sampling::FanOut;
use girih_trainer::{Checkpoint, ModelConfig, ModelKind, NodePredictor, NormKind, TrainConfig, apply, checkpoint_path};

use crate::{config, planted, train_into};

fn trained(dataset: &Dataset, config: &TrainConfig) -> Checkpoint {
    let folder = tempfile::tempdir().unwrap();
    train_into(folder.path(), dataset.clone(), config, None);
    Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap()
}

/// Weights between 0.5 and 2 at every edge.
fn weighted(dataset: Dataset) -> Dataset {
    let weights: Vec<f32> = (0..dataset.graph.nnz()).map(|edge| 0.5 + (edge * 7 % 16) as f32 / 10.0).collect();
    let graph = dataset.graph.with_values(Some(Buffer::from(weights))).unwrap();
    Dataset { graph, ..dataset }
}

/// Three new nodes: one with edges in both directions, one that only another new one knows, one alone.
fn newcomers(dataset: &Dataset) -> NewNodes {
    let (n, width) = (dataset.n_nodes() as NodeId, dataset.n_features());
    let x: Vec<f32> = (0..3 * width).map(|at| (at * 5 % 11) as f32 / 11.0).collect();
    let edges = [vec![0, 9, n, 17, n, n + 1], vec![n, n, 9, n, n + 1, n + 1]];
    let weights = dataset.graph.values().map(|_| vec![1.5, 0.25, 0.75, 2.0, 1.25, 0.5]);
    NewNodes::new(Matrix::new(3, width, x).unwrap(), edges, weights).unwrap()
}

fn assert_close(found: &Matrix, expected: &[&[f32]], what: &str) {
    assert_eq!(found.n_rows(), expected.len(), "{what}");
    for (row, expected) in expected.iter().enumerate() {
        for (a, b) in found.row(row).iter().zip(*expected) {
            assert!((a - b).abs() < 1e-4 * b.abs().max(1.0), "{what}, row {row}: {a} instead of {b}");
        }
    }
}

/// Answers of a predictor, exact and with a fan-out that takes all, beside those of the whole graph.
fn answers_are_those_of_the_graph(dataset: &Dataset, config: &TrainConfig, what: &str) {
    let (checkpoint, backend) = (trained(dataset, config), Cpu::new());
    let whole = apply(&backend, dataset.clone(), &checkpoint).unwrap().2;
    let new = newcomers(dataset);
    let grown = apply(&backend, dataset.clone().with_new_nodes(&new).unwrap(), &checkpoint).unwrap().2;
    let all: FanOut = "-1,-1".parse().unwrap();
    for fanout in [None, Some(all)] {
        let what = format!("{what}, {fanout:?}");
        let mut predictor = NodePredictor::new(&backend, dataset.clone(), &checkpoint, fanout).unwrap();
        let asked = [5, 9, 5, 0];
        assert_close(&predictor.logits(&asked).unwrap(), &asked.map(|v| whole.row(v as usize)), &what);
        let n = dataset.n_nodes();
        let expected = [n, n + 1, n + 2].map(|v| grown.row(v));
        assert_close(&predictor.logits_of_new(&new).unwrap(), &expected, &what);
        // The graph itself has not changed.
        assert_close(&predictor.logits(&asked).unwrap(), &asked.map(|v| whole.row(v as usize)), &what);
    }
}

#[test]
fn new_nodes_are_answered_as_if_the_graph_had_them() {
    let dense = planted("nodes=203");
    let data = [("plain", dense.clone()), ("weights", weighted(dense.clone())), ("sparse", sparse(dense))];
    for kind in [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin] {
        for (name, dataset) in &data {
            let reads_weights = !matches!(kind, ModelKind::Gat | ModelKind::Gatv2);
            if *name != "weights" || reads_weights {
                answers_are_those_of_the_graph(dataset, &config(kind, 3), &format!("{kind:?}, {name}"));
            }
        }
    }
}

/// Node 9 again, under a new id: with its features and its in-neighbors, of which it is one if it has a self loop.
fn copy_of_node_9(dataset: &Dataset, rows: &Matrix) -> NewNodes {
    let n = dataset.n_nodes() as NodeId;
    let sources: Vec<NodeId> = dataset.graph.row(9).to_vec();
    let destinations = vec![n; sources.len()];
    let x = Matrix::new(1, rows.n_cols(), rows.row(9).to_vec()).unwrap();
    NewNodes::new(x, [sources, destinations], None).unwrap()
}

#[test]
fn a_new_node_that_copies_another_gets_its_scores_also_from_codes() {
    let dataset = planted("nodes=203");
    let Some(Features::Dense(rows)) = &dataset.features else { panic!("dense features") };
    let new = copy_of_node_9(&dataset, rows);
    let all: FanOut = "-1,-1".parse().unwrap();
    let codecs = ["topk:8", "topk-residual:8", "pq:8", "pca:8", "int8", "bf16", "f16"];
    for codec in [None].into_iter().chain(codecs.map(Some)) {
        // An edge to the copy changes no other node, and rows are normalised alone.
        let config = TrainConfig { codec: codec.map(|codec| codec.parse().unwrap()), ..config(ModelKind::Sage, 3) };
        let (checkpoint, backend) = (trained(&dataset, &config), Cpu::new());
        for fanout in [None, Some(all.clone())] {
            let mut predictor = NodePredictor::new(&backend, dataset.clone(), &checkpoint, fanout).unwrap();
            let known = predictor.logits(&[9]).unwrap();
            let what = format!("{codec:?}");
            assert_close(&predictor.logits_of_new(&new).unwrap(), &[known.row(0)], &what);
        }
        let encoded = dataset.clone().with_codec(config.codec, config.seed).unwrap();
        let grown = apply(&backend, encoded.with_new_nodes(&new).unwrap(), &checkpoint).unwrap().2;
        assert_close(&grown.row_slice(203..204), &[grown.row(9)], "girih predict --nodes");
    }
}

#[test]
fn features_that_the_codec_refuses_are_refused_by_its_name() {
    let dataset = planted("nodes=203");
    let config = TrainConfig { codec: Some("f16".parse().unwrap()), ..config(ModelKind::Sage, 2) };
    let (checkpoint, backend) = (trained(&dataset, &config), Cpu::new());
    let large = Matrix::new(1, dataset.n_features(), vec![1e6; dataset.n_features()]).unwrap();
    let new = NewNodes::new(large, [vec![], vec![]], None).unwrap();
    let mut predictor = NodePredictor::new(&backend, dataset.clone(), &checkpoint, None).unwrap();
    let encoded = dataset.with_codec(config.codec, config.seed).unwrap();
    let errors =
        [predictor.logits_of_new(&new).unwrap_err().to_string(), encoded.with_new_nodes(&new).unwrap_err().to_string()];
    for error in errors {
        assert!(error.contains("the codec f16") && error.contains("row 0, column 0"), "{error}");
    }
}

/// The data with one feature of three kept, as sparse rows.
fn sparse(dataset: Dataset) -> Dataset {
    let Some(Features::Dense(rows)) = &dataset.features else { panic!("dense features") };
    let kept = rows.data().iter().enumerate().map(|(at, &value)| if at % 9 == 0 { value } else { 0.0 });
    let kept = Matrix::new(rows.n_rows(), rows.n_cols(), kept.collect::<Vec<_>>()).unwrap();
    Dataset { features: Some(Features::Sparse(Csr::of_nonzeros(&kept).unwrap())), ..dataset }
}

#[test]
fn sampled_answers_do_not_depend_on_company() {
    let dataset = planted("nodes=203");
    let (checkpoint, backend) = (trained(&dataset, &config(ModelKind::Sage, 3)), Cpu::new());
    let fanout = Some("3,2".parse().unwrap());
    let mut predictor = NodePredictor::new(&backend, dataset.clone(), &checkpoint, fanout).unwrap();
    let all: Vec<NodeId> = (0..203).collect();
    let together = predictor.logits(&all).unwrap();
    for node in [0, 77, 202] {
        let alone = predictor.logits(&[node]).unwrap();
        assert_close(&alone, &[together.row(node as usize)], "alone");
    }
    let exact = apply(&backend, dataset, &checkpoint).unwrap().2;
    assert_ne!(exact.data(), together.data(), "a fan-out samples");
}

#[test]
fn what_has_no_answer_is_refused() {
    let (dataset, backend) = (planted("nodes=203"), Cpu::new());
    let new = newcomers(&dataset);
    let sgc = trained(&dataset, &config(ModelKind::Sgc, 2));
    let mut predictor = NodePredictor::new(&backend, dataset.clone(), &sgc, None).unwrap();
    let error = predictor.logits_of_new(&new).unwrap_err().to_string();
    assert!(error.contains("sgc reads more hops") && error.contains("girih predict --nodes"), "{error}");
    let error = predictor.logits(&[203]).unwrap_err().to_string();
    assert!(error.contains("no node 203"), "{error}");
    let fanout = Some("3,2".parse().unwrap());
    let error = NodePredictor::new(&backend, dataset.clone(), &sgc, fanout).err().unwrap().to_string();
    assert!(error.contains("--fanout is not possible"), "{error}");

    let model = ModelConfig { norm: NormKind::Batch, ..config(ModelKind::Gcn, 2).model };
    let batch = trained(&dataset, &TrainConfig { model, ..config(ModelKind::Gcn, 2) });
    let mut predictor = NodePredictor::new(&backend, dataset.clone(), &batch, None).unwrap();
    let error = predictor.logits_of_new(&new).unwrap_err().to_string();
    assert!(error.contains("--norm batch"), "{error}");

    let gcn = trained(&dataset, &config(ModelKind::Gcn, 2));
    let mut predictor = NodePredictor::new(&backend, dataset, &gcn, None).unwrap();
    let narrow = NewNodes::new(Matrix::new(1, 2, vec![0.0; 2]).unwrap(), [vec![], vec![]], None).unwrap();
    let error = predictor.logits_of_new(&narrow).unwrap_err().to_string();
    assert!(error.contains("2 features") && error.contains("reads 48"), "{error}");
}
