//! Targets that load data sets from files.

use std::path::Path;

use girih_datasets::{DataSource, LoadOptions, load};
use girih_graph_format::file::{Folder, ReadTimes, Verify};

use crate::Input;

/// Loads a path; accepted data must obey the rules of data sets.
pub(super) fn one(path: &Path, _: &Input) -> Result<(), String> {
    with(path, &LoadOptions::default())
}

fn with(path: &Path, options: &LoadOptions) -> Result<(), String> {
    let dataset = load(&path.to_string_lossy(), options).map_err(|error| error.to_string())?;
    dataset.validate().expect("what is loaded keeps the rules of a data set");
    Ok(())
}

/// Loads an edge list by its own header, and as a bipartite one.
pub(super) fn edge_list(path: &Path, input: &Input) -> Result<(), String> {
    let result = one(path, input);
    // The second result is ignored: its refusal names the file as well, or its memory is bounded.
    let other = LoadOptions { bipartite: Some(true), ..LoadOptions::default() };
    let _ = with(path, &other);
    for times in [ReadTimes::IfThere, ReadTimes::Required] {
        let _ = with(path, &LoadOptions { times, ..LoadOptions::default() });
    }
    let _ = with(path, &with_edge_features());
    result
}

/// Options that read all features of edges.
fn with_edge_features() -> LoadOptions {
    LoadOptions { times: ReadTimes::Required, edge_features: vec!["all".to_owned()], ..LoadOptions::default() }
}

/// Loads ratings, and again with their times and features.
pub(super) fn movielens(path: &Path, input: &Input) -> Result<(), String> {
    let _ = with(path, &with_edge_features());
    one(path, input)
}

/// Loads a graph with features and labels in separate files.
pub(super) fn tables(folder: &Path, input: &Input) -> Result<(), String> {
    let named = |stem: &str| {
        let file = input.files.iter().find(|file| file.name.split('.').next() == Some(stem));
        file.map(|file| folder.join(&file.name))
    };
    let graph = named("edges").ok_or_else(|| format!("{}: no graph", folder.display()))?;
    with(&graph, &LoadOptions { features: named("features"), labels: named("labels"), ..LoadOptions::default() })
}

/// Loads a girih folder: as a whole, without checksums, and by rows as ranks do.
pub(super) fn girih(path: &Path, input: &Input) -> Result<(), String> {
    let whole = one(path, input);
    let options = LoadOptions { verify: Verify::Structure, ..LoadOptions::default() };
    let _ = with(path, &options);
    let _ = rows(path, &options);
    let _ = Folder::open(path, Verify::Structure).and_then(|folder| folder.check_checksums());
    whole
}

/// Reads a folder in two row ranges.
fn rows(path: &Path, options: &LoadOptions) -> Result<(), String> {
    let text = |error: girih_datasets::DatasetError| error.to_string();
    let source = DataSource::open(&path.to_string_lossy(), options).map_err(text)?;
    source.offsets().map_err(text)?;
    let n = source.outline().n_nodes;
    for nodes in [0..n / 2, n / 2..n] {
        source.graph_rows(nodes.clone()).map_err(text)?;
        source.rows(nodes).map_err(text)?;
    }
    Ok(())
}
