//! [`load`]: from a SPEC to a data set, whatever the format.

use std::path::{Path, PathBuf};

use girih_graph_format::file::{Array, EdgeListOptions, MANIFEST, Npz, read_edge_list, sparse_from_npz};
use girih_graph_format::{Csr, Duplicates};

use crate::{Dataset, DatasetError, Features, LoadOptions, Spec, SplitRule};
use crate::{arrays, folder, gnn_benchmark, heterophilous, lightgcn, planetoid};

/// What an unrecognised path is told.
const SUPPORTED: &str = "supported are girih's own folder (girih.toml), Planetoid (ind.NAME.graph and its seven \
     companions), LightGCN (test.txt with train.txt or s_adj_mat.npz), .npz of gnn-benchmark, of the heterophilous graphs, of scipy.sparse or with bare indptr and indices \
     (also as the only file in a .zip), and edge lists (.csv, .tsv, .txt, .edges, also .gz)";
/// Shares of labelled nodes that train and validate when labels come from a file of their own.
const ATTACHED_SPLIT: SplitRule = SplitRule::Fractions { train: 0.6, val: 0.2 };
/// Loads or generates the data set of a SPEC: a path, whose format is recognised, or `synth:NAME[@SCALE][,key=value…]`.
///
/// `options.features` and `options.labels` replace what the files hold; with labels from there, splits are drawn anew.
///
/// # Errors
/// When the SPEC is wrong ([`DatasetError::is_spec`]), the format is not recognised, a file is damaged or contradicts
/// another one, or a generated set does not fit into memory. Each error names its file.
pub fn load(spec: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let dataset = match spec.parse()? {
        Spec::Synth { name, recipe } => recipe.generate(&name, options.n_splits)?,
        Spec::Path(path) => load_path(&path, options)?,
    };
    attach(dataset, options)
}

/// The formats that a path may have.
enum Format {
    Girih,
    Planetoid,
    LightGcn,
    Npz,
    Zip,
    EdgeList,
}

fn load_path(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    match recognize(path)? {
        (Format::Girih, path) => folder::load(&path),
        (Format::Planetoid, path) => planetoid::load(&path, options),
        (Format::LightGcn, path) => lightgcn::load(&path),
        (Format::Npz, path) => load_npz(&mut Npz::open(&path)?, &stem(&path), options),
        (Format::Zip, path) => load_npz(&mut only_npz_in(&path)?, &stem(&path), options),
        (Format::EdgeList, path) => load_edge_list(&path, options),
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
    match format_of_file(path) {
        Some(format) => Ok((format, path.to_owned())),
        None => Err(DatasetError::invalid(format!("the format of this file is not recognised; {SUPPORTED}")).at(path)),
    }
}

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
    let entries = std::fs::read_dir(path).map_err(|e| DatasetError::from(e).at(path))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut known = files.iter().filter_map(|file| Some((format_of_file(file)?, file.clone())));
    match (known.next(), known.next()) {
        (Some(only), None) => Ok(only),
        (first, _) => {
            let names: Vec<_> = files.iter().filter_map(|f| f.file_name()).map(|n| n.to_string_lossy()).collect();
            let problem = if first.is_some() { "holds several data files, name one" } else { "holds no data set" };
            Err(DatasetError::invalid(format!("the folder {problem} (found: {}); {SUPPORTED}", names.join(", ")))
                .at(path))
        }
    }
}

/// What the name of a file says.
fn format_of_file(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let extension = |name: &str| name.rsplit_once('.').map(|(_, extension)| extension.to_owned());
    match extension(&name)?.as_str() {
        "npz" => Some(Format::Npz),
        "zip" => Some(Format::Zip),
        "csv" | "tsv" | "txt" | "edges" => Some(Format::EdgeList),
        "gz" => match extension(name.trim_end_matches(".gz"))?.as_str() {
            "csv" | "tsv" | "txt" | "edges" => Some(Format::EdgeList),
            _ => None,
        },
        _ => None,
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
    let is_sparse = (npz.contains("indptr") && npz.contains("indices")) || (npz.contains("row") && npz.contains("col"));
    if !is_sparse {
        let names: Vec<&str> = npz.names().collect();
        let message = format!("the arrays of this archive ({}) are of no known format; {SUPPORTED}", names.join(", "));
        return Err(DatasetError::invalid(message).at(npz.origin()));
    }
    let graph = sparse_from_npz(npz, "")?;
    topology(name, graph, options.symmetrize.unwrap_or(false)).map_err(|e| e.at(npz.origin()))
}

fn load_edge_list(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let n_nodes = match &options.features {
        Some(features) => Some(Array::map(features)?.expect_2d()?.0),
        None => None,
    };
    let edges = read_edge_list(path, &EdgeListOptions { n_nodes })?;
    let graph = edges.to_csr(Duplicates::Merge).map_err(|e| e.at(path))?;
    topology(&stem(path), graph, options.symmetrize.unwrap_or(true)).map_err(|e| e.at(path))
}

/// A data set that is a graph alone.
fn topology(name: &str, graph: Csr, symmetrize: bool) -> Result<Dataset, DatasetError> {
    let graph = if symmetrize && graph.is_square() { graph.symmetrized() } else { graph };
    Dataset::new(name, graph, None, None, Vec::new())
}

/// Adds the features and labels that the options name.
fn attach(mut dataset: Dataset, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    if let Some(path) = &options.features {
        let matrix = Array::map(path)?.into_matrix()?;
        let features = options.feature_norm.unwrap_or_default().apply(Features::Dense(matrix));
        dataset.features = Some(features.map_err(|e| e.at(path))?);
        dataset.validate().map_err(|e| e.at(path))?;
    }
    if let Some(path) = &options.labels {
        let labels = arrays::labels(Array::read(path)?)?;
        dataset.splits = ATTACHED_SPLIT.draw_many(&labels, options.seed, options.n_splits)?;
        dataset.labels = Some(labels);
        dataset.validate().map_err(|e| e.at(path))?;
    }
    Ok(dataset)
}

/// The file's name without its extensions.
fn stem(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}
