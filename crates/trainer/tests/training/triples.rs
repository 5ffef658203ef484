//! Triples: ranks equal the obvious loop, draws follow the documented rule, decoders learn, runs resume bit for bit, and
//! data that does not fit is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use girih_compute::Cpu;
use girih_datasets::{Dataset, FeaturesFrom, NameList, Triple, Triples, TypedData};
use girih_graph_format::{Coo, Duplicates, EdgeType, Matrix, NodeType, Schema, TypedGraph};
use girih_random::{Key, purpose};
use girih_trainer::testing::TripleEpochs;
use girih_trainer::{
    Checkpoint, ChosenBy, DecoderKind, Distance, EntityRanks, Known, ModelConfig, ModelKind, OptimizerConfig, Query,
    TaskKind, TrainConfig, TripleConfig, checkpoint_path, embeddings, filtered_rank, score_triples,
};
use proptest::prelude::*;

use crate::{planted, train, train_into};

const ENTITIES: u32 = 48;
/// Entities of equal remainder are alike.
const GROUPS: u32 = 6;

/// A knowledge graph with two relations: entities of a group are alike, and lead to the first entity of the next one.
/// The last entity is in a test triple alone.
pub(crate) fn statements() -> Dataset {
    let mut all: Vec<Triple> = Vec::new();
    for head in 0..ENTITIES {
        let alike = (0..ENTITIES).filter(|tail| tail % GROUPS == head % GROUPS && *tail != head);
        all.extend(alike.map(|tail| [head, 0, tail]));
        all.push([head, 1, (head + 1) % GROUPS]);
    }
    Key::new(0, u32::MAX).stream(0, 0).shuffle(&mut all);
    let (val, rest) = all.split_at(40);
    let (test, train) = rest.split_at(40);
    let test = test.iter().copied().chain([[ENTITIES, 1, 0]]).collect();
    of_triples(ENTITIES as usize + 1, ["alike", "leads"], [train.to_vec(), val.to_vec(), test])
}

/// Data set of the parts of a knowledge graph.
fn of_triples(n_nodes: usize, names: [&str; 2], [train, val, test]: [Vec<Triple>; 3]) -> Dataset {
    let relation = |number: u32| {
        let edges: Vec<&Triple> = train.iter().filter(|triple| triple[1] == number).collect();
        let ends = |end: usize| edges.iter().map(|triple| triple[end]).collect::<Vec<_>>();
        Coo::new(n_nodes, n_nodes, ends(2), ends(0), None).unwrap().to_csr(Duplicates::Refuse).unwrap()
    };
    let edge_type = |name: &str| EdgeType { relation: name.to_owned(), source: 0, destination: 0, reverse_of: None };
    let node_type = NodeType { name: "entity".to_owned(), n_nodes };
    let schema = Schema::new(vec![node_type], names.iter().map(|name| edge_type(name)).collect()).unwrap();
    let typed = TypedGraph::new(schema, vec![relation(0), relation(1)]).unwrap();
    let relations: NameList = names.into_iter().collect();
    let dataset = Dataset::of_typed("statements", TypedData::of_graph(typed)).unwrap();
    let dataset = Dataset { triples: Some(Arc::new(Triples { relations, train, val, test })), ..dataset };
    dataset.validate().unwrap();
    dataset
}

pub(crate) fn triples(decoder: DecoderKind, epochs: u64) -> TrainConfig {
    let usual = TrainConfig::for_task(TaskKind::Triples, ModelKind::Embedding);
    TrainConfig {
        triples: TripleConfig { decoder, width: 24, ..usual.triples.clone() },
        optimizer: OptimizerConfig { lr: 0.02, ..usual.optimizer.clone() },
        epochs,
        batch_size: Some(50),
        eval_every: 2,
        ..usual
    }
}

/// Rank by its definition: the mean of the best and the worst place of the target among entities that are not known.
fn obvious_rank(scores: &[f32], target: usize, known: &BTreeSet<u32>) -> f64 {
    let others = (0..scores.len()).filter(|&other| other != target && !known.contains(&(other as u32)));
    let others: Vec<f32> = others.map(|other| scores[other]).collect();
    let best = 1 + others.iter().filter(|&&score| score > scores[target]).count();
    let worst = 1 + others.iter().filter(|&&score| score >= scores[target]).count();
    (best + worst) as f64 / 2.0
}

