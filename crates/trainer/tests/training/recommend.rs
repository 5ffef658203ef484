//! Recommenders learn tastes, resume bit for bit, and refuse data that they cannot learn from.

mod ranking;
mod triples;

use std::fs;

use girih_compute::{Cpu, Dtype, Rates};
use girih_datasets::{Dataset, Interactions};
use girih_graph_format::{Coo, Csr, Duplicates};
use girih_random::Key;
use girih_trainer::{
    Checkpoint, DataSizes, ModelConfig, ModelKind, OptimizerConfig, Plan, TOP_K, TrainConfig, checkpoint_path,
    recommend,
};

use crate::{config, planted, train, train_into};

const USERS: usize = 240;
const ITEMS: usize = 200;
/// Number of tastes. Users and items each have one.
const TASTES: usize = 5;

/// Data of users who interact only with items of their own taste: twelve in training, four in the test.
pub(crate) fn tastes() -> Dataset {
    let mut parts = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for user in 0..USERS {
        let mut liked: Vec<u32> =
            (0..(ITEMS / TASTES) as u32).map(|i| i * TASTES as u32 + (user % TASTES) as u32).collect();
        Key::new(user as u64, u32::MAX).stream(0, 0).shuffle(&mut liked);
        for (at, &item) in liked[..16].iter().enumerate() {
            let (users, items) = &mut parts[usize::from(at >= 12)];
            users.push(user as u32);
            items.push(item);
        }
    }
    let [train, test] = parts
        .map(|(users, items)| Coo::new(USERS, ITEMS, users, items, None).unwrap().to_csr(Duplicates::Refuse).unwrap());
    Dataset::of_interactions("tastes", Interactions::new(train, test).unwrap()).unwrap()
}

pub(crate) fn lightgcn(epochs: u64) -> TrainConfig {
    let published = TrainConfig::for_model(ModelKind::LightGcn);
    TrainConfig {
        model: ModelConfig { hidden: 16, ..published.model },
        optimizer: OptimizerConfig { lr: 0.01, ..published.optimizer },
        epochs,
        eval_every: 2,
        batch_size: Some(500),
        ..published
    }
}

#[test]
fn a_batch_whose_loss_is_no_number_ends_the_run_with_its_epoch() {
    let steep = |lr| TrainConfig { optimizer: OptimizerConfig { lr, ..lightgcn(9).optimizer }, ..lightgcn(9) };
    let message = train(tastes(), &steep(1e30)).unwrap_err().to_string();
    let says_why = message.contains("training loss is") && message.contains("in epoch 1: give a lower --lr");
    assert!(says_why, "{message}");
}

#[test]
fn tastes_are_learnt() {
    let outcome = train(tastes(), &lightgcn(20)).unwrap();
    let run = &outcome.runs[0];
    let ranking = run.best.ranking.unwrap();
    // 20 of 28 unseen items of the user's taste are shown: random recall is 0.71 within the taste, and 0.1 overall.
    assert!(ranking.recall_at_20 > 0.6 && ranking.hits_at_20 > 0.9, "{ranking:?}");
    assert!((ranking.precision_at_20 - ranking.recall_at_20 * 4.0 / 20.0).abs() < 1e-12, "four test items each");
    assert!(run.train_loss < 0.3, "{}", run.train_loss);
    assert_eq!(outcome.test, None);
}

/// Training items are never recommended, and recommendations have no repeats.
#[test]
fn recommendations_are_new_to_their_user() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = train_into(folder.path(), tastes(), &lightgcn(4), None);
    let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    let found = recommend(&Cpu::new(), tastes(), &checkpoint).unwrap();
    assert_eq!(found.scores, outcome.runs[0].best, "the best parameters are those of the best epoch");
    assert_eq!((found.n_users, found.items.len()), (USERS, USERS * TOP_K));
    let interactions = tastes().interactions.unwrap();
    for (user, items) in found.items.chunks_exact(TOP_K).enumerate() {
        let mut distinct = items.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), TOP_K, "user {user}");
        assert!(items.iter().all(|item| !interactions.train().row(user).contains(item)), "user {user}");
    }
}

