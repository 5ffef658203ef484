//! Seeds of arrays: `.npy`, `.npz`, safetensors, folders.

use std::path::Path;

use girih_datasets::{Dataset, LoadOptions, Names, OutputFormat, load};
use girih_graph_format::file::{NpzWriter, write_npy, write_sparse_npz};

use super::{planted, written, written_one};
use crate::Input;

pub(crate) fn npy() -> Vec<Input> {
    let array = |write: &dyn Fn(&Path)| written_one("x.npy", write);
    vec![
        array(&|path| write_npy(path, &[2, 3], &[1.0f32, -2.0, 0.5, 0.0, 3.0, 1e9]).expect("a file")),
        array(&|path| write_npy(path, &[5], &[0i64, 1, 2, 2, 4]).expect("a file")),
        array(&|path| write_npy(path, &[4, 1], &[0u8, 1, 1, 0]).expect("a file")),
        array(&|path| write_npy(path, &[2, 2], &[1.0f64, 2.0, 3.0, 1e300]).expect("a file")),
        array(&|path| write_npy(path, &[0], &[0i32; 0]).expect("a file")),
        Input::one("x.npy", text_array()),
    ]
}

/// Array of strings, as NumPy writes it in version 2.
fn text_array() -> Vec<u8> {
    let header = b"{'descr': '|S3', 'fortran_order': False, 'shape': (2,), }  \n";
    [&b"\x93NUMPY\x02\x00"[..], &(header.len() as u32).to_le_bytes(), header, b"csra\0\0"].concat()
}

const N: usize = 12;

/// Archive of the heterophilous graphs.
fn heterophilous(path: &Path) {
    let mask = |part: usize| (0..N).map(|v| u8::from(v % 3 == part)).collect::<Vec<u8>>();
    let written = NpzWriter::write_file(path, |npz| {
        npz.array("node_features", &[N, 2], &[0.5f32; 2 * N])?;
        npz.array("node_labels", &[N], &(0..N as i64).map(|v| v % 2).collect::<Vec<_>>())?;
        npz.array("edges", &[3, 2], &[0i64, 1, 1, 2, 3, 4])?;
        npz.array("train_masks", &[1, N], &mask(0))?;
        npz.array("val_masks", &[1, N], &mask(1))?;
        npz.array("test_masks", &[1, N], &mask(2))
    });
    written.expect("a file");
}

/// Archive of gnn-benchmark.
fn gnn_benchmark(path: &Path) {
    let written = NpzWriter::write_file(path, |npz| {
        npz.array("adj_data", &[N - 1], &[1.0f32; N - 1])?;
        npz.array("adj_indices", &[N - 1], &(1..N as i32).collect::<Vec<_>>())?;
        npz.array("adj_indptr", &[N + 1], &(0..=N as i32).map(|v| v.min(N as i32 - 1)).collect::<Vec<_>>())?;
        npz.array("adj_shape", &[2], &[N as i64; 2])?;
        npz.array("attr_matrix", &[N, 1], &[1.0f32; N])?;
        npz.array("labels", &[N], &(0..N as i64).map(|v| v % 2).collect::<Vec<_>>())
    });
    written.expect("a file");
}

/// Matrix as a list of entries.
fn coo(path: &Path) {
    let written = NpzWriter::write_file(path, |npz| {
        npz.ascii("format", "coo")?;
        npz.array("shape", &[2], &[4i64, 4])?;
        npz.array("row", &[3], &[0i32, 1, 3])?;
        npz.array("col", &[3], &[1i32, 0, 2])?;
        npz.array("data", &[3], &[1.0f64, 1.0, 2.0])
    });
    written.expect("a file");
}

