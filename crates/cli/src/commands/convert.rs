//! `girih generate` and `girih convert`: write data sets to files.

use std::path::Path;
use std::time::Instant;

use girih_datasets::{Dataset, LoadOptions, OutputFormat, load};

use crate::args::{ConvertArgs, GenerateArgs, OutputArgs};
use crate::context::data::{load_required, refuse_unverified};
use crate::context::reading;
use crate::error::CliError;
use crate::output::Results;
use crate::paths;

/// Generates a data set and writes it as a girih folder.
pub fn generate(args: &GenerateArgs) -> Result<(), CliError> {
    let spec = if args.spec.starts_with("synth:") { args.spec.clone() } else { format!("synth:{}", args.spec) };
    paths::check(&args.out)?;
    let start = Instant::now();
    let dataset = load(&spec, &LoadOptions::default())?;
    let seconds = start.elapsed().as_secs_f64();
    paths::make_parents(&args.out)?;
    dataset.save(&args.out)?;
    report(&dataset, OutputFormat::Folder, &args.out, seconds, args.output);
    Ok(())
}

/// Reads a data set and writes it in the format that the output's name implies.
pub fn convert(args: &ConvertArgs) -> Result<(), CliError> {
    paths::check(&args.out)?;
    refuse_unverified(&args.data)?;
    let format = OutputFormat::of(&args.out)?;
    let start = Instant::now();
    let dataset = load_required(&args.data, &args.data.options(0, 1))?;
    let dataset = if args.homogeneous { without_types(dataset)? } else { dataset };
    let format = format.for_data(&dataset);
    paths::make_parents(&args.out)?;
    dataset.save_as(format, &args.out)?;
    if dataset.edge_split.is_some() && format != OutputFormat::Folder {
        tracing::warn!("{} keeps no split of edges, which was left out; a folder keeps it", format.name());
    }
    if !format.holds_features() && (dataset.features.is_some() || dataset.labels.is_some()) {
        tracing::warn!("{} holds the graph alone; features, labels and splits were left out", format.name());
    }
    report(&dataset, format, &args.out, start.elapsed().as_secs_f64(), args.output);
    Ok(())
}

/// Data without its types.
fn without_types(dataset: Dataset) -> Result<Dataset, CliError> {
    if dataset.typed.is_none() {
        let name = &dataset.name;
        return Err(CliError::Other(format!("--homogeneous leaves types out, and {name} has none; leave it out")));
    }
    Ok(dataset.homogeneous()?)
}

fn report(dataset: &Dataset, format: OutputFormat, out: &Path, seconds: f64, output: OutputArgs) {
    let mut results = Results::default();
    results
        .add("data", dataset.name.as_str(), "Data", dataset.name.as_str())
        .add_hidden("generated", dataset.generated)
        .add("nodes", dataset.n_nodes(), "Nodes", dataset.n_nodes().to_string())
        .add("edges", dataset.n_edges(), "Edges", dataset.n_edges().to_string())
        .add("features", dataset.n_features(), "Features", dataset.n_features().to_string())
        .add("classes", dataset.n_classes(), "Classes", dataset.n_classes().to_string());
    reading::add(&mut results, &dataset.outline().splits, &dataset.notes);
    results
        .add("seconds", seconds, "Seconds", format!("{seconds:.2}"))
        .add("format", format.name(), "Format", format.name())
        .add("out", out.display().to_string(), "Written to", out.display().to_string());
    results.print(output.json);
}
