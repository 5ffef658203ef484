//! `girih compress` and `girih decompress`.

use girih_graph_format::file::{Array, write_npy};

use crate::girih::{SMALL, Workspace, assert_keys, girih, says};

/// Width of two column groups, one of them incomplete.
const WIDTH: usize = 300;

fn values(n_rows: usize) -> Vec<f32> {
    (0..n_rows * WIDTH).map(|i| ((i * 7919) % 1009) as f32 / 100.0 - 5.0).collect()
}

fn write_features(work: &Workspace, n_rows: usize) -> String {
    write_npy(&work.path("x.npy"), &[n_rows, WIDTH], &values(n_rows)).unwrap();
    work.arg("x.npy")
}

#[test]
fn features_come_back_as_their_codec_keeps_them() {
    let work = Workspace::new();
    let data = write_features(&work, 500);
    let (out, back) = (work.arg("store"), work.arg("back.npy"));
    let result = girih(&["compress", "--data", &data, "--codec", "f16", "--out", &out, "--json"]).ok().result();
    let keys = ["ratio", "bytes_in", "bytes_out", "seconds", "cosine_similarity_mean", "peak_host_bytes", "codec"];
    assert_keys(&result, &keys);
    assert_eq!((&result["rows"], &result["row_bytes"]), (&500.into(), &(2 * WIDTH).into()));
    assert_eq!(result["bytes_out"], std::fs::metadata(work.path("store/features.codes")).unwrap().len());

    girih(&["decompress", &out, "--out", &back]).ok();
    let array = Array::read(&work.path("back.npy")).unwrap();
    assert_eq!(array.shape(), [500, WIDTH]);
    let decoded = array.into_f32().unwrap();
    // Half precision keeps 11 bits.
    let near = |(found, value): (&f32, f32)| (found - value).abs() <= value.abs() / 2048.0;
    assert!(decoded.iter().zip(values(500)).all(near));
}

#[test]
fn a_code_book_keeps_the_extremes_of_each_group() {
    let work = Workspace::new();
    let (data, out, back) = (write_features(&work, 200), work.arg("store"), work.arg("back.npy"));
    let result = girih(&["compress", "--data", &data, "--codec", "topk:4", "--out", &out, "--json"]).ok().result();
    assert_eq!(result["row_bytes"], 2 * 2 * 4, "a byte for each of eight positions in two groups");
    girih(&["decompress", &out, "--out", &back]).ok();
    let decoded = Array::read(&work.path("back.npy")).unwrap().into_f32().unwrap();
    for row in decoded.chunks_exact(WIDTH) {
        assert_eq!(row.iter().filter(|value| **value != 0.0).count(), 16);
    }
}

#[test]
fn data_sets_of_any_format_can_be_compressed() {
    let work = Workspace::new();
    let shown = girih(&["compress", "--data", SMALL, "--codec", "int8", "--out", &work.arg("a")]).ok().out;
    assert!(shown.contains("int8") && shown.contains("Ratio"), "{shown}");
    let same = |out: &str, threads: &str| {
        let out = work.arg(out);
        girih(&["compress", "--data", SMALL, "--codec", "topk:2", "--threads", threads, "--out", &out]).ok();
        std::fs::read(std::path::Path::new(&out).join("features.codes")).unwrap()
    };
    assert_eq!(same("one", "1"), same("three", "3"));
}

#[test]
fn invalid_codecs_data_and_stores_are_refused() {
    let work = Workspace::new();
    let (data, out) = (write_features(&work, 50), work.arg("store"));
    let refused = |arguments: &[&str], code| girih(arguments).refused(code);
    let of =
        |codec: &str, data: &str, code| refused(&["compress", "--data", data, "--codec", codec, "--out", &out], code);
    assert!(says(&of("topk:0", &data, 2), "1 to 128"));
    assert!(says(&of("zip", &data, 2), "topk:K"));
    assert!(says(&of("topk:8", &work.arg("none.npy"), 1), "none.npy"));
    let mut bad = values(50);
    bad[3 * WIDTH + 2] = f32::NAN;
    write_npy(&work.path("nan.npy"), &[50, WIDTH], &bad).unwrap();
    let message = of("f16", &work.arg("nan.npy"), 1);
    assert!(says(&message, "row 3, column 2") && says(&message, "nan.npy: "), "{message}");
    assert!(!work.path("store/features.codes").exists(), "nothing that reads as complete");

    girih(&["compress", "--data", &data, "--out", &out]).ok();
    let file = work.path("store/features.codes");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let message = refused(&["decompress", &out, "--out", &work.arg("back.npy")], 1);
    assert!(says(&message, "checksum"), "{message}");
    std::fs::write(&file, &bytes[..last]).unwrap();
    assert!(says(&refused(&["decompress", &out, "--out", &work.arg("back.npy")], 1), "damaged or incomplete"));
    assert!(!work.path("back.npy").exists());
    assert!(says(&refused(&["decompress", &out, "--out", &work.arg("back.txt")], 2), "npy"));
}
