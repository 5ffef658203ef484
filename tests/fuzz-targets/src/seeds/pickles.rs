//! Seeds of pickles: Planetoid's files, assembled by hand, and splits that PyTorch wrote.

use std::path::Path;

use super::text::ogb_with;
use crate::Input;

/// Pickled small integer.
fn int(n: usize) -> Vec<u8> {
    [&b"J"[..], &(n as i32).to_le_bytes()].concat()
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&b"T"[..], &(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

/// Pickled tuple of integers.
fn shape(extents: &[usize]) -> Vec<u8> {
    let items: Vec<u8> = extents.iter().flat_map(|&n| int(n)).collect();
    [&b"("[..], &items, b"t"].concat()
}

/// NumPy array, as Python 2 pickles it.
fn array(extents: &[usize], dtype: &str, data: &[u8]) -> Vec<u8> {
    let start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01";
    let kind = [
        &b"cnumpy\ndtype\n"[..],
        &string(dtype.as_bytes()),
        b"K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
    ];
    [&start[..], &shape(extents), &kind.concat(), b"\x89", &string(data), b"tb"].concat()
}

fn ints(values: &[i32]) -> Vec<u8> {
    array(&[values.len()], "i4", &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
}

fn floats(values: &[f32]) -> Vec<u8> {
    array(&[values.len()], "f4", &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
}

fn pickle(value: &[u8]) -> Vec<u8> {
    [b"\x80\x02", value, b"."].concat()
}

/// CSR matrix with one entry per row.
fn csr(n_rows: usize, n_cols: usize) -> Vec<u8> {
    let entry = |key: &str, value: Vec<u8>| [string(key.as_bytes()), value].concat();
    let attributes = [
        entry("_shape", shape(&[n_rows, n_cols])),
        entry("indptr", ints(&(0..=n_rows as i32).collect::<Vec<_>>())),
        entry("indices", ints(&(0..n_rows).map(|v| (v % n_cols) as i32).collect::<Vec<_>>())),
        entry("data", floats(&vec![1.0; n_rows])),
    ];
    let object = b"ccopy_reg\n_reconstructor\ncscipy.sparse.csr\ncsr_matrix\nc__builtin__\nobject\nN\x87R}(";
    pickle(&[&object[..], &attributes.concat(), b"ub"].concat())
}

/// One-hot rows.
fn one_hot(n_rows: usize, n_classes: usize) -> Vec<u8> {
    let values = (0..n_rows * n_classes).map(|i| i32::from(i % n_classes == i / n_classes % n_classes));
    pickle(&array(&[n_rows, n_classes], "i4", &values.flat_map(i32::to_le_bytes).collect::<Vec<_>>()))
}

/// Ring as a dictionary of lists.
fn ring(n: usize) -> Vec<u8> {
    let node = |v: usize| [int(v), b"](".to_vec(), int((v + 1) % n), int((v + n - 1) % n), b"e".to_vec()].concat();
    let nodes: Vec<u8> = (0..n).flat_map(node).collect();
    pickle(&[&b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R("[..], &nodes, b"u"].concat())
}

/// Folder of eight nodes: three to train among six with features, two to test.
pub(crate) fn planetoid() -> Vec<Input> {
    let (width, classes) = (5, 3);
    let files = [
        ("ind.small.x", csr(3, width)),
        ("ind.small.tx", csr(2, width)),
        ("ind.small.allx", csr(6, width)),
        ("ind.small.y", one_hot(3, classes)),
        ("ind.small.ty", one_hot(2, classes)),
        ("ind.small.ally", one_hot(6, classes)),
        ("ind.small.graph", ring(8)),
        ("ind.small.test.index", b"7\n6\n".to_vec()),
    ];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    vec![Input::folder(&files)]
}

/// Folders of OGB whose splits are files of `torch.save`.
pub(crate) fn torch() -> Vec<Input> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/torch");
    let read = |name: &str| std::fs::read(golden.join(name)).expect("a file that PyTorch wrote");
    let ddi = golden.join("../ogb/ogbl_ddi");
    let files = ["raw/edge.csv.gz", "raw/num-node-list.csv.gz", "raw/num-edge-list.csv.gz"];
    let files = files.into_iter().chain(["split/target/train.pt", "split/target/valid.pt", "split/target/test.pt"]);
    let links: Vec<(&str, Vec<u8>)> =
        files.map(|name| (name, std::fs::read(ddi.join(name)).expect("a file of a miniature"))).collect();
    let links: Vec<(&str, &[u8])> = links.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    vec![
        Input::folder(&links),
        ogb_with(&[("split/target/train.pt", &read("legacy.pt"))]),
        ogb_with(&[("split/target/split_dict.pt", &read("dict_tensors.pt"))]),
        ogb_with(&[("split/target/split_dict.pt", &read("dict_numpy.pt"))]),
    ]
}
