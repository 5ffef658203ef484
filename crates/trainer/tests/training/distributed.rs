//! Training on several ranks gives the results of one rank.

mod network;
mod patches;
mod plans;
mod products;
mod rows;
mod small;
mod times;
mod together;

use std::path::Path;
use std::time::Duration;

use girih_compute::{Cpu, Dtype};
use girih_datasets::{Dataset, Interactions};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix};
use girih_partition::{Cuts, Exchange, ProcessGrid, Scheme, Stages};
use girih_trainer::distributed::{RankJob, RankOptions, TrainJob};
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, Checkpoint, Control, Event, ModelConfig, ModelKind, NormKind, Outcome, ScoreBy,
    SessionOptions, TrainConfig, TrainError, checkpoint_path,
};

use crate::recommend::{lightgcn, tastes};
use crate::{config, planted, with_bags_of_words, with_input_dropout};

/// Every scheme, with the numbers of ranks that tests can afford.
pub(crate) const GRIDS: [(Scheme, usize, usize); 8] = [
    (Scheme::OneD, 2, 1),
    (Scheme::OneD, 4, 1),
    (Scheme::OneD, 8, 1),
    (Scheme::OneAndHalfD, 4, 2),
    (Scheme::OneAndHalfD, 8, 2),
    (Scheme::TwoD, 4, 1),
    (Scheme::TwoD, 9, 1),
    (Scheme::ThreeD, 8, 1),
];

pub(crate) fn options(scheme: Scheme, ranks: usize, replication: usize, exchange: Exchange) -> RankOptions {
    let grid = ProcessGrid::new(scheme, ranks, replication).unwrap();
    RankOptions::new(grid, exchange, Duration::from_secs(60))
}

/// Losses of all epochs, and the outcome.
fn losses(outcome: impl FnOnce(&mut Vec<f32>) -> Result<Outcome, TrainError>) -> (Vec<f32>, Outcome) {
    let mut losses = Vec::new();
    let outcome = outcome(&mut losses).unwrap();
    (losses, outcome)
}

fn on_one_rank(dataset: &Dataset, config: &TrainConfig) -> (Vec<f32>, Outcome) {
    losses(|losses| {
        let mut observe = |event: Event<'_>| record(losses, &event);
        girih_trainer::train(&Cpu::new(), dataset.clone(), config, &SessionOptions::default(), &mut observe)
    })
}

fn on_ranks(dataset: &Dataset, config: &TrainConfig, ranks: &RankOptions) -> (Vec<f32>, Outcome) {
    losses(|losses| {
        let mut observe = |event: Event<'_>| record(losses, &event);
        let session = SessionOptions::default();
        TrainJob::new(dataset.clone(), config, ranks, &session, &mut observe).on_threads(Cpu::new)
    })
}

fn record(losses: &mut Vec<f32>, event: &Event<'_>) -> Control {
    if let Event::Epoch { report, .. } = event {
        losses.push(report.train_loss);
    }
    Control::Continue
}

/// Checks that losses of epochs agree to 1e-5. Returns the outcomes on one rank and on several, and a description.
fn assert_same_losses(dataset: &Dataset, config: &TrainConfig, ranks: &RankOptions) -> (Outcome, Outcome, String) {
    let ((expected, single), (found, shared)) = (on_one_rank(dataset, config), on_ranks(dataset, config, ranks));
    let what = format!("{:?}, {} ({})", config.model.kind, ranks.grid, ranks.exchange);
    assert_eq!(expected.len(), found.len());
    for (epoch, (a, b)) in expected.iter().zip(&found).enumerate() {
        assert!((a - b).abs() <= 1e-5 * a.abs(), "{what}: the loss of epoch {epoch} is {b}, on one rank {a}");
    }
    (single, shared, what)
}

/// As [`assert_same_losses`], and checks that accuracies agree up to a few nodes.
pub(crate) fn assert_same(dataset: &Dataset, config: &TrainConfig, ranks: &RankOptions) {
    let (single, shared, what) = assert_same_losses(dataset, config, ranks);
    let accuracy = |outcome: &Outcome| outcome.runs[0].last.test_accuracy.unwrap();
    assert!((accuracy(&single) - accuracy(&shared)).abs() < 0.02, "{what}: accuracies differ");
}

#[test]
fn every_model_trains_on_every_plan_as_on_one_rank() {
    // No tested number of ranks divides this number of nodes.
    let dataset = planted("nodes=307");
    for kind in ModelKind::classifiers().filter(|kind| !kind.reads_relations()) {
        for (scheme, ranks, replication) in GRIDS {
            assert_same(&dataset, &config(kind, 5), &options(scheme, ranks, replication, Exchange::Auto));
        }
    }
}

