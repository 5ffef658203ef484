//! Runs the suite that every backend passes, on the first CUDA device. Without a device the tests say so and pass,
//! unless `GIRIH_REQUIRE_GPU` is set: `cargo xtask gpu-test` sets it.

use std::sync::Arc;
use std::time::Instant;

use girih_compute::prelude::*;
use girih_compute::testing::{PIECE, check_backend, check_backend_in_parts, piece};
use girih_compute::{Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_features::{CacheShares, HostRows, Placement};
use girih_graph_format::{BlockMatrix, Coo, Csr, Duplicates, Matrix, Norm};
use girih_kernels::{
    BlockKernel, Cuda, CudaMatrix, CudaSparse, Device, ForeignRows, MemoryPool, Tiling, keeping_context,
};
use girih_random::Key;

fn device() -> Option<Device> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("GIRIH_REQUIRE_GPU").is_some() => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

#[test]
fn cuda_computes_what_the_reference_does() {
    let Some(device) = device() else { return };
    check_backend(&Cuda::new(device));
}

/// Pool and device of a guest on the default stream, as PyTorch has it.
fn guest(limit: Option<usize>) -> Option<(Arc<MemoryPool>, Cuda)> {
    drop(device()?);
    let pool = Arc::new(MemoryPool::new(0, limit).unwrap());
    // SAFETY: the default stream lives as long as the process.
    let device = unsafe { Device::guest(0, 0, &pool) }.unwrap();
    Some((pool, Cuda::new(device)))
}

#[test]
fn a_guest_computes_what_the_reference_does_and_leaves_nothing() {
    let Some((pool, cuda)) = guest(None) else { return };
    check_backend(&cuda);
    drop(cuda);
    assert_eq!(pool.bytes().unwrap().0, 0, "all memory is freed");
    // SAFETY: as in `guest`.
    let again = Cuda::new(unsafe { Device::guest(0, 0, &pool) }.unwrap());
    again.wait_for_all().unwrap();
    pool.trim().unwrap();
    // The driver may keep a piece.
    assert!(pool.bytes().unwrap().1 <= 64 << 20, "and given back: {:?}", pool.bytes().unwrap());
}

#[test]
fn a_guest_keeps_within_its_limit() {
    const LIMIT: usize = 256 << 20;
    let Some((pool, cuda)) = guest(Some(LIMIT)) else { return };
    let rows = |bytes: usize| Shape::new(bytes / 4096, 1024);
    let held = cuda.zeros(rows(LIMIT / 2), Dtype::F32).unwrap();
    let Err(error) = cuda.zeros(rows(2 * LIMIT), Dtype::F32) else { panic!("twice the limit") };
    assert!(error.is_out_of_memory(), "{error}");
    // What was freed just now serves the next allocation, also where the pool has to give it back before.
    drop(held);
    for _ in 0..3 {
        drop(cuda.zeros(rows(LIMIT * 3 / 4), Dtype::F32).unwrap());
    }
    cuda.wait_for_all().unwrap();
    assert!(pool.bytes().unwrap().1 <= LIMIT as u64);
}

#[test]
fn memory_of_others_is_read_and_written_in_place() {
    let Some((_pool, cuda)) = guest(None) else { return };
    for (rows, cols) in [(9, 3), (70, 8), (33, 47), (5, 100), (0, 8)] {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let values: Vec<f32> = (0..rows * cols).map(|i| (i % 100) as f32).collect();
            let x = cuda.upload(&Matrix::new(rows, cols, values.clone()).unwrap(), dtype).unwrap();
            let out = cuda.zeros(Shape::new(rows, cols), dtype).unwrap();
            let lend = |of: &CudaMatrix| {
                // SAFETY: the memory is that of a matrix of this shape, which outlives the work below.
                unsafe { cuda.lent_matrix(of.address(), Shape::new(rows, cols), dtype) }.unwrap()
            };
            let (lent, mut lent_out) = (lend(&x), lend(&out));
            cuda.add_scaled(2.0, &lent, &mut lent_out).unwrap();
            drop((lent, lent_out));
            let doubled: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
            assert_eq!(cuda.download(&out).unwrap().data(), doubled, "{rows} x {cols}, {dtype:?}");
        }
    }
    // SAFETY: it is refused.
    let Err(error) = (unsafe { cuda.lent_matrix(4, Shape::new(2, 8), Dtype::F32) }) else { panic!("not aligned") };
    assert!(error.to_string().contains("clone it"), "{error}");
}

