//! Ranks that hold patches choose the fastest transport together, and read rows of each other's hosts.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use girih_collective_sampling::SpareReplies;
use girih_comm::{Collective, GpuTransport, threads};
use girih_compute::prelude::*;
use girih_compute::{ComputeError, Cpu, Dtype, SparseOperand};
use girih_datasets::Features;
use girih_features::{
    FeatureStore, FetchRows, NeighborBatch, NeighborBlock, NeighborGraph, NeighborSource, Pending, PendingRows,
};
use girih_graph_format::{Csr, Matrix, NodeId, Norm};
use girih_partition::Patches;
use girih_sampling::{DrawKey, NeighborOptions, NeighborSampler};
use girih_trainer::TrainError;
use girih_trainer::testing::{BATCHES, PatchDevices, RowsOfRanks, SeedLists, Trial};
use proptest::prelude::*;

/// Batches without rows that each take this time; `None` where devices do not sample.
#[derive(Clone, Copy)]
struct Slow(Option<Duration>);

struct Batches<'b>(&'b Cpu, Duration);

impl NeighborGraph<Cpu> for Slow {
    fn source<'a>(
        &'a self,
        cpu: &'a Cpu,
        _: &NeighborSampler,
        _: usize,
    ) -> Result<Option<Box<dyn NeighborSource<Cpu> + 'a>>, ComputeError> {
        Ok(self.0.map(|each| Box::new(Batches(cpu, each)) as _))
    }
}

impl NeighborSource<Cpu> for Batches<'_> {
    fn request(&mut self, seeds: &[NodeId], _: DrawKey) -> Result<(), ComputeError> {
        assert!(seeds.is_sorted_by(|a, b| a < b), "no seed is listed twice: {seeds:?}");
        Ok(())
    }

    fn take(&mut self) -> Result<NeighborBatch<Cpu>, ComputeError> {
        sleep(self.1);
        let csr = Csr::new(0, 0, vec![0], vec![], None).expect("an empty matrix");
        let operand = SparseOperand { csr: &csr, scales: csr.scales(Norm::None), symmetric: false, names: None };
        let rows = self.0.upload_sparse(&operand)?;
        let blocks = vec![NeighborBlock { rows, n_destinations: 0, destinations: None }];
        Ok(NeighborBatch { blocks, inputs: Some(self.0.upload_ids(&[])?), n_inputs: 0 })
    }
}

struct NoRows;

impl FeatureStore<Cpu> for NoRows {
    fn gather_async<'s>(
        &'s self,
        _: &Cpu,
        _: &<Cpu as Memory>::Ids,
        _: Option<(&<Cpu as Memory>::Ids, &<Cpu as Memory>::Matrix)>,
        _: &mut <Cpu as Memory>::Matrix,
    ) -> Result<Pending<'s>, ComputeError> {
        Ok(Box::new(Self))
    }
}

impl PendingRows for NoRows {
    fn wait(self: Box<Self>) -> Result<(), ComputeError> {
        Ok(())
    }
}

fn devices(by: GpuTransport, graph: Slow) -> (GpuTransport, PatchDevices<Cpu>) {
    (by, PatchDevices { graph: Arc::new(graph), rows: Box::new(NoRows), result: (3, Dtype::F32) })
}

/// Choice of each of two ranks; `millis[rank]` are the milliseconds of a batch by each transport.
fn choices(millis: [[Option<u64>; 2]; 2]) -> Vec<Option<GpuTransport>> {
    let outcome = threads::run(2, Duration::from_secs(30), |world| -> Result<_, TrainError> {
        let (cpu, rank) = (Cpu::new(), Collective::<Cpu>::rank(&world));
        let slow = millis[rank].map(|millis| Slow(millis.map(Duration::from_millis)));
        let all = GpuTransport::ALL.into_iter().zip(slow).map(|(by, graph)| devices(by, graph)).collect();
        let sampler = NeighborSampler::new("2".parse().expect("a fan-out"), NeighborOptions::default())?;
        let own = [0..7, 7..20][rank].clone();
        let trial = Trial { backend: &cpu, world: &world, sampler: &sampler, batch_size: 8, own, seed: 1 };
        Ok(trial.fastest(all)?.map(|(by, _)| by))
    });
    outcome.unwrap_or_else(|failure| panic!("{}", failure.message))
}

