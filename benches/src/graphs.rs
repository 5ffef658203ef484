//! The graphs that suites run on, and their way to other libraries.

use std::path::Path;
use std::time::Instant;

use girih_datasets::{Dataset, Features, Labels, LoadOptions};
use girih_graph_format::Csr;
use girih_graph_format::file::FolderWriter;

use crate::Error;

/// A tenth of Reddit's edges over all its nodes: large enough for every cache, small enough for a laptop.
pub const DEFAULT: &str = "synth:reddit,degree=98";
/// All of Reddit's edges: for devices, whose caches are larger and which are faster.
pub const FULL: &str = "synth:reddit";
/// The graph of a quick run, which shows that everything works and little else.
pub const SMALL: &str = "synth:planted,nodes=20000,degree=20,features=64,classes=10";

/// The data set that `spec` names.
///
/// # Errors
/// When the SPEC is wrong or its files are.
pub fn load(spec: &str) -> Result<Dataset, Error> {
    load_with_splits(spec, 1)
}

/// As [`load`], with as many split sets as runs want, drawn where the data ships none.
///
/// # Errors
/// When the SPEC is wrong or its files are.
pub fn load_with_splits(spec: &str, n_splits: usize) -> Result<Dataset, Error> {
    let start = Instant::now();
    let dataset = girih_datasets::load(spec, &LoadOptions { n_splits, ..LoadOptions::default() })?;
    eprintln!("{} in {:.1} s", describe(&dataset), start.elapsed().as_secs_f64());
    Ok(dataset)
}

/// One line for people and records.
#[must_use]
pub fn describe(dataset: &Dataset) -> String {
    format!(
        "{}: {} nodes, {} edges, {} features, {} classes",
        dataset.name,
        dataset.n_nodes(),
        dataset.n_edges(),
        dataset.n_features(),
        dataset.n_classes()
    )
}

/// Writes `graph` as girih's own folder, whose arrays NumPy reads.
///
/// # Errors
/// When writing fails.
pub fn export_graph(graph: &Csr, folder: &Path) -> Result<(), Error> {
    let mut writer = FolderWriter::create(folder)?;
    writer.graph(graph)?;
    Ok(writer.finish()?)
}

/// Writes what training reads: `graph`, and the features, classes and training nodes of `dataset`.
///
/// # Errors
/// When writing fails, or the data set lacks dense features, single labels or a split.
pub fn export_training(graph: &Csr, dataset: &Dataset, folder: &Path) -> Result<(), Error> {
    let (Some(Features::Dense(features)), Some(Labels::Single { classes, .. }), Some(split)) =
        (&dataset.features, &dataset.labels, dataset.splits.first())
    else {
        return Err(format!("{}: the peer needs dense features, one class per node and a split", dataset.name).into());
    };
    let mut writer = FolderWriter::create(folder)?;
    writer.graph(graph)?;
    writer.array("features", &[features.n_rows(), features.n_cols()], features.data())?;
    writer.array("labels", &[classes.len()], classes)?;
    writer.array("train", &[split.train.len()], &split.train)?;
    Ok(writer.finish()?)
}
