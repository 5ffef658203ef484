//! Batches in memory of their own: their lists are those of the host, and operands of their blocks products by them.

use std::sync::Arc;

use girih_compute::prelude::*;
use girih_compute::testing::piece;
use girih_compute::{Dtype, Epilogue, Shape, Transpose};
use girih_graph_format::{Csr, Matrix, NodeId};
use girih_kernels::{BatchSampler, Cuda, CudaSparse, EdgeNames, IndexWidth, SampledBatch, Scaling};
use girih_random::Key;
use girih_sampling::{Block, Columns, DrawKey, EdgeList, Expand, MiniBatch, NeighborOptions, NeighborSampler, Sampler};
use girih_tests::cuda;

use super::inputs::*;

/// Batches of both sides; the device samples one batch ahead, and keeps all.
fn batches(cuda: &Arc<Cuda>, graph: &Csr, host: &NeighborSampler, sizes: &[usize]) -> Vec<(MiniBatch, SampledBatch)> {
    let most = sizes.iter().copied().max().unwrap_or(1).max(1);
    let mut device = BatchSampler::new(Arc::clone(cuda), on_device(cuda, graph), graph, host, most).expect("a sampler");
    let mut stream = Key::new(9, 81).stream(sizes.len() as u64, 0);
    let asked: Vec<_> = (0..)
        .zip(sizes)
        .map(|(number, &size)| (seeds(graph.n_rows(), size, &mut stream), DrawKey::new(7, 3, number)))
        .collect();
    device.request(&asked[0].0, asked[0].1).expect("a request");
    let mut taken = Vec::new();
    for (at, (seeds, key)) in asked.iter().enumerate() {
        let batch = device.take().expect("a batch");
        if let Some((seeds, key)) = asked.get(at + 1) {
            device.request(seeds, *key).expect("a request");
        }
        taken.push((host.sample(graph, seeds, *key).expect("a batch"), batch));
    }
    assert!(device.take().is_err(), "nothing was asked for");
    taken
}

#[test]
fn batches_in_memory_of_their_own_are_those_of_the_cpu() {
    let Some(cuda) = cuda().map(Arc::new) else { return };
    for (n, seed) in [(1, 1), (33, 4), (257, 5), (8192, 6)] {
        let graph = graph(n, seed);
        for options in all_options().into_iter().filter(|options| options.inputs == Columns::Local) {
            for fan_out in piece(["15,10,5", "3,-1", "-1", "2"]) {
                let size = (n / 3).clamp(1, 130);
                let host = NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap();
                for (expected, found) in batches(&cuda, &graph, &host, &[size, size.div_ceil(3), 0, size]) {
                    let what = format!("{n} nodes, {fan_out}, {options:?}");
                    assert_same(&expected, &found.to_host(&cuda).unwrap(), &what);
                    check_list(&cuda, (&expected, &found), (options, graph.nnz()), &what);
                }
            }
        }
    }
}

/// Compares the lists of edges of both sides.
fn check_list(
    cuda: &Cuda,
    (expected, found): (&MiniBatch, &SampledBatch),
    (options, n_edges): (NeighborOptions, usize),
    what: &str,
) {
    if options.expand == Expand::PerLayer && expected.blocks.len() > 1 {
        assert!(!found.is_list() && found.edge_list(cuda, None, IndexWidth::Wide).is_err(), "{what}");
        return;
    }
    let mut list = EdgeList::<i64>::default();
    list.fill(expected, options.expand, None).expect("a list");
    let name = |position: u64| 1_000_000_000_000 - position;
    let upload = |n: usize| EdgeNames::upload(cuda, &(0..n as u64).map(name).collect::<Vec<_>>()).expect("memory");
    let names = upload(n_edges);
    assert!(found.edge_list(cuda, Some(&upload(n_edges + 1)), IndexWidth::Wide).is_err(), "{what}");
    for (width, names) in [(IndexWidth::Wide, Some(&names)), (IndexWidth::Narrow, None)] {
        let made = found.edge_list(cuda, names, width).expect("a list");
        let bytes = made.to_host(cuda).expect("a list");
        let ids = |at: usize, n: usize| -> Vec<i64> {
            let part = &bytes[at..at + n * width.n_bytes()];
            match width {
                IndexWidth::Narrow => part.as_chunks().0.iter().map(|&id| i64::from(i32::from_le_bytes(id))).collect(),
                IndexWidth::Wide => part.as_chunks().0.iter().map(|&id| i64::from_le_bytes(id)).collect(),
            }
        };
        assert_eq!(ids(0, 2 * made.n_edges), list.edge_index, "{what}");
        assert_eq!(ids(made.nodes_at, made.n_nodes), list.nodes, "{what}");
        assert_eq!(made.edges_at.is_some(), options.edge_ids, "{what}");
        if let Some(at) = made.edges_at {
            let expected = expected.blocks[0].edge_ids.iter().map(|&id| if names.is_some() { name(id) } else { id });
            let part = bytes[at..at + made.n_edges * 8].as_chunks().0;
            let found: Vec<u64> = part.iter().map(|&id| u64::from_le_bytes(id)).collect();
            assert_eq!(found, expected.collect::<Vec<_>>(), "{what}");
        }
    }
    assert_eq!((found.nodes_by_hop(), found.edges_by_hop()), (list.nodes_by_hop, list.edges_by_hop), "{what}");
}

/// Graph without self-loops.
fn without_loops(graph: &Csr) -> Csr {
    let row = |v: usize| graph.row(v).iter().copied().filter(|&u| u as usize != v).collect();
    graph_of(graph.n_rows(), row)
}

