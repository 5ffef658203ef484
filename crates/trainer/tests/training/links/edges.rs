//! Features and labels of edges: messages of earlier edges tell the sign of the next.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Cpu};
use girih_datasets::{Dataset, FeaturesFrom};
use girih_graph_format::EdgeFeatures;
use girih_random::Key;
use girih_sampling::Bound;
use girih_trainer::models::{BuildModel, Dims};
use girih_trainer::{
    Control, EdgeConfig, LinkConfig, Model, ModelConfig, ModelKind, ParamInit, SessionOptions, TimeConfig, TrainConfig,
    embed, train_model,
};

use super::timed::{Edge, dataset, edges, in_time};
use super::{load, train_some};
use crate::{train, train_into};

/// Share of the edges that are held out, by the settings of `in_time`.
const TEST: f64 = 0.15;

/// Messages with a rating each.
fn rated(edges: &[Edge], rating: impl Fn(usize, &Edge) -> f32) -> Dataset {
    let values = edges.iter().enumerate().map(|(at, edge)| rating(at, edge)).collect();
    let features = EdgeFeatures::new(vec!["rating".to_owned()], values).unwrap();
    Dataset { edge_features: Some(Arc::new(features)), ..dataset(edges) }
}

/// Ratings that are above zero for every third receiver.
fn by_receiver() -> Dataset {
    rated(&edges(), |_, edge| if edge.1.is_multiple_of(3) { 0.7 } else { -0.4 })
}

const KINDS: [ModelKind; 3] = [ModelKind::Gine, ModelKind::Gat, ModelKind::Gatv2];

fn signs(kind: ModelKind, epochs: u64, before: Bound) -> TrainConfig {
    let features = vec!["rating".to_owned()];
    let base = in_time(kind, epochs, before);
    let mut config = TrainConfig {
        edges: EdgeConfig { features, label: Some("rating".to_owned()), time_encoding: 2 },
        features_from: Some(FeaturesFrom::Degree),
        ..base
    };
    config.model.residual = true;
    config.model.norm = girih_trainer::NormKind::Layer;
    config
}

fn test_auc(dataset: Dataset, config: &TrainConfig) -> f64 {
    train(dataset, config).unwrap().runs[0].best.test_roc_auc.unwrap()
}

#[test]
fn ratings_of_earlier_edges_tell_the_sign_of_the_next() {
    for before in [Bound::Path, Bound::Batch] {
        let auc = test_auc(by_receiver(), &signs(ModelKind::Gine, 40, before));
        assert!(auc > 0.75, "{before}: {auc}");
    }
    for kind in [ModelKind::Gat, ModelKind::Gatv2] {
        let auc = test_auc(by_receiver(), &signs(kind, 10, Bound::Batch));
        let mut blind = signs(kind, 10, Bound::Batch);
        blind.edges.features.clear();
        blind.edges.time_encoding = 0;
        let without = test_auc(by_receiver(), &blind);
        assert!(auc > 0.55 && auc != without, "{kind:?}: {auc} {without}");
    }
}

/// An edge would see its own rating if it, or a later one, were among its messages.
#[test]
fn an_edge_does_not_see_its_own_rating() {
    let stream = std::cell::RefCell::new(Key::new(8, 2).stream(0, 0));
    let random: Vec<f32> = (0..edges().len()).map(|_| stream.borrow_mut().below(2) as f32 - 0.5).collect();
    for (kind, before) in KINDS.into_iter().zip([Bound::Seed, Bound::Path, Bound::Batch]) {
        let auc = test_auc(rated(&edges(), |at, _| random[at]), &signs(kind, 8, before));
        assert!((0.38..0.62).contains(&auc), "{kind:?} {before}: {auc}");
    }
}

#[test]
fn ratings_of_later_edges_change_nothing_before() {
    let from = edges().len() - (TEST * edges().len() as f64).round() as usize;
    let rating = |_: usize, edge: &Edge| if edge.1.is_multiple_of(3) { 0.7 } else { -0.4 };
    let other = |at: usize, edge: &Edge| if at < from { rating(at, edge) } else { -rating(at, edge) };
    for (kind, before) in KINDS.into_iter().zip([Bound::Seed, Bound::Batch, Bound::Path]) {
        let [a, b] = [rated(&edges(), rating), rated(&edges(), other)]
            .map(|dataset| train(dataset, &signs(kind, 3, before)).unwrap().runs[0].clone());
        assert_eq!(
            (a.train_loss, a.best.val_roc_auc, a.best.val_loss),
            (b.train_loss, b.best.val_roc_auc, b.best.val_loss)
        );
        assert_ne!(a.best.test_roc_auc, b.best.test_roc_auc);
    }
}

#[test]
fn features_of_edges_resume_bit_for_bit_and_checkpoints_score_what_their_runs_did() {
    let config = signs(ModelKind::Gine, 2, Bound::Seed);
    let folder = || tempfile::tempdir().unwrap();
    let (whole, parts) = (folder(), folder());
    let outcome = train_into(whole.path(), by_receiver(), &config, None);
    while train_some(parts.path(), (&by_receiver(), &config), Some(3)) {}
    assert!(load(parts.path()) == load(whole.path()));
    let embedded = embed(&Cpu::new(), by_receiver(), &load(whole.path())).unwrap();
    assert_eq!(embedded.scores, outcome.runs[0].best);
}

