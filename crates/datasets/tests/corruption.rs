//! Damaged files: every loader either names the file in an error or returns a valid data set. It never allocates the
//! size that a damaged length claims.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::type_folders::{igb, mag};
use common::{real, write_mag_text, write_ogb_text, write_text};
use girih_datasets::{Dataset, LoadOptions, Names, OutputFormat, load};
use girih_graph_format::file::{NpzWriter, ReadTimes, Verify, write_edge_list, write_npy, write_sparse_npz};
use girih_random::{Key, Stream};

/// Largest memory block that a loader of such small files may allocate.
const LARGEST_BLOCK: usize = 128 << 20;
const MUTATIONS_PER_FILE: u64 = 40;

/// Allocator that records the largest requested block.
struct Recorder;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Recorder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Recorder = Recorder;

/// Truncates the file or flips one to three of its bits.
fn damaged(bytes: &[u8], stream: &mut Stream) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    if damaged.is_empty() || stream.below(3) == 0 {
        damaged.truncate(stream.below(bytes.len() as u64 + 1) as usize);
        return damaged;
    }
    for _ in 0..=stream.below(3) {
        // Half of the flips hit the first bytes, which hold lengths and types.
        let range = if stream.below(2) == 0 { bytes.len().min(256) } else { bytes.len() };
        damaged[stream.below(range as u64) as usize] ^= 1 << stream.below(8);
    }
    damaged
}

/// Loads `spec` repeatedly, each time with one of `files` damaged.
fn survive(spec: &Path, files: &[PathBuf], options: &LoadOptions, mutations: u64) {
    let home = if spec.is_dir() { spec } else { files[0].parent().unwrap() }.to_str().unwrap();
    let spec = spec.to_str().unwrap();
    load(spec, options).expect("the undamaged files load");
    let mut n_refused = 0;
    for (f, file) in files.iter().enumerate() {
        let original = std::fs::read(file).unwrap();
        for mutation in 0..mutations {
            let mut stream = Key::new(mutation, 1).stream(f as u64, 0);
            std::fs::write(file, damaged(&original, &mut stream)).unwrap();
            match load(spec, options) {
                Ok(dataset) => dataset.validate().unwrap(),
                Err(error) => {
                    n_refused += 1;
                    assert!(error.to_string().contains(home), "{file:?}, mutation {mutation}: no file named: {error}");
                }
            }
        }
        std::fs::write(file, original).unwrap();
    }
    assert!(n_refused > 0, "no damage was ever noticed in {files:?}");
    let largest = LARGEST.load(Relaxed);
    assert!(largest < LARGEST_BLOCK, "a block of {largest} bytes was asked for");
}

