//! [`load`]: from a SPEC to a data set, whatever the format.

use std::path::{Path, PathBuf};

use girih_compress::CompressedFeatures;
use girih_graph_format::file::{
    Array, EdgeList, EdgeListOptions, MANIFEST, NpyRows, Npz, Tensors, Verify, read_edge_list, read_matrix_market,
    read_metis, sparse_from_npz,
};
use girih_graph_format::{Csr, Duplicates, Notes};

use crate::file_kind::FileKind;
use crate::named_arrays::ArrayFolder;
use crate::{Dataset, DatasetError, FeatureNorm, Features, LoadOptions, Spec, SplitRule};
use crate::{arrays, folder, gnn_benchmark, heterophilous, lightgcn, named_arrays, ogb, planetoid};

/// What an unrecognised path is told.
const SUPPORTED: &str = "supported are girih's own folder (girih.toml), Planetoid (ind.NAME.graph and its seven \
     companions), an OGB raw folder (edge.csv.gz or data.npz), LightGCN (test.txt with train.txt or s_adj_mat.npz), \
     named arrays (edge_index, or indptr and indices, as .npy in a \
     folder, .safetensors or .npz), .npz of gnn-benchmark, of the heterophilous graphs or of scipy.sparse (also as the only \
     file in a .zip), Matrix Market (.mtx), METIS (.graph) and edge lists (.csv, .tsv, .txt, .edges); text also as .gz";

/// The file of compressed features in a folder of data: they take the place of what features the folder has besides.
pub const FEATURE_STORE: &str = "features.codes";
/// Checksums of larger stores and folders are not compared on loading: that would read every byte.
pub(crate) const CHECKSUM_LIMIT: u64 = 1 << 28;

/// Loads or generates the data set of a SPEC: a path, whose format is recognised, or `synth:NAME[@SCALE][,key=value…]`.
///
/// `options.features` and `options.labels` replace what the files hold; with labels from there, splits are drawn anew.
///
/// # Errors
/// When the SPEC is wrong ([`DatasetError::is_spec`]), the format is not recognised, a file is damaged or contradicts
/// another one, or a generated set does not fit into memory. Each error names its file.
pub fn load(spec: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let dataset = match spec.parse()? {
        Spec::Synth { name, recipe } => {
            let options = &until_divided(options);
            let codec = options.codec.map(|codec| (codec, options.seed));
            as_told(recipe.generate_encoded(&name, options.n_drawn(), codec)?, options)?
        }
        Spec::Path(path) => load_path(&path, options)?,
    };
    choose_split(attach(dataset, options)?.with_codec(options.codec, options.seed)?, options.split)
}

/// The compressed features at a path, mapped, for a graph of `n_nodes` nodes.
pub(crate) fn open_store(path: &Path, n_nodes: usize) -> Result<Features, DatasetError> {
    let features = CompressedFeatures::open(path, Verify::UpTo(CHECKSUM_LIMIT))?;
    features.check_nodes(n_nodes).map_err(|e| e.at(path))?;
    Ok(Features::Compressed(features))
}

/// The matrix of features at a path: mapped, or as the options ask for, without having it in memory.
pub(crate) fn open_matrix(path: &Path, options: &LoadOptions) -> Result<Features, DatasetError> {
    let Some(codec) = options.codec else { return Ok(Features::Dense(Array::map(path)?.into_matrix()?)) };
    let rows = NpyRows::open(path)?;
    let features = CompressedFeatures::fitted(codec, &rows, options.seed).map_err(|e| e.at(path))?;
    Ok(Features::Compressed(features))
}

/// The data of a folder with the compressed features that it holds, if it does.
fn with_store(dataset: Dataset, folder: &Path) -> Result<Dataset, DatasetError> {
    let store = folder.join(FEATURE_STORE);
    if !store.is_file() {
        return Ok(dataset);
    }
    let features = Some(open_store(&store, dataset.n_nodes())?);
    Ok(Dataset { features, ..dataset })
}

/// The options for reading features whose rows are divided before they are encoded.
fn until_divided(options: &LoadOptions) -> LoadOptions {
    let divides = options.feature_norm.is_some_and(|norm| norm != FeatureNorm::None);
    LoadOptions { codec: options.codec.filter(|_| !divides), ..options.clone() }
}

