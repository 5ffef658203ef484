//! All targets: each is a parser with its inputs and its memory bound.

mod loaders;
mod ranks;
#[cfg(feature = "trainer")]
mod trained;
mod values;

use std::path::Path;

use crate::seeds::{arrays, pickles, state, text};
use crate::{Form, Input, peak_during};

/// Memory bound for reading an input: `per_byte` times the unpacked bytes of its files, plus `constant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Bytes of memory per byte of the files.
    pub per_byte: usize,
    /// Bytes of memory for any input.
    pub constant: usize,
}

impl Bound {
    /// Bound in bytes for files of `bytes` bytes.
    #[must_use]
    pub fn of(self, bytes: u64) -> u64 {
        (self.per_byte as u64).saturating_mul(bytes).saturating_add(self.constant as u64)
    }
}

/// Parser, its inputs, and the laws that hold for any input.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name, also of the libFuzzer program.
    pub name: &'static str,
    /// Form of its inputs.
    pub form: Form,
    /// Inputs that are read without an error.
    pub seeds: fn() -> Vec<Input>,
    /// Words of its formats.
    pub words: &'static [&'static str],
    /// Memory bound.
    pub bound: Bound,
    /// Whether truncated binary files must be refused.
    pub whole: bool,
    /// Reads the input, whose files are at the path. Returns the message of a refusal.
    run: fn(&Path, &Input) -> Result<(), String>,
}

/// Outcome of reading an input.
#[derive(Debug)]
pub struct Outcome {
    /// Message of the refusal, if the input was refused.
    pub refused: Option<String>,
    /// Peak memory in bytes; `None` if memory is not counted.
    pub peak: Option<usize>,
    /// Number of bytes of the files, unpacked.
    pub bytes: u64,
}

impl Target {
    /// Reads an input, which is written below `scratch` if the parser reads files.
    ///
    /// # Panics
    /// When a law is broken: by a panic of the parser, by a refusal that does not name the file, or by memory use.
    #[must_use]
    pub fn run(&self, input: &Input, scratch: &Path) -> Outcome {
        let folder = scratch.join(self.name);
        let path = match self.form {
            Form::Memory(_) => folder,
            _ => input.write(&folder, self.form).expect("the scratch folder can be written"),
        };
        let (result, peak) = peak_during(|| (self.run)(&path, input));
        let bytes = input.unpacked_bytes();
        if let Some(peak) = peak {
            let most = self.bound_for(input).of(bytes);
            assert!(peak as u64 <= most, "{}: {peak} bytes of memory for {bytes} bytes, at most {most}", self.name);
        }
        if let (Err(message), false) = (&result, matches!(self.form, Form::Memory(_))) {
            let scratch = scratch.to_string_lossy();
            assert!(message.contains(&*scratch), "{}: no file is named: {message}", self.name);
        }
        Outcome { refused: result.err(), peak, bytes }
    }
}

/// Suffixes of the file names of a Planetoid data set.
const PLANETOID_PARTS: [&str; 8] = [".x", ".y", ".tx", ".ty", ".allx", ".ally", ".graph", ".test.index"];

