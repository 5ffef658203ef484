//! Rows that ranks fetch and hand over, and the parameters and state that they end with.

use std::sync::Arc;
use std::time::Duration;

use girih_comm::threads;
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype};
use girih_datasets::{DataSource, Dataset, Interactions};
use girih_graph_format::{Coo, Duplicates, Matrix, Norm};
use girih_partition::{BlockPlan, Exchange, Halo, ProcessGrid, Scheme};
use girih_trainer::distributed::{RankOptions, Ranks};
use girih_trainer::testing::{BlockSource, PartitionedAdjacency, PartitionedData};
use girih_trainer::{
    Adjacency, Checkpoint, Control, ModelConfig, ModelKind, NormKind, OptimizerConfig, Pool, SessionOptions,
    TrainConfig, TrainError, checkpoint_path,
};

use super::small::{N, few, graph, looped, operand};

#[test]
fn neighbors_of_own_rows_are_fetched_from_who_holds_them() {
    for (scheme, p, r) in
        [(Scheme::OneD, 3, 1), (Scheme::OneAndHalfD, 4, 2), (Scheme::TwoD, 4, 1), (Scheme::ThreeD, 8, 1)]
    {
        let plan = Arc::new(BlockPlan::new(&ProcessGrid::new(scheme, p, r).unwrap(), N).unwrap());
        let adjacency = Adjacency::new(true, Norm::None);
        let halo = Halo::new(&plan, &looped(&graph(), adjacency));
        let source = Arc::new(DataSource::from(Dataset::new("small", graph(), None, None, Vec::new()).unwrap()));
        let fetched = threads::run(p, Duration::from_secs(30), |world| -> Result<_, TrainError> {
            let (cpu, mut pool) = (Cpu::new(), Pool::default());
            let ranks = Arc::new(Ranks::<Cpu>::new(Arc::clone(&plan), Box::new(world))?);
            let cut = PartitionedAdjacency::new(Arc::clone(&source), adjacency, &ranks, (Exchange::Auto, Dtype::F32))?;
            let pattern = cut.pattern(&cpu, &ranks)?;
            let ids: Vec<f32> = ranks.own().map(|node| node as f32).collect();
            let ids = cpu.upload(&Matrix::new(ids.len(), 1, ids)?, Dtype::F32)?;
            let fetched = cpu.download(&pattern.rows.fetch(&cpu, &mut pool, &ids, Dtype::F32)?)?;
            Ok((fetched.data().to_vec(), cpu.nnz(&pattern.matrix)))
        });
        let fetched = fetched.unwrap_or_else(|failure| panic!("{}", failure.message));
        for (rank, (fetched, nnz)) in fetched.into_iter().enumerate() {
            let wanted: Vec<f32> = halo.of(rank).rows.iter().map(|&node| node as f32).collect();
            let rows = looped(&graph(), adjacency).row_slice(plan.ranks[rank].own.clone());
            assert_eq!((fetched, nnz), (wanted, rows.nnz()), "{scheme:?}, rank {rank}");
        }
    }
}

/// Checkpoint of each rank of a partition after a few epochs; only some ranks have one.
fn checkpoints(
    dataset: &Dataset,
    config: &TrainConfig,
    (scheme, p, r): (Scheme, usize, usize),
) -> Vec<Option<Checkpoint>> {
    let grid = ProcessGrid::new(scheme, p, r).unwrap();
    let options = RankOptions::new(grid, Exchange::Auto, Duration::from_secs(30));
    let shared = PartitionedData::new(&Cpu::new(), dataset.clone(), &config.model, config, &options).unwrap();
    let of_rank = |world: Box<dyn girih_comm::Collective<Cpu>>| -> Result<_, TrainError> {
        let folder = tempfile::tempdir().unwrap();
        let session = SessionOptions { checkpoints: Some(folder.path().to_owned()), ..SessionOptions::default() };
        let ranks = shared.ranks(world)?;
        shared.train_all_runs(&Cpu::new(), &ranks, (config, &config.model), &session, &mut |_| Control::Continue)?;
        let path = checkpoint_path(folder.path(), 0);
        path.exists().then(|| Checkpoint::load(&path)).transpose()
    };
    threads::run(p, options.deadline, |world| of_rank(Box::new(world)))
        .unwrap_or_else(|failure| panic!("{}", failure.message))
}

