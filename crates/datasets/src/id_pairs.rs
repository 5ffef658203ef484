//! Id pairs, the layout of HeCo (Wang et al., KDD 2021): types are letters, and relations are lists of pairs.
//!
//! ```text
//! pa.txt                              pairs of ids: one of the type p, one of a
//! p_feat.npz                          features of p: a sparse matrix of SciPy, or an array by another name
//! labels.npy                          a class for each node of the target
//! train_20.npy  val_20.npy  test_20.npy   ids of the target: a split set for each number
//! ```

mod splits;
mod type_names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use girih_graph_format::file::{Array, Npz, Sniffed, sniff_file, sparse_from_npz};
use girih_graph_format::{Duplicates, EdgeType, NodeType, Notes};

pub(crate) use self::splits::number_of_split;
pub use self::type_names::TypeNames;
use crate::inventory::Inventory;
use crate::pair_file::{PairFile, Separator};
use crate::splits::drawn_by;
use crate::typed_parts::{Relations, StatedType, TypedParts, check_edge_options, check_stated, n_named, type_number};
use crate::{
    Dataset, DatasetError, FeatureNorm, Features, Labels, LoadOptions, SplitRule, TypeFeatures, labels, reverses,
};

/// File of the labels.
const LABELS: &str = "labels.npy";

/// Whether a folder has pairs of ids with features of a type beside them; or with labels, and other pairs or numbered
/// split sets. One edge list of two letters with labels is no such folder.
pub(crate) fn is_folder(folder: &Path) -> bool {
    let Ok(entries) = Inventory::of_folder(folder) else { return false };
    let n_pairs = entries.left().filter(|name| letters_of_pairs(name).is_some()).count();
    let has_features = entries.left().any(|name| letter_of_features(name).is_some());
    n_pairs > 0 && (has_features || entries.has(LABELS) && (n_pairs > 1 || splits::are_in(&entries)))
}

/// Letters of the two types of a list of pairs.
fn letters_of_pairs(file: &str) -> Option<[char; 2]> {
    let letters: Vec<char> = file.strip_suffix(".txt")?.chars().collect();
    let [source, destination] = letters[..] else { return None };
    (source.is_ascii_alphabetic() && destination.is_ascii_alphabetic()).then_some([source, destination])
}

/// Letter of the type of a file of features.
fn letter_of_features(file: &str) -> Option<char> {
    let name = file.strip_suffix("_feat.npz").or_else(|| file.strip_suffix("_feat.npy"))?;
    let mut letters = name.chars();
    letters.next().filter(|letter| letter.is_ascii_alphabetic() && letters.next().is_none())
}

/// Loads a folder. Each relation gets its reverse, unless the options say otherwise.
///
/// # Errors
/// When a file is damaged, contradicts another one, or does not tell the target.
pub(crate) fn load(folder: &Path, name: String, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    check_edge_options(options).map_err(|e| e.at(folder))?;
    let (mut notes, mut others) = (Notes::default(), Inventory::of_folder(folder)?);
    let files = Files::read(folder, options, &mut others, &mut notes)?;
    let sizes = files.sizes();
    let labels = files.labels.as_ref().map(Labels::n_nodes);
    let node_types = files.named_types(&sizes, options).map_err(|e| e.at(folder))?;
    let target = target_of(&node_types, labels, options).map_err(|e| e.at(folder))?;
    let node_types = with_labels(node_types, target, &files, labels);
    files.check_sizes(&node_types).map_err(|e| e.at(folder))?;

    let letters: Vec<char> = files.letters.iter().copied().collect();
    let number = |letter: char| letters.iter().position(|known| *known == letter).expect("a letter of a file");
    let mut relations = Relations::new(&node_types, options);
    for (relation, PairFile { path, ids, lines }) in files.pairs {
        let [source, destination] = files.letters_of[&relation].map(number);
        let of = EdgeType { relation, source, destination, reverse_of: None };
        relations.add(of, ids, |edge| format!("line {}", lines.of(edge))).map_err(|error| error.at(&path))?;
    }
    let graph = relations.into_graph(&mut notes)?;
    let graph = reverses::with_option(graph, options.reverse, &mut notes).map_err(|e| e.at(folder))?;
    let mut splits = splits::read(folder, &node_types[target], &mut others, &mut notes)?;
    if let Some(labels) = files.labels.as_ref().filter(|_| splits.is_empty() && !options.random_split) {
        labels.validate(node_types[target].n_nodes).map_err(|e| e.at(&folder.join(LABELS)))?;
        splits = drawn_by(SplitRule::UNSPLIT, labels, options, &mut notes);
    }
    others.note(&mut notes);
    let parts = TypedParts { graph, features: files.features, target, labels: files.labels, splits, names: None };
    parts.into_loaded(name, notes, options).map_err(|e| e.at(folder))
}

/// Contents of the files of a folder, but for splits.
struct Files {
    /// Letters of all types, ascending, which numbers the types.
    letters: BTreeSet<char>,
    letters_of: BTreeMap<String, [char; 2]>,
    /// Pairs of each relation, by its name.
    pairs: BTreeMap<String, PairFile>,
    /// Features of each type.
    features: Vec<TypeFeatures>,
    labels: Option<Labels>,
}

