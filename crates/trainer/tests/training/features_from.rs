//! Graphs without features train on generated or learned features, in every way of training.

use girih_compress::CodecSpec;
use girih_compute::{Cpu, Dtype};
use girih_datasets::{Dataset, FeaturesFrom};
use girih_partition::{Exchange, Scheme};
use girih_trainer::distributed::{GraphPlacement, RankJob, RankOptions, TrainJob};
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, Checkpoint, Control, LinkConfig, ModelKind, ScoreBy, SessionOptions, TaskKind,
    TrainConfig, apply, checkpoint_path, embed,
};

use crate::batches::assert_same_training;
use crate::distributed::{GRIDS, assert_same, options};
use crate::{config, planted, small, train, train_into};

const RULES: [FeaturesFrom; 4] =
    [FeaturesFrom::Degree, FeaturesFrom::OneHot, FeaturesFrom::Embedding(12), FeaturesFrom::RandomWalk(6)];

fn bare(nodes: usize) -> Dataset {
    Dataset { features: None, ..planted(&format!("nodes={nodes}")) }
}

fn from(rule: FeaturesFrom, config: TrainConfig) -> TrainConfig {
    TrainConfig { features_from: Some(rule), ..config }
}

/// Networks that support a rule.
fn models(rule: FeaturesFrom) -> impl Iterator<Item = ModelKind> {
    ModelKind::classifiers().filter(move |&kind| match kind {
        ModelKind::Sgc => !rule.knows_nodes(),
        kind if kind.reads_relations() => rule != FeaturesFrom::OneHot,
        _ => true,
    })
}

fn neighbors(config: &TrainConfig, fanout: Vec<i64>) -> TrainConfig {
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout, ..BatchConfig::default() };
    TrainConfig { batch, batch_size: Some(1000), ..config.clone() }
}

#[test]
fn every_model_trains_on_features_of_every_rule() {
    let dataset = bare(200);
    for rule in RULES {
        for kind in models(rule) {
            let run = &train(dataset.clone(), &from(rule, small(config(kind, 5)))).unwrap().runs[0];
            assert!(run.train_loss.is_finite() && run.best.val_accuracy.is_some(), "{rule}, {kind:?}");
        }
    }
}

/// Only the neighbors' ids reveal communities; one-hot rows and embeddings encode ids.
#[test]
fn rows_of_their_own_tell_communities_apart() {
    let dataset = bare(400);
    for rule in [FeaturesFrom::OneHot, FeaturesFrom::Embedding(16)] {
        let run = train(dataset.clone(), &from(rule, config(ModelKind::Gcn, 100))).unwrap().runs.remove(0);
        assert!(run.best.test_accuracy.unwrap() > 0.6, "{rule}: {:?}", run.best);
    }
}

#[test]
fn ranks_train_what_one_rank_trains() {
    let dataset = bare(211);
    for rule in RULES {
        for kind in models(rule).filter(|kind| !kind.reads_relations()) {
            for (scheme, ranks, replication) in [GRIDS[1], GRIDS[5]] {
                let ranks = options(scheme, ranks, replication, Exchange::Auto);
                assert_same(&dataset, &from(rule, small(config(kind, 4))), &ranks);
            }
        }
    }
    for (scheme, ranks, replication) in GRIDS {
        let ranks = options(scheme, ranks, replication, Exchange::Auto);
        assert_same(&dataset, &from(FeaturesFrom::Embedding(9), config(ModelKind::Gcn, 5)), &ranks);
    }
}

#[test]
fn all_neighbors_of_all_seeds_make_the_step_of_the_whole_graph() {
    let dataset = bare(150);
    for rule in RULES {
        for kind in [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gin] {
            let mut full = from(rule, crate::batches::plain(kind, 2));
            full.model.layers = 2;
            let what = format!("{rule}, {kind:?}");
            assert_same_training(&dataset, &full, &neighbors(&full, vec![-1, -1]), &what);
        }
    }
    let mut full = from(FeaturesFrom::Embedding(5), crate::batches::plain(ModelKind::Sage, 2));
    full.model.aggregator = Aggregator::Pool;
    assert_same_training(&dataset, &full, &neighbors(&full, vec![-1, -1]), "pool");
}

