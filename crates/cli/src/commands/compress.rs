//! `girih compress` and `girih decompress`: features to a compressed store and back.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use girih_compress::{
    CompressError, CompressedFeatures, Encoded, ErrorReport, FeatureCodec, Progress, RowSource, SampleOptions,
    draw_sample, encode_to_file, fit,
};
use girih_datasets::{FEATURE_STORE, Features, LoadOptions, load};
use girih_graph_format::file::{NpyRows, Verify, write_npy_rows};
use girih_machine::{memory, readable_bytes};
use rayon::prelude::*;

use crate::args::{CompressArgs, DecompressArgs, OutputArgs};
use crate::context::reading;
use crate::error::CliError;
use crate::output::{Results, under_spinner};
use crate::{interrupt, paths, progress};

/// Fits a codec to the features, then encodes all rows.
pub fn compress(args: &CompressArgs) -> Result<(), CliError> {
    let store = args.out.join(FEATURE_STORE);
    paths::check(&store)?;
    let source = open_source(args.spec())?;
    let start = Instant::now();
    let (codec, errors) = under_spinner("fitting the codec", args.output, || fitted(args, &*source))?;
    paths::make_parents(&store)?;
    let encoded = encode(&store, &*codec, (&*source, Path::new(args.spec())), args.output)?;
    let mut results = Results::default();
    results.add("data", args.spec(), "Data", args.spec());
    describe_codec(&*codec, source.n_rows(), encoded.file_bytes, &mut results);
    describe_errors(errors, &mut results);
    if encoded.rows_resumed > 0 {
        results.add("rows_resumed", encoded.rows_resumed, "Encoded before", format!("{} rows", encoded.rows_resumed));
    }
    describe_work(start, &store, &mut results);
    results.print(args.output.json);
    Ok(())
}

/// Decodes a whole store into an array.
pub fn decompress(args: &DecompressArgs) -> Result<(), CliError> {
    paths::check(&args.out)?;
    let start = Instant::now();
    let store = open_store(&args.store)?;
    let (n_rows, width) = (store.n_rows(), store.width());
    paths::make_parents(&args.out)?;
    under_spinner("decoding", args.output, || {
        write_npy_rows(&args.out, (n_rows, width), |first, rows| {
            let rows = rows.par_chunks_exact_mut(width).enumerate();
            rows.for_each(|(i, row)| store.codec().decode_row(store.code(first + i), row));
        })
    })?;
    let mut results = Results::default();
    describe_codec(store.codec(), n_rows, store.codes().len() as u64, &mut results);
    describe_work(start, &args.out, &mut results);
    results.print(args.output.json);
    Ok(())
}

/// Opens the store at a path: a file, or a folder that contains the store.
fn open_store(path: &Path) -> Result<CompressedFeatures, CliError> {
    let file = if path.is_dir() { path.join(FEATURE_STORE) } else { path.to_owned() };
    Ok(CompressedFeatures::open(&file, Verify::Full)?)
}

/// Opens the features of a SPEC: a matrix in a file, or a data set.
fn open_source(spec: &str) -> Result<Box<dyn RowSource>, CliError> {
    let path = Path::new(spec);
    if path.extension().is_some_and(|extension| extension == "npy") {
        return Ok(Box::new(NpyRows::open(path)?));
    }
    let dataset = load(spec, &LoadOptions::default())?;
    reading::warn_of(&dataset.notes);
    match dataset.features {
        Some(Features::Dense(matrix)) => Ok(Box::new(matrix)),
        Some(Features::Sparse(csr)) => Ok(Box::new(csr)),
        Some(Features::Compressed(codes)) => Err(CliError::Other(format!(
            "the features of {} are compressed by {} already; give them as they were, such as the folder's features.npy",
            dataset.name,
            codes.codec().spec()
        ))),
        None if dataset.typed.as_ref().is_some_and(|typed| typed.has_several_types()) => Err(CliError::Other(format!(
            "{} has features by node type, and a store holds those of one; give a matrix as .npy, or leave codes to `girih \
             train --codec`",
            dataset.name
        ))),
        None => Err(CliError::Other(format!(
            "{} has no features to compress; give data with features, or a matrix as .npy",
            dataset.name
        ))),
    }
}

/// Codec fitted to a sample, with its errors on that sample.
fn fitted(args: &CompressArgs, source: &dyn RowSource) -> Result<(Box<dyn FeatureCodec>, ErrorReport), CliError> {
    let of_source = |error: CompressError| error.at(Path::new(args.spec()));
    let options = SampleOptions { n_rows: args.sample as usize, seed: args.seed };
    let sample = draw_sample(source, options).map_err(of_source)?;
    let codec = fit(args.codec, &sample, args.seed).map_err(of_source)?;
    let errors = ErrorReport::measure(&*codec, &sample).map_err(of_source)?;
    Ok((codec, errors))
}

/// Encodes a source under a progress bar of rows. Errors name the source; Ctrl-C stops after the chunks in flight.
fn encode(
    store: &Path,
    codec: &dyn FeatureCodec,
    (source, name): (&dyn RowSource, &Path),
    output: OutputArgs,
) -> Result<Encoded, CliError> {
    let interrupted = interrupt::watch();
    let bar = progress::bar(source.n_rows() as u64, output);
    let progress = |progress: Progress| {
        bar.set_position(progress.rows_done);
        if interrupted.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let encoded = encode_to_file(store, codec, source, &progress);
    bar.finish_and_clear();
    Ok(encoded.map_err(|error| if error.is_stopped() { error } else { error.at(name) })?)
}

/// Adds the shape, codec and compression ratio of the rows. `n_bytes` is their encoded size.
fn describe_codec(codec: &dyn FeatureCodec, n_rows: usize, n_bytes: u64, results: &mut Results) {
    let (width, row_bytes) = (codec.width(), codec.row_bytes());
    let bytes_in = (n_rows * width * size_of::<f32>()) as u64;
    let ratio = bytes_in as f64 / n_bytes.max(1) as f64;
    results
        .add("codec", codec.spec().to_string(), "Codec", codec.spec().to_string())
        .add("rows", n_rows, "Rows", format!("{n_rows} of {width} features"))
        .add_hidden("width", width)
        .add("row_bytes", row_bytes, "A row takes", format!("{row_bytes} bytes"))
        .add("bytes_in", bytes_in, "As float32", readable_bytes(bytes_in))
        .add("bytes_out", n_bytes, "Compressed", readable_bytes(n_bytes))
        .add("ratio", ratio, "Ratio", format!("{ratio:.1}"));
}

fn describe_errors(errors: ErrorReport, results: &mut Results) {
    let ErrorReport { n_rows, cosine_mean: cosine, relative_error, error_max } = errors;
    let shown = format!("{cosine:.4}, mean of {n_rows} rows of the sample");
    results
        .add("cosine_similarity_mean", cosine, "Cosine to the original", shown)
        .add("relative_error", relative_error, "Error over norm", format!("{relative_error:.4}"))
        .add_hidden("error_max", error_max);
}

fn describe_work(start: Instant, out: &Path, results: &mut Results) {
    let seconds = start.elapsed().as_secs_f64();
    results
        .add("seconds", seconds, "Seconds", format!("{seconds:.2}"))
        .add_hidden("peak_host_bytes", memory::peak_bytes())
        .add("out", out.display().to_string(), "Written to", out.display().to_string());
}
