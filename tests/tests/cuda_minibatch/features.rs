//! Feature stores: rows and codes on the device, in memory of the host, and of the batch before.

use std::time::{Duration, Instant};

use girih_compress::CompressedFeatures;
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Epilogue, Reference, Shape, SparseOperand, Transpose};
use girih_features::{CacheShares, FeatureDevice, FeatureStore, HostReads, Placement};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, NodeId, Scales};
use girih_kernels::Cuda;
use girih_tests::cuda;
use girih_trainer::parse_codec;

/// Placement of a share of `n_nodes` nodes, the last ones, on a device.
fn placement(n_nodes: NodeId, every_gpu: f64) -> Placement {
    let order: Vec<NodeId> = (0..n_nodes).rev().collect();
    Placement::of_shares(&order, CacheShares { every_gpu, one_gpu: 0.0 }, 1)
}

#[test]
fn rows_that_a_device_writes_to_the_host_are_read_as_they_were() {
    let Some(cuda) = cuda() else { return };
    for (cols, dtype) in [(16, Dtype::F32), (5, Dtype::F32), (40, Dtype::Bf16), (3, Dtype::Bf16)] {
        let values =
            |first: usize, n: usize| (first * cols..(first + n) * cols).map(|i| (i % 127) as f32 - 60.0).collect();
        let mut store = cuda.row_store(Shape::new(300, cols), dtype, false).unwrap().expect("memory of the host");
        for (first, n) in [(0, 130), (130, 1), (131, 169)] {
            let rows = cuda.upload(&Matrix::new(n, cols, values(first, n)).unwrap(), dtype).unwrap();
            store.write(&cuda, first, &rows).unwrap();
        }
        let ids: Vec<NodeId> = (0..500).map(|i| (i * 13 + 5) % 300).collect();
        let mut out = cuda.zeros(Shape::new(ids.len(), cols), dtype).unwrap();
        store.gather(&cuda, &cuda.upload_ids(&ids).unwrap(), &mut out).unwrap();
        let all: Vec<f32> = values(0, 300);
        let found = cuda.download(&out).unwrap();
        let as_written =
            |(row, &id): (usize, &NodeId)| found.row(row) == &all[id as usize * cols..(id as usize + 1) * cols];
        assert!(ids.iter().enumerate().all(as_written), "{cols} columns of {}", dtype.name());
        let other = if dtype == Dtype::F32 { Dtype::Bf16 } else { Dtype::F32 };
        for (first, n, cols, dtype) in [(299, 2, cols, dtype), (0, 1, cols + 1, dtype), (0, 1, cols, other)] {
            let rows = cuda.zeros(Shape::new(n, cols), dtype).unwrap();
            assert!(store.write(&cuda, first, &rows).is_err_and(|error| error.to_string().contains("a store of 300")));
        }
    }
    assert!(Cpu::new().row_store(Shape::new(1, 1), Dtype::F32, false).unwrap().is_none());
}

