//! `girih export` and `girih import`: weights that travel give the same predictions, and foreign files are refused.

use std::fs;

use girih_graph_format::file::{Array, Npz, Tensor, Tensors, write_tensors};

use crate::girih::{Workspace, girih, names_in, says};

/// Folder with data, and with a session of a model below `out`.
fn trained(flags: &[&str]) -> Workspace {
    let work = Workspace::new();
    girih(&["generate", "planted,nodes=60,degree=4,features=5,classes=3", "--out", &work.arg("data")]).ok();
    let (data, out) = (work.arg("data"), work.arg("out"));
    girih(&[&["train", &data, "--epochs", "4", "--out", &out][..], flags].concat()).ok();
    work
}

fn logits(work: &Workspace, checkpoint: &str) -> Vec<u8> {
    let (data, checkpoint, out) = (work.arg("data"), work.arg(checkpoint), work.arg("logits.npy"));
    girih(&["predict", &data, "--checkpoint", &checkpoint, "--logits", "--out", &out]).ok();
    fs::read(out).unwrap()
}

#[test]
fn weights_come_back_with_the_same_predictions() {
    let models: [&[&str]; 4] = [
        &["--model", "gcn", "--hidden", "7"],
        &["--model", "sage", "--layers", "3"],
        &["--model", "gat", "--heads", "3", "--hidden", "4"],
        &["--model", "gin"],
    ];
    for flags in models {
        let work = trained(flags);
        let expected = logits(&work, "out");
        for (format, file) in [("pyg", "w.safetensors"), ("dgl", "w.dgl"), ("npz", "w.npz"), ("hf", "hub")] {
            let (out, file, back) = (work.arg("out"), work.arg(file), work.arg(&format!("from-{format}")));
            let told =
                girih(&["export", "--checkpoint", &out, "--format", format, "--out", &file, "--json"]).ok().result();
            assert_eq!((&told["features"], &told["classes"]), (&5.into(), &3.into()), "{told}");
            let import = ["import", "--weights", &file, "--format", format, "--out", &back];
            let model = if format == "hf" { &[][..] } else { flags };
            girih(&[&import[..], model].concat()).ok();
            assert_eq!(names_in(&work.path(&format!("from-{format}"))), ["config.toml", "run-000.safetensors"]);
            assert_eq!(logits(&work, &format!("from-{format}")), expected, "{flags:?} by {format}");
            let again = girih(&[&import[..], model].concat()).refused(1);
            assert!(says(&again, &back), "a folder is not replaced: {again}");
        }
    }
}

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");

/// Names, shapes and values of a file of weights.
type Weights = Vec<(String, Vec<usize>, Vec<f32>)>;

/// Weights of a file `.npz` or `.safetensors`, by name.
fn weights_in(path: &str) -> Weights {
    let whole = |name: String, array: Array| (name, array.shape().to_vec(), array.into_f32().unwrap().to_vec());
    let mut weights: Weights = if path.ends_with("npz") {
        let mut archive = Npz::open(path.as_ref()).unwrap();
        let names: Vec<String> = archive.names().map(str::to_owned).collect();
        names.into_iter().map(|name| whole(name.clone(), archive.array(&name).unwrap())).collect()
    } else {
        let tensors = Tensors::open(path.as_ref()).unwrap();
        let read = |name: String| whole(name.clone(), tensors.try_array(&name).unwrap().unwrap());
        tensors.names().into_iter().map(read).collect()
    };
    weights.sort_by(|a, b| a.0.cmp(&b.0));
    weights
}

/// Imports the state dict of a library, compares its logits with the library's, and exports it again unchanged.
fn assert_agrees(library: &str, format: &str, extension: &str) {
    let data = format!("{GOLDEN}/pyg/data");
    for model in ["gcn", "sgc", "sage", "gat", "gatv2", "gin", "appnp", "mlp"] {
        let work = Workspace::new();
        let golden = |name: &str| format!("{GOLDEN}/{library}/{model}{name}");
        let (weights, again) = (golden(extension), work.arg(&format!("again{extension}")));
        let (session, found) = (work.arg("session"), work.arg("logits.npy"));
        girih(&["import", "--weights", &weights, "--format", format, "--model", model, "--out", &session]).ok();
        girih(&["predict", &data, "--checkpoint", &session, "--logits", "--out", &found]).ok();
        let logits = |path: &str| Array::read(path.as_ref()).unwrap().into_f32().unwrap().to_vec();
        let (found, expected) = (logits(&found), logits(&golden("-logits.npy")));
        assert_eq!(found.len(), expected.len());
        let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-5, "{model}: logits differ by {off}");
        girih(&["export", "--checkpoint", &session, "--format", format, "--out", &again]).ok();
        assert_eq!(weights_in(&again), weights_in(&weights), "{model}");
    }
}

/// As [`assert_agrees`], for the best items of each user by LightGCN.
fn assert_recommends_the_same(library: &str, format: &str, extension: &str) {
    let (work, data) = (Workspace::new(), format!("{GOLDEN}/pyg/ratings"));
    let golden = |name: &str| format!("{GOLDEN}/{library}/lightgcn{name}");
    let (weights, again) = (golden(extension), work.arg(&format!("again{extension}")));
    let (session, found) = (work.arg("session"), work.arg("items.npy"));
    let import = ["import", &data, "--weights", &weights, "--format", format, "--model", "lightgcn", "--hidden", "4"];
    girih(&[&import[..], &["--out", &session]].concat()).ok();
    girih(&["predict", &data, "--checkpoint", &session, "--out", &found]).ok();
    let items = |path: &str| Array::read(path.as_ref()).unwrap().into_i64().unwrap().to_vec();
    assert_eq!(items(&found), items(&golden("-items.npy")));
    girih(&["export", "--checkpoint", &session, "--format", format, "--out", &again]).ok();
    assert_eq!(weights_in(&again), weights_in(&weights));
}