#[test]
fn rows_or_whole_panels_give_the_same() {
    let dataset = planted("nodes=307");
    for (scheme, ranks, replication) in GRIDS {
        for exchange in [Exchange::Dense, Exchange::Rows] {
            assert_same(&dataset, &config(ModelKind::Gcn, 5), &options(scheme, ranks, replication, exchange));
        }
    }
}

#[test]
fn cuts_stages_and_chunks_change_the_order_of_sums_alone() {
    let dataset = planted("nodes=307,gamma=2.1");
    for (scheme, ranks, replication) in GRIDS {
        for (exchange, cuts, stages, chunks) in [
            (Exchange::Dense, Cuts::Weighted, Stages::Parts(3), 3),
            (Exchange::Rows, Cuts::Weighted, Stages::Parts(2), 1),
            (Exchange::Auto, Cuts::Equal, Stages::Parts(1), 4),
        ] {
            let base = options(scheme, ranks, replication, exchange);
            let ranks = RankOptions { cuts, stages, chunks, ..base };
            assert_same(&dataset, &config(ModelKind::Gat, 5), &ranks);
            // Hidden rows of several cache lines, which are sent in chunks.
            let gcn = config(ModelKind::Gcn, 5);
            assert_same(&dataset, &TrainConfig { model: ModelConfig { hidden: 136, ..gcn.model }, ..gcn }, &ranks);
        }
    }
}

#[test]
fn pools_and_sequences_of_neighbors_are_fetched() {
    let dataset = planted("nodes=203");
    for aggregator in [Aggregator::Pool, Aggregator::Lstm] {
        let model = ModelConfig { kind: ModelKind::Sage, aggregator, hidden: 8, ..ModelConfig::default() };
        let config = TrainConfig { model, ..config(ModelKind::Sage, 5) };
        for (scheme, ranks, replication) in [(Scheme::OneD, 3, 1), (Scheme::OneAndHalfD, 4, 2), (Scheme::ThreeD, 8, 1)]
        {
            assert_same(&dataset, &config, &options(scheme, ranks, replication, Exchange::Auto));
        }
    }
}

/// Moments of a rank's own nodes would be far off: communities differ, and have different ranges of ids.
#[test]
fn batch_normalisation_takes_the_moments_of_all_nodes() {
    let dataset = planted("nodes=307");
    let stacks = [(ModelKind::Gcn, false), (ModelKind::Gcn, true), (ModelKind::Gin, false), (ModelKind::Gat, false)];
    for (kind, residual) in stacks {
        let model = ModelConfig { kind, residual, norm: NormKind::Batch, ..ModelConfig::default() };
        let config = TrainConfig { model, ..config(kind, 5) };
        for (scheme, ranks, replication) in GRIDS {
            assert_same(&dataset, &config, &options(scheme, ranks, replication, Exchange::Auto));
        }
    }
}

/// Embeddings are partitioned, and ranks share triples and users. Recommendations may differ by near ties.
fn assert_ranks_recommend_the_same(dataset: &Dataset, config: &TrainConfig, ranks: &RankOptions) {
    let (single, shared, what) = assert_same_losses(dataset, config, ranks);
    let scores = |outcome: &Outcome| outcome.runs[0].last.ranking.unwrap();
    let (a, b) = (scores(&single), scores(&shared));
    assert!((a.recall_at_20 - b.recall_at_20).abs() < 2e-3, "{what}: {b:?}, on one rank {a:?}");
    assert!((a.ndcg_at_20 - b.ndcg_at_20).abs() < 2e-3, "{what}: {b:?}, on one rank {a:?}");
}

#[test]
fn recommenders_train_on_every_plan_as_on_one_rank() {
    let dataset = tastes();
    for (scheme, ranks, replication) in GRIDS {
        let options = options(scheme, ranks, replication, Exchange::Auto);
        for batch_size in [Some(500), None] {
            let config = TrainConfig { batch_size, ..lightgcn(8) };
            assert_ranks_recommend_the_same(&dataset, &config, &options);
        }
    }
}

