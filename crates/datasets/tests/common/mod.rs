//! Helpers of the loader tests: paths of real files, small folders, and refusals that name their file.

#![allow(dead_code, reason = "each test program uses some of these")]

pub mod by_hand;
pub mod type_folders;

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use girih_datasets::{Dataset, LoadOptions, load};

/// Path of a real data set: below `GIRIH_DATA`, or below `shared/data` next to an ancestor of this package. Prints
/// that the test is skipped when it does not exist.
pub fn real(name: &str) -> Option<PathBuf> {
    let from_environment = std::env::var_os("GIRIH_DATA").map(PathBuf::from);
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("shared/data"));
    let found = from_environment.into_iter().chain(ancestors).map(|root| root.join(name)).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no {name} in shared/data or GIRIH_DATA");
    }
    found
}

/// Loads with the default options.
pub fn load_default(path: &Path) -> Dataset {
    load(path.to_str().unwrap(), &LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Message of a refusal, which must name a path below `path`.
pub fn refusal(path: &Path, options: &LoadOptions) -> String {
    let message = load(path.to_str().unwrap(), options).expect_err("this data must be refused").to_string();
    assert!(message.contains(path.to_str().unwrap()), "no file is named: {message}");
    message
}

/// Writes text, packed when the name ends in `.gz`; creates the folders above it.
pub fn write_text(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    if path.extension().is_some_and(|e| e == "gz") {
        let mut packed = GzEncoder::new(std::fs::File::create(path).unwrap(), Compression::default());
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap();
    } else {
        std::fs::write(path, text).unwrap();
    }
}

/// Writes an OGB raw folder of four nodes in text, with features, labels and one split, below `root`.
pub fn write_ogb_text(root: &Path, ending: &str) {
    for (name, text) in [
        ("raw/edge", "0,1\n2,1\n"),
        ("raw/num-node-list", "4\n"),
        ("raw/num-edge-list", "2\n"),
        ("raw/node-feat", "1,0.5\n0,1e-1\n0,0\n-2,3\n"),
        ("raw/node-label", "1\n\n0.0\nnan\n"),
        ("raw/node_year", "2012\n2013\n2014\n2015\n"),
        ("split/time/train", "2\n"),
        ("split/time/valid", "0\n"),
        ("split/time/test", "3\n1\n"),
    ] {
        write_text(&root.join(format!("{name}.{ending}")), text);
    }
}

/// Writes a raw folder of OGB with types in text, as ogbn-mag's: three authors, no field, two institutions, four papers.
pub fn write_mag_text(root: &Path) {
    for (name, text) in [
        ("raw/num-node-dict", "paper,author,institution,field\n4,3,2,0\n"),
        ("raw/nodetype-has-feat", "paper,author,institution,field\nTrue,False,False,False\n"),
        ("raw/nodetype-has-label", "paper,author,institution,field\nTrue,False,False,False\n"),
        (
            "raw/triplet-type-list",
            "author,writes,paper\nauthor,affiliated_with,institution\npaper,cites,paper\npaper,has_topic,field\n",
        ),
        ("raw/relations/author___affiliated_with___institution/edge", "0,0\n2,1\n"),
        ("raw/relations/author___affiliated_with___institution/num-edge-list", "2\n"),
        ("raw/relations/author___writes___paper/edge", "0,0\n0,1\n1,1\n2,3\n"),
        ("raw/relations/author___writes___paper/num-edge-list", "4\n"),
        ("raw/relations/author___writes___paper/edge_reltype", "0\n0\n0\n0\n"),
        ("raw/relations/paper___cites___paper/edge", "1,0\n2,0\n3,1\n"),
        ("raw/relations/paper___cites___paper/num-edge-list", "3\n"),
        ("raw/relations/paper___has_topic___field/edge", ""),
        ("raw/relations/paper___has_topic___field/num-edge-list", "0\n"),
        ("raw/node-feat/paper/node-feat", "1,0.5\n0,1e-1\n0,0\n-2,3\n"),
        ("raw/node-feat/paper/node_year", "2017\n2018\n2019\n2020\n"),
        ("raw/node-label/paper/node-label", "1\n\n0\n2\n"),
        ("split/time/nodetype-has-split", "paper,author,institution,field\nTrue,False,False,False\n"),
        ("split/time/paper/train", "2\n0\n"),
        ("split/time/paper/valid", "3\n"),
        ("split/time/paper/test", "1\n"),
    ] {
        write_text(&root.join(format!("{name}.csv.gz")), text);
    }
    write_text(&root.join("RELEASE_v2.txt"), "");
}

/// Name, type of storage, shape and values of a tensor.
pub type Tensor<'a> = (&'a str, &'a str, &'a [usize], &'a [i64]);

/// File as `torch.save` wrote it before PyTorch 1.6: a dictionary of tensors.
pub fn torch_dict(tensors: &[Tensor<'_>]) -> Vec<u8> {
    let text = |s: &str| [&b"X"[..], &(s.len() as u32).to_le_bytes(), s.as_bytes()].concat();
    let int = |n: usize| [&b"J"[..], &(n as i32).to_le_bytes()].concat();
    let tuple = |ns: &[usize]| [b"(".to_vec(), ns.iter().flat_map(|&n| int(n)).collect(), b"t".to_vec()].concat();
    let tensor = |(i, &(name, storage, shape, values)): (usize, &Tensor<'_>)| {
        let steps: Vec<usize> = (0..shape.len()).map(|d| shape[d + 1..].iter().product()).collect();
        let storage = format!("ctorch\n{storage}\n");
        [
            text(name),
            b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
            text("storage"),
            storage.into_bytes(),
            text(&i.to_string()),
            text("cpu"),
            int(values.len()),
            b"NtQ".to_vec(),
            int(0),
            tuple(shape),
            tuple(&steps),
            b"\x89ccollections\nOrderedDict\n)RtR".to_vec(),
        ]
        .concat()
    };
    let tensors_of: Vec<u8> = tensors.iter().enumerate().flat_map(tensor).collect();
    let keys: Vec<u8> = (0..tensors.len()).flat_map(|i| text(&i.to_string())).collect();
    let values = |&(_, storage, _, values): &Tensor<'_>| {
        let word = |v: &i64| match storage {
            "FloatStorage" => (*v as f32).to_le_bytes().to_vec(),
            _ => v.to_le_bytes().to_vec(),
        };
        let n = (values.len() as i64).to_le_bytes().to_vec();
        [n, values.iter().flat_map(word).collect()].concat()
    };
    [
        b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.\x80\x02}(".to_vec(),
        tensors_of,
        b"u.\x80\x02](".to_vec(),
        keys,
        b"e.".to_vec(),
        tensors.iter().flat_map(values).collect(),
    ]
    .concat()
}
