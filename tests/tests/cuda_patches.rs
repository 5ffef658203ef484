//! Ranks on CUDA devices that each hold a patch of graph and features. Compares what they sample and read with the
//! CPU, which holds everything. With one GPU there is one patch.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use girih_collective_sampling::{RankRows, SpareReplies};
use girih_comm::threads::{self, ThreadRank};
use girih_comm::{Collective, GpuTransport, RankFailure, Transport};
use girih_compress::CompressedFeatures;
use girih_compute::prelude::*;
use girih_compute::{ComputeError, Dtype, Shape};
use girih_features::{
    ByTransport, CacheShares, FeatureDevice, FeatureStore, FetchRows, FetchedRows, NeighborGraph, PatchOperand,
    PatchRowsOperand, Placement, SamplingDevice, SplitRows, StoredAs,
};
use girih_graph_format::{Matrix, NodeId, Norm};
use girih_kernels::{Cuda, NcclRank};
use girih_partition::Patches;
use girih_sampling::{DrawKey, Expand, NeighborOptions, NeighborSampler, Sampler};
use girih_tests::batches::{check_batch, graph};
use girih_tests::gpus::{Failure, PlannedFailure, deadline, group, several};
use girih_trainer::{Adjacency, Neighborhoods, parse_codec};

const N: NodeId = 600;

/// Bounds of uneven patches, some of which have no nodes.
fn bounds(n_ranks: usize) -> &'static [NodeId] {
    match n_ranks {
        1 => &[0, N],
        2 => &[0, 230, N],
        4 => &[0, 230, 230, 411, N],
        8 => &[0, 100, 230, 230, 300, 411, 411, 555, N],
        n => panic!("no patches for {n} ranks"),
    }
}

/// Runs a rank on each GPU.
fn on_each(
    gpus: &[Cuda],
    work: impl Fn(&Cuda, &dyn Collective<Cuda>) -> Result<(), Failure> + Sync,
) -> Result<(), RankFailure<Failure>> {
    let rank = |world: ThreadRank| {
        let cuda = &gpus[world.transport().rank()];
        let world = NcclRank::connect(cuda, world, deadline(), GpuTransport::Nccl)?;
        work(cuda, &*world)
    };
    threads::run(gpus.len(), deadline(), rank).map(drop)
}

/// This rank's patch of a graph, for each transport that the GPUs support. The host holds the whole graph.
fn patch_graphs(
    cuda: &Cuda,
    world: &dyn Collective<Cuda>,
    whole: &Neighborhoods,
) -> Result<ByTransport<Box<dyn NeighborGraph<Cuda>>>, Failure> {
    let (bounds, operand) = (bounds(world.size()), whole.operand());
    let rows = operand.graph.row_slice(own(world));
    let degrees: Vec<u32> = (0..N as usize).map(|row| operand.graph.degree(row) as u32).collect();
    let patch = PatchOperand { rows: &rows, bounds, degrees: &degrees, scales: operand.scales, loops: operand.loops };
    Ok(checked(cuda.patch_graphs(&patch, &GpuTransport::ALL)?))
}

/// Checks the list of transports: NCCL is first, and peers that can read each other's memory also read in place.
fn checked<T>(by: Vec<(GpuTransport, T)>) -> Vec<(GpuTransport, T)> {
    assert_eq!(by.first().map(|(by, _)| *by), Some(GpuTransport::Nccl));
    if by.len() < GpuTransport::ALL.len() {
        eprintln!("GPUs do not read each other's memory: nothing is read in place");
    }
    by
}

fn own(world: &dyn Collective<Cuda>) -> Range<usize> {
    let bounds = bounds(world.size());
    bounds[world.rank()] as usize..bounds[world.rank() + 1] as usize
}

fn sampler(fan_out: &str, expand: Expand) -> NeighborSampler {
    let options = NeighborOptions { expand, ..NeighborOptions::default() };
    NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap()
}