#[test]
fn every_kind_of_batch_trains_learned_rows() {
    let dataset = bare(200);
    for kind in [BatchKind::Neighbor, BatchKind::Layer, BatchKind::Cluster, BatchKind::Saint] {
        let batch = BatchConfig { kind, ..BatchConfig::default() };
        let config = TrainConfig { batch, ..from(FeaturesFrom::Embedding(8), small(config(ModelKind::Gcn, 3))) };
        let run = &train(dataset.clone(), &config).unwrap().runs[0];
        assert!(run.train_loss.is_finite() && run.best.val_accuracy.is_some(), "{kind:?}");
    }
}

#[test]
fn scores_layer_by_layer_are_those_of_the_whole_graph() {
    let dataset = bare(200);
    for rule in RULES {
        let sampled = neighbors(&from(rule, small(config(ModelKind::Sage, 3))), vec![4, 4]);
        let scored = |score_by| {
            let batch = BatchConfig { score_by: Some(score_by), ..sampled.batch.clone() };
            train(dataset.clone(), &TrainConfig { batch, ..sampled.clone() }).unwrap().runs[0].last
        };
        let (graph, layers) = (scored(ScoreBy::Graph), scored(ScoreBy::Layers));
        assert_eq!(graph.test_accuracy, layers.test_accuracy, "{rule}");
        assert!((graph.test_loss.unwrap() - layers.test_loss.unwrap()).abs() < 1e-5, "{rule}");
    }
}

#[test]
fn ranks_with_the_whole_graph_train_batches_as_one() {
    let dataset = bare(200);
    let sampled = neighbors(&from(FeaturesFrom::Embedding(8), small(config(ModelKind::Sage, 3))), vec![-1, -1]);
    let one = train(dataset.clone(), &sampled).unwrap().runs.remove(0);
    let (options, session) = (options(Scheme::OneD, 2, 1, Exchange::Auto), SessionOptions::default());
    let mut observe = |_: girih_trainer::Event<'_>| Control::Continue;
    let job = TrainJob::new(dataset, &sampled, &options, &session, &mut observe);
    let two = job.on_threads(Cpu::new).unwrap().runs.remove(0);
    assert!((one.train_loss - two.train_loss).abs() < 1e-5, "{} and {}", one.train_loss, two.train_loss);
}

#[test]
fn links_are_told_by_features_of_every_rule_on_the_graph_and_on_batches() {
    let dataset = Dataset { labels: None, splits: Vec::new(), ..bare(300) };
    for rule in RULES {
        let whole = TrainConfig { task: TaskKind::Links, ..from(rule, small(config(ModelKind::Gcn, 20))) };
        for config in [whole.clone(), TrainConfig { batch_size: Some(300), ..neighbors(&whole, vec![6, 4]) }] {
            let best = train(dataset.clone(), &config).unwrap().runs[0].best;
            assert!(best.test_roc_auc.is_some_and(f64::is_finite), "{rule}");
            assert!(!rule.knows_nodes() || best.test_roc_auc.unwrap() > 0.55, "{rule}: {best:?}");
        }
    }
}

fn checkpoint(dataset: &Dataset, config: &TrainConfig) -> Checkpoint {
    let folder = tempfile::tempdir().unwrap();
    train_into(folder.path(), dataset.clone(), config, None);
    Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap()
}