#[test]
fn rows_of_others_in_any_layout_are_copied() {
    let Some((_pool, cuda)) = guest(None) else { return };
    for (rows, cols, stride) in [(9, 3, 3), (70, 8, 11), (33, 47, 47), (5, 100, 100), (4, 100, 120), (0, 8, 8)] {
        for (stored, dtype) in [(Dtype::F32, Dtype::F32), (Dtype::F32, Dtype::Bf16), (Dtype::Bf16, Dtype::F32)] {
            // Contiguous memory: one long row of a matrix has no gaps but behind it.
            let values: Vec<f32> = (0..rows * stride).map(|i| (i % 100) as f32).collect();
            let n = values.len().max(1);
            let memory =
                cuda.upload(&Matrix::new(1, n, [values.clone(), vec![0.0]].concat()[..n].to_vec()).unwrap(), stored);
            let memory = memory.unwrap();
            let shape = Shape::new(rows, cols);
            let foreign = ForeignRows { address: memory.address(), shape, stride, dtype: stored };
            assert_eq!(foreign.is_matrix(), stride == 3 || stride == 8);
            // SAFETY: the memory holds these rows, and outlives the work below.
            let copy = unsafe { cuda.copy_of_rows(foreign, dtype) }.unwrap();
            let expected: Vec<f32> =
                (0..rows).flat_map(|row| values[row * stride..row * stride + cols].to_vec()).collect();
            assert_eq!(cuda.download(&copy).unwrap().data(), expected, "{rows} x {cols} of {stride}");
            let mut doubled = cuda.zeros(shape, dtype).unwrap();
            cuda.scale(2.0, &copy, &mut doubled).unwrap();
            // SAFETY: as above; nobody else uses the rows.
            unsafe { cuda.copy_to_rows(&doubled, foreign) }.unwrap();
            let written = cuda.download(&memory).unwrap();
            for (i, (&found, &before)) in written.data().iter().zip(&values).enumerate() {
                let factor = if i % stride < cols { 2.0 } else { 1.0 };
                assert_eq!(found, factor * before, "{rows} x {cols} of {stride}, element {i}");
            }
            let other = cuda.zeros(Shape::new(rows + 1, cols), dtype).unwrap();
            // SAFETY: it is refused.
            assert!(unsafe { cuda.copy_to_rows(&other, foreign) }.is_err());
        }
    }
}

#[test]
fn a_guest_reuses_what_it_dropped() {
    let Some((pool, cuda)) = guest(None) else { return };
    let make = |rows| cuda.uninitialized(Shape::new(rows, 256), Dtype::F32).unwrap();
    let (first, kept) = (make(1000), make(1000));
    assert_ne!(first.address(), kept.address());
    let address = first.address();
    drop(first);
    assert_eq!(make(990).address(), address, "nearly as large");
    assert_ne!(make(2000).address(), address, "larger");
    // A thread in which no context is current.
    std::thread::scope(|scope| scope.spawn(|| cuda.with_context(|| drop(kept))).join().unwrap());
    assert_eq!(pool.bytes().unwrap().0, 0, "nothing is in use");
    cuda.wait_for_all().unwrap();
    pool.trim().unwrap();
    assert_eq!(pool.bytes().unwrap().0, 0);
}

#[test]
fn the_current_context_stays() {
    let Some(_) = device() else { return };
    let run = || keeping_context(|| Device::open(0).map(drop).is_ok());
    assert!(run() && std::thread::spawn(run).join().unwrap());
}

#[test]
fn blocks_change_no_operation() {
    // Every block with an entry is multiplied as one, by the fastest kernel of the GPU and by those of every GPU.
    for kernel in [None, Some(BlockKernel::Mma), Some(BlockKernel::Paper)] {
        let Some(device) = device() else { return };
        let cuda = Cuda::new(device).tiling(Tiling::From(0.0));
        check_backend_in_parts(&match kernel {
            Some(kernel) => cuda.multiplying_blocks_by(kernel).unwrap(),
            None => cuda,
        });
    }
}

#[test]
fn blocks_are_chosen_alike_by_every_run() {
    let csr = pattern(16384, 16384, 200, 0);
    for kernel in [BlockKernel::Mma, BlockKernel::Paper] {
        let choose = || {
            let cuda = Cuda::new(device()?).multiplying_blocks_by(kernel).unwrap();
            let a = split(&cuda, &csr, 64);
            Some((cuda.split(&a), cuda.download_blocks(&a).unwrap()))
        };
        let Some((found, blocks)) = choose() else { return };
        let (again, blocks_again) = choose().unwrap();
        assert_eq!(found, again, "{kernel}");
        assert!(blocks == blocks_again, "{kernel}");
        println!("{kernel}: {found:?}");
    }
}

