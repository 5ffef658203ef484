//! [`DeviceSampler`]: neighbor sampling on a device.

use std::sync::Arc;

use girih_compute::ComputeError;
use girih_graph_format::{Csr, NodeId};
use girih_sampling::{Columns, DrawKey, Draws, NeighborOptions, NeighborSampler, Neighbors};
use rayon::prelude::*;

use super::batch::{DeviceBatch, HopTiles};
use super::bias::DeviceBias;
use super::capacities::{Bounds, edges_of_nodes};
use super::launch::{Kernels, Launches};
use super::patches::{OwnerMap, PatchDraws};
use super::places::Places;
use super::repeat::Identity;
use super::{BatchSizes, Capacities, DeviceTopology, OPERATION};
use crate::Cuda;
use crate::abi::sampling as arguments;

/// [`NeighborSampler`] on a device: it yields the same batches, to the bit, on every device.
///
/// A draw costs as much as on the host: O(fan-out) for any degree, and O(fan-out²) for fan-outs of 32 and more. Local
/// ids are ranks of nodes among the bits of a set, so that new nodes ascend and nothing is hashed. If new nodes are
/// wanted [in the order of edges](girih_sampling::relabel::NewNodes::FirstSeen), ids come from a hash table. The
/// relabelling method of the host's sampler makes no difference.
///
/// [`presample`](Self::presample) bounds the memory of batches by the sizes of some of them. Before it, batches have
/// memory for the largest one.
pub struct DeviceSampler {
    topology: Arc<DeviceTopology>,
    hops: Vec<Neighbors>,
    options: NeighborOptions,
    bias: Option<DeviceBias>,
    /// Collective draws, for ranks that ask each other.
    patches: Option<PatchDraws>,
    kernels: Kernels,
    identity: Identity,
    places: Places,
    /// Whether places are empty; false after a launch failed.
    are_empty: bool,
    capacities: Capacities,
    largest: Capacities,
}

impl DeviceSampler {
    /// Creates a sampler for batches of at most `batch_size` seeds on the graph `topology`; `graph` is the same graph
    /// on the host.
    ///
    /// # Errors
    /// When the sampler does what devices do not: LABOR; when it has weights of another graph; when batches have no
    /// seeds, the memory of the device does not suffice, or it fails.
    pub fn new(
        cuda: &Cuda,
        topology: Arc<DeviceTopology>,
        graph: &Csr,
        sampler: &NeighborSampler,
        batch_size: usize,
    ) -> Result<Self, ComputeError> {
        let upload = |bias| DeviceBias::upload(cuda, &topology, graph, bias);
        let bias = sampler.bias().map(upload).transpose()?;
        let degrees = || (0..graph.n_rows()).into_par_iter().map(|row| graph.degree(row) as u64).collect();
        let edges_of_nodes = |n| edges_of_nodes(graph.nnz() as u64, n, degrees);
        Self::assemble(cuda, topology, (bias, None), &edges_of_nodes, (sampler, batch_size))
    }

    /// Creates a sampler for batches of at most `batch_size` seeds on a graph of which every rank has a patch. With
    /// `owners`, the `topology` is that patch. All ranks then sample a batch together, with one key, each for its own
    /// seeds. Batches have memory for the largest one, because no rank may sample again while others go on. Without
    /// `owners`, it reads all patches in place.
    ///
    /// # Errors
    /// When the sampler does what ranks with patches do not: LABOR, draws for a whole layer, weights, places of
    /// edges; when batches have no seeds, the memory of the device does not suffice, or it fails.
    pub(crate) fn of_patches(
        cuda: &Cuda,
        topology: Arc<DeviceTopology>,
        owners: Option<Arc<OwnerMap>>,
        degrees: &[u32],
        (sampler, batch_size): (&NeighborSampler, usize),
    ) -> Result<Self, ComputeError> {
        check_options_of_patches(sampler.options(), sampler.bias().is_some())?;
        let all = || degrees.par_iter().map(|&degree| u64::from(degree)).collect();
        let n_edges = topology.n_edges() as u64;
        let edges_of_nodes = |n| edges_of_nodes(n_edges, n, all);
        let draws = |owners| PatchDraws::new(cuda, owners, sampler.fan_out().hops());
        let patches = owners.map(draws).transpose()?;
        Self::assemble(cuda, topology, (None, patches), &edges_of_nodes, (sampler, batch_size))
    }

