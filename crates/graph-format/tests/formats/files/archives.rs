//! Archives of arrays, and SciPy's formats in them.

use super::*;

#[test]
fn scipy_formats_mean_the_same_matrix() {
    // [[0, 3], [5, 0], [1, 0]] in three formats; the csr one has unsorted columns and an entry in two parts.
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("m.npz");
    let expected = Csr::new(3, 2, vec![0, 1, 2, 3], vec![1, 0, 0], Some(vec![3.0, 5.0, 1.0].into())).unwrap();
    let save = |format: &str, arrays: &[(&str, &[i64])], data: &[f64]| {
        NpzWriter::write_file(&path, |npz| {
            npz.ascii("format", format)?;
            npz.array("shape", &[2], &[3i64, 2])?;
            npz.array("data", &[data.len()], data)?;
            arrays.iter().try_for_each(|(name, values)| npz.array(name, &[values.len()], values))
        })
        .unwrap();
        read_sparse_npz(&path)
    };
    let csr = save("csr", &[("indptr", &[0, 2, 3, 4]), ("indices", &[1, 1, 0, 0])], &[1.0, 2.0, 5.0, 1.0]);
    assert_eq!(csr.unwrap(), expected);
    let csc = save("csc", &[("indptr", &[0, 2, 3]), ("indices", &[2, 1, 0])], &[1.0, 5.0, 3.0]);
    assert_eq!(csc.unwrap(), expected);
    let coo = save("coo", &[("row", &[2, 0, 1]), ("col", &[0, 1, 0])], &[1.0, 3.0, 5.0]);
    assert_eq!(coo.unwrap(), expected);
    let bsr = save("bsr", &[], &[]).unwrap_err().to_string();
    assert!(bsr.contains("format \"bsr\"") && bsr.contains("m.npz"), "{bsr}");
    let missing = save("csr", &[("indptr", &[0, 0, 0, 0])], &[]).unwrap_err().to_string();
    assert!(missing.contains("no array \"indices\"") && missing.contains("indptr"), "{missing}");
    let short = save("csr", &[("indptr", &[0, 1]), ("indices", &[0])], &[1.0]).unwrap_err().to_string();
    assert!(short.contains("3 rows need 4"), "{short}");
    let few = save("csr", &[("indptr", &[0, 1, 2, 3]), ("indices", &[0, 1, 0])], &[1.0, 1.0]).unwrap_err().to_string();
    assert!(few.contains("2 weights"), "{few}");
    let ones = save("csr", &[("indptr", &[0, 1, 2, 2]), ("indices", &[0, 1])], &[1.0, 1.0]).unwrap();
    assert_eq!(ones.values(), None);
}

/// A shape takes memory for its rows, even if there are few entries.
#[test]
fn a_shape_out_of_all_proportion_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("m.npz");
    let all = i64::from(i32::MAX) - 1;
    for (format, arrays) in
        [("coo", [("row", &[0i64][..]), ("col", &[0])]), ("csc", [("indptr", &[0, 1]), ("indices", &[0])])]
    {
        NpzWriter::write_file(&path, |npz| {
            npz.ascii("format", format)?;
            npz.array("shape", &[2], &[all, if format == "coo" { all } else { 1 }])?;
            npz.array("data", &[1], &[1.0f64])?;
            arrays.iter().try_for_each(|(name, values)| npz.array(name, &[values.len()], values))
        })
        .unwrap();
        let refused = read_sparse_npz(&path).unwrap_err().to_string();
        assert!(refused.contains("2147483646 rows") && refused.contains("m.npz"), "{refused}");
    }
}

#[test]
fn a_member_that_claims_too_much_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x.npz");
    NpzWriter::write_file(&path, |npz| npz.array("a", &[1000], &[0u8; 1000])).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let size = 1128u32.to_le_bytes(); // A header of 128 bytes and the values.
    let places: Vec<usize> = (0..bytes.len() - 4).filter(|&at| bytes[at..at + 4] == size).collect();
    assert!(!places.is_empty(), "the archive declares the size of its member");
    for at in places {
        bytes[at..at + 4].copy_from_slice(&0xf000_0000u32.to_le_bytes());
    }
    let error = Npz::from_bytes(&path, bytes).and_then(|mut npz| npz.array("a")).unwrap_err();
    assert!(error.is_corrupt(), "{error}");
}

#[test]
fn real_archives_are_read() {
    let Some(data) = data_folder() else {
        println!("skipped: no folder of real data; set GIRIH_DATA");
        return;
    };
    let twitter = read_sparse_npz(&data.join("topology/ego-twitter.npz")).unwrap();
    assert_eq!((twitter.n_rows(), twitter.nnz()), (81_306, 2_684_606));
    assert!(twitter.is_symmetric());

    let mut npz = Npz::open(&data.join("tolokers/tolokers.npz")).unwrap();
    assert_eq!(npz.array("node_features").unwrap().expect_2d().unwrap(), (11_758, 10));
    assert_eq!(npz.array("train_masks").unwrap().expect_2d().unwrap().1, 11_758);

    let mut outer = Npz::open(&data.join("amazon-computers/amazon-computers.zip")).unwrap();
    let name = outer.members().iter().find(|m| m.ends_with(".npz")).unwrap().clone();
    let mut inner = outer.inner(&name).unwrap();
    let (computers, n_merged) =
        girih_graph_format::file::sparse_from_npz(&mut inner, "adj_", Duplicates::Refuse).unwrap();
    assert_eq!((computers.n_rows(), computers.nnz(), n_merged), (13_752, 287_209, 0));

    let mut gowalla = Npz::open(&data.join("gowalla/s_adj_mat.npz")).unwrap();
    assert_eq!(gowalla.array("format").unwrap().into_text().unwrap(), ["csr"]);
    let ddi = read_edge_list(&data.join("ogbl-ddi/raw/edge.csv.gz"), &with_n_nodes(4_267)).unwrap().edges;
    assert_eq!(ddi.len(), 1_067_911);
}
