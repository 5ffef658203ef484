//! Rows beyond 2³¹ and 2³² entries in a folder whose other rows are holes. Readers of some rows must not read others.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use girih_datasets::{DataSource, LoadOptions, load};
use girih_graph_format::Csr;
use girih_graph_format::file::{Folder, Verify};
use girih_partition::{BlockPlan, Cuts, Patches, ProcessGrid, Scheme};
use girih_sampling::{
    Bias, DrawKey, DrawScratch, DrawnHop, Draws, Hop, Neighbors, NodeId, Patch, RandomWalks, WalkOptions, Walker,
};

/// Number of nodes, and of entries in each long row.
const NODES: usize = 1 << 20;
/// Rows below this index are long, except for [`NEAR`].
const LONG: usize = 4200;
/// Short rows, which begin at entry 2³¹.
const NEAR: Range<usize> = 2048..2060;
/// Short rows at the end, beyond entry 2³².
const FAR: Range<usize> = NODES - 1000..NODES;
/// Number of entries of a short row.
const SHORT: usize = 5;
/// Bytes of an array's header.
const HEADER: usize = 128;

fn degree(v: usize) -> u64 {
    match v {
        _ if NEAR.contains(&v) || FAR.contains(&v) => SHORT as u64,
        _ if v < LONG => NODES as u64,
        _ => 0,
    }
}

/// Neighbors of a short row, ascending.
fn sources(v: usize) -> Vec<NodeId> {
    let first = v * 7919 % (NODES - 5000);
    (0..SHORT).map(|i| (first + i * (1 + v % 1000)) as NodeId).collect()
}

fn weights(v: usize) -> Vec<f32> {
    (0..SHORT).map(|i| 1.0 + (v % 97) as f32 + i as f32).collect()
}

fn offsets() -> Vec<u64> {
    let mut sum = 0;
    std::iter::once(0)
        .chain((0..NODES).map(|v| {
            sum += degree(v);
            sum
        }))
        .collect()
}

/// Header of a one-dimensional array in NumPy's format.
fn header(descr: &str, len: u64) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({len},), }}");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{text:<117}\n").into_bytes());
    assert_eq!(bytes.len(), HEADER);
    bytes
}

/// Writes an array of four-byte values that are zero except for some rows. Returns whether the file has holes.
fn write_with_holes(path: &Path, descr: &str, offsets: &[u64], row: impl Fn(usize) -> Vec<[u8; 4]>) -> bool {
    let mut file = File::create(path).unwrap();
    file.write_all(&header(descr, offsets[NODES])).unwrap();
    for v in NEAR.chain(FAR) {
        file.seek(SeekFrom::Start(HEADER as u64 + 4 * offsets[v])).unwrap();
        file.write_all(&row(v).concat()).unwrap();
    }
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.len(), HEADER as u64 + 4 * offsets[NODES]);
    metadata.blocks() * 512 < metadata.len() / 16
}

/// Checksum of a file that is zero outside `data`, without reading the zeros.
fn checksum(path: &Path, data: &[Range<u64>]) -> u32 {
    let file = File::open(path).unwrap();
    let (mut whole, mut at) = (crc32fast::Hasher::new(), 0);
    for range in data {
        whole.combine(&zeros(range.start - at));
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, range.start).unwrap();
        whole.update(&bytes);
        at = range.end;
    }
    assert_eq!(at, file.metadata().unwrap().len());
    whole.finalize()
}

/// Checksum of `len` zero bytes, by repeated doubling.
fn zeros(len: u64) -> crc32fast::Hasher {
    let (mut sum, mut power) = (crc32fast::Hasher::new(), crc32fast::Hasher::new());
    power.update(&[0]);
    for bit in 0..u64::BITS - len.leading_zeros() {
        if len >> bit & 1 == 1 {
            sum.combine(&power);
        }
        let half = power.clone();
        power.combine(&half);
    }
    sum
}