    fn assemble(
        cuda: &Cuda,
        topology: Arc<DeviceTopology>,
        (bias, patches): (Option<DeviceBias>, Option<PatchDraws>),
        edges_of_nodes: &dyn Fn(u64) -> u64,
        (sampler, batch_size): (&NeighborSampler, usize),
    ) -> Result<Self, ComputeError> {
        let options = sampler.options();
        check_options(options, batch_size)?;
        let hops = sampler.fan_out().hops().to_vec();
        let kernels = Kernels::new(cuda, &hops, options, (bias.is_some(), topology.is_on_host()))?;
        let largest = Capacities::largest(Bounds {
            n_nodes: topology.n_nodes() as u64,
            n_edges: topology.n_edges() as u64,
            edges_of_nodes,
            batch_size: batch_size as u64,
            hops: &hops,
            draws: options.draws,
            replace: options.replace,
            last_is_global: options.inputs == Columns::Global,
        });
        let places = Places::new(cuda, topology.n_nodes(), &largest, options.new_nodes)?;
        let capacities = largest.clone();
        Ok(Self {
            topology,
            hops,
            options,
            bias,
            patches,
            kernels,
            identity: Identity::default(),
            places,
            are_empty: false,
            capacities,
            largest,
        })
    }

    /// Capacities of batches, for which memory is allocated.
    #[must_use]
    pub fn capacities(&self) -> &Capacities {
        &self.capacities
    }

    /// Upper bound of the capacities of all batches.
    #[must_use]
    pub fn largest(&self) -> &Capacities {
        &self.largest
    }

    /// Samples some batches, about a dozen, and from then on allocates 3 % more than the largest of them needs.
    /// Larger batches are [completed](Self::complete) in memory for the largest one.
    ///
    /// # Errors
    /// As [`sample_into`](Self::sample_into) and [`DeviceBatch::to_host`], and when memory for any batch does not
    /// suffice.
    pub fn presample<'s>(
        &mut self,
        cuda: &Cuda,
        batches: impl IntoIterator<Item = (&'s [NodeId], DrawKey)>,
    ) -> Result<(), ComputeError> {
        let mut batch = self.batch_within(cuda, self.largest.clone())?;
        let measured: Result<Vec<BatchSizes>, ComputeError> = batches
            .into_iter()
            .map(|(seeds, key)| {
                self.sample_into(cuda, seeds, key, &mut batch)?;
                let sizes = batch.sizes(cuda)?;
                batch.check(&sizes)?;
                Ok(sizes)
            })
            .collect();
        self.capacities = self.largest.fitted(&measured?);
        Ok(())
    }

    /// Allocates a batch within the current [capacities](Self::capacities).
    ///
    /// # Errors
    /// When the memory of the device does not suffice.
    pub fn batch(&self, cuda: &Cuda) -> Result<DeviceBatch, ComputeError> {
        self.batch_within(cuda, self.capacities.clone())
    }

    fn batch_within(&self, cuda: &Cuda, capacities: Capacities) -> Result<DeviceBatch, ComputeError> {
        DeviceBatch::new(cuda, capacities, self.options, self.hops.len(), (self.topology.n_nodes(), self.places.size()))
    }

    /// Samples a batch, and waits for it: [`sample_into`](Self::sample_into), then [`complete`](Self::complete).
    ///
    /// # Errors
    /// As these two.
    pub fn sample(&mut self, cuda: &Cuda, seeds: &[NodeId], key: DrawKey) -> Result<DeviceBatch, ComputeError> {
        let mut batch = self.batch(cuda)?;
        self.sample_into(cuda, seeds, key, &mut batch)?;
        self.complete(cuda, &mut batch)?;
        Ok(batch)
    }