/// Entries of a block's matrix: row, column and value, from the definitions.
fn entries(graph: &Csr, block: &Block, scaling: Scaling, has_loops: bool) -> Vec<(usize, usize, f64)> {
    let loops = f64::from(u8::from(has_loops));
    let drawn = |row: usize| if row < block.n_destinations { block.indptr[row + 1] - block.indptr[row] } else { 0 };
    let whole = |at: usize| graph.degree(block.nodes[at] as usize) as f64;
    let root = |at: usize| match scaling {
        Scaling::Sampled => drawn(at) as f64 + loops,
        Scaling::Estimated => whole(at) + loops,
        Scaling::Ones | Scaling::Mean => 1.0,
    };
    let factor = |at: usize| if root(at) > 0.0 { root(at).powf(-0.5) } else { 0.0 };
    let mut entries = Vec::new();
    for row in 0..block.n_destinations {
        let each = match scaling {
            Scaling::Ones | Scaling::Sampled => 1.0,
            Scaling::Mean => 1.0 / drawn(row) as f64,
            Scaling::Estimated => whole(row) / drawn(row) as f64,
        };
        for edge in block.indptr[row]..block.indptr[row + 1] {
            let column = block.indices[edge as usize] as usize;
            entries.push((row, column, factor(row) * each * factor(column)));
        }
        if has_loops {
            entries.push((row, row, factor(row) * factor(row)));
        }
    }
    entries
}

#[test]
fn operands_of_blocks_multiply_as_defined() {
    let Some(cuda) = cuda().map(Arc::new) else { return };
    for (n, seed) in [(40, 2), (900, 5), (8192, 6)] {
        let graph = without_loops(&graph(n, seed));
        for (expand, fan_out) in piece([(Expand::Once, "6,4"), (Expand::PerLayer, "5,3,2"), (Expand::Once, "-1,50")]) {
            let options = NeighborOptions { expand, ..NeighborOptions::default() };
            let host = NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap();
            for (expected, found) in batches(&cuda, &graph, &host, &[n / 4, 3]) {
                for hop in 0..found.n_hops() {
                    let block = &expected.blocks[found.n_hops() - 1 - hop];
                    for (scaling, has_loops) in [
                        (Scaling::Ones, false),
                        (Scaling::Ones, true),
                        (Scaling::Mean, false),
                        (Scaling::Sampled, false),
                        (Scaling::Sampled, true),
                        (Scaling::Estimated, false),
                        (Scaling::Estimated, true),
                    ] {
                        let operand = found.operand(&cuda, hop, scaling, has_loops).expect("an operand");
                        let entries = entries(&graph, block, scaling, has_loops);
                        let sizes = [block.nodes.len(), block.n_destinations];
                        let what = format!("{n} nodes, {fan_out}, hop {hop}, {scaling:?}, loops {has_loops}");
                        for transpose in [Transpose::No, Transpose::Yes] {
                            check_product(&cuda, (&operand, transpose), &entries, sizes, &what);
                        }
                    }
                }
            }
        }
    }
}

fn check_product(
    cuda: &Cuda,
    (operand, transpose): (&CudaSparse, Transpose),
    entries: &[(usize, usize, f64)],
    sizes: [usize; 2],
    what: &str,
) {
    const WIDTH: usize = 5;
    let ([n_columns, n_rows], width) = (sizes, WIDTH);
    let (n_in, n_out) = if transpose == Transpose::No { (n_columns, n_rows) } else { (n_rows, n_columns) };
    let x: Vec<f32> = (0..n_in * width).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let mut expected = vec![0.0_f64; n_out * width];
    let mut sizes = vec![1e-6_f64; n_out * width];
    for &(row, column, value) in entries {
        let (to, from) = if transpose == Transpose::No { (row, column) } else { (column, row) };
        for k in 0..width {
            let term = value * f64::from(x[from * width + k]);
            expected[to * width + k] += term;
            sizes[to * width + k] += term.abs();
        }
    }
    let x = cuda.upload(&Matrix::new(n_in, width, x).unwrap(), Dtype::F32).unwrap();
    let mut out = cuda.zeros(Shape::new(n_out, width), Dtype::F32).unwrap();
    cuda.spmm((operand, transpose), None, &x, Epilogue::default(), &mut out).unwrap();
    let found = cuda.download(&out).unwrap();
    for ((found, expected), size) in found.data().iter().zip(&expected).zip(&sizes) {
        assert!((f64::from(*found) - expected).abs() <= 1e-5 * size, "{what}, {transpose:?}: {found} {expected}");
    }
}

#[test]
fn requests_that_cannot_be_met_are_refused() {
    let Some(cuda) = cuda().map(Arc::new) else { return };
    let graph = graph(500, 3);
    let host = NeighborSampler::new("4,3".parse().unwrap(), NeighborOptions::default()).unwrap();
    let make = |host: &NeighborSampler, size| {
        BatchSampler::new(Arc::clone(&cuda), on_device(&cuda, &graph), &graph, host, size)
    };
    let mut sampler = make(&host, 8).expect("a sampler");
    let key = DrawKey::new(0, 0, 0);
    assert!(sampler.request(&[500], key).is_err());
    assert!(sampler.request(&(0..9).collect::<Vec<NodeId>>(), key).is_err());
    sampler.request(&[3, 3], key).expect("seeds are compared on the device");
    assert!(sampler.take().is_err());
    sampler.request(&[3, 4], key).expect("a request after a refused one");
    assert_same(&host.sample(&graph, &[3, 4], key).unwrap(), &sampler.take().unwrap().to_host(&cuda).unwrap(), "after");
    let global = NeighborOptions { inputs: Columns::Global, ..NeighborOptions::default() };
    assert!(make(&NeighborSampler::new("4,3".parse().unwrap(), global).unwrap(), 8).is_err());
}