fn files_in(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn planetoid() {
    for name in ["cora", "citeseer"] {
        let Some(source) = real(name) else { return };
        let dir = tempfile::tempdir().unwrap();
        for file in files_in(&source) {
            std::fs::copy(&file, dir.path().join(file.file_name().unwrap())).unwrap();
        }
        survive(dir.path(), &files_in(dir.path()), &LoadOptions::default(), MUTATIONS_PER_FILE);
    }
}

#[test]
fn real_archives() {
    for name in ["amazon-computers/amazon-computers.zip", "tolokers/tolokers.npz"] {
        let Some(source) = real(name) else { return };
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join(source.file_name().unwrap());
        std::fs::copy(&source, &copy).unwrap();
        survive(&copy, std::slice::from_ref(&copy), &LoadOptions::default(), 12);
    }
}

#[test]
fn girih_folders() {
    for spec in
        ["synth:planted,nodes=120,degree=4,features=5", "synth:yelp@0.0002,features=4", "synth:rmat,scale=6,degree=4"]
    {
        let dir = tempfile::tempdir().unwrap();
        let saved = dir.path().join("saved");
        load(spec, &LoadOptions::default()).unwrap().save(&saved).unwrap();
        survive(&saved, &files_in(&saved), &LoadOptions::default(), MUTATIONS_PER_FILE);
    }
    let Some(cora) = real("cora") else { return };
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved");
    load(cora.to_str().unwrap(), &LoadOptions::default()).unwrap().save(&saved).unwrap();
    survive(&saved, &files_in(&saved), &LoadOptions::default(), MUTATIONS_PER_FILE);
}

#[test]
fn triples_with_tables_of_labels() {
    let dir = tempfile::tempdir().unwrap();
    let line =
        |i: usize| format!("<p:{}> <r:{}> <p:{}> .\n<p:{i}> <n:> \"name\\u00e9 {}\"@en .\n", i % 7, i % 3, i, i % 5);
    let graph: String = (0..60).map(line).collect();
    let table = |nodes: std::ops::Range<usize>| {
        let rows: String = nodes.map(|i| format!("p:{i}\t{i}\t\"class {}\"\n", i % 4)).collect();
        format!("person\tid\tlabel_class\n{rows}")
    };
    for (name, text) in [("graph.nt.gz", graph), ("trainingSet.tsv", table(0..30)), ("testSet.tsv", table(30..50))] {
        write_text(&dir.path().join(name), &text);
    }
    survive(dir.path(), &files_in(dir.path()), &LoadOptions::default(), 2 * MUTATIONS_PER_FILE);
}

#[test]
fn lists_with_features_of_edges() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        LoadOptions { times: ReadTimes::Required, edge_features: vec!["all".to_owned()], ..LoadOptions::default() };
    let jodie = dir.path().join("jodie.csv");
    let line = |i: usize| format!("{},{},{i}.0,0,{},-0.5\n", i % 7, i % 5, i % 3);
    let header = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n".to_owned();
    write_text(&jodie, &(header + &(0..60).map(line).collect::<String>()));
    survive(&jodie, std::slice::from_ref(&jodie), &options, 4 * MUTATIONS_PER_FILE);
    let movielens = dir.path().join("ml");
    let rating = |i: usize| format!("{}\t{}\t{}\t{}\n", i % 7 + 1, i % 5 + 1, i % 5, 881_250_949 + i);
    write_text(&movielens.join("u.data"), &(0..60).map(rating).collect::<String>());
    write_text(&movielens.join("u.info"), "7 users\n5 items\n60 ratings\n");
    survive(&movielens, &files_in(&movielens), &options, 2 * MUTATIONS_PER_FILE);
}

/// Folder of id pairs: 12 papers with words, their authors, classes and a split.
fn write_pairs(dir: &Path) {
    write_text(&dir.join("pa.txt"), &(0..30).map(|i| format!("{}\t{}\n", i % 12, i % 7)).collect::<String>());
    write_text(&dir.join("ps.txt"), &(0..12).map(|i| format!("{i}\t{}\n", i % 3)).collect::<String>());
    let words = load("synth:rmat,scale=4,degree=3", &LoadOptions::default()).unwrap().graph.row_slice(0..12);
    write_sparse_npz(&dir.join("p_feat.npz"), &words).unwrap();
    write_npy(&dir.join("a_feat.npz"), &[7, 3], &[0.5_f32; 21]).unwrap();
    write_npy(&dir.join("labels.npy"), &[12], &(0..12).map(|i| f64::from(i % 3)).collect::<Vec<_>>()).unwrap();
    for (part, ids) in [("train", 0..4_i64), ("val", 4..8), ("test", 8..12)] {
        write_npy(&dir.join(format!("{part}_20.npy")), &[4], &ids.collect::<Vec<_>>()).unwrap();
    }
}

#[test]
fn typed_data_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let pairs = dir.path().join("pairs");
    std::fs::create_dir(&pairs).unwrap();
    write_pairs(&pairs);
    survive(&pairs, &files_in(&pairs), &LoadOptions::default(), 2 * MUTATIONS_PER_FILE);
    let dataset = load(pairs.to_str().unwrap(), &LoadOptions::default()).unwrap();
    let names = (0..dataset.n_nodes()).map(|i| ["one", "two\\", "th\nree"][i % 3]).collect();
    let names = Names { nodes: names, classes: ["a", "b", "c"].map(String::from).to_vec() };
    let dataset = Dataset { names: Some(Arc::new(names)), ..dataset };
    for name in ["folder", "one.safetensors"] {
        let path = dir.path().join(name);
        dataset.save_as(OutputFormat::of(&path).unwrap(), &path).unwrap();
        let files = if path.is_dir() { files_in(&path) } else { vec![path.clone()] };
        for verify in [Verify::Full, Verify::Structure] {
            let options = LoadOptions { verify, ..LoadOptions::default() };
            survive(&path, &files, &options, if path.is_dir() { 1 } else { 8 } * MUTATIONS_PER_FILE);
        }
    }
}