/// Folder of the graph and its indptr; `None`, with a message, if the file system does not support holes.
fn folder() -> Option<(tempfile::TempDir, Vec<u64>)> {
    let (home, offsets) = (tempfile::tempdir().unwrap(), offsets());
    let path = |name: &str| home.path().join(name);
    let has_holes = write_with_holes(&path("indices.npy"), "<i4", &offsets, |v| {
        sources(v).into_iter().map(u32::to_le_bytes).collect()
    }) && write_with_holes(&path("values.npy"), "<f4", &offsets, |v| {
        weights(v).into_iter().map(f32::to_le_bytes).collect()
    });
    if !has_holes {
        println!("skipped: files in {} have no holes, and the graph would take 36 GB", home.path().display());
        return None;
    }
    let mut indptr = header("<i8", offsets.len() as u64);
    indptr.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
    std::fs::write(path("indptr.npy"), &indptr).unwrap();
    let place = |v: usize| HEADER as u64 + 4 * offsets[v];
    let data = [0..HEADER as u64, place(NEAR.start)..place(NEAR.end), place(FAR.start)..place(FAR.end)];
    let entry = |name: &str, data: &[Range<u64>]| {
        let path = path(&format!("{name}.npy"));
        let (bytes, crc32) = (path.metadata().unwrap().len(), checksum(&path, data));
        format!("[arrays.{name}]\nbytes = {bytes}\ncrc32 = {crc32}\n")
    };
    let manifest = format!(
        "format = \"girih-folder\"\nversion = 1\n{}{}{}[graph]\nn_rows = {NODES}\nn_cols = {NODES}\nnnz = {}\n\
         weighted = true\n[dataset]\nname = \"holes\"\ngenerated = true\nn_splits = 0\nfeatures = \"none\"\n\
         n_features = 0\nlabels = \"none\"\nn_classes = 0\n",
        entry("indptr", std::slice::from_ref(&(0..indptr.len() as u64))),
        entry("indices", &data),
        entry("values", &data),
        offsets[NODES]
    );
    std::fs::write(path("girih.toml"), manifest).unwrap();
    Some((home, offsets))
}

fn check_rows(rows: &Csr, nodes: Range<usize>) {
    assert_eq!((rows.n_rows(), rows.n_cols()), (nodes.len(), NODES));
    for (i, v) in nodes.enumerate() {
        assert_eq!(rows.degree(i), degree(v) as usize, "row {v}");
        let expected: Vec<(NodeId, f32)> =
            if degree(v) == 0 { Vec::new() } else { sources(v).into_iter().zip(weights(v)).collect() };
        assert_eq!(rows.row_entries(i).collect::<Vec<_>>(), expected, "row {v}");
    }
}

#[test]
fn rows_beyond_32_bits_are_read_sampled_and_shared_out() {
    let Some((home, offsets)) = folder() else { return };
    assert_eq!(offsets[NEAR.start], 1 << 31);
    assert!(offsets[FAR.start] > 1 << 32);
    let spec = home.path().to_str().unwrap();
    let options = LoadOptions { verify: Verify::Structure, ..LoadOptions::default() };
    let folder = Folder::open(home.path(), Verify::Structure).unwrap();
    assert_eq!(folder.graph_sizes().unwrap().nnz as u64, offsets[NODES]);
    let source = DataSource::open(spec, &options).unwrap();
    assert!(source.is_stored());
    assert_eq!(source.outline().n_edges as u64, offsets[NODES]);
    for nodes in [NEAR, NEAR.start + 3..NEAR.end, FAR, FAR.start - 7..FAR.end, FAR.end - 1..FAR.end] {
        check_rows(&folder.graph_rows(nodes.clone()).unwrap(), nodes.clone());
        check_rows(&source.graph_rows(nodes.clone()).unwrap(), nodes);
    }
    // A hole reads as zeros, which are no valid row.
    let refused = folder.graph_rows(LONG - 1..LONG + 1).unwrap_err().to_string();
    assert!(refused.contains("rows counted from 4199: row 0: column 0 is followed by 0"), "{refused}");
    check_cuts(&source.offsets().unwrap(), &offsets);
    for nodes in [NEAR, FAR] {
        check_draws(&source.graph_rows(nodes.clone()).unwrap(), nodes, &offsets);
    }
}