    /// Launches the sampling of a batch into the memory of an earlier one, without waiting. An overflow is noticed
    /// when it is [completed](Self::complete) or [read](DeviceBatch::to_host).
    ///
    /// # Errors
    /// When a seed is no node of the graph, there are more than the batch has space for, the batch is not of this
    /// sampler, or the device fails.
    pub fn sample_into(
        &mut self,
        cuda: &Cuda,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut DeviceBatch,
    ) -> Result<(), ComputeError> {
        self.check_request(seeds, batch)?;
        let request = batch.words.of_request(seeds, key.of_neighbors(), key.batch);
        seeds.clone_into(&mut batch.seeds);
        batch.key = key;
        cuda.recorder.obstacle("uploads seeds")?;
        cuda.wait_before_upload(OPERATION, size_of_val(&request[..]))?;
        cuda.device.stream.memcpy_htod(&request, &mut batch.page).map_err(Cuda::failed(OPERATION))?;
        if !std::mem::replace(&mut self.are_empty, false) {
            self.places.clear(cuda)?;
        }
        let repeated = std::mem::take(&mut batch.repeated);
        let launches = Launches {
            cuda,
            kernels: &self.kernels,
            batch,
            hops: &self.hops,
            graph: self.topology.argument(cuda),
            weights: self.bias.as_ref().map_or_else(arguments::Weights::default, |bias| bias.argument(cuda)),
            exponents: self.bias.as_ref().map_or(0, |bias| bias.exponents(cuda)),
            marked: self.places.marked(cuda),
        };
        // SAFETY: the graph is a `Csr` of as many nodes as places are for, which are empty; the batch was made for it
        // and for these hops and options; seeds were checked; all memory is freed in the order of the stream. Captured,
        // all this holds for as long as sampler and batch live, and nobody else launches it.
        let launch = || unsafe { self.launch(&launches) };
        if self.patches.is_some() {
            // The host takes part.
            launch()?;
        } else {
            batch.repeated = repeated.run(cuda, &self.identity, launch)?;
        }
        self.are_empty = true;
        Ok(())
    }

    /// Puts the whole batch on the stream. Its page holds the request.
    ///
    /// # Safety
    /// Addresses are those of a graph; places are for its nodes, and empty; the batch was made for that graph, and
    /// kernels, places and batch for these hops; seeds on its page are nodes, no more than its capacity. All of it
    /// lives until the stream is done with it.
    pub(super) unsafe fn launch(&self, launches: &Launches<'_>) -> Result<(), ComputeError> {
        let batch = launches.batch;
        let tiles = HopTiles::of_hops(&batch.capacities, self.hops.len(), self.places.size(), batch.shares.is_some());
        let n_local = batch.n_local_hops();
        // SAFETY: the caller vouches for the memory that is read and written; each launch finds the results of the
        // ones before it.
        unsafe {
            self.places.begin(launches, tiles.last().map_or(0, |last| last.end))?;
            for (hop, tiles) in tiles.into_iter().enumerate() {
                match &self.patches {
                    None => launches.draw(hop, tiles, hop < n_local)?,
                    Some(patches) => patches.draw(launches, hop, tiles, hop < n_local)?,
                }
                if hop < n_local {
                    self.places.settle(launches, hop, tiles)?;
                }
            }
            self.places.finish(launches, n_local as u64)
        }
    }

    /// Waits for a batch. One that exceeds its memory is sampled again in memory for the largest batch, which it
    /// keeps.
    ///
    /// # Errors
    /// When a seed is listed twice, the memory of the device does not suffice, or it fails.
    pub fn complete(&mut self, cuda: &Cuda, batch: &mut DeviceBatch) -> Result<BatchSizes, ComputeError> {
        let sizes = batch.sizes(cuda)?;
        if !sizes.is_overflow() || batch.capacities == self.largest {
            batch.check(&sizes)?;
            return Ok(sizes);
        }
        tracing::debug!("a batch exceeds {:?} and is sampled again", batch.capacities);
        let mut larger = self.batch_within(cuda, self.largest.clone())?;
        self.sample_into(cuda, &batch.seeds, batch.key, &mut larger)?;
        *batch = larger;
        let sizes = batch.sizes(cuda)?;
        batch.check(&sizes)?;
        Ok(sizes)
    }

