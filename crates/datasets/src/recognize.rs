//! [`recognize`]: the format of a path.

use std::path::{Path, PathBuf};

use girih_graph_format::file::MANIFEST;

use crate::file_kind::FileKind;
use crate::inventory::Inventory;
use crate::named_arrays::{self, ArrayFolder};
use crate::{
    DatasetError, id_pairs, igb, lightgcn, mag240m, movielens, ntriples, ogb, planetoid, triple_files, typed_arrays,
};

/// List of the formats that [`load`](crate::load()) reads, for help texts and errors: files by their endings, folders by
/// what is in them.
pub const FORMATS: &str = "girih's own folder (girih.toml), Planetoid (ind.NAME.graph and its seven \
     companions), an OGB raw folder (edge.csv.gz or data.npz; with types triplet-type-list.csv.gz or \
     edge_index_dict.npz), MAG240M (processed/author___writes___paper/edge_index.npy), IGB and IGBH \
     (processed/paper__cites__paper/edge_index.npy), LightGCN (test.txt with train.txt or s_adj_mat.npz), MovieLens (u.data), \
     triples (train.txt, valid.txt and test.txt, also as .tsv or train2id.txt), \
     named arrays (edge_index, or indptr and indices, as .npy in a \
     folder, .safetensors or .npz; with types author__writes__paper.edge_index), id pairs (pa.txt with labels.npy or \
     p_feat.npz), .npz of gnn-benchmark, of the heterophilous graphs or of scipy.sparse (also as the only \
     file in a .zip), Matrix Market (.mtx), METIS (.graph) and edge lists (.csv, .tsv, .txt, .edges, .edgelist, .el, \
     out.NAME), N-Triples (.nt); text also as .gz; and folders that hold one of these in raw/";

/// Formats that a path may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Girih,
    Planetoid,
    OgbRaw,
    /// Raw folder of OGB with types.
    OgbTyped,
    /// MAG240M.
    Mag240m,
    /// IGB and IGBH.
    Igb,
    LightGcn,
    /// Ratings of MovieLens 100K.
    MovieLens,
    /// Triples of head, relation and tail.
    Triples,
    ArrayFolder,
    /// N-Triples with tables of labels.
    RdfFolder,
    /// Lists of pairs of ids, with types that are letters.
    IdPairs,
    File(FileKind),
}

/// Path whose format is known.
pub(crate) struct Recognized {
    pub(crate) format: Format,
    /// File or folder to open.
    pub(crate) path: PathBuf,
    /// Other entries of the given folder, which are not used.
    pub(crate) beside: Inventory,
}

impl Recognized {
    fn alone(format: Format, path: &Path) -> Self {
        Self { format, path: path.to_owned(), beside: Inventory::default() }
    }
}