#[test]
fn all_ranks_choose_what_is_fastest_for_the_slowest_of_them() {
    const NCCL: Option<GpuTransport> = Some(GpuTransport::Nccl);
    const PEER: Option<GpuTransport> = Some(GpuTransport::Peer);
    assert_eq!(choices([[Some(20), Some(1)], [Some(20), Some(1)]]), [PEER; 2]);
    // The second rank is fast by the transport that is slowest for the first.
    assert_eq!(choices([[Some(15), Some(60)], [Some(15), Some(1)]]), [NCCL; 2]);
    assert_eq!(choices([[None, None], [None, None]]), [NCCL; 2], "the host draws, whichever it is");
}

#[test]
fn a_single_way_is_taken_without_a_trial() {
    let outcome = threads::run(1, Duration::from_secs(30), |world| -> Result<_, TrainError> {
        let cpu = Cpu::new();
        let sampler = NeighborSampler::new("2".parse().expect("a fan-out"), NeighborOptions::default())?;
        let trial = Trial { backend: &cpu, world: &world, sampler: &sampler, batch_size: 8, own: 0..9, seed: 1 };
        let hours = Slow(Some(Duration::from_secs(9999)));
        let alone = trial.fastest(vec![devices(GpuTransport::Peer, hours)])?.map(|(by, _)| by);
        Ok((alone, trial.fastest(Vec::new())?.is_none()))
    });
    assert_eq!(outcome.unwrap_or_else(|failure| panic!("{}", failure.message)), [(Some(GpuTransport::Peer), true)]);
}

proptest! {
    /// Seeds of a trial are distinct nodes of the patch, and as many as a rank's share has.
    #[test]
    fn seeds_of_a_trial_are_of_the_patch(first in 0..50u32, n_own in 0..200u32, batch_size in 1..300usize, at in 0..BATCHES) {
        let outcome = threads::run(1, Duration::from_secs(30), |world| -> Result<_, TrainError> {
            let sampler = NeighborSampler::new("2".parse().expect("a fan-out"), NeighborOptions::default())?;
            let own = first..first + n_own;
            let trial = Trial { backend: &Cpu::new(), world: &world, sampler: &sampler, batch_size, own, seed: 1 };
            Ok(trial.seeds(at).mine.into_owned())
        });
        let [seeds] = &outcome.unwrap_or_else(|failure| panic!("{}", failure.message))[..] else { panic!("a rank") };
        prop_assert_eq!(seeds.len(), batch_size.min(n_own as usize));
        prop_assert!(seeds.is_sorted_by(|a, b| a < b) && seeds.iter().all(|seed| (first..first + n_own).contains(seed)));
    }
}

#[test]
fn rows_come_from_the_hosts_that_have_them() {
    let value = |row: usize, column: usize| (row * 10 + column) as f32;
    let rows = |nodes: std::ops::Range<usize>| {
        let values: Vec<f32> = nodes.clone().flat_map(|row| (0..3).map(move |column| value(row, column))).collect();
        Matrix::new(nodes.len(), 3, values).expect("as many values")
    };
    let outcome = threads::run(3, Duration::from_secs(30), |world| -> Result<_, TrainError> {
        let world: Arc<dyn Collective<Cpu>> = Arc::new(world);
        let (rank, patches) = (world.rank(), Patches::equal(20, 3).expect("patches"));
        let own = patches.range(rank);
        let own = Features::Dense(rows(own.start as usize..own.end as usize));
        let mut fetch = RowsOfRanks { world, patches, own, spare: SpareReplies::default() };
        // A rank may request no rows, or nodes of any rank in any order.
        let lists: [&[NodeId]; 3] = [&[19, 0, 7, 8], &[], &[12, 12, 1]];
        for round in 0..3 {
            let list = lists[(rank + round) % 3];
            let found = fetch.fetch(list)?;
            for (at, &node) in list.iter().enumerate() {
                let expected = [0, 1, 2].map(|column| value(node as usize, column));
                assert_eq!(found.row(at), bytemuck::cast_slice::<f32, u8>(&expected));
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
}
