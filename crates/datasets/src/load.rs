//! [`load`]: loads the data set of a SPEC, in any format.

use std::io;
use std::path::Path;

use girih_graph_format::file::{
    Array, Missing, Npz, ReadTimes, Table, Tensors, Verify, read_matrix_market, read_metis, read_sparse_npz,
    read_table, sparse_from_npz,
};
use girih_graph_format::{Csr, Duplicates, FormatError, Notes};
use rayon::prelude::*;

use crate::edges::{directed_as, refuse_duplicates_option};
use crate::feature_file::{open_matrix, open_store};
use crate::file_kind::{FileKind, ending, stem};
use crate::inventory::Inventory;
use crate::named_arrays::{ArrayFolder, NamedArrays};
use crate::named_labels::{self, LabelFiles};
use crate::options_for::{refuse_list_options, typed_flags};
use crate::recognize::{FORMATS, Format, Recognized, recognize};
use crate::splits::{drawn_as_asked, drawn_by};
use crate::typed_parts::{among_all, refused_symmetrize, shifted};
use crate::{Dataset, DatasetError, FEATURE_STORE, FeatureNorm, Features, LoadOptions, Spec, SplitRule, TypeFeatures};
use crate::{
    edge_list, folder, gnn_benchmark, heterophilous, id_pairs, igb, labels, lightgcn, mag240m, movielens, named_arrays,
    ntriples, ogb, planetoid, triple_files, typed_arrays,
};

/// Loads or generates the data set of a SPEC: a path, whose format is recognised, or
/// `synth:NAME[@SCALE][,key=value…]`.
///
/// `options.features` and `options.labels` replace those of the files. Such labels get the splits that the data
/// ships, or else drawn ones. [`Dataset::notes`] lists data left out, made up or doubtful.
///
/// # Errors
/// When the SPEC is wrong ([`DatasetError::is_spec`]), the format is not recognised, a file is damaged or contradicts
/// another one, or a generated set does not fit into memory. With `options.strict`, when data is not used or
/// doubtful. Each error names its file.
pub fn load(spec: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    check_read_with_times(options)?;
    let (dataset, options, origin) = match spec.parse()? {
        Spec::Synth { name, recipe } => {
            let recipe = recipe.with_options(options)?;
            let codec = options.until_divided().codec.map(|codec| (codec, options.seed));
            let generated = recipe.generate_encoded(&name, options.n_drawn(), codec)?;
            (as_told(generated, options)?, options.clone(), None)
        }
        Spec::Path(path) => {
            let (dataset, options, format) = load_path(&path, options)?;
            (dataset, options, Some((path, format)))
        }
    };
    let options = &options;
    let (path, format) = origin.unzip();
    let lists_edges = format == Some(Format::File(FileKind::EdgeList));
    let dataset = attach(dataset, options, lists_edges)?.with_features_from(options.features_from)?;
    let dataset = with_doubtful_sums(dataset).with_type_rules(&options.type_rules)?;
    let dataset = dataset.with_codec(options.codec, options.seed)?;
    let dataset = choose_split(with_split(dataset, options)?, options.split)?;
    check_times(&dataset, options).map_err(|e| path.iter().fold(e, |e, path| e.at(path)))?;
    check_edge_features(&dataset, options)?;
    check_strict(&dataset.notes, options).map_err(|e| path.iter().fold(e, |e, path| e.at(path)))?;
    Ok(dataset)
}

/// Refuses data without times, if they were asked for.
fn check_times(dataset: &Dataset, options: &LoadOptions) -> Result<(), DatasetError> {
    if options.times != ReadTimes::Required || dataset.timed.is_some() {
        return Ok(());
    }
    Err(DatasetError::invalid(format!(
        "{} has no times of edges that girih reads; only lists of edges have them, in a column named time or timestamp, or as \
         --columns source,target,time says",
        dataset.name
    )))
}

/// Refuses to read features of edges without times.
fn check_read_with_times(options: &LoadOptions) -> Result<(), DatasetError> {
    if options.edge_features.is_empty() || options.times == ReadTimes::Required {
        return Ok(());
    }
    Err(DatasetError::invalid("features of edges are read with their times alone: give --before"))
}