    fn check_request(&self, seeds: &[NodeId], batch: &DeviceBatch) -> Result<(), ComputeError> {
        self.topology.check_nodes("seed", seeds)?;
        let same_shape = (batch.words.n_hops, batch.options, batch.n_columns)
            == (self.hops.len(), self.options, self.topology.n_nodes());
        check_batch(same_shape, seeds.len(), batch.capacities.nodes[0])
    }
}

/// Fails for a batch of a sampler of another shape, or with fewer places for seeds than are given.
fn check_batch(same_shape: bool, n_seeds: usize, n_places: u64) -> Result<(), ComputeError> {
    let what = if !same_shape {
        "the batch belongs to another sampler: pass one that this sampler made".to_owned()
    } else if n_seeds as u64 > n_places {
        format!(
            "{n_seeds} seeds exceed the sampler's batch size of {n_places}: pass fewer, or make a sampler with a larger batch size"
        )
    } else {
        return Ok(());
    };
    Err(ComputeError::argument(OPERATION, what))
}

/// Fails for options that ranks with patches do not support on devices.
fn check_options_of_patches(options: NeighborOptions, is_weighted: bool) -> Result<(), ComputeError> {
    let refused = [
        (options.draws == Draws::PerLayer, "layer-wise draws"),
        (is_weighted, "weighted draws"),
        (options.edge_ids, "edge ids"),
    ];
    match refused.into_iter().find(|(is_wanted, _)| *is_wanted) {
        None => Ok(()),
        Some((_, what)) => Err(ComputeError::argument(
            OPERATION,
            format!(
                "a GPU does not sample a partitioned graph with {what}: sample on the host, or give --layout replicated"
            ),
        )),
    }
}

/// Fails for options that kernels do not support.
fn check_options(options: NeighborOptions, batch_size: usize) -> Result<(), ComputeError> {
    let refused = if options.draws == Draws::Labor {
        "GPUs do not sample by LABOR: sample by node or by layer, or on the host"
    } else if batch_size == 0 {
        "the batch size is 0: give at least 1"
    } else {
        return Ok(());
    };
    Err(ComputeError::argument(OPERATION, refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kernels_do_not_do_is_refused() {
        let options = NeighborOptions::default();
        assert!(check_options(options, 1).is_ok());
        let labor = NeighborOptions { draws: Draws::Labor, ..options };
        assert_eq!(
            check_options(labor, 1).unwrap_err().to_string(),
            "sampling on the device: GPUs do not sample by LABOR: sample by node or by layer, or on the host"
        );
        assert_eq!(
            check_options(options, 0).unwrap_err().to_string(),
            "sampling on the device: the batch size is 0: give at least 1"
        );
    }

    #[test]
    fn what_kernels_do_not_do_with_patches_is_refused() {
        let options = NeighborOptions::default();
        assert!(check_options_of_patches(options, false).is_ok());
        let refused = [
            (NeighborOptions { draws: Draws::PerLayer, ..options }, false, "layer-wise draws"),
            (options, true, "weighted draws"),
            (NeighborOptions { edge_ids: true, ..options }, false, "edge ids"),
        ];
        for (options, is_weighted, what) in refused {
            let expected = format!(
                "sampling on the device: a GPU does not sample a partitioned graph with {what}: sample on the host, or give --layout replicated"
            );
            assert_eq!(check_options_of_patches(options, is_weighted).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn seeds_without_a_place_are_refused() {
        assert!(check_batch(true, 4, 4).is_ok());
        assert_eq!(
            check_batch(false, 4, 4).unwrap_err().to_string(),
            "sampling on the device: the batch belongs to another sampler: pass one that this sampler made"
        );
        assert_eq!(
            check_batch(true, 5, 4).unwrap_err().to_string(),
            "sampling on the device: 5 seeds exceed the sampler's batch size of 4: pass fewer, or make a sampler with a larger batch size"
        );
    }
}