#[test]
fn topologies_with_attached_arrays() {
    let dataset = load("synth:rmat,scale=6,degree=4", &LoadOptions::default()).unwrap();
    let n = dataset.n_nodes();
    for name in ["edges.csv", "edges.csv.gz", "matrix.npz"] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        if name.ends_with("npz") {
            write_sparse_npz(&path(name), &dataset.graph).unwrap();
        } else {
            write_edge_list(&path(name), &dataset.graph).unwrap();
        }
        survive(&path(name), &[path(name)], &LoadOptions::default(), 4 * MUTATIONS_PER_FILE);

        write_npy(&path("x.npy"), &[n, 2], &vec![0.5f32; 2 * n]).unwrap();
        write_npy(&path("y.npy"), &[n], &(0..n as i64).map(|v| v % 3).collect::<Vec<_>>()).unwrap();
        let (features, labels) = (Some(path("x.npy")), Some(path("y.npy")));
        let options = LoadOptions { features, labels, ..LoadOptions::default() };
        survive(&path(name), &[path("x.npy"), path("y.npy")], &options, 2 * MUTATIONS_PER_FILE);
    }
}

/// Cuts `file` after every `step`-th byte. Data that still loads must have every edge: files with counts are never
/// read partially.
fn survive_cuts(spec: &Path, file: &Path, step: usize, options: &LoadOptions) {
    let spec = spec.to_str().unwrap();
    let whole = load(spec, options).unwrap();
    let original = std::fs::read(file).unwrap();
    for length in (0..original.len()).step_by(step) {
        std::fs::write(file, &original[..length]).unwrap();
        match load(spec, options) {
            Ok(cut) => assert_eq!(cut.n_edges(), whole.n_edges(), "{file:?} cut to {length} bytes"),
            Err(error) => assert!(error.path().is_some(), "{file:?} cut to {length} bytes: {error}"),
        }
    }
    std::fs::write(file, original).unwrap();
}

#[test]
fn graphs_and_data_sets_in_one_file() {
    let dataset = load("synth:planted,nodes=120,degree=4,features=3", &LoadOptions::default()).unwrap();
    for name in ["a.mtx", "a.mtx.gz", "a.graph", "a.graph.gz", "a.safetensors"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        dataset.save_as(OutputFormat::of(&path).unwrap(), &path).unwrap();
        survive(&path, std::slice::from_ref(&path), &LoadOptions::default(), 4 * MUTATIONS_PER_FILE);
        survive_cuts(&path, &path, 7, &LoadOptions::default());
    }
}

#[test]
fn ogb_folders() {
    for ending in ["csv.gz", "csv"] {
        let dir = tempfile::tempdir().unwrap();
        write_ogb_text(dir.path(), ending);
        let mut files = files_in(&dir.path().join("raw"));
        files.retain(|file| !file.to_string_lossy().contains("node_year"));
        files.extend(files_in(&dir.path().join("split/time")));
        for file in &files {
            survive(dir.path(), std::slice::from_ref(file), &LoadOptions::default(), MUTATIONS_PER_FILE);
            survive_cuts(dir.path(), file, 1, &LoadOptions::default());
        }
    }
}

#[test]
fn typed_ogb_folders() {
    let dir = tempfile::tempdir().unwrap();
    write_mag_text(dir.path());
    for folder in ["raw", "raw/relations/author___writes___paper", "raw/node-label/paper", "split/time/paper"] {
        for file in files_in(&dir.path().join(folder)).iter().filter(|file| file.is_file()) {
            // What is not read may be damaged.
            if !file.ends_with("edge_reltype.csv.gz") {
                survive(dir.path(), std::slice::from_ref(file), &LoadOptions::default(), MUTATIONS_PER_FILE);
                survive_cuts(dir.path(), file, 1, &LoadOptions::default());
            }
        }
    }
}