/// Checks that cuts by nodes and entries follow their definition.
fn check_cuts(found: &[u64], offsets: &[u64]) {
    assert_eq!(found, offsets);
    let share = |v: usize| 0.5 * (v as f64 / NODES as f64 + offsets[v] as f64 / offsets[NODES] as f64);
    let check = |bounds: &[usize]| {
        let n = bounds.len() - 1;
        assert_eq!((bounds[0], bounds[n]), (0, NODES));
        for (i, &bound) in bounds.iter().enumerate() {
            let target = i as f64 / n as f64;
            assert!(share(bound) >= target - 1e-12, "cut {i} of {n} at {bound}");
            assert!(bound == 0 || share(bound - 1) < target, "cut {i} of {n} at {bound}");
        }
    };
    for n in [2, 3, 8] {
        let patches = Patches::weighted(offsets, n).unwrap();
        check(&patches.bounds().iter().map(|&bound| bound as usize).collect::<Vec<_>>());
        let grid = ProcessGrid::new(Scheme::OneD, n, 1).unwrap();
        let plan = BlockPlan::of_graph(&grid, offsets, Cuts::Weighted).unwrap();
        check(&plan.panels.iter().map(|panel| panel.start).chain([NODES]).collect::<Vec<_>>());
    }
}

/// Checks that draws from some rows use edge ids of the whole graph, and otherwise equal draws from these rows alone.
fn check_draws(rows: &Csr, nodes: Range<usize>, offsets: &[u64]) {
    let first = nodes.start as NodeId;
    let patch = Patch::new(rows, first, offsets[nodes.start]).unwrap();
    let frontier: Vec<NodeId> = nodes.clone().rev().step_by(3).map(|v| v as NodeId).collect();
    let bias = Bias::of(rows).unwrap();
    for (draws, bias) in [(Draws::PerNode, None), (Draws::PerNode, Some(&bias)), (Draws::Labor, None)] {
        for neighbors in [Neighbors::Count(2), Neighbors::Count(20), Neighbors::All] {
            let key = DrawKey::new(1, 2, 3);
            let hop = Hop { frontier: &frontier, neighbors, draws, replace: false, edge_ids: true, key, number: 0 };
            let drawn = |patch: Patch<'_>| {
                let (mut scratch, mut drawn) = (DrawScratch::default(), DrawnHop::default());
                patch.draw(&hop, None, bias, &mut scratch, &mut drawn).unwrap();
                drawn
            };
            let far = drawn(patch);
            let near = drawn(Patch::new(rows, first, 0).unwrap());
            assert_eq!((&far.indptr, &far.sources), (&near.indptr, &near.sources));
            let shifted: Vec<u64> = near.edge_ids.iter().map(|edge| edge + offsets[nodes.start]).collect();
            assert_eq!(far.edge_ids, shifted);
            for (i, &node) in frontier.iter().enumerate() {
                for e in far.indptr[i] as usize..far.indptr[i + 1] as usize {
                    let place = far.edge_ids[e] - offsets[node as usize];
                    assert_eq!(far.sources[e], sources(node as usize)[place as usize]);
                }
            }
            assert!(draws == Draws::Labor || far.sources.len() >= 2 * frontier.len());
        }
    }
    let walks = RandomWalks::new(WalkOptions::new(4)).unwrap();
    for (number, &node) in frontier.iter().enumerate() {
        let mut walker = Walker::new(number as u32, node);
        let mut visited = Vec::new();
        walks.go_on(patch, None, &mut walker, DrawKey::new(1, 2, 3), &|_| false, |v| visited.push(v)).unwrap();
        assert!(sources(node as usize).contains(&visited[0]));
    }
}

/// Reads every byte, including holes, so it runs only with `GIRIH_LARGE`.
#[test]
fn checksums_of_files_beyond_32_bits_of_entries_are_compared() {
    if std::env::var_os(crate::whole::LARGE).is_none() {
        println!("skipped: set {} to a folder to read 36 GB of holes", crate::whole::LARGE);
        return;
    }
    let Some((home, offsets)) = folder() else { return };
    Folder::open(home.path(), Verify::Full).unwrap();
    // Loading all rows finds the zeros of the first hole.
    let options = LoadOptions { verify: Verify::Structure, ..LoadOptions::default() };
    let refused = load(home.path().to_str().unwrap(), &options).unwrap_err().to_string();
    assert!(refused.contains("row 0: column 0 is followed by 0"), "{refused}");
    let at = HEADER as u64 + 4 * (offsets[FAR.end - 1] + 2);
    let file = File::options().write(true).open(home.path().join("indices.npy")).unwrap();
    file.write_all_at(&[0xff], at).unwrap();
    let refused = Folder::open(home.path(), Verify::Full).unwrap_err().to_string();
    assert!(refused.contains("indices.npy") && refused.contains("checksum"), "{refused}");
}