/// Refuses data without features of edges, if they were asked for.
fn check_edge_features(dataset: &Dataset, options: &LoadOptions) -> Result<(), DatasetError> {
    if options.edge_features.is_empty() || dataset.edge_features.is_some() {
        return Ok(());
    }
    let name = &dataset.name;
    Err(DatasetError::invalid(format!(
        "{name} has no features of edges; only lists of edges have them; leave --edge-features out"
    )))
}

/// Data with a warning, if rows of features that were divided by their sums have values of both signs: their sums may be
/// close to zero, and the quotients of any size.
fn with_doubtful_sums(mut dataset: Dataset) -> Dataset {
    if dataset.feature_norm != FeatureNorm::Sum {
        return dataset;
    }
    let of_types = dataset.typed.iter().flat_map(|typed| &typed.features).filter_map(TypeFeatures::given);
    let n_mixed: usize = dataset.features.iter().chain(of_types).map(n_rows_with_negative_values).sum();
    if n_mixed > 0 {
        dataset.notes.warn(format!(
            "rows of features with positive and negative values: {n_mixed}; their sums, by which they were divided, may be \
             close to zero; give --normalize-features length"
        ));
    }
    dataset
}

/// Number of rows with a negative value; compressed rows do not count.
fn n_rows_with_negative_values(features: &Features) -> usize {
    let is_negative = |values: &[f32]| values.iter().any(|&value| value < 0.0);
    match features {
        Features::Dense(matrix) => (0..matrix.n_rows()).into_par_iter().filter(|&v| is_negative(matrix.row(v))).count(),
        Features::Sparse(csr) => {
            let values = csr.values().unwrap_or_default();
            let of_row = |&v: &usize| values.get(csr.row_range(v)).is_some_and(is_negative);
            (0..csr.n_rows()).into_par_iter().filter(of_row).count()
        }
        Features::Compressed(_) => 0,
    }
}

/// Refuses data that is partly unused or doubtful, if the options ask for that.
pub(crate) fn check_strict(notes: &Notes, options: &LoadOptions) -> Result<(), DatasetError> {
    let found: Vec<String> = notes.not_used_line().into_iter().chain(notes.warnings.iter().cloned()).collect();
    if !options.strict || found.is_empty() {
        return Ok(());
    }
    Err(DatasetError::invalid(format!("{}; --strict refuses such data", found.join("; "))))
}

/// Replaces the splits by drawn ones, if the options ask for them.
fn with_split(mut dataset: Dataset, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    if options.random_split {
        if !dataset.splits.is_empty() {
            let n = dataset.splits.len();
            dataset.notes.make_up(
                "replaced_splits",
                "the data's own split is not used (--split random)",
                &[("splits", n as u64)],
            );
        }
        // Only nodes of the target take part, by their ids inside it.
        let target = dataset.target_ids();
        let labels = dataset.labels.as_ref().map(|labels| labels.row_slice(target.clone()));
        let drawn = drawn_as_asked(labels.as_ref(), options, &mut dataset.notes)?;
        dataset.splits = drawn.into_iter().map(|split| shifted(split, target.start)).collect();
    }
    Ok(dataset)
}

/// Replaces the features of a folder's data by its compressed features, if it has them.
fn with_store(mut dataset: Dataset, folder: &Path, verify: Verify) -> Result<Dataset, DatasetError> {
    let store = folder.join(FEATURE_STORE);
    if !store.is_file() {
        return Ok(dataset);
    }
    if dataset.typed.as_ref().is_some_and(|typed| typed.has_several_types()) {
        dataset.notes.leave_out(FEATURE_STORE, "codes of all nodes, but features belong to types");
        return Ok(dataset);
    }
    let features = Some(open_store(&store, dataset.n_nodes(), verify)?);
    Ok(Dataset { features, ..dataset })
}

