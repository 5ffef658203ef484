//! Blocks as matrices, and digests of batches.

use girih_sampling::{Block, Columns, MiniBatch};

fn block() -> Block {
    Block {
        nodes: vec![7, 2, 9],
        n_destinations: 2,
        n_columns: 3,
        indptr: vec![0, 3, 4],
        indices: vec![2, 0, 2, 1],
        edge_ids: vec![11, 10, 11, 4],
        weights: vec![],
        columns: Columns::Local,
    }
}

#[test]
fn a_matrix_counts_what_is_listed_twice() {
    let csr = block().to_csr().unwrap();
    assert_eq!((csr.n_rows(), csr.n_cols()), (2, 3));
    assert_eq!((csr.row(0), csr.row(1)), (&[0, 2][..], &[1][..]));
    assert_eq!(csr.values(), Some(&[1.0, 2.0, 1.0][..]));
    let simple = Block { indptr: vec![0, 2, 3], indices: vec![2, 0, 1], ..block() };
    assert_eq!(simple.to_csr().unwrap().values(), None);
    let weighted = Block { weights: vec![0.5, 3.0, 0.25, 2.0], ..block() };
    assert_eq!(weighted.to_csr().unwrap().values(), Some(&[3.0, 0.75, 2.0][..]));
}

#[test]
fn digests_differ_in_every_part() {
    let whole = MiniBatch { blocks: vec![block()] };
    assert_eq!(whole.digest(), whole.clone().digest());
    let changed = [
        Block { nodes: vec![7, 2, 8], ..block() },
        Block { n_destinations: 1, ..block() },
        Block { indptr: vec![0, 2, 4], ..block() },
        Block { indices: vec![0, 2, 2, 1], ..block() },
        Block { edge_ids: vec![], ..block() },
        Block { weights: vec![1.0; 4], ..block() },
        Block { weights: vec![1.0, 1.0, 1.0, 2.0], ..block() },
        Block { columns: Columns::Global, ..block() },
    ];
    for block in changed {
        assert_ne!(MiniBatch { blocks: vec![block] }.digest(), whole.digest());
    }
    assert_ne!(MiniBatch::default().digest(), whole.digest());
}
