//! Graphs that suites run on, and their export to other libraries.

use std::path::{Path, PathBuf};
use std::time::Instant;

use girih_datasets::{Dataset, Features, Labels, LoadOptions};
use girih_graph_format::Csr;
use girih_graph_format::file::FolderWriter;

use crate::Error;

/// Graph with a tenth of Reddit's edges and all its nodes: it exceeds every cache, and fits a laptop.
pub const DEFAULT: &str = "synth:reddit,degree=98";
/// Graph with all of Reddit's edges, for devices, which have larger caches and are faster.
pub const FULL: &str = "synth:reddit";
/// Graph of a quick run, which only shows that everything works.
pub const SMALL: &str = "synth:planted,nodes=20000,degree=20,features=64,classes=10";

/// Data set of a SPEC.
///
/// # Errors
/// When the SPEC or its files are invalid.
pub fn load(spec: &str) -> Result<Dataset, Error> {
    load_with_splits(spec, 1)
}

/// As [`load`], with `n_splits` split sets, drawn if the data ships none.
///
/// # Errors
/// When the SPEC or its files are invalid.
pub fn load_with_splits(spec: &str, n_splits: usize) -> Result<Dataset, Error> {
    let start = Instant::now();
    let dataset = girih_datasets::load(spec, &LoadOptions { n_splits, ..LoadOptions::default() })?;
    eprintln!("{} in {:.1} s", describe(&dataset), start.elapsed().as_secs_f64());
    Ok(dataset)
}

/// Folder of a real data set: below `GIRIH_DATA`, otherwise below `../shared/data` beside the checkout.
#[must_use]
pub fn real(name: &str) -> Option<PathBuf> {
    let given = std::env::var_os("GIRIH_DATA").map(PathBuf::from);
    let folder = given.unwrap_or_else(|| crate::folder().join("../../shared/data"));
    Some(folder.join(name)).filter(|path| path.is_dir())
}

/// Description in one line, for people and records.
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

/// Writes `graph` as a girih folder, whose arrays NumPy can read.
///
/// # Errors
/// When writing fails.
pub fn export_graph(graph: &Csr, folder: &Path) -> Result<(), Error> {
    let mut writer = FolderWriter::create(folder)?;
    writer.graph(graph)?;
    Ok(writer.finish()?)
}

/// Writes the inputs of training: `graph`, and the features, classes and training nodes of `dataset`.
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
