//! [`PatchDevices`]: the patches of all ranks as their devices draw from them and read their rows.
//!
//! Owners are asked and send what they draw and read (the collective sampling primitive of Cai et al., DSP, PPoPP 2023, section 5), or
//! kernels read the memory of the other devices in place. Batches are the same either way; where both can be had, [`Trial`] times a few.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use girih_comm::{CardTransport, Collective};
use girih_compute::{Backend, Dtype, NeighborGraph, PatchOperand, PatchRowsOperand, RowReader, Shape};
use girih_graph_format::NodeId;
use girih_sampling::{DrawKey, NeighborSampler};

use super::batches::{Drawn, SeedLists};
use super::device::{DeviceBatches, Loader};
use crate::TrainError;
use crate::distributed::numbers;
use crate::tape::Pool;

/// Batches of a trial, the first of which is not timed.
const BATCHES: usize = 4;

/// See the module.
pub(super) struct PatchDevices<B: Backend> {
    by: CardTransport,
    graph: Box<dyn NeighborGraph<B>>,
    rows: Box<dyn RowReader<B>>,
    n_columns: usize,
    precision: Dtype,
}

impl<B: Backend> PatchDevices<B> {
    /// One for each transport by which devices can do it; `own` are the rows of this rank's patch, their columns, and how batches store
    /// them. All ranks call it together.
    ///
    /// # Errors
    /// When a rank fails, or the device's memory does not suffice.
    pub(super) fn all(
        backend: &B,
        world: &dyn Collective<B>,
        patch: &PatchOperand<'_>,
        (own, n_columns, precision): (PatchRowsOperand<'_, B>, usize, Dtype),
        by: &[CardTransport],
    ) -> Result<Vec<Self>, TrainError> {
        let rows = world.patch_rows(backend, own, patch.bounds, by)?;
        // Graphs for those by which rows come.
        let by: Vec<CardTransport> = rows.iter().map(|(by, _)| *by).collect();
        let graphs = world.patch_graphs(backend, patch, &by)?;
        let both = rows.into_iter().zip(graphs);
        Ok(both.map(|((by, rows), (_, graph))| Self { by, graph, rows, n_columns, precision }).collect())
    }

    /// What makes batches of at most so many seeds; `None` where devices do not draw as the sampler does.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(super) fn batches<'a>(
        &'a self,
        backend: &'a B,
        (sampler, batch_size): (&NeighborSampler, usize),
        is_ahead: bool,
    ) -> Result<Option<DeviceBatches<'a, B>>, TrainError> {
        let source = self.graph.source(backend, sampler, batch_size)?;
        let loader = Loader::new(backend, (&*self.rows, self.n_columns, self.precision));
        Ok(source.map(|source| DeviceBatches::new(source, Some(loader), is_ahead)))
    }
}

/// Some batches, by which transports are compared.
pub(super) struct Trial<'t, B: Backend> {
    pub(super) backend: &'t B,
    pub(super) world: &'t dyn Collective<B>,
    pub(super) sampler: &'t NeighborSampler,
    /// Seeds of a batch, on all ranks.
    pub(super) batch_size: usize,
    /// The nodes of the rank's patch.
    pub(super) own: Range<NodeId>,
    /// Names draws.
    pub(super) seed: u64,
}

impl<B: Backend> Trial<'_, B> {
    /// The one that makes batches in least time, on the rank that takes longest; all ranks call it together, and choose the same.
    ///
    /// # Errors
    /// When a rank fails, or the device's memory does not suffice.
    pub(super) fn fastest(&self, mut all: Vec<PatchDevices<B>>) -> Result<Option<PatchDevices<B>>, TrainError> {
        if all.len() < 2 {
            return Ok(all.pop());
        }
        let mine: Vec<f64> = all.iter().map(|devices| self.seconds(devices)).collect::<Result<_, TrainError>>()?;
        let theirs = self.world.all_gather_bytes(bytemuck::cast_slice(&mine))?;
        let mut slowest = vec![0.0; all.len()];
        for message in &theirs {
            let of_rank = numbers(message).map(f64::from_le_bytes);
            slowest.iter_mut().zip(of_rank).for_each(|(slowest, seconds)| *slowest = seconds.max(*slowest));
        }
        for (devices, seconds) in all.iter().zip(&slowest) {
            tracing::debug!("batches of patches by {}: {:.2} ms each", devices.by, 1e3 * seconds);
        }
        let least = (0..all.len()).min_by(|&a, &b| slowest[a].total_cmp(&slowest[b])).expect("there are several");
        let chosen = all.swap_remove(least);
        tracing::info!("batches of patches come by {}", chosen.by);
        Ok(Some(chosen))
    }

    /// Seconds that a batch takes, without a step beside it; none where devices do not draw.
    fn seconds(&self, devices: &PatchDevices<B>) -> Result<f64, TrainError> {
        let Some(mut batches) = devices.batches(self.backend, (self.sampler, self.batch_size), false)? else {
            return Ok(0.0);
        };
        let (mut pool, mut least) = (Pool::resizing(), f64::INFINITY);
        for at in 0..BATCHES {
            let start = Instant::now();
            let batch = batches.next(self, at, &mut pool)?;
            self.wait()?;
            if at > 0 {
                least = least.min(start.elapsed().as_secs_f64());
            }
            drop(batch);
        }
        Ok(least)
    }

    /// Waits until the device has done all that it was asked for.
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

    /// The rank's share of a batch, from all over its patch.
    fn seeds(&self, at: usize) -> Drawn<'_> {
        let n_own = self.own.len();
        let n = (self.batch_size / self.world.size()).clamp(1, n_own.max(1)).min(n_own);
        let place =
            |i: usize| self.own.start + ((i * n_own + at * n_own / BATCHES) / n.max(1) % n_own.max(1)) as NodeId;
        let mut mine: Vec<NodeId> = (0..n).map(place).collect();
        mine.sort_unstable();
        mine.dedup();
        let n_all = self.batch_size;
        Drawn { mine: Cow::Owned(mine), first: self.own.start, n_all, key: DrawKey::new(self.seed, 0, at as u32) }
    }
}
