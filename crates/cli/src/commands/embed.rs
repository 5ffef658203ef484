//! `girih embed`: writes the embedding of every node.

use std::path::Path;

use girih_graph_format::{Matrix, file};

use crate::args::{EmbedArgs, OutputArgs};
use crate::context::device::on_backend;
use crate::context::trained::{best_checkpoint, data_of_one, describe};
use crate::error::CliError;
use crate::output::Results;
use crate::paths;

/// Computes and writes the embeddings.
pub fn run(args: &EmbedArgs) -> Result<(), CliError> {
    paths::check(&args.out)?;
    let checkpoint = best_checkpoint(&args.checkpoint)?;
    let (backend, dataset) = data_of_one(&checkpoint, (&args.checkpoint, &args.data), &args.device)?;
    let rows = on_backend!(&backend, backend => girih_trainer::embeddings(backend, dataset, &checkpoint))?;
    write(describe(&checkpoint, &backend.name()), &rows, (&args.out, args.output))
}

/// Writes embeddings, and prints `results` with their sizes.
pub fn write(mut results: Results, rows: &Matrix, (path, output): (&Path, OutputArgs)) -> Result<(), CliError> {
    paths::make_parents(path)?;
    let (n_rows, n_cols, out) = (rows.n_rows(), rows.n_cols(), path.display().to_string());
    file::write_npy(path, &[n_rows, n_cols], rows.data())?;
    results
        .add("nodes", n_rows, "Nodes", n_rows.to_string())
        .add("kind", "embeddings", "Values", format!("embeddings of {n_cols} columns"))
        .add("out", out.as_str(), "Written to", out.as_str());
    results.print(output.json);
    Ok(())
}
