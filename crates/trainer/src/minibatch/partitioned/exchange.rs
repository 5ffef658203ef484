//! [`Exchanged`]: a rank's share of each batch, from its own rows and those that other ranks send.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use girih_collective_sampling::{CollectiveError, RankGraph, RankRows};
use girih_compress::CompressedFeatures;
use girih_compute::Backend;
use girih_datasets::Features;
use girih_graph_format::{Matrix, NodeId};
use girih_sampling::{DrawKey, LoaderOptions, MiniBatch as Sampled, Sampler};

use super::PatchData;
use super::devices::PatchDevices;
use crate::TrainError;
use crate::config::TrainConfig;
use crate::minibatch::device::DeviceBatches;
use crate::minibatch::host_batch::{BatchRows, PatchSource};
use crate::tape::EncodedInput;

/// A rank's rows, and the connection to those of others.
pub(crate) struct Exchanged<'h, B: Backend> {
    pub(super) held: &'h PatchData<B>,
    /// Ids of the nodes of the rank's patch.
    pub(super) own: Range<NodeId>,
    /// `None` where each rank has the whole graph.
    pub(super) graph: Option<Mutex<RankGraph<'h, B>>>,
    /// Rows of features.
    pub(super) rows: Mutex<RankRows<'h, B>>,
    /// Sampler and reader of the device; `None` where the host makes batches.
    pub(super) on_device: Option<PatchDevices<B>>,
}

impl<B: Backend> Exchanged<'_, B> {
    /// Batches that the device samples; `None` where it does not support these settings.
    pub(super) fn batches_of_device<'a>(
        &'a self,
        backend: &'a B,
        config: &TrainConfig,
    ) -> Result<Option<DeviceBatches<'a, B>>, TrainError> {
        let of_batches = (&self.held.sampler, self.held.options.batch_size);
        let is_ahead = config.batch.prefetch > 0;
        let batches = |devices: &'a PatchDevices<B>| devices.batches(backend, of_batches, (self.held.sums, is_ahead));
        let batches = self.on_device.as_ref().map_or(Ok(None), batches)?;
        if batches.is_none() && backend.has_own_memory() {
            tracing::debug!(
                "CPU threads sample the batches of patches: the GPU cannot sample with these settings, or cannot read these features"
            );
        }
        Ok(batches)
    }
}

impl<B: Backend> PatchSource for Exchanged<'_, B> {
    fn own(&self) -> Range<NodeId> {
        self.own.clone()
    }

    fn options(&self) -> LoaderOptions {
        self.held.options
    }

    fn sample(&self, seeds: &[NodeId], key: DrawKey) -> Result<(Sampled, Option<Vec<f32>>), TrainError> {
        let (PatchData { sampler, neighborhoods, .. }, mut batch) = (self.held, Sampled::default());
        let Some(graph) = &self.graph else {
            sampler.sample_into(neighborhoods.graph(), seeds, key, &mut batch)?;
            return Ok((batch, None));
        };
        let mut graph = graph.lock().unwrap_or_else(PoisonError::into_inner);
        sampler.sample_from(&mut *graph, seeds, key, &mut batch)?;
        if !neighborhoods.needs_edge_ids() {
            return Ok((batch, None));
        }
        let edge_ids: Vec<u64> = batch.blocks.iter().flat_map(|block| &block.edge_ids).copied().collect();
        Ok((batch, Some(graph.values(&edge_ids)?)))
    }

    fn load(&self, batch: &Sampled) -> Result<BatchRows, TrainError> {
        let (mut rows, mut bytes) = (self.rows.lock().unwrap_or_else(PoisonError::into_inner), Vec::new());
        rows.gather(batch.inputs(), &mut bytes)?;
        self.held.read(bytes)
    }
}

impl<B: Backend> PatchData<B> {
    /// Rows of features from their bytes.
    fn read(&self, bytes: Vec<u8>) -> Result<BatchRows, TrainError> {
        Ok(match &self.features {
            Features::Dense(own) => {
                let values: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
                BatchRows::Dense(Matrix::new(values.len() / own.n_cols().max(1), own.n_cols(), values)?)
            }
            Features::Compressed(own) => BatchRows::Encoded(self.encoded(own, bytes)?),
            Features::Sparse(_) => unreachable!("refused before"),
        })
    }

    /// Compressed rows of features from their codes.
    fn encoded(&self, own: &CompressedFeatures, codes: Vec<u8>) -> Result<EncodedInput, TrainError> {
        let rows = own.of_codes(codes).map_err(|error| TrainError::invalid(error.to_string()))?;
        Ok(EncodedInput::new(Arc::new(rows), self.precision))
    }
}

impl From<CollectiveError> for TrainError {
    fn from(error: CollectiveError) -> Self {
        match error {
            CollectiveError::Comm(error) => error.into(),
            CollectiveError::Sample(error) => error.into(),
            error => Self::invalid(error.to_string()),
        }
    }
}