/// Applies the options to data that is stored in its final form.
fn as_told(mut dataset: Dataset, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let norm = options.feature_norm.unwrap_or_default();
    let symmetrizes = options.symmetrize == Some(true);
    if dataset.interactions.is_some() && (symmetrizes || norm != FeatureNorm::None) {
        return Err(DatasetError::invalid(
            "users and items have edges in both directions and no features; leave what symmetrizes or divides out",
        ));
    }
    if dataset.typed.is_some() && symmetrizes {
        return Err(refused_symmetrize());
    }
    if symmetrizes && !dataset.graph.is_symmetric() {
        dataset.graph = directed_as(dataset.graph, options, true, &mut dataset.notes);
    }
    if options.features.is_none() {
        dataset.features = dataset.features.map(|features| norm.apply(features)).transpose()?;
        dataset = dataset.with_type_features(|features| norm.apply(features))?;
        dataset.feature_norm = norm;
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

/// Loads a file or folder. Also returns its format and the options for what follows: files of id pairs have numbers in their
/// names, which choose a split set as well, and labels of IGB that are chosen by name are no file.
fn load_path(path: &Path, options: &LoadOptions) -> Result<(Dataset, LoadOptions, Format), DatasetError> {
    let Recognized { format, path, beside } = recognize(path).map_err(beside_generators)?;
    refuse_list_options(format, options).map_err(|e| e.at(&path))?;
    if let Some(allowed) = typed_flags(format) {
        options.check_typed_flags(allowed).map_err(|e| e.at(&path))?;
    }
    let mut dataset = match format {
        Format::Girih => as_told(folder::load(&path, &options.until_divided())?, options).map_err(|e| e.at(&path))?,
        Format::Planetoid => planetoid::load(&path, options)?,
        Format::OgbRaw => with_store(ogb::load(&path, options)?, &path, options.verify)?,
        Format::OgbTyped => ogb::typed::load(&path, options)?,
        Format::Mag240m => mag240m::load(&path, options)?,
        Format::Igb => igb::load(&path, options)?,
        Format::LightGcn => as_told(lightgcn::load(&path, options)?, options).map_err(|e| e.at(&path))?,
        Format::Triples => triple_files::load(&path, options)?,
        Format::ArrayFolder => {
            folder::refuse_without_manifest(&path)?;
            with_store(load_arrays(&mut ArrayFolder::open(&path)?, &path, options)?, &path, options.verify)?
        }
        Format::IdPairs => id_pairs::load(&path, stem(&path), options)?,
        Format::MovieLens => movielens::load(&path, options)?,
        Format::RdfFolder => ntriples::load_folder(&path, options)?,
        Format::File(kind) => load_file(kind, &path, options)?,
    };
    beside.note(&mut dataset.notes);
    let mut options = options.clone();
    match format {
        Format::IdPairs => {
            options.split = options.split.map(|split| id_pairs::number_of_split(&path, split).unwrap_or(split));
        }
        Format::Igb if igb::names_label_set(&options) => options.labels = None,
        _ => {}
    }
    Ok((dataset, options, format))
}

/// Adds a hint about generator names to the error of a missing path.
fn beside_generators(error: DatasetError) -> DatasetError {
    if !error.is_not_found() {
        return error;
    }
    let message = "there is no such file or folder; data that is generated has a name that begins with `synth:`";
    let told = DatasetError::from(FormatError::from(io::Error::new(io::ErrorKind::NotFound, message)));
    match error.path() {
        Some(path) => told.at(path),
        None => told,
    }
}

/// Loads named arrays, with types or without.
fn load_arrays(source: &mut dyn NamedArrays, path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    if typed_arrays::recognizes(source) {
        options.check_typed_flags(&["--reverse", "--target"]).map_err(|e| e.at(path))?;
        return typed_arrays::load(source, &stem(path), options);
    }
    options.check_typed_flags(&[]).map_err(|e| e.at(path))?;
    named_arrays::load(source, &stem(path), options)
}

fn load_file(kind: FileKind, path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    match kind {
        FileKind::Npz => load_npz(&mut Npz::open(path)?, path, options),
        FileKind::Zip => load_zip(path, options),
        FileKind::Tensors => load_arrays(&mut Tensors::open(path)?, path, options),
        FileKind::EdgeList => edge_list::load(path, options),
        FileKind::MatrixMarket => load_matrix_market(path, options),
        FileKind::Metis => load_metis(path, options),
        FileKind::NTriples => load_ntriples(path, options),
    }
}

fn load_matrix_market(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let rule = options.duplicates.unwrap_or(Duplicates::Sum);
    let (graph, notes) = read_matrix_market(path, rule)?;
    topology(path, graph, options, notes)
}

fn load_metis(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    refuse_duplicates_option(options, "a METIS graph lists each neighbor once").map_err(|e| e.at(path))?;
    let (graph, notes) = read_metis(path)?;
    topology(path, graph, &LoadOptions { symmetrize: Some(false), ..options.clone() }, notes)
}

/// Loads a graph of N-Triples; tables of labels are attached later.
fn load_ntriples(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    if (options.label_columns.is_some() || options.val_share.is_some()) && !options.names_labels() {
        let what = "--label-columns and --val-share are for tables of labels, and none is given";
        return Err(DatasetError::invalid(format!("{what}; name one by --labels or --train")).at(path));
    }
    ntriples::load(path, options)
}

/// Loads the data set of the only `.npz` in a `.zip`; its other members are noted.
fn load_zip(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let mut zip = Npz::open(path)?;
    let archives: Vec<String> = zip.members().iter().filter(|m| m.ends_with(".npz")).cloned().collect();
    let [member] = &archives[..] else {
        return Err(DatasetError::invalid(format!(
            "the archive holds {} .npz files among: {}; one is expected",
            archives.len(),
            zip.members().join(", ")
        ))
        .at(path));
    };
    let mut others = Inventory::of_names(zip.members().iter().cloned());
    others.take(member);
    let mut dataset = load_npz(&mut zip.inner(member)?, path, options)?;
    others.note(&mut dataset.notes);
    Ok(dataset)
}

fn load_npz(npz: &mut Npz, path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    if typed_arrays::recognizes(npz) {
        return load_arrays(npz, path, options);
    }
    options.check_typed_flags(&[]).map_err(|e| e.at(path))?;
    let name = &stem(path);
    if gnn_benchmark::recognizes(npz) {
        return gnn_benchmark::load(npz, name, options);
    }
    if heterophilous::recognizes(npz) {
        return heterophilous::load(npz, name, options);
    }
    if named_arrays::holds_data_set(npz) {
        return named_arrays::load(npz, name, options);
    }
    // Archives of scipy.sparse name their format, and the error on an unsupported one states that name.
    let is_sparse = npz.contains("format")
        || (npz.contains("indptr") && npz.contains("indices"))
        || (npz.contains("row") && npz.contains("col"));
    if !is_sparse {
        let names: Vec<&str> = npz.names().collect();
        let message = format!(
            "the arrays of this archive ({}) are of no known format; supported are {FORMATS}",
            names.join(", ")
        );
        return Err(DatasetError::invalid(message).at(npz.origin()));
    }
    let rule = options.duplicates.unwrap_or(Duplicates::Sum);
    let (graph, n_merged) = sparse_from_npz(npz, "", rule)?;
    let mut notes = Notes::default();
    rule.note(n_merged, npz.contains("data"), &mut notes);
    Inventory::note_others(npz.names().map(str::to_owned), |name| SPARSE_MEMBERS.contains(&name), &mut notes);
    topology(npz.origin(), graph, options, notes)
}

/// Members of the archives of `scipy.sparse.save_npz`; `_is_array` tells arrays from matrices.
const SPARSE_MEMBERS: [&str; 8] = ["format", "shape", "data", "indptr", "indices", "row", "col", "_is_array"];

/// Data set that is a graph alone; edges stay as stored unless the options say otherwise.
fn topology(path: &Path, graph: Csr, options: &LoadOptions, mut notes: Notes) -> Result<Dataset, DatasetError> {
    let graph = directed_as(graph, options, false, &mut notes);
    let dataset = Dataset::new(stem(path), graph, None, None, Vec::new()).map_err(|e| e.at(path))?;
    Ok(Dataset { notes, ..dataset })
}

/// Adds the features and labels that the options name. Only where `lists_edges`, ids may count from 1.
fn attach(mut dataset: Dataset, options: &LoadOptions, lists_edges: bool) -> Result<Dataset, DatasetError> {
    let with_hint = |error: DatasetError, dataset: &Dataset, n_rows| {
        if lists_edges { edge_list::with_hint(error, dataset, n_rows) } else { error }
    };
    if let Some(path) = &options.features {
        if dataset.features.is_some() {
            let text = format!("features of the data are not used: {} takes their place", path.display());
            dataset.notes.make_up("replaced_features", text, &[]);
        }
        let norm = options.feature_norm.unwrap_or_default();
        let features = read_features(path, dataset.n_nodes(), options, &mut dataset.notes)?;
        dataset.features = Some(norm.apply(features).map_err(|e| e.at(path))?);
        dataset.feature_norm = norm;
        let n_rows = dataset.features.as_ref().map_or(0, Features::n_rows);
        dataset.validate().map_err(|e| with_hint(e, &dataset, n_rows).at(path))?;
    }
    if dataset.names.is_some() && options.names_labels() && !names_array(options) {
        named_labels::attach(&mut dataset, &LabelFiles::of(options), options)?;
    } else if let Some(path) = &options.labels {
        if dataset.labels.is_some() {
            let text = format!("labels of the data are not used: {} takes their place", path.display());
            dataset.notes.make_up("replaced_labels", text, &[]);
        }
        // Labels of typed data are those of the target's nodes.
        let target = dataset.target_ids();
        let labels = read_labels(path, target.len(), options, &mut dataset.notes)?;
        labels.validate(target.len()).map_err(|e| with_hint(e, &dataset, labels.n_nodes()).at(path))?;
        if dataset.splits.is_empty() {
            let drawn = LoadOptions { labels: None, ..options.clone() };
            let drawn = drawn_by(SplitRule::UNSPLIT, &labels, &drawn, &mut dataset.notes);
            dataset.splits = drawn.into_iter().map(|split| shifted(split, target.start)).collect();
        }
        dataset.labels = Some(among_all(labels, target.start, dataset.n_nodes()));
        dataset.validate().map_err(|e| e.at(path))?;
    }
    Ok(dataset)
}

/// Whether the labels are an array, and no table names parts of a split.
fn names_array(options: &LoadOptions) -> bool {
    let is_table = |path: &std::path::PathBuf| matches!(ending(path).as_str(), "csv" | "tsv" | "txt");
    !options.labels.as_ref().is_some_and(is_table) && LabelFiles::of(options).parts.iter().all(Option::is_none)
}

/// Reads the features at a path: a store, SciPy's sparse `.npz`, a text table, or an array.
fn read_features(
    path: &Path,
    n_nodes: usize,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Features, DatasetError> {
    match ending(path).as_str() {
        "codes" => open_store(path, n_nodes, options.verify),
        "npz" => Ok(Features::Sparse(read_sparse_npz(path).map_err(|e| sparse_expected(e.into(), path))?)),
        "csv" | "tsv" | "txt" => {
            let Table { rows, .. } = read_table(path, Missing::Refuse, notes)?;
            Ok(Features::Dense(rows))
        }
        _ if options.feature_norm.unwrap_or_default() == FeatureNorm::None => open_matrix(path, options),
        _ => Ok(Features::Dense(Array::map(path)?.into_matrix()?)),
    }
}

fn sparse_expected(error: DatasetError, path: &Path) -> DatasetError {
    if error.is_corrupt() || error.is_not_found() {
        return error;
    }
    let remedy = "features in an .npz are one sparse matrix (scipy.sparse.save_npz); save a dense one with numpy.save";
    DatasetError::invalid(format!("{error}; {remedy}")).at(path)
}

/// Reads the labels at a path: an array, or a text table.
fn read_labels(
    path: &Path,
    n_nodes: usize,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<crate::Labels, DatasetError> {
    match ending(path).as_str() {
        "csv" | "tsv" | "txt" => {
            labels::of_table(read_table(path, Missing::Nan, notes)?, n_nodes, options, notes).map_err(|e| e.at(path))
        }
        _ => labels::of_array(Array::read(path)?, None, options, notes),
    }
}