/// Finds the format of a path, and the file to open. The only data file of a folder, or its folder `raw`, stands for
/// the folder.
///
/// # Errors
/// When nothing exists at the path, or nothing of a known format.
pub(crate) fn recognize(path: &Path) -> Result<Recognized, DatasetError> {
    if path.is_dir() {
        return recognize_folder(path);
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.starts_with("ind.") && path.with_file_name(format!("{}.graph", name.trim_end_matches('.'))).is_file() {
        return Ok(Recognized::alone(Format::Planetoid, path));
    }
    if let Err(error) = std::fs::metadata(path) {
        return Err(DatasetError::from(error).at(path));
    }
    if name == movielens::RATINGS {
        return Ok(Recognized::alone(Format::MovieLens, path));
    }
    match FileKind::of_input(path) {
        Some(FileKind::Metis) if name.starts_with("ind.") => {
            Ok(Recognized::alone(Format::Planetoid, &path.with_extension("")))
        }
        Some(kind) => Ok(Recognized::alone(Format::File(kind), path)),
        None => {
            let message = match rdf_of(&name) {
                Some(other) => format!("{other} is not read; convert it to N-Triples (.nt), as by riot or rdflib"),
                None => format!("the format of this file is not recognised; supported are {FORMATS}"),
            };
            Err(DatasetError::invalid(message).at(path))
        }
    }
}

/// Form of RDF that the name of a file indicates, other than N-Triples.
fn rdf_of(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let known = [("ttl", "Turtle"), ("rdf", "RDF/XML"), ("owl", "RDF/XML"), ("n3", "Notation3"), ("nq", "N-Quads")];
    let ending = name.strip_suffix(".gz").unwrap_or(&name).rsplit_once('.')?.1;
    known.into_iter().find_map(|(of, form)| (of == ending).then_some(form))
}

/// Finds the format of a folder. More specific contents are tried first; the last case is the only data file of a
/// folder.
fn recognize_folder(path: &Path) -> Result<Recognized, DatasetError> {
    if let Some(found) = recognize_contents(path)? {
        return Ok(found);
    }
    let raw = path.join("raw");
    let beside = |used: &str| {
        let mut beside = Inventory::of_folder(path)?;
        beside.take(used);
        Ok::<_, DatasetError>(beside)
    };
    if raw.is_dir() {
        let found = match recognize_contents(&raw)? {
            Some(found) => found,
            None => only_data_file(&raw)?,
        };
        return Ok(Recognized { beside: beside("raw/")?, ..found });
    }
    only_data_file(path)
}

/// Whether a folder has the arrays of a graph, with types or without.
fn holds_arrays(folder: &ArrayFolder) -> bool {
    named_arrays::holds_graph(folder) || typed_arrays::recognizes(folder)
}

/// Finds the format of a folder that several of its files identify.
fn recognize_contents(path: &Path) -> Result<Option<Recognized>, DatasetError> {
    let format = if path.join(MANIFEST).is_file() {
        Format::Girih
    } else if !planetoid::names_in(path).is_empty() {
        Format::Planetoid
    } else if triple_files::recognizes(path) {
        Format::Triples
    } else if lightgcn::recognizes(path) {
        Format::LightGcn
    } else if path.join(movielens::RATINGS).is_file() {
        Format::MovieLens
    } else if let Some(raw) = ogb::find_raw(path) {
        return Ok(Some(Recognized::alone(Format::OgbRaw, &raw)));
    } else if let Some(raw) = ogb::typed::find_raw(path) {
        return Ok(Some(Recognized::alone(Format::OgbTyped, &raw)));
    } else if let Some(folders) = mag240m::find(path) {
        return Ok(Some(Recognized::alone(Format::Mag240m, &folders)));
    } else if let Some(folders) = igb::find(path) {
        return Ok(Some(Recognized::alone(Format::Igb, &folders)));
    } else if ntriples::is_folder(path) {
        Format::RdfFolder
    } else if holds_arrays(&ArrayFolder::open(path)?) {
        Format::ArrayFolder
    } else if id_pairs::is_folder(path) {
        Format::IdPairs
    } else {
        return Ok(None);
    };
    Ok(Some(Recognized::alone(format, path)))
}

fn only_data_file(path: &Path) -> Result<Recognized, DatasetError> {
    let mut beside = Inventory::of_folder(path)?;
    let mut known = beside.left().filter_map(|name| Some((FileKind::of_input(&path.join(name))?, name.to_owned())));
    let found = (known.next(), known.next());
    drop(known);
    match found {
        (Some((kind, only)), None) => {
            beside.take(&only);
            Ok(Recognized { format: Format::File(kind), path: path.join(only), beside })
        }
        (first, _) => {
            let problem = if first.is_some() { "holds several data files, name one" } else { "holds no data set" };
            let names = beside.left().collect::<Vec<_>>().join(", ");
            Err(DatasetError::invalid(format!("the folder {problem} (found: {names}); supported are {FORMATS}"))
                .at(path))
        }
    }
}