#[test]
fn a_checkpoint_scores_what_its_run_did_and_rows_of_nodes_fit_their_graph_alone() {
    let (dataset, other) = (bare(200), bare(180));
    for rule in RULES {
        let full = from(rule, small(config(ModelKind::Gcn, 4)));
        for config in [full.clone(), neighbors(&full, vec![3, 3])] {
            let checkpoint = checkpoint(&dataset, &config);
            let (scores, ..) = apply(&Cpu::new(), dataset.clone(), &checkpoint).unwrap();
            assert_eq!(Some(scores), checkpoint.progress.best.map(|(_, scores)| scores), "{rule}");
            match apply(&Cpu::new(), other.clone(), &checkpoint) {
                Ok(_) => assert!(!rule.knows_nodes(), "{rule}"),
                Err(error) => {
                    assert!(rule.knows_nodes(), "{rule}: {error}");
                    assert!(error.to_string().contains("has a row for each of these nodes"), "{error}");
                }
            }
        }
        let links = TrainConfig { task: TaskKind::Links, links: LinkConfig::default(), ..full };
        let of_links = checkpoint(&dataset, &links);
        assert!(embed(&Cpu::new(), dataset.clone(), &of_links).is_ok());
        assert_eq!(embed(&Cpu::new(), other.clone(), &of_links).is_err(), rule.knows_nodes(), "{rule}");
    }
}

#[test]
fn learned_rows_resume_bit_for_bit() {
    let (dataset, config) = (bare(150), from(FeaturesFrom::Embedding(8), config(ModelKind::Gcn, 6)));
    let (whole, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train_into(whole.path(), dataset.clone(), &config, None);
    train_into(cut.path(), dataset.clone(), &config, Some(3));
    train_into(cut.path(), dataset, &config, None);
    let load = |folder: &tempfile::TempDir| Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    assert_eq!(load(&whole), load(&cut));
    assert!(load(&whole).params.contains_key("layer0.features"));
}

#[test]
fn settings_that_conflict_with_a_rule_are_refused_by_name() {
    let base = config(ModelKind::Gcn, 2);
    let refusals = [
        (from(FeaturesFrom::OneHot, config(ModelKind::Sgc, 2)), "sgc"),
        (from(FeaturesFrom::Embedding(4), config(ModelKind::Sgc, 2)), "sgc"),
        (TrainConfig { codec: Some(CodecSpec::Int8), ..from(FeaturesFrom::Degree, base.clone()) }, "codec"),
        (TrainConfig { precision: Dtype::Bf16, ..from(FeaturesFrom::Embedding(4), base.clone()) }, "bf16"),
        (from(FeaturesFrom::Degree, TrainConfig::for_model(ModelKind::LightGcn)), "lightgcn"),
    ];
    for (config, named) in refusals {
        let message = train(bare(60), &config).unwrap_err().to_string();
        assert!(message.contains("--features-from") && message.contains(named), "{message}");
    }
    let message = train(planted("nodes=60"), &from(FeaturesFrom::Degree, base.clone())).unwrap_err().to_string();
    assert!(message.contains("48 columns") && message.contains("--features-from degree"), "{message}");
    let message = train(bare(60), &base).unwrap_err().to_string();
    assert!(message.contains("--features-from") && message.contains(FeaturesFrom::VALUES), "{message}");

    let patches = RankOptions { layout: GraphPlacement::Patches, ..options(Scheme::OneD, 2, 1, Exchange::Auto) };
    let (sampled, session) =
        (neighbors(&from(FeaturesFrom::Embedding(4), base), vec![2, 2]), SessionOptions::default());
    let mut observe = |_: girih_trainer::Event<'_>| Control::Continue;
    let job = TrainJob::new(bare(60), &sampled, &patches, &session, &mut observe);
    let message = job.on_threads(Cpu::new).unwrap_err().to_string();
    assert!(message.contains("--features-from embedding:4") && message.contains("--layout replicated"), "{message}");
}

#[test]
fn another_order_of_nodes_is_refused_for_rows_of_their_own() {
    let order = girih_graph_format::Permutation::from_order((0..60u32).rev().collect()).unwrap();
    for rule in RULES {
        let marked = bare(60).with_features_from(Some(rule)).unwrap();
        assert_eq!(marked.notes.made_up[0].kind, "invented_features");
        assert_eq!(marked.permuted(&order).is_err(), rule.knows_nodes(), "{rule}");
    }
}
