//! `io`: generates a graph, then writes and reads it, in every writable format.
//!
//! Files are written to the system's temporary folder and read back at once, so reading measures parsing and
//! checking, not the disk. Text is also read with one thread, for a speed per core that is independent of the number
//! of cores.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use girih_datasets::Spec;
use girih_datasets::generate::Recipe;
use girih_graph_format::file::{
    EdgeListOptions, Folder, FolderWriter, Missing, Verify, read_csv, read_edge_list, read_matrix_market, read_metis,
    read_sparse_npz, write_edge_list, write_file, write_matrix_market, write_metis, write_sparse_npz,
};
use girih_graph_format::{Csr, Duplicates, Matrix, Notes};
use rayon::ThreadPoolBuilder;

use super::setup::{Setup, random_matrix};
use crate::timing::{Contestant, Summary, compete};
use crate::{Case, Error, Report, graphs};

/// Storage format of a graph.
struct Format {
    name: &'static str,
    /// File name; its extensions choose the dialect.
    file: &'static str,
    /// Whether it is also read with one thread.
    text: bool,
    save: fn(&Csr, &Path) -> Result<(), Error>,
    /// Returns the number of edges read, which is checked.
    load: fn(&Path) -> Result<usize, Error>,
}

const FORMATS: [Format; 9] = [
    Format {
        name: "folder, checksums",
        file: "graph",
        text: false,
        save: save_folder,
        load: |path| load_folder(path, Verify::Full),
    },
    Format {
        name: "folder, mapped",
        file: "graph",
        text: false,
        save: save_folder,
        load: |path| load_folder(path, Verify::Structure),
    },
    Format {
        name: "scipy npz",
        file: "graph.npz",
        text: false,
        save: save_npz,
        load: |path| Ok(read_sparse_npz(path)?.nnz()),
    },
    Format { name: "csv", file: "graph.csv", text: true, save: save_edges, load: load_edges },
    Format { name: "csv, edges unsorted", file: "edges.csv", text: true, save: save_edges, load: load_edges_unsorted },
    Format { name: "tsv.gz", file: "graph.tsv.gz", text: true, save: save_edges, load: load_edges },
    Format {
        name: "mtx",
        file: "graph.mtx",
        text: true,
        save: |graph, path| Ok(write_matrix_market(path, graph)?),
        load: |path| Ok(read_matrix_market(path, Duplicates::Sum)?.0.nnz()),
    },
    Format { name: "mtx, weighted", file: "weighted.mtx", text: true, save: save_weighted, load: load_weighted },
    Format {
        name: "metis",
        file: "graph.graph",
        text: true,
        save: |graph, path| Ok(write_metis(path, &graph.without_self_loops())?),
        load: |path| Ok(read_metis(path)?.0.nnz()),
    },
];

/// Rows and columns of the feature table: 40 MB of text, or 1 MB in a quick run.
const TABLE: [usize; 2] = [32_768, 128];
const SMALL_TABLE: [usize; 2] = [1024, 128];

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
        let check = |found: usize| match dataset.n_edges() {
            expected if found == expected => Ok(()),
            expected => Err(Error::from(format!("{found} of {expected} edges came back"))),
        };
        let mut contestants = vec![save, read_by(format.name, None, || check((format.load)(&path)?))?];
        if format.text {
            contestants.push(read_by(format.name, Some(1), || check((format.load)(&path)?))?);
        }
        let results = compete(setup.protocol, contestants)?;
        let megabytes = bytes_at(&path)? as f64 / 1e6;
        for (name, time) in results {
            report.cases.push(with_edge_rate(with_rate(Case::new(name, time), megabytes), dataset.n_edges()));
        }
    }
    report.cases.extend(read_table(setup, &folder.path().join("features.csv"))?);
    Ok(())
}

/// Contestant that reads, with all threads or `threads`.
fn read_by<'a>(
    name: &str,
    threads: Option<usize>,
    mut read: impl FnMut() -> Result<(), Error> + Send + 'a,
) -> Result<Contestant<'a>, Error> {
    let Some(threads) = threads else { return Ok(Contestant::new(format!("{name}/load"), read)) };
    let pool = ThreadPoolBuilder::new().num_threads(threads).build()?;
    Ok(Contestant::new(format!("{name}/load, threads={threads}"), move || pool.install(&mut read)))
}

/// Cases of reading features from a text table.
fn read_table(setup: &Setup, path: &Path) -> Result<Vec<Case>, Error> {
    let [rows, columns] = if setup.small { SMALL_TABLE } else { TABLE };
    let table = random_matrix(rows, columns)?;
    save_table(&table, path)?;
    let megabytes = bytes_at(path)? as f64 / 1e6;
    let read = || match read_csv(path, Missing::Refuse, &mut Notes::default())? {
        found if found == table => Ok(()),
        _ => Err(Error::from("other features came back")),
    };
    let contestants = vec![read_by("csv features", None, read)?, read_by("csv features", Some(1), read)?];
    let results = compete(setup.protocol, contestants)?;
    Ok(results.into_iter().map(|(name, time)| with_rate(Case::new(name, time), megabytes)).collect())
}

fn save_table(table: &Matrix, path: &Path) -> Result<(), Error> {
    Ok(write_file(path, |out| {
        for row in 0..table.n_rows() {
            let fields: Vec<String> = table.row(row).iter().map(f32::to_string).collect();
            writeln!(out, "{}", fields.join(","))?;
        }
        Ok(())
    })?)
}

/// Case of generating the graph alone, without features; none if the SPEC names files.
fn generate_graph(setup: &Setup) -> Result<Option<Case>, Error> {
    let Spec::Synth { name, mut recipe } = setup.graph().parse()? else { return Ok(None) };
    match &mut recipe {
        Recipe::Planted(planted) => planted.features = 0,
        Recipe::Typed(typed) => typed.node_types.iter_mut().for_each(|of| of.features = 0),
        Recipe::Rmat(_) => {}
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

fn with_rate(case: Case, megabytes: f64) -> Case {
    let rate = megabytes / case.time.median_s;
    case.with("mb", megabytes).with("mb_s", rate)
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
    Ok(read_edge_list(path, &EdgeListOptions::default())?.edges.to_csr(Duplicates::Refuse)?.nnz())
}

/// Parses edges without sorting them into rows.
fn load_edges_unsorted(path: &Path) -> Result<usize, Error> {
    Ok(read_edge_list(path, &EdgeListOptions::default())?.edges.len())
}

/// Saves weights with about eight digits, like measured ones.
fn save_weighted(graph: &Csr, path: &Path) -> Result<(), Error> {
    let weights = random_matrix(graph.nnz(), 1)?;
    Ok(write_matrix_market(path, &graph.with_values(Some(weights.buffer().clone()))?)?)
}

fn load_weighted(path: &Path) -> Result<usize, Error> {
    Ok(read_matrix_market(path, Duplicates::Sum)?.0.values().map_or(0, <[f32]>::len))
}

/// Bytes of a file, or of the files in a folder.
fn bytes_at(path: &Path) -> Result<u64, Error> {
    if path.is_file() {
        return Ok(fs::metadata(path)?.len());
    }
    fs::read_dir(path)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