/// Data that are stored as they are meant to be, changed as the options ask for.
fn as_told(mut dataset: Dataset, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let norm = options.feature_norm.unwrap_or_default();
    let symmetrizes = options.symmetrize == Some(true);
    if dataset.interactions.is_some() && (symmetrizes || norm != FeatureNorm::None) {
        return Err(DatasetError::invalid(
            "users and items have edges in both directions and no features; leave what symmetrizes or divides out",
        ));
    }
    if symmetrizes && dataset.graph.is_square() && !dataset.graph.is_symmetric() {
        dataset.graph = dataset.graph.symmetrized();
    }
    if options.features.is_none() {
        dataset.features = dataset.features.map(|features| norm.apply(features)).transpose()?;
    }
    Ok(dataset)
}

/// Keeps one split set, if one is chosen.
fn choose_split(mut dataset: Dataset, split: Option<usize>) -> Result<Dataset, DatasetError> {
    let Some(chosen) = split else { return Ok(dataset) };
    let n_splits = dataset.splits.len();
    if chosen >= n_splits {
        let name = &dataset.name;
        let message = format!("split {chosen} does not exist; {name} has {n_splits} splits, numbered from 0");
        return Err(DatasetError::invalid(message));
    }
    dataset.splits = vec![dataset.splits.swap_remove(chosen)];
    Ok(dataset)
}

/// The formats that a path may have.
enum Format {
    Girih,
    Planetoid,
    OgbRaw,
    LightGcn,
    ArrayFolder,
    File(FileKind),
}

fn load_path(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let (format, path) = recognize(path)?;
    match format {
        Format::Girih => as_told(folder::load(&path, &until_divided(options))?, options).map_err(|e| e.at(&path)),
        Format::Planetoid => planetoid::load(&path, options),
        Format::OgbRaw => with_store(ogb::load(&path, options)?, &path),
        Format::LightGcn => as_told(lightgcn::load(&path)?, options).map_err(|e| e.at(&path)),
        Format::ArrayFolder => {
            with_store(named_arrays::load(&mut ArrayFolder(path.clone()), &stem(&path), options)?, &path)
        }
        Format::File(kind) => load_file(kind, &path, options),
    }
}

fn load_file(kind: FileKind, path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    match kind {
        FileKind::Npz => load_npz(&mut Npz::open(path)?, &stem(path), options),
        FileKind::Zip => load_npz(&mut only_npz_in(path)?, &stem(path), options),
        FileKind::Tensors => named_arrays::load(&mut Tensors::open(path)?, &stem(path), options),
        FileKind::EdgeList => load_edge_list(path, options),
        FileKind::MatrixMarket => {
            topology(path, read_matrix_market(path, Duplicates::Sum)?, options.symmetrize.unwrap_or(false))
        }
        FileKind::Metis => topology(path, read_metis(path)?, false),
    }
}

