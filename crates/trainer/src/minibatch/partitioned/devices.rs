//! [`PatchDevices`]: samplers and feature readers of devices, on the patches of all ranks. The graph may be whole.
//!
//! Owners can sample and send rows on request (the collective sampling primitive of Cai et al., DSP, PPoPP 2023,
//! section 5). Or kernels read the memory of other devices in place. Batches are the same either way. Where both are
//! possible, [`Trial`] times a few batches.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use girih_comm::{Collective, GpuTransport, Payload};
use girih_compute::{Backend, Dtype, Shape};
use girih_features::{FeatureStore, NeighborGraph, PatchOperand, PatchRowsOperand};
use girih_graph_format::NodeId;
use girih_sampling::{DrawKey, NeighborSampler};

use crate::TrainError;
use crate::minibatch::batches::{Drawn, SeedLists};
use crate::minibatch::device::{DeviceBatches, FeatureLoader};
use crate::tape::Pool;

/// Number of batches of a trial; the first is not timed.
const BATCHES: usize = 4;

/// Sampler and feature reader of a rank's device.
pub(super) struct PatchDevices<B: Backend> {
    pub(super) graph: Arc<dyn NeighborGraph<B>>,
    pub(super) rows: Box<dyn FeatureStore<B>>,
    /// Number of columns of rows, and their type in batches.
    pub(super) result: (usize, Dtype),
}

/// Feature rows of the patches of all ranks, as devices read them.
pub(super) struct PatchFeatures<'r, B: Backend> {
    /// Rows of this rank's patch.
    pub(super) own: PatchRowsOperand<'r, B>,
    /// First node of each patch, and the number of nodes.
    pub(super) bounds: &'r [NodeId],
    /// Number of columns of rows, and their type in batches.
    pub(super) result: (usize, Dtype),
}

/// One value for each transport.
pub(super) type ByTransport<T> = Vec<(GpuTransport, T)>;

impl<B: Backend> PatchDevices<B> {
    /// Sampler and reader for each transport that the devices support. Every device has a patch of the graph, or the
    /// whole graph. All ranks call it together.
    ///
    /// # Errors
    /// When a rank fails, or the device's memory does not suffice.
    pub(super) fn all(
        backend: &B,
        world: &dyn Collective<B>,
        graph: DrawnFrom<'_, B>,
        PatchFeatures { own, bounds, result }: PatchFeatures<'_, B>,
        by: &[GpuTransport],
    ) -> Result<ByTransport<Self>, TrainError> {
        let rows = world.remote_features(backend, own, bounds, by)?;
        let graphs: Vec<Arc<dyn NeighborGraph<B>>> = match graph {
            DrawnFrom::Whole(graph) => vec![graph; rows.len()],
            DrawnFrom::Patches(patch) => {
                // Graphs only for the transports that can carry rows.
                let by: Vec<GpuTransport> = rows.iter().map(|(by, _)| *by).collect();
                world.patch_graphs(backend, patch, &by)?.into_iter().map(|(_, graph)| graph.into()).collect()
            }
        };
        let both = rows.into_iter().zip(graphs);
        Ok(both.map(|((by, rows), graph)| (by, Self { graph, rows, result })).collect())
    }

    /// Batches of at most `batch_size` seeds; `None` where devices do not sample as the sampler does. `summed` says
    /// which rows first layers read, see [`summed`](crate::minibatch::policy::summed).
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(super) fn batches<'a>(
        &'a self,
        backend: &'a B,
        (sampler, batch_size): (&NeighborSampler, usize),
        (summed, is_ahead): (Option<bool>, bool),
    ) -> Result<Option<DeviceBatches<'a, B>>, TrainError> {
        let source = self.graph.source(backend, sampler, batch_size)?;
        let (n_columns, precision) = self.result;
        let loader = FeatureLoader::new(backend, (&*self.rows, n_columns, precision)).for_sums(summed);
        Ok(source.map(|source| DeviceBatches::new(source, Some(loader), is_ahead)))
    }
}

/// Graph that devices sample from.
pub(super) enum DrawnFrom<'a, B: Backend> {
    /// Each device has the whole graph.
    Whole(Arc<dyn NeighborGraph<B>>),
    /// Each device has its rank's patch.
    Patches(&'a PatchOperand<'a>),
}