#[test]
fn patience_ends_a_run_at_its_best_recall() {
    let config = TrainConfig { patience: Some(6), ..lightgcn(2000) };
    let run = &train(tastes(), &config).unwrap().runs[0];
    assert!(run.epochs < 2000 && run.epochs == run.best_epoch + 6, "{run:?}");
    assert!(run.best.ranking.unwrap().recall_at_20 >= run.last.ranking.unwrap().recall_at_20);
}

#[test]
fn a_stopped_run_goes_on_where_it_was() {
    let config = TrainConfig { runs: 2, ..lightgcn(7) };
    let (straight, stopped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wanted = train_into(straight.path(), tastes(), &config, None);
    assert!(train_into(stopped.path(), tastes(), &config, Some(3)).stopped);
    let resumed = train_into(stopped.path(), tastes(), &config, None);
    assert_eq!(resumed.runs, wanted.runs);
    assert_ne!(wanted.runs[0].best, wanted.runs[1].best, "each run has draws of its own");
    for run in 0..2 {
        let read = |folder| fs::read(checkpoint_path(folder, run)).unwrap();
        assert!(read(straight.path()) == read(stopped.path()), "the checkpoints of run {run} differ");
    }
}

#[test]
fn one_two_and_three_threads_give_the_same_bits() {
    for precision in [Dtype::F32, Dtype::Bf16] {
        let state = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let config = TrainConfig { precision, ..lightgcn(2) };
            pool.install(|| train_into(folder.path(), tastes(), &config, None));
            fs::read(checkpoint_path(folder.path(), 0)).unwrap()
        };
        let alone = state(1);
        assert!(state(2) == alone && state(3) == alone, "{precision:?} depends on the number of threads");
    }
}

#[test]
fn models_and_data_must_fit() {
    let refusal = |dataset, config: &TrainConfig| train(dataset, config).unwrap_err().to_string();
    let message = refusal(tastes(), &config(ModelKind::Gcn, 2));
    assert!(message.contains("users and items") && message.contains("lightgcn"), "{message}");
    let message = refusal(planted("nodes=100"), &lightgcn(2));
    assert!(message.contains("no interactions") && message.contains("another model"), "{message}");
    let message = refusal(tastes(), &TrainConfig { batch_size: Some(10), ..config(ModelKind::Gcn, 2) });
    assert!(message.contains("batch_size"), "{message}");
}

#[test]
fn a_recommender_knows_its_own_users_only() {
    let folder = tempfile::tempdir().unwrap();
    train_into(folder.path(), tastes(), &lightgcn(1), None);
    let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    let train = Csr::new(2, 3, vec![0, 1, 2], vec![0, 1], None).unwrap();
    let interactions = Interactions::new(train, Csr::empty(2, 3).unwrap()).unwrap();
    let other = Dataset::of_interactions("other", interactions).unwrap();
    let message = recommend(&Cpu::new(), other, &checkpoint).unwrap_err().to_string();
    assert!(message.contains("240 users") && message.contains("2 users"), "{message}");
}

#[test]
fn plans_count_the_steps_of_an_epoch() {
    let rates = Rates { stream_bytes: 1e10, gather_bytes: 2e10, flops: 1e11 };
    let sizes = DataSizes::of(&tastes());
    let plan = |batch_size| Plan::new(&TrainConfig { batch_size, ..lightgcn(10) }, &sizes, rates).unwrap();
    let (few, many) = (plan(None), plan(Some(100)));
    assert!(many.epoch_seconds > 2.0 * few.epoch_seconds, "{few:?} {many:?}");
    assert!(few.peak_bytes > many.peak_bytes, "all triples at once take more memory");
    let nodes = (USERS + ITEMS) as u64;
    assert_eq!(few.parameter_bytes, 4 * nodes * 16 * 4, "embeddings, their gradient and two moments");
    let message = Plan::new(&lightgcn(1), &DataSizes::of(&planted("nodes=100")), rates).unwrap_err().to_string();
    assert!(message.contains("no users and items"), "{message}");
}