#[test]
fn folders_of_types() {
    for (_home, folder) in [mag(), igb()] {
        let processed = folder.join("processed");
        let mut files = files_in(&folder);
        for below in std::fs::read_dir(&processed).unwrap() {
            files.extend(files_in(&below.unwrap().path()));
        }
        // What is not read may be damaged.
        let is_read = |file: &PathBuf| {
            let name = file.file_name().unwrap().to_string_lossy();
            file.is_file() && !["RELEASE", "mapping", "2K", "node_year"].iter().any(|unread| name.contains(unread))
        };
        for file in files.iter().filter(|file| is_read(file)) {
            survive(&folder, std::slice::from_ref(file), &LoadOptions::default(), MUTATIONS_PER_FILE);
            survive_cuts(&folder, file, 1, &LoadOptions::default());
        }
    }
    // Years make the split where there is none.
    let (_home, folder) = mag();
    std::fs::remove_file(folder.join("split_dict.pt")).unwrap();
    survive_cuts(&folder, &folder.join("processed/paper/node_year.npy"), 1, &LoadOptions::default());
}

#[test]
fn folders_of_arrays() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(format!("{name}.npy"));
    let n = 30;
    write_npy(&file("edge_index"), &[2, n], &(0..2 * n as i64).map(|i| i * 7 % n as i64).collect::<Vec<_>>()).unwrap();
    write_npy(&file("x"), &[n, 2], &vec![0.5f32; 2 * n]).unwrap();
    write_npy(&file("y"), &[n], &(0..n as i64).map(|v| v % 3).collect::<Vec<_>>()).unwrap();
    for (part, name) in ["train_mask", "val_mask", "test_mask"].into_iter().enumerate() {
        write_npy(&file(name), &[n], &(0..n).map(|v| u8::from(v % 3 == part)).collect::<Vec<_>>()).unwrap();
    }
    let files = files_in(dir.path());
    survive(dir.path(), &files, &LoadOptions::default(), MUTATIONS_PER_FILE);
    for file in &files {
        survive_cuts(dir.path(), file, 1, &LoadOptions::default());
    }
}

/// Checksums catch flipped bits of an archive; only wrong values in intact archives pass them.
#[test]
fn wrong_values_in_intact_archives() {
    let (n, n_edges) = (100usize, 99usize);
    let extremes = [-1, i64::MIN, i64::MAX, i64::from(i32::MAX), 1 << 33, 0, 1, 100, 12_345];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wrong.npz");
    let mut n_refused = 0;
    for trial in 0..400 {
        let mut stream = Key::new(trial, 2).stream(0, 0);
        let mut arrays: [(&str, Vec<i64>); 5] = [
            ("adj_indices", (1..n as i64).collect()),
            ("adj_indptr", (0..=n as i64).map(|v| v.min(n_edges as i64)).collect()),
            ("adj_shape", vec![n as i64; 2]),
            ("labels", (0..n as i64).map(|v| v % 2).collect()),
            ("attr_matrix", vec![1; n]),
        ];
        let (_, victim) = &mut arrays[stream.below(5) as usize];
        let at = stream.below(victim.len() as u64) as usize;
        victim[at] = extremes[stream.below(extremes.len() as u64) as usize];
        NpzWriter::write_file(&path, |npz| {
            npz.array("adj_data", &[n_edges], &vec![1.0f32; n_edges])?;
            arrays.iter().try_for_each(|(name, values)| {
                let shape = if *name == "attr_matrix" { vec![n, 1] } else { vec![values.len()] };
                npz.array(name, &shape, values)
            })
        })
        .unwrap();
        match load(path.to_str().unwrap(), &LoadOptions::default()) {
            Ok(dataset) => dataset.validate().unwrap(),
            Err(error) => {
                n_refused += 1;
                assert!(error.to_string().contains("wrong.npz"), "trial {trial}: no file named: {error}");
            }
        }
    }
    assert!(n_refused > 100, "only {n_refused} of 400 wrong archives were refused");
    let largest = LARGEST.load(Relaxed);
    assert!(largest < LARGEST_BLOCK, "a block of {largest} bytes was asked for");
}
