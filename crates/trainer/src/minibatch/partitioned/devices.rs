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
use girih_features::{ByTransport, FeatureStore, MiniBatchBackend, NeighborGraph, PatchOperand, PatchRowsOperand};
use girih_graph_format::NodeId;
use girih_sampling::{DrawKey, NeighborSampler};

use crate::TrainError;
use crate::minibatch::batches::{Drawn, SeedLists};
use crate::minibatch::device::{DeviceBatches, FeatureLoader};
use crate::tape::Pool;

/// Number of batches of a trial; the first is not timed.
pub const BATCHES: usize = 4;

/// Sampler and feature reader of a rank's device.
pub struct PatchDevices<B: Backend> {
    /// Graph that the device samples from.
    pub graph: Arc<dyn NeighborGraph<B>>,
    /// Rows of features.
    pub rows: Box<dyn FeatureStore<B>>,
    /// Number of columns of rows, and their type in batches.
    pub result: (usize, Dtype),
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

impl<B: Backend> PatchDevices<B> {
    /// Sampler and reader for each transport that the devices support. Every device has a patch of the graph, or the
    /// whole graph. All ranks call it together.
    ///
    /// # Errors
    /// When a rank fails, or the device's memory does not suffice.
    pub(super) fn all(
        backend: &B,
        graph: DrawnFrom<'_, B>,
        PatchFeatures { own, bounds, result }: PatchFeatures<'_, B>,
        by: &[GpuTransport],
    ) -> Result<ByTransport<Self>, TrainError>
    where
        B: MiniBatchBackend,
    {
        let rows = backend.remote_features(own, bounds, by)?;
        let graphs: Vec<Arc<dyn NeighborGraph<B>>> = match graph {
            DrawnFrom::Whole(graph) => vec![graph; rows.len()],
            DrawnFrom::Patches(patch) => {
                // Graphs only for the transports that can carry rows.
                let by: Vec<GpuTransport> = rows.iter().map(|(by, _)| *by).collect();
                backend.patch_graphs(patch, &by)?.into_iter().map(|(_, graph)| graph.into()).collect()
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
pub struct Trial<'t, B: Backend> {
    /// Device of the rank.
    pub backend: &'t B,
    /// World of all ranks.
    pub world: &'t dyn Collective<B>,
    /// Sampler of the batches.
    pub sampler: &'t NeighborSampler,
    /// Number of seeds of a batch, on all ranks.
    pub batch_size: usize,
    /// Node ids of the rank's patch.
    pub own: Range<NodeId>,
    /// Seed of the draws.
    pub seed: u64,
}

impl<B: Backend> Trial<'_, B> {
    /// Transport with the shortest batch time on the slowest rank. All ranks call it together, and choose the same.
    ///
    /// # Errors
    /// When a rank fails, or the device's memory does not suffice.
    pub fn fastest(
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