/// State dicts of PyG, and the results of PyG's layers with them (`benches/peers/weights_pyg.py`).
#[test]
fn weights_of_pyg_give_the_results_of_pyg_and_go_back_unchanged() {
    assert_agrees("pyg", "npz", ".npz");
    assert_recommends_the_same("pyg", "npz", ".npz");
}

/// State dicts of DGL 2.1, and the results of DGL's layers with them (`benches/peers/weights_dgl.py`).
#[test]
fn weights_of_dgl_give_the_results_of_dgl_and_go_back_unchanged() {
    assert_agrees("dgl", "dgl", ".safetensors");
    assert_recommends_the_same("dgl", "dgl", ".safetensors");
}

#[test]
fn onnx_is_for_export_only() {
    let work = trained(&["--model", "gat"]);
    let (out, file) = (work.arg("out"), work.arg("model.onnx"));
    girih(&["export", "--checkpoint", &out, "--format", "onnx", "--out", &file]).ok();
    assert!(fs::read(&file).unwrap().windows(15).any(|bytes| bytes == b"ScatterElements"));
    let refused = girih(&["import", "--weights", &file, "--format", "onnx", "--out", &work.arg("back")]).refused(1);
    assert!(says(&refused, "ONNX is for export only") && !work.path("back").exists(), "{refused}");
}

#[test]
fn imported_weights_know_their_data_and_train_on() {
    let work = trained(&["--model", "gcn"]);
    let (data, file, back) = (work.arg("data"), work.arg("w.safetensors"), work.arg("back"));
    girih(&["export", "--checkpoint", &work.arg("out"), "--out", &file]).ok();
    // Weights beside the checkpoints are not taken for one.
    fs::copy(&file, work.path("out/weights.safetensors")).unwrap();
    girih(&["evaluate", &data, "--checkpoint", &work.arg("out")]).ok();
    girih(&["verify", &work.arg("out")]).ok();
    girih(&["import", &data, "--weights", &file, "--out", &back]).ok();
    // Data and settings are those of its config.toml.
    girih(&["evaluate", "--checkpoint", &back]).ok();
    girih(&["train", "--out", &back, "--resume", "--epochs", "3"]).ok();
    let other = girih(&["import", "synth:planted,nodes=50,features=4", "--weights", &file, "--out", &work.arg("no")]);
    assert!(says(&other.refused(1), "the weights are for 5 features"));
    assert!(!work.path("no").exists());
}

#[test]
fn what_has_no_counterpart_is_refused() {
    let work = trained(&["--model", "ngcn"]);
    let refused = girih(&["export", "--checkpoint", &work.arg("out"), "--out", &work.arg("w.safetensors")]).refused(1);
    assert!(says(&refused, "ngcn has no counterpart") && !work.path("w.safetensors").exists(), "{refused}");
}

#[test]
fn files_of_other_models_are_refused_by_name() {
    let work = trained(&["--model", "gcn"]);
    let file = work.path("w.safetensors");
    girih(&["export", "--checkpoint", &work.arg("out"), "--out", &work.arg("w.safetensors")]).ok();
    let bytes = fs::read(&file).unwrap();
    let import = |flags: &[&str]| {
        let (weights, out) = (work.arg("w.safetensors"), work.arg("back"));
        let message = girih(&[&["import", "--weights", &weights, "--out", &out][..], flags].concat()).refused(1);
        assert!(says(&message, "w.safetensors") && !work.path("back").exists(), "{message}");
        message
    };
    assert!(says(&import(&["--model", "sage"]), "convs.0"));
    assert!(says(&import(&["--layers", "1"]), "give --layers 2"));
    assert!(says(&import(&["--hidden", "9"]), "--hidden"));
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    import(&[]);
    let ints = vec![("convs.0.bias".to_owned(), Tensor::new::<i64>(&[16], vec![1i64; 16]))];
    write_tensors(&file, ints).unwrap();
    assert!(says(&import(&[]), "float32"));
    fs::write(&file, &bytes).unwrap();
    let tensors = Tensors::open(&file).unwrap();
    let names: Vec<String> = tensors.names();
    let with_nan = names.iter().map(|name| {
        let array = tensors.try_array(name).unwrap().unwrap();
        let (shape, mut values) = (array.shape().to_vec(), array.into_f32().unwrap().to_vec());
        values[0] = f32::NAN;
        (name.clone(), Tensor::new::<f32>(&shape, values))
    });
    let with_nan: Vec<_> = with_nan.collect();
    write_tensors(&work.path("nan.safetensors"), with_nan).unwrap();
    fs::rename(work.path("nan.safetensors"), &file).unwrap();
    assert!(says(&import(&[]), "value 0 is NaN"));
    let wrong = girih(&["export", "--checkpoint", &work.arg("out"), "--format", "onx", "--out", "w"]).refused(2);
    assert!(says(&wrong, "onx"), "{wrong}");
}