/// Links are asked for as by other models, where there is no label; without features, messages have direction and age.
#[test]
fn features_are_read_for_links_as_well() {
    let mut config = signs(ModelKind::Gine, 8, Bound::Seed);
    config.edges.label = None;
    config.edges.features.clear();
    config.edges.time_encoding = 4;
    config.features_from = Some(FeaturesFrom::Embedding(8));
    assert!(test_auc(dataset(&edges()), &config) > 0.65);
    let of_ages = train(dataset(&edges()), &config).unwrap().runs[0].train_loss;
    config.edges.time_encoding = 3;
    assert_ne!(train(dataset(&edges()), &config).unwrap().runs[0].train_loss, of_ages);
}

#[test]
fn a_model_without_features_of_edges_predicts_signs_too() {
    let mut config = in_time(ModelKind::Sage, 40, Bound::Seed);
    config.edges.label = Some("rating".to_owned());
    let auc = test_auc(by_receiver(), &config);
    assert!(auc > 0.6, "{auc}");
}

#[test]
fn columns_are_read_once_and_the_label_comes_last() {
    let columns = |features: &[&str], label: Option<&str>| {
        let features = features.iter().map(|&name| name.to_owned()).collect();
        EdgeConfig { features, label: label.map(str::to_owned), time_encoding: 0 }.columns()
    };
    assert_eq!(columns(&["a", "b"], Some("c")), ["a", "b", "c"]);
    assert_eq!(columns(&["a", "b"], Some("a")), ["a", "b"]);
    assert_eq!(columns(&["all"], Some("a")), ["all"]);
    assert_eq!(columns(&[], Some("a")), ["a"]);
    assert!(columns(&[], None).is_empty());
    let config = EdgeConfig { features: vec!["all".to_owned()], time_encoding: 4, ..EdgeConfig::default() };
    assert_eq!((config.width(3), EdgeConfig::default().width(3)), (8, 1));
}

#[test]
fn what_does_not_fit_edges_is_refused_by_name() {
    let told = |dataset: Dataset, config: &TrainConfig, words: &str| {
        let message = train(dataset, config).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    let signs = signs(ModelKind::Gine, 1, Bound::Seed);
    told(by_receiver(), &TrainConfig { time: TimeConfig::default(), ..signs.clone() }, "without --before");
    let mut sage = signs.clone();
    sage.model = in_time(ModelKind::Sage, 1, Bound::Seed).model;
    told(by_receiver(), &sage, "--model sage is not supported: it does not read features of edges");
    let negatives = LinkConfig { negatives: 2, ..signs.links.clone() };
    told(by_receiver(), &TrainConfig { links: negatives, ..signs.clone() }, "links.negatives");
    told(rated(&edges(), |_, _| 1.0), &signs, "all of the");
    told(rated(&edges(), |_, _| 0.0), &signs, "none of the");
    told(dataset(&edges()), &signs, "without the features of its edges");
    let mut unread = signs.clone();
    unread.edges.label = None;
    told(dataset(&edges()), &unread, "without the features of its edges");
    unread.edges.features = vec!["a".to_owned(), "b".to_owned()];
    told(by_receiver(), &unread, "1 columns of its edges (rating), and the settings read a, b");
    unread.edges.features = vec!["all".to_owned()];
    unread.edges.label = Some("other".to_owned());
    told(by_receiver(), &unread, "no column other");
    unread.edges.time_encoding = 5000;
    told(by_receiver(), &unread, "at most 1024");
    let mut full = signs.clone();
    full.edges = EdgeConfig::default();
    full.time = TimeConfig::default();
    full.batch = girih_trainer::BatchConfig::default();
    full.batch_size = None;
    told(by_receiver(), &full, "--model gine without --before");
}

/// A network from outside: that of girih, by another name.
struct Outside(ModelConfig);

impl<B: Backend> BuildModel<B> for Outside {
    fn config(&self) -> ModelConfig {
        ModelConfig { own: ModelConfig::from_outside("rated", ()).own, ..ModelConfig::default() }
    }

    fn build(&self, dims: Dims, init: &mut ParamInit<'_, B>) -> Result<Box<dyn Model<B>>, ComputeError> {
        self.0.build(dims, init)
    }
}

#[test]
fn models_from_outside_read_features_of_edges_by_their_input_spec() {
    let inside = signs(ModelKind::Gine, 2, Bound::Seed);
    let start = |kind| {
        let model = ModelConfig { kind, ..inside.model.clone() };
        let mut observe = |_: girih_trainer::Event<'_>| Control::Continue;
        train_model(&Cpu::new(), by_receiver(), &Outside(model), &inside, &SessionOptions::default(), &mut observe)
    };
    let found = start(ModelKind::Gine).unwrap().runs[0].best;
    assert_eq!(found, train(by_receiver(), &inside).unwrap().runs[0].best);
    let refused = start(ModelKind::Gin).unwrap_err().to_string();
    assert!(refused.contains("the input spec of rated reads no features of edges"), "{refused}");
}
