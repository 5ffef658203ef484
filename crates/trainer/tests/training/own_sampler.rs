//! Samplers from outside: batches of theirs train as girih's do, wrong blocks are refused, and so is all that cannot
//! have them.

use girih_compute::{Backend, ComputeError, Cpu};
use girih_features::CacheShares;
use girih_graph_format::Csr;
use girih_partition::{Exchange, Scheme};
use girih_sampling::{Block, DrawKey, MiniBatch, NeighborSampler, NodeId, SampleError, Sampler};
use girih_trainer::distributed::{GraphPlacement, ModelJob, RankOptions, TrainJob};
use girih_trainer::{
    BatchConfig, BatchKind, BlockDraws, BuildModel, BuildSampler, CacheConfig, Control, Dims, Event, Model,
    ModelConfig, Outcome, ParamInit, SessionOptions, TaskKind, TrainConfig, TrainError, train_model,
};

use crate::{ModelKind, config, planted};

/// Change of the blocks that a sampler of girih drew.
type Change = fn(&mut Vec<Block>);

/// GCN of girih, with a sampler of its own if there is a change.
struct Changed(Option<Change>);

/// Neighbor sampler with a change.
struct ChangedSampler(NeighborSampler, Change);

/// GCN without dropout, whose masks would depend on the division into ranks.
fn network() -> ModelConfig {
    ModelConfig { dropout: 0.0, ..config(ModelKind::Gcn, 1).model }
}

impl<B: Backend> BuildModel<B> for Changed {
    fn config(&self) -> ModelConfig {
        ModelConfig { own: ModelConfig::from_outside("changed", ()).own, ..network() }
    }

    fn build(&self, dims: Dims, init: &mut ParamInit<'_, B>) -> Result<Box<dyn Model<B>>, ComputeError> {
        network().build(dims, init)
    }

    fn sampler(&self) -> Option<&dyn BuildSampler> {
        self.0.is_some().then_some(self as &dyn BuildSampler)
    }
}

impl BuildSampler for Changed {
    fn build_sampler(&self, draws: &BlockDraws<'_>) -> Result<Box<dyn Sampler>, SampleError> {
        let neighbors = NeighborSampler::new(draws.fan_out.clone(), draws.options)?;
        Ok(Box::new(ChangedSampler(neighbors, self.0.expect("asked only then"))))
    }
}

impl Sampler for ChangedSampler {
    fn sample_into(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        self.0.sample_into(graph, seeds, key, batch)?;
        self.1(&mut batch.blocks);
        Ok(())
    }
}

fn neighbor_batches() -> TrainConfig {
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![4, 3], ..BatchConfig::default() };
    TrainConfig { batch, batch_size: Some(25), epochs: 3, ..TrainConfig::default() }
}

fn train(model: &Changed, config: &TrainConfig, weighted: bool) -> Result<Outcome, TrainError> {
    let mut dataset = planted("nodes=200");
    if weighted {
        let weights = vec![2.0; dataset.graph.nnz()];
        dataset.graph = dataset.graph.with_values(Some(weights.into())).unwrap();
    }
    let observe = &mut |_: Event<'_>| Control::Continue;
    train_model(&Cpu::new(), dataset, model, config, &SessionOptions::default(), observe)
}

fn on_ranks(model: &Changed, layout: GraphPlacement) -> Result<Outcome, TrainError> {
    let ranks = RankOptions { layout, ..crate::distributed::options(Scheme::OneD, 3, 1, Exchange::Auto) };
    let (config, options) = (neighbor_batches(), SessionOptions::default());
    let observe = &mut |_: Event<'_>| Control::Continue;
    TrainJob::new(planted("nodes=200"), &config, &ranks, &options, observe).on_threads_with(model, Cpu::new)
}

#[test]
fn a_sampler_from_outside_trains_to_the_bits_of_the_one_that_it_calls() {
    for weighted in [false, true] {
        let [inside, outside] =
            [Changed(None), Changed(Some(|_| ()))].map(|model| train(&model, &neighbor_batches(), weighted).unwrap());
        assert_eq!(inside.runs[0].train_loss, outside.runs[0].train_loss);
        assert_eq!(inside.runs[0].best, outside.runs[0].best);
    }
}

/// One that draws no edges at all trains otherwise, so that its blocks are those that are read.
#[test]
fn its_blocks_are_the_ones_that_the_model_reads() {
    let without_edges: Change = |blocks| {
        for block in blocks {
            block.indices.clear();
            block.indptr.fill(0);
        }
    };
    let [some, none] = [|_: &mut Vec<Block>| (), without_edges]
        .map(|change: Change| train(&Changed(Some(change)), &neighbor_batches(), false).unwrap().runs[0].train_loss);
    assert_ne!(some, none);
}

#[test]
fn ranks_with_all_data_take_their_part_of_its_batches() {
    let model = Changed(Some(|_| ()));
    let one = train(&model, &neighbor_batches(), false).unwrap().runs[0].train_loss;
    let three = on_ranks(&model, GraphPlacement::Replicated).unwrap().runs[0].train_loss;
    assert!((one - three).abs() < 1e-4 * one, "{one} on one rank, {three} on three");
}

#[test]
fn wrong_blocks_are_refused_by_what_is_wrong() {
    let cases: [(Change, bool, &str); 5] = [
        (|blocks| drop(blocks.pop()), false, "1 blocks for 2 layers"),
        (|blocks| blocks[1].nodes.swap(0, 1), false, "list the next block's nodes"),
        (|blocks| blocks.iter_mut().for_each(|block| block.nodes.swap(0, 1)), false, "list the seeds"),
        (|blocks| blocks[0].indices[0] = NodeId::MAX, false, "layer 0 that are no block"),
        (|blocks| blocks[0].edge_ids.clear(), true, "no `edge_ids` for layer 0"),
    ];
    for (change, weighted, told) in cases {
        let refused = train(&Changed(Some(change)), &neighbor_batches(), weighted).unwrap_err().to_string();
        assert!(refused.contains("own sampler") && refused.contains(told), "{told}: {refused}");
    }
}

#[test]
fn all_that_cannot_have_it_is_refused_by_reason() {
    let model = Changed(Some(|_| ()));
    let of_kind = |kind| TrainConfig { batch: BatchConfig { kind, ..BatchConfig::default() }, ..neighbor_batches() };
    let links = TrainConfig { task: TaskKind::Links, ..neighbor_batches() };
    let half = Some(CacheShares { every_gpu: 0.5, one_gpu: 0.0 });
    let cached = TrainConfig { tiers: CacheConfig { topology: half, ..CacheConfig::default() }, ..neighbor_batches() };
    for (refused, told) in [
        (train(&model, &of_kind(BatchKind::Layer), false), "--batch layer samples by another rule"),
        (train(&model, &of_kind(BatchKind::Saint), false), "--batch saint samples by another rule"),
        (train(&model, &links, false), "--task links"),
        (train(&model, &cached, false), "caches are for GPUs"),
        (on_ranks(&model, GraphPlacement::Patches), "needs the whole graph on each rank"),
        (on_ranks(&model, GraphPlacement::SplitFeatures), "needs the whole graph on each rank"),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("changed brings a sampler of its own") && refused.contains(told), "{refused}");
    }
    assert!(train(&model, &TrainConfig { epochs: 2, ..TrainConfig::default() }, false).is_ok(), "full batches");
}
