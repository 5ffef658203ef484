//! Links in time: training knows the edges before each question, and no others.

use std::sync::Arc;

use girih_compute::Cpu;
use girih_datasets::{Dataset, FeaturesFrom};
use girih_graph_format::{Coo, Duplicates, NodeId, TimedEdge, TimedRows, Times};
use girih_random::Key;
use girih_sampling::{Bound, Strategy};
use girih_trainer::testing::parts_of;
use girih_trainer::{BatchConfig, LinkConfig, ModelKind, TimeConfig, TrainConfig, embed};

use super::{links, load, on_batches, train_some};
use crate::{train, train_into};

/// Edge of a list: source, destination, time.
pub(crate) type Edge = (NodeId, NodeId, i64);

const N_NODES: usize = 60;

/// People who write to the members of their own group, at one time after the other.
pub(crate) fn edges() -> Vec<Edge> {
    let mut stream = Key::new(5, 1).stream(0, 0);
    let edge = |time: i64| {
        let group = stream.below(3);
        let from = stream.below(20);
        let to = (from + 1 + stream.below(19)) % 20;
        ((group * 20 + from) as NodeId, (group * 20 + to) as NodeId, time)
    };
    (0..1500).map(edge).collect()
}

pub(crate) fn dataset(edges: &[Edge]) -> Dataset {
    let column = |at: fn(&Edge) -> NodeId| edges.iter().map(at).collect::<Vec<_>>();
    let (sources, destinations) = (column(|edge| edge.0), column(|edge| edge.1));
    let times = Times { values: edges.iter().map(|edge| edge.2).collect(), ..Times::default() };
    let timed = TimedRows::new(N_NODES, &sources, &destinations, &times, true).unwrap();
    let list = Coo::new(N_NODES, N_NODES, destinations, sources, None).unwrap();
    let graph = list.to_csr(Duplicates::Merge).unwrap().symmetrized();
    let dataset = Dataset::new("messages", graph, None, None, Vec::new()).unwrap();
    Dataset { timed: Some(Arc::new(timed)), ..dataset }
}

pub(crate) fn in_time(kind: ModelKind, epochs: u64, before: Bound) -> TrainConfig {
    let config = on_batches(links(kind, epochs));
    let batch = BatchConfig { fanout: vec![5, 5], ..config.batch };
    TrainConfig {
        batch,
        batch_size: Some(100),
        time: TimeConfig { before: Some(before), ..TimeConfig::default() },
        links: LinkConfig { val: 0.15, test: 0.15, ..LinkConfig::default() },
        features_from: Some(FeaturesFrom::Embedding(8)),
        ..config
    }
}

#[test]
fn later_edges_are_told_from_others_by_every_bound() {
    for before in [Bound::Seed, Bound::Path, Bound::Batch] {
        for kind in [ModelKind::Sage, ModelKind::Gat] {
            let best = train(dataset(&edges()), &in_time(kind, 8, before)).unwrap().runs[0].best;
            // A third of the wrong destinations are of the right group.
            assert!(best.test_roc_auc.unwrap() > 0.7, "{kind:?} {before}: {best:?}");
            assert!(best.links.unwrap().average_precision > 0.6 && best.val_loss.is_some(), "{best:?}");
        }
    }
}

#[test]
fn what_happens_later_changes_nothing_before() {
    let all = edges();
    // The test part is other edges; of the validation part and of training, nothing changes.
    let from = all.len() - (0.15 * all.len() as f64).round() as usize;
    let mut other = all.clone();
    for (at, edge) in other[from..].iter_mut().enumerate() {
        *edge = (edge.1, ((edge.1 as usize + 1 + at % (N_NODES - 1)) % N_NODES) as NodeId, edge.2);
    }
    let degrees =
        |before| TrainConfig { features_from: Some(FeaturesFrom::Degree), ..in_time(ModelKind::Sage, 3, before) };
    let configs =
        [in_time(ModelKind::Gat, 3, Bound::Seed), in_time(ModelKind::Sage, 3, Bound::Batch), degrees(Bound::Path)];
    for config in configs {
        let [a, b] = [&all, &other].map(|edges| train(dataset(edges), &config).unwrap().runs[0].clone());
        assert_eq!(
            (a.train_loss, a.best.val_roc_auc, a.best.val_loss),
            (b.train_loss, b.best.val_roc_auc, b.best.val_loss)
        );
        assert_ne!(a.best.test_roc_auc, b.best.test_roc_auc);
    }
}

#[test]
fn training_resumes_bit_for_bit_and_does_not_depend_on_prefetch() {
    let config = in_time(ModelKind::Sage, 2, Bound::Seed);
    let folder = || tempfile::tempdir().unwrap();
    let (whole, parts, ahead) = (folder(), folder(), folder());
    train_into(whole.path(), dataset(&edges()), &config, None);
    while train_some(parts.path(), (&dataset(&edges()), &config), Some(3)) {}
    assert!(load(parts.path()) == load(whole.path()));
    let config = TrainConfig { batch: BatchConfig { prefetch: 0, ..config.batch.clone() }, ..config };
    train_into(ahead.path(), dataset(&edges()), &config, None);
    assert_eq!(load(ahead.path()).params, load(whole.path()).params);
}