/// The format of a path, and the file to open: a folder's only data file stands for the folder.
fn recognize(path: &Path) -> Result<(Format, PathBuf), DatasetError> {
    if path.is_dir() {
        return recognize_folder(path);
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.starts_with("ind.") && path.with_file_name(format!("{}.graph", name.trim_end_matches('.'))).is_file() {
        return Ok((Format::Planetoid, path.to_owned()));
    }
    if let Err(error) = std::fs::metadata(path) {
        return Err(DatasetError::from(error).at(path));
    }
    match FileKind::of_input(path) {
        Some(FileKind::Metis) if name.starts_with("ind.") => Ok((Format::Planetoid, path.with_extension(""))),
        Some(kind) => Ok((Format::File(kind), path.to_owned())),
        None => Err(DatasetError::invalid(format!("the format of this file is not recognised; {SUPPORTED}")).at(path)),
    }
}

/// The formats of folders, from the most telling content to the least; the last is a folder's only data file.
fn recognize_folder(path: &Path) -> Result<(Format, PathBuf), DatasetError> {
    if path.join(MANIFEST).is_file() {
        return Ok((Format::Girih, path.to_owned()));
    }
    if !planetoid::names_in(path).is_empty() {
        return Ok((Format::Planetoid, path.to_owned()));
    }
    if lightgcn::recognizes(path) {
        return Ok((Format::LightGcn, path.to_owned()));
    }
    if let Some(raw) = ogb::find_raw(path) {
        return Ok((Format::OgbRaw, raw));
    }
    if named_arrays::holds_graph(&ArrayFolder(path.to_owned())) {
        return Ok((Format::ArrayFolder, path.to_owned()));
    }
    only_data_file(path)
}

fn only_data_file(path: &Path) -> Result<(Format, PathBuf), DatasetError> {
    let entries = std::fs::read_dir(path).map_err(|e| DatasetError::from(e).at(path))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut known = files.iter().filter_map(|file| Some((FileKind::of_input(file)?, file.clone())));
    match (known.next(), known.next()) {
        (Some((kind, only)), None) => Ok((Format::File(kind), only)),
        (first, _) => {
            let names: Vec<_> = files.iter().filter_map(|f| f.file_name()).map(|n| n.to_string_lossy()).collect();
            let problem = if first.is_some() { "holds several data files, name one" } else { "holds no data set" };
            Err(DatasetError::invalid(format!("the folder {problem} (found: {}); {SUPPORTED}", names.join(", ")))
                .at(path))
        }
    }
}

/// The one `.npz` that a `.zip` holds.
fn only_npz_in(path: &Path) -> Result<Npz, DatasetError> {
    let mut zip = Npz::open(path)?;
    let archives: Vec<String> = zip.members().iter().filter(|m| m.ends_with(".npz")).cloned().collect();
    match &archives[..] {
        [member] => Ok(zip.inner(member)?),
        _ => Err(DatasetError::invalid(format!(
            "the archive holds {} .npz files among: {}; one is expected",
            archives.len(),
            zip.members().join(", ")
        ))
        .at(path)),
    }
}

fn load_npz(npz: &mut Npz, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    if gnn_benchmark::recognizes(npz) {
        return gnn_benchmark::load(npz, name, options);
    }
    if heterophilous::recognizes(npz) {
        return heterophilous::load(npz, name, options);
    }
    if named_arrays::holds_data_set(npz) {
        return named_arrays::load(npz, name, options);
    }
    // What scipy.sparse saves names its format, and formats that are not read are refused by that name.
    let is_sparse = npz.contains("format")
        || (npz.contains("indptr") && npz.contains("indices"))
        || (npz.contains("row") && npz.contains("col"));
    if !is_sparse {
        let names: Vec<&str> = npz.names().collect();
        let message = format!("the arrays of this archive ({}) are of no known format; {SUPPORTED}", names.join(", "));
        return Err(DatasetError::invalid(message).at(npz.origin()));
    }
    let graph = sparse_from_npz(npz, "")?;
    topology(npz.origin(), (graph, Notes::default()), options.symmetrize.unwrap_or(false))
}

fn load_edge_list(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let list = match &options.features {
        Some(features) => edges_among(path, features)?,
        None => read_edge_list(path, &EdgeListOptions::default())?,
    };
    let graph = list.edges.to_csr(Duplicates::Sum).map_err(|e| e.at(path))?;
    topology(path, (graph, list.notes), options.symmetrize.unwrap_or(list.directed != Some(true)))
}

/// The edges of a list among as many nodes as there are rows of features.
fn edges_among(path: &Path, features: &Path) -> Result<EdgeList, DatasetError> {
    let n_nodes = match is_store(features) {
        true => CompressedFeatures::open(features, Verify::Structure)?.n_rows(),
        false => Array::map(features)?.expect_2d()?.0,
    };
    let options = EdgeListOptions { n_nodes: Some(n_nodes), ..EdgeListOptions::default() };
    read_edge_list(path, &options).map_err(|error| {
        // A list that reads well by itself names more nodes: which of the two files is wrong, their user knows.
        match read_edge_list(path, &EdgeListOptions::default()) {
            Ok(_) => DatasetError::invalid(format!("{error}; {} has a row for each of these", features.display())),
            Err(_) => error.into(),
        }
    })
}

/// A data set that is a graph alone.
fn topology(path: &Path, (graph, notes): (Csr, Notes), symmetrize: bool) -> Result<Dataset, DatasetError> {
    let graph = if symmetrize && graph.is_square() { graph.symmetrized() } else { graph };
    let dataset = Dataset::new(stem(path), graph, None, None, Vec::new()).map_err(|e| e.at(path))?;
    Ok(Dataset { notes, ..dataset })
}

/// Adds the features and labels that the options name.
fn attach(mut dataset: Dataset, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    if let Some(path) = &options.features {
        let norm = options.feature_norm.unwrap_or_default();
        let features = match is_store(path) {
            true => open_store(path, dataset.n_nodes())?,
            false if norm == FeatureNorm::None => open_matrix(path, options)?,
            false => Features::Dense(Array::map(path)?.into_matrix()?),
        };
        dataset.features = Some(norm.apply(features).map_err(|e| e.at(path))?);
        dataset.validate().map_err(|e| e.at(path))?;
    }
    if let Some(path) = &options.labels {
        let labels = arrays::labels(Array::read(path)?)?;
        dataset.splits = SplitRule::UNSPLIT.draw_many(&labels, options.seed, options.n_drawn())?;
        dataset.labels = Some(labels);
        dataset.validate().map_err(|e| e.at(path))?;
    }
    Ok(dataset)
}

/// Whether a file's name is that of compressed features.
fn is_store(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "codes")
}

/// The file's name without its extensions.
fn stem(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}