/// The last batch of an epoch has fewer triples than ranks, and most ranks hold no user.
#[test]
fn ranks_without_triples_or_users_take_part() {
    let train = Csr::new(3, 37, vec![0, 4, 8, 11], vec![0, 9, 20, 36, 1, 9, 21, 35, 2, 20, 30], None).unwrap();
    let test = Csr::new(3, 37, vec![0, 1, 1, 2], vec![5, 6], None).unwrap();
    let dataset = Dataset::of_interactions("few", Interactions::new(train, test).unwrap()).unwrap();
    let config = TrainConfig { batch_size: Some(9), ..lightgcn(5) };
    for (scheme, ranks, replication) in [(Scheme::OneD, 7, 1), (Scheme::OneD, 40, 1), (Scheme::OneAndHalfD, 8, 2)] {
        assert_ranks_recommend_the_same(&dataset, &config, &options(scheme, ranks, replication, Exchange::Auto));
    }
}

/// Checkpoints gather the rows of all ranks, and any number of ranks can partition them again.
#[test]
fn checkpoints_of_embeddings_fit_any_number_of_ranks() {
    let folders: [_; 2] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let train = |folder: &Path, epochs: u64, ranks: Option<RankOptions>| {
        let config = TrainConfig { patience: None, ..lightgcn(epochs) };
        let session =
            SessionOptions { checkpoints: Some(folder.to_owned()), resume: true, ..SessionOptions::default() };
        let mut observe = |_: Event<'_>| Control::Continue;
        match ranks {
            None => girih_trainer::train(&Cpu::new(), tastes(), &config, &session, &mut observe),
            Some(ranks) => TrainJob::new(tastes(), &config, &ranks, &session, &mut observe).on_threads(Cpu::new),
        }
        .unwrap();
        Checkpoint::load(&checkpoint_path(folder, 0)).unwrap()
    };
    let straight = train(folders[0].path(), 12, None);
    let on = |scheme, ranks, replication| Some(options(scheme, ranks, replication, Exchange::Auto));
    let steps = [on(Scheme::OneD, 3, 1), on(Scheme::OneAndHalfD, 4, 2), None, on(Scheme::TwoD, 4, 1)];
    let mut mixed = None;
    for (i, ranks) in steps.into_iter().enumerate() {
        mixed = Some(train(folders[1].path(), 3 * (i as u64 + 1), ranks));
    }
    let mixed = mixed.unwrap();
    assert_eq!((mixed.progress.epoch, mixed.progress.n_steps), (12, straight.progress.n_steps));
    let close = |what: &str, a: &Matrix, b: &Matrix| {
        assert_eq!((a.n_rows(), a.n_cols()), (b.n_rows(), b.n_cols()), "{what}");
        let largest = a.data().iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        for (a, b) in a.data().iter().zip(b.data()) {
            assert!((a - b).abs() <= 1e-4 * largest, "{what}: {b}, on one rank {a}");
        }
    };
    let name = "layer0.embedding";
    close("embeddings", &straight.params[name], &mixed.params[name]);
    close("best embeddings", &straight.best_params[name], &mixed.best_params[name]);
    close("first moments", &straight.moments[name].0, &mixed.moments[name].0);
    close("second moments", &straight.moments[name].1, &mixed.moments[name].1);
}