proptest! {
    #[test]
    fn filtered_ranks_are_those_of_the_obvious_loop(
        scores in prop::collection::vec((-3i8..4).prop_map(f32::from), 1..40),
        at in any::<prop::sample::Index>(),
        known in prop::collection::btree_set(0u32..40, 0..20),
    ) {
        let (target, n) = (at.index(scores.len()), scores.len() as u32);
        let known: BTreeSet<u32> = known.into_iter().filter(|&entity| entity < n).collect();
        prop_assert_eq!(filtered_rank(&scores, target, known.iter().copied()), obvious_rank(&scores, target, &known));
    }

    #[test]
    fn known_answers_are_those_of_all_triples(
        parts in prop::collection::vec(prop::collection::vec((0u32..6, 0u32..2, 0u32..6), 0..20), 3..4)
    ) {
        let [train, val, test] = [0, 1, 2].map(|at: usize| parts[at].iter().map(|&(h, r, t)| [h, r, t]).collect::<Vec<_>>());
        let relations = ["a", "b"].into_iter().collect();
        let all: Vec<Triple> = [&train, &val, &test].into_iter().flatten().copied().collect();
        let known = Known::of(&Triples { relations, train, val, test });
        for asked in Query::all(&all, 2) {
            let matching = |&[head, relation, tail]: &Triple| match asked.relation {
                r if r < 2 => ((head, relation) == (asked.entity, r)).then_some(tail),
                r => ((tail, relation) == (asked.entity, r - 2)).then_some(head),
            };
            let expected: BTreeSet<u32> = all.iter().filter_map(matching).collect();
            let found: Vec<u32> = known.answers(asked).collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_constant_score_has_the_mean_rank_of_all_places_and_no_number_is_the_worst() {
    for n in [1usize, 2, 7, 5000] {
        let ranks: Vec<f64> = (0..n.min(9)).map(|target| filtered_rank(&vec![0.5; n], target, [])).collect();
        assert_eq!(EntityRanks::of(&ranks).unwrap().mean_rank, (n as f64 + 1.0) / 2.0);
    }
    let nan = f32::NAN;
    assert_eq!(filtered_rank(&[nan, 1.0, 2.0], 0, []), 3.0);
    assert_eq!(filtered_rank(&[nan, 1.0, nan], 1, []), 3.0);
    assert_eq!(filtered_rank(&[nan, 1.0, nan], 1, [0, 1]), 2.0);
    assert_eq!(EntityRanks::of(&[]), None);
    let found = EntityRanks::of(&[1.0, 2.0, 3.5, 20.0]).unwrap();
    assert_eq!((found.hits_at_1, found.hits_at_3, found.hits_at_10), (0.25, 0.5, 0.75));
    assert!((found.mrr - (1.0 + 0.5 + 1.0 / 3.5 + 0.05) / 4.0).abs() < 1e-12);
}

/// Score of a triple's query by the decoder's formula, in double precision.
fn formula(config: &TripleConfig, entity: &[f32], relation: &[f32], answer: &[f32]) -> f64 {
    let wide = |row: &[f32]| row.iter().map(|&value| f64::from(value)).collect::<Vec<_>>();
    let (a, r, b) = (wide(entity), wide(relation), wide(answer));
    let half = a.len() / 2;
    let turned = |i: usize, (c, d): (f64, f64)| (a[i] * c - a[half + i] * d, a[i] * d + a[half + i] * c);
    match (config.decoder, config.distance) {
        (DecoderKind::DistMult, _) => (0..a.len()).map(|i| a[i] * r[i] * b[i]).sum(),
        (DecoderKind::TransE, Distance::L1) => -(0..a.len()).map(|i| (a[i] + r[i] - b[i]).abs()).sum::<f64>(),
        (DecoderKind::TransE, Distance::L2) => -(0..a.len()).map(|i| (a[i] + r[i] - b[i]).powi(2)).sum::<f64>(),
        (DecoderKind::ComplEx, _) => {
            let part = |i: usize| {
                let (real, imaginary) = turned(i, (r[i], r[half + i]));
                real * b[i] + imaginary * b[half + i]
            };
            (0..half).map(part).sum()
        }
        (DecoderKind::RotatE, _) => {
            let part = |i: usize| {
                let (real, imaginary) = turned(i, (r[i].cos(), r[i].sin()));
                (real - b[i]).powi(2) + (imaginary - b[half + i]).powi(2)
            };
            -(0..half).map(part).sum::<f64>()
        }
    }
}

/// Scores of a part by loops over all entities, from the rows of a checkpoint.
fn obvious_scores(dataset: &Dataset, checkpoint: &Checkpoint, part: &[Triple]) -> EntityRanks {
    obvious_scores_of(&checkpoint.best_params["layer0.entities"], dataset, checkpoint, part)
}

/// As [`obvious_scores`], for given rows of entities.
fn obvious_scores_of(entities: &Matrix, dataset: &Dataset, checkpoint: &Checkpoint, part: &[Triple]) -> EntityRanks {
    let (relations, config) = (&checkpoint.best_params["layer0.relations"], &checkpoint.progress.config.triples);
    let lists = dataset.triples.as_ref().unwrap();
    let known = Known::of(lists);
    let rank = |asked: Query| {
        let (entity, relation) = (entities.row(asked.entity as usize), relations.row(asked.relation as usize));
        let score = |v: usize| formula(config, entity, relation, entities.row(v)) as f32;
        let scores: Vec<f32> = (0..entities.n_rows()).map(score).collect();
        obvious_rank(&scores, asked.answer as usize, &known.answers(asked).collect())
    };
    let ranks: Vec<f64> = Query::all(part, lists.n_relations()).into_iter().map(rank).collect();
    EntityRanks::of(&ranks).unwrap()
}

#[test]
fn decoders_learn_and_are_scored_as_by_loops_over_all_entities() {
    let by_l1 = (DecoderKind::TransE, Distance::L1);
    for (decoder, distance) in DecoderKind::ALL.map(|decoder| (decoder, Distance::L2)).into_iter().chain([by_l1]) {
        for negatives in if distance == Distance::L1 { vec![12] } else { vec![0, 12] } {
            let base = triples(decoder, 24);
            let settings = TripleConfig { negatives, distance, ..base.triples.clone() };
            let config = TrainConfig { triples: settings, ..base };
            let folder = tempfile::tempdir().unwrap();
            let outcome = train_into(folder.path(), statements(), &config, None);
            let run = &outcome.runs[0];
            let scores = run.best.triples.unwrap();
            assert_eq!((run.chosen_by, scores.unseen_entities), (ChosenBy::ValMrr, 1));
            // TransE ranks an entity before those that are like it. Random ranks have 0.09.
            assert!(scores.val.unwrap().mrr > 0.4, "{decoder:?}, {negatives} negatives: {scores:?}");
            let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
            let (data, lists) = (statements(), statements().triples.unwrap());
            for (found, part) in [(scores.val, &lists.val), (scores.test, &lists.test)] {
                let (found, expected) = (found.unwrap(), obvious_scores(&data, &checkpoint, part));
                assert!((found.mrr - expected.mrr).abs() < 1e-3, "{decoder:?}: {found:?} instead of {expected:?}");
            }
            assert_eq!(score_triples(&Cpu::new(), statements(), &checkpoint).unwrap(), run.best);
            let rows = embeddings(&Cpu::new(), statements(), &checkpoint).unwrap();
            assert_eq!((rows.n_rows(), rows.n_cols()), (ENTITIES as usize + 1, 24));
        }
    }
}

/// Rows of entities that networks of relations compute are ranked by loops over all of them as reported.
#[test]
fn networks_of_relations_make_rows_of_entities() {
    for kind in [ModelKind::Rgcn, ModelKind::Hsage, ModelKind::Rgat, ModelKind::Hgt] {
        let usual = TrainConfig::for_task(TaskKind::Triples, kind);
        let base = triples(DecoderKind::DistMult, 16);
        let model = ModelConfig { hidden: 8, dropout: 0.1, ..usual.model };
        let config = TrainConfig { model, ..base };
        let folder = tempfile::tempdir().unwrap();
        let run = train_into(folder.path(), statements(), &config, None).runs.remove(0);
        let scores = run.best.triples.unwrap();
        assert!(scores.val.unwrap().mrr > 0.5, "{kind:?}: {scores:?}");
        let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
        let rows = embeddings(&Cpu::new(), statements(), &checkpoint).unwrap();
        let lists = statements().triples.unwrap();
        let expected = obvious_scores_of(&rows, &statements(), &checkpoint, &lists.test);
        assert!((scores.test.unwrap().mrr - expected.mrr).abs() < 1e-3, "{kind:?}: {scores:?}, {expected:?}");
        assert_eq!(score_triples(&Cpu::new(), statements(), &checkpoint).unwrap(), run.best);
    }
}

/// Learned rows of entities are what a network of relations starts from, if the configuration asks for them.
#[test]
fn networks_of_relations_start_from_learned_rows() {
    let usual = TrainConfig::for_task(TaskKind::Triples, ModelKind::Rgcn);
    let model = ModelConfig { hidden: 8, blocks: 4, ..usual.model };
    let features_from = Some(FeaturesFrom::Embedding(8));
    let config = TrainConfig { model, features_from, ..triples(DecoderKind::TransE, 12) };
    let folder = tempfile::tempdir().unwrap();
    let run = train_into(folder.path(), statements(), &config, None).runs.remove(0);
    assert!(run.best.triples.unwrap().val.unwrap().mrr > 0.3, "{:?}", run.best);
    let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    assert_eq!(checkpoint.params["layer1.blocks"].n_cols(), 8 * 24 / 4);
    assert_eq!(score_triples(&Cpu::new(), statements(), &checkpoint).unwrap(), run.best);
}

#[test]
fn a_stopped_run_goes_on_where_it_was() {
    let base = triples(DecoderKind::ComplEx, 7);
    let model = ModelConfig { dropout: 0.2, ..base.model.clone() };
    let optimizer = OptimizerConfig { weight_decay: 1e-3, ..base.optimizer.clone() };
    let few = TripleConfig { negatives: 5, ..base.triples.clone() };
    let config = TrainConfig { runs: 2, model, optimizer, triples: few, ..base };
    let (straight, stopped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wanted = train_into(straight.path(), statements(), &config, None);
    assert!(train_into(stopped.path(), statements(), &config, Some(3)).stopped);
    let resumed = train_into(stopped.path(), statements(), &config, None);
    assert_eq!(resumed.runs, wanted.runs);
    assert_ne!(wanted.runs[0].best, wanted.runs[1].best, "each run has draws of its own");
    for run in 0..2 {
        let read = |folder: &std::path::Path| std::fs::read(checkpoint_path(folder, run)).unwrap();
        assert_eq!(read(straight.path()), read(stopped.path()), "run {run}");
    }
}

#[test]
fn batches_hold_each_triple_once_and_draw_by_the_documented_rule() {
    let lists = statements().triples.unwrap();
    let (key, n_entities) = (Key::new(3, purpose::KNOWLEDGE).child(0).child(4), ENTITIES as usize + 1);
    let epoch = TripleEpochs::new(&lists.train, (n_entities, 2), key, Some(64));
    let mut order: Vec<usize> = (0..lists.train.len()).collect();
    key.child(0).stream(0, 0).shuffle(&mut order);
    let mut seen = 0;
    for batch in 0..epoch.n_batches() {
        let list = epoch.batch(batch, 3);
        let n = epoch.n_triples(batch);
        assert_eq!((list.queries.len(), list.candidates.len()), (2 * n, 8 * n));
        for (at, (query, candidates)) in list.queries.iter().zip(list.candidates.chunks(4)).enumerate() {
            let (number, side) = (order[seen + at % n], at / n);
            assert_eq!(*query, Query::of_triple(lists.train[number], 2)[side]);
            let mut stream = key.child(1).stream(number as u64, (side as u64) << 32);
            let mut expected = vec![query.answer];
            while expected.len() < 4 {
                let other = stream.below(n_entities as u64) as u32;
                expected.extend(Some(other).filter(|&other| other != query.answer));
            }
            assert_eq!(candidates, expected);
        }
        assert!(epoch.batch(batch, 0).candidates.is_empty());
        seen += n;
    }
    assert_eq!(seen, lists.train.len());
    let whole = TripleEpochs::new(&lists.train, (n_entities, 2), key, None);
    assert_eq!((whole.n_batches(), whole.n_triples(0)), (1, lists.train.len()));
}

#[test]
fn a_penalty_shrinks_rows_and_data_without_validation_triples_takes_the_last_epoch() {
    let mut lists = (*statements().triples.unwrap()).clone();
    lists.val.clear();
    let data = || Dataset { triples: Some(Arc::new(lists.clone())), ..statements() };
    let norm = |weight_decay: f64| {
        let base = triples(DecoderKind::DistMult, 5);
        let optimizer = OptimizerConfig { weight_decay, ..base.optimizer.clone() };
        let (config, folder) = (TrainConfig { optimizer, ..base }, tempfile::tempdir().unwrap());
        let outcome = train_into(folder.path(), data(), &config, None);
        assert_eq!((outcome.runs[0].chosen_by, outcome.runs[0].best_epoch), (ChosenBy::LastEpoch, 5));
        let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
        checkpoint.params["layer0.entities"].data().iter().map(|value| value * value).sum::<f32>()
    };
    assert!(norm(10.0) < 0.5 * norm(0.0));
}

#[test]
fn data_and_settings_that_do_not_fit_are_refused() {
    let base = || triples(DecoderKind::DistMult, 1);
    let with = |change: fn(&mut TrainConfig)| {
        let mut config = base();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    };
    assert!(
        with(|c| c.triples = TripleConfig { decoder: DecoderKind::ComplEx, width: 7, ..TripleConfig::default() })
            .contains("even")
    );
    assert!(with(|c| c.triples.width = 0).contains("triples.width"));
    assert!(with(|c| c.triples.negatives = 1 << 20).contains("triples.negatives"));
    assert!(with(|c| c.triples.distance = Distance::L1).contains("transe alone"));
    let by_l1 = TripleConfig { decoder: DecoderKind::TransE, distance: Distance::L1, ..base().triples };
    let message = TrainConfig { triples: by_l1, ..base() }.validate().unwrap_err().to_string();
    assert!(message.contains("triples.negatives") && message.contains("l1"), "{message}");
    assert!(with(|c| c.model.layers = 3).contains("`layers`"));
    assert!(with(|c| c.model.hidden = 3).contains("`hidden`"));
    assert!(with(|c| c.model.input_dropout = Some(0.1)).contains("`input_dropout`"));
    assert!(with(|c| c.model.kind = ModelKind::Gcn).contains("--model gcn"));
    assert!(with(|c| c.task = TaskKind::Nodes).contains("triples"));
    let message = train(planted("nodes=40"), &base()).unwrap_err().to_string();
    assert!(message.contains("no triples") && message.contains("train.txt"), "{message}");
    let message = train(statements(), &TrainConfig::default()).unwrap_err().to_string();
    assert!(message.contains("--task triples"), "{message}");
    let message = train(of_triples(1, ["a", "b"], [vec![[0, 0, 0]], vec![], vec![]]), &base()).unwrap_err().to_string();
    assert!(message.contains("two entities"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    train_into(folder.path(), statements(), &base(), None);
    let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    let mut lists = (*statements().triples.unwrap()).clone();
    lists.test.pop();
    let other = Dataset { triples: Some(Arc::new(lists)), ..statements() };
    let message = score_triples(&Cpu::new(), other, &checkpoint).unwrap_err().to_string();
    assert!(message.contains("give the data that it was trained on"), "{message}");
}