#[test]
fn rows_by_id_are_what_the_host_decodes() {
    let Some(cuda) = cuda() else { return };
    let ids: Vec<NodeId> = (0..700).map(|i| (i * 13 + 5) % 300).collect();
    for (width, codec) in [(600, "topk:8"), (300, "topk-residual:5"), (7, "topk:2"), (7, "topk:4"), (20, "topk:100")] {
        let values = (0..300 * width).map(|i| ((i * 7919 + 13) % 1009) as f32 / 64.0 - 8.0).collect::<Vec<_>>();
        let rows = Matrix::new(300, width, values).unwrap();
        let codes = CompressedFeatures::fitted(parse_codec(codec).unwrap().unwrap(), &rows, 1).unwrap();
        let on_device = cuda.upload_ids(&ids).unwrap();
        let mut expected = vec![0.0; ids.len() * width];
        codes.gather(&ids, &mut expected).unwrap();
        for (share, reads) in [
            (None, HostReads::Auto),
            (Some(0.0), HostReads::Staged),
            (Some(0.01), HostReads::Staged),
            (Some(1.0), HostReads::Staged),
            (Some(0.0), HostReads::InPlace),
            (Some(0.01), HostReads::InPlace),
        ] {
            let placement = share.map(|share| placement(300, share));
            let placed = placement.as_ref().map(|placement| (placement, reads));
            let reader = cuda.code_rows(&codes, Dtype::F32, placed).unwrap().expect("a code book");
            let mut out = cuda.zeros(Shape::new(ids.len(), width), Dtype::F32).unwrap();
            reader.gather(&cuda, &on_device, &mut out).unwrap();
            assert_eq!(cuda.download(&out).unwrap().data(), expected, "{codec} of {width} features");
            let mut halves = cuda.zeros(Shape::new(ids.len(), width), Dtype::Bf16).unwrap();
            assert!(reader.gather(&cuda, &on_device, &mut halves).is_err());
        }
        for (dtype, share, reads) in [
            (Dtype::F32, 0.5, HostReads::InPlace),
            (Dtype::F32, 0.5, HostReads::Staged),
            (Dtype::F32, 0.0, HostReads::Staged),
            (Dtype::Bf16, 0.5, HostReads::InPlace),
            (Dtype::Bf16, 0.5, HostReads::Staged),
            (Dtype::Bf16, 0.0, HostReads::Staged),
        ] {
            let far =
                cuda.host_features(&rows, dtype, (&placement(300, share), reads)).unwrap().expect("memory of the host");
            let mut out = cuda.zeros(Shape::new(ids.len(), width), dtype).unwrap();
            far.reader.gather_async(&cuda, &on_device, None, &mut out).unwrap().wait().unwrap();
            let mut on_host = vec![0.0; width];
            let all = cuda.download(&out).unwrap();
            assert!(ids.iter().enumerate().all(|(row, &id)| {
                far.on_host.read(id as usize, &mut on_host);
                all.row(row) == on_host
            }));
        }
    }
    let (one, nowhere) = (Matrix::new(1, 1, vec![1.0]).unwrap(), placement(1, 0.0));
    assert!(Cpu::new().host_features(&one, Dtype::F32, (&nowhere, HostReads::Auto)).unwrap().is_none());
}