pub(crate) fn npz() -> Vec<Input> {
    let inner = written_one("inner.npz", gnn_benchmark).files.remove(0);
    let zip = crate::mutate::packed::archive(&[("data/inner.npz".to_owned(), inner.bytes)], false);
    vec![
        written_one("a.npz", |path| write_sparse_npz(path, &planted().graph).expect("a file")),
        written_one("a.npz", heterophilous),
        written_one("a.npz", gnn_benchmark),
        written_one("a.npz", coo),
        Input::one("a.zip", zip.expect("an archive")),
    ]
}

pub(crate) fn tensors() -> Vec<Input> {
    let save = |path: &Path| planted().save_as(OutputFormat::of(path).expect("a format"), path).expect("a file");
    vec![written_one("data.safetensors", save)]
}

/// Named arrays, as exported from PyG.
pub(crate) fn folder() -> Vec<Input> {
    let edges: Vec<i64> = (0..2 * N as i64).map(|i| i * 7 % N as i64).collect();
    let pyg = written(|folder| {
        let file = |name: &str| folder.join(format!("{name}.npy"));
        write_npy(&file("edge_index"), &[2, N], &edges).expect("a file");
        write_npy(&file("x"), &[N, 2], &[0.5f32; 2 * N]).expect("a file");
        write_npy(&file("y"), &[N], &(0..N as i64).map(|v| v % 3).collect::<Vec<_>>()).expect("a file");
        write_npy(&file("num_nodes"), &[], &[N as i64]).expect("a file");
        write_npy(&file("num_classes"), &[], &[3i64]).expect("a file");
        write_npy(&file("train_mask"), &[N], &[1u8; N]).expect("a file");
    });
    let dgl = written(|folder| {
        let file = |name: &str| folder.join(format!("{name}.npy"));
        write_npy(&file("indptr"), &[N + 1], &(0..=N as i64).collect::<Vec<_>>()).expect("a file");
        write_npy(&file("indices"), &[N], &(0..N as i64).map(|v| (v + 1) % N as i64).collect::<Vec<_>>())
            .expect("a file");
        write_npy(&file("edge_attr"), &[N, 1], &[0.5f32; N]).expect("a file");
        write_npy(&file("label"), &[N, 2], &[1u8; 2 * N]).expect("a file");
        write_npy(&file("test_idx"), &[2], &[1i64, 2]).expect("a file");
    });
    let bare = written(|folder| {
        write_npy(&folder.join("edge_index.npy"), &[2, N], &edges).expect("a file");
        write_npy(&folder.join("num_nodes.npy"), &[], &[N as i64]).expect("a file");
    });
    vec![pyg, dgl, bare]
}

/// Folders of girih: dense and sparse features, codes, several labels, users and items.
pub(crate) fn girih() -> Vec<Input> {
    let saved = |spec: &str, options: &LoadOptions| {
        let dataset = load(spec, options).expect("a small data set");
        let folder = tempfile::tempdir().expect("a temporary folder");
        dataset.save(&folder.path().join("data")).expect("a folder");
        Input::read(&folder.path().join("data"))
    };
    let coded = LoadOptions { codec: Some("int8".parse().expect("a codec")), ..LoadOptions::default() };
    let lightgcn = tempfile::tempdir().expect("a temporary folder");
    let users = super::text::lightgcn().remove(0).write(&lightgcn.path().join("x"), crate::Form::Folder);
    let users = users.expect("a folder");
    vec![
        saved(
            "synth:planted,nodes=12,degree=3,features=3,classes=3",
            &LoadOptions { n_splits: 2, ..LoadOptions::default() },
        ),
        saved("synth:planted,nodes=12,degree=3,features=3,classes=3", &coded),
        saved("synth:yelp@0.00003,features=4,degree=3", &LoadOptions::default()),
        saved("synth:rmat,scale=4,degree=2", &LoadOptions::default()),
        saved(&users.to_string_lossy(), &LoadOptions::default()),
    ]
}