/// Trial batches that compare transports.
pub(super) struct Trial<'t, B: Backend> {
    pub(super) backend: &'t B,
    pub(super) world: &'t dyn Collective<B>,
    pub(super) sampler: &'t NeighborSampler,
    /// Number of seeds of a batch, on all ranks.
    pub(super) batch_size: usize,
    /// Node ids of the rank's patch.
    pub(super) own: Range<NodeId>,
    /// Seed of the draws.
    pub(super) seed: u64,
}

impl<B: Backend> Trial<'_, B> {
    /// Transport with the shortest batch time on the slowest rank. All ranks call it together, and choose the same.
    ///
    /// # Errors
    /// When a rank fails, or the device's memory does not suffice.
    pub(super) fn fastest(
        &self,
        mut all: ByTransport<PatchDevices<B>>,
    ) -> Result<Option<(GpuTransport, PatchDevices<B>)>, TrainError> {
        if all.len() < 2 {
            return Ok(all.pop());
        }
        let mine: Vec<f64> = all.iter().map(|(_, devices)| self.seconds(devices)).collect::<Result<_, TrainError>>()?;
        let theirs = self.world.all_gather_bytes(bytemuck::cast_slice(&mine))?;
        let mut slowest = vec![0.0; all.len()];
        for (rank, message) in theirs.iter().enumerate() {
            let of_rank = Payload::new(message, rank, "seconds of batches").exactly::<f64>(slowest.len())?;
            slowest.iter_mut().zip(of_rank).for_each(|(slowest, seconds)| *slowest = seconds.max(*slowest));
        }
        for ((by, _), seconds) in all.iter().zip(&slowest) {
            tracing::debug!("batches of patches by {by}: {:.2} ms each", 1e3 * seconds);
        }
        let least = (0..all.len()).min_by(|&a, &b| slowest[a].total_cmp(&slowest[b])).expect("there are several");
        let chosen = all.swap_remove(least);
        tracing::info!("batches of patches come by {}", chosen.0);
        Ok(Some(chosen))
    }

    /// Seconds of a batch, without a concurrent step; zero where devices do not sample.
    fn seconds(&self, devices: &PatchDevices<B>) -> Result<f64, TrainError> {
        let Some(mut batches) = devices.batches(self.backend, (self.sampler, self.batch_size), (None, false))? else {
            return Ok(0.0);
        };
        let (mut pool, mut least) = (Pool::resizing(), f64::INFINITY);
        for at in 0..BATCHES {
            let start = Instant::now();
            let _batch = batches.next(self, at, &mut pool)?;
            self.wait()?;
            if at > 0 {
                least = least.min(start.elapsed().as_secs_f64());
            }
        }
        Ok(least)
    }

    /// Waits until the device has finished all launched work.
    fn wait(&self) -> Result<(), TrainError> {
        let last = self.backend.zeros(Shape::new(1, 1), Dtype::F32)?;
        self.backend.download(&last)?;
        Ok(())
    }
}

impl<B: Backend> SeedLists for Trial<'_, B> {
    fn n_batches(&self) -> usize {
        BATCHES
    }

    /// The rank's share of a batch, spread over its patch.
    fn seeds(&self, at: usize) -> Drawn<'_> {
        let n_own = self.own.len();
        let n = (self.batch_size / self.world.size()).max(1).min(n_own);
        // Evenly spaced, with an offset that grows from batch to batch.
        let place = |i: usize| self.own.start + ((i * n_own + at * n_own / BATCHES) / n) as NodeId;
        let mine: Vec<NodeId> = (0..n).map(place).collect();
        let n_all = self.batch_size;
        Drawn { mine: Cow::Owned(mine), first: self.own.start, n_all, key: DrawKey::new(self.seed, 0, at as u32) }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use girih_comm::threads;
    use girih_compute::prelude::*;
    use girih_compute::{ComputeError, Cpu, SparseOperand};
    use girih_features::{NeighborBatch, NeighborBlock, NeighborSource};
    use girih_graph_format::{Csr, Norm};
    use girih_sampling::NeighborOptions;
    use proptest::prelude::*;

    use super::*;

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
        fn gather(
            &self,
            _: &Cpu,
            _: &<Cpu as Memory>::Ids,
            _: &mut <Cpu as Memory>::Matrix,
        ) -> Result<(), ComputeError> {
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
}