#[test]
fn parameters_and_the_optimisers_state_are_the_same_on_all_ranks() {
    let nodes = few();
    let normalised = TrainConfig {
        model: ModelConfig { hidden: 9, norm: NormKind::Batch, ..ModelConfig::default() },
        epochs: 4,
        ..TrainConfig::default()
    };
    let pairs = (0..20u32).flat_map(|user| [(user, user), (user, user + 13), (user, user * user % 30)]);
    let (users, items): (Vec<u32>, Vec<u32>) = pairs.unzip();
    let train = Coo::new(20, 33, users, items, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let test = Coo::new(20, 33, (0..10).collect(), vec![31; 10], None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let interactions = Interactions::new(train, test).unwrap();
    let users_and_items = Dataset::of_interactions("few", interactions).unwrap();
    let published = TrainConfig::for_model(ModelKind::LightGcn);
    let recommender = TrainConfig {
        model: ModelConfig { hidden: 6, ..published.model },
        optimizer: OptimizerConfig { lr: 0.01, ..published.optimizer },
        epochs: 4,
        batch_size: Some(25),
        ..published
    };
    for partition in [(Scheme::OneD, 3, 1), (Scheme::OneAndHalfD, 6, 3), (Scheme::TwoD, 4, 1), (Scheme::ThreeD, 8, 1)] {
        for (dataset, config) in [(&nodes, &normalised), (&users_and_items, &recommender)] {
            let found = checkpoints(dataset, config, partition);
            let (first, others) = found.split_first().unwrap();
            let what = format!("{partition:?}: {:?}", config.model.kind);
            if let Some(embedding) = first.as_ref().unwrap().params.get("layer0.embedding") {
                assert_eq!(embedding.n_rows(), dataset.n_nodes(), "the rows of all ranks");
                assert!(others.iter().all(Option::is_none), "{what}: the first has them alone");
            } else {
                assert!(others.iter().all(|checkpoint| checkpoint == first), "{what}");
            }
        }
    }
}

#[test]
fn rows_are_handed_over_in_order_and_in_pieces() {
    for (scheme, p, r) in [(Scheme::OneD, 5, 1), (Scheme::OneAndHalfD, 6, 3), (Scheme::TwoD, 4, 1)] {
        let plan = Arc::new(BlockPlan::new(&ProcessGrid::new(scheme, p, r).unwrap(), N).unwrap());
        let handed = threads::run(p, Duration::from_secs(30), |world| -> Result<_, TrainError> {
            let ranks: Ranks<Cpu> = Ranks::new(Arc::clone(&plan), Box::new(world))?;
            let mut pieces: Vec<Matrix> = Vec::new();
            let own = operand().row_slice(ranks.own());
            ranks.hand_rows(&own, 4 * own.n_cols(), &mut |rows| pieces.push(rows.clone()))?;
            Ok((pieces, ranks.gather_on_first(&own)?))
        });
        let (mut handed, gathered): (Vec<_>, Vec<_>) = handed.unwrap().into_iter().unzip();
        let first = handed.remove(0);
        assert!(gathered[0].as_ref() == Some(&operand()) && gathered[1..].iter().all(Option::is_none), "{scheme}");
        assert!(first.iter().all(|rows| (1..=4).contains(&rows.n_rows())), "{scheme}");
        assert_eq!(
            first.iter().flat_map(|rows| rows.data().to_vec()).collect::<Vec<_>>(),
            operand().data(),
            "{scheme}"
        );
        assert!(handed.iter().all(Vec::is_empty), "the first rank takes all");
    }
}
