//! `io`: generating a graph, writing it and reading it, in every format that can be written.
//!
//! Files are written to the system's temporary folder and read back at once, so that reading measures parsing and
//! checking, not the disk.

use std::fs;
use std::path::Path;
use std::time::Instant;

use girih_datasets::Spec;
use girih_datasets::generate::Recipe;
use girih_graph_format::file::{
    EdgeListOptions, Folder, FolderWriter, Verify, read_edge_list, read_sparse_npz, write_edge_list, write_sparse_npz,
};
use girih_graph_format::{Csr, Duplicates};

use super::Setup;
use crate::timing::{Contestant, Summary, compete};
use crate::{Case, Error, Report, graphs};

/// A way to store a graph.
struct Format {
    name: &'static str,
    /// File name; extensions choose the dialect.
    file: &'static str,
    save: fn(&Csr, &Path) -> Result<(), Error>,
    /// Returns the number of edges read, which has to be right.
    load: fn(&Path) -> Result<usize, Error>,
}

const FORMATS: [Format; 5] = [
    Format {
        name: "folder, checksums",
        file: "graph",
        save: save_folder,
        load: |path| load_folder(path, Verify::Full),
    },
    Format {
        name: "folder, mapped",
        file: "graph",
        save: save_folder,
        load: |path| load_folder(path, Verify::Structure),
    },
    Format { name: "scipy npz", file: "graph.npz", save: save_npz, load: |path| Ok(read_sparse_npz(path)?.nnz()) },
    Format { name: "csv", file: "graph.csv", save: save_edges, load: load_edges },
    Format { name: "tsv.gz", file: "graph.tsv.gz", save: save_edges, load: load_edges },
];

/// Adds a case for the generator, and two for each format.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    report.cases.extend(generate_graph(setup)?);
    let start = Instant::now();
    let dataset = graphs::load(setup.graph())?;
    let time = Summary::of(&[start.elapsed().as_secs_f64()]);
    report.graph = Some(graphs::describe(&dataset));
    report.cases.push(with_edge_rate(Case::new("whole data set/load", time), dataset.n_edges()));

    let folder = tempfile::tempdir()?;
    for format in FORMATS {
        let path = folder.path().join(format.file);
        let save = Contestant::new(format!("{}/save", format.name), || (format.save)(&dataset.graph, &path));
        let load = Contestant::new(format!("{}/load", format.name), || {
            let (found, expected) = ((format.load)(&path)?, dataset.n_edges());
            if found == expected { Ok(()) } else { Err(Error::from(format!("{found} of {expected} edges came back"))) }
        });
        let results = compete(setup.protocol, vec![save, load])?;
        let megabytes = bytes_at(&path)? as f64 / 1e6;
        for (name, time) in results {
            let case = Case::new(name, time).with("mb", megabytes).with("mb_s", megabytes / time.median_s);
            report.cases.push(with_edge_rate(case, dataset.n_edges()));
        }
    }
    Ok(())
}

/// The case of generating the graph alone, without features; none when the SPEC names files.
fn generate_graph(setup: &Setup) -> Result<Option<Case>, Error> {
    let Spec::Synth { name, mut recipe } = setup.graph().parse()? else { return Ok(None) };
    if let Recipe::Planted(planted) = &mut recipe {
        planted.features = 0;
    }
    let n_edges = recipe.edges() as usize;
    let generate = Contestant::new("graph only/generate", || recipe.generate(&name, 1).map(drop));
    let results = compete(setup.protocol, vec![generate])?;
    let case = results.into_iter().next().map(|(name, time)| {
        let per_core = n_edges as f64 / time.median_s / rayon::current_num_threads() as f64;
        with_edge_rate(Case::new(name, time), n_edges).with("million_edges_s_core", per_core / 1e6)
    });
    Ok(case)
}

fn with_edge_rate(case: Case, n_edges: usize) -> Case {
    let edges_per_s = n_edges as f64 / case.time.median_s;
    case.with("million_edges_s", edges_per_s / 1e6)
}

fn save_folder(graph: &Csr, path: &Path) -> Result<(), Error> {
    let mut writer = FolderWriter::create(path)?;
    writer.graph(graph)?;
    Ok(writer.finish()?)
}

fn load_folder(path: &Path, verify: Verify) -> Result<usize, Error> {
    Ok(Folder::open(path, verify)?.graph()?.nnz())
}

fn save_npz(graph: &Csr, path: &Path) -> Result<(), Error> {
    Ok(write_sparse_npz(path, graph)?)
}

fn save_edges(graph: &Csr, path: &Path) -> Result<(), Error> {
    Ok(write_edge_list(path, graph)?)
}

fn load_edges(path: &Path) -> Result<usize, Error> {
    Ok(read_edge_list(path, &EdgeListOptions::default())?.to_csr(Duplicates::Refuse)?.nnz())
}

/// Bytes of a file, or of the files in a folder.
fn bytes_at(path: &Path) -> Result<u64, Error> {
    if path.is_file() {
        return Ok(fs::metadata(path)?.len());
    }
    fs::read_dir(path)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