impl Files {
    fn read(
        folder: &Path,
        options: &LoadOptions,
        others: &mut Inventory,
        notes: &mut Notes,
    ) -> Result<Self, DatasetError> {
        let names: Vec<String> = others.left().map(str::to_owned).collect();
        let stem = |name: &str| name.trim_end_matches(".txt").to_owned();
        let letters_of: BTreeMap<String, [char; 2]> =
            names.iter().filter_map(|name| Some((stem(name), letters_of_pairs(name)?))).collect();
        let with_features = names.iter().filter_map(|name| letter_of_features(name));
        let letters: BTreeSet<char> = letters_of.values().flatten().copied().chain(with_features).collect();
        let mut pairs = BTreeMap::new();
        for stem in letters_of.keys() {
            let file = format!("{stem}.txt");
            pairs.insert(stem.clone(), PairFile::read(folder.join(&file), Separator::Blanks)?);
            others.take(&file);
        }
        let norm = options.feature_norm.unwrap_or_default();
        let features = letters.iter().map(|letter| {
            let given = ["npz", "npy"].map(|ending| format!("{letter}_feat.{ending}"));
            let Some(file) = given.into_iter().find(|file| others.has(file)) else { return Ok(TypeFeatures::None) };
            others.take(&file);
            let features = read_features(&folder.join(&file), norm, notes)?;
            Ok::<_, DatasetError>(TypeFeatures::Given(features))
        });
        let features = features.collect::<Result<_, _>>()?;
        let mut labels = None;
        if others.has(LABELS) {
            others.take(LABELS);
            labels = Some(labels::of_array(Array::read(&folder.join(LABELS))?, None, options, notes)?);
        }
        Ok(Self { letters, letters_of, pairs, features, labels })
    }

    /// Number of nodes of each type: rows of its features, or else what its ids ask for.
    fn sizes(&self) -> Vec<usize> {
        let size = |(letter, features): (&char, &TypeFeatures)| {
            features.given().map_or_else(|| self.n_named(*letter), Features::n_rows)
        };
        self.letters.iter().zip(&self.features).map(size).collect()
    }

    /// Largest number of nodes that the ids of a type ask for.
    fn n_named(&self, letter: char) -> usize {
        let of_file = |(stem, file): (&String, &PairFile)| {
            let ends = self.letters_of[stem];
            (0..2).filter(move |&end| ends[end] == letter).map(|end| n_named(&file.ids[end])).max()
        };
        self.pairs.iter().filter_map(of_file).max().unwrap_or(0)
    }

    /// Types under the names of the options, or else their letters.
    fn named_types(&self, sizes: &[usize], options: &LoadOptions) -> Result<Vec<NodeType>, DatasetError> {
        if let Some(names) = &options.type_names {
            names.check_letters(&self.letters)?;
        }
        let name = |letter: &char| options.type_names.as_ref().map_or(letter.to_string(), |names| names.of(*letter));
        let types = self.letters.iter().zip(sizes).map(|(letter, &n_nodes)| NodeType { name: name(letter), n_nodes });
        Ok(types.collect())
    }

    /// Refuses numbers of nodes that the files do not bear out.
    fn check_sizes(&self, types: &[NodeType]) -> Result<(), DatasetError> {
        let stated = types.iter().zip(&self.letters).zip(&self.features).map(|((of, letter), features)| {
            let n_rows = features.given().map(Features::n_rows);
            let has_letter = |(stem, _): &(&String, &PairFile)| self.letters_of[*stem].contains(letter);
            let n_edges = self.pairs.iter().filter(has_letter).map(|(_, file)| file.ids[0].len()).sum();
            StatedType { name: &of.name, n_nodes: of.n_nodes, n_rows, n_edges }
        });
        check_stated(&stated.collect::<Vec<_>>())
    }
}

/// Types of which the target, if it has no features, has a node for each label.
fn with_labels(mut types: Vec<NodeType>, target: usize, files: &Files, n_labels: Option<usize>) -> Vec<NodeType> {
    if let (TypeFeatures::None, Some(n_labels)) = (&files.features[target], n_labels) {
        types[target].n_nodes = types[target].n_nodes.max(n_labels);
    }
    types
}

/// Target: the type that the options name, or the only one with as many nodes as there are labels.
fn target_of(types: &[NodeType], n_labels: Option<usize>, options: &LoadOptions) -> Result<usize, DatasetError> {
    if let Some(name) = &options.target {
        return type_number(types, name, "--target");
    }
    let Some(n_labels) = n_labels else { return Ok(0) };
    let fitting: Vec<usize> = (0..types.len()).filter(|&number| types[number].n_nodes == n_labels).collect();
    if let [only] = fitting[..] {
        return Ok(only);
    }
    let sizes = types.iter().map(|of| format!("{} {}", of.name, of.n_nodes)).collect::<Vec<_>>().join(", ");
    let found = if fitting.is_empty() { "no type has" } else { "several types have" };
    Err(DatasetError::invalid(format!(
        "{LABELS} has {n_labels} labels, and {found} as many nodes ({sizes}); name the type of the labels by --target"
    )))
}

/// Reads features: a sparse matrix of `SciPy`, or an array, whatever the name of the file.
fn read_features(path: &Path, norm: FeatureNorm, notes: &mut Notes) -> Result<Features, DatasetError> {
    let is_array = sniff_file(path).map_err(|e| e.at(path))? == Some(Sniffed::Npy);
    let features = if is_array {
        if path.extension().is_some_and(|ending| ending == "npz") {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            notes.make_up("array_by_another_name", format!("{file} is in truth an .npy, and is read as one"), &[]);
        }
        Features::Dense(Array::map(path)?.into_matrix()?)
    } else {
        let (matrix, n_merged) = sparse_from_npz(&mut Npz::open(path)?, "", Duplicates::Sum)?;
        Duplicates::Sum.note(n_merged, true, notes);
        Features::Sparse(matrix)
    };
    let features = norm.apply(features).map_err(|e| e.at(path))?;
    features.validate(features.n_rows()).map_err(|e| e.at(path))?;
    Ok(features)
}

/// Path of a part of a split set.
fn part_path(folder: &Path, part: &str, number: u64) -> PathBuf {
    folder.join(format!("{part}_{number}.npy"))
}