#[test]
fn gpus_draw_from_patches_what_the_cpu_draws_from_the_graph() {
    for adjacency in [(false, Norm::Row), (true, Norm::Symmetric)] {
        let Some(gpus) = group() else { return };
        let whole = Neighborhoods::new(&graph(N, false), Adjacency::new(adjacency.0, adjacency.1)).unwrap();
        let outcome = on_each(&gpus, |cuda, world| {
            let on_device = patch_graphs(cuda, world, &whole)?;
            let cases = [
                ("5,3", Expand::PerLayer),
                ("4,3,2", Expand::Once),
                ("-1,2", Expand::PerLayer),
                ("40,2", Expand::PerLayer),
                ("3,-1,1", Expand::Once),
            ];
            for ((by, on_device), (fan_out, expand)) in
                on_device.iter().flat_map(|graph| cases.map(|case| (graph, case)))
            {
                let sampler = sampler(fan_out, expand);
                let mut source = on_device.source(cuda, &sampler, 64)?.expect("GPUs draw so");
                // First all ranks have seeds, then only the first one, then all but the first; seeds come from any
                // patch.
                for (batch, has_seeds) in [(0, true), (1, world.rank() == 0), (2, world.rank() > 0), (3, true)] {
                    let n_seeds = if has_seeds { 20 + 7 * batch } else { 0 };
                    let seeds: Vec<NodeId> = (0..n_seeds).map(|i| (i * 37 + 101 * world.rank() as u32) % N).collect();
                    let key = DrawKey::new(9, 2, batch);
                    source.request(&seeds, key)?;
                    let found = source.take()?;
                    let expected = sampler.sample(whole.graph(), &seeds, key).expect("nodes of the graph");
                    if has_seeds {
                        check_batch(cuda, &found, &expected.blocks, &whole);
                    }
                    assert_eq!(found.blocks.last().map(|block| block.n_destinations), Some(seeds.len()));
                    assert_eq!(found.n_inputs, expected.inputs().len(), "by {by}");
                }
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("rank {}: {}", failure.rank, failure.message));
    }
}

#[test]
fn what_patches_do_not_do_is_refused() {
    let Some(gpus) = group() else { return };
    let whole = Neighborhoods::new(&graph(N, false), Adjacency::new(false, Norm::Row)).unwrap();
    let outcome = on_each(&gpus, |cuda, world| {
        let with = |options| NeighborSampler::new("2".parse().unwrap(), options).unwrap();
        let places = with(NeighborOptions { edge_ids: true, ..NeighborOptions::default() });
        let replaced = with(NeighborOptions { replace: true, ..NeighborOptions::default() });
        for (_, on_device) in &patch_graphs(cuda, world, &whole)? {
            let refused = on_device.source(cuda, &places, 8).err().map(|error| error.to_string());
            assert!(refused.as_ref().is_some_and(|why| why.contains("edge ids")), "{refused:?}");
            assert!(on_device.source(cuda, &replaced, 8)?.is_none(), "left to the host");
            let mut source = on_device.source(cuda, &with(NeighborOptions::default()), 8)?.expect("GPUs draw so");
            assert!(source.take().is_err(), "nothing was asked for");
        }
        // Rows of another rank's patch.
        let operand = whole.operand();
        let rows = operand.graph.row_slice(0..7);
        let degrees = vec![0; N as usize];
        let (scales, loops) = (operand.scales, operand.loops);
        let wrong = PatchOperand { rows: &rows, bounds: bounds(world.size()), degrees: &degrees, scales, loops };
        let error = cuda.patch_graphs(&wrong, &GpuTransport::ALL).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|why| why.contains("which do not match its part")), "{error:?}");
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("rank {}: {}", failure.rank, failure.message));
}

#[test]
fn gpus_read_rows_of_patches_as_if_they_had_all() {
    for (dtype, cols) in [(Dtype::F32, 47), (Dtype::Bf16, 13), (Dtype::F32, 3), (Dtype::Bf16, 128)] {
        let Some(gpus) = group() else { return };
        // Small integers, which bf16 represents exactly.
        let value = |row: usize, column: usize| ((row * 31 + column * 7) % 251) as f32;
        let outcome = on_each(&gpus, |cuda, world| {
            let own = own(world);
            let values: Vec<f32> =
                own.clone().flat_map(|row| (0..cols).map(move |column| value(row, column))).collect();
            let rows = Arc::new(cuda.upload(&Matrix::new(own.len(), cols, values).expect("as many values"), dtype)?);
            let own = PatchRowsOperand::Dense(rows);
            let readers = checked(cuda.remote_features(own, bounds(world.size()), &GpuTransport::ALL)?);
            for (by, reader) in &readers {
                read_rows(cuda, world, &**reader, (dtype, cols), &value)
                    .map_err(|Failure(why)| Failure(format!("by {by}: {why}")))?;
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("rank {}: {}", failure.rank, failure.message));
    }
}

/// Reads rows of any patch, with overlapping requests.
fn read_rows(
    cuda: &Cuda,
    world: &dyn Collective<Cuda>,
    reader: &dyn FeatureStore<Cuda>,
    (dtype, cols): (Dtype, usize),
    value: &dyn Fn(usize, usize) -> f32,
) -> Result<(), Failure> {
    // Two requests are in flight before the first one is finished; a rank may request no rows, or rows twice.
    let lists: Vec<Vec<NodeId>> = (0..4)
        .map(|list| {
            let n = if list == 1 && world.rank() == 0 { 0 } else { 40 + 90 * list };
            (0..n).map(|i| (i * i * 13 + 7 * world.rank() as u32) % N).collect()
        })
        .collect();
    let (mut begun, mut pending) = (Vec::new(), VecDeque::new());
    for list in &lists {
        let ids = cuda.upload_ids(list)?;
        let mut out = cuda.zeros(Shape::new(list.len(), cols), dtype)?;
        pending.push_back(reader.gather_async(cuda, &ids, None, &mut out)?);
        begun.push((ids, out));
        if begun.len() == 2 {
            pending.pop_front().expect("two were begun").wait()?;
        }
    }
    pending.into_iter().try_for_each(|pending| pending.wait())?;
    for (list, (_, out)) in lists.iter().zip(&begun) {
        let found = cuda.download(out)?;
        let expected = list.iter().flat_map(|&row| (0..cols).map(move |column| value(row as usize, column)));
        assert!(found.data().iter().copied().eq(expected), "{dtype:?}, {cols} columns, rank {}", world.rank());
    }
    let ids = cuda.upload_ids(&lists[3])?;
    let mut out = cuda.zeros(Shape::new(lists[3].len(), cols), dtype)?;
    reader.gather(cuda, &ids, &mut out)?;
    assert_eq!(cuda.download(&out)?.data(), cuda.download(&begun[3].1)?.data());
    let beyond = cuda.upload_ids(&[N])?;
    let mut one = cuda.zeros(Shape::new(1, cols), dtype)?;
    assert!(reader.gather_async(cuda, &beyond, None, &mut one).is_err(), "there is no such row");
    Ok(())
}

/// Codes are stored and sent as codes; decoded rows equal those that the host decodes.
#[test]
fn codes_of_patches_are_decoded_where_they_are_wanted() {
    // Seven columns give an odd number of bytes.
    for (width, dtype) in [(300, Dtype::F32), (20, Dtype::F32), (7, Dtype::F32), (260, Dtype::Bf16)] {
        let Some(gpus) = group() else { return };
        let values: Vec<f32> = (0..N as usize * width).map(|i| ((i * i * 7 + i) % 509) as f32 / 64.0 - 4.0).collect();
        let rows = Matrix::new(N as usize, width, values).expect("as many values");
        let spec = parse_codec("topk:4").expect("a codec").expect("not none");
        let codes = CompressedFeatures::fitted(spec, &rows, 1).expect("rows to learn from");
        let outcome = on_each(&gpus, |cuda, world| {
            let own = codes.rows(own(world));
            let operand = PatchRowsOperand::Codes(&own, dtype);
            let readers = checked(cuda.remote_features(operand, bounds(world.size()), &GpuTransport::ALL)?);
            let list: Vec<NodeId> = (0..170).map(|i| (i * 7 + 50 * world.rank() as u32) % N).collect();
            let ids = cuda.upload_ids(&list)?;
            let mut expected = vec![0.0; list.len() * width];
            codes.gather(&list, &mut expected).expect("rows");
            // Expected rows in their storage type.
            let expected = cuda.upload(&Matrix::new(list.len(), width, expected).expect("as many values"), dtype)?;
            for (by, reader) in &readers {
                let mut out = cuda.zeros(Shape::new(list.len(), width), dtype)?;
                reader.gather(cuda, &ids, &mut out)?;
                let (found, expected) = (cuda.download(&out)?, cuda.download(&expected)?);
                assert_eq!(found.data(), expected.data(), "{width} columns of {dtype:?} by {by}");
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("rank {}: {}", failure.rank, failure.message));
    }
}

/// Rows of a rank's patch in host memory, and access to those of the others.
struct OnHosts {
    world: Arc<dyn Collective<Cuda>>,
    patches: Patches,
    own: Vec<u8>,
    row_bytes: usize,
}

impl OnHosts {
    /// Host store of one patch out of all rows.
    fn boxed(world: &dyn Collective<Cuda>, all: &[u8]) -> Result<Box<dyn FetchRows>, Failure> {
        let patches = Patches::new(bounds(world.size()).to_vec()).expect("bounds of patches");
        let (row_bytes, own) = (all.len() / N as usize, own(world));
        let own = all[own.start * row_bytes..own.end * row_bytes].to_vec();
        Ok(Box::new(Self { world: world.split(0, world.rank())?.into(), patches, own, row_bytes }))
    }
}

impl FetchRows for OnHosts {
    fn fetch(&mut self, nodes: &[NodeId]) -> Result<Box<dyn FetchedRows + '_>, ComputeError> {
        let found = RankRows::again(&*self.world, &self.patches, (&self.own, self.row_bytes), SpareReplies::default())
            .find(nodes);
        Ok(Box::new(found.map_err(|error| ComputeError::device("rows of others", error.to_string()))?))
    }
}

/// Placements with different shares of rows on GPUs, some with nodes of all patches.
fn placements() -> impl Iterator<Item = Placement> {
    let order: Vec<NodeId> = (0..N).map(|at| at * 7 % N).collect();
    [0.0, 0.3, 1.0]
        .into_iter()
        .map(move |every_gpu| Placement::of_shares(&order, CacheShares { every_gpu, one_gpu: 0.0 }, 1))
}

#[test]
fn gpus_read_rows_that_hosts_have_in_part() {
    for (dtype, cols) in [(Dtype::F32, 47), (Dtype::Bf16, 13), (Dtype::F32, 4), (Dtype::Bf16, 128)] {
        let Some(gpus) = group() else { return };
        // Small integers, which bf16 represents exactly.
        let value = |row: usize, column: usize| ((row * 31 + column * 7) % 251) as f32;
        let values = (0..N as usize).flat_map(|row| (0..cols).map(move |column| value(row, column)));
        let rows: Vec<u8> = match dtype {
            Dtype::F32 => values.flat_map(f32::to_le_bytes).collect(),
            // The upper half of a small integer is its exact bf16 value.
            Dtype::Bf16 => values.flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect(),
        };
        let outcome = on_each(&gpus, |cuda, world| {
            for placement in placements() {
                let (stored, fetch) = (StoredAs::Dense(cols, dtype), OnHosts::boxed(world, &rows)?);
                let split = SplitRows { n_rows: N as usize, stored, fetch };
                let reader = cuda.split_rows(split, &placement)?.expect("GPUs read them");
                read_rows(cuda, world, &*reader, (dtype, cols), &value)?;
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("rank {}: {}", failure.rank, failure.message));
    }
}

/// Codes stay compressed until they arrive, and are then decoded to rows or sums.
#[test]
fn codes_that_hosts_have_in_part_are_decoded_and_summed_on_gpus() {
    let Some(gpus) = group() else { return };
    let (width, dtype) = (300, Dtype::F32);
    let values: Vec<f32> = (0..N as usize * width).map(|i| ((i * i * 7 + i) % 509) as f32 / 64.0 - 4.0).collect();
    let rows = Matrix::new(N as usize, width, values).expect("as many values");
    let spec = parse_codec("topk:4").expect("a codec").expect("not none");
    let codes = CompressedFeatures::fitted(spec, &rows, 1).expect("rows to learn from");
    let whole = Neighborhoods::new(&graph(N, false), Adjacency::new(false, Norm::Row)).unwrap();
    let outcome = on_each(&gpus, |cuda, world| {
        let all = cuda.code_rows(&codes, dtype, None)?.expect("GPUs decode such codes");
        let graph = cuda.neighbor_graph(&whole.operand())?.expect("GPUs draw");
        let mut source = graph.source(cuda, &sampler("4", Expand::PerLayer), 64)?.expect("GPUs draw so");
        for placement in placements() {
            let (stored, fetch) = (StoredAs::Codes(&codes, dtype), OnHosts::boxed(world, codes.codes())?);
            let split = SplitRows { n_rows: N as usize, stored, fetch };
            let reader = cuda.split_rows(split, &placement)?.expect("GPUs decode them");
            for batch in 0..3 {
                // The first rank has no seeds in one batch.
                let n_seeds = if batch == 1 && world.rank() == 0 { 0 } else { 30 };
                let seeds: Vec<NodeId> = (0..n_seeds).map(|i| i * 19 % N).collect();
                source.request(&seeds, DrawKey::new(3, 1, batch))?;
                let sampled = source.take()?;
                let (ids, block) = (sampled.inputs.as_ref().expect("listed"), &sampled.blocks[0]);
                let read = |reader: &dyn FeatureStore<Cuda>| -> Result<[Matrix; 3], Failure> {
                    let zeros = |n_rows| cuda.zeros(Shape::new(n_rows, width), dtype);
                    let mut decoded = zeros(sampled.n_inputs)?;
                    reader.gather(cuda, ids, &mut decoded)?;
                    let (mut own, mut summed) = (zeros(block.n_destinations)?, zeros(block.n_destinations)?);
                    let sums = reader.sums().expect("codes are summed");
                    let codes = sums.gather_async(cuda, ids)?;
                    codes.wait(cuda, (&block.rows, ids), Some(&mut own), &mut summed)?;
                    Ok([cuda.download(&decoded)?, cuda.download(&own)?, cuda.download(&summed)?])
                };
                let (found, expected) = (read(&*reader)?, read(&*all)?);
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(found.data(), expected.data(), "batch {batch} of rank {}", world.rank());
                }
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("rank {}: {}", failure.rank, failure.message));
}

/// A rank fails while others wait for rows of its host: they end with its error.
#[test]
fn a_rank_that_fails_ends_those_who_want_rows_of_its_host() {
    let Some(gpus) = several() else { return };
    let rows = vec![0; N as usize * 64];
    let planned = PlannedFailure::default();
    let outcome = on_each(&gpus, |cuda, world| {
        let (stored, fetch) = (StoredAs::Dense(16, Dtype::F32), OnHosts::boxed(world, &rows)?);
        let split = SplitRows { n_rows: N as usize, stored, fetch };
        let placement = placements().next().expect("all on hosts");
        let reader = cuda.split_rows(split, &placement)?.expect("GPUs read them");
        let (ids, mut out) = (cuda.upload_ids(&[1, 599, 300])?, cuda.zeros(Shape::new(3, 16), Dtype::F32)?);
        for batch in 0..6 {
            if batch == 3 && world.rank() == 1 {
                return Err(planned.now());
            }
            reader.gather(cuda, &ids, &mut out)?;
        }
        Ok(())
    });
    planned.check(outcome, "on GPUs");
}

/// A rank fails between two batches: the others, which wait for its samples, end with its error.
#[test]
fn a_rank_that_fails_ends_those_who_draw_from_its_patch() {
    let Some(gpus) = several() else { return };
    let whole = Neighborhoods::new(&graph(N, false), Adjacency::new(false, Norm::Row)).unwrap();
    let planned = PlannedFailure::default();
    let outcome = on_each(&gpus, |cuda, world| {
        // With reads in place no rank waits for another, so NCCL is used.
        let (_, on_device) = patch_graphs(cuda, world, &whole)?.swap_remove(0);
        let sampler = sampler("5,3", Expand::PerLayer);
        let mut source = on_device.source(cuda, &sampler, 64)?.expect("GPUs draw so");
        for batch in 0..6 {
            if batch == 3 && world.rank() == 1 {
                return Err(planned.now());
            }
            source.request(&[1, 2, 3, 400], DrawKey::new(1, 1, batch))?;
            source.take()?;
        }
        Ok(())
    });
    planned.check(outcome, "on GPUs");
}

/// A rank fails before its part of a sum. Others, whose samples are queued after that sum, end with its error.
#[test]
fn a_rank_that_fails_ends_those_who_draw_behind_its_sums() {
    let Some(gpus) = several() else { return };
    let whole = Neighborhoods::new(&graph(N, false), Adjacency::new(false, Norm::Row)).unwrap();
    let planned = PlannedFailure::default();
    let outcome = on_each(&gpus, |cuda, world| {
        let graph = cuda.neighbor_graph(&whole.operand())?.expect("GPUs draw");
        let sampler = sampler("5,3", Expand::PerLayer);
        let mut source = graph.source(cuda, &sampler, 64)?.expect("GPUs draw so");
        let mut x = cuda.zeros(Shape::new(1000, 64), Dtype::F32)?;
        for batch in 0..6 {
            if batch == 3 && world.rank() == 1 {
                return Err(planned.now());
            }
            world.all_reduce(&mut x)?;
            source.request(&[1, 2, 3, 400], DrawKey::new(1, 1, batch))?;
            source.take()?;
        }
        Ok(())
    });
    planned.check(outcome, "on GPUs");
}