/// The transpose of a directed graph has its own blocks.
#[test]
fn directed_graphs_and_sparse_features_are_cut() {
    let mut dataset = with_bags_of_words(&planted("nodes=203"));
    let (mut rows, mut cols) = (Vec::new(), Vec::new());
    for v in 0..203u32 {
        for step in [1, 5, 17, 60] {
            rows.push(v);
            cols.push((v * v + step) % 203);
        }
    }
    dataset.graph = Coo::new(203, 203, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    for kind in [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat] {
        for (scheme, ranks, replication) in GRIDS {
            for exchange in [Exchange::Dense, Exchange::Rows] {
                assert_same(&dataset, &config(kind, 5), &options(scheme, ranks, replication, exchange));
            }
        }
    }
}

/// Features stored as bf16 are aggregated once, before training, and rounded once. Partial sums stay `f32`.
#[test]
fn aggregates_stored_as_bf16_are_rounded_once() {
    let dataset = planted("nodes=203");
    let config = TrainConfig { precision: Dtype::Bf16, ..with_input_dropout(config(ModelKind::Sgc, 5), 0.0) };
    let exact = on_one_rank(&dataset, &config).0;
    for (scheme, ranks, replication) in GRIDS {
        let found = on_ranks(&dataset, &config, &options(scheme, ranks, replication, Exchange::Auto)).0;
        for (a, b) in exact.iter().zip(found) {
            assert!((a - b).abs() <= 1e-3 * a, "{scheme}, {ranks} ranks: {b}, on one rank {a}");
        }
    }
}

#[test]
fn rounding_on_the_wire_is_small_and_alike_on_any_ranks() {
    let dataset = planted("nodes=307");
    for kind in ModelKind::classifiers().filter(|kind| !kind.reads_relations()) {
        let config = TrainConfig { eval_every: 2, ..config(kind, 2) };
        let on = |scheme, n, wire| {
            let ranks = RankOptions { wire, ..options(scheme, n, 1, Exchange::Auto) };
            let (losses, outcome) = on_ranks(&dataset, &config, &ranks);
            (losses[1], outcome.wire_error)
        };
        let (exact, none) = on(Scheme::OneD, 3, Dtype::F32);
        assert_eq!(none, None, "{kind:?}");
        let [two, four] = [(Scheme::OneD, 2), (Scheme::TwoD, 4)].map(|(scheme, n)| on(scheme, n, Dtype::Bf16));
        let (error, other) = (two.1.unwrap_or(0.0), four.1.unwrap_or(0.0));
        // Products before training are not rounded, and the MLP reads no rows of other ranks.
        if matches!(kind, ModelKind::Sgc | ModelKind::Mlp) {
            assert!((two.0 - exact).abs() < 1e-5 * exact && error == 0.0, "{kind:?}: {two:?}, exactly {exact}");
            continue;
        }
        assert!(two.0 != exact && (two.0 - exact).abs() < 5e-3 * exact, "{kind:?}: {two:?}, exactly {exact}");
        assert!((two.0 - four.0).abs() < 1e-3 * exact, "{kind:?}: {two:?} and {four:?}");
        assert!((1e-5..1e-2).contains(&error), "{kind:?}: {error}");
        assert!((error - other).abs() < 0.3 * error, "{kind:?}: {error} and {other}");
    }
}

/// More groups than replicas have panels, and as many ranks as nodes.
#[test]
fn ranks_without_work_take_part() {
    let dataset = planted("nodes=40");
    let config = config(ModelKind::Gcn, 3);
    assert_same(&dataset, &config, &options(Scheme::OneAndHalfD, 4, 4, Exchange::Auto));
    assert_same(&dataset, &config, &options(Scheme::OneD, 40, 1, Exchange::Auto));
}

#[test]
fn ranks_take_turns_at_scores_layer_by_layer() {
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![4, 3], ..BatchConfig::default() };
    for (nodes, kind, p) in [
        ("nodes=300", ModelKind::Sage, 3),
        ("nodes=300", ModelKind::Gat, 2),
        ("nodes=300", ModelKind::Gcn, 3),
        // More ranks than nodes in a part of the split, and than rounds need.
        ("nodes=40", ModelKind::Gcn, 17),
    ] {
        let dataset = planted(nodes);
        let by = |score_by| {
            let batch = BatchConfig { score_by: Some(score_by), ..batch.clone() };
            let config = TrainConfig { batch, batch_size: Some(50), ..config(kind, 3) };
            let ranks = options(Scheme::OneD, p, 1, Exchange::Auto);
            on_ranks(&dataset, &config, &ranks)
        };
        let ((expected, by_graph), (found, by_layers)) = (by(ScoreBy::Graph), by(ScoreBy::Layers));
        assert_eq!(found, expected, "{kind:?}, {nodes}: scores change no step");
        let (expected, found) = (by_graph.runs[0].last, by_layers.runs[0].last);
        let (wanted, loss) = (expected.test_loss.unwrap(), found.test_loss.unwrap());
        assert!((wanted - loss).abs() < 1e-5 * wanted, "{kind:?}, {nodes}: {loss} for {wanted}");
        let accuracy = |scores: &girih_trainer::Scores| scores.test_accuracy.unwrap();
        assert!((accuracy(&expected) - accuracy(&found)).abs() < 0.02, "{kind:?}, {nodes}");
        assert!(by_layers.test.is_some(), "{kind:?}, {nodes}: a report of the first rank");
    }
}

#[test]
fn unsupported_settings_of_ranks_are_refused() {
    let refusal = |config: &TrainConfig, ranks: usize| {
        let ranks = options(Scheme::OneD, ranks, 1, Exchange::Auto);
        let session = SessionOptions::default();
        let mut observe = |_: Event<'_>| Control::Continue;
        let job = TrainJob::new(planted("nodes=40"), config, &ranks, &session, &mut observe);
        job.on_threads(Cpu::new).unwrap_err().to_string()
    };
    let message = refusal(&config(ModelKind::Gcn, 2), 41);
    assert!(message.contains("40 nodes cannot be cut over 41 ranks"), "{message}");
    let message = refusal(&lightgcn(2), 2);
    assert!(message.contains("no interactions") && message.contains("another model"), "{message}");
}