/// Random pattern, denser towards the first column. Hubs have full rows; rows that leave 5 over 7 have no entry.
fn pattern(n_rows: usize, n_cols: usize, degree: usize, n_hubs: usize) -> Csr {
    let mut stream = Key::new(11, 3).stream(n_rows as u64, n_cols as u64);
    let mut entries = std::collections::BTreeSet::new();
    for row in (0..n_rows as u32).filter(|row| row % 7 != 5) {
        for _ in 0..degree {
            let bound = stream.below(n_cols as u64) + 1;
            entries.insert((row, stream.below(bound) as u32));
        }
    }
    for _ in 0..n_hubs {
        let row = stream.below(n_rows as u64) as u32;
        entries.extend((0..n_cols as u32).map(|col| (row, col)));
    }
    let (rows, cols) = entries.into_iter().unzip();
    Coo::new(n_rows, n_cols, rows, cols, None).unwrap().to_csr(Duplicates::Refuse).unwrap()
}

/// Uploads a matrix and runs a product, which searches for blocks.
fn split(cuda: &Cuda, csr: &Csr, width: usize) -> CudaSparse {
    let scales = csr.scales(Norm::None);
    let a = cuda.upload_sparse(&SparseOperand { csr, scales, symmetric: false, names: None }).unwrap();
    let x = cuda.zeros(Shape::new(csr.n_cols(), width), Dtype::Bf16).unwrap();
    let mut out = cuda.zeros(Shape::new(csr.n_rows(), width), Dtype::F32).unwrap();
    cuda.spmm((&a, Transpose::No), None, &x, Epilogue::default(), &mut out).unwrap();
    a
}

#[test]
fn blocks_are_those_that_the_host_builds() {
    // Whole blocks; rows and columns that end within a block; hubs of more than a segment; one row; a corner.
    let patterns = [(1024, 1024, 40, 0), (1000, 2111, 30, 3), (3001, 999, 12, 2), (1, 5000, 700, 1), (70, 33, 9, 0)];
    for kernel in [BlockKernel::Mma, BlockKernel::Paper] {
        for share in [0.0, 0.02, 0.3] {
            let Some(device) = device() else { return };
            let cuda = Cuda::new(device).tiling(Tiling::From(share)).multiplying_blocks_by(kernel).unwrap();
            for (n_rows, n_cols, degree, n_hubs) in patterns {
                let csr = pattern(n_rows, n_cols, degree, n_hubs);
                let a = split(&cuda, &csr, 16);
                let entries_min =
                    ((share * (kernel.layout().rows() * kernel.layout().cols()) as f64).ceil() as u32).max(1);
                let expected = BlockMatrix::from_csr(&csr, kernel.layout(), entries_min).unwrap();
                let what = format!("{kernel}, {share}, {n_rows} x {n_cols}");
                match (cuda.download_blocks(&a).unwrap(), cuda.split(&a)) {
                    (Some(found), Some(split)) => {
                        assert!(found == expected, "{what}");
                        assert_eq!(
                            (split.entries_min, split.n_blocks),
                            (entries_min, expected.first_cols().len()),
                            "{what}"
                        );
                        let coverage = 1.0 - expected.rest().nnz() as f64 / csr.nnz() as f64;
                        assert!((split.coverage - coverage).abs() < 1e-12, "{what}");
                    }
                    (found, split) => {
                        assert!(found.is_none() && split.is_none(), "{what}");
                        assert_eq!(expected.first_cols().len(), 0, "{what}");
                    }
                }
            }
        }
    }
}

/// Rows without memory, of numbers that both types store exactly.
struct Numbered(Shape);

impl HostRows for Numbered {
    fn shape(&self) -> Shape {
        self.0
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        out.iter_mut().enumerate().for_each(|(at, value)| *value = ((first * self.0.cols + at) * 7 % 251) as f32);
    }
}

