//! Miniature data in place of what the commands of pages name.

use std::fs;
use std::path::Path;

use girih_graph_format::file::{NpzWriter, write_npy};

use super::How;
use crate::girih::{SMALL, Workspace, girih};
use crate::recommend::write_tastes;
use crate::typed_networks::write_papers;

/// Words that stand for something, and what they stand for here.
const PLACEHOLDERS: [(&str, &[&str]); 8] = [
    ("PATH", &[SMALL]),
    ("SPEC", &[SMALL]),
    ("ORDER", &["rcm"]),
    ("CODEC", &["topk:8"]),
    ("N", &["2"]),
    ("RUN…", &["runs/first", "runs/second"]),
    ("runs/*", &["runs/first", "runs/second"]),
    ("…", &[]),
];
/// Scales of generated graphs with about a thousand nodes.
const SCALES: [(&str, &str); 2] = [("reddit", "0.005"), ("products", "0.0004")];
/// Flags whose values are small here.
const FEWER: [&str; 2] = ["--epochs", "--runs"];
/// Flags whose values are files to read.
pub const INPUTS: [&str; 7] =
    ["--checkpoint", "--config", "--data", "--features", "--nodes", "--permutation", "--weights"];
/// Data with two classes, whose answers have a ROC curve.
const TWO_CLASSES: &str = "synth:planted,nodes=600,degree=8,features=24,classes=2";
/// Commands with data, which sentences leave out.
const OF_DATA: [&str; 6] = ["convert", "partition", "reorder", "sample", "stats", "train"];
/// Commands whose first word is no file.
const WITHOUT_FILE: [&str; 3] = ["launch", "generate", "completions"];

/// Words with placeholders replaced.
pub fn parsable(words: &[String]) -> Vec<String> {
    let replaced = |word: &String| match PLACEHOLDERS.iter().find(|(name, _)| name == word) {
        Some((_, values)) => values.iter().map(|&value| value.to_owned()).collect(),
        None => vec![word.clone()],
    };
    words.iter().flat_map(replaced).collect()
}

/// Sets the value of a flag, at the end if it is not there.
fn set(words: &mut Vec<String>, flag: &str, value: &str) {
    match words.iter().position(|word| word == flag) {
        Some(at) => words[at + 1] = value.to_owned(),
        None => words.extend([flag, value].map(str::to_owned)),
    }
}

/// Small SPEC in place of one.
fn smaller(word: &str) -> String {
    let (synth, spec) = word.strip_prefix("synth:").map_or(("", word), |spec| ("synth:", spec));
    let (name, rest) = spec.split_at(spec.find(['@', ',']).unwrap_or(spec.len()));
    let scale = SCALES.iter().find(|(known, _)| *known == name && !(synth.is_empty() && rest.is_empty()));
    let Some((_, scale)) = scale else { return word.replace("nodes=10000", "nodes=600") };
    let settings = rest.find(',').map_or("", |at| &rest[at..]);
    format!("{synth}{name}@{scale}{settings}")
}

/// Files that commands read, made once.
pub struct Miniature(Workspace);

impl Miniature {
    pub fn new() -> Self {
        let work = Workspace::new();
        write_tastes(&work);
        let path = |name| work.arg(name);
        let trained = ["train", SMALL, "--hidden", "64", "--epochs", "2", "--out", &path("run")];
        girih(&trained).ok();
        girih(&["convert", SMALL, "--out", &path("graph")]).ok();
        girih(&["convert", &path("graph"), "--out", &path("edges.csv")]).ok();
        let message = |i: usize| format!("{},{},{}\n", i % 20, (i * 7 + 1) % 20, 1_100_000_000 + i);
        let messages = format!("from,to,time\n{}", (0..200).map(message).collect::<String>());
        fs::write(work.path("messages.csv"), messages).unwrap();
        let rating = |i: usize| format!("{},{},{},{}\n", i % 20, (i * 7 + 1) % 20, i % 5 + 1, 1_100_000_000 + i);
        let ratings = format!("from,to,rating,time\n{}", (0..200).map(rating).collect::<String>());
        fs::write(work.path("ratings.csv"), ratings).unwrap();
        girih(&["compress", &path("graph"), "--out", &path("codes")]).ok();
        girih(&["export", "--checkpoint", &path("run"), "--out", &path("weights.safetensors")]).ok();
        girih(&["export", "--checkpoint", &path("run"), "--format", "hf", "--out", &path("hub")]).ok();
        let rows: Vec<f32> = (0..600 * 24u16).map(|at| f32::from(at % 7)).collect();
        write_npy(&work.path("x.npy"), &[600, 24], &rows).unwrap();
        NpzWriter::write_file(&work.path("new.npz"), |npz| {
            npz.array("x", &[1, 24], &rows[..24])?;
            npz.array("edge_index", &[2, 2], &[4i64, 600, 600, 4])
        })
        .unwrap();
        write_typed(&work.path("aifb"));
        write_papers(&work.path("acm"));
        write_mag(&work.path("mag"));
        write_igb(&work.path("igbh"));
        write_triples(&work.path("umls"));
        Self(work)
    }

