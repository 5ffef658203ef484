//! Trained models give equal results on several ranks and on one.

use girih_compute::{Cpu, Dtype};
use girih_datasets::{Dataset, Features};
use girih_graph_format::Matrix;
use girih_partition::{Exchange, Scheme};
use girih_trainer::distributed::{ApplyJob, RankJob, RankOptions, RecommendJob, TrainJob};
use girih_trainer::{
    BatchConfig, BatchKind, Checkpoint, Control, Event, LinkConfig, ModelKind, SessionOptions, TaskKind, TrainConfig,
    apply, checkpoint_path, recommend,
};

use crate::distributed::{GRIDS, options};
use crate::recommend::{lightgcn, tastes};
use crate::{config, planted, train_into};

fn trained(dataset: &Dataset, config: &TrainConfig) -> Checkpoint {
    let folder = tempfile::tempdir().unwrap();
    train_into(folder.path(), dataset.clone(), config, None);
    Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap()
}

#[test]
fn classifiers_say_the_same_on_every_plan() {
    let dataset = planted("nodes=203");
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![4, 3], ..BatchConfig::default() };
    let sampled = TrainConfig { batch, batch_size: Some(50), ..config(ModelKind::Sage, 3) };
    let codes = TrainConfig { codec: Some("topk:4".parse().unwrap()), ..config(ModelKind::Gcn, 3) };
    for config in [config(ModelKind::Gcn, 5), config(ModelKind::Gat, 3), sampled, codes] {
        let checkpoint = trained(&dataset, &config);
        let (scores, report, logits) = apply(&Cpu::new(), dataset.clone(), &checkpoint).unwrap();
        for (scheme, ranks, replication) in GRIDS {
            let ranks = options(scheme, ranks, replication, Exchange::Auto);
            let mut handed: Vec<Matrix> = Vec::new();
            let mut take = |rows: &Matrix| handed.push(rows.clone());
            let job = ApplyJob::new(dataset.clone(), &checkpoint, &ranks).handing_logits(&mut take);
            let found = job.on_threads(Cpu::new).unwrap();
            assert_eq!(found.0.test_accuracy, scores.test_accuracy, "{ranks:?}");
            assert_eq!(found.1.f1, report.f1, "{ranks:?}");
            assert_eq!(handed.iter().map(Matrix::n_rows).sum::<usize>(), 203, "{ranks:?}");
            let values = handed.iter().flat_map(Matrix::data);
            for (at, (a, b)) in logits.data().iter().zip(values).enumerate() {
                assert!((a - b).abs() < 1e-4 * a.abs().max(1.0), "{ranks:?}: logit {at} is {b}, on one rank {a}");
            }
        }
    }
}

#[test]
fn the_error_of_rounding_is_that_of_the_logits() {
    let (dataset, config, folder) = (planted("nodes=203"), config(ModelKind::Gat, 3), tempfile::tempdir().unwrap());
    let exact = options(Scheme::OneD, 3, 1, Exchange::Auto);
    let rounded = RankOptions { wire: Dtype::Bf16, ..exact };
    let session = SessionOptions { checkpoints: Some(folder.path().to_owned()), ..SessionOptions::default() };
    let mut observe = |_: Event<'_>| Control::Continue;
    let job = TrainJob::new(dataset.clone(), &config, &rounded, &session, &mut observe);
    let said = job.on_threads(Cpu::new).unwrap().wire_error.unwrap();

    let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    let [exact, rounded] = [exact, rounded].map(|ranks| {
        let mut logits: Vec<f64> = Vec::new();
        let mut take = |rows: &Matrix| logits.extend(rows.data().iter().map(|&x| f64::from(x)));
        ApplyJob::new(dataset.clone(), &checkpoint, &ranks).handing_logits(&mut take).on_threads(Cpu::new).unwrap();
        logits
    });
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let error = norm(&mut exact.iter().zip(&rounded).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied());
    assert!((said / error - 1.0).abs() < 1e-6, "{said} instead of {error}");
}

#[test]
fn recommenders_rank_the_same_items() {
    let checkpoint = trained(&tastes(), &lightgcn(6));
    let one = recommend(&Cpu::new(), tastes(), &checkpoint).unwrap();
    for (scheme, ranks, replication) in GRIDS {
        let ranks = options(scheme, ranks, replication, Exchange::Auto);
        let found = RecommendJob::new(tastes(), &checkpoint, &ranks).on_threads(Cpu::new).unwrap();
        assert_eq!((found.n_users, found.items.len()), (one.n_users, one.items.len()));
        // Near ties may swap places.
        let n_same = found.items.iter().zip(&one.items).filter(|(a, b)| a == b).count();
        assert!(n_same * 100 > 98 * one.items.len(), "{ranks:?}: {n_same} of {}", one.items.len());
    }
}

#[test]
fn checkpoints_that_ranks_cannot_apply_are_refused() {
    let checkpoint = trained(&planted("nodes=60"), &config(ModelKind::Gcn, 1));
    let refusal = |data: Dataset, checkpoint: &Checkpoint, ranks: &RankOptions| {
        ApplyJob::new(data, checkpoint, ranks).on_threads(Cpu::new).unwrap_err().to_string()
    };
    let two = options(Scheme::OneD, 2, 1, Exchange::Auto);
    let mut other = planted("nodes=60");
    other.features = Some(Features::Dense(Matrix::new(60, 47, vec![0.5; 60 * 47]).unwrap()));
    let message = refusal(other, &checkpoint, &two);
    assert!(message.contains("47 features") && message.contains("48 features"), "{message}");
    let links = TrainConfig { task: TaskKind::Links, links: LinkConfig::default(), ..config(ModelKind::Gcn, 1) };
    let of_links = trained(&planted("nodes=60"), &links);
    assert!(refusal(planted("nodes=60"), &of_links, &two).contains("--task links"));
    let job = ApplyJob::new(planted("nodes=60"), &checkpoint, &two);
    let message = job.on_devices(&[Cpu::new()], |_, _| unreachable!("refused before")).unwrap_err().to_string();
    assert!(message.contains("1 devices are there for a plan of 2"), "{message}");
}