#[test]
fn a_checkpoint_scores_what_its_run_did_and_embeds_every_node() {
    let (config, folder) = (in_time(ModelKind::Sage, 3, Bound::Seed), tempfile::tempdir().unwrap());
    let outcome = train_into(folder.path(), dataset(&edges()), &config, None);
    let embedded = embed(&Cpu::new(), dataset(&edges()), &load(folder.path())).unwrap();
    assert_eq!(embedded.scores, outcome.runs[0].best);
    assert_eq!((embedded.embeddings.n_rows(), embedded.embeddings.n_cols()), (N_NODES, 16));
}

#[test]
fn windows_and_the_latest_edges_are_what_is_read() {
    let auc = |time: TimeConfig| {
        let config = TrainConfig { time, ..in_time(ModelKind::Sage, 2, Bound::Seed) };
        train(dataset(&edges()), &config).unwrap().runs[0].best.test_loss
    };
    let all = TimeConfig { before: Some(Bound::Seed), ..TimeConfig::default() };
    let losses = [
        auc(all),
        auc(TimeConfig { window: Some("50".parse().unwrap()), ..all }),
        auc(TimeConfig { strategy: Strategy::Last, ..all }),
    ];
    assert!(losses[0] != losses[1] && losses[0] != losses[2] && losses[1] != losses[2], "{losses:?}");
    assert_eq!(auc(TimeConfig { window: Some("10000".parse().unwrap()), ..all }), losses[0]);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let refused = |dataset, config: &TrainConfig| train(dataset, config).unwrap_err().to_string();
    let told = |config: &TrainConfig, words: &str| {
        let message = refused(dataset(&edges()), config);
        assert!(message.contains(words), "{message}");
    };
    let of = |time| TrainConfig { time, ..in_time(ModelKind::Sage, 1, Bound::Seed) };
    told(&in_time(ModelKind::Gcn, 1, Bound::Seed), "--model gcn is not supported: it divides by the degrees");
    told(&of(TimeConfig { until: Some(Bound::Seed), ..TimeConfig::default() }), "admits the edge that is asked for");
    let both = TimeConfig { until: Some(Bound::Seed), before: Some(Bound::Seed), ..TimeConfig::default() };
    told(&of(both), "leave one out");
    told(&of(TimeConfig { strategy: Strategy::Last, ..TimeConfig::default() }), "give the bound as well");
    let window =
        TimeConfig { before: Some(Bound::Seed), window: Some("0.5".parse().unwrap()), ..TimeConfig::default() };
    told(&of(window), "no whole number of ticks");
    let full = TrainConfig { batch: BatchConfig::default(), batch_size: None, ..of(window) };
    told(&full, "--batch full");
    let few = LinkConfig { val: 0.5, test: 0.499, ..LinkConfig::default() };
    let message =
        refused(dataset(&edges()[..4]), &TrainConfig { links: few, ..in_time(ModelKind::Sage, 1, Bound::Seed) });
    assert!(message.contains("for training"), "{message}");
    let message = refused(Dataset { timed: None, ..dataset(&edges()) }, &in_time(ModelKind::Sage, 1, Bound::Seed));
    assert!(message.contains("without the times"), "{message}");
}

#[test]
fn parts_follow_each_other_and_keep_equal_times_together() {
    let parts = |times: &[i64], shares| {
        let edge = |(&time, edge)| TimedEdge { source: 0, destination: 1, time, edge };
        parts_of(&times.iter().zip(0..).map(edge).collect::<Vec<_>>(), shares)
    };
    assert_eq!(parts(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], (0.1, 0.2)), [0..7, 7..8, 8..10]);
    assert_eq!(parts(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 3], (0.3, 0.2)), [0..6, 6..9, 9..10]);
    assert_eq!(parts(&[5; 10], (0.3, 0.2)), [0..10, 10..10, 10..10]);
    assert_eq!(parts(&[], (0.3, 0.2)), [0..0, 0..0, 0..0]);
    assert_eq!(parts(&[1, 2], (0.0, 0.0)), [0..2, 2..2, 2..2]);
}

#[test]
fn spans_of_time_are_read_as_they_are_written() {
    use girih_graph_format::Tick;
    use girih_trainer::TimeSpan;

    let ticks = |text: &str, decimals| text.parse::<TimeSpan>().unwrap().in_ticks(Tick::of_decimals(decimals).unwrap());
    for (text, decimals, expected) in [
        ("30d", 0, 2_592_000),
        ("12h", 0, 43_200),
        ("90m", 0, 5_400),
        ("2.5s", 1, 25),
        ("7", 5, 700_000),
        ("1w", 0, 604_800),
    ] {
        assert_eq!(ticks(text, decimals).unwrap(), expected, "{text}");
        assert_eq!(text.parse::<TimeSpan>().unwrap().to_string(), text);
    }
    assert!(ticks("2.5s", 0).is_err() && ticks("99999999999999999w", 9).is_err());
    for text in ["", "d", "3 d", "-3d", "3y", "1.", ".5d", "1.2.3", "1e3", "99999999999999999999d", "1.0123456789s"] {
        assert!(text.parse::<TimeSpan>().unwrap_err().to_string().contains("span of time"), "{text:?}");
    }
}