#[test]
fn rows_that_the_host_decodes_are_gathered() {
    const N: usize = 3000;
    let Some(device) = device() else { return };
    let cuda = Cuda::new(device);
    let hottest: Vec<u32> = (0..N as u32).rev().collect();
    for (cols, dtype) in [(1, Dtype::F32), (7, Dtype::Bf16), (100, Dtype::F32), (129, Dtype::Bf16)] {
        let rows: Arc<dyn HostRows> = Arc::new(Numbered(Shape::new(N, cols)));
        for share in [None, Some(0.0), Some(0.3), Some(1.0)] {
            let shares = |every_gpu| CacheShares { every_gpu, one_gpu: 0.0 };
            let placement = share.map(|share| Placement::of_shares(&hottest, shares(share), 1));
            let store = cuda.decoded_rows(&rows, dtype, placement.as_ref()).unwrap();
            // Several gathers: buffers and lists are used again.
            for n in [0, 1, 2000, N, 17] {
                let ids: Vec<u32> = (0..n).map(|i| (i * 1009 % N) as u32).collect();
                let mut out = cuda.zeros(Shape::new(n, cols), dtype).unwrap();
                store.gather(&cuda, &cuda.upload_ids(&ids).unwrap(), &mut out).unwrap();
                let mut expected = vec![0.0; n * cols];
                rows.gather(&ids, &mut expected);
                assert!(
                    cuda.download(&out).unwrap().data() == expected,
                    "{n} × {cols}, {dtype:?}, {share:?} on the GPU"
                );
            }
        }
    }
    let long: Arc<dyn HostRows> = Arc::new(Numbered(Shape::new(3, 300_000)));
    let on_host = Placement::of_shares(&[0, 1, 2], CacheShares::default(), 1);
    let Err(error) = cuda.decoded_rows(&long, Dtype::F32, Some(&on_host)) else { panic!("longer than a buffer") };
    assert!(error.to_string().contains("place all rows on the device"), "{error}");
    let mut out = cuda.zeros(Shape::new(1, 300_000), Dtype::F32).unwrap();
    let store = cuda.decoded_rows(&long, Dtype::F32, None).unwrap();
    store.gather(&cuda, &cuda.upload_ids(&[2]).unwrap(), &mut out).unwrap();
    let mut expected = vec![0.0; 300_000];
    long.read(2, &mut expected);
    assert!(cuda.download(&out).unwrap().data() == expected);
}

#[test]
fn what_is_large_arrives_whole() {
    let Some(device) = device() else { return };
    let cuda = Cuda::new(device);
    // More than the pinned buffers hold at once, in rows that do not divide them.
    let (rows, cols) = (45_000, 1001);
    let values: Vec<f32> = (0..rows * cols).map(|i| (i % 8191) as f32 - 4000.0).collect();
    let host = Matrix::new(rows, cols, values).unwrap();
    let busy = cuda.zeros(Shape::new(1 << 18, 1 << 10), Dtype::F32).unwrap();
    let mut sums = cuda.zeros(Shape::new(1 << 18, 1 << 10), Dtype::F32).unwrap();
    // The device is busy before it reaches the first buffer: no buffer may be filled again meanwhile.
    for _ in piece(0..100) {
        cuda.add_scaled(1.0, &busy, &mut sums).unwrap();
    }
    let mut matrix = cuda.upload(&host, Dtype::F32).unwrap();
    assert!(cuda.download(&matrix).unwrap().data() == host.data());
    let other = Matrix::new(rows, cols, host.data().iter().map(|x| x + 0.5).collect::<Vec<_>>()).unwrap();
    cuda.write(&other, &mut matrix).unwrap();
    assert!(cuda.download(&matrix).unwrap().data() == other.data(), "what was there is overwritten");
    let rounded = cuda.download(&cuda.upload(&host, Dtype::Bf16).unwrap()).unwrap();
    assert!(rounded.data().iter().zip(host.data()).all(|(found, x)| (found - x).abs() <= x.abs() / 256.0));
}

#[test]
fn the_device_takes_as_long_as_its_memory_allows() {
    let Some(device) = device() else { return };
    let cuda = Cuda::new(device);
    let ceiling = cuda.copy_gb_s().unwrap();
    // Tools that instrument kernels make copies a hundred times slower.
    assert!((1.0..100_000.0).contains(&ceiling), "{ceiling} GB/s");
    let shape = Shape::new(1 << 18, 1 << 10);
    let (x, mut out) = (cuda.zeros(shape, Dtype::F32).unwrap(), cuda.zeros(shape, Dtype::F32).unwrap());
    // Run once before: kernels are compiled on first use.
    cuda.add_scaled(1.0, &x, &mut out).unwrap();
    let start = Instant::now();
    let seconds = cuda.elapsed(|| cuda.add_scaled(1.0, &x, &mut out)).unwrap();
    assert!(seconds <= start.elapsed().as_secs_f64(), "the device's clock counts what the host waits for");
    let gb_s = 3.0 * (shape.len() * size_of::<f32>()) as f64 / seconds / 1e9;
    // Pieces are asked for under tools alone, which slow copies more than kernels.
    let is_under_tool = std::env::var_os(PIECE).is_some();
    assert!(is_under_tool || gb_s < 2.0 * ceiling, "{gb_s} GB/s where copies reach {ceiling}");
}

#[test]
fn a_gpu_that_is_not_there_is_named() {
    let Err(error) = Device::open(4095) else { panic!("no machine has so many GPUs") };
    let message = error.to_string();
    assert!(message.contains("was not found") || message.contains("4095"), "{message}");
}