/// Id pairs: papers with words and classes, their authors, and a subject without features.
pub(crate) fn pairs() -> Vec<Input> {
    let folder = |folder: &Path| {
        let file = |name: &str| folder.join(name);
        std::fs::write(file("pa.txt"), "0\t0\n1\t1\n\n2 1\n5\t0\n").expect("a file");
        std::fs::write(file("ps.txt"), "0\t0\n1\t2\n").expect("a file");
        let words = planted().graph.row_slice(0..6);
        write_sparse_npz(&file("p_feat.npz"), &words).expect("a file");
        write_npy(&file("a_feat.npz"), &[2, 3], &[0.5f32; 6]).expect("a file");
        write_npy(&file("labels.npy"), &[6], &[0.0f64, 1.0, 2.0, 0.0, 1.0, 2.0]).expect("a file");
        for (part, ids) in [("train", [0i64, 1]), ("val", [2, 3]), ("test", [4, 5])] {
            write_npy(&file(&format!("{part}_20.npy")), &[2], &ids).expect("a file");
        }
    };
    vec![written(folder)]
}

/// Folders of types in the layouts of MAG240M and of IGBH.
pub(crate) fn type_folders() -> Vec<Input> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/torch");
    let copy = |name: &str, to: &Path| {
        std::fs::copy(golden.join(name), to).expect("a file that PyTorch wrote");
    };
    let nodes = |folder: &Path, labels: &str| {
        std::fs::create_dir_all(folder.join("processed/paper")).expect("a folder");
        write_npy(&folder.join("processed/paper/node_feat.npy"), &[6, 1], &[0.5f32; 6]).expect("a file");
        let classes = [0.0f32, 1.0, f32::NAN, 0.0, 1.0, 2.0];
        write_npy(&folder.join("processed/paper").join(labels), &[6], &classes).expect("a file");
    };
    let edges = |folder: &Path, name: &str, shape: [usize; 2], ids: [i64; 6]| {
        std::fs::create_dir_all(folder.join("processed").join(name)).expect("a folder");
        write_npy(&folder.join("processed").join(name).join("edge_index.npy"), &shape, &ids).expect("a file");
    };
    let mag = |folder: &Path, split: &str| {
        nodes(folder, "node_label.npy");
        edges(folder, "author___writes___paper", [2, 3], [0, 1, 1, 0, 3, 5]);
        copy(split, &folder.join("split_dict.pt"));
    };
    let igb = |folder: &Path| {
        nodes(folder, "node_label_19.npy");
        edges(folder, "paper__cites__paper", [3, 2], [0, 1, 4, 1, 5, 0]);
        edges(folder, "paper__written_by__author", [3, 2], [0, 1, 4, 0, 5, 0]);
        copy("tensor_i64.pt", &folder.join("processed/train_idx.pt"));
    };
    vec![written(|folder| mag(folder, "dict_tensors.pt")), written(|folder| mag(folder, "dict_numpy.pt")), written(igb)]
}

/// Typed data, with names of nodes.
fn typed() -> Dataset {
    let home = tempfile::tempdir().expect("a temporary folder");
    let folder = pairs().remove(0).write(&home.path().join("pairs"), crate::Form::Folder).expect("a folder");
    let data = load(&folder.to_string_lossy(), &LoadOptions::default()).expect("a small data set");
    let nodes = (0..data.n_nodes()).map(|node| ["one", "back\\slash", "two\nlines"][node % 3]).collect();
    let names = Names { nodes, classes: ["a", "b", "c"].map(String::from).to_vec() };
    Dataset { names: Some(names.into()), ..data }
}

/// Typed data in girih's folder.
pub(crate) fn typed_folder() -> Vec<Input> {
    let home = tempfile::tempdir().expect("a temporary folder");
    typed().save(&home.path().join("data")).expect("a folder");
    vec![Input::read(&home.path().join("data"))]
}

/// Typed data as named arrays.
pub(crate) fn typed_arrays() -> Vec<Input> {
    let save = |path: &Path| typed().save_as(OutputFormat::of(path).expect("a format"), path).expect("a file");
    vec![written_one("typed.safetensors", save)]
}