impl Target {
    /// Bound of an input. A Planetoid folder whose files have other names is read by extension, perhaps as a graph.
    fn bound_for(&self, input: &Input) -> Bound {
        let has_part = |name: &str| PLANETOID_PARTS.iter().any(|part| name.ends_with(part));
        let is_pickle = |name: &str| name.starts_with("ind.") && has_part(name);
        match self.bound {
            PICKLE if !input.files.iter().all(|file| is_pickle(&file.name)) => GRAPH,
            bound => bound,
        }
    }
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// One byte of a pickle can create an object.
const PICKLE: Bound = Bound { per_byte: 512, constant: 4 * MIB };
/// Bound for graphs as text: up to 100 nodes per edge, or 2²⁴ nodes of 64 bytes for any number of edges.
const GRAPH: Bound = Bound { per_byte: KIB, constant: KIB * MIB };
/// Bound for graphs as arrays, whose number of nodes may be stated separately, up to 2²⁴.
const ARRAYS: Bound = Bound { per_byte: 64, constant: KIB * MIB };
/// Bound for arrays whose numbers must match their bytes.
const VALUES: Bound = Bound { per_byte: 64, constant: 4 * MIB };
/// Bound for short texts and headers.
const SMALL: Bound = Bound { per_byte: 256, constant: 4 * MIB };

/// All targets.
#[must_use]
pub fn targets() -> Vec<Target> {
    let graph_text =
        |name, form, seeds, words, run| Target { name, form, seeds, words, bound: GRAPH, whole: false, run };
    let binary = |name, form, seeds, words, bound, run| Target { name, form, seeds, words, bound, whole: true, run };
    let mut all = vec![
        graph_text("edge_list", Form::One("edges.csv"), text::edge_lists, words::EDGE_LIST, loaders::edge_list),
        graph_text("matrix_market", Form::One("matrix.mtx"), text::matrix_market, words::MATRIX_MARKET, loaders::one),
        graph_text("metis", Form::One("metis.graph"), text::metis, words::METIS, loaders::one),
        graph_text("lightgcn", Form::Folder, text::lightgcn, words::NUMBERS, loaders::one),
        graph_text("movielens", Form::Folder, text::movielens, words::NUMBERS, loaders::movielens),
        graph_text("ntriples", Form::Folder, text::ntriples, words::NTRIPLES, loaders::one),
        graph_text("tables", Form::Folder, text::tables, words::TABLE, loaders::tables),
        binary("packed_text", Form::Any, text::packed, words::EDGE_LIST, GRAPH, loaders::one),
        binary("ogb", Form::Folder, text::ogb, words::PICKLE, GRAPH, loaders::one),
        binary("ogb_typed", Form::Folder, text::ogb_typed, words::TABLE, GRAPH, loaders::one),
        binary("type_folders", Form::Folder, arrays::type_folders, words::PICKLE, GRAPH, loaders::one),
        binary("npy", Form::One("x.npy"), arrays::npy, words::NPY, VALUES, values::npy),
        binary("npz", Form::Any, arrays::npz, words::NPY, ARRAYS, loaders::one),
        binary("safetensors", Form::One("data.safetensors"), arrays::tensors, words::TENSORS, ARRAYS, loaders::one),
        binary("arrays", Form::Folder, arrays::folder, words::NPY, ARRAYS, loaders::one),
        binary("girih_folder", Form::Folder, arrays::girih, words::MANIFEST, VALUES, loaders::girih),
        binary("typed_folder", Form::Folder, arrays::typed_folder, words::MANIFEST, ARRAYS, loaders::girih),
        binary(
            "typed_arrays",
            Form::One("typed.safetensors"),
            arrays::typed_arrays,
            words::TENSORS,
            ARRAYS,
            loaders::one,
        ),
        graph_text("id_pairs", Form::Folder, arrays::pairs, words::NPY, loaders::one),
        binary("planetoid", Form::Folder, pickles::planetoid, words::PICKLE, PICKLE, loaders::one),
        binary("torch", Form::Folder, pickles::torch, words::PICKLE, GRAPH, loaders::one),
        binary("store", Form::One("features.codes"), state::stores, words::CODEC, VALUES, values::store),
        Target {
            name: "spec",
            form: Form::Memory("spec.txt"),
            seeds: state::specs,
            words: words::SPEC,
            bound: GRAPH,
            whole: false,
            run: values::spec,
        },
        Target {
            name: "frames",
            form: Form::Memory("frames.bin"),
            seeds: state::frames,
            words: words::FRAMES,
            bound: SMALL,
            whole: false,
            run: ranks::frames,
        },
        Target {
            name: "greetings",
            form: Form::Memory("greeting.bin"),
            seeds: state::greetings,
            words: words::FRAMES,
            bound: SMALL,
            whole: true,
            run: ranks::greetings,
        },
    ];
    all.extend(trained());
    all
}

/// Targets for files that training writes and reads.
#[cfg(feature = "trainer")]
fn trained() -> Vec<Target> {
    let target =
        |name, form, seeds, whole, run| Target { name, form, seeds, words: words::CONFIG, bound: SMALL, whole, run };
    vec![
        target("checkpoint", Form::One("checkpoint.safetensors"), trained::checkpoints, true, trained::checkpoint),
        target("config", Form::Memory("config.toml"), trained::configs, false, trained::config),
        target("hub", Form::Folder, trained::hubs, false, trained::hub),
    ]
}

#[cfg(not(feature = "trainer"))]
fn trained() -> Vec<Target> {
    Vec::new()
}

/// Target with this name.
#[must_use]
pub fn find(name: &str) -> Option<Target> {
    targets().into_iter().find(|target| target.name == name)
}

/// Words of formats, for mutations and for libFuzzer's dictionaries.
mod words {
    pub const EDGE_LIST: &[&str] = &[
        "source",
        "target",
        "weight",
        "time",
        "user",
        "item",
        "comma_separated_list_of_features",
        "# girih: nodes 5",
        "# girih: shape 3 4",
        "; columns source,target",
        "% bip positive",
        "% sym unweighted",
        "% asym weighted",
        "# FromNodeId ToNodeId",
        "{}",
        "{'weight': 1.0}",
        ",",
        ";",
        "\t",
        "\"",
        "//",
        "%",
        "#",
        "\r\n",
        "nodes 2147483646",
        "% 4 3 2",
    ];
    pub const MATRIX_MARKET: &[&str] = &[
        "%%MatrixMarket matrix coordinate real general",
        "array",
        "pattern",
        "integer",
        "complex",
        "symmetric",
        "skew-symmetric",
        "hermitian",
        "unsigned-integer",
        "double",
        "1 1 1",
        "%",
    ];
    pub const METIS: &[&str] = &["001", "010", "011", "100", "111", "%", "1 1", "\n\n\n", " 64"];
    pub const NUMBERS: &[&str] = &["0 1 2", "\n", " ", "org_id remap_id", "2147483646"];
    pub const NTRIPLES: &[&str] = &[
        "<a:1>",
        "_:x",
        "\"",
        "\"@en",
        "\"^^<t:1>",
        "\\u00e9",
        "\\U0001F600",
        "\\n",
        " .\n",
        "@prefix",
        "label",
        "a:1",
        "\t",
        "#",
    ];
    pub const TABLE: &[&str] = &["node,label", ",", "nan", "", "1e39", "-1", ";", "\t", "\"1\"", "label"];
    pub const NPY: &[&str] = &[
        "'descr': '<f4'",
        "'shape': (2,)",
        "True",
        "\u{93}NUMPY",
        "PK\u{1}\u{2}",
        "PK\u{5}\u{6}",
        "PK\u{3}\u{4}",
        ".npy",
    ];
    pub const TENSORS: &[&str] = &["\"dtype\":\"I64\"", "\"shape\":[1]", "\"data_offsets\":[0,8]", "{", "}", "["];
    pub const MANIFEST: &[&str] = &[
        "[graph]",
        "[dataset]",
        "[arrays.",
        "n_rows = ",
        "n_cols = ",
        "nnz = ",
        "weighted = true",
        "features = \"sparse\"",
        "labels = \"multi\"",
        "n_classes = ",
        "n_splits = ",
        "n_users = 3",
        "edge_split = true",
        "version = 2",
        "features = \"compressed\"",
    ];
    pub const PICKLE: &[&str] = &[
        "cnumpy\nndarray\n",
        "cnumpy\ndtype\n",
        "cnumpy.core.multiarray\n_reconstruct\n",
        "ccopy_reg\n_reconstructor\n",
        "c_codecs\nencode\n",
        "ctorch._utils\n_rebuild_tensor_v2\n",
        "ctorch\nLongStorage\n",
        "(",
        "t",
        "R",
        "b",
        "}",
        "]",
        "a",
        "e",
        "u",
        "s",
        "d",
        "l",
        ".",
        "0",
        "2",
        "q\u{1}",
        "h\u{1}",
        "N",
        "K\u{1}",
        "U\u{1}a",
        "\u{85}",
        "Q",
    ];
    pub const CODEC: &[&str] =
        &["topk:8", "topk-residual:8", "f16", "bf16", "int8", "int4", "pca:2", "pq:2", "auto:8", "girihfe~"];
    #[cfg(feature = "trainer")]
    pub const CONFIG: &[&str] = &[
        "kind = \"gat\"",
        "hidden = ",
        "layers = ",
        "heads = ",
        "codec = \"topk:8\"",
        "[model]",
        "[optimizer]",
        "[batch]",
        "\"hidden\":",
        "\"kind\": \"sgc\"",
        "\"model_type\":",
        "convs.0.lin.weight",
        "\"epoch\":",
        "\"layers\":",
        "null",
        "true",
        "[1,2]",
        "fanout = [10, -1]",
        "features_from = \"onehot\"",
    ];
    pub const SPEC: &[&str] = &[
        "synth:",
        "planted",
        "rmat",
        "igbh-tiny",
        "aifb-like",
        "cora",
        "@",
        ",nodes=",
        ",degree=",
        ",features=",
        ",classes=",
        ",scale=",
        ",communities=",
        ",mix=",
        ",seed=",
        ",train=1",
        "topk:",
        "onehot",
        "random-walk:",
        "embedding:",
        "10,5",
        "-1",
        "nan",
        "inf",
    ];
    pub const FRAMES: &[&str] = &["girih", "girihtcp", "127.0.0.1:9", "[::1]:80"];
}
