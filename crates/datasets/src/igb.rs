//! IGB and IGBH, the data sets of the Illinois Graph Benchmark (Khatua et al., KDD 2023).
//!
//! ```text
//! processed/paper/node_feat.npy                    nodes × 1024; also of other types
//! processed/paper/node_label_19.npy                a class a paper, of 19; node_label_2K.npy: of 2983
//! processed/paper__cites__paper/edge_index.npy     edges × 2: ids of sources and destinations, inside their types
//! processed/train_idx.pt  val_idx.pt  test_idx.pt  ids of papers; may be missing
//! ```
//! In the sizes large and full, labels and the features of papers and authors are `float32` without a header.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use girih_graph_format::file::{Array, MappedFile, Sniffed, Values, sniff_file};
use girih_graph_format::{Buffer, Matrix, NodeId, NodeType, Notes};

use crate::feature_file::open_matrix;
use crate::file_kind::stem;
use crate::named_arrays::note_empty;
use crate::pickle::torch::TorchFile;
use crate::splits::part_of;
use crate::type_folders::{self, TypeFolders};
use crate::typed_parts::{TypedParts, check_edge_options, target_of};
use crate::{Dataset, DatasetError, Features, Labels, LoadOptions, Split, UNLABELLED, labels, reverses};

/// Separator of the parts of a relation's full name.
const JOINT: &str = "__";
/// Width of features without a header.
const RAW_WIDTH: usize = 1024;
/// Rows of files without a header, in the sizes large and full, by type.
const RAW_ROWS: [(&str, [usize; 2]); 2] =
    [("paper", [100_000_000, 269_346_174]), ("author", [116_959_896, 277_220_883])];
/// Parts of a split, in the order of [`Split::parts`].
const PARTS: [&str; 3] = ["train", "val", "test"];

/// Published labels of papers.
struct LabelSet {
    /// Name, as in that of the file.
    name: &'static str,
    n_classes: usize,
    /// Number of papers of the size full with a label: the first ones.
    n_labelled: usize,
}

/// All published labels.
const LABEL_SETS: [LabelSet; 2] = [
    LabelSet { name: "19", n_classes: 19, n_labelled: 227_130_858 },
    LabelSet { name: "2K", n_classes: 2983, n_labelled: 157_675_969 },
];

/// Folder of the folders of types, given itself or the one above as `path`.
pub(crate) fn find(path: &Path) -> Option<PathBuf> {
    type_folders::find(path, JOINT)
}

/// Whether the options choose labels of the data by their name, not a file.
pub(crate) fn names_label_set(options: &LoadOptions) -> bool {
    chosen(options).is_some()
}

fn chosen(options: &LoadOptions) -> Option<&'static LabelSet> {
    let given = options.labels.as_ref()?;
    LABEL_SETS.iter().find(|set| given.as_os_str() == set.name)
}

/// Loads a data set. Each relation gets its reverse, unless the options say otherwise.
///
/// # Errors
/// When files are damaged or contradict each other, or the options choose labels that are not there. Each error names
/// its file.
pub(crate) fn load(processed: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    type_folders::load(processed, JOINT, |folders, root| read(folders, root, options))
}

fn read(folders: &mut TypeFolders, root: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    check_edge_options(options)?;
    let mut notes = Notes::default();
    let features = folders.features(options, open_features)?;
    let types = folders.node_types(&features, |_| None, &mut notes)?;
    let graph = folders.graph(&types, options, &mut notes)?;
    let graph = reverses::with_option(graph, options.reverse, &mut notes)?;

    let target = target_of(&types, &folders.labelled(), options)?;
    let labels = labels_of(folders, &types[target], options, &mut notes)?;
    let mut splits = saved_split(folders, &types[target], &mut notes)?;
    if let Some(Labels::Single { classes, .. }) = labels.as_ref().filter(|_| splits.is_none() && !options.random_split)
    {
        splits = Some(split_by_order(classes, &mut notes));
    }
    folders.note_rest(&[], &mut notes)?;
    let splits = splits.into_iter().collect();
    let parts = TypedParts { graph, features, target, labels, splits, names: None };
    parts.into_loaded(stem(root), notes, options)
}

