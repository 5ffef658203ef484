//! Mini-batches of typed graphs: equal to full batches if nothing is left out, and to themselves on any number of threads
//! and after an interruption.

use std::collections::BTreeMap;

use girih_compute::Cpu;
use girih_datasets::{Dataset, Features, Labels, Split, TypeFeatures, TypedData, UNLABELLED};
use girih_graph_format::{Coo, Csr, Duplicates, EdgeType, Matrix, NodeType, Schema, TypedGraph};
use girih_random::Key;
use girih_trainer::{
    BatchConfig, BatchKind, Checkpoint, ModelConfig, ModelKind, OptimizerConfig, OptimizerKind, ScoreBy, SelfWeight,
    TrainConfig, checkpoint_path,
};

use crate::batches::{assert_same_training, assert_scored_alike};
use crate::compressed::decoded;
use crate::{config, train, train_into};

/// Networks that read relations.
const TYPED: [ModelKind; 4] = [ModelKind::Rgcn, ModelKind::Hsage, ModelKind::Rgat, ModelKind::Hgt];
/// Numbers of papers, authors, topics and institutes.
const SIZES: [usize; 4] = [120, 80, 12, 7];

/// Random pairs of rows and columns.
fn pairs(key: Key, (n_rows, n_cols): (usize, usize), n: usize) -> Csr {
    let mut stream = key.stream(0, 0);
    let pair = |_| (stream.below(n_rows as u64) as u32, stream.below(n_cols as u64) as u32);
    let (rows, cols) = (0..n).map(pair).unzip();
    Coo::new(n_rows, n_cols, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

/// Random matrix with values from -1 to 1.
fn values(key: Key, n_rows: usize, n_cols: usize) -> Matrix {
    let mut stream = key.stream(0, 0);
    let value = |_| stream.below(2001) as f32 / 1000.0 - 1.0;
    Matrix::new(n_rows, n_cols, (0..n_rows * n_cols).map(value).collect::<Vec<_>>()).unwrap()
}

/// Papers with dense features and classes, authors with sparse features, topics and institutes that learn rows. Topics reach
/// papers, institutes reach authors; a relation ends in institutes and reaches no paper within two layers.
fn papers() -> Dataset {
    let names = ["paper", "author", "topic", "institute"];
    let node = |(name, n_nodes): (&str, usize)| NodeType { name: name.to_owned(), n_nodes };
    let edges = |relation: &str, source, destination| EdgeType {
        relation: relation.to_owned(),
        source,
        destination,
        reverse_of: None,
    };
    let edge_types = vec![
        edges("cites", 0, 0),
        edges("writes", 1, 0),
        edges("about", 2, 0),
        edges("employs", 3, 1),
        edges("hosts", 2, 3),
    ];
    let key = Key::new(3, 77);
    let relation = |(number, edges): (usize, &EdgeType)| {
        pairs(key.child(number as u64), (SIZES[edges.destination], SIZES[edges.source]), 4 * SIZES[edges.destination])
    };
    let relations = edge_types.iter().enumerate().map(relation).collect();
    let schema = Schema::new(names.into_iter().zip(SIZES).map(node).collect(), edge_types).unwrap();
    let graph = TypedGraph::new(schema, relations).unwrap().with_reverses_of(|number| number < 3).unwrap();
    let features = vec![
        TypeFeatures::Given(Features::Dense(values(key.child(10), SIZES[0], 6))),
        TypeFeatures::Given(Features::Sparse(pairs(key.child(11), (SIZES[1], 40), 3 * SIZES[1]))),
        TypeFeatures::Learned(Some(5)),
        TypeFeatures::None,
    ];
    let n_nodes = graph.n_nodes();
    let dataset = Dataset::of_typed("papers", TypedData { graph, features, target: 0 }).unwrap();
    let of_node = |v: usize| if v < SIZES[0] { (v % 3) as u32 } else { UNLABELLED };
    let labels = Labels::Single { classes: (0..n_nodes).map(of_node).collect(), n_classes: 3 };
    let part = |from: u32, to: u32| (from..to).collect();
    let split = Split { train: part(0, 70), val: part(70, 90), test: part(90, 120) };
    Dataset { labels: Some(labels), splits: vec![split], ..dataset }
}

/// The data with one type of nodes, which have features or learn rows, and two of edges.
fn one_node_type(has_features: bool) -> Dataset {
    let node = NodeType { name: "node".to_owned(), n_nodes: 90 };
    let edges = |name: &str| EdgeType { relation: name.to_owned(), source: 0, destination: 0, reverse_of: None };
    let schema = Schema::new(vec![node], vec![edges("likes"), edges("knows")]).unwrap();
    let key = Key::new(4, 78);
    let relations = (0..2).map(|number| pairs(key.child(number), (90, 90), 300)).collect();
    let dataset =
        Dataset::of_typed("people", TypedData::of_graph(TypedGraph::new(schema, relations).unwrap())).unwrap();
    let labels = Labels::Single { classes: (0..90).map(|v| v % 2).collect(), n_classes: 2 };
    let split = Split { train: (0..50).collect(), val: (50..70).collect(), test: (70..90).collect() };
    let features = has_features.then(|| Features::Dense(values(key.child(9), 90, 5)));
    Dataset { labels: Some(labels), splits: vec![split], features, ..dataset }
}

/// Gradient descent without dropout, so that differences between two runs reflect differences of gradients. Without weight
/// decay, which would change all learned rows of full batches, but only those of a mini-batch.
fn plain(kind: ModelKind) -> TrainConfig {
    let mut config = config(kind, 3);
    let heads = if kind.has_heads() { 2 } else { config.model.heads };
    config.model = ModelConfig { dropout: 0.0, hidden: 6, heads, layers: 2, ..config.model };
    config.optimizer = OptimizerConfig { kind: OptimizerKind::Sgd, lr: 0.05, weight_decay: 0.0, ..config.optimizer };
    config
}

fn neighbors(config: &TrainConfig, fanout: Vec<i64>, batch_size: usize) -> TrainConfig {
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout, ..BatchConfig::default() };
    TrainConfig { batch, batch_size: Some(batch_size), ..config.clone() }
}

#[test]
fn all_neighbors_of_all_seeds_make_the_step_of_the_whole_graph() {
    for kind in TYPED {
        let own =
            if kind == ModelKind::Hgt { &[SelfWeight::Shared][..] } else { &[SelfWeight::Type, SelfWeight::Relation] };
        for &self_weight in own {
            for layers in [1, 2, 3] {
                let mut full = plain(kind);
                full.model = ModelConfig { layers, self_weight, ..full.model };
                let sampled = neighbors(&full, vec![-1; layers], 1000);
                let what = format!("{kind:?}, {layers} layers, {self_weight:?}");
                assert_same_training(&papers(), &full, &sampled, &what);
                if kind != ModelKind::Rgcn {
                    assert_same_training(&one_node_type(false), &full, &sampled, &format!("{what}, learned rows"));
                }
                assert_same_training(&one_node_type(true), &full, &sampled, &format!("{what}, one node type"));
            }
        }
    }
}

/// Names and numbers of a fan-out that reads all but the topics.
fn without_topics(layers: usize) -> BatchConfig {
    let by_type = [("about".to_owned(), vec![0; layers]), ("topic.hosts.institute".to_owned(), vec![0; layers])];
    let fanout = vec![-1; layers];
    BatchConfig { kind: BatchKind::Neighbor, fanout, fanout_by_type: by_type.into(), ..BatchConfig::default() }
}

#[test]
fn edge_types_that_are_not_followed_are_as_if_they_had_no_edges() {
    let dataset = papers();
    let typed = dataset.typed.as_ref().unwrap();
    let schema = typed.graph.schema();
    let left_out = |number: usize| schema.edge_types()[number].source == 2;
    let relations = typed.graph.relations().iter().enumerate();
    let relations = relations
        .map(|(number, relation)| if left_out(number) { relation.filtered(|_, _| false) } else { relation.clone() });
    let graph = TypedGraph::new(schema.clone(), relations.collect()).unwrap();
    let emptied = Dataset::of_typed("papers", TypedData { graph, ..(**typed).clone() }).unwrap();
    let emptied = Dataset { labels: dataset.labels.clone(), splits: dataset.splits.clone(), ..emptied };
    for kind in TYPED {
        let full = plain(kind);
        let sampled = TrainConfig { batch: without_topics(2), batch_size: Some(1000), ..full.clone() };
        // Scores of the sampled run are those of the whole graph; so it is trained on the graph without the edges, too.
        assert_same_training(&emptied, &full, &sampled, &format!("{kind:?}"));
    }
}

/// Configurations with several batches an epoch and dropout.
fn several_batches() -> impl Iterator<Item = TrainConfig> {
    TYPED.into_iter().map(|kind| {
        let mut config = plain(kind);
        config.model = ModelConfig { dropout: 0.3, input_dropout: Some(0.2), ..config.model };
        config.optimizer = OptimizerConfig { kind: OptimizerKind::Adam, lr: 0.01, ..config.optimizer };
        neighbors(&config, vec![3, 2], 16)
    })
}

#[test]
fn results_depend_neither_on_prefetching_nor_on_interruptions() {
    for config in several_batches() {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let prefetched = |prefetch: usize| {
            let batch = BatchConfig { prefetch, ..config.batch.clone() };
            TrainConfig { batch, epochs: 4, ..config.clone() }
        };
        let params = |folder: &tempfile::TempDir, prefetch: usize, stops: &[Option<u64>]| {
            for &stop in stops {
                train_into(folder.path(), papers(), &prefetched(prefetch), stop);
            }
            let path = checkpoint_path(folder.path(), 0);
            Checkpoint::load(&path).unwrap().params
        };
        let expected = params(&folders[0], 2, &[None]);
        assert_eq!(params(&folders[1], 0, &[None]), expected, "{:?}: without threads", config.model.kind);
        assert_eq!(params(&folders[2], 2, &[Some(2), None]), expected, "{:?}: interrupted", config.model.kind);
    }
}

#[test]
fn batches_that_do_not_fit_are_refused() {
    let refused = |dataset: Dataset, config: TrainConfig| train(dataset, &config).unwrap_err().to_string();
    let sampled = |fanout: Vec<i64>| neighbors(&plain(ModelKind::Hsage), fanout, 16);
    let by_type = |config: TrainConfig, name: &str, numbers: Vec<i64>| {
        let batch = BatchConfig { fanout_by_type: [(name.to_owned(), numbers)].into(), ..config.batch.clone() };
        TrainConfig { batch, ..config }
    };
    let message = refused(papers(), by_type(sampled(vec![3, 3]), "writs", vec![2, 2]));
    assert!(message.contains("names the edge type \"writs\"") && message.contains("author.writes.paper"), "{message}");
    let message = refused(papers(), by_type(sampled(Vec::new()), "writes", vec![2, 2]));
    assert!(message.contains("says nothing of the edge type paper.cites.paper"), "{message}");
    let message = refused(papers(), by_type(sampled(vec![3]), "writes", vec![2]));
    assert!(message.contains("has 1 hops, but the model has 2 layers"), "{message}");
    let message = refused(papers(), by_type(sampled(vec![3, 3]), "writes", vec![2, -2]));
    assert!(message.contains("takes -2 neighbors"), "{message}");
    let closed =
        BatchConfig { fanout_by_type: BTreeMap::from([("*".to_owned(), vec![1, 1])]), ..sampled(vec![]).batch };
    assert!(train(papers(), &TrainConfig { batch: closed, ..sampled(vec![]) }).is_ok());
    let pairs = neighbors(&plain(ModelKind::Rgcn), vec![2, 2], 16);
    let message = refused(one_node_type(false), pairs);
    assert!(message.contains("learns a row for each pair of a node and a relation"), "{message}");
    let layer = BatchConfig { kind: BatchKind::Layer, ..BatchConfig::default() };
    let message = refused(papers(), TrainConfig { batch: layer, ..plain(ModelKind::Rgat) });
    assert!(message.contains("--batch layer with --model rgat is not supported"), "{message}");
    let replace = BatchConfig { replace: true, ..sampled(vec![2, 2]).batch };
    let message = refused(papers(), TrainConfig { batch: replace, ..sampled(vec![2, 2]) });
    assert!(message.contains("--replace with this network"), "{message}");
    let gcn =
        TrainConfig { model: ModelConfig { kind: ModelKind::Gcn, ..ModelConfig::default() }, ..TrainConfig::default() };
    let message = refused(papers(), by_type(neighbors(&gcn, vec![2, 2], 16), "writes", vec![2, 2]));
    assert!(message.contains("--fanout by edge type"), "{message}");
}

/// Adam with weight decay, so that a dense step would change every row.
fn decaying(config: &TrainConfig) -> TrainConfig {
    let optimizer =
        OptimizerConfig { kind: OptimizerKind::Adam, lr: 0.01, weight_decay: 0.1, ..config.optimizer.clone() };
    TrainConfig { optimizer, ..config.clone() }
}

#[test]
fn a_step_changes_the_learned_rows_of_its_batch_alone() {
    let by_type = [("employs".to_owned(), vec![0, 0])].into();
    let sampled = neighbors(&plain(ModelKind::Hsage), vec![3, 3], 16);
    let batch = BatchConfig { fanout_by_type: by_type, ..sampled.batch.clone() };
    let config = decaying(&TrainConfig { batch, ..sampled });
    let after = |epochs: u64| {
        let folder = tempfile::tempdir().unwrap();
        train_into(folder.path(), papers(), &TrainConfig { epochs, ..config.clone() }, None);
        Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap().params
    };
    let (first, third) = (after(1), after(3));
    // Topics are read, institutes are not.
    assert_ne!(first["layer0.rows_2"], third["layer0.rows_2"]);
    assert_eq!(first["layer0.rows_3"], third["layer0.rows_3"]);
}

#[test]
fn steps_on_learned_rows_of_all_nodes_are_those_of_the_whole_graph() {
    // Adam divides gradients by their size, so that rounding shows in scores of attention, whose gradients are close to zero.
    for kind in [ModelKind::Rgcn, ModelKind::Hsage] {
        let mut full = plain(kind);
        full.optimizer = OptimizerConfig { kind: OptimizerKind::Adam, lr: 0.01, ..full.optimizer };
        assert_same_training(&papers(), &full, &neighbors(&full, vec![-1, -1], 1000), &format!("{kind:?}"));
    }
}

#[test]
fn scores_layer_by_layer_are_those_of_the_graph() {
    for kind in TYPED {
        for layers in [1, 2, 3] {
            let mut config = neighbors(&plain(kind), vec![3; layers], 16);
            config.model = ModelConfig { layers, ..config.model };
            assert_scored_alike(&papers(), &config, ScoreBy::Layers);
            assert_scored_alike(&one_node_type(true), &config, ScoreBy::Layers);
            if kind != ModelKind::Rgcn {
                assert_scored_alike(&one_node_type(false), &config, ScoreBy::Layers);
            }
        }
    }
    let layers =
        BatchConfig { score_by: Some(ScoreBy::Layers), ..neighbors(&plain(ModelKind::Rgcn), vec![], 16).batch };
    let message = train(one_node_type(false), &TrainConfig { batch: layers, ..plain(ModelKind::Rgcn) }).unwrap_err();
    assert!(message.to_string().contains("learns a row for each pair of a node and a relation"), "{message}");
}

/// Samples of all neighbors are all neighbors, in one batch or several, of several types or one.
#[test]
fn scores_on_samples_of_all_neighbors_are_those_of_the_graph() {
    for kind in TYPED {
        for batch_size in [16, 1000] {
            let config = neighbors(&plain(kind), vec![-1, -1], batch_size);
            assert_scored_alike(&papers(), &config, ScoreBy::Samples);
            assert_scored_alike(&one_node_type(true), &config, ScoreBy::Samples);
        }
    }
}

/// Draws of scores do not depend on the epoch, the number of threads or an interruption.
#[test]
fn scores_on_samples_are_the_same_in_every_evaluation() {
    let config = neighbors(&plain(ModelKind::Rgat), vec![2, 1], 16);
    let batch = BatchConfig { score_by: Some(ScoreBy::Samples), ..config.batch.clone() };
    let config = TrainConfig { batch, epochs: 3, ..config };
    let folder = tempfile::tempdir().unwrap();
    let run = train_into(folder.path(), papers(), &config, None).runs.remove(0);
    let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    let applied = || girih_trainer::apply(&Cpu::new(), papers(), &checkpoint).unwrap();
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    for (scores, _, logits) in [applied(), one_thread.install(applied)] {
        assert_eq!((scores.val_accuracy, scores.test_loss), (run.best.val_accuracy, run.best.test_loss));
        assert_eq!(logits.data(), applied().2.data());
    }
}

/// Law of codes: training on codes of each type is training on the rows that they stand for.
#[test]
fn training_on_codes_of_types_is_training_on_decoded_rows() {
    let encoded = papers().with_codec(Some("topk:2".parse().unwrap()), 3).unwrap();
    let mut typed = (**encoded.typed.as_ref().unwrap()).clone();
    let mut n_decoded = 0;
    for features in &mut typed.features {
        if let TypeFeatures::Given(Features::Compressed(codes)) = features {
            *features = TypeFeatures::Given(Features::Dense(decoded(codes)));
            n_decoded += 1;
        }
    }
    assert_eq!(n_decoded, 2, "papers and authors have features");
    let decoded = Dataset { typed: Some(typed.into()), ..encoded.clone() };
    for kind in TYPED {
        for config in [plain(kind), neighbors(&plain(kind), vec![3, 2], 16)] {
            let losses = |dataset: &Dataset| {
                let folder = tempfile::tempdir().unwrap();
                train_into(folder.path(), dataset.clone(), &config, None);
                Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap().params
            };
            assert_eq!(losses(&encoded), losses(&decoded), "{kind:?}, {:?}", config.batch.kind);
        }
    }
}