    /// Words of a command on small data.
    pub fn words(&self, words: &[String], how: How, is_mention: bool) -> Vec<String> {
        let mut small: Vec<String> = parsable(words).iter().map(|word| smaller(word)).collect();
        if small[1] == "serve" {
            set(&mut small, "--listen", "127.0.0.1:0");
        }
        for flag in FEWER.iter().filter(|flag| words.iter().any(|word| word == *flag)) {
            set(&mut small, flag, "2");
        }
        let has = |word: &str| words.iter().any(|other| other == word);
        if has("train") && !has("--resume") && !has("--config") {
            set(&mut small, "--epochs", "2");
        }
        if has("lightgcn") {
            set(&mut small, "--data", &self.0.arg("tastes"));
        } else if has("roc-auc") {
            set(&mut small, "--data", TWO_CLASSES);
        } else if is_mention && OF_DATA.contains(&&*words[1]) && !has("--data") {
            set(&mut small, "--data", SMALL);
        }
        match how {
            How::Planned => {
                small.extend((!has("--plan")).then(|| "--plan".to_owned()));
                if !has("--memory") {
                    set(&mut small, "--memory", "80GB");
                }
            }
            How::OnCpus => small.iter_mut().filter(|word| *word == "--gpus").for_each(|word| *word = "--ranks".into()),
            How::Run | How::Parsed => {}
        }
        small
    }

    /// Copies the files that a command reads into the folder, unless they are there.
    pub fn provide(&self, words: &[String], folder: &Path) {
        let resumes = words.iter().any(|word| word == "--resume");
        let is_input = |flag: &str| INPUTS.contains(&flag) || (resumes && flag == "--out");
        let pairs = words.windows(2).filter(|two| is_input(&two[0])).map(|two| &two[1]);
        let places = words[2..].iter().take_while(|word| !word.starts_with('-'));
        let places = places.filter(|_| !WITHOUT_FILE.contains(&&*words[1]));
        for name in pairs.chain(places).filter(|word| !word.contains(':')) {
            // The folder of a session has its settings.
            let name = name.strip_suffix("/config.toml").unwrap_or(name);
            let to = folder.join(name);
            if !to.exists() {
                copy(&self.0.path(source(name)), &to);
            }
        }
    }
}

/// Writes a folder of N-Triples with labels, as RDF data sets of the authors of R-GCN have them.
fn write_typed(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let person = |i: usize| format!("http://example.org/person{i}");
    let triple = |i: usize| {
        let (relation, other) = if i.is_multiple_of(2) { ("knows", i + 3) } else { ("cites", 2 * i) };
        format!("<{}> <http://example.org/{relation}> <{}> .\n", person(i), person(other % 40))
    };
    fs::write(folder.join("people.nt"), (0..40).map(triple).collect::<String>()).unwrap();
    for (name, part) in [("trainingSet.tsv", 0..20), ("testSet.tsv", 20..30)] {
        let lines = part.map(|i| format!("{}\t{}\n", person(i), ["red", "blue"][i % 2]));
        fs::write(folder.join(name), format!("person\tlabel\n{}", lines.collect::<String>())).unwrap();
    }
}

/// Writes a raw folder in the layout of ogbn-mag: 40 papers with features and classes, of 10 authors.
fn write_mag(folder: &Path) {
    let lines = |line: &dyn Fn(usize) -> String| (0..40).map(line).collect::<String>();
    for (name, text) in [
        ("raw/num-node-dict.csv", "paper,author\n40,10\n".to_owned()),
        ("raw/triplet-type-list.csv", "author,writes,paper\n".to_owned()),
        ("raw/relations/author___writes___paper/edge.csv", lines(&|i| format!("{},{i}\n", i % 10))),
        ("raw/relations/author___writes___paper/num-edge-list.csv", "40\n".to_owned()),
        ("raw/node-feat/paper/node-feat.csv", lines(&|i| format!("{},1\n", i % 2))),
        ("raw/node-label/paper/node-label.csv", lines(&|i| format!("{}\n", i % 2))),
    ] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Writes a folder in the layout of IGBH: 40 papers with features and labels, of 10 authors.
fn write_igb(folder: &Path) {
    let processed = folder.join("processed");
    for name in ["paper", "paper__cites__paper", "paper__written_by__author"] {
        fs::create_dir_all(processed.join(name)).unwrap();
    }
    let pairs = |other: &dyn Fn(i64) -> i64| (0..40).flat_map(|i| [i, other(i)]).collect::<Vec<i64>>();
    let cites = pairs(&|i| (i + 3) % 40);
    write_npy(&processed.join("paper__cites__paper/edge_index.npy"), &[40, 2], &cites).unwrap();
    write_npy(&processed.join("paper__written_by__author/edge_index.npy"), &[40, 2], &pairs(&|i| i % 10)).unwrap();
    let rows: Vec<f32> = (0..80u8).map(|at| f32::from(at / 2 % 2)).collect();
    write_npy(&processed.join("paper/node_feat.npy"), &[40, 2], &rows).unwrap();
    let classes: Vec<f32> = (0..40u8).map(|paper| f32::from(paper % 2)).collect();
    write_npy(&processed.join("paper/node_label_2K.npy"), &[40], &classes).unwrap();
}

/// Name of the file in place of another.
fn source(name: &str) -> &str {
    match name {
        "codes" | "x.npy" | "new.npz" | "weights.safetensors" | "hub" => name,
        _ if name == "run" || name.starts_with("runs/") => "run",
        "aifb" | "mutag" => "aifb",
        "acm" | "dblp" => "acm",
        "mag" | "igbh" => name,
        "umls" | "wn18rr" | "fb15k-237" => "umls",
        _ if name.ends_with(".codes") => "codes/features.codes",
        "messages.csv" | "ratings.csv" => name,
        _ if name.ends_with(".csv") => "edges.csv",
        _ => "graph",
    }
}

/// Writes a folder of triples: three entities and one relation.
fn write_triples(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for (name, text) in [("train", "a\tr\tb\nb\tr\tc\n"), ("valid", "a\tr\tc\n"), ("test", "c\tr\ta\n")] {
        fs::write(folder.join(format!("{name}.txt")), text).unwrap();
    }
}

/// Copies a file or a folder.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::create_dir_all(to.parent().expect("a file lies in a folder")).unwrap();
        fs::copy(from, to).unwrap();
    }
}