/// Features of a type: an array, or values without a header.
fn open_features(name: &str, path: &Path, options: &LoadOptions) -> Result<Features, DatasetError> {
    if is_array(path)? {
        return open_matrix(path, options);
    }
    let values = raw_values(path, known_rows(name), RAW_WIDTH)?;
    let features = Features::Dense(Matrix::new(values.len() / RAW_WIDTH, RAW_WIDTH, values)?);
    match options.codec {
        None => Ok(features),
        Some(codec) => features.encoded(codec, options.seed),
    }
}

fn is_array(path: &Path) -> Result<bool, DatasetError> {
    Ok(sniff_file(path)? == Some(Sniffed::Npy))
}

/// Possible rows of files of a type without a header.
fn known_rows(name: &str) -> &'static [usize] {
    RAW_ROWS.iter().find(|(of, _)| *of == name).map_or(&[], |(_, rows)| rows)
}

/// Maps `float32` values without a header, of one of the known numbers of rows.
///
/// # Errors
/// When the file has another size.
fn raw_values(path: &Path, known: &[usize], width: usize) -> Result<Buffer<f32>, DatasetError> {
    let map = MappedFile::open(path)?;
    let n_bytes = |rows: usize| rows * width * size_of::<f32>();
    let Some(rows) = known.iter().copied().find(|&rows| n_bytes(rows) == map.len()) else {
        let found = format!("{} bytes that do not begin as an .npy", map.len());
        let expected = match known {
            [] => "only papers and authors of large and full have files without a header".to_owned(),
            known => {
                let sizes: Vec<String> = known.iter().map(|&rows| format!("{} ({rows} rows)", n_bytes(rows))).collect();
                format!("without a header, large and full have {}", sizes.join(" or "))
            }
        };
        return Err(DatasetError::corrupt(format!("{found}; {expected}; fetch the file again")).at(path));
    };
    Ok(Buffer::mapped(Arc::new(map), 0, rows * width).expect("a map is aligned, and has as many values"))
}