/// Block of 90 rows: one is longer than rows that are split into segments, one is empty.
fn block(n_columns: usize) -> Csr {
    let columns_of = |row: usize| match row {
        0 => (0..n_columns).collect::<Vec<_>>(),
        1 => Vec::new(),
        _ => (0..row % 40).map(|k| (row * 7 + k * 13) % n_columns).collect(),
    };
    let entries = (0..90).flat_map(|row| columns_of(row).into_iter().map(move |column| (row as u32, column as u32)));
    let (rows, columns) = entries.unzip();
    let block = Coo::new(90, n_columns, rows, columns, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    assert!(block.degree(0) > 1024);
    block
}

#[test]
fn sums_of_codes_are_those_of_the_rows_that_they_stand_for() {
    let Some(cuda) = cuda() else { return };
    let ids: Vec<NodeId> = (0..1500).map(|i| (i * 13 + 5) % 300).collect();
    let plain = block(ids.len());
    let weights: Vec<f32> = (0..plain.nnz()).map(|e| 0.5 + (e % 5) as f32 / 4.0).collect();
    let weighted = plain.clone().with_values(Some(weights.into())).unwrap();
    let of_rows = Scales { left: Some((0..90).map(|row| 1.0 / (row + 1) as f32).collect()), right: None };
    let of_both = Scales { right: Some((0..1500).map(|column| (column % 7) as f32).collect()), ..of_rows.clone() };
    let blocks = [(&plain, Scales::default()), (&plain, of_rows), (&weighted, of_both)];
    for (width, codec, dtype) in [
        (600, "topk:8", Dtype::F32),
        (600, "topk:8", Dtype::Bf16),
        (300, "topk-residual:5", Dtype::F32),
        (300, "topk-residual:5", Dtype::Bf16),
        (7, "topk:2", Dtype::F32),
        // An odd number of bytes per row.
        (7, "topk:4", Dtype::F32),
        (20, "topk:100", Dtype::Bf16),
    ] {
        let values = (0..300 * width).map(|i| ((i * 7919 + 13) % 1009) as f32 / 64.0 - 8.0).collect::<Vec<_>>();
        let codes = parse_codec(codec).unwrap().unwrap();
        let codes = CompressedFeatures::fitted(codes, &Matrix::new(300, width, values).unwrap(), 1).unwrap();
        let on_device = cuda.upload_ids(&ids).unwrap();
        let mut decoded = cuda.zeros(Shape::new(ids.len(), width), dtype).unwrap();
        cuda.code_rows(&codes, dtype, None).unwrap().unwrap().gather(&cuda, &on_device, &mut decoded).unwrap();
        let rows = cuda.download(&decoded).unwrap();
        for (csr, scales) in &blocks {
            let operand = SparseOperand { csr, scales: scales.clone(), symmetric: false, names: None };
            let expected = Reference.upload_sparse(&operand).and_then(|block| {
                let x = Reference.upload(&rows, Dtype::F32)?;
                let mut out = Reference.zeros(Shape::new(90, width), Dtype::F32)?;
                Reference.spmm((&block, Transpose::No), None, &x, Epilogue::default(), &mut out)?;
                Reference.download(&out)
            });
            let (expected, block) = (expected.unwrap(), cuda.upload_sparse(&operand).unwrap());
            let mut first: Option<Matrix> = None;
            for (share, reads) in [
                (None, HostReads::Auto),
                (Some(0.0), HostReads::Staged),
                (Some(0.3), HostReads::Staged),
                (Some(1.0), HostReads::Staged),
                (Some(0.0), HostReads::InPlace),
                (Some(0.3), HostReads::InPlace),
            ] {
                let placement = share.map(|share| placement(300, share));
                let reader = cuda.code_rows(&codes, dtype, placement.as_ref().map(|placement| (placement, reads)));
                let reader = reader.unwrap().expect("a code book");
                let of_codes = reader.sums().expect("rows that fit");
                let mut own = cuda.zeros(Shape::new(90, width), dtype).unwrap();
                let mut sums = [(); 2].map(|()| cuda.zeros(Shape::new(90, width), dtype).unwrap());
                // Two requests are in flight at a time; the second one does not ask for the features of its own rows.
                let [first_codes, second_codes] = [(); 2].map(|()| of_codes.gather_async(&cuda, &on_device).unwrap());
                first_codes.wait(&cuda, (&block, &on_device), Some(&mut own), &mut sums[0]).unwrap();
                second_codes.wait(&cuda, (&block, &on_device), None, &mut sums[1]).unwrap();
                let what = format!("{codec} of {width} features as {}, {share:?}, {reads}", dtype.name());
                let [found, again] = sums.each_ref().map(|sums| cuda.download(sums).unwrap());
                assert_eq!(found.data(), again.data(), "{what}");
                assert_eq!(cuda.download(&own).unwrap().data(), &rows.data()[..90 * width], "{what}");
                assert_eq!(
                    found.data(),
                    first.get_or_insert(found.clone()).data(),
                    "where codes lie changes no bit: {what}"
                );
                let largest = expected.data().iter().fold(1.0, |most: f32, value| most.max(value.abs()));
                let bound = largest * if dtype == Dtype::F32 { 1e-5 } else { 5e-3 };
                let far = found.data().iter().zip(expected.data()).find(|(a, b)| (*a - *b).abs() > bound);
                assert!(far.is_none(), "{what}: {far:?}");
                // An output of the wrong shape is refused.
                let codes = of_codes.gather_async(&cuda, &on_device).unwrap();
                let mut narrow = cuda.zeros(Shape::new(90, width - 1), dtype).unwrap();
                assert!(codes.wait(&cuda, (&block, &on_device), None, &mut narrow).is_err());
            }
        }
    }
}

/// Rows that fill all pinned buffers several times over arrive complete, while those of the next batch are in flight.
/// The output memory holds other values before.
#[test]
fn buffers_are_not_written_while_they_are_read() {
    let Some(cuda) = cuda() else { return };
    let (n_rows, width) = (3000, 1021);
    let values = (0..n_rows * width).map(|i| (i % 8191) as f32).collect::<Vec<_>>();
    let rows = Matrix::new(n_rows, width, values).unwrap();
    for (share, reads, reuses_previous_batch) in [
        (0.0, HostReads::Staged, false),
        (0.3, HostReads::Staged, false),
        (0.3, HostReads::InPlace, false),
        (0.0, HostReads::Staged, true),
        (0.3, HostReads::Staged, true),
        (0.0, HostReads::InPlace, true),
        (0.3, HostReads::InPlace, true),
    ] {
        let far = cuda.host_features(&rows, Dtype::F32, (&placement(n_rows as NodeId, share), reads)).unwrap();
        let reader = far.expect("memory of the host").reader;
        let batches: Vec<Vec<NodeId>> =
            (1..=6).map(|b| (0..4000 * b).map(|i| ((i * 13 + b * 5) % n_rows) as NodeId).collect()).collect();
        let named: Vec<_> = batches.iter().map(|ids| cuda.upload_ids(ids).unwrap()).collect();
        let poisoned = |ids: &Vec<NodeId>| {
            let nan = Matrix::new(ids.len(), width, vec![f32::NAN; ids.len() * width]).unwrap();
            cuda.upload(&nan, Dtype::F32).unwrap()
        };
        let mut outs: Vec<_> = batches.iter().map(poisoned).collect();
        let mut next = Some(reader.gather_async(&cuda, &named[0], None, &mut outs[0]).unwrap());
        for at in 0..batches.len() {
            let pending = next.take().expect("the batch was begun");
            if at + 1 < batches.len() {
                let (done, rest) = outs.split_at_mut(at + 1);
                let before = reuses_previous_batch.then_some((&named[at], &done[at]));
                let begun = reader.gather_async(&cuda, &named[at + 1], before, &mut rest[0]).unwrap();
                assert_eq!(begun.reads_before(), reuses_previous_batch);
                next = Some(begun);
            }
            pending.wait().unwrap();
            let found = cuda.download(&outs[at]).unwrap();
            let is_whole = |(row, &id): (usize, &NodeId)| found.row(row) == rows.row(id as usize);
            assert!(
                batches[at].iter().enumerate().all(is_whole),
                "batch {at}, {share} on the device, {reads}, {reuses_previous_batch}"
            );
        }
        // Gathers that are not waited for; later work of the device comes after them.
        let mut out = poisoned(&batches[5]);
        drop(reader.gather_async(&cuda, &named[5], Some((&named[4], &outs[4])), &mut out).unwrap());
        drop(reader.gather_async(&cuda, &named[5], None, &mut outs[5]).unwrap());
        drop((next, out));
        drop(outs);
        drop(reader);
        cuda.synchronize().unwrap();
    }
}

/// Rows of the previous batch are reused, and no others. Rows that are on the GPU anyway may come from either place.
#[test]
fn rows_come_from_the_batch_before() {
    let Some(cuda) = cuda() else { return };
    let n_rows = 500;
    let first: Vec<NodeId> = (0..400).map(|i| (i * 7) % 250).collect();
    let second: Vec<NodeId> = (0..450).map(|i| (i * 11 + 3) % n_rows).collect();
    for (width, dtype) in [(3, Dtype::F32), (64, Dtype::F32), (21, Dtype::Bf16), (64, Dtype::Bf16)] {
        let values = (0..n_rows as usize * width).map(|i| (i % 251) as f32).collect::<Vec<_>>();
        let rows = Matrix::new(n_rows as usize, width, values).unwrap();
        // The sign tells reused rows from rows that are read elsewhere.
        let negative = |nodes: &[NodeId]| {
            let values = nodes.iter().flat_map(|&node| rows.row(node as usize)).map(|value| -value - 1.0);
            cuda.upload(&Matrix::new(nodes.len(), width, values.collect::<Vec<_>>()).unwrap(), dtype).unwrap()
        };
        let check = |reader: &dyn FeatureStore<Cuda>, is_on_gpu: &dyn Fn(NodeId) -> bool, what: &str| {
            let [ids, ids_before] = [&second, &first].map(|ids| cuda.upload_ids(ids).unwrap());
            let before = negative(&first);
            let mut out = cuda.zeros(Shape::new(second.len(), width), dtype).unwrap();
            // Positions that one list has recorded are cleared after it.
            for before in [Some((&ids_before, &before)), None, Some((&ids_before, &before))] {
                let pending = reader.gather_async(&cuda, &ids, before, &mut out).unwrap();
                assert_eq!(pending.reads_before(), before.is_some(), "{what}");
                pending.wait().unwrap();
                let found = cuda.download(&out).unwrap();
                for (at, &node) in second.iter().enumerate() {
                    let (plain, row) = (rows.row(node as usize), found.row(at));
                    let is_kept = row.iter().zip(plain).all(|(found, plain)| *found == -plain - 1.0);
                    let has_before = before.is_some() && node < 250;
                    assert!(is_kept || row == plain, "row {node}, {what}");
                    assert!(is_kept == has_before || is_on_gpu(node), "row {node}, {what}");
                }
            }
            let mut narrow = cuda.zeros(Shape::new(first.len(), width + 1), dtype).unwrap();
            assert!(reader.gather_async(&cuda, &ids, Some((&ids_before, &narrow)), &mut out).is_err());
            assert!(reader.gather_async(&cuda, &ids, None, &mut narrow).is_err());
        };
        for (share, reads) in
            [0.0, 0.3].into_iter().flat_map(|share| [HostReads::Staged, HostReads::InPlace].map(|reads| (share, reads)))
        {
            let placed = placement(n_rows, share);
            let n_on_gpu = (share * f64::from(n_rows)) as u32;
            let on_gpu: Vec<NodeId> = (0..n_on_gpu).map(|at| placed.node(at)).collect();
            let far = cuda.host_features(&rows, dtype, (&placed, reads)).unwrap().expect("memory of the host");
            let what = format!("{share} on the device, {reads}, {width} values of {}", dtype.name());
            check(&*far.reader, &|node| on_gpu.contains(&node), &what);
        }
        let mut store =
            cuda.row_store(Shape::new(n_rows as usize, width), dtype, false).unwrap().expect("memory of the host");
        store.write(&cuda, 0, &cuda.upload(&rows, dtype).unwrap()).unwrap();
        check(&*store, &|_| false, "written by the device");
        let on_gpus = cuda.host_features(&rows, dtype, (&placement(n_rows, 1.0), HostReads::Auto)).unwrap();
        let reader = on_gpus.expect("a placement").reader;
        let (ids, before) = (cuda.upload_ids(&first).unwrap(), negative(&first));
        let mut out = cuda.zeros(Shape::new(first.len(), width), dtype).unwrap();
        let pending = reader.gather_async(&cuda, &ids, Some((&ids, &before)), &mut out).unwrap();
        assert!(!pending.reads_before(), "nothing is far");
        pending.wait().unwrap();
        assert_eq!(cuda.download(&out).unwrap().row(0), rows.row(first[0] as usize));
    }
}

/// A step waits for the rows of its own batch, not for those of the next one, whose transfer it should hide. With a
/// wait for both, the first batch is never much earlier. A correct wait may be delayed by chance, so it is retried.
#[test]
fn rows_that_are_begun_later_hold_up_nothing() {
    let Some(cuda) = cuda() else { return };
    let (n_rows, width, tries) = (2000, 1024, 10);
    let rows = Matrix::new(n_rows, width, vec![1.0; n_rows * width]).unwrap();
    let ids = |n: usize| (0..n).map(|i| (i * 13 % n_rows) as NodeId).collect::<Vec<_>>();
    for (share, reads) in [(0.0, HostReads::InPlace), (0.3, HostReads::InPlace), (0.0, HostReads::Staged)] {
        let far = cuda.host_features(&rows, Dtype::F32, (&placement(n_rows as NodeId, share), reads)).unwrap();
        let reader = far.expect("memory of the host").reader;
        // The second request takes milliseconds.
        let batches = [16, 100_000].map(|n| (n, cuda.upload_ids(&ids(n)).unwrap()));
        let mut outs = batches.each_ref().map(|&(n, _)| cuda.zeros(Shape::new(n, width), Dtype::F32).unwrap());
        let mut first_and_both = || {
            cuda.synchronize().unwrap();
            let [first, second] = &mut outs;
            let both = [(&batches[0].1, first), (&batches[1].1, second)];
            let both = both.map(|(ids, out)| reader.gather_async(&cuda, ids, None, out).unwrap());
            let start = Instant::now();
            both.map(|pending| {
                pending.wait().unwrap();
                cuda.synchronize().unwrap();
                start.elapsed()
            })
        };
        let times: Vec<_> = (0..tries).map(|_| first_and_both()).collect();
        let is_sooner = |[first, both]: &[Duration; 2]| *first < *both / 2;
        assert!(times.iter().any(is_sooner), "{times:?}, {share} on the device, {reads}");
    }
}