/// Labels of the target: those that the options choose, or else the only ones, or else those of 19 classes.
fn labels_of(
    folders: &mut TypeFolders,
    target: &NodeType,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Option<Labels>, DatasetError> {
    let file = |set: &LabelSet| format!("{}/node_label_{}.npy", target.name, set.name);
    let there: Vec<(&LabelSet, PathBuf)> =
        LABEL_SETS.iter().filter_map(|set| Some((set, folders.take(&file(set))?))).collect();
    let chosen = chosen(options);
    if let Some(set) = chosen.filter(|set| there.iter().all(|(known, _)| known.name != set.name)) {
        let what = format!("--labels {}: there is no {}", set.name, file(set));
        return Err(DatasetError::invalid(format!("{what}; fetch it, or leave --labels out")));
    }
    if let ([_, _], None) = (&there[..], chosen) {
        let text = "labels are those of 19 classes (--labels 2K takes those of 2983)";
        notes.make_up("label_set", text, &[("classes", LABEL_SETS[0].n_classes as u64)]);
    }
    let wanted = |set: &LabelSet| chosen.is_none_or(|chosen| chosen.name == set.name);
    let Some((set, path)) = there.into_iter().find(|(set, _)| wanted(set)) else { return Ok(None) };
    let labels = read_labels(&path, (set, &target.name), options, notes)?;
    labels.validate(target.n_nodes).map_err(|error| error.at(&path))?;
    Ok(Some(labels))
}

fn read_labels(
    path: &Path,
    (set, name): (&LabelSet, &str),
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Labels, DatasetError> {
    let is_raw = !is_array(path)?;
    let array = match is_raw {
        false => Array::map(path)?,
        true => {
            let values = raw_values(path, known_rows(name), 1)?;
            Array::new(path, vec![values.len()], Values::F32(values))?
        }
    };
    let mut labels = labels::of_declared(array, Some(set.n_classes), options, notes)?;
    if let (true, Labels::Single { classes, .. }) = (is_raw && labels.n_nodes() == RAW_ROWS[0].1[1], &mut labels) {
        classes[set.n_labelled..].fill(UNLABELLED);
    }
    Ok(labels)
}

/// Split of files of `torch.save`; `None` when there is no such file.
fn saved_split(folders: &mut TypeFolders, target: &NodeType, notes: &mut Notes) -> Result<Option<Split>, DatasetError> {
    let found = PARTS.map(|part| folders.take(&format!("{part}_idx.pt")));
    let there: Vec<&str> =
        PARTS.into_iter().zip(&found).filter(|(_, path)| path.is_some()).map(|(part, _)| part).collect();
    let Some(first) = found.iter().flatten().next() else { return Ok(None) };
    if there.len() < PARTS.len() {
        note_empty(&there, notes);
    }
    let part = |path: &Option<PathBuf>| {
        let Some(path) = path else { return Ok(Vec::new()) };
        let mut file = TorchFile::open(path)?;
        let root = file.root();
        file.ids(&root, 1).and_then(|found| part_of(found.ids, target)).map_err(|error| error.at(path))
    };
    let split = Split { train: part(&found[0])?, val: part(&found[1])?, test: part(&found[2])? };
    let files = there.join("_idx.pt, ");
    split
        .validate(target.n_nodes)
        .map_err(|what| DatasetError::invalid(format!("{files}_idx.pt: {what}")).at(first))?;
    Ok(Some(split))
}

/// Split of the labelled papers by their order: 60 % train, 20 % val, the rest test, as IGB's loader has it.
fn split_by_order(classes: &[u32], notes: &mut Notes) -> Split {
    let labelled: Vec<NodeId> =
        (0..classes.len()).filter(|&node| classes[node] != UNLABELLED).map(|node| node as NodeId).collect();
    let (n_train, n_val) = (labelled.len() * 6 / 10, labelled.len() * 2 / 10);
    let (train, rest) = labelled.split_at(n_train);
    let (val, test) = rest.split_at(n_val);
    let text = format!(
        "split by the order of the labelled nodes, as IGB's loader has it: 60 % train, 20 % val, 20 % test: {}, {} and {} \
         nodes",
        train.len(),
        val.len(),
        test.len()
    );
    let counts = [("train", train), ("val", val), ("test", test)].map(|(part, nodes)| (part, nodes.len() as u64));
    notes.make_up("split_by_order", text, &counts);
    Split { train: train.to_vec(), val: val.to_vec(), test: test.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_header_have_a_published_size() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("node_feat.npy");
        std::fs::write(&path, bytemuck::cast_slice::<f32, u8>(&[1.0, -2.0, 0.5, 4.0])).unwrap();
        assert_eq!(raw_values(&path, &[3, 2], 2).unwrap()[..], [1.0, -2.0, 0.5, 4.0]);
        let error = raw_values(&path, &[1, 3], 2).unwrap_err();
        let expected = "16 bytes that do not begin as an .npy; without a header, large and full have 8 (1 rows) or 24 \
                        (3 rows); fetch the file again";
        assert!(error.is_corrupt() && error.to_string().contains(expected), "{error}");
        assert!(raw_values(&path, known_rows("fos"), 2).unwrap_err().to_string().contains("only papers and authors"));
        assert_eq!((known_rows("paper"), known_rows("author")[1]), (&[100_000_000, 269_346_174][..], 277_220_883));
        assert!(!is_array(&path).unwrap());
    }

    #[test]
    fn labelled_nodes_are_dealt_in_their_order() {
        let classes: Vec<u32> = (0..13).map(|node| if node % 6 == 0 { UNLABELLED } else { 1 }).collect();
        let split = split_by_order(&classes, &mut Notes::default());
        assert_eq!(split, Split { train: vec![1, 2, 3, 4, 5, 7], val: vec![8, 9], test: vec![10, 11] });
    }
}
